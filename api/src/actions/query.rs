//! `POST /v1/actions/query`: how often users did what, for several ranges and all candidates at once.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use tallyring_realtime::View;

use super::count::{Cells, Counter};
use super::question::Question;
use super::{BODY_BYTES_MAX, json_text, refuse_parameters};
use crate::access::Length;
use crate::body;
use crate::problem::Problem;
use crate::refusals::{BodyErrors, ReadErrors};
use crate::state::ApiState;
use crate::work::reading;

/// More users than this take long.
const USERS_SHORT: usize = 8;

/// What users did
///
/// One count for every combination of user, range, action and candidate, all from one view. A range is a length
/// (`30m`, `24h`, `7d`) before `at`, or a calendar unit that holds it (`calendar:day@Europe/Berlin`). `view` counts
/// only these views: together, or with `by_view` one by one. `distinct: "insertion"` counts an insertion once a day of
/// the zone of the range, or with `per: "range"` once a range.
#[utoipa::path(post, path = "/v1/actions/query", tag = "actions",
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
    refuse_parameters(&uri)?;
    let bytes = body::read(&headers, body, BODY_BYTES_MAX).await?;
    let schema = state.store().schema();
    let question = Question::parse(&bytes, (&schema, &state.actions), state.now())?;
    let length = match question.users.len() > USERS_SHORT {
        true => Length::Long,
        false => Length::Short,
    };
    reading(&state, length, move |view| {
        let text = answer(view, &question)?;
        Ok((
            [
                (header::CONTENT_TYPE, "application/json"),
                (header::CACHE_CONTROL, "no-store"),
            ],
            text,
        )
            .into_response())
    })
    .await
}

fn answer(view: &View<'_>, question: &Question) -> Result<Vec<u8>, Problem> {
    let spans = question.spans();
    let from = spans
        .iter()
        .map(|span| span.start)
        .min()
        .unwrap_or(question.at);
    let found = view.actions(&question.users, &(from..question.at + 1))?;
    let mut charge = view.reading().charge();
    let mut counter = Counter::new(question, view);
    let mut text = br#"{"users":{"#.to_vec();
    for (index, (user, did)) in question.users.iter().zip(&found.users).enumerate() {
        let cells = counter.count(did, |number| found.whats.get(number), &mut charge)?;
        if index > 0 {
            text.push(b',');
        }
        json_text(&mut text, user);
        text.push(b':');
        write_user(&mut text, question, &cells);
    }
    let position = view.applied().to_string();
    text.extend_from_slice(br#"},"position":"#);
    json_text(&mut text, &position);
    text.extend_from_slice(br#","approximate":false}"#);
    Ok(text)
}

/// Writes the counts of a user: by range, action, view where views count one by one, entity and key.
fn write_user(text: &mut Vec<u8>, question: &Question, cells: &Cells) {
    let mut cells = cells.iter();
    object(
        text,
        question.ranges.iter().map(|range| &*range.name),
        |text, _| {
            object(
                text,
                question.actions.iter().map(String::as_str),
                |text, _| {
                    let mut by_entity = |text: &mut Vec<u8>| {
                        object(
                            text,
                            question.entities.iter().map(|(name, _)| name.as_str()),
                            |text, index| {
                                object(
                                    text,
                                    question.entities[index].1.iter().map(String::as_str),
                                    |text, _| {
                                        let count = cells.next().copied().unwrap_or(0);
                                        text.extend_from_slice(count.to_string().as_bytes());
                                    },
                                );
                            },
                        );
                    };
                    match question.by_view {
                        true => object(
                            text,
                            question.views.iter().map(String::as_str),
                            |text, _| by_entity(text),
                        ),
                        false => by_entity(text),
                    }
                },
            );
        },
    );
}

/// Writes an object with these names, and the value of each by its index.
fn object<'n>(
    text: &mut Vec<u8>,
    names: impl Iterator<Item = &'n str>,
    mut value: impl FnMut(&mut Vec<u8>, usize),
) {
    text.push(b'{');
    for (index, name) in names.enumerate() {
        if index > 0 {
            text.push(b',');
        }
        json_text(text, name);
        text.push(b':');
        value(text, index);
    }
    text.push(b'}');
}
