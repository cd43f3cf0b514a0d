//! The ranges of time of a question about actions: rolling ones, and calendar units that are not over.

use std::sync::Arc;

use tallyring_records::{FieldError, length_seconds};

use crate::calendar::{Bucket, Unit, Zone};

/// A range that ends with the moment of the question.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    /// As the client wrote it.
    pub name: Arc<str>,
    span: Span,
}

#[derive(Debug, Clone)]
enum Span {
    /// So many seconds before the moment.
    Rolling(i64),
    /// The calendar unit that holds the moment.
    Calendar(Unit, Zone),
}

const EXPECTED: &str = "must be a length such as `30m`, `24h` or `7d`, or a calendar unit such as `calendar:day@Europe/Berlin`";
const ZONE: &str =
    "must have the IANA name of a time zone behind the @, as `calendar:day@America/New_York` has";
const CALENDAR: &str = "calendar:";
const DAY: i64 = 86_400;
const UNITS: [(char, i64); 3] = [('m', 60), ('h', 3_600), ('d', DAY)];

impl Range {
    /// Reads a range.
    ///
    /// # Errors
    /// When the text is no range, its zone is unknown, or it reaches further back than `keep_days` days.
    pub(crate) fn parse(field: &str, text: &str, keep_days: u32) -> Result<Self, FieldError> {
        let span = match text.strip_prefix(CALENDAR) {
            Some(calendar) => calendar_unit(field, text, calendar)?,
            None => Span::Rolling(
                length_seconds(text, &UNITS)
                    .ok_or_else(|| FieldError::malformed(field, text, EXPECTED))?,
            ),
        };
        let days = match &span {
            Span::Rolling(seconds) => seconds.div_euclid(DAY) + i64::from(seconds % DAY > 0),
            Span::Calendar(Unit::Month, _) => 31,
            Span::Calendar(Unit::Week | Unit::Mweek, _) => 7,
            Span::Calendar(..) => 1,
        };
        if days > i64::from(keep_days) {
            let detail =
                format!("must reach back at most {keep_days} days, for which actions are kept");
            return Err(FieldError::refused(field, text, detail));
        }
        Ok(Self {
            name: text.into(),
            span,
        })
    }

    /// The first instant of the range that ends with `at` (both Unix seconds): what happened at `at` counts, and what
    /// happened a whole length before does not.
    pub(crate) fn start(&self, at: i64) -> i64 {
        match &self.span {
            Span::Rolling(seconds) => at - seconds + 1,
            Span::Calendar(unit, zone) => Bucket::holding(*unit, zone, at).start,
        }
    }

    /// When something that happened at `then` is no longer in the range of the present moment, Unix seconds.
    pub(crate) fn left_at(&self, then: i64) -> i64 {
        match &self.span {
            Span::Rolling(seconds) => then + seconds,
            Span::Calendar(unit, zone) => Bucket::holding(*unit, zone, then).end,
        }
    }

    /// Returns the number of the day that holds an instant, in the zone of the range.
    pub(crate) fn day_of(&self, instant: i64) -> i64 {
        let offset = match &self.span {
            Span::Rolling(_) => 0,
            Span::Calendar(_, zone) => zone.offset_secs(instant),
        };
        (instant + offset).div_euclid(DAY)
    }
}

/// `day`, `day@Europe/Berlin`
fn calendar_unit(field: &str, text: &str, calendar: &str) -> Result<Span, FieldError> {
    let (unit, zone) = calendar.split_once('@').unwrap_or((calendar, "UTC"));
    let unit = match unit {
        "hour" => Unit::Hour,
        "day" => Unit::Day,
        "week" => Unit::Week,
        "mweek" => Unit::Mweek,
        "month" => Unit::Month,
        _ => {
            let detail = "must be the calendar's hour, day, week, mweek (from Monday) or month";
            return Err(FieldError::malformed(field, text, detail));
        }
    };
    let zone = Zone::named(zone).map_err(|_| FieldError::malformed(field, text, ZONE))?;
    Ok(Span::Calendar(unit, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Range, FieldError> {
        Range::parse("ranges", text, 32)
    }

    #[test]
    fn ranges_begin_where_their_length_or_their_calendar_says() {
        let at = 1_331_923_247; // 2012-03-16T18:40:47Z
        for (text, start, left) in [
            ("30m", at - 1_799, at + 1_800),
            ("24h", at - 86_399, at + 86_400),
            ("7d", at - 7 * 86_400 + 1, at + 7 * 86_400),
            ("calendar:day", 1_331_856_000, 1_331_942_400),
            (
                "calendar:day@America/New_York",
                1_331_870_400,
                1_331_956_800,
            ),
            ("calendar:month", 1_330_560_000, 1_333_238_400),
        ] {
            let range = parse(text).expect(text);
            assert_eq!(
                (range.start(at), range.left_at(at)),
                (start, left),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "d",
            "0d",
            "-1d",
            "1w",
            "33d",
            "999999999999999999h",
            "١d",
            "calendar:year",
            "calendar:day@Nowhere",
            "day",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("32d").is_ok() && parse("768h").is_ok() && parse("769h").is_err());
    }
}
