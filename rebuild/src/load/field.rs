//! Reads the fields of a row: hours, counts and crossed values.

use std::borrow::Cow;

use jiff::Timestamp;
use tallyring_records::input::{time, whole_number};
use tallyring_records::{COUNT_MAX, Day, Grain, TIME_MAX, TIME_MIN};

/// Reads the width of a row's bucket; an empty one is the `base` bucket of the namespace. No bucket is narrower than
/// that. The error is a sentence for the user, safe to show.
pub(super) fn unit(text: &[u8], base: Grain) -> Result<Grain, String> {
    let grain = match text {
        b"" => base,
        b"day" => Grain::Day,
        b"hour" => Grain::Hour,
        b"quarter" => Grain::Quarter,
        _ => {
            return Err(format!(
                "`unit` is {}; write hour, quarter (of an hour) or day, or leave it empty",
                shown(text)
            ));
        }
    };
    Ok(grain.min(base))
}

/// Reads the start of a bucket of `grain`: RFC 3339, or Unix seconds, of a day also its date, `latest` (Unix seconds)
/// at most. Returns Unix seconds. The error is a sentence for the user, safe to show.
pub(super) fn hour(text: &[u8], grain: Grain, latest: i64) -> Result<i64, String> {
    let years = TIME_MIN..TIME_MAX;
    let date = (grain == Grain::Day).then(|| date(text)).flatten();
    match date.or_else(|| time::parse(text)) {
        Some(seconds) if years.contains(&seconds) && seconds <= latest => Ok(seconds),
        Some(seconds) if years.contains(&seconds) => Err(format!(
            "`hour` is {}, which is {}, more than 24 hours ahead of the clock; correct the hour (hours up to {} are taken)",
            shown(text),
            instant(seconds),
            instant(latest)
        )),
        Some(seconds) => Err(format!(
            "`hour` is {}, which lies outside the years 2000 to 2999{}",
            shown(text),
            if whole_number(text).is_some() && years.contains(&(seconds / 1_000)) {
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

/// The start of a UTC day that is written as a date, such as `2012-03-16`.
fn date(text: &[u8]) -> Option<i64> {
    let day: Option<Day> = std::str::from_utf8(text).ok()?.parse().ok();
    day.map(Day::start)
}

/// Unix seconds in RFC 3339.
fn instant(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |at| at.to_string())
}

/// Reads a count, 0 to 2^53−1. The error is a sentence for the user, safe to show.
pub(super) fn count(text: &[u8]) -> Result<u64, String> {
    match whole_number(text) {
        Some(count) if count <= COUNT_MAX => Ok(count),
        _ => Err(format!(
            "`count` is {}; write a whole number from 0 to {COUNT_MAX}",
            shown(text)
        )),
    }
}

/// The parts of a crossed value, as answers join them: with `*` between, and a `\` before each `*` and `\` within one.
pub(super) fn parts_of(value: &str) -> Vec<Cow<'_, str>> {
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
        let last = parts.last_mut().expect("BUG: there is one at least");
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
pub(super) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if text.is_empty() {
        return "empty".into();
    }
    let short: String = text.chars().take(60).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", short.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_331_923_247;

    #[test]
    fn parts_of_crossed_values_may_hold_what_joins_them() {
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
        assert_eq!(hour(b"1331920800", Grain::Hour, NOW), Ok(1_331_920_800));
        for text in [
            "2012-03-16T18:00:00Z",
            "2012-03-16T14:00:00-04:00",
            "2012-03-16 18:00:00Z",
            "2012-03-16T18:00:00.5Z",
        ] {
            assert_eq!(
                hour(text.as_bytes(), Grain::Hour, NOW),
                Ok(1_331_920_800),
                "{text}"
            );
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
            assert!(hour(text.as_bytes(), Grain::Hour, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn an_hour_ahead_of_the_clock_or_in_milliseconds_is_named_with_its_remedy() {
        assert_eq!(hour(b"2012-03-16T18:40:47Z", Grain::Hour, NOW), Ok(NOW));
        assert_eq!(
            hour(b"32503679999", Grain::Hour, TIME_MAX),
            Ok(TIME_MAX - 1)
        );
        for (text, latest, why) in [
            (
                "4600000000",
                NOW,
                "`hour` is `4600000000`, which is 2115-10-08T17:46:40Z, more than 24 hours ahead of the clock; \
                 correct the hour (hours up to 2012-03-16T18:40:47Z are taken)",
            ),
            ("1331923248", NOW, "ahead of the clock"),
            ("32503680000", TIME_MAX, "outside the years 2000 to 2999"),
            ("946684800000", NOW, "divide it by 1,000"),
            ("1331923247000", NOW, "divide it by 1,000"),
        ] {
            let found = hour(text.as_bytes(), Grain::Hour, latest).expect_err(text);
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn a_day_may_be_its_date_and_no_bucket_is_narrower_than_those_of_the_namespace() {
        for text in ["2012-03-16", "1331856000", "2012-03-16T00:00:00Z"] {
            assert_eq!(hour(text.as_bytes(), Grain::Day, NOW), Ok(1_331_856_000));
        }
        for text in ["2012-3-16", "2012-02-30", "1999-12-31", "2012-03-17"] {
            assert!(hour(text.as_bytes(), Grain::Day, NOW).is_err(), "{text}");
        }
        for (text, base, grain) in [
            ("", Grain::Quarter, Grain::Quarter),
            ("hour", Grain::Quarter, Grain::Hour),
            ("quarter", Grain::Hour, Grain::Hour),
            ("day", Grain::Hour, Grain::Day),
        ] {
            assert_eq!(unit(text.as_bytes(), base), Ok(grain), "{text}");
        }
        let refused = unit(b"week", Grain::Hour).unwrap_err();
        assert!(
            refused.contains("`unit` is `week`; write hour"),
            "{refused}"
        );
    }

    #[test]
    fn counts_are_whole_numbers_that_a_double_holds() {
        assert_eq!(count(b"0"), Ok(0));
        assert_eq!(count(b"9007199254740991"), Ok(COUNT_MAX));
        for text in ["", "-1", "1.5", "1e3", "9007199254740992", " 1"] {
            assert!(count(text.as_bytes()).is_err(), "{text}");
        }
    }
}
