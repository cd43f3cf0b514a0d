//! The HTTP API: increments in, counts out, for clients and operators.
//!
//! It merges what the store's one view gives it into units of any zone. It knows nothing of how
//! generations are built: a rebuild is started through [`Admin`], which the binary wires.

mod access;
mod admin;
mod app;
mod bitly;
mod body;
pub mod calendar;
pub mod chart;
mod compress;
mod dashboard;
mod datasets;
mod describe;
mod docs;
mod door;
mod drain;
mod envelope;
mod etag;
mod gauges;
mod head;
mod health;
mod meter;
mod openapi;
mod page;
mod probes;
mod problem;
mod query_string;
mod read;
mod refusals;
mod request_id;
mod segments;
mod server;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod work;
mod write;
mod xml;

pub use access::{Access, AccessLimits, Caller, KeyRequest, issue, key_json};
pub use app::{App, ask};
pub use datasets::describe_datasets;
pub use describe::describe_metrics;
pub use door::Door;
pub use server::{Server, ServerLimits, Tls, TlsError};
pub use state::{Admin, ApiState};
pub use write::rules::WriteRules;
pub use write::statsd::listen as listen_statsd;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post};

use meter::Meter;

/// All routes of the router; single increments are not among them (see [`App`]).
fn routes(state: ApiState, meter: Arc<Meter>) -> Router {
    let guarded = (Arc::clone(&state.access), meter);
    let guarded = axum::middleware::from_fn_with_state(guarded, access::guard);
    Router::new()
        .merge(writes())
        .merge(compress::answers(
            reads()
                .merge(bitly::routes())
                .merge(docs::routes())
                .merge(dashboard::routes()),
        ))
        .merge(operations())
        .fallback(dashboard::unrouted)
        .method_not_allowed_fallback(problem::unrouted_method)
        .layer(guarded)
        // Handlers that take a body bound it themselves, after decompression too.
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

fn writes() -> Router<ApiState> {
    Router::new()
        .route("/v1/increments", post(write::increments::increments))
        .route("/v1/events", post(write::events::events))
}

fn reads() -> Router<ApiState> {
    let mut router = Router::new()
        .route("/v1/{namespace}/{key}/badge", get(read::key::badge))
        .route("/v1/{namespace}/{key}/by/{subtotal}", get(read::key::by))
        .route("/v1/namespaces", get(read::namespaces::namespaces))
        .route("/v1/query", post(read::query::query))
        .route("/v1/query.csv", post(read::query::query))
        .route("/v1/ratios/{ratio}/{entity}/{key}", get(read::ratio::ratio))
        .route("/v1/events/{id}", get(read::event::verdict));
    let in_every_form = [
        ("/v1/{namespace}/{key}/counts", get(read::key::counts)),
        ("/v1/{namespace}/{key}/summary", get(read::key::summary)),
        ("/v1/{namespace}/{key}/uniques", get(read::uniques::uniques)),
        ("/v1/{namespace}/counts", get(read::whole::counts_of_all)),
        ("/v1/{namespace}/top", get(read::top::top)),
    ];
    for (path, handler) in in_every_form {
        for suffix in ["", ".csv", ".svg"] {
            router = router.route(&format!("{path}{suffix}"), handler.clone());
        }
    }
    router
}

fn operations() -> Router<ApiState> {
    Router::new()
        .route("/v1/admin/status", get(admin::status))
        .route("/v1/admin/rebuild", post(admin::rebuild))
        .route("/v1/admin/generations", get(admin::generations))
        .route("/v1/admin/generations/{id}/activate", post(admin::activate))
        .route("/v1/admin/datasets", get(datasets::list))
        .route(
            "/v1/admin/datasets/{name}",
            post(datasets::adopt).delete(datasets::drop),
        )
        .route(
            "/v1/admin/keys",
            get(access::keys::list).post(access::keys::create),
        )
        .route("/v1/admin/keys/{id}", delete(access::keys::revoke))
        .route("/v1/live", get(read::live::live))
        .route("/healthz", get(probes::healthz))
        .route("/readyz", get(probes::readyz))
        .route("/metrics", get(probes::metrics))
}
