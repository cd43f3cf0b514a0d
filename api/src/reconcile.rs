//! `POST|GET /v1/admin/reconcile`: a closed day is judged and counted again from the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use tallyring_archive::ShownSums;
use tallyring_realtime::Reconciled;
use tallyring_realtime::catalog::{JobProgress, JobState};
use tallyring_records::Day;

use crate::body;
use crate::calendar::rfc3339_utc;
use crate::problem::Result;
use crate::query_string::NoParameters;
use crate::refusals::{BodyErrors, ReadErrors, ReconcileErrors};
use crate::state::ApiState;
use crate::work::blocking;

/// The order to reconcile a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reconcile, example = json!({ "day": "2012-03-16", "dry_run": true }))]
pub struct ReconcileOrder {
    /// The UTC day, which is over and was closed by a rebuild
    #[schema(value_type = String, format = Date)]
    pub day: Day,
    /// Only tell what would change
    #[serde(default)]
    pub dry_run: bool,
}

/// A reconcile that ran since the server started, or is running.
#[derive(Debug, Clone)]
pub struct ReconcileJob {
    /// Number, from 1.
    pub job: u64,
    /// The order.
    pub order: ReconcileOrder,
    /// State of the job.
    pub state: JobState,
    /// Unix milliseconds of the injected clock.
    pub started_ms: i64,
    /// Unix milliseconds of the injected clock, once it ended.
    pub ended_ms: Option<i64>,
    /// Why the job failed; none where it did not.
    pub error: Option<String>,
    /// The result; none until it is known.
    pub reconciled: Option<Reconciled>,
    /// Whether this job published the result: not where it only told, or nothing changed.
    pub is_published: bool,
    /// Records of the log that were read, of those that will be. Not known at first.
    pub progress: Option<JobProgress>,
}

impl ReconcileJob {
    /// A job that begins, at Unix milliseconds of the injected clock.
    pub fn begin(job: u64, order: ReconcileOrder, started_ms: i64) -> Self {
        Self {
            job,
            order,
            state: JobState::Running,
            started_ms,
            ended_ms: None,
            error: None,
            reconciled: None,
            is_published: false,
            progress: None,
        }
    }
}

/// Reconcile a day
///
/// Counts a closed day again from the log, each id once however late it came again, and judges every event by the rules
/// of now. The differences are published as a new final version of the day, unless `dry_run` is true. `GET` of this
/// path tells how it went. A reconcile of the same day that runs is joined.
#[utoipa::path(post, path = "/v1/admin/reconcile", operation_id = "reconcile", tag = "operate", request_body = ReconcileOrder, responses(
    (status = 202, description = "The job", body = Object, example = json!({ "job": 3 })),
    ReadErrors,
    ReconcileErrors,
    BodyErrors,
))]
pub(crate) async fn start(
    State(state): State<ApiState>,
    _: NoParameters,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>)> {
    let expected = ("the day", "{\"day\":\"2012-03-16\"}");
    let order: ReconcileOrder = body::read_order(&headers, body, expected).await?;
    let admin = Arc::clone(&state.admin);
    let job = blocking(&state, move |_| Ok((admin.reconcile)(order)?)).await?;
    Ok((StatusCode::ACCEPTED, Json(value!({ "job": job }))))
}

/// The newest reconcile
///
/// Since the server started; `job` is null where there was none. `types` has the sums of each event type before and
/// after, and the cause of every difference. Where `unexplained` counts something, nothing is published.
#[utoipa::path(get, path = "/v1/admin/reconcile", operation_id = "newest_reconcile", tag = "operate", responses(
    (status = 200, description = "The job", body = Object, example = json!({
        "job": 3, "day": "2012-03-16", "dry_run": false, "state": "done", "started_at": "2012-03-19T00:06:00Z",
        "ended_at": "2012-03-19T00:06:02Z", "error": null, "progress": null, "published": true, "version": 1,
        "upto": 81230, "new": true, "types": { "click": { "gross": 3, "before": 3, "causes": { "duplicate_beyond_window": -1,
        "filtered_by:bots": -1 }, "after": 1 } }, "unexplained": { "counters": 0, "n": "0", "first": [] },
    })),
    ReadErrors,
))]
pub(crate) async fn newest(State(state): State<ApiState>, _: NoParameters) -> Json<Value> {
    let job = (state.admin.last_reconcile)();
    Json(job.map_or(value!({ "job": null }), |job| job_json(&job)))
}

fn job_json(job: &ReconcileJob) -> Value {
    let at = |ms: i64| rfc3339_utc(ms.div_euclid(1_000));
    let mut answer = value!({
        "job": job.job, "day": job.order.day, "dry_run": job.order.dry_run, "state": job.state,
        "started_at": at(job.started_ms), "ended_at": job.ended_ms.map(at), "error": job.error,
        "progress": job.progress.map(|progress| value!({ "done": progress.done, "total": progress.total })),
    });
    if let (Some(reconciled), Some(answer)) = (&job.reconciled, answer.as_object_mut()) {
        answer.insert("published".into(), job.is_published.into());
        if let Value::Object(described) = describe_reconciled(reconciled) {
            answer.extend(described);
        }
    }
    answer
}

/// The result of a reconcile as the API and the command line tell it.
pub fn describe_reconciled(reconciled: &Reconciled) -> Value {
    let unexplained = &reconciled.unexplained;
    let types = reconciled.types.iter();
    let shown: BTreeMap<&String, ShownSums> =
        types.map(|(kind, sums)| (kind, sums.shown())).collect();
    value!({
        "version": reconciled.version,
        "upto": reconciled.upto,
        "new": reconciled.is_new,
        "types": shown,
        // The sum may be larger than the numbers that every JSON reader takes.
        "unexplained": {
            "counters": unexplained.counters, "n": unexplained.n.to_string(), "first": unexplained.first,
        },
    })
}
