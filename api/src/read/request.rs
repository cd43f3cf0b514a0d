//! What a read asks for, and the view it is answered from.

use std::sync::Arc;

use serde::Serialize;
use tallyring_realtime::{Read, Series, Store};
use tallyring_records::{KEY_BYTES_MAX, Namespace, TIME_MAX, TIME_MIN};

use crate::calendar::{Buckets, Request, Selection, Unit, Zone, rfc3339_utc};
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::time;

/// How long after its time an increment is still expected, seconds.
const LATENESS_SECONDS: i64 = 300;

/// A read, understood.
pub struct ReadRequest {
    pub namespace: Namespace,
    key: String,
    subtotal: Option<String>,
    selection: Selection,
    as_of: Option<u64>,
    now: i64,
}

/// Fields that every read answers.
#[derive(Debug, Serialize)]
pub struct Head {
    namespace: String,
    key: String,
    unit: String,
    timezone: String,
    from: String,
    to: String,
    aligned: bool,
    settled_until: String,
    final_until: Option<String>,
    generation: u64,
}

/// One series from one view, with the buckets to roll it into.
pub struct Answered {
    pub head: Head,
    pub buckets: Buckets,
    pub series: Series,
}

/// Parameters of every read, for messages.
pub const KNOWN: &str = "unit, units, from, to, timezone, hour_offset and as_of";

impl ReadRequest {
    /// Understands path and range parameters, taking those out of `query`.
    ///
    /// # Errors
    /// 404 for a namespace or subtotal that is not declared; 400 and 422 for the rest.
    pub fn parse(
        state: &ApiState,
        namespace: &str,
        key: String,
        subtotal: Option<String>,
        query: &mut QueryString,
    ) -> Result<Self, Problem> {
        let schema = state.store().schema();
        let declared = schema.namespace(namespace).cloned().ok_or_else(|| {
            Problem::unknown(
                "namespace",
                namespace,
                format!("is not declared; declared are {}", schema.names()),
            )
        })?;
        if let Some(subtotal) = subtotal
            .as_ref()
            .filter(|subtotal| !declared.subtotals.contains(subtotal))
        {
            let known = declared.subtotals.join(", ");
            let detail = format!("is not a subtotal of {namespace}; it has {known}");
            return Err(Problem::unknown("subtotal", subtotal, detail));
        }
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Problem::malformed(
                "key",
                &key,
                format!("must be 1 to {KEY_BYTES_MAX} bytes"),
            ));
        }
        let now = state.now();
        let hour_offset = query.take_as("hour_offset", "hours from -12 to 14 in steps of 0.25")?;
        let timezone = query.take("timezone")?.filter(|zone| !zone.is_empty());
        let request = Request {
            unit: query
                .take("unit")?
                .filter(|unit| !unit.is_empty())
                .map_or(Ok(Unit::Day), |unit| unit.parse())?,
            zone: Zone::from_request(timezone.as_deref(), hour_offset)?,
            units: query.take_as("units", "a whole number, or -1 for all")?,
            from: instant(query, "from")?,
            to: instant(query, "to")?,
            now,
        };
        let as_of = query.take_as("as_of", "the number of a kept generation")?;
        Ok(Self {
            namespace: declared,
            key,
            subtotal,
            selection: request.resolve()?,
            as_of,
            now,
        })
    }

    /// Reads the series from one view. Blocks on files.
    ///
    /// # Errors
    /// A generation that is not kept, more buckets than are answered, or damage.
    pub fn answer(self, store: &Store) -> Result<Answered, Problem> {
        let (from, to) = match &self.selection {
            Selection::Bounded(buckets) => (buckets.start().max(TIME_MIN), buckets.end()),
            Selection::All(_) => (TIME_MIN, TIME_MAX),
        };
        let read = Read {
            namespace: self.namespace.name.clone(),
            key: self.key.clone(),
            subtotal: self.subtotal,
            from,
            to: to.max(from),
        };
        let mut view = store.read(&[read], self.as_of)?;
        let series = view.series.pop().expect("BUG: one read gives one series");
        let buckets = match self.selection {
            Selection::Bounded(buckets) => buckets,
            Selection::All(all) => {
                let first = series
                    .totals
                    .first_key_value()
                    .map(|(code, _)| code.start());
                let last = series.totals.last_key_value().map(|(code, _)| code.start());
                all.covering(first.zip(last))?
            }
        };
        let head = Head {
            namespace: self.namespace.name,
            key: self.key,
            unit: buckets.unit().to_string(),
            timezone: buckets.zone().name().to_owned(),
            from: buckets.zone().label(buckets.start()),
            to: buckets.zone().label(buckets.end()),
            aligned: buckets.aligned(self.namespace.grain.seconds()),
            settled_until: rfc3339_utc(self.now - LATENESS_SECONDS),
            final_until: None,
            generation: view.generation,
        };
        Ok(Answered {
            head,
            buckets,
            series,
        })
    }
}

/// Runs blocking work (files may be cold) off the threads that serve connections.
///
/// # Errors
/// What the work answers.
pub async fn blocking<T: Send + 'static>(
    state: &ApiState,
    work: impl FnOnce(&Store) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let store = Arc::clone(state.store());
    match tokio::task::spawn_blocking(move || work(&store)).await {
        Ok(answer) => answer,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn instant(query: &mut QueryString, name: &str) -> Result<Option<i64>, Problem> {
    match query.take(name)?.filter(|value| !value.is_empty()) {
        Some(value) => time::parse(&value)
            .map(Some)
            .ok_or_else(|| Problem::malformed(name, &value, time::EXPECTED)),
        None => Ok(None),
    }
}
