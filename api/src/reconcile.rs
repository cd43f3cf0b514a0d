//! `POST|GET /v1/admin/reconcile`: closed days are judged and counted again from the log.

mod job;
mod order;

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json as value};

use crate::access::{Caller, off_thread};
use crate::body;
use crate::problem::{Document, Problem, Result};
use crate::query_string::NoParameters;
use crate::state::ApiState;

pub use job::{DayOutcome, Found, ReconcileJob};
pub(crate) use order::ReconcileBody;
pub use order::{Days, ReconcileOrder};

/// Bytes of an order: rules may have many values.
const ORDER_BYTES_MAX: usize = 8 << 20;

/// Reconcile a day, or days
///
/// Counts a closed day again from the log, each id once however late it came again, and judges every event by the rules
/// of now. The differences are published as a new final version of the day, unless `dry_run` is true. `GET` of this
/// path tells how it went. A reconcile of the same order that runs is joined. With `from` and `to` in the place of
/// `day`, each of these days is reconciled by itself, and a day that fails does not stop the others. With `rules` the
/// job tells what these would change, and publishes nothing. A job whose rules would newly filter more than 20 % of an
/// event type with at least 1,000 events fails and publishes nothing, unless `force` is true.
#[utoipa::path(post, path = "/v1/admin/reconcile", operation_id = "reconcile", tag = "operate", request_body = ReconcileBody, responses(
    (status = 202, description = "The job", body = Object, example = json!({ "job": 3 })),
    (status = 409, description = "Another day is being reconciled, or the log no longer has all of the day", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn start(
    State(state): State<ApiState>,
    caller: Caller,
    _: NoParameters,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>)> {
    let expected = ("the day", "{\"day\":\"2012-03-16\"}");
    let order: ReconcileBody =
        body::read_order_of(&headers, body, expected, ORDER_BYTES_MAX).await?;
    let order = order.check(caller.actor()).map_err(Problem::from)?;
    let admin = Arc::clone(&state.admin);
    let job = off_thread(move || Ok((admin.reconcile)(order)?)).await?;
    Ok((StatusCode::ACCEPTED, Json(value!({ "job": job }))))
}

/// The newest reconcile
///
/// Since the server started; `job` is null where there was none. `types` has the sums of each event type before and
/// after, the cause of every difference, and in `filtered` all that rules filter, by their class; `by` has the causes
/// by key where they were asked for: the 100 keys with the largest sums, those of all `others`, and of events `without`
/// a key. Ids that came since `ids_from` were known, so that an event that repeats one on another day is a duplicate;
/// it is null where no id was known. `limited` is true where there were too many keys to name the largest. `repeated`
/// has the keys of which more than 0.1 % of at least 1,000 events had counted twice. Where `unexplained` counts
/// something, nothing is published. `guard` says why only `force` publishes the result. A job of several days has each
/// in `days`, and all together in `sums`.
#[utoipa::path(get, path = "/v1/admin/reconcile", operation_id = "newest_reconcile", tag = "operate", responses(
    (status = 200, description = "The job", body = Object, example = json!({
        "job": 3, "day": "2012-03-16", "dry_run": false, "what_if": false, "state": "done",
        "started_at": "2012-03-19T00:06:00Z", "ended_at": "2012-03-19T00:06:02Z", "error": null, "progress": null,
        "published": true, "version": 1, "upto": 81230, "ids_from": "2012-03-10T09:15:00Z", "new": true,
        "types": { "click": { "gross": 3, "before": 3, "causes": { "duplicate_beyond_window": -1, "filtered_by:bots": -1 },
        "after": 1, "undecided": 0, "filtered": { "general": { "n": 1, "rules": { "bots": 1 } },
        "sophisticated": { "n": 0, "rules": {} } } } }, "repeated": { "keys": 0, "most": [] }, "guard": null, "unexplained": { "counters": 0, "n": "0", "first": [] },
    })),
))]
pub(crate) async fn newest(State(state): State<ApiState>, _: NoParameters) -> Json<Value> {
    let job = (state.admin.last_reconcile)();
    Json(job.map_or(value!({ "job": null }), |job| job.described()))
}
