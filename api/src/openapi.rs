//! The OpenAPI document, made from the handlers, and the page that shows it.

mod bitly;
mod common;
mod files;

use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, IntoResponses, OpenApi, ToSchema};

use crate::calendar::Unit;
use crate::problem::Document;
use bitly::BitlyRoutes;
use common::{Common, Keys};
use files::Files;

/// Everything the server answers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tallyring",
        description = "Counts: increments in over HTTP, counts out by hour, day, week or month in any time zone.\n\n\
            Times in requests are RFC 3339 or Unix seconds, times in answers RFC 3339 with an offset. Counts are JSON \
            integers up to 2^53-1. Errors are `application/problem+json` and say what to change. Keys and values are any \
            text of up to 2,048 bytes. Answers of more than 1 KiB come as gzip or zstd to who accepts them; reads carry an \
            `ETag`, and may be kept by caches where their range lies wholly in the archive.",
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
        crate::read::top::top,
        crate::read::namespaces::namespaces,
        crate::read::live::live,
        crate::read::query::query,
        crate::read::ratio::ratio,
        crate::read::uniques::uniques,
        crate::read::event::verdict,
        crate::admin::status,
        crate::admin::rebuild,
        crate::admin::generations,
        crate::admin::activate,
        crate::datasets::list,
        crate::datasets::adopt,
        crate::datasets::drop,
        crate::access::keys::list,
        crate::access::keys::create,
        crate::access::keys::revoke,
        crate::health::healthz,
        crate::health::readyz,
        crate::health::metrics,
    ),
    modifiers(&Common, &Files, &BitlyRoutes, &Keys),
    tags(
        (name = "write", description = "Increments: durable when answered"),
        (name = "read", description = "Counts, breakdowns, rankings: one answer is one view"),
        (name = "operate", description = "Health, state and jobs"),
        (name = "bitly v3", description = "bitly's version 3: status 200 always, the envelope says what went well"),
        (name = "bitly v4", description = "bitly's version 4"),
    ),
)]
pub struct ApiDocument;

/// Whose counts: the path of every read of a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path, which the router takes apart")]
pub struct KeyPath {
    /// A declared namespace
    #[param(example = "l")]
    namespace: String,
    /// Percent-encoded as one segment, 1 to 2,048 bytes
    #[param(example = "abc", min_length = 1)]
    key: String,
}

/// How long a ranking is.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "describes the query string, which is parsed by hand so that errors name their field"
)]
pub struct LimitParameter {
    /// Values or keys listed; 10,000 as CSV if left out
    #[param(minimum = 1, maximum = 10000, default = 10)]
    limit: Option<u32>,
}

/// Which buckets, in which zone.
#[derive(IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "describes the query string, which is parsed by hand so that errors name their field"
)]
pub struct RangeParameters {
    #[param(schema_with = unit_names, required = false, example = "day")]
    unit: Option<String>,
    /// How many buckets up to the one that holds `to`; -1 for all that were counted; at most 10,000
    #[param(minimum = -1, maximum = 10000, example = 7, default = 7)]
    units: Option<i64>,
    /// First time, instead of `units`
    #[param(example = "2012-03-10T00:00:00Z")]
    from: Option<String>,
    /// Last time; now if left out
    #[param(example = "2012-03-16T18:40:00Z")]
    to: Option<String>,
    /// IANA time zone
    #[param(example = "America/New_York", default = "UTC")]
    timezone: Option<String>,
    /// Hours from UTC instead of a zone, -12 to 14 in steps of 0.25
    #[param(minimum = -12, maximum = 14, multiple_of = 0.25, example = 5.5)]
    hour_offset: Option<f64>,
    /// Reads a kept generation as it was
    #[param(example = 3)]
    as_of: Option<u64>,
}

/// The names of units.
fn unit_names() -> Object {
    let names = Unit::ALL.map(Unit::as_str);
    let text = ObjectBuilder::new().schema_type(Type::String);
    let described = "Length of a bucket; weeks begin on Sunday, mweeks on Monday; minutes are of totals where they are kept";
    let text = text
        .description(Some(described))
        .default(Some("day".into()));
    text.enum_values(Some(names)).build()
}

/// The client has the answer already (If-None-Match)
#[derive(IntoResponses)]
#[response(status = 304)]
pub struct Known;

/// How a question can end without its answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub enum AskErrors {
    /// A parameter that cannot be understood; `field` names it
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Document),
    /// What is named does not exist; says what does
    #[response(status = 404, content_type = "application/problem+json")]
    Unknown(Document),
    /// Understood, but beyond a bound
    #[response(status = 422, content_type = "application/problem+json")]
    Refused(Document),
}

/// How a load can be refused.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub enum DatasetErrors {
    /// A dataset of that name exists
    #[response(status = 409, content_type = "application/problem+json")]
    Taken(Document),
}

/// How a write can fail. Nothing was counted, except that after a 503 it is not known.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub enum WriteErrors {
    /// Malformed, or an undeclared namespace or subtotal; `field` names it, `index` the item
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Document),
    /// A counter would exceed 2^53-1
    #[response(status = 409, content_type = "application/problem+json")]
    Overflow(Document),
    /// Time more than 24 hours ahead or before 2000, or a reused idempotency key
    #[response(status = 422, content_type = "application/problem+json")]
    Refused(Document),
    /// The disk is full
    #[response(status = 507, content_type = "application/problem+json")]
    DiskFull(Document),
}

/// How a body can be refused.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub enum BodyErrors {
    /// Too many bytes or items, decompressed
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Document),
    /// A content encoding other than gzip and zstd
    #[response(status = 415, content_type = "application/problem+json")]
    Encoding(Document),
}
