//! How large the head of a request may be, and that it names its host once.
//!
//! hyper has bounds of its own, twice as wide, and answers beyond them without a body: what is between
//! is told in a problem document what to change.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Version, header};

use crate::problem::{Problem, Result};

/// Headers of one request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes of its path, query and headers.
pub(crate) const HEAD_BYTES_MAX: usize = 32 << 10;

/// Says what is too large about a request's head. Fails with 431, which names the limits.
pub(crate) fn check(head: &Parts) -> Result<()> {
    let headers = &head.headers;
    let target = head.uri.path_and_query();
    let target_bytes = target.map_or(0, |target| target.as_str().len());
    let header_bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if headers.len() <= HEADERS_MAX && target_bytes + header_bytes <= HEAD_BYTES_MAX {
        return Ok(());
    }
    let detail = format!(
        "The request has {} headers, and {} bytes in them and in its path; at most {HEADERS_MAX} and {HEAD_BYTES_MAX} are \
         taken: send long lists with POST /v1/query or POST /v1/increments.",
        headers.len(),
        target_bytes + header_bytes
    );
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    Err(Problem::new(status, "Head too large", detail))
}

/// Says what is wrong with the `Host` of a request that came over a connection (RFC 9112, section 3.2). Fails with 400
/// for two, for none in HTTP/1.1, and for what is no host.
pub(crate) fn check_host(version: Version, headers: &HeaderMap) -> Result<()> {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    let wrong = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => "is given twice; send it once",
        (None, _) if version == Version::HTTP_11 => "is missing; HTTP/1.1 needs it",
        (Some(host), None) if !is_host(host.as_bytes()) => {
            "must be a name or an address, with a port or without"
        }
        _ => return Ok(()),
    };
    Err(Problem::malformed("host", "", wrong))
}

/// Empty where what is asked for has none.
fn is_host(text: &[u8]) -> bool {
    text.is_empty() || !text.contains(&b'@') && Authority::try_from(text).is_ok()
}
