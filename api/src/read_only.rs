//! A server without a log, which shows the files of a store that another server may write: it refuses all that changes
//! counts, and the questions that only a log answers.

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use tallyring_realtime::{Shown, Store};

use crate::calendar::rfc3339_utc;
use crate::drain::Drain;
use crate::nodes::changes;
use crate::problem::Problem;

/// The refusal of a request that needs the log, where the server has none.
pub(crate) fn refusal(store: &Store, parts: &Parts) -> Option<Problem> {
    let path = parts.uri.path();
    let is_write = changes(&parts.method, path) || path == "/v1/admin/reload";
    // The log alone tells what became of an id, and which buckets changed.
    let is_of_log = path == "/v1/closed" || path.starts_with("/v1/events/");
    if !is_write && !is_of_log {
        return None;
    }
    let shown = store.shown()?;
    let where_to = match &shown.writer {
        Some(writer) => format!("the server at {writer}, which writes the store"),
        None => "the server that writes the store".to_owned(),
    };
    let why = match is_write {
        true => "changes nothing",
        false => "has no log, which this needs",
    };
    let detail =
        format!("This server is read-only (`serve --read-only`) and {why}; ask {where_to}.");
    let problem = Problem::new(StatusCode::FORBIDDEN, "Read-only", detail);
    Some(problem)
}

/// Answers a refused request once its body has come.
pub(crate) async fn refuse<B>(parts: &Parts, body: B, problem: Problem) -> Response
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let answer = async |_| problem.into_response();
    Drain::of(parts).behind(Body::new(body), answer).await
}

/// The manifest that is shown, as the status tells it.
pub(crate) fn shown_json(shown: &Shown) -> Value {
    json!({
        "manifest": shown.manifest,
        "written_at": rfc3339_utc(shown.written_ms.div_euclid(1_000)),
        "counted_until": rfc3339_utc(shown.counted_until),
        "waiting": shown.waiting,
        "writer": shown.writer.as_deref(),
    })
}

/// The manifests that are shown of all strands of a store, as the status tells them: what is said of all is of the
/// first, but for the time until which all count and what cannot be shown.
pub(crate) fn shown_together(strands: &[Shown]) -> Value {
    let Some(first) = strands.first() else {
        return Value::Null;
    };
    let counted_until = strands.iter().map(|shown| shown.counted_until).min();
    let mut told = shown_json(&Shown {
        counted_until: counted_until.unwrap_or(first.counted_until),
        waiting: strands.iter().find_map(|shown| shown.waiting.clone()),
        ..first.clone()
    });
    told["strands"] = strands.iter().map(shown_json).collect();
    told
}

/// The fault of files that cannot be shown.
pub(crate) fn fault(shown: &Shown) -> Option<String> {
    let (waiting, served) = (shown.waiting.as_ref()?, shown.manifest);
    let what = match waiting.manifest {
        Some(newer) => {
            format!("manifest {newer} cannot be served yet, and manifest {served} is served")
        }
        None => format!("manifest {served} is served, and none after it"),
    };
    Some(format!("{what}: {}", waiting.error))
}
