//! `GET /v1/{namespace}/{key}/counts`, `…/summary` and `…/by/{subtotal}`.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::answer::answer_all;
use super::format::Format;
use super::request::{KNOWN, LIMIT_DEFAULT, LIMIT_MAX, ReadRequest, View, as_of, blocking};
use super::respond::respond;
use crate::problem::{Problem, no_route};
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;

/// Every bucket of the range, or its total.
pub async fn counts(
    State(state): State<ApiState>,
    Segments((namespace, key, view)): Segments<(String, String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (name, format) = Format::of(&view, &headers);
    let view = match name {
        "counts" => View::Counts,
        "summary" => View::Summary,
        _ => return Err(no_route(&format!("/v1/{namespace}/…/{view}"))),
    };
    answer(state, namespace, key, view, format, query, headers).await
}

/// Values of a subtotal, largest first; what had none counts under `-`.
pub async fn by(
    State(state): State<ApiState>,
    Segments((namespace, key, subtotal)): Segments<(String, String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (name, format) = Format::of(&subtotal, &headers);
    answer(
        state,
        namespace,
        key,
        View::By(name.to_owned()),
        format,
        query,
        headers,
    )
    .await
}

async fn answer(
    state: ApiState,
    namespace: String,
    key: String,
    view: View,
    format: Format,
    query: Option<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut query = QueryString::parse(query.as_deref())?;
    // A file is taken whole, a page shows the top.
    let limit = if format == Format::Csv {
        LIMIT_MAX
    } else {
        LIMIT_DEFAULT
    };
    let (schema, now) = (state.store().schema(), state.now());
    let request = ReadRequest::parse(&schema, now, (&namespace, key), view, limit, &mut query)?;
    let as_of = as_of(&mut query)?;
    query.finish(KNOWN)?;
    blocking(&state, move |store| {
        let mut answers =
            answer_all(store, vec![request], as_of).map_err(|(_, problem)| problem)?;
        let answer = answers.pop().expect("BUG: one read gives one answer");
        respond(&answer, format, &headers, store.archived_until())
    })
    .await
}
