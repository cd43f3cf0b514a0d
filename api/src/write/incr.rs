//! `GET|POST /v1/incr`: the redirector's call, one increment in the query string.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tallyring_realtime::Batch;
use tallyring_records::{Increment, check_time};

use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::state::ApiState;
use crate::time;

const KNOWN: &str = "key.<namespace>, by.<subtotal>, n, at, id and user";

/// Counts one increment; 204 once it is durable. A body is ignored.
pub async fn incr(
    State(state): State<ApiState>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let now = state.now();
    let increment = parse(query.as_deref(), now)?;
    increment.validate(&state.store().schema())?;
    check_time(increment.at, now)?;
    let accepted = state
        .service
        .submit(Batch {
            increments: vec![increment],
            key: None,
        })
        .await?;
    metrics::counter!("tallyring_increments_total").increment(accepted.accepted);
    metrics::counter!("tallyring_duplicates_total").increment(accepted.duplicates);
    metrics::counter!("tallyring_late_total").increment(accepted.late);
    let mut response = StatusCode::NO_CONTENT.into_response();
    if accepted.duplicates > 0 {
        let name = HeaderName::from_static("tallyring-duplicate");
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static("1"));
    }
    Ok(response)
}

fn parse(query: Option<&str>, now: i64) -> Result<Increment, Problem> {
    let mut query = QueryString::parse(query)?;
    let at = match query.take("at")?.filter(|at| !at.is_empty()) {
        Some(at) => {
            time::parse(&at).ok_or_else(|| Problem::malformed("at", &at, time::EXPECTED))?
        }
        None => now,
    };
    let increment = Increment {
        at,
        n: query
            .take_as("n", "a whole number from 1 to 9007199254740991")?
            .unwrap_or(1),
        keys: query.take_prefixed("key."),
        by: query.take_prefixed("by."),
        id: query.take("id")?.filter(|id| !id.is_empty()),
        user: query.take("user")?.filter(|user| !user.is_empty()),
    };
    query.finish(KNOWN)?;
    Ok(increment)
}
