//! `POST /v1/actions/reserve`: the first candidate that all caps allow is held for a user, in the same step.
//!
//! Where the store keeps holds in the log, the answer waits until the hold is there.
//!
//! The view is read without any lock. Only to judge the candidates and to hold one the user's holds are locked, and
//! the view is read again where an action meanwhile ceased to be a hold ([`NotHeld::Stale`]).
//!
//! In a store of several strands the view is of all, and the node decides that writes the strand of the user.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::{
    Batch, Held, Holds, Made, NotHeld, Part, Reading, ReservationId, Store, Stores, Terms,
};
use tallyring_records::{Event, EventType, FieldError, ID_BYTES_MAX, Increment, Schema};
use tokio::sync::Semaphore;

use super::ask::{self, Ask, TRIES, stale};
use super::caps::ActionRules;
use super::fields::Fields;
use super::question::check_action;
use super::verdict::{Judge, Verdict};
use super::{BODY_BYTES_MAX, read_question};
use crate::access::{Caller, Denial};
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::query_string::NoParameters;
use crate::segments::Segments;
use crate::state::ApiState;
use crate::work::Begun;
use crate::write::event::VIEW_BYTES_MAX;

/// Counts what became of reservations, by `outcome`.
pub(crate) const RESERVATIONS: &str = "tallyring_reservations_total";
/// The outcome that the store counts.
pub(crate) const EXPIRED: &str = "expired";
/// The outcomes that are counted.
pub(crate) const OUTCOMES: [&str; 6] = [
    "held",
    "blocked",
    "confirmed",
    "released",
    EXPIRED,
    "missed",
];

pub(crate) const PATH: &str = "/v1/actions/reserve";
const EXAMPLE: &str = r#"{"user":"u1","candidates":[{"ad":"1","campaign":"7"},{"ad":"2","campaign":"7"}],"hold":"60s"}"#;
const KNOWN: &str = "user, candidates, caps, action, view, hold and id";
const ACTION_DEFAULT: &str = "impression";
const HOLD_DEFAULT_S: i64 = 60;
const HOLD_MAX_S: i64 = Holds::MS_MAX / 1_000;

/// The outcome of a request for a reservation.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Reserved {
    user: String,
    /// Verdicts on the candidates up to the reserved one, or on all
    candidates: Vec<Verdict>,
    /// Index of the candidate that is held; left out where caps block all
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<usize>,
    /// Confirms or releases it
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    /// When it counts no more, unless it is confirmed
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    /// Everything before this position of the log was counted
    position: String,
    /// True where actions counted that are known by their hour alone; left out otherwise
    #[serde(skip_serializing_if = "Option::is_none")]
    approximate: Option<bool>,
}

/// A request for a reservation.
struct Reserve {
    ask: Ask,
    kind: EventType,
    view: Option<String>,
    hold_s: i64,
    /// The client's name of the request, by which a retry is known.
    id: Option<String>,
    client: Client,
}

/// The client that reserves.
#[derive(Clone)]
struct Client {
    /// The identity of its key; empty without keys.
    identity: String,
    room: Option<(Arc<Semaphore>, Denial)>,
}

/// An answer, and the hold that it names.
struct Answered {
    response: Response,
    held: Option<ReservationId>,
}

/// How one try ended.
enum Tried {
    Answered(Box<Answered>),
    /// Memory cannot answer.
    NotCached,
    /// The view was too old.
    Stale,
}

/// Check caps and hold
///
/// Holds the first of the candidates that all caps allow, in one step: however many servers ask at once, no cap is
/// exceeded by what is reserved or confirmed. The reservation counts in checks and further reservations until
/// `expires`. An event with `"reservation":"r…"`, of the same user and type, confirms it; a DELETE releases it. `hold`
/// is `1s` to `10m`. A retry with the same `id` gets the reservation that it has. A restart forgets
/// reservations, unless the configuration keeps them in the log.
#[utoipa::path(post, path = "/v1/actions/reserve", operation_id = "reserve_actions", tag = "actions",
    params(("after" = Option<String>, Query, description = "The `position` of an answer: this one counts everything before it, or is 503 after 100 ms", example = "2:881")),
    request_body(content = String, content_type = "application/json", example = json!({
        "user": "u1", "candidates": [{"ad": "1", "campaign": "7"}, {"ad": "2", "campaign": "7"}], "caps": ["ad_day"],
        "action": "impression", "view": "home", "hold": "60s", "id": "page-8fe1-slot-2",
    })),
    responses(
        (status = 200, description = "What is held, if anything; verdicts on the candidates up to it", body = Reserved,
            example = json!({
                "user": "u1", "candidates": [
                    {"allowed": false, "by": {"cap": "ad_day", "count": 3, "limit": 3, "again_at": "2012-03-17T11:20:07Z"}},
                    {"allowed": true},
                ], "reserved": 1, "reservation": "r00c1f53a7be09d1c55aa0e42", "expires": "2012-03-16T18:41:47Z",
                "position": "2:881"})),
        (status = 429, description = "The reservations of this client take what one client may have", body = crate::problem::Document,
            content_type = "application/problem+json"),
        (status = 503, description = "The memory of reservations is full", body = crate::problem::Document,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn reserve(
    State(state): State<ApiState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let begun = begin(&state, &caller, (&uri, &headers), body).await?;
    begun.answer().await
}

/// Begins to reserve, and ends that at once where memory can judge the candidates.
pub(super) async fn begin(
    state: &ApiState,
    caller: &Caller,
    head: (&Uri, &HeaderMap),
    body: Body,
) -> Result<Begun> {
    let bytes = read_question(state, head, body, BODY_BYTES_MAX).await?;
    let rules = state.actions();
    let client = Client {
        identity: caller
            .identity()
            .map_or_else(String::new, ToString::to_string),
        room: state.access.room_for_reservations(caller),
    };
    let parse = move |bytes: &[u8], schema: &Schema| {
        Reserve::parse(bytes, (schema, &rules), client.clone())
    };
    Ok(match ask::begin(state, bytes, parse, Reserve::answer)? {
        Begun::Answered(answered) => Begun::Answered(keep(state, answered).await?),
        Begun::Large(answering) => {
            let state = state.clone();
            Begun::Large(Box::pin(async move {
                let answered = answering.await?;
                keep(&state, answered).await
            }))
        }
    })
}

/// Waits until the hold is in the log, where the store keeps holds there. Fails where the log does, and where this node
/// does not write it any more: another one does not know the hold.
async fn keep(state: &ApiState, answered: Answered) -> Result<Response> {
    let Some(held) = answered.held else {
        return Ok(answered.response);
    };
    let service = &state.strands.services()[state.stores().strand_of_hold(held)];
    let store = service.store();
    if store.options().logs_holds {
        let batch = Batch {
            held: Some(held),
            ..Batch::default()
        };
        if let Err(refusal) = service.submit(batch).await {
            // A retry may have been told of a hold with an id: that one stays until it expires.
            if !held.is_given() {
                store.release(held);
            }
            return Err(refusal.into());
        }
    }
    Ok(answered.response)
}

/// Release a reservation
///
/// It no longer counts. A reservation that expired, was confirmed or was released is unknown: a retry that gets 404 may
/// go on.
#[utoipa::path(delete, path = "/v1/actions/reservations/{reservation}", operation_id = "release_reservation",
    tag = "actions",
    params(("reservation" = String, Path, description = "As it was answered", example = "r00c1f53a7be09d1c55aa0e42")),
    responses((status = 204, description = "Released")),
)]
pub(crate) async fn release(
    State(state): State<ApiState>,
    Segments(reservation): Segments<String>,
    _: NoParameters,
) -> Result<StatusCode> {
    let id = reservation.parse::<ReservationId>().ok();
    let Some(id) = id.filter(|id| state.store().release(*id)) else {
        let detail = "is not held: it expired, was confirmed or released, or never was";
        return Err(Problem::unknown("reservation", &reservation, detail));
    };
    note("released");
    if state.store().options().logs_holds {
        let batch = Batch {
            released: Some(id),
            ..Batch::default()
        };
        state.count(batch).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Counts what became of a reservation.
pub(crate) fn note(outcome: &'static str) {
    metrics::counter!(RESERVATIONS, "outcome" => outcome).increment(1);
}

impl Reserve {
    fn parse(bytes: &[u8], rules: (&Schema, &ActionRules), client: Client) -> Result<Self> {
        let mut fields = Fields::of_body(bytes, EXAMPLE)?;
        let ask = Ask::take(&mut fields, rules)?;
        let (schema, _) = rules;
        let action = fields.text("action")?;
        let action = action.as_deref().unwrap_or(ACTION_DEFAULT);
        check_action("action", action, schema)?;
        let kind = schema.event_type(action).cloned();
        if !ask.caps.iter().any(|cap| cap.action == action) {
            let detail = "is counted by none of these caps, so to hold it would keep nobody from showing more; name the \
                          action that they count, or other `caps`";
            return Err(FieldError::refused("action", action, detail).into());
        }
        let view = fields.short_text("view", VIEW_BYTES_MAX)?;
        let id = fields.short_text("id", ID_BYTES_MAX)?;
        let hold_s = fields.text("hold")?.map(|text| hold(&text)).transpose()?;
        if fields.names().iter().any(|name| name == "at") {
            let detail = "is not asked here: a reservation is about now; leave `at` out";
            return Err(Problem::malformed("at", "", detail));
        }
        fields.finish(KNOWN)?;
        Ok(Self {
            ask,
            kind: kind.expect("BUG: it was checked"),
            view,
            hold_s: hold_s.unwrap_or(HOLD_DEFAULT_S),
            id,
            client,
        })
    }

    /// Holds what caps allow; none where memory does not answer, and nothing else may (`at_once`). Fails where there is
    /// no room, and where no view stays new enough.
    fn answer(
        &self,
        stores: &Stores,
        reading: &Reading,
        at_once: bool,
    ) -> Result<Option<Answered>> {
        for _ in 0..TRIES {
            match self.try_once(stores, reading, at_once)? {
                Tried::Answered(answered) => return Ok(Some(*answered)),
                Tried::NotCached => return Ok(None),
                Tried::Stale => {}
            }
        }
        Err(stale())
    }

    fn try_once(&self, stores: &Stores, reading: &Reading, at_once: bool) -> Result<Tried> {
        let store = stores.of_user(&self.ask.user);
        if store.part() != Part::Writes {
            return Err(Problem::unavailable(
                "Another node decides about reservations of this user by now; retry in a moment.",
            ));
        }
        let now = store.world().clock.now_ms().div_euclid(1_000);
        let view = stores.view_for(reading.clone());
        let Some(found) = view.actions(self.ask.users(), &self.ask.span_now(now), at_once)? else {
            return Ok(Tried::NotCached);
        };
        let judge = Judge::new(&self.ask, &view, &found, now);
        let (mut reserved, mut beside) = (None, Vec::new());
        let pick = |held: &[Held]| {
            let by_key = judge.held(held);
            reserved = (0..judge.candidates()).find(|&index| judge.allows(index, &by_key));
            beside = held.to_vec();
            reserved.map(|index| store.what(&self.kind, &self.action(index, now)))
        };
        let (user, position) = (&self.ask.user, view.position());
        let id = self.id.as_ref();
        let terms = Terms {
            id: id.map(|id| store.reservation_id(&self.client.identity, user, id)),
            room: self.client.room.as_ref().map(|(room, _)| room),
            seen: position.offsets(),
        };
        let made = match store.reserve(&view, user, self.hold_s * 1_000, terms, pick) {
            Ok(made) => made,
            Err(NotHeld::Stale) => return Ok(Tried::Stale),
            Err(refusal) => return Err(self.refused(refusal)),
        };
        let is_before = matches!(made, Made::Before { .. });
        let (id, left_s) = match made {
            Made::Nothing => {
                note("blocked");
                (None, 0)
            }
            Made::New(id) => {
                note("held");
                (Some(id), self.hold_s)
            }
            Made::Before { hold, others } => {
                reserved = Some(self.place_of(&hold, store, now)?);
                beside = others;
                (Some(hold.id), hold.left_ms.div_euclid(1_000))
            }
        };
        let by_key = judge.held(&beside);
        let judged = reserved.map_or(judge.candidates(), |index| index + 1);
        let verdicts = (0..judged).map(|index| judge.verdict(index, &by_key, now));
        let mut candidates: Vec<Verdict> = verdicts.collect();
        if let (true, Some(reserved)) = (is_before, reserved) {
            // Others may count meanwhile, but not against what is held.
            candidates[reserved] = Verdict::allowed();
        }
        let is_approximate = candidates.iter().any(|verdict| verdict.is_approximate);
        let reserved = Reserved {
            user: self.ask.user.clone(),
            candidates,
            reserved,
            reservation: id.map(|id| id.to_string()),
            expires: id.map(|_| rfc3339_utc(now + left_s)),
            position: position.to_string(),
            approximate: is_approximate.then_some(true),
        };
        let response = ([(header::CACHE_CONTROL, "no-store")], Json(reserved)).into_response();
        Ok(Tried::Answered(Box::new(Answered { response, held: id })))
    }

    /// The candidate that is held. Fails where none is.
    fn place_of(&self, hold: &Held, store: &Store, now: i64) -> Result<usize> {
        let is_held =
            |&index: &usize| store.what(&self.kind, &self.action(index, now)) == hold.what;
        let place = (0..self.ask.candidates.len()).find(is_held);
        place.ok_or_else(|| {
            let detail =
                "names a reservation of something else; give each request an `id` of its own";
            self.wrong_id(detail)
        })
    }

    fn wrong_id(&self, detail: &str) -> Problem {
        let id = self.id.as_deref().unwrap_or_default();
        FieldError::refused("id", id, detail).into()
    }

    fn refused(&self, refusal: NotHeld) -> Problem {
        match refusal {
            NotHeld::TooMany => {
                let detail = format!(
                    "has {} live reservations, the most of one user; confirm or release some first",
                    Holds::OF_USER_MAX
                );
                FieldError::refused("user", "", detail).into()
            }
            NotHeld::Stale => stale(),
            NotHeld::Ended => {
                let detail = "names a reservation that was confirmed or released; give each request an `id` of its own";
                self.wrong_id(detail)
            }
            NotHeld::NoRoom => {
                let (_, denial) = self.client.room.clone().expect("BUG: it bounds");
                denial.into()
            }
            NotHeld::Full => Problem::unavailable(
                "The memory of reservations is full; nothing is held, retry after a second.",
            ),
        }
    }

    /// The event that showing a candidate would be. It has the entities that its type may name.
    fn action(&self, candidate: usize, now: i64) -> Increment {
        let candidate = &self.ask.candidates[candidate];
        let named = self.kind.entities.iter().filter_map(|entity| {
            let key = candidate.key(entity)?;
            Some((self.kind.namespace_of(entity), key))
        });
        let event = Event {
            kind: self.kind.name.clone(),
            view: self.view.clone(),
            correction: false,
        };
        Increment {
            event: Some(Box::new(event)),
            ..Increment::new(now, 1, named)
        }
    }
}

/// Reads for how long something is held: `45s` or `2m`, in seconds.
fn hold(text: &str) -> Result<i64> {
    let unit = match text.as_bytes().last() {
        Some(b's') => Some(1),
        Some(b'm') => Some(60),
        _ => None,
    };
    let number = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: Option<i64> = number.parse().ok().filter(|_| is_number);
    let (Some(unit), true) = (unit, is_number) else {
        let detail = "must be a length such as `45s` or `2m`";
        return Err(Problem::malformed("hold", text, detail));
    };
    let seconds = number.and_then(|number| number.checked_mul(unit));
    match seconds {
        Some(seconds @ 1..=HOLD_MAX_S) => Ok(seconds),
        _ => {
            let detail = "must be from 1s to 10m";
            Err(FieldError::refused("hold", text, detail).into())
        }
    }
}
