//! Rows of a lane by partition, found by number: each row looks for its own.

use tallyring_archive::Partition;
use tallyring_records::Day;

use super::lane::Rows;

/// A partition and its number: the months from 2000 to its first. In a load no year is kept by month and as a whole.
#[derive(Debug, Clone, Copy)]
pub struct Numbered {
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
pub struct Partitions {
    /// By a partition's number: its place below, counted from 1, or 0.
    places: Vec<u16>,
    rows: Vec<(Partition, Rows)>,
}

impl Partitions {
    /// The rows of a partition, none at first.
    #[inline]
    pub fn of(&mut self, partition: Numbered) -> &mut Rows {
        let number = usize::from(partition.number);
        let known = self.places.get(number).copied().unwrap_or(0);
        let place = match usize::from(known).checked_sub(1) {
            Some(place) => place,
            None => self.add(partition),
        };
        &mut self.rows[place].1
    }

    /// The rows of a partition, if it has some.
    pub fn get(&self, partition: Partition) -> Option<&Rows> {
        let number = usize::from(Numbered::from(partition).number);
        let place = self.places.get(number)?.checked_sub(1)?;
        Some(&self.rows[usize::from(place)].1)
    }

    /// All rows with their partitions, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &(Partition, Rows)> {
        self.rows.iter()
    }

    /// All rows, those of earlier partitions first.
    pub fn in_order(&mut self) -> Vec<&mut Rows> {
        let mut all: Vec<&mut (Partition, Rows)> = self.rows.iter_mut().collect();
        all.sort_unstable_by_key(|(partition, _)| *partition);
        all.into_iter().map(|(_, rows)| rows).collect()
    }

    #[cold]
    fn add(&mut self, Numbered { partition, number }: Numbered) -> usize {
        let number = usize::from(number);
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        self.rows.push((partition, Rows::default()));
        self.places[number] = u16::try_from(self.rows.len()).expect("BUG: 12,000 months");
        self.rows.len() - 1
    }
}
