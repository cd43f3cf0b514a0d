//! Rebuilds by hand, and the generations that they make.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tallyring_archive::GenerationEntry;
use tallyring_realtime::catalog::{Job, JobProgress};

use crate::access::off_thread;
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::query_string::NoParameters;
use crate::segments::Segments;
use crate::state::{ApiState, BackupState};
use crate::work::blocking;

/// Rebuild now
///
/// Starts a rebuild, or joins the one that runs; `GET` of this path tells how it went. `jobs` has the number of the job
/// in each strand of a store that has several.
#[utoipa::path(post, path = "/v1/admin/rebuild", tag = "operate", responses(
    (status = 202, description = "The job", body = Object, example = json!({ "job": 7 })),
))]
pub(crate) async fn rebuild(
    State(state): State<ApiState>,
    _: NoParameters,
) -> Result<(StatusCode, Json<Value>)> {
    let admin = Arc::clone(&state.admin);
    let job = off_thread(move || Ok((admin.rebuild)())).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "job": job }))))
}

/// The newest rebuild
///
/// Where several nodes share the store, that of the node that writes; `job` is null where there was none. A store with
/// several strands tells of a job that runs, else of one that failed, else of that of the first strand, and `jobs` has
/// the number of the newest one in each; with `strand=` it is that of one strand. `node` is the node that does the work
/// where it is another one than that which writes. `backup` tells of backups, as `last_backup` of the status.
#[utoipa::path(get, path = "/v1/admin/rebuild", operation_id = "newest_rebuild", tag = "operate", responses(
    (status = 200, description = "The job, as `last_rebuild` of the status", body = Object, example = json!({
        "job": 7, "state": "running", "started_at": "2012-03-16T18:40:31Z", "ended_at": null, "generation": null,
        "error": null, "node": null, "progress": { "done_bytes": 524288, "total_bytes": 1048576 }, "refused": [],
        "files": null, "backup": null,
    })),
))]
pub(crate) async fn newest_rebuild(State(state): State<ApiState>, _: NoParameters) -> Json<Value> {
    // A job announces its backup before it ends.
    let job = (state.admin.last_rebuild)();
    let backup = (state.admin.last_backup)();
    Json(job.map_or(json!({ "job": null }), |job| {
        let mut told = job_json(&job);
        told["backup"] = backup.as_ref().map(backup_json).into();
        told
    }))
}

/// Kept generations
#[utoipa::path(get, path = "/v1/admin/generations", tag = "operate", responses(
    (status = 200, description = "The generations", body = Object, example = json!({
        "active": 3, "generations": [
            { "generation": 3, "created_at": "2012-03-16T00:05:01Z", "files": 16, "bytes": 2048, "source_runs": 12 },
        ],
    })),
))]
pub(crate) async fn generations(State(state): State<ApiState>) -> Json<Value> {
    let manifest = state.store().manifest();
    let kept = manifest.archive.generations.iter();
    // A generation that a recount began with is no way back.
    let kept = kept.filter(|kept| !kept.is_stand_in() || kept.number == manifest.archive.active);
    let kept: Vec<Value> = kept.map(generation_json).collect();
    Json(json!({ "active": manifest.archive.active, "generations": kept }))
}

/// Roll back
///
/// Reads a kept generation from now on. Increments are never rolled back: those it lacks count as deltas.
#[utoipa::path(post, path = "/v1/admin/generations/{id}/activate", tag = "operate",
    params(("id" = u64, Path, description = "A kept generation", example = 1)),
    responses((status = 200, description = "It is active", body = Object, example = json!({ "active": 2 }))),
)]
pub(crate) async fn activate(
    State(state): State<ApiState>,
    Segments(id): Segments<String>,
    _: NoParameters,
) -> Result<Json<Value>> {
    let number = id.parse().map_err(|_| {
        Problem::malformed("generation", &id, "must be the number of a kept generation")
    })?;
    let activated = blocking(&state, move |store| Ok(store.ledger().activate(number)?)).await;
    // A number that is not kept is of the path here, not `as_of` as in reads.
    activated.map_err(|problem| match problem.field() {
        Some("as_of") => problem.about("generation", Some(number.to_string())),
        _ => problem,
    })?;
    Ok(Json(json!({ "active": number })))
}

fn generation_json(entry: &GenerationEntry) -> Value {
    json!({
        "generation": entry.number,
        "created_at": rfc3339_utc(entry.created_at_ms.div_euclid(1_000)),
        "files": entry.files.len(),
        "bytes": entry.files.iter().map(|file| file.bytes).sum::<u64>(),
        "source_runs": entry.merged.len(),
    })
}

pub(crate) fn job_json(job: &Job) -> Value {
    json!({
        "job": job.job,
        "state": job.state,
        "started_at": rfc3339_utc(job.started_ms.div_euclid(1_000)),
        "ended_at": job.ended_ms.map(|ended| rfc3339_utc(ended.div_euclid(1_000))),
        "generation": job.generation,
        "error": job.error,
        "node": job.node,
        "progress": progress_json(job.progress),
        "refused": job.refused,
        "files": job.work.map(|work| json!({"merged": work.merged, "linked": work.linked, "shared": work.shared})),
    })
}

pub(crate) fn backup_json(backup: &BackupState) -> Value {
    let ended = backup.ended.as_ref();
    json!({
        "running": backup.running_since_ms.is_some(),
        "progress": progress_json(backup.progress),
        "ended_at": ended.map(|ended| rfc3339_utc(ended.ended_ms.div_euclid(1_000))),
        "generation": ended.and_then(|ended| ended.generation),
        "files_written": ended.map(|ended| ended.files),
        "bytes_written": ended.map(|ended| ended.bytes),
        "error": ended.and_then(|ended| ended.error.as_deref()),
    })
}

fn progress_json(progress: Option<JobProgress>) -> Value {
    progress
        .map(|progress| json!({"done_bytes": progress.done, "total_bytes": progress.total}))
        .into()
}
