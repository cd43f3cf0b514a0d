//! Minutes of a base bucket: values of a subtotal that no configuration can declare.
//!
//! `_m.ad_click|42.c41l,1q:3 1r:2` says that of ad 42's clicks in the hour `c41l` three came in its
//! minute 58 and two in 59. A value is the two minute digits of the time code `c41l1q`. Being a
//! subtotal, minutes sum to their bucket wherever subtotals do, from memory to the archive.

use crate::time_code::{Grain, TimeCode, digit};

/// The subtotal's name.
pub const MINUTES: &str = "_m";

/// Digits of a time code that say its minute.
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
    let minute = TimeCode::containing(at, Grain::Minute).minutes() % 60;
    [digit(minute / 32), digit(minute % 32)]
}

/// The minute that a value of `base` stands for; none for `-`, what was counted without minutes.
pub fn minute_of(base: TimeCode, value: &[u8]) -> Option<TimeCode> {
    let mut code = Vec::with_capacity(8);
    TimeCode::containing(base.start(), Grain::Hour).write_to(&mut code);
    code.extend_from_slice(value);
    TimeCode::parse(&code)
        .ok()
        .filter(|code| code.grain() == Grain::Minute)
}

/// True for the key of a line of minutes whose bucket began before `instant` (Unix seconds): what a
/// merge may leave out once minutes are that old.
pub fn is_minutes_before(key: &[u8], instant: i64) -> bool {
    crate::line::split_subtotal(key)
        .is_some_and(|(subtotal, _, code)| subtotal == MINUTES.as_bytes() && code.start() < instant)
}

/// True for a section of the books that sums minutes: `_m.ad_click|`.
pub fn is_minutes_section(section: &str) -> bool {
    section
        .strip_prefix(MINUTES)
        .is_some_and(|rest| rest.starts_with('.'))
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
        assert!(is_minutes_section("_m.ad_click|"));
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
