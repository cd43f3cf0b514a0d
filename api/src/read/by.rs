//! `GET /v1/{namespace}/{key}/by/{subtotal}`.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;
use tallyring_realtime::Store;

use super::request::{Answered, Head, KNOWN, ReadRequest, blocking};
use super::rollup;
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;

const LIMIT_DEFAULT: usize = 10;
const LIMIT_MAX: usize = 10_000;

/// The answer: one ranking, or one for each bucket.
#[derive(Serialize)]
pub struct By {
    #[serde(flatten)]
    head: Head,
    subtotal: String,
    total: u64,
    #[serde(flatten)]
    ranking: Ranking,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Ranking {
    Rolled { values: Vec<Value>, other: u64 },
    Buckets { buckets: Vec<Bucket> },
}

#[derive(Serialize)]
struct Bucket {
    start: String,
    total: u64,
    values: Vec<Value>,
    other: u64,
}

#[derive(Serialize)]
struct Value {
    value: String,
    count: u64,
}

/// Values of a subtotal, largest first; what had none counts under `-`.
pub async fn by(
    State(state): State<ApiState>,
    Path((namespace, key, subtotal)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<By>, Problem> {
    let mut query = QueryString::parse(query.as_deref())?;
    let rolled: bool = query.take_as("rollup", "true or false")?.unwrap_or(true);
    let limit: usize = query
        .take_as("limit", "a whole number from 1 to 10000")?
        .unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::malformed(
            "limit",
            &limit.to_string(),
            format!("must be 1 to {LIMIT_MAX}"),
        ));
    }
    let request = ReadRequest::parse(&state, &namespace, key, Some(subtotal.clone()), &mut query)?;
    query.finish(&format!("{KNOWN}, rollup and limit"))?;
    blocking(&state, move |store| {
        let answered = request.answer(store)?;
        let totals = rollup::totals(&answered.series, &answered.buckets);
        let total = rollup::sum(totals.iter().copied());
        let ranking = if rolled {
            let (values, other) = ranked(
                store,
                &answered,
                &rollup::values(&answered.series, &answered.buckets),
                limit,
            )?;
            Ranking::Rolled { values, other }
        } else {
            Ranking::Buckets {
                buckets: by_bucket(store, &answered, &totals, limit)?,
            }
        };
        Ok(Json(By {
            head: answered.head,
            subtotal,
            total,
            ranking,
        }))
    })
    .await
}

fn by_bucket(
    store: &Store,
    answered: &Answered,
    totals: &[u64],
    limit: usize,
) -> Result<Vec<Bucket>, Problem> {
    let values = rollup::values_by_bucket(&answered.series, &answered.buckets);
    let mut buckets = Vec::with_capacity(totals.len());
    for ((bucket, &total), values) in answered.buckets.iter().zip(totals).zip(&values) {
        let (values, other) = ranked(store, answered, values, limit)?;
        buckets.push(Bucket {
            start: answered.buckets.zone().label(bucket.start),
            total,
            values,
            other,
        });
    }
    Ok(buckets)
}

fn ranked(
    store: &Store,
    answered: &Answered,
    values: &rollup::Values,
    limit: usize,
) -> Result<(Vec<Value>, u64), Problem> {
    let (listed, other) = rollup::ranking(store, &answered.series, values, limit)?;
    Ok((
        listed
            .into_iter()
            .map(|(value, count)| Value { value, count })
            .collect(),
        other,
    ))
}
