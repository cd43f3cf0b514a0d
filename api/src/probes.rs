//! `/healthz`, `/readyz` and `/metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::access::off_thread;
use crate::gauges::measure;
use crate::health::Health;
use crate::problem::{Document, Result};
use crate::state::ApiState;

/// Alive
#[utoipa::path(get, path = "/healthz", tag = "operate", responses((status = 200, description = "The process answers", body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready
///
/// Recovery is done and the log takes writes.
#[utoipa::path(get, path = "/readyz", tag = "operate", responses(
    (status = 200, description = "Ready", body = String),
    (status = 503, description = "The log takes no writes", body = Document, content_type = "application/problem+json"),
    (status = 507, description = "The disk is full", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn readyz(State(state): State<ApiState>) -> Result<&'static str> {
    let each = state.each();
    off_thread(move || {
        let refusal = each
            .iter()
            .find_map(|(store, admin)| Health::of(store, &store.status(), &admin.jobs()).refusal);
        refusal.map_or(Ok("ready\n"), |refusal| Err(refusal.into()))
    })
    .await
}

/// Metrics
///
/// Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "operate", responses((status = 200, description = "The metrics", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(state): State<ApiState>) -> Result<Response> {
    let (each, metrics) = (state.each(), state.metrics.clone());
    let asked = move || {
        for (strand, (store, admin)) in each.iter().enumerate() {
            measure(store, admin, (each.len() > 1).then_some(strand));
        }
        Ok(metrics.render())
    };
    let text = off_thread(asked).await?;
    Ok((
        StatusCode::OK,
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        text,
    )
        .into_response())
}
