//! What a read asks for.

use std::sync::Arc;

use tallyring_realtime::{Read, Reading, Store, View};
use tallyring_records::{FieldError, KEY_BYTES_MAX, Namespace, Schema, TIME_MAX, TIME_MIN};

use super::base::{Base, Made};
use super::format::Format;
use crate::access::{Length, off_thread};
use crate::calendar::{Buckets, Request, Selection, Unit, Zone};
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::time;

/// A read of one key, understood.
#[derive(Clone)]
pub struct ReadRequest {
    /// Name of a declared namespace.
    pub namespace: String,
    pub key: String,
    pub shape: Shape,
    pub period: Period,
    /// The base buckets that it needs.
    pub base: Base,
}

/// The range that a read asks for, and of which view.
#[derive(Debug, Clone)]
pub struct Period {
    pub selection: Selection,
    /// The kept generation to read; none for what is counted now.
    pub as_of: Option<u64>,
    /// What the clock says, Unix seconds.
    pub now: i64,
}

/// What the answer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Every bucket.
    Counts,
    /// The total only.
    Summary,
    /// A ranking of one subtotal's values, over the range or for each bucket.
    By {
        subtotal: String,
        limit: usize,
        rolled: bool,
    },
}

impl Shape {
    /// True where the answer says something of each bucket.
    pub fn lists_buckets(&self) -> bool {
        match self {
            Self::Counts | Self::By { rolled: false, .. } => true,
            Self::Summary | Self::By { rolled: true, .. } => false,
        }
    }
}

/// Parameters of every read of a key, for messages.
pub const KNOWN: &str = "unit, units, from, to, timezone, hour_offset and as_of; by/… also takes limit and rollup; pictures width \
     and theme, counts.svg also compare";

/// Values listed unless asked otherwise.
const LIMIT_DEFAULT: usize = 10;
/// Most values listed.
pub const LIMIT_MAX: usize = 10_000;

impl ReadRequest {
    /// Understands a read, taking its parameters out of `query`. `limit_default` is for breakdowns.
    ///
    /// # Errors
    /// 404 for a namespace or subtotal that is not declared; 400 and 422 for the rest.
    pub fn parse(
        schema: &Schema,
        now: i64,
        (namespace, key): (&str, String),
        view: Aspect,
        limit_default: usize,
        query: &mut QueryString,
    ) -> Result<Self, Problem> {
        let namespace = declared(schema, namespace)?;
        check_key(&key)?;
        let shape = match view {
            Aspect::Counts => Shape::Counts,
            Aspect::Summary => Shape::Summary,
            Aspect::By(subtotal) => {
                if !namespace.subtotals.contains(&subtotal) {
                    let known = namespace.subtotals.join(", ");
                    let detail = format!("is not a subtotal of {}; it has {known}", namespace.name);
                    return Err(Problem::unknown("subtotal", &subtotal, detail));
                }
                let limit = limit(query, limit_default)?;
                Shape::By {
                    subtotal,
                    limit,
                    rolled: query.take_as("rollup", "true or false")?.unwrap_or(true),
                }
            }
        };
        Self::of(namespace, key, shape, Period::parse(query, now)?)
    }

    /// The read of a checked key for `period`.
    ///
    /// # Errors
    /// 422 for minutes where there are none.
    pub fn of(
        namespace: &Namespace,
        key: String,
        shape: Shape,
        period: Period,
    ) -> Result<Self, Problem> {
        let made = match &shape {
            Shape::By { subtotal, .. } => Made::Values(subtotal),
            Shape::Counts | Shape::Summary => Made::Totals,
        };
        Ok(Self {
            base: Base::of(namespace, &period.selection, made)?,
            namespace: namespace.name.clone(),
            key,
            shape,
            period,
        })
    }

    /// The same read of another period.
    ///
    /// # Errors
    /// 422 for minutes where there are none.
    pub fn of_period(&self, schema: &Schema, period: Period) -> Result<Self, Problem> {
        let namespace = declared(schema, &self.namespace)?;
        Self::of(namespace, self.key.clone(), self.shape.clone(), period)
    }

    /// Until when no event is expected any more, Unix seconds.
    pub fn settled_until(&self, reader: &View<'_>) -> i64 {
        let Period { as_of, now, .. } = self.period;
        reader.settled_until(&self.namespace, as_of, now)
    }

    /// What to read of the store for it.
    pub fn read(&self) -> Read {
        let (from, to) = self.base.span(&self.period.selection);
        Read {
            namespace: self.namespace.clone(),
            key: self.key.clone(),
            subtotal: match &self.shape {
                Shape::By { subtotal, .. } => Some(subtotal.clone()),
                _ => self.base.subtotal(),
            },
            from,
            to,
            rolled: match &self.shape {
                Shape::By { rolled: true, .. } => {
                    let (from, to) = span(&self.period.selection);
                    Some(from..to)
                }
                _ => None,
            },
        }
    }
}

/// Which of a key's reads.
pub enum Aspect {
    Counts,
    Summary,
    By(String),
}

/// Checks a raw key.
///
/// # Errors
/// 400 when it is empty or too long.
pub fn check_key(key: &str) -> Result<(), Problem> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    let detail = format!("must be 1 to {KEY_BYTES_MAX} bytes");
    Err(Problem::malformed("key", key, detail))
}

/// The declared namespace of this name.
///
/// # Errors
/// 404 that lists the declared ones.
pub fn declared<'s>(schema: &'s Schema, namespace: &str) -> Result<&'s Namespace, Problem> {
    schema.namespace(namespace).ok_or_else(|| {
        Problem::unknown(
            "namespace",
            namespace,
            format!("is not declared; declared are {}", schema.names()),
        )
    })
}

impl Period {
    /// Range, unit and zone of a read, and its view.
    ///
    /// # Errors
    /// 400 and 422, naming the parameter.
    pub fn parse(query: &mut QueryString, now: i64) -> Result<Self, Problem> {
        let as_of = as_of(query)?;
        let hour_offset = query.take_as("hour_offset", "hours from -12 to 14 in steps of 0.25")?;
        let timezone = query.take("timezone")?.filter(|zone| !zone.is_empty());
        let request = Request {
            unit: unit(query)?,
            zone: Zone::from_request(timezone.as_deref(), hour_offset)?,
            units: query.take_as("units", "a whole number, or -1 for all")?,
            from: instant(query, "from")?,
            to: instant(query, "to")?,
            now,
        };
        Ok(Self {
            selection: request.resolve()?,
            as_of,
            now,
        })
    }

    /// As many buckets before it, where `query` says `compare=before`.
    ///
    /// # Errors
    /// 400 for another word; 422 where nothing is before, or too long ago.
    pub fn before(&self, query: &mut QueryString) -> Result<Option<Self>, Problem> {
        match query.take("compare")?.as_deref() {
            None | Some("") => return Ok(None),
            Some("before") => {}
            Some(other) => {
                let detail = "must be before: the same number of buckets before these";
                return Err(Problem::malformed("compare", other, detail));
            }
        }
        let Selection::Bounded(buckets) = &self.selection else {
            let detail = "needs a period with a beginning; give units or from";
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

/// How many values to list unless asked otherwise: a file is taken whole, a page shows the top.
pub fn limit_default(format: Format) -> usize {
    match format {
        Format::Csv => LIMIT_MAX,
        Format::Json | Format::Svg(_) => LIMIT_DEFAULT,
    }
}

/// How many values to list.
///
/// # Errors
/// 400 outside 1 to [`LIMIT_MAX`].
pub fn limit(query: &mut QueryString, default: usize) -> Result<usize, Problem> {
    let limit: usize = query
        .take_as("limit", "a whole number from 1 to 10000")?
        .unwrap_or(default);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::malformed(
            "limit",
            &limit.to_string(),
            format!("must be 1 to {LIMIT_MAX}"),
        ));
    }
    Ok(limit)
}

/// The kept generation to read, if one is named.
///
/// # Errors
/// 400 when it is no number.
pub fn as_of(query: &mut QueryString) -> Result<Option<u64>, Problem> {
    query.take_as("as_of", "the number of a kept generation")
}

/// First instant, and first instant behind, of what a selection may cover (Unix seconds).
pub fn span(selection: &Selection) -> (i64, i64) {
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

/// Runs blocking work on the store (files may be cold) off the threads that serve connections.
///
/// # Errors
/// What the work answers.
pub async fn blocking<T: Send + 'static>(
    state: &ApiState,
    work: impl FnOnce(&Store) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let store = Arc::clone(state.store());
    off_thread(move || work(&store)).await
}

/// Reads off the threads that serve connections, in turn with other reads, from the view that is the newest when its turn
/// comes. Where the client goes away its work ends soon.
///
/// # Errors
/// What the work answers; 503 when its turn does not come soon.
pub async fn reading<T: Send + 'static>(
    state: &ApiState,
    length: Length,
    work: impl FnOnce(&View<'_>) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let reading = Reading::new(state.store().read_budget());
    let _abandoned = Abandoned(reading.clone());
    let turn = state.access.turns().take(length).await?;
    blocking(state, move |store| {
        let _turn = turn;
        reading.check()?;
        work(&store.view_for(reading))
    })
    .await
}

/// Tells a request's work, when it is dropped, that nobody waits for it.
struct Abandoned(Reading);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn unit(query: &mut QueryString) -> Result<Unit, Problem> {
    match query.take("unit")?.as_deref() {
        None | Some("") => Ok(Unit::Day),
        Some(unit @ "second") => {
            let names = Unit::ALL.map(Unit::as_str).join(", ");
            let detail = format!(
                "the last minute by the second is told by /v1/{{namespace}}/{{key}}/counts alone, as JSON; use one of {names}"
            );
            Err(Problem::malformed("unit", unit, detail))
        }
        Some(unit) => Ok(unit.parse()?),
    }
}

fn instant(query: &mut QueryString, name: &str) -> Result<Option<i64>, Problem> {
    match query.take(name)?.filter(|value| !value.is_empty()) {
        Some(value) => time::parse_in_query(&value)
            .map(Some)
            .ok_or_else(|| Problem::malformed(name, &value, time::EXPECTED)),
        None => Ok(None),
    }
}
