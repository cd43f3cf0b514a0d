//! `POST /v1/actions/query`: how often users did what, for several ranges and all candidates at once.

use std::io::Write;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use tallyring_realtime::{Reading, UserActions, View};

use super::count::{Cells, Counter};
use super::question::Question;
use super::{BODY_BYTES_MAX, BYTES_AT_ONCE, PARSED_TIMES, json_text, refuse_parameters};
use crate::access::Length;
use crate::body;
use crate::problem::Problem;
use crate::read::reply::held;
use crate::refusals::{BodyErrors, ReadErrors};
use crate::state::ApiState;
use crate::work::{Begun, reading};

/// The path of the route.
pub(crate) const PATH: &str = "/v1/actions/query";

/// More users than this take long.
const USERS_SHORT: usize = 8;

/// Actions of users
///
/// One count for every combination of user, range, action and candidate, all from one view. A range is a length
/// (`30m`, `24h`, `7d`) before `at`, or a calendar unit that holds it (`calendar:day@Europe/Berlin`). `view` counts
/// only these views: together, or with `by_view` one by one. `distinct: "insertion"` counts an insertion once a day of
/// the zone of the range, or with `per: "range"` once a range.
#[utoipa::path(post, path = "/v1/actions/query", operation_id = "query_actions", tag = "actions",
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
    refuse_parameters(uri)?;
    let bytes = body::read(headers, body, BODY_BYTES_MAX).await?;
    let (schema, rules, now) = (
        state.store().schema(),
        Arc::clone(&state.actions),
        state.now(),
    );
    let is_small = bytes.len() <= BYTES_AT_ONCE;
    let parse = move |view: &View<'_>| {
        let _parsed = view.reading().charge_of(PARSED_TIMES * bytes.len())?;
        Question::parse(&bytes, (&schema, &rules), now)
    };
    let mut length = Length::Long;
    if is_small {
        let store = state.store();
        let view = store.view_for(Reading::new(store.read_budget()));
        let question = parse(&view)?;
        if question.users.len() <= USERS_SHORT {
            length = Length::Short;
            // A question that memory can answer is answered here: to wait for another thread takes longer.
            if let Some(found) = view.actions_cached(&question.users, &question.span())? {
                return answer(&view, &question, &found).map(Begun::Answered);
            }
        }
    }
    let state = state.clone();
    Ok(Begun::Large(Box::pin(async move {
        reading(&state, length, move |view| {
            let question = parse(view)?;
            let found = view.actions(&question.users, &question.span())?;
            answer(view, &question, &found)
        })
        .await
    })))
}

fn answer(view: &View<'_>, question: &Question, found: &UserActions) -> Result<Response, Problem> {
    let mut charge = view.reading().charge();
    let mut counter = Counter::new(question, view);
    // The text of a user is charged before it is made.
    charge.grow(
        question
            .text_bytes()
            .saturating_mul(question.users.len() + 1),
    )?;
    let form = Form::of(question);
    let mut text = br#"{"users":{"#.to_vec();
    for (index, (user, did)) in question.users.iter().zip(&found.users).enumerate() {
        let cells = counter.count(did, |number| found.whats.get(number), &mut charge)?;
        if index > 0 {
            text.push(b',');
        }
        json_text(&mut text, user);
        text.push(b':');
        form.write(&mut text, &cells);
    }
    let position = view.applied().to_string();
    text.extend_from_slice(br#"},"position":"#);
    json_text(&mut text, &position);
    let approximate = counter.is_approximate;
    // Writing to a vector never fails.
    let _ = write!(text, ",\"approximate\":{approximate}}}");
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, held(text, charge)).into_response())
}

/// The text of a user's counts: the same for every user but for the counts.
struct Form {
    /// The text before each count, and behind the last one.
    pieces: Vec<Vec<u8>>,
}

impl Form {
    /// By range, action, view where views count one by one, entity and key: the order of cells.
    fn of(question: &Question) -> Self {
        let mut form = Self {
            pieces: vec![Vec::new()],
        };
        let ranges = question.ranges.iter().map(|range| &*range.name);
        form.object(ranges, |form, _| {
            form.object(texts(&question.actions), |form, _| {
                let by_entity = |form: &mut Self| {
                    let entities = question.entities.iter().map(|(name, _)| name.as_str());
                    form.object(entities, |form, index| {
                        let (_, keys) = &question.entities[index];
                        form.object(texts(keys), |form, _| form.pieces.push(Vec::new()));
                    });
                };
                match question.by_view {
                    true => form.object(texts(&question.views), |form, _| by_entity(form)),
                    false => by_entity(form),
                }
            });
        });
        form
    }

    /// Adds an object with these names; `value` adds the value of each, by its index.
    fn object<'n>(
        &mut self,
        names: impl Iterator<Item = &'n str>,
        value: impl Fn(&mut Self, usize),
    ) {
        self.last().push(b'{');
        for (index, name) in names.enumerate() {
            if index > 0 {
                self.last().push(b',');
            }
            json_text(self.last(), name);
            self.last().push(b':');
            value(self, index);
        }
        self.last().push(b'}');
    }

    fn last(&mut self) -> &mut Vec<u8> {
        self.pieces.last_mut().expect("BUG: a form has a piece")
    }

    fn write(&self, text: &mut Vec<u8>, cells: &Cells) {
        let (last, pieces) = self.pieces.split_last().expect("BUG: a form has a piece");
        for (piece, count) in pieces.iter().zip(cells) {
            text.extend_from_slice(piece);
            // Writing to a vector never fails.
            let _ = write!(text, "{count}");
        }
        text.extend_from_slice(last);
    }
}

fn texts(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(String::as_str)
}
