//! Batches that another node hands over to this one, which writes the log.
//!
//! Only a node of the store can seal a request: nothing of one without a right seal is looked at, and it is answered as
//! a path that is no route. A batch that cannot be read is refused alone. The node that was asked has checked keys and
//! rates; it tells its client, and counts what became of increments in its metrics.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tallyring_realtime::{Batch, Part, Refusal, Store, encode_outcome};
use tallyring_records::check_time;
use tallyring_records::varint::{read_bytes, write_bytes};

use super::{BODY_BYTES_MAX, FORM, HEAD_SEAL, Nodes, SEAL};
use crate::access::behind;
use crate::body::{self, SMALL_BYTES};
use crate::problem::{Problem, Result, no_route};
use crate::state::ApiState;

/// True for a request that only a node of this store may send.
pub(crate) fn is_for_nodes(state: &ApiState, parts: &Parts) -> bool {
    let is_node = state.store().world().objects.is_some();
    is_node && parts.method == Method::POST && parts.uri.path() == state.nodes.batches()
}

/// Counts the batches of another node, and answers the outcome of each.
pub(crate) async fn take(state: &ApiState, parts: &Parts, body: Body) -> Response {
    match taken(state, parts, body).await {
        Ok(outcomes) => {
            let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
            (kind, outcomes).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

async fn taken(state: &ApiState, parts: &Parts, body: Body) -> Result<Vec<u8>> {
    let path = parts.uri.path();
    let none = || no_route(path);
    let store = state.store();
    let [head_seal, seal] = [HEAD_SEAL, SEAL].map(|name| {
        let seal = parts.headers.get(name).map(|seal| seal.as_bytes());
        seal.and_then(|seal| blake3::Hash::from_hex(seal).ok())
    });
    let length = parts.headers.get(header::CONTENT_LENGTH).ok_or_else(none)?;
    // The comparison of hashes takes as long for any seal.
    if Some(store.seal(&[path.as_bytes(), length.as_bytes()])) != head_seal {
        return Err(none());
    }
    let seal = seal.ok_or_else(none)?;
    let body = Arc::new(body::read(&HeaderMap::new(), body, BODY_BYTES_MAX).await?);
    if store.seal(&[path.as_bytes(), &body]) != seal {
        return Err(none());
    }
    if store.part() != Part::Writes {
        let detail = "This node does not write the log any more; retry in a moment.";
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "Not here",
            detail,
        ));
    }
    let reading = {
        let (body, store, nodes) = (
            Arc::clone(&body),
            Arc::clone(store),
            Arc::clone(&state.nodes),
        );
        let now = state.now();
        move || read(&body, (&nodes, &store), now)
    };
    let batches = match body.len() <= SMALL_BYTES {
        true => reading()?,
        false => behind(reading).await?,
    };
    // All of them are in the queue before the first outcome is waited for.
    let counting = batches
        .into_iter()
        .map(|batch| Ok(state.strands.services()[0].count(batch?)));
    let counting: Vec<Result<_, Refusal>> = counting.collect();
    let (mut outcomes, mut outcome) = (vec![FORM], Vec::new());
    for counted in counting {
        let mut counted = match counted {
            Ok(counted) => counted.await,
            Err(refusal) => Err(refusal),
        };
        if let Ok(counted) = &mut counted {
            // Only other strands are told of them. Nodes of an earlier build cannot read them, and ask about none.
            counted.shown.retain(|id| state.nodes.is_elsewhere(*id));
        }
        encode_outcome(counted, &mut outcome);
        write_bytes(&mut outcomes, &outcome);
        outcome.clear();
    }
    Ok(outcomes)
}

/// The batches in a body, each with its own refusal.
fn read(
    body: &[u8],
    (nodes, store): (&Nodes, &Store),
    now: i64,
) -> Result<Vec<Result<Batch, Refusal>>> {
    let unreadable = || Problem::malformed("body", "", "has no batches of a node of this build");
    let mut rest = body.strip_prefix(&[FORM]).ok_or_else(unreadable)?;
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let bytes = read_bytes(&mut rest).ok_or_else(unreadable)?;
        let batch = Batch::decode(bytes, (&nodes.hashes, store.live()));
        batches.push(batch.and_then(|batch| in_time(batch, now)));
    }
    Ok(batches)
}

/// Refuses a batch of a node whose clock is far ahead of this one's.
fn in_time(batch: Batch, now: i64) -> Result<Batch, Refusal> {
    let mut times = batch.increments.iter().map(|increment| increment.at);
    match times.all(|at| check_time(at, now).is_ok()) {
        true => Ok(batch),
        false => Err(Refusal::Unavailable(
            "the clocks of two nodes differ, and this lies too far ahead of that of the node that writes the log; \
             nothing was counted: set the clocks, then retry"
                .into(),
        )),
    }
}
