//! `POST /v1/actions/query`: how often users did what, for several ranges and all candidates at once.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;
use tallyring_realtime::View;
use tallyring_records::{Action, Schema};

use super::count::Counter;
use super::question::{Question, check_kept};
use super::text::CountsText;
use super::{ActionRules, BODY_BYTES_MAX, BYTES_AT_ONCE, PARSED_TIMES, read_question};
use crate::access::Length;
use crate::body::Received;
use crate::problem::Result;
use crate::read::download;
use crate::read::format::Format;
use crate::read::reply::{held, in_form};
use crate::state::ApiState;
use crate::work::{Begun, reading};

/// The path of the route.
pub(super) const PATH: &str = "/v1/actions/query";

/// More users than this take long.
const USERS_SHORT: usize = 8;
/// An answer of more bytes is not made on a thread that serves connections.
const ANSWER_AT_ONCE: usize = 64 << 10;

/// Actions of users
///
/// One count for every combination of user, range, action and candidate, all from one view. A range is a length
/// (`30m`, `24h`, `7d`) before `at`, or a calendar unit that holds it (`calendar:day@Europe/Berlin`). `view` counts
/// only these views: together, or with `by_view` one by one. `distinct: "insertion"` counts an insertion once a day of
/// the zone of the range, or with `per: "range"` once a range. Also as `/v1/actions/query.csv`, or by `Accept`: a row
/// for each count.
#[utoipa::path(post, path = "/v1/actions/query", operation_id = "query_actions", tag = "actions",
    params(("after" = Option<String>, Query, description = "The `position` of an answer: this one counts everything before it, or is 503 after 100 ms", example = "2:881")),
    request_body(content = String, content_type = "application/json", example = json!({
        "users": ["u1", "u2"], "ranges": ["1h", "1d", "calendar:day@America/New_York"],
        "action": ["impression", "click"], "view": ["home"], "entity": {"ad": ["1", "2", "3"], "campaign": ["7"]},
        "distinct": "insertion", "per": "day",
    })),
    responses((status = 200, description = "Counts by user, range, action, entity and key", body = String, content_type = "application/json",
        example = json!({"users": {"u1": {"1d": {"impression": {"ad": {"1": 3, "2": 0, "3": 1}, "campaign": {"7": 4}}}}}, "position": "2:881", "approximate": false}))),
)]
pub(crate) async fn query(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    begin(&state, (&uri, &headers), body).await?.answer().await
}

/// Begins a question, and answers it at once where memory can answer it.
pub(super) async fn begin(
    state: &ApiState,
    (uri, headers): (&Uri, &HeaderMap),
    body: Body,
) -> Result<Begun> {
    let bytes = read_question(state, (uri, headers), body, BODY_BYTES_MAX).await?;
    let asked = Asked {
        bytes,
        schema: state.store().schema(),
        rules: state.actions(),
        now: state.now(),
        file: file(uri, headers),
    };
    let mut length = Length::Long;
    if asked.bytes.len() <= BYTES_AT_ONCE {
        let view = state.stores().view();
        let question = asked.parse(&view)?;
        let is_short = CountsText::bytes(&question, asked.file.is_some()) <= ANSWER_AT_ONCE;
        if question.users.len() <= USERS_SHORT && is_short {
            length = Length::Short;
            // A question that memory can answer is answered here: to wait for another thread takes longer.
            if let Some(response) = asked.answer(&view, &question, true)? {
                return Ok(Begun::Answered(response));
            }
        }
    }
    let state = state.clone();
    Ok(Begun::Large(Box::pin(async move {
        reading(&state, length, move |view| {
            let question = asked.parse(view)?;
            let answered = asked.answer(view, &question, false)?;
            Ok(answered.expect("BUG: the disk may be read"))
        })
        .await
    })))
}

/// The body of a question, and what it is read by.
struct Asked {
    bytes: Received,
    schema: Arc<Schema>,
    rules: Arc<ActionRules>,
    now: i64,
    /// The name of a file where the answer is CSV.
    file: Option<HeaderValue>,
}

/// The name of the file where CSV is asked for; nothing is drawn of actions.
fn file(uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    download::disposition(Format::of(uri.path(), headers), uri)
}

impl Asked {
    fn parse(&self, view: &View<'_>) -> Result<Question<'_>> {
        let _parsed = view.reading().charge_of(PARSED_TIMES * self.bytes.len())?;
        Question::parse(&self.bytes, (&self.schema, &self.rules), self.now)
    }

    /// The answer; none where a block would have to be read from the disk, and only memory may be read.
    fn answer(
        &self,
        view: &View<'_>,
        question: &Question<'_>,
        at_once: bool,
    ) -> Result<Option<Response>> {
        let is_csv = self.file.is_some();
        let mut charge = view.reading().charge();
        let mut counter = Counter::new(question, view);
        // The text is charged before it is made, and what it is made of.
        let bytes = CountsText::bytes(question, is_csv);
        charge.grow(bytes.saturating_add(question.text_bytes()))?;
        let span = question.span();
        check_kept("ranges", span.start, view)?;
        let mut text = CountsText::begin(question, is_csv);
        for user in &question.users {
            counter.begin();
            let mut count = |at, action: Action<'_>, n| counter.count(at, &action, n);
            let visited = view.visit_actions(user, &span, at_once, &mut count)?;
            if visited.is_none() {
                return Ok(None);
            }
            text.push(question, user, counter.cells()?);
        }
        let text = text.end(question, view.position(), counter.is_approximate);
        let body = held(text, charge);
        let mut response = match &self.file {
            Some(name) => in_form(Format::Csv, Some(name.clone()), body),
            None => {
                let mut response = Response::new(body);
                let kind = HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
        };
        let stored = HeaderValue::from_static("no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, stored);
        Ok(Some(response))
    }
}
