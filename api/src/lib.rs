//! The HTTP API: increments in, counts out, for clients and operators.
//!
//! It merges what the store's one view gives it into units of any zone. It knows nothing of how
//! generations are built: a rebuild is started through [`Admin`], which the binary wires.

mod admin;
mod body;
pub mod calendar;
mod health;
mod meter;
mod problem;
mod query_string;
mod read;
mod server;
mod state;
mod time;
mod write;

pub use server::{ServerLimits, ask, serve};
pub use state::{Admin, ApiState};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

/// All routes over one state. Needs no socket.
pub fn router(state: ApiState) -> Router {
    Router::new()
        .route("/v1/incr", get(write::incr::incr).post(write::incr::incr))
        .route("/v1/increments", post(write::increments::increments))
        .route("/v1/{namespace}/{key}/counts", get(read::counts::counts))
        .route("/v1/{namespace}/{key}/summary", get(read::counts::summary))
        .route("/v1/{namespace}/{key}/by/{subtotal}", get(read::by::by))
        .route("/v1/admin/status", get(admin::status))
        .route("/v1/admin/rebuild", post(admin::rebuild))
        .route("/v1/admin/generations", get(admin::generations))
        .route("/v1/admin/generations/{id}/activate", post(admin::activate))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::no_method)
        .layer(axum::middleware::from_fn(meter::measure))
        .layer(CatchPanicLayer::custom(problem::panicked))
        // Handlers that take a body bound it themselves, after decompression too.
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}
