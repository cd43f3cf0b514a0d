//! The first keys of several sources whose keys ascend.
//!
//! Invariant: of the keys up to the one where the sources were left, none is missing that was taken from any of them.
//! So sources may be left early, each at another key.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::parts::File;
use crate::budget::{Charge, Reading};
use crate::error::{Error, Result};

/// Memory of a kept key besides its texts.
const KEY_BYTES: usize = 96;
/// Lines after which a read that keeps nothing looks whether its client still waits.
const CHECK_LINES: usize = 1_024;

/// The text that stands for a line, by its key and its payload; none where the line is not wanted.
pub(super) type TextOf<'t> = &'t dyn Fn(&[u8], &[u8]) -> Option<String>;

/// Texts by key, and the key up to which every source was read; none where all were read to the end.
pub(super) type FirstKeys = (BTreeMap<Vec<u8>, String>, Option<Vec<u8>>);

/// The first keys of all sources, as far as these were read.
pub(super) struct First {
    /// Every key begins with it.
    section: Vec<u8>,
    after: Option<Vec<u8>>,
    limit: usize,
    /// Texts by key.
    keys: BTreeMap<Vec<u8>, String>,
    /// No source was read beyond this key.
    until: Option<Vec<u8>>,
    bytes: usize,
    charge: Charge,
}

impl First {
    /// Begins with no key of those that begin with `section` and stand behind `after`. At most `limit` are kept, which
    /// is above 0.
    pub(super) fn new(
        section: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        reading: &Reading,
    ) -> Self {
        Self {
            section: section.to_vec(),
            after: after.map(<[u8]>::to_vec),
            limit,
            keys: BTreeMap::new(),
            until: None,
            bytes: 0,
            charge: reading.charge(),
        }
    }

    /// True for a key that stands before those that are looked for.
    pub(super) fn is_passed(&self, key: &[u8]) -> bool {
        self.after.as_deref().is_some_and(|after| key <= after)
    }

    /// Takes the next key of a source, if it has a text. Breaks where no later key of the source can be among the
    /// first.
    pub(super) fn take(
        &mut self,
        key: &[u8],
        text: impl FnOnce() -> Option<String>,
    ) -> Result<ControlFlow<()>> {
        let is_behind = self.until.as_deref().is_some_and(|until| until < key);
        if is_behind || !key.starts_with(&self.section) {
            return Ok(ControlFlow::Break(()));
        }
        if self.is_passed(key) || self.keys.contains_key(key) {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(text) = text() else {
            return Ok(ControlFlow::Continue(()));
        };
        self.bytes += key.len() + text.len() + KEY_BYTES;
        self.charge.grow_to(self.bytes)?;
        self.keys.insert(key.to_vec(), text);
        if self.keys.len() > self.limit
            && let Some((key, text)) = self.keys.pop_last()
        {
            self.bytes -= key.len() + text.len() + KEY_BYTES;
        }
        if self.keys.len() == self.limit {
            self.until = self.keys.keys().next_back().cloned();
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes the keys of a file, up to one behind `bytes_max` bytes of lines. Returns the bytes of the lines that were
    /// looked at. Fails when a block is damaged, or the budget has no room for the keys.
    pub(super) fn read(
        &mut self,
        File { run, cache, .. }: File<'_>,
        bytes_max: u64,
        text_of: TextOf<'_>,
        reading: &Reading,
    ) -> Result<u64> {
        reading.check()?;
        let section = self.section.clone();
        let from = match &self.after {
            Some(after) if *after > section => after.clone(),
            _ => section.clone(),
        };
        let (mut lines, mut bytes, mut refused) = (0_usize, 0, None);
        let mut before: Vec<u8> = Vec::new();
        run.visit_prefix(cache, (&section, &from), &mut |key, payload| {
            if self.is_passed(key) {
                return ControlFlow::Continue(());
            }
            // A key may have several lines, and is not left between them.
            if bytes >= bytes_max && before != key {
                self.until = Some(std::mem::take(&mut before));
                return ControlFlow::Break(());
            }
            lines += 1;
            bytes += (key.len() + payload.len()) as u64;
            before.clear();
            before.extend_from_slice(key);
            let checked = match lines % CHECK_LINES {
                0 => reading.check(),
                _ => Ok(()),
            };
            let taken = checked.and_then(|()| self.take(key, || text_of(key, payload)));
            taken.unwrap_or_else(|error: Error| {
                refused = Some(error);
                ControlFlow::Break(())
            })
        })?;
        refused.map_or(Ok(bytes), Err)
    }

    /// The keys with their texts, and the last key up to which all sources were read; none where they were read to the
    /// end.
    pub(super) fn end(mut self) -> FirstKeys {
        if let Some(until) = &self.until {
            self.keys.retain(|key, _| key <= until);
        }
        (self.keys, self.until)
    }
}
