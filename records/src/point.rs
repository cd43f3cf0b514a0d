//! Realtime text form: one data point a record, as a memory delta holds it.
//!
//! `u|jehiah,c41l → 5` is a total, `c.u|jehiah,US,c41l → 4` one value of a subtotal.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::time_code::TimeCode;

/// One counter: a key, perhaps one value of a subtotal, one base bucket, and the count.
///
/// ```
/// use tallyring_records::Point;
///
/// let point: Point = "c.u|jehiah,US,c41l → 4".parse()?;
/// assert_eq!(point.to_string(), "c.u|jehiah,US,c41l → 4");
/// # Ok::<(), tallyring_records::PointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// `u|jehiah`, or `c.u|jehiah` for a subtotal.
    pub key: String,
    /// The value of the subtotal; none for a total.
    pub value: Option<String>,
    /// The base bucket.
    pub code: TimeCode,
    /// How many.
    pub count: u64,
}

/// Text that is no data point.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a data point (such as `u|jehiah,c41l → 5`)", found.escape_debug())]
pub struct PointError {
    /// What was found.
    pub found: String,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => write!(f, "{},{} → {}", self.key, self.code, self.count),
            Some(value) => write!(f, "{},{},{} → {}", self.key, value, self.code, self.count),
        }
    }
}

impl FromStr for Point {
    type Err = PointError;

    fn from_str(text: &str) -> Result<Self, PointError> {
        parse(text).ok_or_else(|| PointError {
            found: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<Point> {
    let (place, count) = text.split_once(" → ")?;
    let (key, rest) = place.split_once(',')?;
    let (value, code) = match rest.split_once(',') {
        Some((value, code)) => (Some(value.to_owned()), code),
        None => (None, rest),
    };
    let is_subtotal = key.split_once('|')?.0.contains('.');
    (is_subtotal == value.is_some()).then_some(())?;
    Some(Point {
        key: key.to_owned(),
        value,
        code: code.parse().ok()?,
        count: count.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_of_the_design_read_as_written() {
        for text in ["u|jehiah,c41l → 5", "c.u|jehiah,US,c41l → 4"] {
            assert_eq!(text.parse::<Point>().unwrap().to_string(), text);
        }
        for text in [
            "u|jehiah,c41l",
            "u|jehiah,US,c41l → 4",
            "c.u|jehiah,c41l → 4",
            "jehiah,c41l → 4",
            "u|jehiah,c41l → -1",
        ] {
            assert!(text.parse::<Point>().is_err(), "{text}");
        }
    }
}
