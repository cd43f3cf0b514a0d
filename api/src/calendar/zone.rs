//! Timezones: local readings of an instant, and the instants at which they change.

use std::ops::RangeInclusive;
use std::sync::Arc;

use jiff::civil::Date;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Span, Timestamp};
use tallyring_records::FieldError;

use super::rules::ZoneRules;

/// `hour_offset` at least and at most, in hours.
const HOUR_OFFSET_RANGE: RangeInclusive<f64> = -12.0..=14.0;

/// A timezone and the name it has in answers.
#[derive(Clone, Debug)]
pub struct Zone {
    timezone: TimeZone,
    name: Arc<str>,
}

impl Zone {
    /// The default zone.
    pub fn utc() -> Self {
        Self {
            timezone: TimeZone::UTC,
            name: "UTC".into(),
        }
    }

    /// The zone that a request's two parameters ask for: either of them, or UTC when there is none. `timezone` is
    /// malformed if both are given.
    pub fn from_request(
        timezone: Option<&str>,
        hour_offset: Option<f64>,
    ) -> Result<Self, FieldError> {
        match (timezone, hour_offset) {
            (None, None) => Ok(Self::utc()),
            (Some(name), None) => Self::named(name),
            (None, Some(hours)) => Self::from_hour_offset(hours),
            (Some(name), Some(_)) => Err(FieldError::malformed(
                "timezone",
                name,
                "excludes `hour_offset`; give one of them",
            )),
        }
    }

    /// The IANA zone `name`, in any case (`america/new_york` is answered as `America/New_York`), by the
    /// rules that [`ZoneRules`] chose at the start. `timezone` is malformed if the database has no such name.
    pub fn named(name: &str) -> Result<Self, FieldError> {
        ZoneRules::chosen()
            .zone(name)
            .map(|timezone| {
                let name = timezone.iana_name().unwrap_or(name).into();
                Self { timezone, name }
            })
            .ok_or_else(|| {
                let detail = if name.contains(' ') {
                    "must be a time zone; a + in a query stands for a space: write it as %2B (Etc/GMT%2B5)"
                } else {
                    "must be an IANA name such as America/New_York; or give an `hour_offset` such as 5.5"
                };
                FieldError::malformed("timezone", name, detail)
            })
    }

    /// A zone `hours` east of UTC all year, from −12 to 14 in steps of a quarter; its name is the offset,
    /// such as `+05:30`. `hour_offset` is refused outside these bounds or between the steps.
    pub fn from_hour_offset(hours: f64) -> Result<Self, FieldError> {
        if HOUR_OFFSET_RANGE.contains(&hours) {
            return Self::fixed(hours);
        }
        let detail = "must lie from -12 to 14, in steps of 0.25";
        Err(FieldError::refused(
            "hour_offset",
            &hours.to_string(),
            detail,
        ))
    }

    /// A zone from −14 to 14 hours: old clients may send offsets beyond every zone in use. `hour_offset` is refused
    /// outside these bounds or between the steps.
    pub fn fixed(hours: f64) -> Result<Self, FieldError> {
        let quarters = hours * 4.0;
        // NaN is in no range, so it is refused here too.
        if !(-14.0..=14.0).contains(&hours) || quarters.fract() != 0.0 {
            let detail = "must be a multiple of 0.25 hours";
            return Err(FieldError::refused(
                "hour_offset",
                &hours.to_string(),
                detail,
            ));
        }
        // Whole and within ±56, so the conversion is exact.
        let seconds = quarters as i32 * 900;
        let offset = Offset::from_seconds(seconds).expect("BUG: 14 hours is an offset");
        let sign = if seconds < 0 { '-' } else { '+' };
        let minutes = seconds.abs() / 60;
        let name = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        Ok(Self {
            timezone: TimeZone::fixed(offset),
            name: name.into(),
        })
    }

    /// The name for the answer's `timezone`: an IANA name, or an offset such as `+05:30`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, for callers that keep it.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// `instant` (Unix seconds) in RFC 3339 with the local offset: `2012-03-10T00:00:00-05:00`, and
    /// `+00:00` for UTC. Offsets before 1972 may have seconds; such an offset is rounded to a minute. Panics when
    /// `instant` is outside the years −9999 to 9999.
    pub fn label(&self, instant: i64) -> String {
        let timestamp = timestamp(instant);
        let offset = self.timezone.to_offset(timestamp);
        DateTimePrinter::new().timestamp_with_offset_to_string(&timestamp, offset)
    }

    /// Seconds that the local clock is ahead of UTC at `instant` (Unix seconds). Panics when `instant` is outside the
    /// years −9999 to 9999.
    pub fn offset_secs(&self, instant: i64) -> i64 {
        i64::from(self.timezone.to_offset(timestamp(instant)).seconds())
    }

    /// The first and the last instant of `date`, of the years 1 to 9998. None where the clocks of the zone skipped it.
    pub(crate) fn day(&self, date: Date) -> Option<RangeInclusive<i64>> {
        let start = self.first_instant_of(date);
        let behind = self.first_instant_of(date.saturating_add(Span::new().days(1)));
        (start < behind).then_some(start..=behind - 1)
    }

    /// The instant at which the local clock read what it reads at `instant`, so much earlier; where it skipped that, a
    /// moment later. Panics where one of them is outside the years −9999 to 9999.
    pub(crate) fn earlier(&self, instant: i64, span: Span) -> i64 {
        let local = self.timezone.to_datetime(timestamp(instant)) - span;
        let earlier = self.timezone.to_ambiguous_timestamp(local).compatible();
        earlier.expect("BUG: date out of range").as_second()
    }

    /// The instant at which the local clock read what it reads at `instant`, so many weeks earlier; where it skipped
    /// that, a moment later. Panics where one of them is outside the years −9999 to 9999.
    pub fn weeks_earlier(&self, instant: i64, weeks: i64) -> i64 {
        self.earlier(instant, Span::new().weeks(weeks))
    }

    /// The first instant of the date so many days after the one that is read at `instant`, or of the next date that
    /// the zone has.
    pub(crate) fn days_after(&self, instant: i64, days: i64) -> i64 {
        let date = self.date_at(instant);
        self.first_instant_of(date.saturating_add(Span::new().days(days)))
    }

    /// The date on the local calendar at `instant`.
    pub(super) fn date_at(&self, instant: i64) -> Date {
        self.timezone.to_datetime(timestamp(instant)).date()
    }

    /// The first instant that carries `date` or a later one.
    pub(super) fn first_instant_of(&self, date: Date) -> i64 {
        let midnight = date.at(0, 0, 0, 0);
        let local = Offset::UTC
            .to_timestamp(midnight)
            .expect("BUG: date out of range")
            .as_second();
        match self.timezone.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => local - i64::from(offset.seconds()),
            // Midnight comes twice. The first is read with the offset from before the clocks go back.
            AmbiguousOffset::Fold { before, .. } => local - i64::from(before.seconds()),
            // Clocks jump over midnight, so the date (or, if the jump skips it, the next one) begins at
            // the jump. Midnight read with the offset from after the jump is an instant before it.
            AmbiguousOffset::Gap { after, .. } => self
                .timezone
                .following(timestamp(local - i64::from(after.seconds())))
                .find(|transition| transition.offset() == after)
                .expect("BUG: a gap in local time without a transition")
                .timestamp()
                .as_second(),
        }
    }

    /// The longest stretch of time around `instant` that is known to have one offset.
    pub(super) fn stretch_at(&self, instant: i64) -> Stretch {
        // The database reads transitions strictly before an instant; one at `instant` counts too.
        let from = self.timezone.preceding(timestamp(instant + 1)).next();
        let to = self.timezone.following(timestamp(instant)).next();
        Stretch {
            from: from.map_or(i64::MIN, |transition| transition.timestamp().as_second()),
            to: to.map_or(i64::MAX, |transition| transition.timestamp().as_second()),
            offset_secs: self.offset_secs(instant),
        }
    }
}

/// A stretch of time with one UTC offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Its first instant.
    pub(super) from: i64,
    /// The first instant after it.
    pub(super) to: i64,
    /// How far local time is ahead of UTC.
    pub(super) offset_secs: i64,
}

/// `instant` (Unix seconds) as `2012-03-16T18:30:00Z`; the bare number where the year is not one of
/// 0000 to 9999, so that any value of a request can be named in an error.
pub fn rfc3339_utc(instant: i64) -> String {
    match Timestamp::from_second(instant) {
        Ok(timestamp) if Offset::UTC.to_datetime(timestamp).year() >= 0 => timestamp.to_string(),
        _ => instant.to_string(),
    }
}

/// Callers pass instants of checked ranges, or of stored records (years 2000 to 3023).
fn timestamp(instant: i64) -> Timestamp {
    Timestamp::from_second(instant)
        .unwrap_or_else(|_| panic!("BUG: instant {instant} is outside the years -9999 to 9999"))
}
