//! `GET /v1/ratios/{ratio}/{entity}/{key}`: two counts divided, both from one view.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::{Read, Store};
use tallyring_records::{Namespace, Schema};

use super::base::{Base, are_cut};
use super::format::Format;
use super::request::{as_of, blocking, check_key, declared, selection};
use super::respond::with_type;
use super::rollup;
use crate::access::Caller;
use crate::calendar::{Selection, rfc3339_utc};
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;

const KNOWN: &str = "unit, units, from, to, timezone, hour_offset and as_of";

/// A ratio by bucket and over the range.
#[derive(Serialize, utoipa::ToSchema)]
pub struct RatioAnswer {
    name: String,
    entity: String,
    key: String,
    unit: String,
    timezone: String,
    from: String,
    to: String,
    aligned: bool,
    settled_until: String,
    final_until: Option<String>,
    generation: u64,
    #[serde(flatten)]
    whole: Quotient,
    counts: Vec<RatioCount>,
}

/// Two counts and what they divide to.
#[derive(Serialize, utoipa::ToSchema)]
struct Quotient {
    numerator: u64,
    denominator: u64,
    /// null where the denominator is 0
    ratio: Option<f64>,
}

/// One bucket's ratio.
#[derive(Serialize, utoipa::ToSchema)]
struct RatioCount {
    start: String,
    #[serde(flatten)]
    quotient: Quotient,
}

/// Ratio of two event types
///
/// Numerator, denominator and ratio of an entity's key for every bucket, from the counts of one view. Also as
/// CSV, by `Accept`.
#[utoipa::path(get, path = "/v1/ratios/{ratio}/{entity}/{key}", tag = "read",
    params(
        ("ratio" = String, Path, description = "A declared ratio", example = "ctr"),
        ("entity" = String, Path, description = "An entity that both event types have", example = "ad"),
        ("key" = String, Path, description = "Percent-encoded, 1 to 2,048 bytes", example = "42"),
        crate::openapi::RangeParameters,
    ),
    responses(
        (status = 200, description = "The ratios", body = RatioAnswer, example = json!({
            "name": "ctr", "entity": "ad", "key": "42", "unit": "day", "timezone": "UTC",
            "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true,
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3,
            "numerator": 1, "denominator": 8, "ratio": 0.125,
            "counts": [
                {"start": "2012-03-15T00:00:00+00:00", "numerator": 0, "denominator": 0, "ratio": null},
                {"start": "2012-03-16T00:00:00+00:00", "numerator": 1, "denominator": 8, "ratio": 0.125},
            ],
        })),
        crate::openapi::ReadErrors,
    ),
)]
pub async fn ratio(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((name, entity, key)): Segments<(String, String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // The last segment is the key, which may end like a file: only `Accept` asks for a form.
    let (_, format) = Format::of("", &headers);
    let mut query = QueryString::parse(uri.query())?;
    let namespaces = namespaces(&state.store().schema(), &name, &entity)?;
    for namespace in &namespaces {
        caller.check_namespace(&namespace.name)?;
    }
    check_key(&key)?;
    let (as_of, now) = (as_of(&mut query)?, state.now());
    let asked = Asked {
        name,
        entity,
        key,
        namespaces,
        selection: selection(&mut query, now)?,
        now,
    };
    query.finish(KNOWN)?;
    blocking(&state, move |store| {
        let answer = answer(store, asked, as_of)?;
        match format {
            Format::Json => Ok(axum::Json(answer).into_response()),
            Format::Csv => Ok(with_type(format, rows(&answer))),
            Format::Svg(_) => Err(Problem::unknown(
                "format",
                "svg",
                "is not drawn for ratios; ask for .csv or JSON",
            )),
        }
    })
    .await
}

/// A ratio that is asked for, with the namespaces of numerator and denominator.
struct Asked {
    name: String,
    entity: String,
    key: String,
    namespaces: [Namespace; 2],
    selection: Selection,
    now: i64,
}

fn namespaces(schema: &Schema, name: &str, entity: &str) -> Result<[Namespace; 2], Problem> {
    let ratio = schema.ratio(name).ok_or_else(|| {
        let known: Vec<&str> = schema.ratios.iter().map(|ratio| &*ratio.name).collect();
        let detail = format!("is not declared; declared are {}", known.join(", "));
        Problem::unknown("ratio", name, detail)
    })?;
    let types = [&ratio.numerator, &ratio.denominator].map(|name| schema.event_type(name));
    let [Some(numerator), Some(denominator)] = types else {
        unreachable!("BUG: a schema's ratios name declared event types")
    };
    let both = |entity: &&String| denominator.entities.contains(*entity);
    if !numerator
        .entities
        .iter()
        .filter(both)
        .any(|known| known == entity)
    {
        let known: Vec<&str> = numerator
            .entities
            .iter()
            .filter(both)
            .map(|known| &**known)
            .collect();
        let detail = format!(
            "is not an entity of {name}; use one of {}",
            known.join(", ")
        );
        return Err(Problem::unknown("entity", entity, detail));
    }
    let namespace =
        |kind: &tallyring_records::EventType| declared(schema, &kind.namespace_of(entity));
    Ok([namespace(numerator)?, namespace(denominator)?])
}

fn answer(store: &Store, asked: Asked, as_of: Option<u64>) -> Result<RatioAnswer, Problem> {
    let bases = [0, 1].map(|side| Base::of(&asked.namespaces[side], &asked.selection));
    let reads = [0, 1].map(|side| {
        let (from, to) = bases[side].span(&asked.selection);
        Read {
            namespace: asked.namespaces[side].name.clone(),
            key: asked.key.clone(),
            subtotal: bases[side].subtotal(),
            from,
            to,
        }
    });
    let view = store.read(&reads, as_of)?;
    let counts = [0, 1].map(|side| bases[side].counts(&view.series[side]));
    let buckets = match asked.selection {
        Selection::Bounded(buckets) => buckets,
        Selection::All(all) => {
            let starts = || {
                counts
                    .iter()
                    .flat_map(|counts| counts.keys().map(|code| code.start()))
            };
            all.covering(starts().min().zip(starts().max()))?
        }
    };
    for base in bases {
        base.check_kept(&buckets, view.minutes_from)?;
    }
    let totals = [0, 1].map(|side| rollup::totals(&counts[side], &buckets));
    let labels = buckets
        .iter()
        .map(|bucket| buckets.zone().label(bucket.start));
    let rows = labels.zip(totals[0].iter().zip(&totals[1]));
    let settled = asked
        .namespaces
        .iter()
        .map(|namespace| store.settled_until(&namespace.name, asked.now));
    Ok(RatioAnswer {
        unit: buckets.unit().to_string(),
        timezone: buckets.zone().name().to_owned(),
        from: buckets.zone().label(buckets.start()),
        to: buckets.zone().label(buckets.end()),
        aligned: [0, 1]
            .iter()
            .all(|&side| bases[side].aligned(&counts[side], &buckets))
            && !are_cut(store, &buckets, view.generation),
        settled_until: rfc3339_utc(settled.min().unwrap_or(asked.now)),
        final_until: None,
        generation: view.generation,
        counts: rows
            .map(|(start, (&numerator, &denominator))| RatioCount {
                start,
                quotient: Quotient::new(numerator, denominator),
            })
            .collect(),
        whole: Quotient::new(
            rollup::sum(totals[0].iter().copied()),
            rollup::sum(totals[1].iter().copied()),
        ),
        name: asked.name,
        entity: asked.entity,
        key: asked.key,
    })
}

impl Quotient {
    fn new(numerator: u64, denominator: u64) -> Self {
        Self {
            numerator,
            denominator,
            ratio: (denominator > 0).then(|| numerator as f64 / denominator as f64),
        }
    }
}

fn rows(answer: &RatioAnswer) -> String {
    let mut out = String::from("start,numerator,denominator,ratio\n");
    for RatioCount { start, quotient } in &answer.counts {
        let ratio = quotient
            .ratio
            .map(|ratio| ratio.to_string())
            .unwrap_or_default();
        let counts = [quotient.numerator, quotient.denominator].map(|count| count.to_string());
        crate::csv::row(&mut out, &[start, &counts[0], &counts[1], &ratio]);
    }
    out
}
