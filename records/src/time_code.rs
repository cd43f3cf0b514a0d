//! Time codes: the UTC start of a bucket in a few bytes that sort by time.
//!
//! One base32hex digit (`0-9a-v`) each for year−2000, month, day, hour: `c3p1` is 2012-03-25 01:00.
//! A day is the hour code without its last digit (`c3p`), a quarter-hour adds one digit 0–3
//! (`c3p12`), a minute two (`c3p11q`). From 2032 the year is `~` and two digits (`~1031…`).
//!
//! Invariant: among codes of one grain, order as bytes is order in time.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Width of a base bucket.
///
/// ```
/// use tallyring_records::Grain;
///
/// assert_eq!(Grain::Quarter.seconds(), 900);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grain {
    /// One UTC day, into which old hours fold.
    Day,
    /// One UTC hour, the default.
    Hour,
    /// A quarter of an hour, which makes days exact in every time zone in use.
    Quarter,
    /// One minute.
    Minute,
}

impl Grain {
    /// All grains, the widest first.
    pub const ALL: [Self; 4] = [Self::Day, Self::Hour, Self::Quarter, Self::Minute];

    /// Width in seconds.
    #[inline]
    pub fn seconds(self) -> i64 {
        match self {
            Self::Day => 86_400,
            Self::Hour => 3_600,
            Self::Quarter => 900,
            Self::Minute => 60,
        }
    }
}

/// A base bucket: its UTC start and its grain. Ordered by start.
///
/// ```
/// use tallyring_records::{Grain, TimeCode};
///
/// let code: TimeCode = "c41l".parse()?;
/// assert_eq!(code.start(), 1_333_314_000); // 2012-04-01T21:00:00Z
/// assert_eq!(code.grain(), Grain::Hour);
/// assert_eq!(TimeCode::containing(1_333_317_539, Grain::Minute).to_string(), "c41l1q");
/// # Ok::<(), tallyring_records::TimeCodeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeCode {
    minutes: u32,
    grain: Grain,
}

impl TimeCode {
    /// The bucket of `grain` that holds `instant` (Unix seconds). An instant outside of
    /// [`TIME_MIN`]..[`TIME_MAX`] moves to the nearest one inside.
    #[inline]
    pub fn containing(instant: i64, grain: Grain) -> Self {
        let since = instant.clamp(TIME_MIN, TIME_MAX - 1) - EPOCH_2000;
        let minutes = u32::try_from(since / 60).expect("BUG: clamped to years 2000 to 2999");
        Self::from_minutes(minutes, grain)
    }

    /// The bucket of `grain` that holds a minute, counted from 2000-01-01T00:00Z. A minute after 2999 moves to the last
    /// one of 2999.
    #[inline]
    pub fn from_minutes(minutes: u32, grain: Grain) -> Self {
        let minutes = minutes.min(MINUTES_MAX);
        // Divisions by constants are cheap.
        let within = match grain {
            Grain::Day => minutes % MINUTES_A_DAY,
            Grain::Hour => minutes % 60,
            Grain::Quarter => minutes % 15,
            Grain::Minute => 0,
        };
        Self {
            minutes: minutes - within,
            grain,
        }
    }

    /// Start of the bucket in minutes since 2000-01-01T00:00Z.
    #[inline]
    pub fn minutes(self) -> u32 {
        self.minutes
    }

    /// First instant of the bucket, Unix seconds.
    #[inline]
    pub fn start(self) -> i64 {
        EPOCH_2000 + i64::from(self.minutes) * 60
    }

    /// The bucket's width.
    #[inline]
    pub fn grain(self) -> Grain {
        self.grain
    }

    /// Appends the text form.
    pub fn write_to(self, out: &mut Vec<u8>) {
        let (year, month, day) = date_of(self.minutes / MINUTES_A_DAY);
        let year = year - 2000;
        if year >= 32 {
            out.push(b'~');
            out.push(digit(year / 32));
        }
        out.push(digit(year % 32));
        out.push(digit(month));
        out.push(digit(day));
        let of_day = self.minutes % MINUTES_A_DAY;
        let (hour, minute) = (of_day / 60, of_day % 60);
        if self.grain != Grain::Day {
            out.push(digit(hour));
        }
        match self.grain {
            Grain::Quarter => out.push(digit(minute / 15)),
            Grain::Minute => out.extend([digit(minute / 32), digit(minute % 32)]),
            Grain::Day | Grain::Hour => {}
        }
    }

    /// Reads the text form. Fails when the text is not the code of a bucket.
    pub fn parse(text: &[u8]) -> Result<Self, TimeCodeError> {
        parse(text).ok_or_else(|| TimeCodeError {
            found: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

/// A month, which finds an hour of its own by the last two digits of the hour's code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Month {
    /// Start of the first day, in minutes since 2000.
    start: u32,
    days: u32,
}

impl Month {
    /// The month of an hour that has this text; `None` for any other bucket. Its digits say the day, which is found in
    /// fewer steps than by [`date_of`].
    pub(crate) fn of(code: TimeCode, text: &[u8]) -> Option<Self> {
        let [.., month, day, _] = *text else {
            return None;
        };
        let of_month = value(day).checked_sub(1)?;
        let start = (code.minutes / MINUTES_A_DAY).checked_sub(of_month)?;
        let year = match value(month) {
            FEBRUARY => date_of(start).0,
            _ => 2000,
        };
        (code.grain == Grain::Hour).then(|| Self {
            start: start * MINUTES_A_DAY,
            days: days_of(year, value(month)),
        })
    }

    /// The hour with these digits of day and hour, as the text form writes them.
    #[inline]
    pub(crate) fn hour(self, day: u8, hour: u8) -> Option<TimeCode> {
        // Day 0 wraps to the largest number, and a byte that is no digit is too large, too.
        let (day, hour) = (value(day).wrapping_sub(1), value(hour));
        (day < self.days && hour < 24).then(|| TimeCode {
            minutes: self.start + day * MINUTES_A_DAY + hour * 60,
            grain: Grain::Hour,
        })
    }
}

/// Text that is no time code.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a time code (such as c3p1 for 2012-03-25 01:00 UTC)", found.escape_debug())]
pub struct TimeCodeError {
    /// The text that was found.
    pub found: String,
}

/// First instant that can be counted: 2000-01-01T00:00:00Z, Unix seconds.
pub const TIME_MIN: i64 = EPOCH_2000;

/// First instant that can no longer be counted: 3000-01-01T00:00:00Z, Unix seconds.
pub const TIME_MAX: i64 = 32_503_680_000;

pub(crate) const EPOCH_2000: i64 = 946_684_800;

/// The last minute before [`TIME_MAX`], counted from 2000.
const MINUTES_MAX: u32 = ((TIME_MAX - EPOCH_2000) / 60 - 1) as u32;

impl fmt::Display for TimeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(8);
        self.write_to(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl FromStr for TimeCode {
    type Err = TimeCodeError;

    fn from_str(text: &str) -> Result<Self, TimeCodeError> {
        Self::parse(text.as_bytes())
    }
}

pub(crate) fn digit(value: u32) -> u8 {
    DIGITS[value as usize]
}

const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// The value of a digit, 0 to 31; 255 for a byte that is no digit.
#[inline]
fn value(digit: u8) -> u32 {
    u32::from(VALUES[usize::from(digit)])
}

const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

fn parse(text: &[u8]) -> Option<TimeCode> {
    let one = |digit| Some(value(digit)).filter(|&value| value < 32);
    let two = |high, low| Some(one(high)? * 32 + one(low)?);
    let (year, rest) = match text {
        [b'~', high, low, rest @ ..] => {
            let year = two(*high, *low)?;
            (year >= 32).then_some((year, rest))?
        }
        [year, rest @ ..] => (one(*year)?, rest),
        [] => return None,
    };
    let [month, day, rest @ ..] = rest else {
        return None;
    };
    let (grain, hour, minute) = match rest {
        [] => (Grain::Day, 0, 0),
        [hour] => (Grain::Hour, one(*hour)?, 0),
        [hour, quarter @ b'0'..=b'3'] => (Grain::Quarter, one(*hour)?, one(*quarter)? * 15),
        [hour, high, low] => (Grain::Minute, one(*hour)?, two(*high, *low)?),
        _ => return None,
    };
    let days = days_to(2000 + year, one(*month)?, one(*day)?)?;
    if hour >= 24 || minute >= 60 {
        return None;
    }
    let minutes = days * MINUTES_A_DAY + hour * 60 + minute;
    Some(TimeCode { minutes, grain })
}

/// Days of the dates that are looked up: those until 2127.
const KNOWN_DAYS: u32 = 46_751;

/// The date `days` days after 2000-01-01: year, month 1–12, day 1–31. A block of columns has a date for each count, and
/// a sixth of the time to decode it went into computing dates, so they are looked up: year, month and day in 7, 4 and 5
/// bits.
pub(crate) fn date_of(days: u32) -> (u32, u32, u32) {
    static KNOWN: LazyLock<Box<[u16]>> = LazyLock::new(|| {
        let packed = |days| {
            let (year, month, day) = computed_date_of(days);
            ((year - 2000) << 9 | month << 5 | day) as u16
        };
        (0..KNOWN_DAYS).map(packed).collect()
    });
    match KNOWN.get(days as usize) {
        Some(&date) => {
            let date = u32::from(date);
            (2000 + (date >> 9), date >> 5 & 15, date & 31)
        }
        None => computed_date_of(days),
    }
}

/// As [`date_of`]. Years begin in March in this computation, so that the leap day comes last (Howard Hinnant,
/// *chrono-Compatible Low-Level Date Algorithms*).
fn computed_date_of(days: u32) -> (u32, u32, u32) {
    let days = days + DAYS_FROM_MARCH_1600;
    let era = days / DAYS_OF_400_YEARS;
    let of_era = days % DAYS_OF_400_YEARS;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = 1600 + era * 400 + year_of_era + u32::from(month <= 2);
    (year, month, day)
}

/// Days from 2000-01-01 to a date; `None` when there is no such date, or it lies outside 2000–2999.
fn days_to(year: u32, month: u32, day: u32) -> Option<u32> {
    if !(2000..3000).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let years = year - 1600 - u32::from(month <= 2);
    let of_era = years % 400;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let of_era = 365 * of_era + of_era / 4 - of_era / 100 + of_year;
    Some(years / 400 * DAYS_OF_400_YEARS + of_era - DAYS_FROM_MARCH_1600)
}

/// Days of a month, 1–12.
fn days_of(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        FEBRUARY => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

const FEBRUARY: u32 = 2;
const MINUTES_A_DAY: u32 = 1_440;
const DAYS_OF_400_YEARS: u32 = 146_097;
/// Days from 1600-03-01 to 2000-01-01.
const DAYS_FROM_MARCH_1600: u32 = 146_037;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, instant: &str, grain: Grain) {
        let instant: jiff::Timestamp = instant.parse().unwrap();
        let code = TimeCode::containing(instant.as_second(), grain);
        assert_eq!(code.to_string(), text);
        assert_eq!(text.parse(), Ok(code));
    }

    #[test]
    fn the_codes_of_the_design_read_as_written() {
        check("c3p1", "2012-03-25T01:00:00Z", Grain::Hour);
        check("c413", "2012-04-01T03:00:00Z", Grain::Hour);
        check("c41l", "2012-04-01T21:59:59Z", Grain::Hour);
        check("c41", "2012-04-01T21:59:59Z", Grain::Day);
        check("c41l2", "2012-04-01T21:30:00Z", Grain::Quarter);
        check("c41l1q", "2012-04-01T21:58:00Z", Grain::Minute);
        check("~1031c", "2032-03-01T12:00:00Z", Grain::Hour);
        check("vcvn", "2031-12-31T23:00:00Z", Grain::Hour);
    }

    #[test]
    fn text_that_is_no_time_code_is_refused() {
        for text in [
            "", "c", "c4", "c00l", "cd1l", "c41o", "c41w", "C41l", "c41l4", "c41l1s", "~0031c",
            "c2uf", "c41l1q0", "~vv11",
        ] {
            assert!(TimeCode::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn every_date_is_that_of_another_implementation() {
        let mut date = jiff::civil::date(2000, 1, 1);
        for days in 0..365_242 {
            let (year, month, day) = date_of(days);
            let found = jiff::civil::Date::new(year as i16, month as i8, day as i8);
            assert_eq!(found.ok(), Some(date), "{days}");
            assert_eq!(days_to(year, month, day), Some(days));
            if date == date.last_of_month() {
                assert_eq!(days_to(year, month, day + 1), None, "{date}");
            }
            date = date.tomorrow().unwrap();
        }
        assert_eq!(date, jiff::civil::date(2999, 12, 31));
    }

    proptest! {
        #[test]
        fn prop_code_roundtrip_and_order(a in TIME_MIN..TIME_MAX, b in TIME_MIN..TIME_MAX, grain in 0..4_usize) {
            let grain = [Grain::Day, Grain::Hour, Grain::Quarter, Grain::Minute][grain];
            let (first, second) = (TimeCode::containing(a, grain), TimeCode::containing(b, grain));
            prop_assert_eq!(first.to_string().parse(), Ok(first));
            prop_assert_eq!(first.to_string().as_bytes().cmp(second.to_string().as_bytes()), first.cmp(&second));
            prop_assert!(first.start() <= a && a < first.start() + grain.seconds());
        }
    }
}
