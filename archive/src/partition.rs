//! Partitions: the span of time of one archive file.

use std::fmt;
use std::str::FromStr;

use tallyring_records::{Day, TimeCode, serde_as_text};

/// A UTC month (`2012-03`), or a whole closed year (`2012`).
///
/// ```
/// use tallyring_archive::Partition;
///
/// let month: Partition = "2012-03".parse()?;
/// let year: Partition = "2012".parse()?;
/// assert!(year.holds(month) && year.is_year());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    year: i16,
    month: Option<i8>,
}

impl Partition {
    /// The month that holds a base bucket.
    pub fn month_of(code: TimeCode) -> Self {
        let (year, month) = Day::of(code.start()).year_month();
        Self {
            year,
            month: Some(month),
        }
    }

    /// The partition that keeps a base bucket: its year before `first_open_year`, and its month from then on.
    pub fn keeping(code: TimeCode, first_open_year: i16) -> Self {
        Self::month_of(code).folded(first_open_year)
    }

    /// The year of a month before `first_open_year`; any other partition as it is.
    pub fn folded(self, first_open_year: i16) -> Self {
        if self.year < first_open_year {
            Self {
                month: None,
                ..self
            }
        } else {
            self
        }
    }

    /// True when the other is this one or a month of it.
    pub fn holds(self, other: Self) -> bool {
        self == other || (self.is_year() && self.year == other.year)
    }

    /// The year of the partition.
    pub fn year(self) -> i16 {
        self.year
    }

    /// True for a whole year.
    pub fn is_year(self) -> bool {
        self.month.is_none()
    }

    /// First instant, Unix seconds.
    pub fn start(self) -> i64 {
        start_of(self.year, self.month.unwrap_or(1))
    }

    /// First instant after the partition, Unix seconds.
    pub fn end(self) -> i64 {
        match self.month {
            Some(month) if month < 12 => start_of(self.year, month + 1),
            _ => start_of(self.year.saturating_add(1), 1),
        }
    }
}

fn start_of(year: i16, month: i8) -> i64 {
    let date = jiff::civil::date(year, month, 1).at(0, 0, 0, 0);
    jiff::tz::Offset::UTC
        .to_timestamp(date)
        .map_or(i64::MAX, |instant| instant.as_second())
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.month {
            Some(month) => write!(f, "{:04}-{month:02}", self.year),
            None => write!(f, "{:04}", self.year),
        }
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is not a partition; such as 2012-03 or 2012",
                text.escape_debug()
            )
        };
        let (year, month) = match text.split_once('-') {
            Some((year, month)) => (year, Some(month.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let year = year.parse().map_err(|_| wrong())?;
        if !(2000..=3000).contains(&year) || month.is_some_and(|month| !(1..=12).contains(&month)) {
            return Err(wrong());
        }
        Ok(Self { year, month })
    }
}

serde_as_text!(Partition);
