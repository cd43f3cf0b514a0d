//! Minutes of a base bucket: values of a subtotal that no configuration can declare.
//!
//! `_m.ad_click|42.c41l,1q:3 1r:2` says that ad 42 had three clicks in minute 58 of the hour `c41l`, and two in minute
//! 59. A value is the two minute digits of the time code `c41l1q`. Minutes are a subtotal, so they sum to their bucket
//! wherever subtotals do, from memory to the archive.
//!
//! A breakdown by minute is kept for a few hours only, and has a line for each minute: `_m*c.ad_click|42.c41l1q,US:2`
//! says that two of the three clicks of minute 58 came from the US. Its values sum to the minute, as those of
//! `c.ad_click|42.c41l` sum to the hour.

use crate::time_code::{Grain, TimeCode, digit};

/// The subtotal's name.
pub const MINUTES: &str = "_m";

/// Beginning of the name of a subtotal that has a line for each minute.
const BY_MINUTE: &str = "_m*";

/// Digits of a time code that name its minute.
const DIGITS: usize = 2;

/// The value under which `at` (Unix seconds) counts: the last digits of its minute's code.
///
/// ```
/// use tallyring_records::{minute_of, minute_value};
///
/// let value = minute_value(1_333_317_539); // 2012-04-01T21:58:59Z
/// assert_eq!(&value, b"1q");
/// let hour = "c41l".parse()?;
/// assert_eq!(minute_of(hour, &value).unwrap().to_string(), "c41l1q");
/// # Ok::<(), tallyring_records::TimeCodeError>(())
/// ```
pub fn minute_value(at: i64) -> [u8; DIGITS] {
    minute_digits(minute_of_hour(at))
}

/// The minute of the hour, 0 to 59, in which `at` (Unix seconds) counts.
#[inline]
pub fn minute_of_hour(at: i64) -> u8 {
    (TimeCode::containing(at, Grain::Minute).minutes() % 60) as u8
}

/// The last digits of the code of a minute of the hour.
#[inline]
pub fn minute_digits(minute: u8) -> [u8; DIGITS] {
    let minute = u32::from(minute);
    [digit(minute / 32), digit(minute % 32)]
}

/// The minute that a value of `base` stands for; `None` for `-`, which counts what has no minutes.
pub fn minute_of(base: TimeCode, value: &[u8]) -> Option<TimeCode> {
    let mut code = Vec::with_capacity(8);
    TimeCode::containing(base.start(), Grain::Hour).write_to(&mut code);
    code.extend_from_slice(value);
    TimeCode::parse(&code)
        .ok()
        .filter(|code| code.grain() == Grain::Minute)
}

/// The name under which a subtotal has a line for each minute.
///
/// ```
/// use tallyring_records::{by_minute, of_by_minute};
///
/// assert_eq!(by_minute("c*v"), "_m*c*v");
/// assert_eq!(of_by_minute("_m*c*v"), Some("c*v"));
/// assert_eq!(of_by_minute("c"), None);
/// ```
pub fn by_minute(subtotal: &str) -> String {
    [BY_MINUTE, subtotal].concat()
}

/// The subtotal of a name by minute; `None` for any other name.
pub fn of_by_minute(name: &str) -> Option<&str> {
    name.strip_prefix(BY_MINUTE)
}

/// Start of the first hour whose breakdowns are kept by the minute at `now` (both Unix seconds), where they are kept
/// for so many hours before the present one.
pub fn breakdowns_from(now: i64, hours: u32) -> i64 {
    let width = Grain::Hour.seconds();
    now - now.rem_euclid(width) - width * i64::from(hours)
}

/// True for the key of a line of minutes whose bucket began before `instant` (Unix seconds). A merge may leave
/// such a line out once minutes are that old.
pub fn is_minutes_before(key: &[u8], instant: i64) -> bool {
    key.starts_with(MINUTES.as_bytes())
        && crate::line::split_subtotal(key).is_some_and(|(subtotal, _, code)| {
            subtotal == MINUTES.as_bytes() && code.start() < instant
        })
}

/// True for the key of a line of a breakdown by minute whose minute began before `instant` (Unix seconds).
pub fn is_breakdown_before(key: &[u8], instant: i64) -> bool {
    key.starts_with(BY_MINUTE.as_bytes())
        && crate::line::split_subtotal(key).is_some_and(|(_, _, code)| code.start() < instant)
}

/// True for a section of the books that sums minutes, `_m.ad_click|`, or a breakdown of them.
pub fn is_minutes_section(section: &str) -> bool {
    let rest = section.strip_prefix(MINUTES);
    rest.is_some_and(|rest| rest.starts_with('.')) || is_breakdown_section(section)
}

/// True for a section of the books that sums a breakdown by minute: `_m*c.ad_click|`.
pub fn is_breakdown_section(section: &str) -> bool {
    section.starts_with(BY_MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_code::{TIME_MAX, TIME_MIN};
    use proptest::prelude::*;

    #[test]
    fn minutes_are_the_digits_of_the_design() {
        let at = "2012-04-01T21:58:59Z".parse::<jiff::Timestamp>().unwrap();
        assert_eq!(&minute_value(at.as_second()), b"1q");
        let hour: TimeCode = "c41l".parse().unwrap();
        assert_eq!(minute_of(hour, b"1q").unwrap().to_string(), "c41l1q");
        for value in [&b"-"[..], b"", b"1", b"3", b"1s", b"1q0", b"US"] {
            assert_eq!(minute_of(hour, value), None, "{value:?}");
        }
    }

    #[test]
    fn only_lines_of_old_minutes_may_be_left_out() {
        let start = "c41l".parse::<TimeCode>().unwrap().start();
        assert!(is_minutes_before(b"_m.ad_click|42.c41l", start + 1));
        assert!(!is_minutes_before(b"_m.ad_click|42.c41l", start));
        for other in [&b"m.ad_click|42.c41l"[..], b"ad_click|42", b"~h0aMB8AuNw4-"] {
            assert!(!is_minutes_before(other, TIME_MAX));
        }
        let minute = start + 58 * 60;
        for key in [&b"_m*c.ad_click|42.c41l1q"[..], b"_m*_u.ad_click|42.c41l1q"] {
            assert!(is_breakdown_before(key, minute + 1) && !is_breakdown_before(key, minute));
            assert!(!is_minutes_before(key, TIME_MAX));
        }
        assert!(!is_breakdown_before(b"_m.ad_click|42.c41l", TIME_MAX));
        assert!(is_minutes_section("_m.ad_click|") && is_minutes_section("_m*c.ad_click|"));
        assert!(!is_minutes_section("m.ad_click|") && !is_minutes_section("ad_click|"));
    }

    proptest! {
        #[test]
        fn prop_every_instant_finds_its_minute_again(at in TIME_MIN..TIME_MAX, quarter in any::<bool>()) {
            let base = TimeCode::containing(at, if quarter { Grain::Quarter } else { Grain::Hour });
            let minute = TimeCode::containing(at, Grain::Minute);
            prop_assert_eq!(minute_of(base, &minute_value(at)), Some(minute));
        }
    }
}
