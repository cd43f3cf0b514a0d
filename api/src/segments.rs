//! Path segments, percent-decoded; what cannot be decoded is a problem document too.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::{Problem, Result};
use crate::query_string::is_percent_encoded;

/// The captured segments of a route.
pub(crate) struct Segments<T>(pub T);

impl<T, S> FromRequestParts<S> for Segments<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(segments)) if is_percent_encoded(parts.uri.path()) => Ok(Self(segments)),
            _ => Err(undecodable(parts.uri.path())),
        }
    }
}

/// 400 for a path whose segments cannot be decoded.
pub(crate) fn undecodable(path: &str) -> Problem {
    let detail =
        "must be percent-encoded UTF-8, each key as one segment; a % itself is sent as %25";
    Problem::malformed("path", path, detail)
}
