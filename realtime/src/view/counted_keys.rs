//! The keys of a namespace that have counts in a range, in order, some at a time.

use std::ops::Range;

use tallyring_records::TimeCode;
use tallyring_records::line::{self, hours};

use super::View;
use super::first::First;
use crate::delta::{Delta, SectionKey};
use crate::error::Result;

impl View<'_> {
    /// The first `limit` keys of a namespace, in their stored forms, that have base buckets which start in `range`
    /// (Unix seconds) and that follow `after` in the order of stored keys. Where counts are taken away, a key may be
    /// among them of which nothing is left. Fails when a block is damaged, or the budget of reads has no room.
    pub(crate) fn counted_keys(
        &self,
        namespace: &str,
        range: &Range<i64>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let section = line::total_key(namespace, "");
        let section = section.as_bytes();
        let after = after.map(|after| line::total_key(namespace, after));
        let after = after.as_deref().map(str::as_bytes);
        let mut first = First::new(section, after, limit, &self.reading);
        for delta in self.deltas_in(range) {
            let mut charge = self.reading.charge();
            let keys = delta.section_keys(section, &|_| true, &mut charge)?;
            first.memory(delta, &keys, range)?;
        }
        let is_counted = |_: &[u8], payload: &[u8]| counts_in(payload, range).then(String::new);
        for file in self.flushed_in(range).chain(self.plus()) {
            if file.run.meta().overlaps(range.start, range.end) {
                first.read(file, u64::MAX, &is_counted, &self.reading)?;
            }
        }
        let (keys, _) = first.end();
        let stored = |key: &Vec<u8>| String::from_utf8_lossy(&key[section.len()..]).into_owned();
        Ok(keys.keys().map(stored).collect())
    }

    /// The text behind a stored key of a namespace. Fails when a block that may hold the lookup is damaged.
    pub(crate) fn key_text(&self, stored: &str) -> Result<String> {
        self.text_of(stored, self.all_plus())
    }
}

impl First {
    /// Takes keys in memory, which ascend, if they have base buckets that start in `range`.
    pub(super) fn memory(
        &mut self,
        delta: &Delta,
        keys: &[SectionKey],
        range: &Range<i64>,
    ) -> Result<()> {
        let from = keys.partition_point(|key| self.is_passed(delta.section_key(*key)));
        for &key in &keys[from..] {
            let is_counted = || {
                let mut is_counted = false;
                delta.section_total(key, &mut |code, _| is_counted |= has(range, code));
                is_counted.then(String::new)
            };
            if self.take(delta.section_key(key), is_counted)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// True for the payload of a total that has base buckets which start in `range`.
pub(super) fn counts_in(payload: &[u8], range: &Range<i64>) -> bool {
    hours(payload).flatten().any(|(code, _)| has(range, code))
}

fn has(range: &Range<i64>, code: TimeCode) -> bool {
    range.contains(&code.start())
}
