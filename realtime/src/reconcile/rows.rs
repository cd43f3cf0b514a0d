//! Rows of numbers, sorted: in memory, and in files of `incoming/` where memory does not hold them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastbloom::BloomFilter;
use rayon::prelude::*;
use tallyring_archive::{Blobs, Content, Error as ArchiveError, names};

use crate::error::{Error, Result};

/// A row. Rows are sorted by their first number, then by the next ones.
pub(super) type Row = [u64; 4];
/// Rows in ascending order.
pub(super) type Source = Box<dyn FnMut() -> Result<Option<Row>>>;

const NUMBER_BYTES: usize = size_of::<u64>();
const ROW_BYTES: usize = size_of::<Row>();
/// Bytes of the disk that scratch files leave free.
const FREE_BYTES_MIN: u64 = 64 << 20;
/// Rows that are written and read together.
const ROWS_TOGETHER: usize = 1 << 12;
/// Bits of a filter for each row: one of a thousand other keys passes it.
const FILTER_BITS_EACH: usize = 15;

/// Collects rows.
pub(super) struct Rows<'b> {
    blobs: &'b Blobs,
    /// Files begin with it.
    name: String,
    rows: Vec<Row>,
    rows_max: usize,
    spilled: Vec<String>,
}

impl<'b> Rows<'b> {
    /// Holds `bytes_max` bytes in memory. The names of files in `incoming/` are `load` and `what`.
    pub(super) fn new(blobs: &'b Blobs, load: &str, what: &str, bytes_max: u64) -> Self {
        let rows_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / ROW_BYTES;
        Self {
            blobs,
            name: format!("{}/{load}.{what}", names::INCOMING),
            rows: Vec::new(),
            rows_max: rows_max.max(1),
            spilled: Vec::new(),
        }
    }

    /// Takes rows. Fails when the disk does.
    pub(super) fn add(&mut self, rows: impl ParallelIterator<Item = Row>) -> Result<()> {
        self.rows.par_extend(rows);
        match self.rows.len() >= self.rows_max {
            true => self.spill(),
            false => Ok(()),
        }
    }

    /// Fails where the disk would be nearly full afterwards: the server that counts beside needs the rest.
    fn check_room(&self) -> Result<()> {
        let needed = (self.rows.len() * ROW_BYTES) as u64;
        let free = self.blobs.free_bytes().unwrap_or(u64::MAX);
        if free >= needed.saturating_add(FREE_BYTES_MIN) {
            return Ok(());
        }
        Err(Error::Reconcile(format!(
            "its scratch files in {}/ need {needed} more bytes, 32 for each id and for each event and rule with memory, and \
             the disk has {free} free, of which {FREE_BYTES_MIN} stay free: make room, or have fewer rules with memory",
            names::INCOMING
        )))
    }

    fn spill(&mut self) -> Result<()> {
        self.check_room()?;
        self.rows.par_sort_unstable();
        let name = format!("{}-{}", self.name, self.spilled.len());
        let mut file = self.blobs.begin(&name)?;
        let mut bytes = Vec::with_capacity(ROW_BYTES * ROWS_TOGETHER);
        for rows in self.rows.chunks(ROWS_TOGETHER) {
            bytes.clear();
            let numbers = rows.iter().flatten();
            numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            file.write(&bytes)?;
        }
        file.put(&name)?;
        self.spilled.push(name);
        self.rows.clear();
        Ok(())
    }

    /// A filter of the keys of all rows, which takes as much memory as rows do at most. Fails when the disk does.
    pub(super) fn filter(&self) -> Result<BloomFilter> {
        let names = self.spilled.iter();
        let spilled: Result<Vec<Spilled>> = names.map(|name| self.open(name)).collect();
        let spilled = spilled?;
        let bytes: u64 = spilled.iter().map(|of| of.content.len()).sum();
        let rows = usize::try_from(bytes).unwrap_or(usize::MAX) / ROW_BYTES + self.rows.len();
        let bits_max = self.rows_max.saturating_mul(ROW_BYTES * 8);
        let bits = rows.saturating_mul(FILTER_BITS_EACH).min(bits_max);
        let mut filter = BloomFilter::with_num_bits(bits.max(1)).expected_items(rows);
        self.rows.iter().for_each(|row| {
            filter.insert(&key(row));
        });
        for mut spilled in spilled {
            while let Some(row) = spilled.next()? {
                filter.insert(&key(&row));
            }
        }
        Ok(filter)
    }

    fn open(&self, name: &str) -> Result<Spilled> {
        Ok(Spilled {
            content: self.blobs.content(name)?,
            name: name.to_owned(),
            at: 0,
            rows: Vec::new(),
        })
    }

    /// All rows, in sorted parts. Their files are open and have no names any more. Fails when the disk does.
    pub(super) fn into_sources(mut self) -> Result<Vec<Source>> {
        self.rows.par_sort_unstable();
        let mut rows = std::mem::take(&mut self.rows).into_iter();
        let mut sources: Vec<Source> = vec![Box::new(move || Ok(rows.next()))];
        for name in &self.spilled {
            let mut spilled = self.open(name)?;
            self.blobs.remove(name)?;
            sources.push(Box::new(move || spilled.next()));
        }
        Ok(sources)
    }
}

/// The first two numbers of a row, which are 128 keyed bits.
pub(super) fn key(row: &Row) -> [u64; 2] {
    [row[0], row[1]]
}

/// A sorted part in a file.
struct Spilled {
    name: String,
    content: Content,
    /// Bytes that were read.
    at: u64,
    /// Rows that were read, the next one last.
    rows: Vec<Row>,
}

impl Spilled {
    fn next(&mut self) -> Result<Option<Row>> {
        if self.rows.is_empty() && self.at < self.content.len() {
            let left = self.content.len() - self.at;
            let bytes = left.min((ROW_BYTES * ROWS_TOGETHER) as u64) as usize;
            let part = self.content.part(self.at, bytes);
            let part = part.map_err(ArchiveError::io("read", &self.name))?;
            self.at += bytes as u64;
            let row = |row: &[u8]| {
                let mut numbers = [0; 4];
                for (number, bytes) in numbers.iter_mut().zip(row.chunks_exact(NUMBER_BYTES)) {
                    *number = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                }
                numbers
            };
            self.rows = part.chunks_exact(ROW_BYTES).rev().map(row).collect();
        }
        Ok(self.rows.pop())
    }
}

/// Sources, merged.
pub(super) struct Merge {
    sources: Vec<Source>,
    heads: BinaryHeap<Reverse<(Row, usize)>>,
}

impl Merge {
    /// Fails when a source does.
    pub(super) fn new(sources: Vec<Source>) -> Result<Self> {
        let mut merge = Self {
            heads: BinaryHeap::with_capacity(sources.len()),
            sources,
        };
        for index in 0..merge.sources.len() {
            merge.refill(index)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, index: usize) -> Result<()> {
        if let Some(row) = self.sources[index]()? {
            self.heads.push(Reverse((row, index)));
        }
        Ok(())
    }

    /// The next row; none behind the last. Fails when a source does.
    pub(super) fn next(&mut self) -> Result<Option<Row>> {
        let Some(Reverse((row, index))) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(index)?;
        Ok(Some(row))
    }
}
