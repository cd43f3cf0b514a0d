//! CORS: pages of the origins that the configuration lists may read, without credentials of the browser.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::after::POSITION;

/// Origins whose pages may read; off when empty.
#[derive(Debug, Default)]
pub(super) struct Origins(Vec<HeaderValue>);

const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");

impl Origins {
    /// Exactly these; what is no header value can be no origin either.
    pub(super) fn new(origins: &[String]) -> Self {
        Self(
            origins
                .iter()
                .filter_map(|origin| HeaderValue::from_str(origin).ok())
                .collect(),
        )
    }

    /// True when CORS is off.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The request's origin, if its pages may read.
    pub(super) fn allowed(&self, headers: &HeaderMap) -> Option<&HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.0.iter().find(|allowed| *allowed == origin)
    }

    /// The answer to a browser that asks whether it may send a GET with a key.
    pub(super) fn preflight(&self, parts: &Parts) -> Option<Response> {
        if parts.method != Method::OPTIONS {
            return None;
        }
        let asked = parts.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
        let origin = self.allowed(&parts.headers)?;
        if asked != "GET" && asked != "HEAD" {
            return None;
        }
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, HEAD"),
        );
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("authorization, x-request-id"),
        );
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
        permit(&mut response, origin.clone());
        Some(response)
    }
}

/// Says that pages of this origin may see the answer.
pub(super) fn permit(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from(POSITION),
    );
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
