//! The OpenAPI document, made from the handlers, and the page that shows it.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::{IntoParams, IntoResponses, Modify, OpenApi, ToSchema};

use crate::problem::Document;

/// Everything the server answers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tallyring",
        description = "Counts: increments in over HTTP, counts out by hour, day, week or month in any time zone.\n\n\
            Times in requests are RFC 3339 or Unix seconds, times in answers RFC 3339 with an offset. Counts are JSON \
            integers up to 2^53-1. Errors are `application/problem+json` and say what to change.",
    ),
    paths(
        crate::write::incr::incr_get,
        crate::write::incr::incr_post,
        crate::write::increments::increments,
        crate::write::events::events,
        crate::read::key::counts,
        crate::read::key::summary,
        crate::read::key::by,
        crate::read::top::top,
        crate::read::query::query,
        crate::read::ratio::ratio,
        crate::read::uniques::uniques,
        crate::read::event::verdict,
        crate::admin::status,
        crate::admin::rebuild,
        crate::admin::generations,
        crate::admin::activate,
        crate::access::admin::list,
        crate::access::admin::create,
        crate::access::admin::revoke,
        crate::health::healthz,
        crate::health::readyz,
        crate::health::metrics,
    ),
    modifiers(&Keys),
    tags(
        (name = "write", description = "Increments: durable when answered"),
        (name = "read", description = "Counts, breakdowns, rankings: one answer is one view"),
        (name = "operate", description = "Health, state and jobs"),
    ),
)]
pub struct ApiDocument;

/// Says how a key is sent.
struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key, once there is one: tr_…"))
            .build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("key", SecurityScheme::Http(bearer));
        // Without keys none is needed: the empty requirement says so.
        document.security = Some(vec![
            SecurityRequirement::new::<_, [&str; 0], &str>("key", []),
            SecurityRequirement::default(),
        ]);
    }
}

/// Which buckets, in which zone.
#[derive(IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "describes the query string, which is parsed by hand so that errors name their field"
)]
pub struct RangeParameters {
    /// minute, hour, day, week (from Sunday), mweek (from Monday), month, quarter or year
    #[param(example = "day", default = "day")]
    unit: Option<String>,
    /// How many buckets up to the one that holds `to`; -1 for all that were counted; at most 10,000
    #[param(example = 7, default = 7)]
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
    #[param(example = 5.5)]
    hour_offset: Option<f64>,
    /// Reads a kept generation as it was
    #[param(example = 3)]
    as_of: Option<u64>,
}

/// How a read can fail.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub enum ReadErrors {
    /// No key, or a wrong one, once keys are configured
    #[response(status = 401, content_type = "application/problem+json")]
    NoKey(Document),
    /// The key lacks the scope, or is not for the namespace
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Document),
    /// A parameter that cannot be understood; `field` names it
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Document),
    /// A namespace, subtotal, generation or route that does not exist; says which do
    #[response(status = 404, content_type = "application/problem+json")]
    Unknown(Document),
    /// Understood, but beyond a bound
    #[response(status = 422, content_type = "application/problem+json")]
    Refused(Document),
    /// The key's items a second are used up; comes with Retry-After
    #[response(status = 429, content_type = "application/problem+json")]
    TooMany(Document),
    /// Too much at once, or a damaged file; comes with Retry-After
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Document),
}

/// How a write can fail. Nothing was counted, except that after a 503 it is not known.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub enum WriteErrors {
    /// No key, or a wrong one, once keys are configured
    #[response(status = 401, content_type = "application/problem+json")]
    NoKey(Document),
    /// The key lacks the scope, or is not for the namespace
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Document),
    /// Malformed, or an undeclared namespace or subtotal; `field` names it, `index` the item
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Document),
    /// A counter would exceed 2^53-1
    #[response(status = 409, content_type = "application/problem+json")]
    Overflow(Document),
    /// Time more than 24 hours ahead or before 2000, or a reused idempotency key
    #[response(status = 422, content_type = "application/problem+json")]
    Refused(Document),
    /// The key's items a second are used up; comes with Retry-After
    #[response(status = 429, content_type = "application/problem+json")]
    TooMany(Document),
    /// Queues are full, or the log failed; comes with Retry-After
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Document),
    /// The disk is full
    #[response(status = 507, content_type = "application/problem+json")]
    DiskFull(Document),
}

/// How a body can be refused.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub enum BodyErrors {
    /// The body did not arrive in time
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(Document),
    /// Too many bytes or items, decompressed
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Document),
    /// A content encoding other than gzip and zstd
    #[response(status = 415, content_type = "application/problem+json")]
    Encoding(Document),
}
