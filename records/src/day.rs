//! A UTC calendar day.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

use crate::time_code::{EPOCH_2000, Grain, TimeCode, date_of};

/// A UTC day, counted from 2000-01-01 (day 0). Written `2012-03-16`.
///
/// ```
/// use tallyring_records::Day;
///
/// let day = Day::of(1_331_923_247);
/// assert_eq!(day.to_string(), "2012-03-16");
/// assert_eq!(day.next().start() - day.start(), 86_400);
/// assert_eq!(day.code().to_string(), "c3g");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

impl Day {
    /// The day that holds `instant` (Unix seconds); instants before 2000 give day 0.
    pub fn of(instant: i64) -> Self {
        let days = instant.saturating_sub(EPOCH_2000).div_euclid(SECONDS);
        Self(u32::try_from(days.max(0)).unwrap_or(u32::MAX))
    }

    /// The day that lies `number` days after 2000-01-01.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Days since 2000-01-01.
    pub fn number(self) -> u32 {
        self.0
    }

    /// First instant of the day, Unix seconds.
    pub fn start(self) -> i64 {
        EPOCH_2000 + i64::from(self.0) * SECONDS
    }

    /// The day after.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The day before; day 0 stays itself.
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The days from this one to `last`, both included; none where `last` comes before.
    pub fn through(self, last: Self) -> impl Iterator<Item = Self> {
        (self.0..=last.0).map(Self)
    }

    /// Calendar year and month (1–12).
    pub fn year_month(self) -> (i16, i8) {
        let (year, month, _) = date_of(self.0.min(LAST));
        (year as i16, month as i8)
    }

    /// The time code of the day.
    pub fn code(self) -> TimeCode {
        TimeCode::containing(self.start(), Grain::Day)
    }

    fn date(self) -> Date {
        let timestamp = jiff::Timestamp::from_second(self.start()).unwrap_or(jiff::Timestamp::MAX);
        jiff::tz::Offset::UTC.to_datetime(timestamp).date()
    }
}

const SECONDS: i64 = 86_400;
/// Number of 9999-12-31, the last date that jiff has.
const LAST: u32 = 2_921_939;

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.date())
    }
}

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is not a day; write a day as 2012-03-16, from 2000-01-01 on",
                text.escape_debug()
            )
        };
        let date: Date = text.parse().map_err(|_| wrong())?;
        let instant = jiff::tz::Offset::UTC
            .to_timestamp(date.to_datetime(jiff::civil::Time::midnight()))
            .map_err(|_| wrong())?
            .as_second();
        if instant < EPOCH_2000 {
            return Err(wrong());
        }
        Ok(Self::of(instant))
    }
}

crate::serde_as_text!(Day);
