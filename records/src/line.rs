//! The text form of runs: one CSV line for each record, with many columns.
//!
//! ```text
//! u|jehiah,c413:2 c41l:5             a total: every base bucket of the key, ascending
//! c.u|jehiah.c41l,US:4 JP:1          a subtotal: one base bucket, largest count first, ties by value
//! _u.u|jehiah.c41l,AgEHDAMI…         users: a sketch of the users of one base bucket
//! _m*c.u|jehiah.c41l1q,US:2          a subtotal of one minute; _m*_u is the sketch of one
//! ~h0aMB8AuNw4-,http://example.com/  a lookup: the text behind a hash
//! ```
//!
//! Invariants: lines are ordered by the bytes before the comma. A long total may continue in further lines of
//! its key, with its buckets still ascending. `~` sorts after every namespace, so lookups stand at the end. The
//! text of a lookup escapes `%`, `,`, `"` and control characters as `%2C`.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

pub use crate::hours::{Hours, hours, hours_from};
use crate::time_code::TimeCode;
use crate::users::USERS_PREFIXES;

/// Starts the key of a lookup line.
pub const LOOKUP_MARK: u8 = b'~';

/// The kind of a line, which its key tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `u|jehiah`
    Total,
    /// `c.u|jehiah.c41l`
    Subtotal,
    /// `_u.u|jehiah.c41l`
    Users,
    /// `~h0aMB8AuNw4-`
    Lookup,
}

/// The kind of the line with this key; `None` when the text is no key.
///
/// ```
/// use tallyring_records::line::{Kind, kind_of};
///
/// assert_eq!(kind_of(b"u|jehiah"), Some(Kind::Total));
/// assert_eq!(kind_of(b"c.u|jehiah.c41l"), Some(Kind::Subtotal));
/// ```
pub fn kind_of(key: &[u8]) -> Option<Kind> {
    if key.first() == Some(&LOOKUP_MARK) {
        return Some(Kind::Lookup);
    }
    if is_users(key) {
        return Some(Kind::Users);
    }
    match key.iter().find(|&&byte| byte == b'.' || byte == b'|')? {
        b'.' => Some(Kind::Subtotal),
        _ => Some(Kind::Total),
    }
}

/// Splits a line (without its newline) at the first comma.
///
/// ```
/// use tallyring_records::line::{entries, hours, split};
///
/// let (key, payload) = split(b"u|jehiah,c413:2 c41l:5").unwrap();
/// assert_eq!(key, b"u|jehiah");
/// let sum: u64 = hours(payload).map(|hour| hour.unwrap().1).sum();
/// assert_eq!(sum, 7);
/// assert_eq!(entries(b"US:4 JP:1").next(), Some(Some((&b"US"[..], 4))));
/// ```
pub fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let comma = memchr::memchr(b',', line)?;
    Some((&line[..comma], &line[comma + 1..]))
}

/// The part of a key that all lines of one namespace and subtotal share: `u|`, `c.u|` or `~`.
pub fn section(key: &[u8]) -> &[u8] {
    if key.first() == Some(&LOOKUP_MARK) {
        return &key[..1];
    }
    match key.iter().position(|&byte| byte == b'|') {
        Some(bar) => &key[..=bar],
        None => key,
    }
}

/// True for a section whose lines are counts. The books keep a sum for each of these.
pub fn is_counted(section: &[u8]) -> bool {
    section.first() != Some(&LOOKUP_MARK) && !is_users(section)
}

/// True for the key or the section of sketches of users.
fn is_users(key: &[u8]) -> bool {
    USERS_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// The stored key within a total key: `jehiah` of `u|jehiah`.
pub fn stored_key(total_key: &[u8]) -> &[u8] {
    &total_key[section(total_key).len()..]
}

/// `u|jehiah`
pub fn total_key(namespace: &str, stored: &str) -> String {
    [namespace, "|", stored].concat()
}

/// `c.u|jehiah.`, which the time code follows.
pub fn subtotal_prefix(subtotal: &str, namespace: &str, stored: &str) -> String {
    [subtotal, ".", namespace, "|", stored, "."].concat()
}

/// `~h0aMB8AuNw4-`
pub fn lookup_key(hash: &str) -> String {
    format!("~{hash}")
}

/// Splits a subtotal key into subtotal, total key and time code.
///
/// ```
/// use tallyring_records::line::split_subtotal;
///
/// let (subtotal, total, code) = split_subtotal(b"c.u|jehiah.c41l").unwrap();
/// assert_eq!((subtotal, total), (&b"c"[..], &b"u|jehiah"[..]));
/// assert_eq!(code.to_string(), "c41l");
/// ```
pub fn split_subtotal(key: &[u8]) -> Option<(&[u8], &[u8], TimeCode)> {
    let first = key.iter().position(|&byte| byte == b'.')?;
    let last = key.iter().rposition(|&byte| byte == b'.')?;
    (first < last).then_some(())?;
    Some((
        &key[..first],
        &key[first + 1..last],
        TimeCode::parse(&key[last + 1..]).ok()?,
    ))
}

/// The shard key of a total or subtotal line: its total key.
pub fn shard_key(key: &[u8]) -> Option<&[u8]> {
    match kind_of(key)? {
        Kind::Total => Some(key),
        Kind::Subtotal | Kind::Users => split_subtotal(key).map(|(_, total, _)| total),
        Kind::Lookup => None,
    }
}

/// Appends `name:count`, with a space before it unless it is the first.
///
/// ```
/// use tallyring_records::line::push_entry;
///
/// let mut payload = Vec::new();
/// push_entry(&mut payload, true, b"US", 4);
/// push_entry(&mut payload, false, b"JP", 1);
/// assert_eq!(payload, b"US:4 JP:1");
/// ```
pub fn push_entry(out: &mut Vec<u8>, first: bool, name: &[u8], count: u64) {
    if !first {
        out.push(b' ');
    }
    out.extend_from_slice(name);
    out.push(b':');
    let mut digits = [0_u8; 20];
    out.extend_from_slice(decimal(count, &mut digits));
}

/// The `(name, count)` entries of a payload; an entry that cannot be read gives `None`.
pub fn entries(payload: &[u8]) -> impl Iterator<Item = Option<(&[u8], u64)>> {
    payload.split(|&byte| byte == b' ').map(split_entry)
}

pub(crate) fn split_entry(entry: &[u8]) -> Option<(&[u8], u64)> {
    let colon = entry.iter().rposition(|&byte| byte == b':')?;
    let name = &entry[..colon];
    if name.is_empty() {
        return None;
    }
    Some((name, parse_count(&entry[colon + 1..])?))
}

/// Escapes the text of a lookup for its line.
///
/// ```
/// use tallyring_records::line::{escape, unescape};
///
/// assert_eq!(escape("a,b"), "a%2Cb");
/// assert_eq!(unescape(b"a%2Cb").unwrap(), "a,b");
/// ```
pub fn escape(raw: &str) -> String {
    percent_encode(raw.as_bytes(), ESCAPED).to_string()
}

/// The text that a lookup's payload stands for; `None` when it is not UTF-8.
pub fn unescape(payload: &[u8]) -> Option<Cow<'_, str>> {
    percent_decode(payload).decode_utf8().ok()
}

/// A line as text for messages: at most 120 characters, with bytes that are no UTF-8 replaced.
pub fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars()
        .take(120)
        .flat_map(char::escape_debug)
        .collect()
}

const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b',').add(b'"');

pub(crate) fn parse_count(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0_u64, |count, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        count.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

fn decimal(mut count: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (count % 10) as u8;
        count /= 10;
        if count == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DESIGN: &str = "u|jehiah,c413:2 c41l:5\n\
        c.u|jehiah.c41l,US:4 JP:1\n\
        r.u|jehiah.c41l,5bmehgOB4+w=:3 h0aMB8AuNw4=:2";

    #[test]
    fn the_lines_of_the_design_read_and_write_back() {
        let mut sums = Vec::new();
        for text in DESIGN.lines() {
            let (key, payload) = split(text.as_bytes()).unwrap();
            let mut written = [key, b","].concat();
            let mut sum = 0;
            for (index, entry) in entries(payload).enumerate() {
                let (name, count) = entry.unwrap();
                push_entry(&mut written, index == 0, name, count);
                sum += count;
            }
            assert_eq!(written, text.as_bytes());
            sums.push((kind_of(key).unwrap(), sum));
        }
        assert_eq!(
            sums,
            [(Kind::Total, 7), (Kind::Subtotal, 5), (Kind::Subtotal, 5)]
        );
    }

    #[test]
    fn a_subtotal_key_names_its_total_and_hour() {
        let (subtotal, total, code) = split_subtotal(b"c.u|jehiah.c41l").unwrap();
        assert_eq!(
            (subtotal, total, code.to_string().as_str()),
            (&b"c"[..], &b"u|jehiah"[..], "c41l")
        );
        assert_eq!(shard_key(b"c.u|jehiah.c41l"), Some(&b"u|jehiah"[..]));
        assert_eq!(section(b"c.u|jehiah.c41l"), b"c.u|");
        assert_eq!(section(b"~h0aMB8AuNw4-"), b"~");
    }

    #[test]
    fn damaged_entries_are_refused() {
        for payload in [
            "",
            "US",
            "US:",
            ":4",
            "US:-1",
            "US:04",
            "US:99999999999999999999",
            "US:4  JP:1",
            "US:4 ",
        ] {
            assert!(
                entries(payload.as_bytes()).any(|entry| entry.is_none()),
                "{payload:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn prop_lookup_text_roundtrips_on_one_line(raw in any::<String>()) {
            let escaped = escape(&raw);
            prop_assert!(!escaped.contains(['\n', '\r', ',', '"']));
            prop_assert_eq!(unescape(escaped.as_bytes()).unwrap(), raw);
        }

        #[test]
        fn prop_counts_roundtrip(count in any::<u64>()) {
            let mut payload = Vec::new();
            push_entry(&mut payload, true, b"US", count);
            prop_assert_eq!(entries(&payload).collect::<Vec<_>>(), vec![Some((&b"US"[..], count))]);
        }
    }
}
