//! The hours of a total line: `c413:2 c41l:5`.
//!
//! Nearly all entries of a line are hours of one month or two, with counts of a few digits. A fast path reads those
//! in a few steps without a branch on their digits. All other entries, and the last ones of a line, are read as text.

use crate::digits::first_digits;
use crate::line::split_entry;
use crate::time_code::{Month, TimeCode};

/// The `(time code, count)` entries of a total line; an entry that cannot be read gives `None`.
pub fn hours(payload: &[u8]) -> Hours<'_> {
    Hours {
        rest: Some(payload),
        month: None,
    }
}

/// Entries of a total line, one after the other.
pub struct Hours<'p> {
    /// Entries that are not read yet; `None` behind the last one.
    rest: Option<&'p [u8]>,
    /// The month of the last entry: many hours of one month follow each other.
    month: Option<MonthText>,
}

/// A month and its text, as the first bytes of a little-endian number.
#[derive(Clone, Copy)]
struct MonthText {
    month: Month,
    text: u64,
    bytes: u32,
}

/// An hour and its count.
type Hour = (TimeCode, u64);

impl Iterator for Hours<'_> {
    type Item = Option<Hour>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest?;
        if let Some((entry, rest)) = self.month.and_then(|month| hour_of(month, rest)) {
            self.rest = Some(rest);
            return Some(Some(entry));
        }
        Some(self.any())
    }
}

impl Hours<'_> {
    /// Reads the next entry as text.
    fn any(&mut self) -> Option<Hour> {
        let mut parts = self.rest?.splitn(2, |&byte| byte == b' ');
        let entry = parts.next()?;
        self.rest = parts.next();
        let (text, count) = split_entry(entry)?;
        let code = TimeCode::parse(text).ok()?;
        self.month = MonthText::of(code, text);
        Some((code, count))
    }
}

impl MonthText {
    /// The month of an hour with this text of four bytes, or of six from 2032 on.
    fn of(code: TimeCode, text: &[u8]) -> Option<Self> {
        let month = Month::of(code, text)?;
        let text = &text[..text.len() - 2];
        let fold = |number, &byte| number << 8 | u64::from(byte);
        Some(Self {
            month,
            text: text.iter().rev().fold(0, fold),
            bytes: text.len() as u32,
        })
    }
}

/// The first entry of `text` and the text behind it. `None` unless the entry is an hour of that month with a count as
/// `parse_count` reads it, and enough bytes follow for one load.
#[inline]
fn hour_of(of: MonthText, text: &[u8]) -> Option<(Hour, &[u8])> {
    let head = u64::from_le_bytes(*text.first_chunk()?);
    let behind = head >> (8 * of.bytes);
    let month = head ^ (behind << (8 * of.bytes));
    let [day, hour, colon, ..] = behind.to_le_bytes();
    if month != of.text || colon != b':' {
        return None;
    }
    let code = of.month.hour(day, hour)?;
    let counted = &text[of.bytes as usize + 3..];
    let (count, digits) = first_digits(*counted.first_chunk()?)?;
    // The text path reads all counts that are refused here.
    if digits == 0 || (counted[0] == b'0' && digits > 1) || counted[digits] != b' ' {
        return None;
    }
    Some(((code, count), &counted[digits + 1..]))
}

/// The entries of a total line from the first one whose code is not before `code`. Entries ascend, so a binary search
/// finds it.
pub fn hours_from(payload: &[u8], code: TimeCode) -> &[u8] {
    let mut least = Vec::with_capacity(8);
    code.write_to(&mut least);
    // Most lines begin within the range that a read asks for.
    if name_of(payload) >= &least[..] {
        return payload;
    }
    let (mut low, mut high) = (0, payload.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let before = payload[low..middle].iter().rposition(|&byte| byte == b' ');
        let begin = before.map_or(low, |space| low + space + 1);
        let entry = payload[begin..].split(|&byte| byte == b' ').next();
        let entry = entry.unwrap_or_default();
        if name_of(entry) < &least[..] {
            low = (begin + entry.len() + 1).min(payload.len());
        } else {
            high = begin;
        }
    }
    &payload[low..]
}

/// The name of the first entry.
fn name_of(entries: &[u8]) -> &[u8] {
    let name = entries.split(|&byte| byte == b':').next();
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{parse_count, push_entry};
    use crate::time_code::Grain;
    use proptest::prelude::*;

    #[test]
    fn hours_are_read_as_their_codes_one_by_one() {
        let payload =
            b"c41:2 c410:1 c41l:5 c41l2:6 c421:7 c42w:8 c42:9 c421 :3 c421:x ~1031c:4 ~1031d:5 ~1031o:6 \
            c420:1 c421:07 c422:0 c423: c424:18446744073709551615 c425:18446744073709551616 c426:9999999999999999999 \
            c427:1:1 c42o:1 c42n:1 c431:1 c432:1";
        let expected = one_by_one(payload);
        assert_eq!(hours(payload).collect::<Vec<_>>(), expected);
        assert_eq!(expected.iter().flatten().count(), 15);
        assert_eq!(hours(b"").collect::<Vec<_>>(), [None]);
    }

    fn one_by_one(payload: &[u8]) -> Vec<Option<Hour>> {
        let entry = |entry: &[u8]| {
            let colon = entry.iter().rposition(|&byte| byte == b':')?;
            let code = TimeCode::parse(&entry[..colon]).ok()?;
            Some((code, parse_count(&entry[colon + 1..])?))
        };
        payload.split(|&byte| byte == b' ').map(entry).collect()
    }

    proptest! {
        #[test]
        fn prop_a_line_is_read_as_its_entries_one_by_one(
            entries in proptest::collection::vec(prop_oneof![
                4 => "c[2-4][0-9a-v][0-9a-o]:[0-9]{1,9}",
                1 => "~1[01]3[0-9a-v][0-9a-o]:[1-9]{1,3}",
                1 => "c41[0-9a-v]{0,3}:[0-9:x]{0,20}",
            ], 0..30),
            spoiled in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        ) {
            let mut payload = entries.join(" ").into_bytes();
            if let Some((at, byte)) = spoiled && !payload.is_empty() {
                let at = at.index(payload.len());
                payload[at] = byte;
            }
            prop_assert_eq!(hours(&payload).collect::<Vec<_>>(), one_by_one(&payload));
        }

        #[test]
        fn prop_hours_from_a_code_are_all_hours_but_those_before_it(
            hours_counted in proptest::collection::btree_map(0_i64..4_000, 1_u64..2_000, 0..60),
            folded_until in 0_i64..3_000,
            from in 0_i64..4_000,
        ) {
            let at = |hour: i64| crate::TIME_MIN + hour * 3_600;
            let mut counted = std::collections::BTreeMap::new();
            for (hour, count) in hours_counted {
                let grain = if hour < folded_until { Grain::Day } else { Grain::Hour };
                counted.insert(TimeCode::containing(at(hour), grain), count);
            }
            let mut payload = Vec::new();
            for (index, (code, count)) in counted.iter().enumerate() {
                push_entry(&mut payload, index == 0, code.to_string().as_bytes(), *count);
            }
            let code = TimeCode::containing(at(from), Grain::Hour);
            let found = hours_from(&payload, code);
            let found: Vec<_> = if found.is_empty() { Vec::new() } else { hours(found).map(Option::unwrap).collect() };
            let expected: Vec<_> = counted.range(code..).map(|(&code, &count)| (code, count)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
