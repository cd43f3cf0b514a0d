//! `GET /v1/{namespace}/counts` and `…/by`: all keys of a namespace together, by bucket or by the values of a subtotal.

use axum::response::Response;

use super::answer::Answer;
use super::format::Format;
use super::key::Large;
use super::parameters::{CompareParameter, FilteredParameter, LimitParameter, RangeParameters};
use super::question::Aspect;
use super::request::ReadRequest;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

/// Counts of a namespace by bucket
///
/// All keys together, exact, from sums that files keep. Also as `/counts.csv` and
/// `/counts.svg`, which takes what the picture of a key's counts takes.
#[utoipa::path(get, path = "/v1/{namespace}/counts", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        RangeParameters,
        CompareParameter,
        FilteredParameter,
    ),
    responses((status = 200, description = "The counts", body = Answer, example = json!({
        "namespace": "l", "unit": "day", "timezone": "UTC",
        "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 17,
        "counts": [
            {"start": "2012-03-15T00:00:00+00:00", "count": 5},
            {"start": "2012-03-16T00:00:00+00:00", "count": 12},
        ],
    }))),
)]
pub(crate) async fn counts_of_all(request: ReadRequest<String>) -> Result<Response> {
    let query = request.query()?;
    answer(&request, Aspect::Counts, query).await
}

/// Breakdown of a namespace
///
/// All keys together by the values of a subtotal over the range, exact, largest first, ties by value; what had none
/// counts under `-`. Files keep sums of values by day, small ones by base bucket: whole days in UTC are read from them,
/// other ranges may read all lines. Also as `/by.csv` and `/by.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/by", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        ("subtotal" = String, Query, description = "A declared subtotal of the namespace", example = "c"),
        RangeParameters,
        LimitParameter,
    ),
    responses((status = 200, description = "The ranking", body = Answer, example = json!({
        "namespace": "l", "unit": "day", "timezone": "UTC",
        "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "subtotal": "c", "subtotal_title": "country",
        "total": 17, "values": [{"value": "US", "count": 12}, {"value": "-", "count": 5}], "other": 0,
    }))),
)]
pub(crate) async fn by_of_all(request: ReadRequest<String>) -> Result<Response> {
    let mut query = request.query()?;
    let subtotal = query.0.take("subtotal")?.ok_or_else(|| {
        let detail = "must be given: a subtotal that the namespace declares";
        Problem::malformed("subtotal", "", detail)
    })?;
    answer(&request, Aspect::Values(subtotal.into_owned()), query).await
}

async fn answer(
    request: &ReadRequest<String>,
    view: Aspect,
    query: (QueryString<'_>, Format),
) -> Result<Response> {
    let (question, reply) = request.question((&request.path, None), view, query)?;
    let read = Large {
        state: request.state.clone(),
        question,
        reply,
    };
    read.answer().await
}
