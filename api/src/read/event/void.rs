//! `POST /v1/events/{id}/void`: a person takes an event out of the counts of its day.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;
use tallyring_realtime::{IdHistory, Logged, Store, VoidOrder, Voided, out_of_reach};
use tallyring_records::{Day, Record, Text, VOID_REASON_BYTES_MAX, Void, is_void_reason};

use super::{Missing, Sought, Whose, unseen};
use crate::access::Caller;
use crate::actions::fields::Fields;
use crate::body;
use crate::calendar::rfc3339_utc;
use crate::problem::{Document, Problem, Result};
use crate::segments::Segments;
use crate::state::ApiState;
use crate::work::blocking;

const BODY_BYTES_MAX: usize = 16 << 10;
const EXAMPLE: &str = r#"{"reason":"it was a test"}"#;
const EFFECT: &str = "The log has the void. Each day's count goes with the next reconcile of that day; until then all \
                      answers count as before.";

const PARTIAL: &str = " A file of older ids is damaged, so earlier counts of the id may stay: `tallyring verify \
                       --repair` heals it.";

const PENDING: &str =
    "No count changes before another API key orders the same void; the log has what was asked for.";

/// The reason for a void.
#[derive(utoipa::ToSchema)]
#[schema(example = json!({ "reason": "it was a test" }))]
#[expect(dead_code, reason = "describes a body, which is read by hand")]
pub(crate) struct VoidReason {
    /// 1 to 256 bytes without control characters; the log and the audit trail keep it
    reason: String,
}

/// The voids of an id.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct VoidedId {
    id: String,
    /// The source of a CloudEvent, within which the id is one
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    reason: String,
    /// Id of the API key; `installation` where there are none
    actor: String,
    /// One for each UTC day that counts the id and had no void of it before, the earliest count first
    voided: Vec<VoidedDay>,
    /// Days whose voids wait for the order of another key; left out where there are none
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending: Vec<VoidedDay>,
    /// When the counts change, and of which days they never do
    effect: String,
}

/// A void of an id for one UTC day.
#[derive(Serialize, utoipa::ToSchema)]
struct VoidedDay {
    day: String,
    /// Time of the event
    at: String,
    /// The identity that sent it; left out where it came before there were keys
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    /// Where in the log the void stands
    position: String,
}

/// Void an event
///
/// Takes an event or increment out of the counts of its day, by its id, and says why. The log keeps the event and says
/// that it was voided, by which key and for which reason. No count changes at once: the next reconcile of the day takes
/// the event away, with the cause `voided`. An id that counted on several days is voided on each. An event that repeats
/// the id stays a duplicate. A void cannot be taken back: send the event again with another id instead. With `four_eyes
/// = true` in the configuration the void is pending until another key sends the same request. Where no day of the event
/// can be reconciled any more, it is refused. Needs the scope `admin`.
#[utoipa::path(post, path = "/v1/events/{id}/void", operation_id = "void_event", tag = "operate",
    request_body = VoidReason,
    params(
        ("id" = String, Path, description = "An event's or increment's id, percent-encoded", example = "e1"),
        ("source" = Option<String>, Query, description = "The source of a CloudEvent", example = "/shop"),
        ("identity" = Option<String>, Query, description = "The identity that sent it, where several sent this id", example = "2bq4xyz7"),
    ),
    responses(
        (status = 201, description = "The event is voided", body = VoidedId, example = json!({
            "id": "e1", "reason": "it was a test", "actor": "2bq4xyz7", "voided": [{
                "day": "2012-03-16", "at": "2012-03-16T18:40:47Z", "identity": "2bq4xyz7", "position": "1:23" }],
            "effect": EFFECT,
        })),
        (status = 202, description = "Another key must order it, too", body = VoidedId, example = json!({
            "id": "e1", "reason": "it was a test", "actor": "2bq4xyz7", "voided": [], "pending": [{
                "day": "2012-03-16", "at": "2012-03-16T18:40:47Z", "identity": "2bq4xyz7", "position": "1:23" }],
            "effect": PENDING,
        })),
        (status = 409, description = "The id was voided before; `detail` says by whom, when and why", body = Document, content_type = "application/problem+json"),
        (status = 507, description = "The disk is full", body = Document, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn void(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(id): Segments<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse> {
    let (sought, identity) = Sought::new(id, query.as_deref())?;
    let whose = Whose::asked(&state, &caller, identity)?;
    let bytes = body::read(&headers, body, BODY_BYTES_MAX).await?;
    let mut fields = Fields::of_body(&bytes, EXAMPLE)?;
    let reason = fields.required("reason")?;
    fields.finish("reason")?;
    if !is_void_reason(&reason) {
        let detail = format!(
            "must be 1 to {VOID_REASON_BYTES_MAX} bytes of text without control characters"
        );
        return Err(Problem::malformed("reason", &reason, detail));
    }
    let four_eyes = state.writes().four_eyes;
    if four_eyes && !caller.has_key() {
        return Err(needs_keys());
    }
    let voided = blocking(&state, move |store| {
        let known_as = sought.known_as();
        let histories = whose.histories(store, &known_as, &|| Ok(()))?;
        let (days, missing) = (not_voided(&histories), Missing::of(&histories));
        let identity = one_identity(histories)?;
        let mut unchanged = unchanged(store, &sought, &days)?;
        if missing.is_partial {
            unchanged.push_str(PARTIAL);
        }
        let order = VoidOrder {
            identity: identity.as_ref(),
            id: &known_as,
            reason: &reason,
            actor: caller.actor(),
            four_eyes,
        };
        let voided = store.intake().void(order)?;
        if voided.now.is_empty() && voided.waiting.is_empty() {
            let unseen = || unseen(store, &sought.id, &caller, (&whose, missing));
            return Err(voided_before(&sought, &voided).unwrap_or_else(unseen));
        }
        let all = voided.now.iter().chain(&voided.waiting);
        let (voided, pending): (Vec<&Logged>, Vec<&Logged>) =
            all.partition(|logged| matches!(logged.record, Record::Void(_)));
        let days = |of: &[&Logged]| of.iter().filter_map(|logged| of_day(logged)).collect();
        let effect = if voided.is_empty() { PENDING } else { EFFECT };
        Ok(VoidedId {
            effect: format!("{effect}{unchanged}"),
            voided: days(&voided),
            pending: days(&pending),
            actor: caller.actor().to_owned(),
            id: sought.id,
            source: sought.source,
            reason,
        })
    })
    .await?;
    let status = match voided.voided.is_empty() {
        true => StatusCode::ACCEPTED,
        false => StatusCode::CREATED,
    };
    tracing::info!(id = voided.id, actor = voided.actor, %status, "a void was ordered");
    let headers = [(header::CACHE_CONTROL, "no-store")];
    Ok((status, headers, Json(voided)))
}

fn needs_keys() -> Problem {
    let detail = "`four_eyes` is true in the configuration, so two API keys must order a void: make them with \
                  `tallyring key new --scope admin`";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not accepted", detail)
}

/// The identity whose id has counts. Fails with 422 where several have.
fn one_identity(histories: Vec<(Option<Text>, IdHistory)>) -> Result<Option<Text>> {
    let histories = histories.into_iter();
    let counted = histories.filter(|(_, history)| !history.counts.is_empty());
    let mut identities: Vec<Text> = counted.filter_map(|(identity, _)| identity).collect();
    if identities.len() > 1 {
        let names: Vec<&str> = identities.iter().map(Text::as_str).collect();
        let detail = format!(
            "must say whose event is meant, because several identities sent this id: {}",
            names.join(", ")
        );
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not accepted", detail);
        return Err(problem.about("identity", None));
    }
    Ok(identities.pop())
}

/// Days that count the id, and have no void of it.
fn not_voided(histories: &[(Option<Text>, IdHistory)]) -> BTreeSet<Day> {
    let counts = histories.iter().flat_map(|(_, history)| &history.counts);
    let counts = counts.filter(|count| count.voided.is_none());
    counts
        .filter_map(|count| count.logged.record.day())
        .collect()
}

/// A sentence about each of the days whose count no reconcile will change. Fails with 422 where that is so of all.
fn unchanged(store: &Store, sought: &Sought, days: &BTreeSet<Day>) -> Result<String> {
    let (blobs, manifest) = (store.world().blobs(), store.manifest());
    let mut sentences = Vec::new();
    for day in days {
        if let Some(why) = out_of_reach(&blobs, &manifest, *day)? {
            sentences.push(format!(" No reconcile changes {day} any more: {why}."));
        }
    }
    let text = sentences.concat();
    if days.is_empty() || sentences.len() < days.len() {
        return Ok(text);
    }
    let detail = format!("is of an event that stays in the counts, so nothing is voided.{text}");
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not accepted", detail);
    Err(problem.about("id", Some(sought.id.clone())))
}

/// 409 where the id was voided before.
fn voided_before(sought: &Sought, voided: &Voided) -> Option<Problem> {
    let (logged, void) = voided.before.last().and_then(with_void)?;
    let at = rfc3339_utc(logged.arrived_ms.div_euclid(1_000));
    let detail = format!("was voided by {} at {at}: {}", void.actor, void.reason);
    let problem = Problem::new(StatusCode::CONFLICT, "Voided before", detail);
    Some(problem.about("id", Some(sought.id.clone())))
}

fn of_day(logged: &Logged) -> Option<VoidedDay> {
    let (logged, void) = with_void(logged)?;
    Some(VoidedDay {
        day: Day::of(void.at).to_string(),
        at: rfc3339_utc(void.at),
        identity: void.identity.as_ref().map(Text::to_string),
        position: logged.offset.to_string(),
    })
}

fn with_void(logged: &Logged) -> Option<(&Logged, &Void)> {
    match &logged.record {
        Record::Void(void) | Record::VoidAsked(void) => Some((logged, void)),
        _ => None,
    }
}
