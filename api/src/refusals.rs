//! How requests can be refused, for the description of the API.

use utoipa::IntoResponses;

use crate::problem::Document;

/// How a read can be refused.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub(crate) enum ReadErrors {
    /// A parameter that cannot be understood; `field` names it
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Document),
    /// A name that does not exist; `detail` lists those that do
    #[response(status = 404, content_type = "application/problem+json")]
    Unknown(Document),
    /// Understood, but beyond a bound
    #[response(status = 422, content_type = "application/problem+json")]
    Refused(Document),
}

/// How a write can be refused. Nothing was counted, except that a 503 leaves it open.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers, which are made by `Problem`")]
pub(crate) enum WriteErrors {
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
pub(crate) enum BodyErrors {
    /// Too many bytes or items, decompressed
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Document),
    /// A content encoding other than gzip and zstd
    #[response(status = 415, content_type = "application/problem+json")]
    Encoding(Document),
}
