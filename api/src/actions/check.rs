//! `POST /v1/actions/check`: whether declared caps let a user see each of several candidates.

use std::ops::Range;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::{Held, Reading, Stores, UserActions, View};
use tallyring_records::Schema;

use super::ask::{self, Ask, TRIES, stale};
use super::caps::ActionRules;
use super::fields::Fields;
use super::question::{check_at, check_kept};
use super::verdict::{Judge, Verdict};
use super::{BODY_BYTES_MAX, read_question};
use crate::after;
use crate::orders;
use crate::problem::Result;
use crate::state::ApiState;
use crate::work::Begun;

pub(super) const PATH: &str = "/v1/actions/check";
const EXAMPLE: &str = r#"{"user":"u1","candidates":[{"ad":"1","campaign":"7"}],"caps":["ad_day"]}"#;
const KNOWN: &str = "user, candidates, caps and at";

/// The verdict on every candidate, in the order of the question.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Verdicts {
    user: String,
    candidates: Vec<Verdict>,
    /// Everything before this position of the log was counted
    position: String,
    /// True where actions counted that are known by their hour alone; left out otherwise
    #[serde(skip_serializing_if = "Option::is_none")]
    approximate: Option<bool>,
}

/// A question about caps.
struct Check {
    ask: Ask,
    now: i64,
    /// A moment of the past; now where there is none.
    at: Option<i64>,
}

/// Whether caps allow candidates
///
/// Every candidate must be allowed by all caps that are named, or by all declared caps. The answer names the cap that
/// blocks a candidate for the longest time, its count, and when it ends. A candidate must name each entity that a cap
/// counts: a cap is never passed over. Live reservations count, too. `at` asks for a moment of the past, without
/// reservations.
#[utoipa::path(post, path = "/v1/actions/check", operation_id = "check_actions", tag = "actions",
    params(("after" = Option<String>, Query, description = "The `position` of an answer: this one counts everything before it, or is 503 after 100 ms", example = "2:881")),
    request_body(content = String, content_type = "application/json", example = json!({
        "user": "u1", "candidates": [{"ad": "1", "campaign": "7"}, {"ad": "2", "campaign": "7"}], "caps": ["ad_day"],
    })),
    responses((status = 200, description = "A verdict on every candidate", body = Verdicts, example = json!({
        "user": "u1", "candidates": [
            {"allowed": false, "by": {"cap": "ad_day", "count": 3, "limit": 3, "again_at": "2012-03-17T11:20:07Z"}},
            {"allowed": true},
        ], "position": "2:881"}))),
)]
pub(crate) async fn check(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    begin(&state, (&uri, &headers), body).await?.answer().await
}

/// Begins a check, and answers it at once where memory can answer it.
pub(super) async fn begin(state: &ApiState, head: (&Uri, &HeaderMap), body: Body) -> Result<Begun> {
    let bytes = read_question(state, head, body, BODY_BYTES_MAX).await?;
    let stores = state.stores();
    if stores.all().len() > 1
        && let Some(user) = orders::user_of(&bytes).await
    {
        after::caught_up(stores, &stores.needed_by(&user)).await?;
    }
    let (rules, now) = (state.actions(), state.now());
    let parse = move |bytes: &[u8], schema: &Schema| Check::parse(bytes, (schema, &rules), now);
    ask::begin(state, bytes, parse, Check::answer)
}

impl Check {
    fn parse(bytes: &[u8], rules: (&Schema, &ActionRules), now: i64) -> Result<Self> {
        let mut fields = Fields::of_body(bytes, EXAMPLE)?;
        let ask = Ask::take(&mut fields, rules)?;
        let at = fields.instant("at")?;
        check_at(at.unwrap_or(now), now)?;
        fields.finish(KNOWN)?;
        Ok(Self { ask, now, at })
    }

    /// The range that holds the ranges of all caps, Unix seconds.
    fn span(&self) -> Range<i64> {
        match self.at {
            None => self.ask.span_now(self.now),
            Some(at) => self.ask.start(at)..at + 1,
        }
    }

    /// The verdicts; none where memory does not answer, and nothing else may (`at_once`). Fails where no view stays new
    /// enough.
    fn answer(
        &self,
        stores: &Stores,
        reading: &Reading,
        at_once: bool,
    ) -> Result<Option<Response>> {
        for _ in 0..TRIES {
            let view = stores.view_for(reading.clone());
            let span = self.span();
            // Caps of the present reach back to nothing that is gone: longer ones are not declared.
            if self.at.is_some() {
                check_kept("at", span.start, &view)?;
            }
            let Some(found) = view.actions(self.ask.users(), &span, at_once)? else {
                return Ok(None);
            };
            // A question of the past knows no holds.
            let held = match self.at {
                None => stores.of_user(&self.ask.user).held(&view, &self.ask.user),
                Some(_) => Ok(Vec::new()),
            };
            if let Ok(held) = held {
                return Ok(Some(self.judged(&view, &found, &held)));
            }
        }
        Err(stale())
    }

    fn judged(&self, view: &View<'_>, found: &UserActions, held: &[Held]) -> Response {
        let at = self.at.unwrap_or(self.now);
        let judge = Judge::new(&self.ask, view, found, at);
        let held = judge.held(held);
        let verdicts = (0..judge.candidates()).map(|index| judge.verdict(index, &held, at));
        let candidates: Vec<Verdict> = verdicts.collect();
        let is_approximate = candidates.iter().any(|verdict| verdict.is_approximate);
        let verdicts = Verdicts {
            user: self.ask.user.clone(),
            candidates,
            position: view.position().to_string(),
            approximate: is_approximate.then_some(true),
        };
        ([(header::CACHE_CONTROL, "no-store")], Json(verdicts)).into_response()
    }
}
