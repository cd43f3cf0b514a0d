//! `POST /v1/increments`: many increments, all or nothing unless asked otherwise.

use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;

use super::batch::{self, Answer, Reading, Sent};
use super::items;
use super::plain;
use crate::access::Caller;
use crate::problem::Result;
use crate::state::ApiState;

/// An increment, as it is parsed by hand: so errors name their field.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[schema(as = Increment, example = json!({
    "at": "2012-03-16T18:40:47Z", "n": 1, "keys": {"l": "A6qOVH", "u": "orofrog"}, "by": {"c": "US"}, "id": "e1"
}))]
pub(crate) struct IncrementSchema {
    /// RFC 3339 or Unix seconds; now if left out
    at: Option<String>,
    /// How many, 1 to 2^53-1
    #[schema(default = 1)]
    n: Option<u64>,
    /// Namespace to key, at least one
    keys: std::collections::BTreeMap<String, String>,
    /// Subtotal to value
    by: Option<std::collections::BTreeMap<String, String>>,
    /// Makes a retry harmless
    id: Option<String>,
    /// Numbers what it sends instead of giving ids; its name is the whole installation's, whatever the API key
    producer: Option<String>,
    /// Rises when the producer begins anew
    epoch: Option<u64>,
    /// One more than before
    sequence: Option<u64>,
    /// The user, for distinct users
    user: Option<String>,
    /// ip, ua and referrer of the client; subtotals are filled from them where `[enrich]` of the configuration says so,
    /// and the log has them if `evidence = true`
    evidence: Option<std::collections::BTreeMap<String, String>>,
    /// The page; subtotals are filled from it as from evidence, and it is not kept
    url: Option<String>,
}

/// One increment or a list of them.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = Increments)]
#[expect(dead_code, reason = "describes a body, which is parsed by hand")]
pub(crate) enum OneOrMany {
    One(Box<IncrementSchema>),
    Many(Vec<IncrementSchema>),
}

/// Count many increments
///
/// One object, an array, or NDJSON (one object a line), gzip and zstd accepted; at most 8 MiB and 10,000 items
/// decompressed. A wrong breakdown value counts under `-`, and `set_aside` tells how many, unless
/// `strict = true`. All count or none, unless `on_error=skip` takes the good ones.
#[utoipa::path(post, path = "/v1/increments", tag = "write",
    params(
        ("on_error" = Option<String>, Query, description = "stop (default) or skip"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the whole batch's retry harmless: the same key, body and on_error at the same endpoint give the same answer. It belongs to the identity of the API key"),
    ),
    request_body(content(
        (OneOrMany = "application/json"),
        (String = "application/x-ndjson", example = "{\"keys\":{\"l\":\"A6qOVH\"},\"id\":\"e1\"}\n{\"keys\":{\"l\":\"A6qOVH\"},\"n\":3,\"id\":\"e2\"}\n"),
    )),
    responses((status = 200, description = "Durable", body = Answer, example = json!({ "accepted": 998, "duplicates": 2, "late": 0 }))),
)]
pub(crate) async fn increments(
    State(state): State<ApiState>,
    caller: Caller,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answer>> {
    let sent = Sent {
        kind: "",
        query,
        headers,
        body,
    };
    let rules = state.writes();
    let parse = move |item, Reading { schema, now, .. }: Reading<'_>| {
        Ok(plain::parse(item, &rules, schema, now)?.into())
    };
    let answer = batch::count(&state, &caller, sent, items::read, parse).await?;
    Ok(Json(answer))
}
