//! `GET /v1/{namespace}/{key}/counts` and `…/summary`.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;

use super::request::{Answered, Head, KNOWN, ReadRequest, blocking};
use super::rollup;
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;

/// The answer; a summary has no `counts`.
#[derive(Serialize)]
pub struct Counts {
    #[serde(flatten)]
    head: Head,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<Vec<Count>>,
}

#[derive(Serialize)]
struct Count {
    start: String,
    count: u64,
}

/// Every bucket of the range, zeros too, oldest first.
pub async fn counts(
    State(state): State<ApiState>,
    Path((namespace, key)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<Counts>, Problem> {
    answer(&state, &namespace, key, query.as_deref(), true).await
}

/// The range's total.
pub async fn summary(
    State(state): State<ApiState>,
    Path((namespace, key)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<Counts>, Problem> {
    answer(&state, &namespace, key, query.as_deref(), false).await
}

async fn answer(
    state: &ApiState,
    namespace: &str,
    key: String,
    query: Option<&str>,
    with_counts: bool,
) -> Result<Json<Counts>, Problem> {
    let mut query = QueryString::parse(query)?;
    let request = ReadRequest::parse(state, namespace, key, None, &mut query)?;
    query.finish(KNOWN)?;
    blocking(state, move |store| {
        let Answered {
            head,
            buckets,
            series,
        } = request.answer(store)?;
        let totals = rollup::totals(&series, &buckets);
        let total = rollup::sum(totals.iter().copied());
        let counts = with_counts.then(|| {
            let labels = buckets
                .iter()
                .map(|bucket| buckets.zone().label(bucket.start));
            labels
                .zip(totals)
                .map(|(start, count)| Count { start, count })
                .collect()
        });
        Ok(Json(Counts {
            head,
            total,
            counts,
        }))
    })
    .await
}
