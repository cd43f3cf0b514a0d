//! Rows of a lane by partition. Partitions are found by number, because each row needs its own.

use tallyring_archive::Partition;
use tallyring_records::Day;

use super::lane::Rows;

/// A partition and its number: the months from 2000 to its first month. No load has a year both by month and as a
/// whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    partition: Partition,
    number: u16,
}

impl From<Partition> for Numbered {
    fn from(partition: Partition) -> Self {
        let (year, month) = Day::of(partition.start()).year_month();
        let number = u16::try_from((year - 2000) * 12 + i16::from(month) - 1);
        let number = number.expect("BUG: counts lie in the years 2000 to 2999");
        Self { partition, number }
    }
}

/// Rows of each partition that has some.
#[derive(Default)]
pub(super) struct Partitions {
    /// Index in `rows` by the number of the partition, counted from 1; 0 for none.
    indices: Vec<u16>,
    rows: Vec<(Partition, Rows)>,
}

impl Partitions {
    /// The rows of a partition, none at first.
    #[inline]
    pub(super) fn of(&mut self, partition: Numbered) -> &mut Rows {
        let number = usize::from(partition.number);
        let known = self.indices.get(number).copied().unwrap_or(0);
        let index = match usize::from(known).checked_sub(1) {
            Some(index) => index,
            None => self.add(partition),
        };
        &mut self.rows[index].1
    }

    /// The rows of a partition, if it has some.
    pub(super) fn get(&self, partition: Partition) -> Option<&Rows> {
        let number = usize::from(Numbered::from(partition).number);
        let index = self.indices.get(number)?.checked_sub(1)?;
        Some(&self.rows[usize::from(index)].1)
    }

    /// All rows with their partitions, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Partition, Rows)> {
        self.rows.iter()
    }

    /// All rows, in the order of their partitions.
    pub(super) fn in_order(&mut self) -> Vec<&mut Rows> {
        let mut all: Vec<&mut (Partition, Rows)> = self.rows.iter_mut().collect();
        all.sort_unstable_by_key(|(partition, _)| *partition);
        all.into_iter().map(|(_, rows)| rows).collect()
    }

    #[cold]
    fn add(&mut self, Numbered { partition, number }: Numbered) -> usize {
        let number = usize::from(number);
        if self.indices.len() <= number {
            self.indices.resize(number + 1, 0);
        }
        self.rows.push((partition, Rows::default()));
        self.indices[number] = u16::try_from(self.rows.len()).expect("BUG: 12,000 months");
        self.rows.len() - 1
    }
}
