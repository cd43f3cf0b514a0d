//! Health and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use tallyring_realtime::catalog::JobState;
use tallyring_realtime::{Store, StoreStatus};

use crate::problem::Problem;
use crate::read::request::blocking;
use crate::state::{Admin, ApiState};

/// Alive
#[utoipa::path(get, path = "/healthz", tag = "operate", responses((status = 200, description = "The process answers", body = String)))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready
///
/// Recovery is done and the log takes writes.
#[utoipa::path(get, path = "/readyz", tag = "operate", responses(
    (status = 200, description = "Ready", body = String),
    (status = 503, description = "The log takes no writes", body = crate::problem::Document, content_type = "application/problem+json"),
    (status = 507, description = "The disk is full", body = crate::problem::Document, content_type = "application/problem+json"),
))]
pub async fn readyz(State(state): State<ApiState>) -> Result<&'static str, Problem> {
    blocking(&state, |store| {
        store.ready()?;
        Ok("ready\n")
    })
    .await
}

/// Metrics
///
/// Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "operate", responses((status = 200, description = "The metrics", body = String, content_type = "text/plain")))]
pub async fn metrics(State(state): State<ApiState>) -> Result<Response, Problem> {
    let (admin, metrics) = (Arc::clone(&state.admin), state.metrics.clone());
    let asked = move |store: &Store| {
        measure(store, &admin);
        Ok(metrics.render())
    };
    let text = blocking(&state, asked).await?;
    Ok((
        StatusCode::OK,
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        text,
    )
        .into_response())
}

/// Sets what is measured when it is asked for.
fn measure(store: &Store, admin: &Admin) {
    let status = store.status();
    let gauge = |name: &'static str, value: f64| metrics::gauge!(name).set(value);
    gauge("tallyring_generation", status.generation as f64);
    gauge("tallyring_manifest", status.manifest as f64);
    gauge("tallyring_oplog_bytes", status.oplog_bytes as f64);
    gauge(
        "tallyring_oplog_records",
        status.applied.offset(0).sequence as f64,
    );
    gauge("tallyring_unflushed_records", status.unflushed as f64);
    gauge(
        "tallyring_remembered_ids_in_memory",
        status.ids_in_memory as f64,
    );
    gauge("tallyring_pending_runs", status.pending_runs as f64);
    gauge(
        "tallyring_minutes_from_seconds",
        status.minutes_from.unwrap_or(0) as f64,
    );
    gauge(
        "tallyring_hours_from_seconds",
        status.hours_from.unwrap_or(0) as f64,
    );
    gauge("tallyring_file_bytes", status.file_bytes as f64);
    gauge("tallyring_damaged_files", status.damaged_files.len() as f64);
    gauge(
        "tallyring_disk_free_bytes",
        status.disk_free_bytes.unwrap_or(0) as f64,
    );
    gauge(
        "tallyring_clock_jumped",
        f64::from(u8::from(status.clock_jumped)),
    );
    let last = (admin.last_rebuild)();
    let flag = |set: bool| f64::from(u8::from(set));
    let failed = last
        .as_ref()
        .is_some_and(|job| job.state == JobState::Failed);
    gauge("tallyring_last_rebuild_failed", flag(failed));
    let backup = last.and_then(|job| job.backup);
    let age_ms = backup
        .as_ref()
        .map_or(0, |backup| store.world().clock.now_ms() - backup.ended_ms);
    gauge(
        "tallyring_last_backup_age_seconds",
        age_ms.max(0) as f64 / 1e3,
    );
    let failed = backup.is_some_and(|backup| backup.error.is_some());
    gauge("tallyring_last_backup_failed", flag(failed));
    measure_stores(&status.stores);
    gauge("tallyring_blocks_decoded", store.blocks_decoded() as f64);
}

/// Sums over the ring's stores and the late ones.
fn measure_stores(stores: &[StoreStatus]) {
    let bytes: u64 = stores.iter().map(|store| store.memory_bytes).sum();
    let counters: u64 = stores.iter().map(|store| store.counters).sum();
    let waiting = stores.iter().filter(|store| store.position == "waiting");
    metrics::gauge!("tallyring_delta_bytes").set(bytes as f64);
    metrics::gauge!("tallyring_delta_counters").set(counters as f64);
    metrics::gauge!("tallyring_waiting_days").set(waiting.count() as f64);
}
