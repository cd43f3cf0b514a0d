//! `GET /v1/{namespace}/{key}/counts`, `…/summary`, `…/badge` and `…/by/{subtotal}`.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::answer::Answer;
use super::answering::{answer_at_once, answer_compared};
use super::filtered::Filtered;
use super::format::Format;
use super::limits::ResponseLimits;
use super::parameters::{
    CompareParameter, FilteredParameter, KeyPath, LimitParameter, OnlyParameter, RangeParameters,
};
use super::question::{Aspect, Question};
use super::reply::Reply;
use super::request::ReadRequest;
use super::second;
use crate::access::Length;
use crate::problem::Result;
use crate::state::ApiState;
use crate::work::Begun;

/// The segments of the path of a read of a key: namespace and key.
pub(crate) type KeySegments = (String, String);

/// Counts of a key by bucket
///
/// Every bucket of the range, zeros too, oldest first. `unit=second` answers the last 60 seconds of a key whose
/// namespace keeps minutes. Also as `/counts.csv` and `/counts.svg`, or by `Accept`. Pictures take a `width` (280 to
/// 1,600 pixels) and a `theme` (auto, light, dark). A key never counted answers zeros.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/counts", tag = "read",
    params(KeyPath, RangeParameters, CompareParameter, OnlyParameter, FilteredParameter),
    responses((status = 200, description = "The counts", body = Answer, example = json!({
        "namespace": "l", "key": "abc", "unit": "day", "timezone": "America/New_York",
        "from": "2012-03-15T00:00:00-04:00", "to": "2012-03-17T00:00:00-04:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 5,
        "counts": [
            {"start": "2012-03-15T00:00:00-04:00", "count": 0},
            {"start": "2012-03-16T00:00:00-04:00", "count": 5},
        ],
    }))),
)]
pub(crate) async fn counts(mut request: ReadRequest<KeySegments>) -> Result<Response> {
    let of = request.take_path();
    answer(request, of, Aspect::Counts).await
}

/// Total of a key
///
/// As counts, without the buckets.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/summary", tag = "read",
    params(KeyPath, RangeParameters, OnlyParameter, FilteredParameter),
    responses((status = 200, description = "The total", body = Answer, example = json!({
        "namespace": "l", "key": "abc", "unit": "day", "timezone": "UTC",
        "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 5,
    }))),
)]
pub(crate) async fn summary(mut request: ReadRequest<KeySegments>) -> Result<Response> {
    let of = request.take_path();
    answer(request, of, Aspect::Summary).await
}

/// Total of a key as a badge
///
/// A label and the total, rounded, in one line, to stand in a README: the same picture as `/summary.svg`, whatever
/// `Accept` says.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/badge", tag = "read",
    params(KeyPath, RangeParameters, OnlyParameter),
    responses((status = 200, description = "The badge", body = String, content_type = "image/svg+xml")),
)]
pub(crate) async fn badge(mut request: ReadRequest<KeySegments>) -> Result<Response> {
    request.format = Format::SVG;
    let of = request.take_path();
    answer(request, of, Aspect::Summary).await
}

/// Breakdown of a key
///
/// Values of a subtotal, largest first, ties by value; what had none counts under `-`. A subtotal that crosses two
/// (`c*v`) lists both `parts` of every value. `unit=minute` reaches back a few hours where the namespace keeps minutes.
/// Also as `.csv` and `.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/by/{subtotal}", tag = "read",
    params(
        KeyPath,
        ("subtotal" = String, Path, description = "A declared subtotal of the namespace", example = "c"),
        RangeParameters,
        LimitParameter,
        OnlyParameter,
        ("rollup" = Option<bool>, Query, description = "true (default): over the range; false: for each bucket"),
    ),
    responses((status = 200, description = "The ranking", body = Answer, example = json!({
        "namespace": "l", "key": "abc", "unit": "day", "timezone": "UTC",
        "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "subtotal": "c", "subtotal_title": "country",
        "total": 5, "values": [{"value": "US", "count": 4}, {"value": "-", "count": 1}], "other": 0,
    }))),
)]
pub(crate) async fn by(mut request: ReadRequest<(String, String, String)>) -> Result<Response> {
    let (namespace, key, subtotal) = request.take_path();
    let view = Aspect::By(Format::without_suffix(&subtotal).to_owned());
    answer(request, (namespace, key), view).await
}

async fn answer<P>(request: ReadRequest<P>, of: KeySegments, view: Aspect) -> Result<Response> {
    begin(request, of, view)?.answer().await
}

/// A read that takes much work, or something from the disk.
pub(super) struct Large {
    pub state: ApiState,
    pub question: Question,
    pub reply: Reply,
}

/// Begins a read of one key, and answers it at once where it takes little work.
pub(crate) fn begin<P>(
    request: ReadRequest<P>,
    (namespace, key): KeySegments,
    view: Aspect,
) -> Result<Begun> {
    let mut query = request.query()?;
    let is_series = view == Aspect::Counts && query.1 == Format::Json;
    if is_series && let Some(seconds) = second::answer(&request, (&namespace, &key), &mut query.0)?
    {
        let answer = ([(header::CACHE_CONTROL, "no-store")], Json(seconds));
        return Ok(Begun::Answered(answer.into_response()));
    }
    let (mut question, reply) = request.question((&namespace, Some(key)), view, query)?;
    let is_one = question.before.is_none() && question.filtered.is_none();
    if reply.format == Format::Json && is_one {
        let reader = request.state.stores().view();
        let mut limits = ResponseLimits::new(reader.reading());
        match answer_at_once(&reader, question, &mut limits)? {
            Ok(answer) => {
                let response = reply.respond(&reader, &answer, limits.charge)?;
                return Ok(Begun::Answered(response));
            }
            Err(large) => question = large,
        }
    }
    let large = Large {
        state: request.state,
        question,
        reply,
    };
    Ok(Begun::Large(Box::pin(large.answer())))
}

impl Large {
    /// Answers off the threads that serve connections. Fails with 503 where no turn comes soon.
    pub(super) async fn answer(self) -> Result<Response> {
        let Self {
            state,
            mut question,
            reply,
        } = self;
        let length = match question.key {
            Some(_) => Length::Short,
            None => Length::Long,
        };
        let answering = reply.answer(&state, length, move |reader, limits| {
            let filtered = question.filtered.take().into_iter();
            let filtered = filtered.flat_map(|asked| [Some(asked.counts), asked.by_rule]);
            let questions = [question].into_iter().chain(filtered.flatten());
            let answers = answer_compared(reader, questions.collect(), limits);
            let mut answers = answers.map_err(|(_, problem)| problem)?.into_iter();
            let mut answer = answers.next().expect("BUG: one question gives one answer");
            let filtered = answers.next();
            answer.filtered =
                filtered.map(|counts| Filtered::of(answer.total, counts, answers.next()));
            Ok(answer)
        });
        answering.await
    }
}
