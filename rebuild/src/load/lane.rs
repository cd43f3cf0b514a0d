//! A lane: a part of the keys, numbered, and their rows by partition.

use hashbrown::HashMap;
use tallyring_archive::Error;
use tallyring_records::{COUNT_MAX, Interner, line};

use super::bucket::Bucket;
use super::order::ORDER_BYTES;
use super::partitions::{Numbered, Partitions};
use super::row::{Row, RowKey, StagedRows};

/// The keys of one lane and their counts.
#[derive(Default)]
pub(super) struct Lane {
    /// Namespace and key, `l|abc`.
    pub keys: Interner,
    /// Values of breakdowns.
    pub values: Interner,
    /// Texts behind the hashes among keys and values.
    pub lookups: HashMap<Box<[u8]>, Box<str>>,
    /// Rows by the partition of their bucket.
    pub partitions: Partitions,
    lookup_bytes: usize,
}

/// Rows of one lane and partition.
#[derive(Default)]
pub(super) struct Rows {
    /// Totals.
    pub totals: Vec<Total>,
    /// Breakdowns.
    pub parts: Vec<Part>,
}

/// One count of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Total {
    /// Key number in the high half, bucket in the low half.
    pub sort_key: u64,
    /// Count.
    pub count: u64,
}

/// One count of a key's value. Packed, because most rows of a load can be such counts: 24 bytes instead of 32.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct Part {
    /// Number of the key.
    pub key: u32,
    /// Base bucket.
    pub bucket: Bucket,
    /// Number of the value.
    pub value: u32,
    /// Number of the subtotal's name.
    pub subtotal: u16,
    /// Count.
    pub count: u64,
}

/// A sum beyond 2^53−1, with its key and bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooLarge {
    /// Number of the key.
    pub key: u32,
    /// Base bucket.
    pub bucket: Bucket,
}

impl Lane {
    /// Adds a row.
    pub(super) fn add(&mut self, row: &Row, among: &StagedRows, partition: Numbered) {
        let key = match among.key(row) {
            RowKey::Short(key) => self.keys.intern_short(key),
            RowKey::Long(key) => self.keys.intern(key),
        };
        let (bucket, count) = (row.bucket, row.count);
        let rows = self.partitions.of(partition);
        match among.part(row) {
            None => {
                let sort_key = u64::from(key) << 32 | u64::from(bucket.number());
                rows.totals.push(Total { sort_key, count });
            }
            Some((subtotal, value)) => rows.parts.push(Part {
                key,
                bucket,
                value: self.values.intern(value),
                subtotal,
                count,
            }),
        }
    }

    /// Stores the text behind a hash. Fails when another text has the same hash.
    pub(super) fn look_up(&mut self, hash: &str, raw: &str) -> Result<(), Error> {
        match self.lookups.get(hash.as_bytes()) {
            Some(known) if &**known == raw => {}
            Some(known) => {
                return Err(Error::Collision {
                    hash: hash.to_owned(),
                    first: line::shown(known.as_bytes()),
                    second: line::shown(raw.as_bytes()),
                });
            }
            None => {
                self.lookup_bytes += hash.len() + raw.len() + 2 * size_of::<Box<str>>() + 16;
                self.lookups.insert(hash.as_bytes().into(), raw.into());
            }
        }
        Ok(())
    }

    /// Memory of the lane, about, bytes, with the memory that writing it takes.
    pub(super) fn bytes(&self) -> usize {
        let rows: usize = self.partitions.iter().map(|(_, rows)| rows.bytes()).sum();
        let keys = self.keys.bytes() + self.keys.len() * ORDER_BYTES;
        rows + keys + self.values.bytes() + self.lookup_bytes
    }

    /// Sorts the rows and sums equal ones. The error names the first key and bucket whose sum is too large.
    pub(super) fn combine(&mut self) -> Result<(), TooLarge> {
        self.partitions
            .in_order()
            .into_iter()
            .try_for_each(Rows::combine)
    }

    /// The text of a stored key or value, for messages.
    pub(super) fn raw(&self, stored: &[u8]) -> String {
        let text = match self.lookups.get(stored) {
            Some(raw) => raw.to_string().into(),
            None => String::from_utf8_lossy(stored),
        };
        line::shown(text.as_bytes())
    }
}

impl Rows {
    fn bytes(&self) -> usize {
        size_of_val(self.totals.as_slice()) + size_of_val(self.parts.as_slice())
    }

    /// The breakdowns by one subtotal. The breakdowns are sorted by subtotal.
    pub(super) fn parts_of(&self, subtotal: u16) -> &[Part] {
        let start = self.parts.partition_point(|part| part.subtotal < subtotal);
        let parts = &self.parts[start..];
        &parts[..parts.partition_point(|part| part.subtotal == subtotal)]
    }

    /// Whether the values of each bucket of a breakdown sum to its total. The rows are combined.
    pub(super) fn balance(&self) -> bool {
        let mut of_subtotals = self.parts.chunk_by(|a, b| a.subtotal == b.subtotal);
        of_subtotals.all(|parts| {
            let mut totals = self.totals.iter();
            let mut buckets = parts.chunk_by(|a, b| a.total_key() == b.total_key());
            buckets.all(|bucket| {
                let sum: u128 = bucket.iter().map(|part| u128::from(part.count)).sum();
                let total = totals.find(|total| total.sort_key >= bucket[0].total_key());
                total.is_some_and(|total| {
                    total.sort_key == bucket[0].total_key() && u128::from(total.count) == sum
                })
            })
        })
    }

    fn combine(&mut self) -> Result<(), TooLarge> {
        let mut wrong = None;
        let mut sum = |one: u64, other: u64, key: u32, bucket: Bucket| {
            // Both counts are at most 2^53−1, or an earlier sum was too large already.
            let sum = one.saturating_add(other);
            if sum > COUNT_MAX {
                wrong.get_or_insert(TooLarge { key, bucket });
            }
            sum
        };
        self.totals.sort_unstable_by_key(|total| total.sort_key);
        self.totals.dedup_by(|next, kept| {
            let equal = next.sort_key == kept.sort_key;
            if equal {
                kept.count = sum(kept.count, next.count, next.key(), next.bucket());
            }
            equal
        });
        self.parts.sort_unstable_by_key(Part::sort_key);
        self.parts.dedup_by(|next, kept| {
            let equal = next.sort_key() == kept.sort_key();
            if equal {
                kept.count = sum(kept.count, next.count, next.key, next.bucket);
            }
            equal
        });
        wrong.map_or(Ok(()), Err)
    }
}

impl Total {
    /// Number of the key.
    pub(super) fn key(&self) -> u32 {
        (self.sort_key >> 32) as u32
    }

    /// Base bucket.
    pub(super) fn bucket(&self) -> Bucket {
        Bucket::from_number(self.sort_key as u32)
    }
}

impl Part {
    /// The sort key of the bucket's total.
    fn total_key(&self) -> u64 {
        u64::from(self.key) << 32 | u64::from(self.bucket.number())
    }

    /// Sort key: subtotal, key, bucket, value.
    fn sort_key(&self) -> u128 {
        u128::from(self.subtotal) << 96
            | u128::from(self.total_key()) << 32
            | u128::from(self.value)
    }
}
