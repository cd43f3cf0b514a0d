//! `POST /v1/events`: events with ids, each counted once on every entity it names.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use serde_json::Value;
use tallyring_records::Evidence;

use super::batch::{self, Answer, Reading, Sent};
use super::cloud_event::Wrapped;
use super::items;
use super::{cloud_event, event};
use crate::access::{Caller, Peer};
use crate::body::media_type;
use crate::problem::Result;
use crate::state::ApiState;

/// An event, as it is parsed by hand: so errors name their field.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[schema(as = Event, example = json!({
    "id": "e1", "type": "click", "at": "2026-11-21T12:59:58Z", "entities": {"ad": "42", "campaign": "7"},
    "by": {"country": "US", "device": "mobile"}, "user": "u1", "view": "home"
}))]
pub(crate) struct EventSchema {
    /// Counted once, whatever else it says; required without a producer
    id: Option<String>,
    /// Numbers what it sends instead of giving ids; its name is the whole installation's, whatever the API key
    producer: Option<String>,
    /// Rises when the producer begins anew
    epoch: Option<u64>,
    /// One more than before
    sequence: Option<u64>,
    /// A declared event type
    #[serde(rename = "type")]
    kind: String,
    /// RFC 3339 or Unix seconds; now if left out
    at: Option<String>,
    /// Entity to key, at least one
    entities: std::collections::BTreeMap<String, String>,
    /// Subtotal to value
    by: Option<std::collections::BTreeMap<String, String>>,
    /// The user, for distinct users
    user: Option<String>,
    /// Where it was seen; counts under a subtotal `view` where one is declared
    view: Option<String>,
    /// How many, 1 to 2^53-1
    #[schema(default = 1)]
    n: Option<u64>,
    /// The insertion it was shown with, at most 256 bytes; logged
    insertion: Option<String>,
    /// The reservation that it confirms; it counts whatever this is
    reservation: Option<String>,
    /// The page before, at most 2,048 bytes; logged, and counts under a subtotal `referrer` where one is declared
    referrer: Option<String>,
    /// ip, ua and referrer of the client; subtotals are filled from them where `[enrich]` of the configuration says so,
    /// and the log has them if `evidence = true`
    evidence: Option<std::collections::BTreeMap<String, String>>,
    /// The page; subtotals are filled from it as from evidence. It is a part of meta if `evidence = true`, and else not
    /// kept
    url: Option<String>,
    /// Any object of at most 4 KiB; logged. Unknown fields become part of it unless `strict = true`
    #[schema(value_type = Option<Object>)]
    meta: Option<serde_json::Value>,
}

/// One event or a list of them.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = Events)]
#[expect(dead_code, reason = "describes a body, which is parsed by hand")]
pub(crate) enum OneOrMany {
    One(Box<EventSchema>),
    Many(Vec<EventSchema>),
}

/// A CloudEvent 1.0. Where `[[cloudevents]]` of the configuration has a rule for its type, the rule says which
/// attributes and which parts of any data are the event. Else `data` is the event, and other attributes are passed
/// over.
#[derive(utoipa::ToSchema)]
#[schema(example = json!({
    "specversion": "1.0", "id": "e1", "source": "/shop", "type": "com.example.click", "time": "2026-11-21T12:59:58Z",
    "data": {"entities": {"ad": "42"}, "by": {"country": "US"}, "user": "u1"}
}))]
#[expect(dead_code, reason = "describes an item, which is parsed by hand")]
pub(crate) struct CloudEvent {
    /// 1.0
    specversion: String,
    /// Counted once of its source
    id: String,
    /// A URI reference
    source: String,
    /// A type that a rule is for, or one that ends in a declared event type, after the last dot
    #[schema(rename = "type")]
    kind: String,
    /// RFC 3339; now if left out
    time: Option<String>,
    data: CloudEventData,
}

/// The event in a CloudEvent.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes an item, which is parsed by hand")]
pub(crate) struct CloudEventData {
    /// Entity to key, at least one
    entities: std::collections::BTreeMap<String, String>,
    /// Subtotal to value
    by: Option<std::collections::BTreeMap<String, String>>,
    /// The user, for distinct users
    user: Option<String>,
    /// Where it was seen
    view: Option<String>,
}

/// Count events
///
/// Takes the forms of `/v1/increments` and answers alike; also CloudEvents 1.0, structured, batch and binary. An
/// event counts once in the namespace `<entity>_<type>` of every entity it names. `late` counts those that came
/// after their time was settled: they count all the same.
#[utoipa::path(post, path = "/v1/events", tag = "write",
    params(
        ("on_error" = Option<String>, Query, description = "stop (default) or skip"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the whole batch's retry harmless: the same key, body and on_error at the same endpoint give the same answer. It belongs to the identity of the API key"),
    ),
    request_body(content(
        (OneOrMany = "application/json"),
        (String = "application/x-ndjson", example = "{\"id\":\"e1\",\"type\":\"click\",\"entities\":{\"ad\":\"42\"}}\n{\"id\":\"e2\",\"type\":\"click\",\"entities\":{\"ad\":\"7\"}}\n"),
        (CloudEvent = "application/cloudevents+json"),
        (Vec<CloudEvent> = "application/cloudevents-batch+json"),
    )),
    responses((status = 200, description = "Durable", body = Answer, example = json!({ "accepted": 998, "duplicates": 2, "late": 1 }))),
)]
pub(crate) async fn events(
    State(state): State<ApiState>,
    caller: Caller,
    Extension(peer): Extension<Peer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answer>> {
    let request = state.writes().enrich.of_request(&headers, peer.0);
    let kind = media_type(&headers);
    let is_binary = cloud_event::is_binary(&headers);
    let is_wrapped = is_binary || [cloud_event::STRUCTURED, cloud_event::BATCH].contains(&&*kind);
    let sent = Sent {
        kind: if is_wrapped { "cloudevents" } else { "events" },
        query,
        headers,
        body,
    };
    let answer = match is_wrapped {
        true => count_wrapped(&state, &caller, sent, (is_binary, request)).await?,
        false => count_plain(&state, &caller, sent, request).await?,
    };
    metrics::counter!("tallyring_events_total").increment(answer.accepted);
    metrics::counter!("tallyring_event_corrections_total").increment(answer.late);
    Ok(Json(answer))
}

async fn count_plain(
    state: &ApiState,
    caller: &Caller,
    sent: Sent,
    request: Option<Evidence>,
) -> Result<Answer> {
    let rules = state.writes();
    let parse = move |item: Value, reading: Reading<'_>| {
        cloud_event::check_plain(&item)?;
        let request = request.as_ref().filter(|_| reading.is_alone);
        event::parse(item, &rules, reading, request.cloned())
    };
    batch::count(state, caller, sent, items::read, parse).await
}

async fn count_wrapped(
    state: &ApiState,
    caller: &Caller,
    sent: Sent,
    (is_binary, request): (bool, Option<Evidence>),
) -> Result<Answer> {
    let writes = state.writes();
    let rules = Arc::clone(&writes);
    let items = move |headers: &HeaderMap, bytes: &[u8]| {
        let rules = &writes.cloud_events;
        let found = match is_binary {
            true => vec![(None, cloud_event::from_headers(headers, bytes, rules))],
            false => items::read(headers, bytes)?,
        };
        let wrapped = |(line, item): (_, Result<Value, _>)| {
            (line, item.map(|event| Wrapped::new(event, rules)))
        };
        Ok(found.into_iter().map(wrapped).collect())
    };
    let parse = move |item: Wrapped, reading: Reading<'_>| {
        let event = cloud_event::unwrap(item, &rules.cloud_events, reading.schema)?;
        let request = request.as_ref().filter(|_| reading.is_alone);
        event::parse(event, &rules, reading, request.cloned())
    };
    batch::count(state, caller, sent, items, parse).await
}
