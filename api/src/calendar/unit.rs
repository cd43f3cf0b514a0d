//! The lengths a range is divided into.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::{Span, ToSpan};
use serde::Serialize;
use tallyring_records::FieldError;

/// The length of a bucket on the local calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A UTC minute.
    Minute,
    /// From one full hour on the local clock to the next.
    Hour,
    /// A local date; 23 or 25 hours long where daylight saving begins or ends.
    Day,
    /// Seven dates from a Sunday.
    Week,
    /// Seven dates from a Monday.
    Mweek,
    /// A calendar month.
    Month,
    /// Three months from January, April, July or October.
    Quarter,
    /// A calendar year.
    Year,
}

/// Names of units, in their order.
const NAMES: [&str; 8] = [
    "minute", "hour", "day", "week", "mweek", "month", "quarter", "year",
];

impl Unit {
    /// Every unit, shortest first.
    pub const ALL: [Unit; 8] = [
        Unit::Minute,
        Unit::Hour,
        Unit::Day,
        Unit::Week,
        Unit::Mweek,
        Unit::Month,
        Unit::Quarter,
        Unit::Year,
    ];

    /// The unit's name in requests and answers.
    pub fn as_str(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The first date of the period that holds `date`: `date` itself for a day and what is shorter.
    pub(super) fn first_date(self, date: Date) -> Date {
        match self {
            Unit::Minute | Unit::Hour | Unit::Day => date,
            Unit::Week => plus(date, (-date.weekday().to_sunday_zero_offset()).days()),
            Unit::Mweek => plus(date, (-date.weekday().to_monday_zero_offset()).days()),
            Unit::Month => date.first_of_month(),
            Unit::Quarter => plus(date.first_of_month(), (-((date.month() - 1) % 3)).months()),
            Unit::Year => date.first_of_year(),
        }
    }

    /// The first date of the period after the one whose first date is `first_date`.
    pub(super) fn next_first_date(self, first_date: Date) -> Date {
        let length = match self {
            Unit::Minute | Unit::Hour | Unit::Day => 1.day(),
            Unit::Week | Unit::Mweek => 7.days(),
            Unit::Month => 1.month(),
            Unit::Quarter => 3.months(),
            Unit::Year => 1.year(),
        };
        plus(first_date, length)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Unit {
    type Err = FieldError;

    /// Reads a unit's name, in lower case. `unit` is malformed if it is none of [`Unit::ALL`]; the text lists them.
    fn from_str(name: &str) -> Result<Self, FieldError> {
        Unit::ALL
            .into_iter()
            .find(|unit| unit.as_str() == name)
            .ok_or_else(|| {
                let names = Unit::ALL.map(Unit::as_str).join(", ");
                FieldError::malformed("unit", name, format!("must be one of {names}"))
            })
    }
}

/// `date` moved by `span`. Ranges end before the year 3001 and begin after year 0, and dates reach from
/// −9999 to 9999, so no period leads out of them.
fn plus(date: Date, span: Span) -> Date {
    date.checked_add(span)
        .expect("BUG: a bucket's date is outside the calendar")
}
