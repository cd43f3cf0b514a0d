//! Reads the fields of a row: hours, counts and crossed values.

use std::borrow::Cow;

use jiff::Timestamp;
use tallyring_records::digits::last_digits;
use tallyring_records::{COUNT_MAX, TIME_MAX, TIME_MIN};

/// Reads an hour: RFC 3339, or Unix seconds. Returns Unix seconds.
///
/// # Errors
/// A sentence for the user.
pub fn hour(text: &[u8]) -> Result<i64, String> {
    let seconds = match number(text) {
        Some(seconds) => i64::try_from(seconds).ok(),
        None => rfc3339_utc(text).or_else(|| {
            let text = std::str::from_utf8(text).ok()?;
            let timestamp: Timestamp = text.parse().ok()?;
            Some(timestamp.as_second())
        }),
    };
    match seconds {
        Some(seconds) if (TIME_MIN..TIME_MAX).contains(&seconds) => Ok(seconds),
        Some(_) => Err(format!(
            "`hour` is {}, which lies outside the years 2000 to 2999{}",
            shown(text),
            if number(text).is_some() && text.len() >= 13 {
                "; it looks like milliseconds: divide it by 1,000"
            } else {
                ""
            }
        )),
        None => Err(format!(
            "`hour` is {}; write Unix seconds, or RFC 3339 with an offset such as 2012-03-16T18:00:00Z",
            shown(text)
        )),
    }
}

/// Reads a count, 0 to 2^53−1.
///
/// # Errors
/// A sentence for the user.
pub fn count(text: &[u8]) -> Result<u64, String> {
    match number(text) {
        Some(count) if count <= COUNT_MAX => Ok(count),
        _ => Err(format!(
            "`count` is {}; write a whole number from 0 to {COUNT_MAX}",
            shown(text)
        )),
    }
}

/// The parts of a crossed value in the form of answers: `*` separates parts, and `\` stands before each `*` and `\` in
/// a part.
pub fn parts_of(value: &str) -> Vec<Cow<'_, str>> {
    if !value.contains('\\') {
        return value.split('*').map(Cow::Borrowed).collect();
    }
    let mut parts = vec![String::new()];
    let mut rest = value.chars();
    while let Some(next) = rest.next() {
        let escaped = rest
            .clone()
            .next()
            .filter(|after| matches!(after, '*' | '\\'));
        let last = parts.last_mut().expect("BUG: there is at least one part");
        match (next, escaped) {
            ('\\', Some(after)) => {
                last.push(after);
                rest.next();
            }
            ('*', _) => parts.push(String::new()),
            (other, _) => last.push(other),
        }
    }
    parts.into_iter().map(Cow::Owned).collect()
}

/// A piece of input for messages: quoted, escaped and at most 60 characters.
pub fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if text.is_empty() {
        return "empty".into();
    }
    let short: String = text.chars().take(60).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", short.escape_debug())
}

/// A whole number of at most 19 digits. Numbers of a usual length are read without a loop: their lengths cannot be
/// predicted, and a wrong prediction takes a processor longer than the reading.
fn number(text: &[u8]) -> Option<u64> {
    match text.len() {
        1..=3 => to_three_digits(text),
        8..=16 => {
            let (first, last) = (text.first_chunk()?, text.last_chunk()?);
            let more = text.len() - 8;
            Some(last_digits(*first, 8)? * TENS[more] + last_digits(*last, more)?)
        }
        4..=19 => text.iter().try_fold(0, |number, digit| {
            let digit = digit.wrapping_sub(b'0');
            (digit <= 9).then(|| number * 10 + u64::from(digit))
        }),
        _ => None,
    }
}

const TENS: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// The number of one to three digits. The first, the middle and the last byte may coincide.
fn to_three_digits(text: &[u8]) -> Option<u64> {
    const TIMES: [[u64; 3]; 4] = [[0; 3], [0, 0, 1], [0, 10, 1], [100, 10, 1]];
    let length = text.len();
    let digits = [0, (length - 1) / 2, length - 1].map(|at| u64::from(text[at].wrapping_sub(b'0')));
    let times = TIMES[length];
    let are_digits = digits.iter().all(|&digit| digit <= 9);
    are_digits.then_some(digits[0] * times[0] + digits[1] * times[1] + digits[2] * times[2])
}

/// Reads the common form `2012-03-16T18:00:00Z` without the generality of a time library.
fn rfc3339_utc(text: &[u8]) -> Option<i64> {
    let [
        y1,
        y2,
        y3,
        y4,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
        b'Z',
    ] = *text
    else {
        return None;
    };
    let two = |a: u8, b: u8| number(&[a, b]);
    let (month, day) = (two(m1, m2)?, two(d1, d2)?);
    let date = jiff::civil::Date::new(
        i16::try_from(number(&[y1, y2, y3, y4])?).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
    )
    .ok()?;
    let (hour, minute, second) = (two(h1, h2)?, two(n1, n2)?, two(s1, s2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = i64::from((date - jiff::civil::Date::constant(1970, 1, 1)).get_days());
    Some(days * 86_400 + i64::try_from(hour * 3_600 + minute * 60 + second).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_crossed_values_may_contain_the_separator() {
        for (value, parts) in [
            ("US*mobile", vec!["US", "mobile"]),
            (r"a\*b*c", vec!["a*b", "c"]),
            (r"a\\*b", vec![r"a\", "b"]),
            (r"C:\x*\", vec![r"C:\x", r"\"]),
            ("**", vec!["", "", ""]),
        ] {
            assert_eq!(parts_of(value), parts, "{value}");
        }
    }

    #[test]
    fn hours_are_unix_seconds_or_rfc_3339() {
        assert_eq!(hour(b"1331920800"), Ok(1_331_920_800));
        for text in [
            "2012-03-16T18:00:00Z",
            "2012-03-16T14:00:00-04:00",
            "2012-03-16 18:00:00Z",
            "2012-03-16T18:00:00.5Z",
        ] {
            assert_eq!(hour(text.as_bytes()), Ok(1_331_920_800), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2012-03-16T18:00:00",
            "2012-02-30T00:00:00Z",
            "2012-03-16T24:00:00Z",
            "-5",
            "1999-12-31T23:00:00Z",
            "1331923247000",
            "99999999999999999999",
        ] {
            assert!(hour(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_whole_numbers_that_a_double_holds() {
        assert_eq!(count(b"0"), Ok(0));
        assert_eq!(count(b"9007199254740991"), Ok(COUNT_MAX));
        for text in ["", "-1", "1.5", "1e3", "9007199254740992", " 1"] {
            assert!(count(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prop_numbers_are_those_of_the_standard_library(text in prop_oneof!["[0-9]{1,21}", "[0-9]{0,9}[/:@ -][0-9]{0,9}"]) {
            let expected = if text.len() > 19 { None } else { text.parse().ok() };
            prop_assert_eq!(number(text.as_bytes()), expected);
        }

        #[test]
        fn prop_the_fast_path_reads_what_the_library_reads(seconds in TIME_MIN..TIME_MAX) {
            let text = Timestamp::from_second(seconds).unwrap().to_string();
            prop_assert_eq!(rfc3339_utc(text.as_bytes()), Some(seconds));
        }
    }
}
