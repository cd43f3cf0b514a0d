//! The HTTP API: increments in, counts out, for clients and operators.
//!
//! It merges what the store's one view gives it into units of any zone. It knows nothing of how
//! generations are built: a rebuild is started through [`Admin`], which the binary wires.

mod access;
mod actions;
mod admin;
mod after;
mod alerts;
mod app;
mod bitly;
mod body;
pub mod calendar;
pub mod chart;
mod compress;
mod dashboard;
mod datasets;
mod deletes;
mod describe;
mod docs;
mod door;
mod drain;
mod enrich;
mod envelope;
mod etag;
mod filtered;
mod gauges;
mod generations;
mod head;
mod health;
mod meter;
mod nodes;
mod openapi;
mod orders;
mod page;
mod probes;
mod problem;
mod prometheus;
mod query_string;
mod read;
mod read_only;
mod reconcile;
mod reconciles;
mod refusals;
mod reload;
mod repeated;
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
pub use actions::{ActionRules, CapSection};
pub use alerts::{AlertState, AlertsState, ReceiverState, ReportState};
pub use app::{App, ask};
pub use datasets::describe_datasets;
pub use describe::describe_metrics;
pub use door::Door;
pub use enrich::{Enrich, Geo, GeoError, GeoFile, Proxies};
pub use nodes::Nodes;
pub use read::closed::ClosedLine;
pub use reconcile::{DayOutcome, Days, Found, ReconcileJob, ReconcileOrder};
pub use server::{Server, ServerLimits, Tls, TlsError, Trust};
pub use state::{
    Admin, ApiState, BackupOutcome, BackupState, Closed, ConfigState, Overdue, Reloaded, Settings,
};
pub use table::Table;
pub use write::cloud_event_rules::{CloudEventRule, CloudEventRules};
pub use write::consume::{
    ConsumedTopic, Consumer, Consuming, MessageFormat, PartitionStanding, TopicStanding,
};
pub use write::rules::WriteRules;
pub use write::statsd::listen as listen_statsd;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, delete, get, post};

use meter::Meter;

/// Routes, and what answers each.
type Routes = Vec<(String, MethodRouter<ApiState>)>;

/// All routes of the router; single increments are not among them (see [`App`]).
fn routes(state: ApiState, meter: Arc<Meter>) -> Router {
    let guarded = (Arc::clone(&state.access), Arc::clone(state.stores()), meter);
    let guarded = axum::middleware::from_fn_with_state(guarded, access::guard);
    Router::new()
        .merge(router(writes()))
        .merge(compress::answers(
            router(reads())
                .merge(bitly::routes())
                .merge(docs::routes())
                .merge(dashboard::routes()),
        ))
        .merge(router(operations()))
        .fallback(dashboard::unrouted)
        .method_not_allowed_fallback(problem::unrouted_method)
        .layer(guarded)
        // Handlers that take a body bound it themselves, after decompression too.
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

fn router(routes: Routes) -> Router<ApiState> {
    let routes = routes.into_iter();
    routes.fold(Router::new(), |router, (path, answer)| {
        router.route(&path, answer)
    })
}

fn writes() -> Routes {
    let routes = [
        ("/v1/increments", post(write::increments::increments)),
        ("/v1/events", post(write::events::events)),
    ];
    routes
        .map(|(path, answer)| (path.to_owned(), answer))
        .into()
}

fn reads() -> Routes {
    let routes = [
        ("/v1/namespaces", get(read::namespaces::namespaces)),
        ("/v1/actions/query", post(actions::query::query)),
        ("/v1/actions/query.csv", post(actions::query::query)),
        ("/v1/actions/check", post(actions::check::check)),
        ("/v1/actions/reserve", post(actions::reserve::reserve)),
        (
            "/v1/actions/reservations/{reservation}",
            delete(actions::reserve::release),
        ),
        ("/v1/actions/frequency", post(actions::frequency::frequency)),
        ("/v1/users/lookup", post(actions::lookup::lookup)),
        ("/v1/users/erase", post(actions::erase::erase)),
        ("/v1/query", post(read::query::query)),
        ("/v1/query.csv", post(read::query::query)),
        ("/v1/ratios/{ratio}/{entity}/{key}", get(read::ratio::ratio)),
        ("/v1/compare", get(read::together::compare)),
        ("/v1/compare.csv", get(read::together::compare)),
        ("/v1/compare.svg", get(read::together::compare)),
        ("/v1/closed", get(read::closed::closed)),
        ("/v1/finals", get(read::finals::finals)),
        ("/v1/finals.csv", get(read::finals::finals)),
        ("/v1/finals/days", get(read::finals::days::days)),
        ("/v1/finals/days.csv", get(read::finals::days::days)),
        ("/v1/finals/{day}", get(read::finals::versions)),
        ("/v1/events/{id}", get(read::event::verdict)),
    ];
    let mut routes = Routes::from(routes.map(|(path, answer)| (path.to_owned(), answer)));
    routes.extend(prometheus::routes());
    let of_namespace = [
        ("{key}/badge", get(read::key::badge)),
        ("{key}/by/{subtotal}", get(read::key::by)),
    ];
    let in_every_form = [
        ("{key}/counts", get(read::key::counts)),
        ("{key}/summary", get(read::key::summary)),
        ("{key}/uniques", get(read::uniques::uniques)),
        ("{key}/week", get(read::week::week)),
        ("counts", get(read::whole::counts_of_all)),
        ("by", get(read::whole::by_of_all)),
        ("top", get(read::top::top)),
    ];
    for of in [OF_NAMESPACE, OF_ANY_NAMESPACE] {
        for (path, answer) in &of_namespace {
            routes.push((format!("{of}{path}"), answer.clone()));
        }
        for suffix in ["", ".csv"] {
            routes.push((format!("{of}keys{suffix}"), get(read::keys::keys)));
        }
        for (path, answer) in &in_every_form {
            for suffix in ["", ".csv", ".svg"] {
                routes.push((format!("{of}{path}{suffix}"), answer.clone()));
            }
        }
    }
    routes
}

/// Where the reads of a namespace are.
const OF_NAMESPACE: &str = "/v1/{namespace}/";
/// Where they are also of a namespace that an old store has under a word of the API.
const OF_ANY_NAMESPACE: &str = "/v1/namespaces/{namespace}/";

fn operations() -> Routes {
    let routes = [
        ("/v1/admin/status", get(admin::status)),
        (
            "/v1/admin/rebuild",
            get(generations::newest_rebuild).post(generations::rebuild),
        ),
        ("/v1/admin/reload", post(reload::reload)),
        (
            "/v1/admin/reconcile",
            get(reconcile::newest).post(reconcile::start),
        ),
        ("/v1/admin/deletes", get(deletes::list).post(deletes::order)),
        ("/v1/admin/deletes/preview", get(deletes::preview)),
        ("/v1/admin/reconciles", get(reconciles::list)),
        ("/v1/admin/reconciles/{day}", get(reconciles::of_day)),
        ("/v1/events/{id}/void", post(read::event::void::void)),
        ("/v1/admin/generations", get(generations::generations)),
        (
            "/v1/admin/generations/{id}/activate",
            post(generations::activate),
        ),
        ("/v1/admin/datasets", get(datasets::list)),
        (
            "/v1/admin/datasets/{name}",
            post(datasets::adopt).delete(datasets::drop),
        ),
        (
            "/v1/admin/keys",
            get(access::keys::list).post(access::keys::create),
        ),
        ("/v1/admin/keys/{id}", delete(access::keys::revoke)),
        (
            "/v1/admin/shares",
            get(access::shares::list).post(access::shares::create),
        ),
        ("/v1/admin/shares/{id}", delete(access::shares::revoke)),
        ("/v1/live", get(read::live::live)),
        ("/healthz", get(probes::healthz)),
        ("/readyz", get(probes::readyz)),
        ("/metrics", get(probes::metrics)),
    ];
    routes
        .map(|(path, answer)| (path.to_owned(), answer))
        .into()
}
