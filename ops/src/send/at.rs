//! Reads the time of an event: Unix seconds, RFC 3339, or the time of a web access log.
//!
//! A line without a readable time is bad; its event never counts as *now*.

use jiff::fmt::strtime;
use tallyring_records::input::time;

use crate::escape::quoted;

/// Above this, a number cannot be meant as Unix seconds (it would be the year 5138).
const UNIX_SECONDS_MAX: i64 = 100_000_000_000;

/// Reads `text` as a time and returns whole Unix seconds, rounded down.
///
/// Fractions are dropped because the finest bucket of the server is a minute. A time without an offset is
/// refused: guessing its zone would count it in the wrong hour. The error is a sentence for the user, safe to show,
/// when `text` is none of the three forms or is too large for seconds.
pub(super) fn parse_at(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let Some(seconds) = time::parse(text.as_bytes()) else {
        return access_log_time(text);
    };
    if seconds > UNIX_SECONDS_MAX && !text.contains(':') {
        return Err(format!(
            "`at` is {}, too large for Unix seconds; it looks like milliseconds: divide it by 1,000 first",
            quoted(text)
        ));
    }
    Ok(seconds)
}

fn access_log_time(text: &str) -> Result<i64, String> {
    let time = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let timestamp = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time)
        .and_then(|broken_down| broken_down.to_timestamp())
        .map_err(|_| {
            format!(
                "`at` is {}, which is neither Unix seconds, nor RFC 3339 with an offset \
                 (2012-03-16T18:40:47Z), nor an access log time (17/May/2015:10:05:03 +0000)",
                quoted(text)
            )
        })?;
    Ok(timestamp.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: i64) {
        assert_eq!(parse_at(text), Ok(expected), "{text}");
    }

    #[test]
    fn unix_seconds_come_as_integer_float_or_text() {
        check("1331923247", 1_331_923_247);
        check(" 1331923247 ", 1_331_923_247);
        check("1331923247.9", 1_331_923_247);
        // A float would round it up to the next hour.
        check("1332009599.99999999", 1_332_009_599);
        check("0", 0);
        check("-0.5", -1);
        check("100000000000", 100_000_000_000);
    }

    #[test]
    fn rfc_3339_needs_an_offset() {
        check("2012-03-16T18:40:47Z", 1_331_923_247);
        check("2012-03-16T14:40:47-04:00", 1_331_923_247);
        check("2012-03-16T18:40:47.999Z", 1_331_923_247);
        check("1969-12-31T23:59:59.5Z", -1);
        let error = parse_at("2012-03-16T18:40:47").expect_err("no offset");
        assert!(error.contains("RFC 3339 with an offset"), "{error}");
    }

    #[test]
    fn access_log_times_come_with_or_without_brackets() {
        check("[17/May/2015:10:05:03 +0000]", 1_431_857_103);
        check("17/May/2015:12:05:03 +0200", 1_431_857_103);
    }

    #[test]
    fn milliseconds_are_named_as_such() {
        for text in ["1331923247000", "1331923247000.5", "100000000001"] {
            let error = parse_at(text).expect_err(text);
            assert!(error.contains("milliseconds"), "{error}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_escaped() {
        for text in [
            "",
            "NaN",
            "inf",
            "yesterday",
            "2012-02-30T00:00:00Z",
            "31/Feb/2015:10:05:03 +0000",
        ] {
            assert!(parse_at(text).is_err(), "{text}");
        }
        assert!(
            !parse_at("a\u{1b}[2J")
                .expect_err("escape")
                .contains('\u{1b}')
        );
    }
}
