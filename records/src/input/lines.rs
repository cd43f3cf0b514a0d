//! Lines with their numbers: the records of NDJSON.

use std::ops::Range;

/// A line without its LF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number.
    pub number: u64,
    /// Where it stands in the bytes.
    pub place: Range<usize>,
}

/// Returns the lines of `bytes` that are not blank. The first line, blank or not, has the number `first`.
pub fn lines(bytes: &[u8], first: u64) -> impl Iterator<Item = Line> {
    let ends = memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]);
    let places = ends.scan(0, |start, end| Some(std::mem::replace(start, end + 1)..end));
    let numbered = (first..).zip(places);
    numbered
        .filter(|(_, place)| !bytes[place.clone()].trim_ascii().is_empty())
        .map(|(number, place)| Line { number, place })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prop_lines_are_those_between_line_feeds_with_their_numbers(text in "[a \r\n]{0,20}") {
            let expected = (7..).zip(text.split('\n')).filter(|(_, line)| !line.trim().is_empty());
            let found = lines(text.as_bytes(), 7).map(|line| (line.number, &text[line.place]));
            prop_assert!(found.eq(expected));
        }
    }
}
