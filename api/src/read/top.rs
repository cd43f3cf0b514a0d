//! `GET /v1/{namespace}/top`: the heaviest keys of a range, exact.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::TopKey;

use super::csv;
use super::format::Format;
use super::request::{LIMIT_DEFAULT, as_of, blocking, declared, limit, selection};
use super::respond::with_type;
use crate::calendar::{Selection, rfc3339_utc};
use crate::chart::{RankingChart, ranking};
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;

const KNOWN: &str = "unit, units, from, to, timezone, hour_offset, as_of and limit";

/// The heaviest keys of a range.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Top {
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

/// A key and its count.
#[derive(Serialize, utoipa::ToSchema)]
struct Key {
    key: String,
    count: u64,
}

/// Heaviest keys
///
/// Every key of the namespace ranked by its count in the range, exact. Also as `/top.csv`.
#[utoipa::path(get, path = "/v1/{namespace}/top", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        crate::openapi::RangeParameters,
        ("limit" = Option<u32>, Query, description = "Keys listed, 1 to 10,000; 10 if left out"),
    ),
    responses((status = 200, description = "The ranking", body = Top), crate::openapi::ReadErrors),
)]
pub async fn top(
    State(state): State<ApiState>,
    Segments(namespace): Segments<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (_, format) = Format::of(uri.path(), &headers);
    let mut query = QueryString::parse(uri.query())?;
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
            Format::Svg => Ok(with_type(format, picture(&answer))),
        }
    })
    .await
}

fn picture(answer: &Top) -> String {
    ranking(&RankingChart {
        title: format!("top of {}", answer.namespace),
        subtitle: format!("{} to {}", answer.from, answer.to),
        values: answer
            .keys
            .iter()
            .map(|key| (key.key.clone(), key.count))
            .collect(),
        other: answer.other,
    })
}

fn rows(answer: &Top) -> String {
    let mut out = String::from("key,count\n");
    for key in &answer.keys {
        csv::row(&mut out, &[&key.key, &key.count.to_string()]);
    }
    out
}
