//! From columns to lines.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use tallyring_records::{Action, Grain, TimeCode, line};

use super::{BY_HOUR, COLUMNS_BYTES_MAX, Form, GRAINS, HEAD, NO_TAG, minutes_of, take_number};
use crate::error::Result;
use crate::run::block::{Block, IndexedBlock};

/// The lines of a block that has `bytes` plain bytes. Text without the head of columns is lines already. `list` gives
/// the values of the list of a section. Returns `Ok(None)` for columns that contradict each other.
pub(in crate::run) fn lines(
    text: Vec<u8>,
    bytes: usize,
    list: impl FnOnce(&[u8]) -> Result<Arc<IndexedBlock>>,
) -> Result<Option<Vec<u8>>> {
    let Some(columns) = text.strip_prefix(HEAD.as_bytes()) else {
        return Ok(Some(text));
    };
    let decoder = (bytes <= COLUMNS_BYTES_MAX).then(|| Decoder::new(columns, bytes));
    let Some(mut decoder) = decoder.flatten() else {
        return Ok(None);
    };
    let list = match decoder.known {
        [] => None,
        _ => Some(list(decoder.section)?),
    };
    let decoded = decoder.decode(list.as_ref().map(|list| list.lines()));
    Ok(decoded.map(|()| decoder.out))
}

struct Decoder<'t> {
    section: &'t [u8],
    form: Form,
    finest: Grain,
    first: u32,
    shared: &'t [u8],
    keys: &'t [u8],
    buckets: &'t [u8],
    gaps: &'t [u8],
    sizes: &'t [u8],
    known: &'t [u8],
    values: &'t [u8],
    numbers: &'t [u8],
    seconds: &'t [u8],
    tags: &'t [u8],
    counts: &'t [u8],
    /// Plain bytes of the lines.
    bytes: usize,
    out: Vec<u8>,
}

impl<'t> Decoder<'t> {
    fn new(text: &'t [u8], bytes: usize) -> Option<Self> {
        let mut rows = text.strip_suffix(b"\n")?.split(|&byte| byte == b'\n');
        let mut head = rows.next()?.rsplitn(3, |&byte| byte == b' ');
        let first = std::str::from_utf8(head.next()?).ok()?.parse().ok()?;
        let steps = head.next()?;
        let section = head.next()?;
        let grain = GRAINS
            .iter()
            .find(|(_, name, _)| name.as_bytes() == steps)?;
        let form = Form::of(section)?;
        // In their order; a form lacks some.
        let mut column = |name: &str| match form.names().contains(&name) {
            true => rows
                .next()?
                .strip_prefix(name.as_bytes())?
                .strip_prefix(b" "),
            false => Some(&b""[..]),
        };
        let decoder = Self {
            section,
            form,
            finest: grain.0,
            first,
            shared: column("shared")?,
            keys: column("keys")?,
            buckets: column("buckets")?,
            gaps: column("gaps")?,
            sizes: column("sizes")?,
            known: column("known")?,
            values: column("values")?,
            numbers: column("numbers")?,
            seconds: column("seconds")?,
            tags: column("tags")?,
            counts: column("counts")?,
            bytes,
            out: Vec::with_capacity(bytes),
        };
        rows.next().is_none().then_some(decoder)
    }

    fn decode(&mut self, list: Option<&Block>) -> Option<()> {
        let values = self.take_values(list)?;
        let mut key = self.section.to_vec();
        let mut entries: Vec<(u32, u64)> = Vec::new();
        let mut actions = Actions::default();
        while !self.shared.is_empty() {
            let shared = usize::try_from(take_number(&mut self.shared)?).ok()?;
            let length = memchr::memchr(b' ', self.keys)?;
            if shared > key.len() - self.section.len() {
                return None;
            }
            key.truncate(self.section.len() + shared);
            key.extend_from_slice(&self.keys[..length]);
            self.keys = &self.keys[length + 1..];
            let buckets = take_number(&mut self.buckets)?;
            let mut step = self.first;
            if self.form == Form::Totals {
                self.total(&key, buckets, &mut step)?;
                continue;
            }
            for _ in 0..buckets {
                let code = self.take_code(&mut step)?;
                self.out.extend_from_slice(&key);
                self.out.push(b'.');
                code.write_to(&mut self.out);
                self.out.push(b',');
                match self.form {
                    Form::Actions => self.take_actions(&values, &mut actions)?,
                    Form::Totals | Form::Values => self.take_entries(&values, &mut entries)?,
                }
                self.out.push(b'\n');
                self.check_length()?;
            }
        }
        let rests = [
            self.keys,
            self.buckets,
            self.gaps,
            self.sizes,
            self.numbers,
            self.seconds,
            self.tags,
            self.counts,
        ];
        (rests.iter().all(|rest| rest.is_empty()) && self.out.len() == self.bytes).then_some(())
    }

    /// The values of the block by their numbers.
    fn take_values<'v>(&mut self, list: Option<&'v Block>) -> Option<Vec<&'v [u8]>>
    where
        't: 'v,
    {
        let mut values: Vec<&[u8]> = Vec::new();
        let mut next = 0;
        while !self.known.is_empty() {
            let number = take_number(&mut self.known)?.checked_add(next)?;
            let at = usize::try_from(number).ok()?;
            let list = list.filter(|list| at < list.len())?;
            values.push(list.line(at));
            next = number + 1;
        }
        while !self.values.is_empty() {
            let length = memchr::memchr(b' ', self.values)?;
            values.push(&self.values[..length]);
            self.values = &self.values[length + 1..];
        }
        Some(values)
    }

    #[inline]
    fn take_code(&mut self, step: &mut u32) -> Option<TimeCode> {
        let mark = *self.gaps.first()?;
        let mut grain = self.finest;
        if !mark.is_ascii_alphabetic() {
            grain = GRAINS.iter().find(|(_, _, found)| *found == mark)?.0;
            self.gaps = &self.gaps[1..];
        }
        let gap = u32::try_from(take_number(&mut self.gaps)?).ok()?;
        *step = step.checked_add(gap)?;
        let minutes = step.checked_mul(minutes_of(self.finest))?;
        let code = TimeCode::from_minutes(minutes, grain);
        (code.minutes() == minutes).then_some(code)
    }

    fn total(&mut self, key: &[u8], buckets: u64, step: &mut u32) -> Option<()> {
        self.out.extend_from_slice(key);
        self.out.push(b',');
        let mut name = Vec::with_capacity(8);
        for bucket in 0..buckets {
            let code = self.take_code(step)?;
            let count = take_number(&mut self.counts)?;
            name.clear();
            code.write_to(&mut name);
            line::push_entry(&mut self.out, bucket == 0, &name, count);
            self.check_length()?;
        }
        self.out.push(b'\n');
        self.check_length()
    }

    /// Appends the values of a line with their counts.
    fn take_entries(&mut self, values: &[&[u8]], entries: &mut Vec<(u32, u64)>) -> Option<()> {
        entries.clear();
        let mut next = 0_u64;
        for _ in 0..=take_number(&mut self.sizes)? {
            let number = take_number(&mut self.numbers)?.checked_add(next)?;
            let count = take_number(&mut self.counts)?;
            if number >= values.len() as u64 {
                return None;
            }
            next = number + 1;
            entries.push((number as u32, count));
        }
        let text = |number: u32| values[number as usize];
        if entries.len() > 1 {
            entries.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| text(a.0).cmp(text(b.0))));
        }
        for (place, &(number, count)) in entries.iter().enumerate() {
            line::push_entry(&mut self.out, place == 0, text(number), count);
            self.check_length()?;
        }
        Some(())
    }

    /// Appends the actions of a line with their counts.
    fn take_actions(&mut self, values: &[&[u8]], actions: &mut Actions) -> Option<()> {
        let Actions { text, entries } = actions;
        text.clear();
        entries.clear();
        let mut second = 0_u32;
        for _ in 0..=take_number(&mut self.sizes)? {
            let number = usize::try_from(take_number(&mut self.numbers)?).ok()?;
            let by_hour = self.seconds.first() == Some(&BY_HOUR);
            self.seconds = &self.seconds[usize::from(by_hour)..];
            let gap = u32::try_from(take_number(&mut self.seconds)?).ok()?;
            second = second.checked_add(gap)?;
            let tag = match self.tags.strip_prefix(&[NO_TAG]) {
                Some(rest) => {
                    self.tags = rest;
                    &[][..]
                }
                None => self.tags.split_off(..Action::TAG_CHARS)?,
            };
            let start = text.len();
            Action::write_texts(text, (second, by_hour), values.get(number)?, tag);
            // A block is no longer than it says.
            (text.len() <= self.bytes).then_some(())?;
            entries.push((start..text.len(), take_number(&mut self.counts)?));
        }
        // They stand in the order of their texts, and in a line the largest count comes first.
        entries.sort_by_key(|entry| Reverse(entry.1));
        for (place, (range, count)) in entries.iter().enumerate() {
            line::push_entry(&mut self.out, place == 0, &text[range.clone()], *count);
        }
        Some(())
    }

    /// A block is no longer than it says, so no loop over its numbers is longer, either.
    #[inline]
    fn check_length(&self) -> Option<()> {
        (self.out.len() <= self.bytes).then_some(())
    }
}

/// Actions of a line. Keeps its memory from line to line.
#[derive(Default)]
struct Actions {
    text: Vec<u8>,
    /// Where each stands in `text`, and its count.
    entries: Vec<(Range<usize>, u64)>,
}
