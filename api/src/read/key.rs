//! `GET /v1/{namespace}/{key}/counts`, `…/summary` and `…/by/{subtotal}`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};

use super::answer::answer_all;
use super::format::Format;
use super::request::{KNOWN, LIMIT_DEFAULT, LIMIT_MAX, ReadRequest, View, as_of, blocking};
use super::respond::respond;
use super::second;
use crate::access::Caller;
use crate::problem::Problem;
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;

/// Counts of a key by bucket
///
/// Every bucket of the range, zeros too, oldest first. `unit=second` answers the last 60 seconds of a key whose
/// namespace keeps minutes. Also as `/counts.csv` and `/counts.svg`, or by `Accept`. A key
/// never counted answers zeros.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/counts", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        ("key" = String, Path, description = "Percent-encoded, 1 to 2,048 bytes", example = "abc"),
        crate::openapi::RangeParameters,
    ),
    responses(
        (status = 200, description = "The counts", body = super::answer::Answer),
        (status = 304, description = "The client has them already (If-None-Match)"),
        crate::openapi::ReadErrors,
    ),
)]
pub async fn counts(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((namespace, key)): Segments<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    answer(state, caller, (namespace, key), View::Counts, uri, headers).await
}

/// Total of a key
///
/// As counts, without the buckets.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/summary", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        ("key" = String, Path, description = "Percent-encoded, 1 to 2,048 bytes", example = "abc"),
        crate::openapi::RangeParameters,
    ),
    responses(
        (status = 200, description = "The total", body = super::answer::Answer),
        (status = 304, description = "The client has it already (If-None-Match)"),
        crate::openapi::ReadErrors,
    ),
)]
pub async fn summary(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((namespace, key)): Segments<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    answer(state, caller, (namespace, key), View::Summary, uri, headers).await
}

/// Breakdown of a key
///
/// Values of a subtotal, largest first, ties by value; what had none counts under `-`. Also as `.csv` and `.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/by/{subtotal}", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        ("key" = String, Path, description = "Percent-encoded, 1 to 2,048 bytes", example = "abc"),
        ("subtotal" = String, Path, description = "A declared subtotal of the namespace", example = "c"),
        crate::openapi::RangeParameters,
        ("limit" = Option<u32>, Query, description = "Values listed, 1 to 10,000; 10 if left out"),
        ("rollup" = Option<bool>, Query, description = "true (default): over the range; false: for each bucket"),
    ),
    responses(
        (status = 200, description = "The ranking", body = super::answer::Answer),
        (status = 304, description = "The client has it already (If-None-Match)"),
        crate::openapi::ReadErrors,
    ),
)]
pub async fn by(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((namespace, key, subtotal)): Segments<(String, String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (name, _) = Format::of(&subtotal, &headers);
    let view = View::By(name.to_owned());
    answer(state, caller, (namespace, key), view, uri, headers).await
}

async fn answer(
    state: ApiState,
    caller: Caller,
    (namespace, key): (String, String),
    view: View,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (_, format) = Format::of(uri.path(), &headers);
    let mut query = QueryString::parse(uri.query())?;
    // A file is taken whole, a page shows the top.
    let limit = if format == Format::Csv {
        LIMIT_MAX
    } else {
        LIMIT_DEFAULT
    };
    let (schema, now) = (state.store().schema(), state.now());
    if matches!(view, View::Counts) && format == Format::Json {
        let of = (namespace.as_str(), key.as_str());
        if let Some(seconds) = second::answer(state.store(), &schema, now, of, &mut query)? {
            return Ok(([(header::CACHE_CONTROL, "no-store")], Json(seconds)).into_response());
        }
    }
    let request = ReadRequest::parse(&schema, now, (&namespace, key), view, limit, &mut query)?;
    let as_of = as_of(&mut query)?;
    query.finish(KNOWN)?;
    blocking(&state, move |store| {
        let mut answers =
            answer_all(store, vec![request], as_of).map_err(|(_, problem)| problem)?;
        let answer = answers.pop().expect("BUG: one read gives one answer");
        respond(store, &answer, format, &headers, caller.has_key())
    })
    .await
}
