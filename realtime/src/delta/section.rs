//! All keys of one namespace in a delta: its section, as runs have it.
//!
//! Unlike a read of one key, these functions look at every key or every bucket of the delta.

use tallyring_records::TimeCode;

use super::memory::{Delta, NONE};
use crate::budget::Charge;
use crate::error::Result;

/// A function that visits a total key, a base bucket, a stored value of a subtotal, and its count.
pub(super) type ValueVisitor<'v> = dyn FnMut(&[u8], TimeCode, &[u8], u64) + 'v;

/// A key of a section: the beginning of its text, which orders most keys, and its numbers.
#[derive(Clone, Copy)]
pub(crate) struct SectionKey {
    head: u64,
    key: u32,
    shard: u16,
}

impl Delta {
    /// The keys that begin with a section (`u|`) or a part of one (`u|ab`) and that `keeps` takes, ascending.
    /// `charge` pays for them. Fails when the budget has no room for the keys.
    pub(crate) fn section_keys(
        &self,
        section: &[u8],
        keeps: &dyn Fn(&[u8]) -> bool,
        charge: &mut Charge,
    ) -> Result<Vec<SectionKey>> {
        let keys = || {
            self.shards().iter().enumerate().flat_map(|(index, shard)| {
                let keys = (0..shard.keys.len()).filter(|&key| shard.first_bucket[key] != NONE);
                keys.filter_map(move |key| {
                    let number = u32::try_from(key).expect("BUG: keys are numbered in 32 bits");
                    let text = shard.keys.get(number);
                    let stored = text.strip_prefix(section)?;
                    keeps(text).then(|| SectionKey {
                        head: head(stored),
                        key: number,
                        shard: u16::try_from(index).expect("BUG: shards are numbered in 16 bits"),
                    })
                })
            })
        };
        // Counted before, because a growing list would need more memory.
        let count = keys().count();
        charge.grow(count * size_of::<SectionKey>())?;
        let mut sorted = Vec::with_capacity(count);
        sorted.extend(keys());
        sorted.sort_unstable_by(|a, b| {
            let by_head = a.head.cmp(&b.head);
            by_head.then_with(|| self.section_key(*a).cmp(self.section_key(*b)))
        });
        Ok(sorted)
    }

    /// The text of a key, with its section.
    pub(crate) fn section_key(&self, key: SectionKey) -> &[u8] {
        self.shards()[usize::from(key.shard)].keys.get(key.key)
    }

    /// Calls `visit` with every base bucket of a key's total, and its count.
    pub(crate) fn section_total(&self, key: SectionKey, visit: &mut dyn FnMut(TimeCode, u64)) {
        let totals = self.shards()[usize::from(key.shard)].buckets_of_number(key.key);
        for bucket in totals.filter(|bucket| bucket.subtotal == 0) {
            visit(bucket.code(), bucket.count);
        }
    }

    /// Calls `visit` with every base bucket of every key of a section, and its count, in any order. Takes
    /// [`Delta::most_keys`] bytes.
    pub(crate) fn section_totals(&self, section: &[u8], visit: &mut dyn FnMut(TimeCode, u64)) {
        for shard in self.shards() {
            let keys = 0..u32::try_from(shard.keys.len()).expect("BUG: 32 bits number keys");
            let is_in: Vec<bool> = keys
                .map(|key| shard.keys.get(key).starts_with(section))
                .collect();
            let totals = shard.buckets.iter().filter(|bucket| bucket.subtotal == 0);
            for bucket in totals.filter(|bucket| is_in[bucket.key as usize]) {
                visit(bucket.code(), bucket.count);
            }
        }
    }

    /// Calls `visit` with values of a subtotal of all keys of a section (`u|`), and their sums over the base buckets
    /// for which `wanted` is true, in any order; a value comes once for each shard. Takes [`Delta::most_of_values`]
    /// bytes.
    pub(crate) fn section_values(
        &self,
        (section, subtotal): (&[u8], &[u8]),
        wanted: &dyn Fn(TimeCode) -> bool,
        visit: &mut dyn FnMut(&[u8], u64),
    ) {
        for shard in self.shards() {
            let Some(number) = shard.subtotals.find(subtotal) else {
                continue;
            };
            let mut sums = vec![0_u64; shard.values.len()];
            let buckets = shard.buckets.iter();
            let buckets = buckets.filter(|of| of.count > 0 && u32::from(of.subtotal) == number + 1);
            for bucket in buckets.filter(|of| wanted(of.code())) {
                if shard.keys.get(bucket.key).starts_with(section) {
                    for counter in shard.counters_of(bucket) {
                        let sum = &mut sums[counter.value as usize];
                        *sum = sum.saturating_add(counter.count);
                    }
                }
            }
            for (value, sum) in (0..).zip(sums).filter(|(_, sum)| *sum > 0) {
                visit(shard.values.get(value), sum);
            }
        }
    }

    /// Bytes that [`Delta::section_values`] takes.
    pub(crate) fn most_of_values(&self) -> usize {
        let values = self.shards().iter().map(|shard| shard.values.len());
        values.max().unwrap_or(0) * size_of::<u64>()
    }

    /// Number of keys of the shard that has the most.
    pub(crate) fn most_keys(&self) -> usize {
        let keys = self.shards().iter().map(|shard| shard.keys.len());
        keys.max().unwrap_or(0)
    }

    /// Calls `visit` with every minute of a section's totals (`u|`), in the base buckets for which `wanted` is true:
    /// total key, base bucket, the minute as the value of a line, count.
    pub(crate) fn section_minutes(
        &self,
        section: &[u8],
        wanted: &dyn Fn(TimeCode) -> bool,
        visit: &mut ValueVisitor<'_>,
    ) {
        for shard in self.shards() {
            let totals = shard.buckets.iter();
            let totals = totals.filter(|bucket| bucket.subtotal == 0 && bucket.count > 0);
            for bucket in totals.filter(|bucket| bucket.first != NONE) {
                let (key, code) = (shard.keys.get(bucket.key), bucket.code());
                if key.starts_with(section) && wanted(code) {
                    shard.minutes_of(bucket, &mut |value, count| visit(key, code, value, count));
                }
            }
        }
    }

    /// Calls `visit` with the record key, base bucket and count of every total.
    pub(crate) fn each_total(&self, visit: &mut dyn FnMut(&[u8], TimeCode, u64)) {
        for shard in self.shards() {
            let totals = shard.buckets.iter();
            for bucket in totals.filter(|bucket| bucket.subtotal == 0 && bucket.count > 0) {
                visit(shard.keys.get(bucket.key), bucket.code(), bucket.count);
            }
        }
    }
}

/// The first eight bytes of a text, as a number of the same order.
fn head(text: &[u8]) -> u64 {
    let mut head = [0; 8];
    let length = text.len().min(head.len());
    head[..length].copy_from_slice(&text[..length]);
    u64::from_be_bytes(head)
}
