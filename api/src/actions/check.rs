//! `POST /v1/actions/check`: whether declared caps let a user see each of several candidates.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::{Did, Reading, UserActions, View};
use tallyring_records::{FieldError, KEY_BYTES_MAX, What, sum_capped};

use super::caps::{ActionRules, Bound, Cap};
use super::fields::Fields;
use super::question::{CANDIDATES_MAX, at_most, check_at, check_lengths, check_user, unique};
use super::{BODY_BYTES_MAX, BYTES_AT_ONCE, PARSED_TIMES, refuse_parameters};
use crate::access::Length;
use crate::body;
use crate::calendar::rfc3339_utc;
use crate::problem::Problem;
use crate::refusals::{BodyErrors, ReadErrors};
use crate::state::ApiState;
use crate::work::reading;

const EXAMPLE: &str = r#"{"user":"u1","candidates":[{"ad":"1","campaign":"7"}],"caps":["ad_day"]}"#;
const KNOWN: &str = "user, candidates, caps and at";

/// The verdict on every candidate, in the order of the question.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Verdicts {
    user: String,
    candidates: Vec<Verdict>,
    /// Everything before this position of the log was counted
    position: String,
}

/// Whether all caps allow a candidate.
#[derive(Serialize, utoipa::ToSchema)]
struct Verdict {
    allowed: bool,
    /// The cap that blocks it for the longest time
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Blocked>,
    /// True when a floor is not reached yet
    #[serde(skip_serializing_if = "Option::is_none")]
    below_floor: Option<bool>,
}

/// A cap that blocks.
#[derive(Serialize, utoipa::ToSchema)]
struct Blocked {
    cap: String,
    count: u64,
    limit: u64,
    /// When it no longer blocks, unless more is counted; none for a limit of 0
    again_at: Option<String>,
}

/// A question about caps.
struct Check {
    user: String,
    at: i64,
    /// Caps to apply.
    caps: Vec<Cap>,
    /// Entities of each candidate, raw.
    candidates: Vec<HashMap<String, String>>,
}

/// Whether caps allow candidates
///
/// Every candidate must be allowed by all caps that are named, or by all declared caps. The answer names the cap that
/// blocks a candidate for the longest time, its count, and when it ends. A candidate must name each entity that a cap
/// counts: a cap is never passed over. `at` asks for a moment of the past.
#[utoipa::path(post, path = "/v1/actions/check", operation_id = "check_actions", tag = "actions",
    request_body(content = String, content_type = "application/json", example = json!({
        "user": "u1", "candidates": [{"ad": "1", "campaign": "7"}, {"ad": "2", "campaign": "7"}], "caps": ["ad_day"],
    })),
    responses(
        (status = 200, description = "A verdict on every candidate", body = Verdicts, example = json!({
            "user": "u1", "candidates": [
                {"allowed": false, "by": {"cap": "ad_day", "count": 3, "limit": 3, "again_at": "2012-03-17T11:20:07Z"}},
                {"allowed": true},
            ], "position": "2:881"})),
        ReadErrors,
        BodyErrors,
    ),
)]
pub(crate) async fn check(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    refuse_parameters(&uri)?;
    let bytes = body::read(&headers, body, BODY_BYTES_MAX).await?;
    let (rules, now) = (Arc::clone(&state.actions), state.now());
    let is_small = bytes.len() <= BYTES_AT_ONCE;
    let parse = move |view: &View<'_>| {
        let _parsed = view.reading().charge_of(PARSED_TIMES * bytes.len())?;
        Check::parse(&bytes, &rules, now)
    };
    if is_small {
        let store = state.store();
        let view = store.view_for(Reading::new(store.read_budget()));
        let check = parse(&view)?;
        // A check that memory can answer is answered here: to wait for another thread takes longer.
        if let Some(found) = view.actions_cached(check.users(), &check.span())? {
            return Ok(Json(check.answer(&view, &found)).into_response());
        }
    }
    reading(&state, Length::Short, move |view| {
        let check = parse(view)?;
        let found = view.actions(check.users(), &check.span())?;
        Ok(Json(check.answer(view, &found)).into_response())
    })
    .await
}

impl Check {
    fn parse(bytes: &[u8], rules: &ActionRules, now: i64) -> Result<Self, Problem> {
        let mut fields = Fields::of_body(bytes, EXAMPLE)?;
        let user = fields.text("user")?;
        let user = user.ok_or_else(|| Problem::malformed("user", "", "is missing"))?;
        check_user("user", &user)?;
        let caps = caps(fields.texts("caps")?, rules)?;
        let asked = fields.objects("candidates")?;
        at_most("candidates", asked.len(), CANDIDATES_MAX)?;
        let at = fields.instant("at")?.unwrap_or(now);
        check_at(at, now)?;
        fields.finish(KNOWN)?;
        let candidates = asked.into_iter().map(|fields| candidate(fields, &caps));
        Ok(Self {
            user,
            at,
            candidates: candidates.collect::<Result<_, _>>()?,
            caps,
        })
    }

    fn users(&self) -> &[String] {
        std::slice::from_ref(&self.user)
    }

    /// The range that holds the ranges of all caps, Unix seconds.
    fn span(&self) -> Range<i64> {
        let starts = self.caps.iter().map(|cap| cap.within.start(self.at));
        starts.min().unwrap_or(self.at)..self.at + 1
    }

    fn answer(&self, view: &View<'_>, found: &UserActions) -> Verdicts {
        let counted = |cap| Counted::of(cap, found, self.at, view);
        let of_caps: Vec<Counted> = self.caps.iter().map(counted).collect();
        let candidates = self.candidates.iter().map(|candidate| {
            let mut verdict = Verdict {
                allowed: true,
                by: None,
                below_floor: None,
            };
            let mut until = None;
            for (cap, counted) in self.caps.iter().zip(&of_caps) {
                let key = candidate.get(&cap.entity).map(|key| view.stored(key));
                let done = key.and_then(|key| counted.by_key.get(&*key));
                let count = done.map_or(0, |done| sum_capped(done.iter().map(|did| did.n)));
                match cap.bound {
                    Bound::Floor(floor) if count < floor => verdict.below_floor = Some(true),
                    Bound::Limit(limit) if count >= limit => {
                        let again = again_at(cap, done.map_or(&[], Vec::as_slice), count, limit);
                        // None is never, which is later than any time.
                        if verdict.allowed
                            || again.is_none()
                            || until.is_some_and(|until| again > Some(until))
                        {
                            until = again;
                            verdict.by = Some(Blocked {
                                cap: cap.name.clone(),
                                count,
                                limit,
                                again_at: again.map(rfc3339_utc),
                            });
                        }
                        verdict.allowed = false;
                    }
                    _ => {}
                }
            }
            verdict
        });
        Verdicts {
            candidates: candidates.collect(),
            position: view.applied().to_string(),
            user: self.user.clone(),
        }
    }
}

/// The actions that one cap counts.
struct Counted<'f> {
    /// The actions of each key of its entity, oldest first.
    by_key: HashMap<&'f str, Vec<Did>>,
}

impl<'f> Counted<'f> {
    fn of(cap: &Cap, found: &'f UserActions, at: i64, view: &View<'_>) -> Self {
        let views: Vec<_> = cap.views.iter().map(|name| view.stored(name)).collect();
        let start = cap.within.start(at);
        let mut by_key: HashMap<&str, Vec<Did>> = HashMap::new();
        for did in found
            .users
            .iter()
            .flatten()
            .filter(|did| did.until() > start)
        {
            let what = std::str::from_utf8(found.whats.get(did.what)).ok();
            let Some(what) = what
                .and_then(What::parse)
                .filter(|what| what.kind == cap.action)
            else {
                continue;
            };
            let is_of_views = views.is_empty() || views.iter().any(|view| what.view == Some(view));
            if let Some(key) = what.entity(&cap.entity).filter(|_| is_of_views) {
                by_key.entry(key).or_default().push(*did);
            }
        }
        by_key
            .values_mut()
            .for_each(|done| done.sort_unstable_by_key(|did| did.at));
        Self { by_key }
    }
}

/// When fewer than `limit` of the `count` actions are left, Unix seconds; none where that never comes.
fn again_at(cap: &Cap, done: &[Did], count: u64, limit: u64) -> Option<i64> {
    let mut left = count;
    let gone = done.iter().find(|did| {
        left = left.saturating_sub(did.n);
        left < limit
    });
    gone.map(|did| cap.within.left_at(did.at))
}

/// The caps with these names; all declared ones where no names are given.
fn caps(names: Option<Vec<String>>, rules: &ActionRules) -> Result<Vec<Cap>, Problem> {
    let declared: Vec<&str> = rules.caps.iter().map(|cap| cap.name.as_str()).collect();
    if declared.is_empty() {
        let detail =
            "cannot be asked for: no cap is declared; add [caps.<name>] to the configuration";
        return Err(FieldError::refused("caps", "", detail).into());
    }
    let Some(names) = names else {
        return Ok(rules.caps.clone());
    };
    let cap = |name: &String| {
        let cap = rules.caps.iter().find(|cap| cap.name == *name).cloned();
        cap.ok_or_else(|| {
            let detail = format!("must be declared caps: {}", declared.join(", "));
            FieldError::refused("caps", name, detail).into()
        })
    };
    unique(names).iter().map(cap).collect()
}

/// The entities of a candidate, which names all that the caps count.
fn candidate(mut fields: Fields<'_>, caps: &[Cap]) -> Result<HashMap<String, String>, Problem> {
    let mut entities = HashMap::new();
    for name in fields.names() {
        if let Some(key) = fields.text(&name)? {
            check_lengths(
                &fields.name(&name),
                std::slice::from_ref(&key),
                KEY_BYTES_MAX,
            )?;
            entities.insert(name, key);
        }
    }
    match caps.iter().find(|cap| !entities.contains_key(&cap.entity)) {
        None => Ok(entities),
        Some(cap) => {
            let detail = format!(
                "is missing: the cap `{}` counts it; name it, or ask with other `caps`",
                cap.name
            );
            Err(FieldError::refused(fields.name(&cap.entity), "", detail).into())
        }
    }
}
