//! The range that a read asks for, in buckets of a unit and a zone.

use std::ops::RangeInclusive;

use jiff::civil::Date;
use tallyring_records::{FieldError, TIME_MAX, TIME_MIN};

use super::basis::Basis;
use super::before::Comparison;
use crate::calendar::{Buckets, Request, Selection, Unit, Zone};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::time;

/// Years of the dates that a range may have.
const DATE_YEARS: RangeInclusive<i16> = 2000..=2999;

const NO_DATE: &str = "must be a date of the calendar, of the years 2000 to 2999";

const ZONE_NEEDED: &str = "is a date, which needs a zone: give `timezone` or `hour_offset` beside it, or a time such \
                           as 2012-03-16T18:40:47Z";

const MOMENT_EXPECTED: &str = "must be a date such as 2012-03-16 beside a zone, RFC 3339 with an offset, such as \
                               2012-03-16T18:40:47Z, or Unix seconds";

/// The range that a read asks for, and of which view and numbers.
#[derive(Debug, Clone)]
pub(crate) struct Period {
    pub selection: Selection,
    /// The kept generation to read; none for what is counted now.
    pub as_of: Option<u64>,
    /// The numbers to read.
    pub basis: Basis,
    /// The clock's time, Unix seconds.
    pub now: i64,
}

impl Period {
    /// Takes the range, unit, zone and generation of a read out of `query`. Fails with 400 and 422 that name the
    /// parameter.
    pub(crate) fn parse(query: &mut QueryString, now: i64) -> Result<Self> {
        let as_of = take_generation(query)?;
        let basis = Basis::take(query)?;
        check_basis(basis, as_of)?;
        let unit = take_unit(query)?;
        let zone = take_given_zone(query)?;
        let units = query.take_as("units", "a whole number, or -1 for all")?;
        let from = take_moment(query, "from", zone.as_ref())?;
        let to = take_moment(query, "to", zone.as_ref())?;
        let request = Request {
            unit,
            zone: zone.unwrap_or_else(Zone::utc),
            units,
            from: from.map(|moment| *moment.start()),
            to: to.map(|moment| *moment.end()),
            now,
        };
        Ok(Self {
            selection: request.resolve()?,
            as_of,
            basis,
            now,
        })
    }

    /// The day that holds `now` in a zone. Fails with 422 where the calendar has no such day.
    pub(crate) fn today(zone: Zone, now: i64) -> Result<Self> {
        let request = Request {
            unit: Unit::Day,
            zone,
            units: Some(1),
            from: None,
            to: None,
            now,
        };
        Ok(Self {
            selection: request.resolve()?,
            as_of: None,
            basis: Basis::Counted,
            now,
        })
    }

    /// Its buckets. Fails with 422 for all of time, which has no beginning.
    pub(super) fn bounded(&self) -> Result<&Buckets> {
        match &self.selection {
            Selection::Bounded(buckets) => Ok(buckets),
            Selection::All(_) => {
                let detail = "must have a beginning here: give `units` from 1 on, or `from`";
                Err(FieldError::refused("units", "-1", detail).into())
            }
        }
    }

    /// The earlier period with which `query` compares this one, where it has `compare`. Fails with 400 for a word that
    /// is no comparison; 422 where nothing is before, or too long ago.
    pub(super) fn compared(&self, query: &mut QueryString) -> Result<Option<(Comparison, Self)>> {
        let Some(comparison) = Comparison::take(query)? else {
            return Ok(None);
        };
        let Selection::Bounded(buckets) = &self.selection else {
            let detail = "needs a period with a beginning: give `units` or `from`";
            return Err(FieldError::refused("compare", comparison.as_str(), detail).into());
        };
        let request = Request {
            unit: buckets.unit(),
            zone: buckets.zone().clone(),
            units: Some(i64::try_from(buckets.count()).unwrap_or(i64::MAX)),
            from: None,
            to: Some(comparison.last_instant(buckets)?),
            now: self.now,
        };
        let too_early = |_| {
            let detail = "reaches back before 2000-01-01T00:00:00Z, from when on counts are kept";
            FieldError::refused("compare", comparison.as_str(), detail)
        };
        let period = Self {
            selection: request.resolve().map_err(too_early)?,
            ..self.clone()
        };
        Ok(Some((comparison, period)))
    }
}

/// Checks that a kept generation is not asked for its final numbers. Fails with 400.
pub(super) fn check_basis(basis: Basis, as_of: Option<u64>) -> Result<()> {
    match as_of.filter(|_| basis != Basis::Counted) {
        None => Ok(()),
        Some(generation) => {
            let detail = "must be left out beside `basis=final` or `final`: final books are of no generation";
            Err(Problem::malformed("as_of", &generation.to_string(), detail))
        }
    }
}

/// Takes the kept generation to read, where one is named. Fails with 400 where `as_of` is no number.
pub(crate) fn take_generation(query: &mut QueryString) -> Result<Option<u64>> {
    query.take_as("as_of", "the number of a kept generation")
}

/// Takes the zone; UTC where none is named. Fails with 400 and 422 that name `timezone` or `hour_offset`.
pub(crate) fn take_zone(query: &mut QueryString) -> Result<Zone> {
    Ok(take_given_zone(query)?.unwrap_or_else(Zone::utc))
}

/// Takes the zone, where one is named.
fn take_given_zone(query: &mut QueryString) -> Result<Option<Zone>> {
    let hour_offset = query.take_as("hour_offset", "hours from -12 to 14 in steps of 0.25")?;
    let timezone = query.take("timezone")?.filter(|zone| !zone.is_empty());
    match timezone.is_none() && hour_offset.is_none() {
        true => Ok(None),
        false => Ok(Some(Zone::from_request(timezone.as_deref(), hour_offset)?)),
    }
}

/// First instant, and first instant behind, of what a selection may cover (Unix seconds).
pub(crate) fn span(selection: &Selection) -> (i64, i64) {
    match selection {
        Selection::Bounded(buckets) => bounds(buckets),
        Selection::All(all) => {
            let end = all.end().unwrap_or(TIME_MAX);
            (TIME_MIN, end.clamp(TIME_MIN, TIME_MAX))
        }
    }
}

fn bounds(buckets: &Buckets) -> (i64, i64) {
    let from = buckets.start().max(TIME_MIN);
    (from, buckets.end().max(from))
}

fn take_unit(query: &mut QueryString) -> Result<Unit> {
    match query.take("unit")?.as_deref() {
        None | Some("") => Ok(Unit::Day),
        Some(unit @ "second") => {
            let names = Unit::ALL.map(Unit::as_str).join(", ");
            let detail = format!(
                "must be one of {names} here; the last minute by the second is told by \
                 /v1/{{namespace}}/{{key}}/counts alone, as JSON"
            );
            Err(Problem::malformed("unit", unit, detail))
        }
        Some(unit) => Ok(unit.parse()?),
    }
}

/// Takes an instant, if there is one. Fails with 400 where it is no time.
pub(super) fn take_instant(query: &mut QueryString, name: &str) -> Result<Option<i64>> {
    match query.take(name)?.filter(|value| !value.is_empty()) {
        Some(value) => time::parse_in_query(&value)
            .map(Some)
            .ok_or_else(|| Problem::malformed(name, &value, time::EXPECTED)),
        None => Ok(None),
    }
}

/// Takes the first and the last instant of a date in the zone that the request names, or an instant as both, if there
/// is one. Fails with 400 where it is no time, and where a date stands without a zone; 422 where the clocks of the
/// zone skipped it.
fn take_moment(
    query: &mut QueryString,
    name: &str,
    zone: Option<&Zone>,
) -> Result<Option<RangeInclusive<i64>>> {
    let Some(value) = query.take(name)?.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let malformed = |detail| Problem::malformed(name, &value, detail);
    if !is_date(&value) {
        let instant = time::parse_in_query(&value).ok_or_else(|| malformed(MOMENT_EXPECTED))?;
        return Ok(Some(instant..=instant));
    }
    let zone = zone.ok_or_else(|| malformed(ZONE_NEEDED))?;
    let date = value.parse::<Date>().ok();
    let date = date.filter(|date| DATE_YEARS.contains(&date.year()));
    let day = zone.day(date.ok_or_else(|| malformed(NO_DATE))?);
    let skipped = || format!("is a date that the clocks of {} skipped", zone.name());
    day.map(Some)
        .ok_or_else(|| FieldError::refused(name, &value, skipped()).into())
}

/// True for four, two and two digits with hyphens between.
fn is_date(text: &str) -> bool {
    let is_like = |(byte, like): (u8, u8)| match like {
        b'-' => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().zip(*b"dddd-dd-dd").all(is_like)
}
