//! Counts of a subtotal by value, summed over lines: one key may have millions of values in an hour, so a value takes
//! its text and [`Entry`] and nothing else.

use tallyring_records::{Action, ActionSums, line};

use super::{add, unreadable};
use crate::error::Result;

/// Entries that are added before equal values are folded, besides half as many as there were.
const UNFOLDED: usize = 4 << 10;

#[derive(Default)]
pub(super) struct Values {
    /// Texts of all values, one behind the other.
    texts: Vec<u8>,
    entries: Vec<Entry>,
    /// Entries after the last fold.
    folded: usize,
}

struct Entry {
    /// Start of its text, bytes.
    at: usize,
    length: u32,
    count: u64,
}

impl Entry {
    fn text<'t>(&self, texts: &'t [u8]) -> &'t [u8] {
        &texts[self.at..self.at + self.length as usize]
    }
}

impl Values {
    /// Adds the counts of a line; error messages name `key`.
    pub(super) fn add(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        self.entries
            .reserve_exact(memchr::memchr_iter(b' ', payload).count() + 1);
        self.texts.reserve_exact(payload.len());
        for entry in line::entries(payload) {
            let (value, count) = entry.ok_or_else(|| unreadable(key, payload))?;
            self.push(value, count)
                .ok_or_else(|| unreadable(key, payload))?;
        }
        match self.entries.len() > self.folded / 2 * 3 + UNFOLDED {
            true => self.fold(key),
            false => Ok(()),
        }
    }

    fn push(&mut self, value: &[u8], count: u64) -> Option<()> {
        self.entries.push(Entry {
            at: self.texts.len(),
            length: u32::try_from(value.len()).ok()?,
            count,
        });
        self.texts.extend_from_slice(value);
        Some(())
    }

    /// True where nothing counts.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes counts away; values whose counts become zero vanish. False where a value has less than is taken away.
    /// Error messages name `key`.
    pub(super) fn take_away(&mut self, key: &[u8], mut less: Self) -> Result<bool> {
        self.fold(key)?;
        less.fold(key)?;
        let Self { texts, entries, .. } = self;
        entries.sort_unstable_by(|a, b| a.text(texts).cmp(b.text(texts)));
        let taken = &mut less.entries;
        taken.sort_unstable_by(|a, b| a.text(&less.texts).cmp(b.text(&less.texts)));
        let mut taken = taken.iter().peekable();
        for entry in entries.iter_mut() {
            let text = entry.text(texts);
            let Some(taken) = taken.next_if(|taken| taken.text(&less.texts) == text) else {
                continue;
            };
            match entry.count.checked_sub(taken.count) {
                Some(left) => entry.count = left,
                None => return Ok(false),
            }
        }
        entries.retain(|entry| entry.count > 0);
        Ok(taken.peek().is_none())
    }

    /// Takes actions of a user away. False where the user did less in an hour than is taken away. Fails for a value
    /// that is no action; error messages name `key`.
    pub(super) fn take_actions_away(&mut self, key: &[u8], less: Self) -> Result<bool> {
        let mut did = std::mem::take(self).into_actions(key)?;
        let is_enough = did.take_away(&less.into_actions(key)?);
        for (value, count) in did.iter() {
            self.push(value, count)
                .ok_or_else(|| unreadable(key, value))?;
        }
        Ok(is_enough)
    }

    fn into_actions(mut self, key: &[u8]) -> Result<ActionSums> {
        self.fold(key)?;
        let mut sums = ActionSums::default();
        for entry in &self.entries {
            let text = entry.text(&self.texts);
            let action = Action::parse(text).ok_or_else(|| unreadable(key, text))?;
            sums.add(action, entry.count);
        }
        Ok(sums)
    }

    /// Replaces `payload` by the payload of the line: largest count first, ties by value. Nothing is left behind.
    pub(super) fn write(&mut self, key: &[u8], payload: &mut Vec<u8>) -> Result<()> {
        self.fold(key)?;
        let Self { texts, entries, .. } = std::mem::take(self);
        let mut entries = entries;
        entries.sort_unstable_by(|a, b| {
            b.count
                .cmp(&a.count)
                .then_with(|| a.text(&texts).cmp(b.text(&texts)))
        });
        payload.clear();
        // A space, a colon and digits beside each text.
        let digits = |entry: &Entry| entry.count.checked_ilog10().unwrap_or(0) as usize + 3;
        payload.reserve(texts.len() + entries.iter().map(digits).sum::<usize>());
        for (index, entry) in entries.iter().enumerate() {
            line::push_entry(payload, index == 0, entry.text(&texts), entry.count);
        }
        Ok(())
    }

    /// Sums the counts of equal values, and gives up the space of their texts but one.
    fn fold(&mut self, key: &[u8]) -> Result<()> {
        let Self { texts, entries, .. } = self;
        entries.sort_unstable_by(|a, b| a.text(texts).cmp(b.text(texts)));
        let mut summed = Ok(());
        entries.dedup_by(|next, kept| {
            let is_equal = next.text(texts) == kept.text(texts);
            if is_equal && let Err(error) = add(&mut kept.count, next.count, key) {
                summed = Err(error);
            }
            is_equal
        });
        summed?;
        entries.sort_unstable_by_key(|entry| entry.at);
        let mut end = 0;
        for entry in entries.iter_mut() {
            let length = entry.length as usize;
            texts.copy_within(entry.at..entry.at + length, end);
            entry.at = end;
            end += length;
        }
        texts.truncate(end);
        self.folded = entries.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::write_subtotal;
    use super::*;

    proptest! {
        #[test]
        fn prop_lines_of_values_sum_as_a_map_does(
            lines in proptest::collection::vec(
                proptest::collection::btree_map("[a-c*]{1,3}", 1_u64..100, 1..9),
                1..5,
            ),
            repeated in 1_usize..3,
        ) {
            let mut values = Values::default();
            let mut expected: BTreeMap<&[u8], u64> = BTreeMap::new();
            for line in lines.iter().cycle().take(repeated * lines.len()) {
                let mut payload = Vec::new();
                let mut entries: Vec<(&[u8], u64)> = Vec::new();
                for (value, &count) in line {
                    entries.push((value.as_bytes(), count));
                    *expected.entry(value.as_bytes()).or_insert(0) += count;
                }
                write_subtotal(&mut payload, &mut entries);
                values.add(b"c.l|a.c413", &payload).unwrap();
                values.fold(b"c.l|a.c413").unwrap();
            }
            let (mut summed, mut wanted) = (Vec::new(), Vec::new());
            values.write(b"c.l|a.c413", &mut summed).unwrap();
            write_subtotal(&mut wanted, &mut expected.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(summed, wanted);
        }
    }
}
