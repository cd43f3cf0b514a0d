//! `GET /v1/{namespace}/{key}/counts?unit=second`: the last minute of a key, sliding by the second.

use serde::Serialize;
use tallyring_realtime::{RECENT_SECONDS_MAX, State};
use tallyring_records::{FieldError, sum_capped};

use super::answering::overflow;
use super::period::take_zone;
use super::question::{check_key, declared};
use super::request::ReadRequest;
use crate::calendar::rfc3339_utc;
use crate::problem::Result;
use crate::query_string::QueryString;

const KNOWN: &str =
    "unit, units (1 to 60), timezone, hour_offset and after; unit=second ends with now";
const UNITS_DEFAULT: usize = RECENT_SECONDS_MAX;

/// Counts of the last seconds.
#[derive(Serialize)]
pub(super) struct LastSeconds {
    namespace: String,
    key: String,
    unit: &'static str,
    timezone: String,
    from: String,
    to: String,
    aligned: bool,
    state: State,
    settled_until: String,
    final_until: Option<String>,
    /// False in the first minute after a start, or when too many keys are counted at once.
    complete: bool,
    total: u64,
    /// True where the total reached 2^53−1, up to which is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<bool>,
    counts: Vec<SecondCount>,
}

#[derive(Serialize)]
struct SecondCount {
    start: String,
    count: u64,
}

/// Answers when the query asks for seconds; none otherwise. Fails with 400, 404 and 422, naming what is wrong.
pub(super) fn answer<P>(
    request: &ReadRequest<P>,
    (namespace, key): (&str, &str),
    query: &mut QueryString,
) -> Result<Option<LastSeconds>> {
    if !query.has("unit", "second") {
        return Ok(None);
    }
    query.take("unit")?;
    let (store, now) = (request.state.store(), request.now);
    let schema = store.schema();
    let namespace = declared(&schema, namespace)?;
    check_key(key)?;
    if !namespace.minutes {
        let detail = format!(
            "must be `hour` or longer here, as {} has `minutes = false`",
            namespace.name
        );
        return Err(FieldError::refused("unit", "second", detail).into());
    }
    if store.shown().is_some() {
        let detail =
            "must be `minute` or longer on a read-only server, whose files have no seconds";
        return Err(FieldError::refused("unit", "second", detail).into());
    }
    let units = query
        .take_as("units", "a whole number")?
        .unwrap_or(UNITS_DEFAULT);
    if !(1..=RECENT_SECONDS_MAX).contains(&units) {
        let detail = format!(
            "must be 1 to {RECENT_SECONDS_MAX} where `unit` is `second`; older times are counted by the minute"
        );
        return Err(FieldError::refused("units", &units.to_string(), detail).into());
    }
    let zone = take_zone(query)?;
    let other = std::mem::replace(query, QueryString::of([]));
    other.finish(KNOWN)?;
    let stores = request.state.stores();
    let found = stores.last_seconds(&namespace.name, key, units, now);
    let view = stores.view();
    let settled = view.settled_until(&namespace.name, None, now);
    let states = view.states(&[&namespace.name], settled, None);
    let first = now - i64::try_from(units).unwrap_or(0) + 1;
    let total = sum_capped(found.counts.iter().copied());
    let starts = (first..).map(|second| zone.label(second));
    Ok(Some(LastSeconds {
        key: key.to_owned(),
        unit: "second",
        timezone: zone.name().to_owned(),
        from: zone.label(first),
        to: zone.label(now + 1),
        aligned: true,
        state: State::Live,
        settled_until: rfc3339_utc(settled),
        final_until: states.final_until().map(rfc3339_utc),
        complete: found.complete,
        total,
        overflow: overflow(total),
        counts: starts
            .zip(found.counts)
            .map(|(start, count)| SecondCount { start, count })
            .collect(),
        namespace: namespace.name.clone(),
    }))
}
