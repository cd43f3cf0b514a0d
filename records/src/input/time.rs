//! Times: RFC 3339 with an offset, or Unix seconds.

use super::whole_number;

/// The texts that [`parse`] reads, for messages.
pub const EXPECTED: &str =
    "must be RFC 3339 with an offset, such as 2012-03-16T18:40:47Z, or Unix seconds";

/// Reads a time as Unix seconds, rounded down; `None` when it is neither form.
///
/// A time without an offset is refused: a guessed zone would count it in the wrong hour.
#[inline]
pub fn parse(text: &[u8]) -> Option<i64> {
    match whole_number(text) {
        Some(seconds) => i64::try_from(seconds).ok(),
        None => rfc3339_utc(text).or_else(|| other_form(std::str::from_utf8(text).ok()?)),
    }
}

/// Reads a number with a sign or a fraction, or RFC 3339 in full.
fn other_form(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(seconds);
    }
    if let Some((whole, fraction)) = text.split_once('.')
        && [whole.strip_prefix('-').unwrap_or(whole), fraction].map(is_digits) == [true, true]
    {
        // Not by way of a float, which may be rounded up to the next hour.
        let is_below = whole.starts_with('-') && fraction.bytes().any(|digit| digit != b'0');
        return whole.parse::<i64>().ok()?.checked_sub(is_below.into());
    }
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    Some(timestamp.as_millisecond().div_euclid(1_000))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads the most frequent form, `2012-03-16T18:00:00Z`, faster than a time library that reads every form.
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
    let two = |a: u8, b: u8| whole_number(&[a, b]);
    let (month, day) = (two(m1, m2)?, two(d1, d2)?);
    let date = jiff::civil::Date::new(
        i16::try_from(whole_number(&[y1, y2, y3, y4])?).ok()?,
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
    use proptest::prelude::*;

    use super::*;
    use crate::{TIME_MAX, TIME_MIN};

    #[test]
    fn both_forms_are_read_and_others_refused() {
        for (text, seconds) in [
            ("1331923247", Some(1_331_923_247)),
            ("-1", Some(-1)),
            ("2012-03-16T18:40:47Z", Some(1_331_923_247)),
            ("2012-03-16 18:40:47Z", Some(1_331_923_247)),
            ("2012-03-16T14:40:47.9-04:00", Some(1_331_923_247)),
            ("1969-12-31T23:59:59.5Z", Some(-1)),
            ("2012-03-16", None),
            ("2012-03-16T18:40:47", None),
            ("2012-03-16T18:40:47 00:00", None),
            ("2012-02-30T00:00:00Z", None),
            ("2012-03-16T24:00:00Z", None),
            ("now", None),
            ("1331923247.5", Some(1_331_923_247)),
            ("1332009599.999999999", Some(1_332_009_599)),
            ("-0.5", Some(-1)),
            ("-2.0", Some(-2)),
            ("1331923247.", None),
            (".5", None),
            ("1.5e9", None),
            ("--1.5", None),
            ("99999999999999999999.5", None),
            ("99999999999999999999", None),
            ("9999999999999999999", None),
        ] {
            assert_eq!(parse(text.as_bytes()), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn prop_the_short_way_reads_what_the_long_one_does(seconds in TIME_MIN..TIME_MAX) {
            let text = jiff::Timestamp::from_second(seconds).unwrap().to_string();
            prop_assert_eq!(rfc3339_utc(text.as_bytes()), Some(seconds));
            prop_assert_eq!(other_form(&text), Some(seconds));
        }
    }
}
