//! All keys of one namespace in a memory delta: its section, as runs have it.
//!
//! Unlike a read of one key these look at every bucket of the delta, in the order in which they were first counted.

use std::ops::Range;

use tallyring_records::TimeCode;

use super::memory::Delta;

/// Sees a record key, the count of one base bucket, and hash and text of a hashed key.
pub type TotalVisitor<'v> = dyn FnMut(&[u8], TimeCode, u64, Option<(&str, &str)>) + 'v;

/// Sees a total key, base bucket, stored value of a subtotal, and its count.
pub type ValueVisitor<'v> = dyn FnMut(&[u8], TimeCode, &[u8], u64) + 'v;

impl Delta {
    /// Calls `visit` with every total of a section (`u|`) in `range`: record key, count of one base
    /// bucket, and hash and text of a hashed key.
    pub fn section_totals(&self, section: &[u8], range: &Range<i64>, visit: &mut TotalVisitor<'_>) {
        for shard in self.shards() {
            let totals = shard.buckets.iter();
            for bucket in totals.filter(|bucket| bucket.subtotal == 0 && bucket.count > 0) {
                let key = shard.keys.get(bucket.key);
                let Some(stored) = key.strip_prefix(section) else {
                    continue;
                };
                let code = bucket.code();
                if range.contains(&code.start()) {
                    let lookup = self.lookups().get(stored).and_then(|raw| {
                        let hash = std::str::from_utf8(stored).ok()?;
                        Some((hash, raw))
                    });
                    visit(key, code, bucket.count, lookup);
                }
            }
        }
    }

    /// Calls `visit` with every value of one subtotal of a section's totals (`u|`) in the base buckets that are
    /// `wanted`: total key, base bucket, stored value, count.
    pub fn section_values(
        &self,
        (section, subtotal): (&[u8], &str),
        wanted: &dyn Fn(TimeCode) -> bool,
        visit: &mut ValueVisitor<'_>,
    ) {
        for shard in self.shards() {
            let Some(number) = shard.subtotals.find(subtotal.as_bytes()) else {
                continue;
            };
            let buckets = shard.buckets.iter();
            for bucket in buckets.filter(|bucket| u32::from(bucket.subtotal) == number + 1) {
                let (key, code) = (shard.keys.get(bucket.key), bucket.code());
                if !key.starts_with(section) || !wanted(code) {
                    continue;
                }
                for counter in shard.counters_of(bucket) {
                    visit(key, code, shard.values.get(counter.value), counter.count);
                }
            }
        }
    }

    /// Calls `visit` with record key, base bucket and count of every total.
    pub fn each_total(&self, visit: &mut dyn FnMut(&[u8], TimeCode, u64)) {
        for shard in self.shards() {
            let totals = shard.buckets.iter();
            for bucket in totals.filter(|bucket| bucket.subtotal == 0 && bucket.count > 0) {
                visit(shard.keys.get(bucket.key), bucket.code(), bucket.count);
            }
        }
    }
}
