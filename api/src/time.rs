//! Times in requests: RFC 3339, or Unix seconds.

use std::borrow::Cow;

/// Reads a time as Unix seconds, rounded down; `None` when it is neither form.
pub fn parse(text: &str) -> Option<i64> {
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

/// Reads a time of a query string, in which a plus that was not percent-encoded has become a space.
pub fn parse_in_query(text: &str) -> Option<i64> {
    parse(&with_plus(text))
}

/// Unix seconds with a fraction, rounded down; `None` for what is no time.
pub fn floor(seconds: f64) -> Option<i64> {
    /// Up to here every whole number is one.
    const EXACT_MAX: f64 = (1_u64 << 53) as f64;
    (seconds.abs() <= EXACT_MAX).then(|| seconds.floor() as i64)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Puts the plus back before the offset of a time.
pub fn with_plus(text: &str) -> Cow<'_, str> {
    match text.rsplit_once(' ') {
        Some((time, offset)) if time.contains(['T', 't']) => format!("{time}+{offset}").into(),
        _ => text.into(),
    }
}

/// The forms that [`parse`] takes, for messages.
pub const EXPECTED: &str =
    "must be RFC 3339 with an offset, such as 2012-03-16T18:40:47Z, or Unix seconds";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_others_refused() {
        for (text, seconds) in [
            ("1331923247", Some(1_331_923_247)),
            ("-1", Some(-1)),
            ("2012-03-16T18:40:47Z", Some(1_331_923_247)),
            ("2012-03-16T14:40:47.9-04:00", Some(1_331_923_247)),
            ("2012-03-16", None),
            ("2012-03-16T18:40:47", None),
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
        ] {
            assert_eq!(parse(text), seconds, "{text}");
            assert_eq!(parse_in_query(text), seconds, "{text}");
        }
        for text in ["2012-03-16T18:40:47 00:00", "2012-03-17T00:10:47+05:30"] {
            assert_eq!(parse_in_query(text), Some(1_331_923_247), "{text}");
        }
        assert_eq!(parse("2012-03-16T18:40:47 00:00"), None);
        assert_eq!(parse_in_query("2012-03-16 18:40:47"), None);
    }
}
