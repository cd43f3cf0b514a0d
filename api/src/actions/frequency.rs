//! `POST /v1/actions/frequency`: how many users something reached, and how many of them how often.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::View;
use tallyring_records::{Action, KEY_BYTES_MAX, Schema, UserKey, What, add_capped};

use super::caps::ActionRules;
use super::fields::Fields;
use super::question::{
    CANDIDATES_MAX, at_most, check_action, check_at, check_entity, check_kept, check_lengths,
    unique,
};
use super::range::Range;
use super::read_question;
use crate::access::Length;
use crate::problem::{Problem, Result};
use crate::state::ApiState;
use crate::work::reading;
use crate::write::event::VIEW_BYTES_MAX;

const BODY_BYTES_MAX: usize = 512 << 10;
/// Users who did it so often, or more often, stand together.
const TIMES_MAX: usize = 20;
const EXAMPLE: &str = r#"{"entity":{"ad":"42"},"action":"impression","range":"7d"}"#;
const KNOWN: &str = "entity, action, range, view and at";

/// Users by how often they did it.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Frequency {
    /// Users who did it at least once
    reach: u64,
    /// How often they did it together
    actions: u64,
    /// Once, twice, and so on up to 20 times or more
    frequency: Vec<Times>,
    /// Everything before this position of the log was counted
    position: String,
    /// Whether actions count that are known by their hour alone
    approximate: bool,
}

/// Users who did it so often.
#[derive(Serialize, utoipa::ToSchema)]
struct Times {
    times: u64,
    /// True where those who did it more often stand here, too
    #[serde(skip_serializing_if = "Option::is_none")]
    or_more: Option<bool>,
    users: u64,
}

/// A question for all users.
struct Question {
    entity: String,
    key: String,
    action: String,
    /// Views that count; all where there are none.
    views: Vec<String>,
    range: Range,
    /// The moment that the range ends with, Unix seconds.
    at: i64,
}

/// Reach and frequency
///
/// How many users an ad, a campaign or any other entity reached in a range, and how many of them saw it once, twice,
/// and so on. Users are counted exactly, not estimated. The range is a length (`7d`) before `at`, or a calendar unit
/// that holds it (`calendar:month@Europe/Berlin`). `view` counts only these views. The answer reads what all users did
/// in the range, so it takes longer than others.
#[utoipa::path(post, path = "/v1/actions/frequency", operation_id = "frequency_of_actions", tag = "actions",
    params(("after" = Option<String>, Query, description = "The `position` of an answer: this one counts everything before it, or is 503 after 100 ms", example = "2:881")),
    request_body(content = String, content_type = "application/json", example = json!({
        "entity": {"ad": "42"}, "action": "impression", "range": "7d", "view": ["home"],
    })),
    responses((status = 200, description = "Users by how often they did it", body = Frequency, example = json!({
        "reach": 1204, "actions": 1711, "frequency": [
            {"times": 1, "users": 881}, {"times": 2, "users": 193}, {"times": 20, "or_more": true, "users": 2},
        ], "position": "2:881", "approximate": false}))),
)]
pub(crate) async fn frequency(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let bytes = read_question(&state, (&uri, &headers), body, BODY_BYTES_MAX).await?;
    let (schema, rules) = (state.store().schema(), state.actions());
    let declared = (&*schema, &*rules);
    let question = Question::parse(&bytes, declared, state.now())?;
    reading(&state, Length::Longest, move |view| {
        let kept = [(header::CACHE_CONTROL, "no-store")];
        Ok((kept, Json(question.answer(view)?)).into_response())
    })
    .await
}

impl Question {
    fn parse(bytes: &[u8], (schema, rules): (&Schema, &ActionRules), now: i64) -> Result<Self> {
        let mut fields = Fields::of_body(bytes, EXAMPLE)?;
        let action = fields.required("action")?;
        check_action("action", &action, schema)?;
        let mut entities = fields.object("entity")?;
        let names = entities.names();
        let [entity] = names.as_slice() else {
            let detail = "must name one entity with its key, such as {\"ad\":\"42\"}";
            return Err(Problem::malformed("entity", "", detail));
        };
        let name = entities.name(entity);
        check_entity(&name, entity, std::slice::from_ref(&action), schema)?;
        let key = entities.required(entity)?;
        check_lengths(&name, std::slice::from_ref(&key), KEY_BYTES_MAX)?;
        let range = Range::parse("range", &fields.required("range")?, rules.keep_days)?;
        let views = unique(fields.texts("view")?.unwrap_or_default());
        check_lengths("view", &views, VIEW_BYTES_MAX)?;
        at_most("view", views.len(), CANDIDATES_MAX)?;
        let at = fields.instant("at")?.unwrap_or(now);
        check_at(at, now)?;
        fields.finish(KNOWN)?;
        Ok(Self {
            entity: entity.clone(),
            key,
            action,
            views,
            range,
            at,
        })
    }

    fn answer(&self, view: &View<'_>) -> Result<Frequency> {
        let key = view.stored(&self.key);
        let views: Vec<_> = self.views.iter().map(|name| view.stored(name)).collect();
        let counts = |action: &Action<'_>| {
            let what = std::str::from_utf8(action.what).ok().and_then(What::parse);
            what.is_some_and(|what| {
                what.kind == self.action
                    && what.entity(&self.entity) == Some(&key)
                    && (views.is_empty() || views.iter().any(|view| what.view == Some(view)))
            })
        };
        let mut counted = Counted::default();
        let range = self.range.start(self.at)..self.at + 1;
        check_kept("range", range.start, view)?;
        view.all_actions(&range, &mut |user, _, action, n| {
            if counts(&action) {
                counted.add(user, n);
                counted.is_approximate |= action.by_hour;
            }
        })?;
        Ok(counted.answer(view))
    }
}

/// Users who were counted, by how often they did it.
#[derive(Default)]
struct Counted {
    users: [u64; TIMES_MAX],
    actions: u64,
    /// The user who comes at present, and how often this user did it so far.
    present: Option<(UserKey, u64)>,
    is_approximate: bool,
}

impl Counted {
    fn add(&mut self, user: UserKey, n: u64) {
        add_capped(&mut self.actions, n);
        match &mut self.present {
            Some((present, times)) if *present == user => add_capped(times, n),
            _ => {
                self.end_user();
                self.present = Some((user, n));
            }
        }
    }

    fn end_user(&mut self) {
        if let Some((_, times)) = self.present.take() {
            let most = TIMES_MAX as u64;
            // An action is counted once at least.
            self.users[times.clamp(1, most) as usize - 1] += 1;
        }
    }

    fn answer(mut self, view: &View<'_>) -> Frequency {
        self.end_user();
        let times = (1..).zip(self.users).map(|(times, users)| Times {
            times,
            or_more: (times == TIMES_MAX as u64).then_some(true),
            users,
        });
        Frequency {
            reach: self.users.iter().sum(),
            actions: self.actions,
            frequency: times.collect(),
            position: view.position().to_string(),
            approximate: self.is_approximate,
        }
    }
}
