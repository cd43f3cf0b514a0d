//! The range that a read asks for, in buckets of a unit and a zone.

use tallyring_records::{FieldError, TIME_MAX, TIME_MIN};

use super::basis::Basis;
use crate::calendar::{Buckets, Request, Selection, Unit, Zone};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::time;

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
        let zone = take_zone(query);
        let request = Request {
            unit: take_unit(query)?,
            zone: zone?,
            units: query.take_as("units", "a whole number, or -1 for all")?,
            from: take_instant(query, "from")?,
            to: take_instant(query, "to")?,
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

    /// As many buckets before this period, where `query` has `compare=before`. Fails with 400 for another word; 422
    /// where nothing is before, or too long ago.
    pub(crate) fn before(&self, query: &mut QueryString) -> Result<Option<Self>> {
        match query.take("compare")?.as_deref() {
            None | Some("") => return Ok(None),
            Some("before") => {}
            Some(other) => {
                let detail = "must be `before`, which compares with as many buckets before these";
                return Err(Problem::malformed("compare", other, detail));
            }
        }
        let Selection::Bounded(buckets) = &self.selection else {
            let detail = "needs a period with a beginning: give `units` or `from`";
            return Err(FieldError::refused("compare", "before", detail).into());
        };
        let request = Request {
            unit: buckets.unit(),
            zone: buckets.zone().clone(),
            units: Some(i64::try_from(buckets.count()).unwrap_or(i64::MAX)),
            from: None,
            to: Some(buckets.start() - 1),
            now: self.now,
        };
        Ok(Some(Self {
            selection: request.resolve()?,
            ..self.clone()
        }))
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
    let hour_offset = query.take_as("hour_offset", "hours from -12 to 14 in steps of 0.25")?;
    let timezone = query.take("timezone")?.filter(|zone| !zone.is_empty());
    Ok(Zone::from_request(timezone.as_deref(), hour_offset)?)
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
