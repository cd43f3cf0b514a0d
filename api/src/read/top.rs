//! `GET /v1/{namespace}/top`: the heaviest keys of a range, exact.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::TopKey;

use super::csv;
use super::format::Format;
use super::request::{LIMIT_DEFAULT, as_of, blocking, declared, limit, selection};
use super::respond::{no_picture, with_type};
use crate::calendar::{Selection, rfc3339_utc};
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;

const KNOWN: &str = "unit, units, from, to, timezone, hour_offset, as_of and limit";

#[derive(Serialize)]
struct Top {
    namespace: String,
    unit: String,
    timezone: String,
    from: String,
    to: String,
    now: String,
    generation: u64,
    approximate: bool,
    total: u64,
    keys: Vec<Key>,
    other: u64,
}

#[derive(Serialize)]
struct Key {
    key: String,
    count: u64,
}

/// Ranks every key of the namespace by its count in the range.
pub async fn top(
    State(state): State<ApiState>,
    Segments((namespace, top)): Segments<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (name, format) = Format::of(&top, &headers);
    if name != "top" {
        return Err(crate::problem::no_route(&format!("/v1/{namespace}/{top}")));
    }
    let mut query = QueryString::parse(query.as_deref())?;
    let namespace = declared(&state.store().schema(), &namespace)?;
    let (limit, as_of) = (limit(&mut query, LIMIT_DEFAULT)?, as_of(&mut query)?);
    let now = state.now();
    let Selection::Bounded(buckets) = selection(&mut query, now)? else {
        return Err(Problem::malformed(
            "units",
            "-1",
            "is not answered here; name from, or how many units",
        ));
    };
    query.finish(KNOWN)?;
    blocking(&state, move |store| {
        let range = buckets.base_range(namespace.grain.seconds());
        let ranking = store.top(&namespace.name, range, limit, as_of)?;
        let answer = Top {
            namespace: namespace.name,
            unit: buckets.unit().to_string(),
            timezone: buckets.zone().name().to_owned(),
            from: buckets.zone().label(buckets.start()),
            to: buckets.zone().label(buckets.end()),
            now: rfc3339_utc(now),
            generation: ranking.generation,
            approximate: false,
            total: ranking.total,
            other: ranking.total - ranking.keys.iter().map(|top| top.count).sum::<u64>(),
            keys: ranking
                .keys
                .into_iter()
                .map(|TopKey { key, count }| Key { key, count })
                .collect(),
        };
        match format {
            Format::Json => Ok(axum::Json(answer).into_response()),
            Format::Csv => Ok(with_type(format, rows(&answer))),
            Format::Svg => Err(no_picture()),
        }
    })
    .await
}

fn rows(answer: &Top) -> String {
    let mut out = String::from("key,count\n");
    for key in &answer.keys {
        csv::row(&mut out, &[&key.key, &key.count.to_string()]);
    }
    out
}
