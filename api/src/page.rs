//! Pages from the binary: what a browser may do with them, and how long it may keep them.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::etag::{self, IfNoneMatch};

/// Pages load this server's own files and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// A text of a page, and the tag of its content.
pub(crate) struct Tagged {
    kind: &'static str,
    tag: HeaderValue,
    text: Bytes,
}

impl Tagged {
    /// Computes the tag, which takes time in proportion to the text.
    pub(crate) fn new(kind: &'static str, text: impl Into<Bytes>) -> Self {
        let text = text.into();
        Self {
            kind,
            tag: etag::of(&text),
            text,
        }
    }

    /// The text; 304 when the browser has it already.
    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response {
        let tag = self.tag.clone();
        let kept = [(header::CACHE_CONTROL, "no-cache")];
        if IfNoneMatch::of(headers).matches(&tag) {
            return (StatusCode::NOT_MODIFIED, kept, [(header::ETAG, tag)]).into_response();
        }
        let page = with_policy(self.kind, self.text.clone());
        (kept, [(header::ETAG, tag)], page).into_response()
    }
}

/// A short text of a page; 304 when the browser has it already.
pub(crate) fn cached(headers: &HeaderMap, kind: &'static str, text: impl Into<Bytes>) -> Response {
    Tagged::new(kind, text).answer(headers)
}

/// A text of this type, and what a browser may do with it.
pub(crate) fn with_policy(kind: &'static str, text: impl Into<Bytes>) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    (headers, text.into())
}
