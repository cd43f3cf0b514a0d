//! `POST /v1/actions/query`: how often users did what, for several ranges and all candidates at once.

use std::io::Write;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::response::Response;
use tallyring_realtime::{Reading, View};
use tallyring_records::{Action, Schema};

use super::count::Counter;
use super::question::Question;
use super::{ActionRules, BODY_BYTES_MAX, BYTES_AT_ONCE, PARSED_TIMES, json_text, read_question};
use crate::access::Length;
use crate::body::Received;
use crate::problem::Problem;
use crate::read::reply::held;
use crate::refusals::{BodyErrors, ReadErrors};
use crate::state::ApiState;
use crate::work::{Begun, reading};

/// The path of the route.
pub(crate) const PATH: &str = "/v1/actions/query";

/// More users than this take long.
const USERS_SHORT: usize = 8;
/// An answer of more bytes is not made on a thread that serves connections.
const ANSWER_AT_ONCE: usize = 64 << 10;

/// Actions of users
///
/// One count for every combination of user, range, action and candidate, all from one view. A range is a length
/// (`30m`, `24h`, `7d`) before `at`, or a calendar unit that holds it (`calendar:day@Europe/Berlin`). `view` counts
/// only these views: together, or with `by_view` one by one. `distinct: "insertion"` counts an insertion once a day of
/// the zone of the range, or with `per: "range"` once a range.
#[utoipa::path(post, path = "/v1/actions/query", operation_id = "query_actions", tag = "actions",
    params(("after" = Option<String>, Query, description = "The `position` of an answer: this one counts everything before it, or is 503 after 100 ms", example = "2:881")),
    request_body(content = String, content_type = "application/json", example = json!({
        "users": ["u1", "u2"], "ranges": ["1h", "1d", "calendar:day@America/New_York"],
        "action": ["impression", "click"], "view": ["home"], "entity": {"ad": ["1", "2", "3"], "campaign": ["7"]},
        "distinct": "insertion", "per": "day",
    })),
    responses(
        (status = 200, description = "Counts by user, range, action, entity and key", body = String, content_type = "application/json",
            example = json!({"users": {"u1": {"1d": {"impression": {"ad": {"1": 3, "2": 0, "3": 1}, "campaign": {"7": 4}}}}}, "position": "2:881", "approximate": false})),
        ReadErrors,
        BodyErrors,
    ),
)]
pub(crate) async fn query(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    begin(&state, (&uri, &headers), body).await?.answer().await
}

/// True for a small question, which is answered without the router: to find the route and to pass boxed layers would
/// cost a fifth of the answer.
pub(crate) fn is_direct(request: &Parts, body: &impl HttpBody) -> bool {
    let bytes = body.size_hint().exact();
    request.method == Method::POST
        && request.uri.path() == PATH
        && bytes.is_some_and(|bytes| bytes <= BYTES_AT_ONCE as u64)
}

/// Begins a question, and answers it at once where memory can answer it.
pub(crate) async fn begin(
    state: &ApiState,
    (uri, headers): (&Uri, &HeaderMap),
    body: Body,
) -> Result<Begun, Problem> {
    let bytes = read_question(state, (uri, headers), body, BODY_BYTES_MAX).await?;
    let asked = Asked {
        bytes,
        schema: state.store().schema(),
        rules: Arc::clone(&state.actions),
        now: state.now(),
    };
    let mut length = Length::Long;
    if asked.bytes.len() <= BYTES_AT_ONCE {
        let store = state.store();
        let view = store.view_for(Reading::new(store.read_budget()));
        let question = asked.parse(&view)?;
        let is_short = question.users.len() * question.text_bytes() <= ANSWER_AT_ONCE;
        if question.users.len() <= USERS_SHORT && is_short {
            length = Length::Short;
            // A question that memory can answer is answered here: to wait for another thread takes longer.
            if let Some(response) = answer(&view, &question, true)? {
                return Ok(Begun::Answered(response));
            }
        }
    }
    let state = state.clone();
    Ok(Begun::Large(Box::pin(async move {
        reading(&state, length, move |view| {
            let question = asked.parse(view)?;
            let answered = answer(view, &question, false)?;
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
}

impl Asked {
    fn parse(&self, view: &View<'_>) -> Result<Question<'_>, Problem> {
        let _parsed = view.reading().charge_of(PARSED_TIMES * self.bytes.len())?;
        Question::parse(&self.bytes, (&self.schema, &self.rules), self.now)
    }
}

/// The answer; none where a block would have to be read from the disk, and only memory may be read.
fn answer(
    view: &View<'_>,
    question: &Question<'_>,
    memory_alone: bool,
) -> Result<Option<Response>, Problem> {
    let mut charge = view.reading().charge();
    let mut counter = Counter::new(question, view);
    // The text of a user is charged before it is made.
    charge.grow(
        question
            .text_bytes()
            .saturating_mul(question.users.len() + 1),
    )?;
    let (span, form) = (question.span(), Form::of(question));
    let mut text = Vec::with_capacity(form.answer_bytes(question));
    text.extend_from_slice(br#"{"users":{"#);
    for (index, user) in question.users.iter().enumerate() {
        counter.begin();
        let mut count = |at, action: Action<'_>, n| counter.count(at, &action, n);
        let found = match memory_alone {
            true => view.visit_actions_cached(user, &span, &mut count)?,
            false => Some(view.visit_actions(user, &span, &mut count)?),
        };
        if found.is_none() {
            return Ok(None);
        }
        if index > 0 {
            text.push(b',');
        }
        json_text(&mut text, user);
        text.push(b':');
        form.write(&mut text, question, counter.cells()?);
    }
    let (position, approximate) = (view.applied(), counter.is_approximate);
    // Writing to a vector never fails.
    let _ = write!(
        text,
        r#"}},"position":"{position}","approximate":{approximate}}}"#
    );
    let mut response = Response::new(held(text, charge));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, kind);
    let stored = HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, stored);
    Ok(Some(response))
}

/// The text of the counts of one user and range: the same for all of them but for the counts.
#[derive(Default)]
struct Form {
    text: Vec<u8>,
    /// The end of the text before each count.
    ends: Vec<usize>,
}

/// Characters of a count, mostly, and of what stands around the counts of a range.
const COUNT_CHARS: usize = 2;
const AROUND_CHARS: usize = 16;

impl Form {
    /// By action, view where views count one by one, entity and key: the order of cells.
    fn of(question: &Question<'_>) -> Self {
        let mut form = Self::default();
        form.ends.reserve(question.plane());
        form.object(&question.actions, |form| match question.by_view {
            true => form.object(&question.views, |form| form.entities(question)),
            false => form.entities(question),
        });
        form
    }

    fn entities(&mut self, question: &Question<'_>) {
        let mut entities = question.entities.iter();
        let names = question.entities.iter().map(|(name, _)| name);
        self.object(names, |form| {
            let (_, keys) = entities.next().expect("BUG: as many as names");
            form.object(keys, |form| form.ends.push(form.text.len()));
        });
    }

    /// Adds an object with these names; `value` adds the value of each, in turn.
    fn object<T: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = T>,
        mut value: impl FnMut(&mut Self),
    ) {
        self.text.push(b'{');
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.text.push(b',');
            }
            json_text(&mut self.text, name.as_ref());
            self.text.push(b':');
            value(self);
        }
        self.text.push(b'}');
    }

    /// Bytes of an answer, about.
    fn answer_bytes(&self, question: &Question<'_>) -> usize {
        let range = self.text.len() + COUNT_CHARS * self.ends.len() + AROUND_CHARS;
        question.users.len() * question.ranges.len() * range + 8 * AROUND_CHARS
    }

    /// Appends the counts of a user.
    fn write(&self, text: &mut Vec<u8>, question: &Question<'_>, cells: &[u64]) {
        let mut digits = itoa::Buffer::new();
        text.push(b'{');
        let planes = cells.chunks_exact(self.ends.len());
        for (index, (range, plane)) in question.ranges.iter().zip(planes).enumerate() {
            if index > 0 {
                text.push(b',');
            }
            json_text(text, &range.name);
            text.push(b':');
            let mut start = 0;
            for (&end, &count) in self.ends.iter().zip(plane) {
                text.extend_from_slice(&self.text[start..end]);
                text.extend_from_slice(digits.format(count).as_bytes());
                start = end;
            }
            text.extend_from_slice(&self.text[start..]);
        }
        text.push(b'}');
    }
}
