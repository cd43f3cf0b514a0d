//! The keys of a namespace that have counts in a range, in order, some at a time.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use tallyring_records::TimeCode;
use tallyring_records::line::{self, hours};

use super::View;
use super::parts::File;
use crate::budget::Charge;
use crate::delta::{Delta, SectionKey};
use crate::error::{Error, Result};

/// Memory of a listed key besides its text, bytes.
const KEY_BYTES: usize = 64;
/// Lines after which a read that lists nothing looks whether its client still waits.
const CHECK_LINES: usize = 1_024;

impl View<'_> {
    /// The first `limit` keys of a namespace, in their stored forms, that have base buckets which start in `range`
    /// (Unix seconds) and that follow `after` in the order of stored keys. Where counts are taken away, a key may be
    /// among them of which nothing is left. Fails when a block is damaged, or the budget
    /// of reads has no room.
    pub(crate) fn counted_keys(
        &self,
        namespace: &str,
        range: &Range<i64>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>> {
        let section = line::total_key(namespace, "");
        let after = after.map(|after| line::total_key(namespace, after));
        let mut first = First {
            section: section.as_bytes(),
            after: after.as_deref().map(str::as_bytes),
            range,
            limit,
            keys: BTreeSet::new(),
            bytes: 0,
            charge: self.reading.charge(),
        };
        for delta in self.deltas_in(range) {
            first.memory(delta, self.reading.charge())?;
        }
        for file in self.flushed_in(range).chain(self.plus()) {
            if file.run.meta().overlaps(range.start, range.end) {
                self.file_keys(file, &mut first)?;
            }
        }
        let keys = first.keys.into_iter();
        let stored = keys.map(|key| String::from_utf8_lossy(&key[section.len()..]).into_owned());
        Ok(stored.collect())
    }

    fn file_keys(&self, file: File<'_>, first: &mut First<'_>) -> Result<()> {
        let from = first.after.unwrap_or(first.section);
        let (mut lines, mut refused) = (0_usize, None);
        file.run.visit_from(file.cache, from, &mut |key, payload| {
            lines += 1;
            let checked = match lines % CHECK_LINES {
                0 => self.reading.check(),
                _ => Ok(()),
            };
            let taken = checked.and_then(|()| {
                let is_counted = hours(payload).flatten().any(|(code, _)| first.has(code));
                first.take(key, is_counted)
            });
            taken.unwrap_or_else(|error: Error| {
                refused = Some(error);
                ControlFlow::Break(())
            })
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// The text behind a stored key of a namespace. Fails when a block that may hold the lookup is damaged.
    pub(crate) fn key_text(&self, stored: &str) -> Result<String> {
        self.text_of(stored, self.all_plus())
    }
}

/// The first keys of all sources, as far as they were read.
struct First<'r> {
    /// Prefix of the total keys.
    section: &'r [u8],
    after: Option<&'r [u8]>,
    range: &'r Range<i64>,
    limit: usize,
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
    charge: Charge,
}

impl First<'_> {
    fn memory(&mut self, delta: &Delta, mut charge: Charge) -> Result<()> {
        let keys = delta.section_keys(self.section, &mut charge)?;
        let is_passed = |key: &SectionKey| Some(delta.section_key(*key)) <= self.after;
        for &key in &keys[keys.partition_point(is_passed)..] {
            let mut is_counted = false;
            delta.section_total(key, &mut |code, _| is_counted |= self.has(code));
            if self.take(delta.section_key(key), is_counted)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn has(&self, code: TimeCode) -> bool {
        self.range.contains(&code.start())
    }

    /// Takes the next key of a source, if it is counted in the range. Breaks where no later key of the source can be
    /// among the first.
    fn take(&mut self, key: &[u8], is_counted: bool) -> Result<ControlFlow<()>> {
        let is_full = self.keys.len() >= self.limit;
        let is_behind = is_full && self.keys.last().is_some_and(|last| **last < *key);
        if !key.starts_with(self.section) || is_behind {
            return Ok(ControlFlow::Break(()));
        }
        let is_passed = self.after.is_some_and(|after| key <= after);
        if is_passed || !is_counted || self.keys.contains(key) {
            return Ok(ControlFlow::Continue(()));
        }
        self.bytes += key.len() + KEY_BYTES;
        self.charge.grow_to(self.bytes)?;
        self.keys.insert(key.to_vec());
        if self.keys.len() > self.limit
            && let Some(last) = self.keys.pop_last()
        {
            self.bytes -= last.len() + KEY_BYTES;
        }
        Ok(ControlFlow::Continue(()))
    }
}
