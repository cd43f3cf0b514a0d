//! `GET /v1/{namespace}/{key}/counts`, `…/summary`, `…/badge` and `…/by/{subtotal}`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};

use super::answer::{Answer, ResponseLimits, answer_all, answer_at_once};
use super::asked::Asked;
use super::format::Format;
use super::request::{Aspect, KNOWN, ReadRequest, Shape, limit_default, reading};
use super::second;
use crate::access::{Caller, Length};
use crate::openapi::{AskErrors, KeyPath, Known, LimitParameter, RangeParameters};
use crate::problem::Problem;
use crate::segments::Segments;
use crate::state::ApiState;

/// Counts of a key by bucket
///
/// Every bucket of the range, zeros too, oldest first. `unit=second` answers the last 60 seconds of a key whose
/// namespace keeps minutes. Also as `/counts.csv` and `/counts.svg`, or by `Accept`. Pictures take a `width` (280 to 1,600
/// pixels) and a `theme` (auto, light, dark), this one also `compare=before`: the period before, pale behind it. A key
/// never counted answers zeros.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/counts", tag = "read",
    params(KeyPath, RangeParameters),
    responses(
        (status = 200, description = "The counts", body = Answer, example = json!({
            "namespace": "l", "key": "abc", "unit": "day", "timezone": "America/New_York",
            "from": "2012-03-15T00:00:00-04:00", "to": "2012-03-17T00:00:00-04:00", "aligned": true,
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 5,
            "counts": [
                {"start": "2012-03-15T00:00:00-04:00", "count": 0},
                {"start": "2012-03-16T00:00:00-04:00", "count": 5},
            ],
        })),
        AskErrors,
        Known,
    ),
)]
pub async fn counts(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(of): Segments<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked = Asked::of(&uri, &headers, &caller, state.now())?;
    answer(&state, of, Aspect::Counts, asked).await
}

/// Total of a key
///
/// As counts, without the buckets.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/summary", tag = "read",
    params(KeyPath, RangeParameters),
    responses(
        (status = 200, description = "The total", body = Answer, example = json!({
            "namespace": "l", "key": "abc", "unit": "day", "timezone": "UTC",
            "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true,
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 5,
        })),
        AskErrors,
        Known,
    ),
)]
pub async fn summary(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(of): Segments<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked = Asked::of(&uri, &headers, &caller, state.now())?;
    answer(&state, of, Aspect::Summary, asked).await
}

/// Total of a key as a badge
///
/// A label and the total, rounded, in one line, to stand in a README: the same picture as `/summary.svg`, whatever
/// `Accept` says.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/badge", tag = "read",
    params(KeyPath, RangeParameters),
    responses(
        (status = 200, description = "The badge", body = String, content_type = "image/svg+xml"),
        AskErrors,
        Known,
    ),
)]
pub async fn badge(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(of): Segments<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked = Asked::in_form(Format::SVG, &uri, &headers, &caller, state.now())?;
    answer(&state, of, Aspect::Summary, asked).await
}

/// Breakdown of a key
///
/// Values of a subtotal, largest first, ties by value; what had none counts under `-`. A subtotal that crosses two
/// (`c*v`) lists both `parts` of every value. Also as `.csv` and `.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/by/{subtotal}", tag = "read",
    params(
        KeyPath,
        ("subtotal" = String, Path, description = "A declared subtotal of the namespace", example = "c"),
        RangeParameters,
        LimitParameter,
        ("rollup" = Option<bool>, Query, description = "true (default): over the range; false: for each bucket"),
    ),
    responses(
        (status = 200, description = "The ranking", body = Answer, example = json!({
            "namespace": "l", "key": "abc", "unit": "day", "timezone": "UTC",
            "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true,
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "subtotal": "c", "subtotal_title": "country",
            "total": 5, "values": [{"value": "US", "count": 4}, {"value": "-", "count": 1}], "other": 0,
        })),
        AskErrors,
        Known,
    ),
)]
pub async fn by(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((namespace, key, subtotal)): Segments<(String, String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (name, format) = Format::of(&subtotal, &headers);
    let view = Aspect::By(name.to_owned());
    let asked = Asked::in_form(format, &uri, &headers, &caller, state.now())?;
    answer(&state, (namespace, key), view, asked).await
}

/// Answers a read of one key.
///
/// # Errors
/// As the handlers above.
pub async fn answer(
    state: &ApiState,
    (namespace, key): (String, String),
    view: Aspect,
    mut asked: Asked<'_>,
) -> Result<Response, Problem> {
    let limit = limit_default(asked.format);
    let schema = state.store().schema();
    if matches!(view, Aspect::Counts) && asked.format == Format::Json {
        let of = (namespace.as_str(), key.as_str());
        let query = &mut asked.query;
        if let Some(seconds) = second::answer(state.store(), &schema, asked.now, of, query)? {
            return Ok(([(header::CACHE_CONTROL, "no-store")], Json(seconds)).into_response());
        }
    }
    let of = (namespace.as_str(), key);
    let request = ReadRequest::parse(&schema, asked.now, of, view, limit, &mut asked.query)?;
    let compared = match request.shape {
        Shape::Counts => asked.compared(&request.period)?,
        Shape::Summary | Shape::By { .. } => None,
    };
    let compared = compared
        .map(|period| request.of_period(&schema, period))
        .transpose()?;
    let form = asked.finish(KNOWN)?;
    let request = match form.format {
        Format::Json => {
            let reader = state.store().view();
            let mut limits = ResponseLimits::new(reader.reading());
            match answer_at_once(&reader, request, &mut limits)? {
                Ok(answer) => return form.respond(&reader, &answer, limits.into_charge()),
                Err(request) => request,
            }
        }
        Format::Csv | Format::Svg(_) => request,
    };
    reading(state, Length::Short, move |reader| {
        let requests = [Some(request), compared].into_iter().flatten().collect();
        let mut limits = ResponseLimits::new(reader.reading());
        let answers = answer_all(reader, requests, &mut limits).map_err(|(_, problem)| problem)?;
        let mut answers = answers.into_iter();
        let mut answer = answers.next().expect("BUG: one read gives one answer");
        answer.before = answers.next().map_or(Vec::new(), Answer::into_counts);
        form.respond(reader, &answer, limits.into_charge())
    })
    .await
}
