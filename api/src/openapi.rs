//! The OpenAPI document, made from the handlers, and the page that shows it.

mod bitly;
mod common;
mod files;
mod forms;
mod namespaces;

use utoipa::OpenApi;

use bitly::BitlyRoutes;
use common::{Common, Keys};
use files::Files;
use forms::Forms;
use namespaces::AnyNamespace;

/// Everything the server answers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tallyring",
        description = "Counts: increments in over HTTP, counts out by hour, day, week or month in any time zone.\n\n\
            Times in requests are RFC 3339 or Unix seconds, times in answers RFC 3339 with an offset. Counts are JSON \
            integers up to 2^53-1. Errors are `application/problem+json` and say what to change. Keys and values are any \
            text of up to 2,048 bytes. Answers of more than 1 KiB come as gzip or zstd to who accepts them; reads carry an \
            `ETag`, and may be kept by caches where their range lies wholly in the archive. All that an answer acknowledges or \
            tells of lies before its `Tallyring-Position`: a read with this as `after` counts at least that much.",
    ),
    paths(
        crate::write::incr::incr_get,
        crate::write::incr::incr_post,
        crate::write::increments::increments,
        crate::write::events::events,
        crate::read::key::counts,
        crate::read::key::summary,
        crate::read::key::badge,
        crate::read::key::by,
        crate::read::whole::counts_of_all,
        crate::read::whole::by_of_all,
        crate::read::top::top,
        crate::read::keys::keys,
        crate::read::namespaces::namespaces,
        crate::read::live::live,
        crate::read::closed::closed,
        crate::read::finals::finals,
        crate::read::finals::days::days,
        crate::read::finals::versions,
        crate::read::query::query,
        crate::actions::query::query,
        crate::actions::check::check,
        crate::actions::reserve::reserve,
        crate::actions::reserve::release,
        crate::actions::frequency::frequency,
        crate::actions::lookup::lookup,
        crate::actions::erase::erase,
        crate::read::ratio::ratio,
        crate::read::together::compare,
        crate::read::week::week,
        crate::read::uniques::uniques,
        crate::read::event::verdict,
        crate::admin::status,
        crate::generations::rebuild,
        crate::generations::newest_rebuild,
        crate::reload::reload,
        crate::reconcile::start,
        crate::reconcile::newest,
        crate::reconciles::list,
        crate::reconciles::of_day,
        crate::read::event::void::void,
        crate::deletes::preview,
        crate::deletes::order,
        crate::deletes::list,
        crate::generations::generations,
        crate::generations::activate,
        crate::datasets::list,
        crate::datasets::adopt,
        crate::datasets::drop,
        crate::access::keys::list,
        crate::access::keys::create,
        crate::access::keys::revoke,
        crate::access::shares::list,
        crate::access::shares::create,
        crate::access::shares::revoke,
        crate::probes::healthz,
        crate::probes::readyz,
        crate::probes::metrics,
        crate::prometheus::query,
        crate::prometheus::query_range,
        crate::prometheus::labels::label_names,
        crate::prometheus::labels::label_values,
        crate::prometheus::labels::series,
        crate::prometheus::labels::metadata,
        crate::prometheus::labels::build,
    ),
    components(schemas(crate::prometheus::PrometheusError)),
    modifiers(&Forms, &Common, &Files, &AnyNamespace, &BitlyRoutes, &Keys),
    tags(
        (name = "write", description = "Increments: durable when answered"),
        (name = "read", description = "Counts, breakdowns, rankings: one answer is one view"),
        (name = "actions", description = "How often users did what, caps, and reservations"),
        (name = "prometheus", description = "Prometheus' HTTP API over the counts, for clients such as Grafana"),
        (name = "operate", description = "Health, state and jobs"),
        (name = "bitly v3", description = "bitly's version 3: status 200 always, the envelope says what went well"),
        (name = "bitly v4", description = "bitly's version 4"),
    ),
)]
pub(crate) struct ApiDocument;
