//! The answer to an address that no route has: a page where a browser asks, a problem in the words of Prometheus' API
//! below its prefix, and a problem document elsewhere.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::chart::push_escaped;
use crate::page::{HTML, with_policy};
use crate::problem;
use crate::prometheus::{self, PrometheusError};
use crate::read::format::asks_page;

const PAGE: &str = include_str!("page/missing.html");

/// So many characters of the address are shown.
const SHOWN_CHARS_MAX: usize = 200;

/// 404 for a request that no route has.
pub(crate) async fn unrouted(request: Request) -> Response {
    missing(request.headers(), request.uri().path())
}

/// 404 for this path.
pub(crate) fn missing(headers: &HeaderMap, path: &str) -> Response {
    let mut response = match asks_page(headers) {
        true => page(path),
        false if path.starts_with(prometheus::PREFIX) => {
            PrometheusError::response(&problem::no_route(path))
        }
        false => problem::no_route(path).into_response(),
    };
    let by_accept = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, by_accept);
    response
}

fn page(path: &str) -> Response {
    let mut shown: String = path.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < path.len() {
        shown.push('…');
    }
    let mut escaped = String::new();
    push_escaped(&mut escaped, &shown);
    let text = PAGE.replace("{{path}}", &escaped);
    let kept = [(header::CACHE_CONTROL, "no-store")];
    (StatusCode::NOT_FOUND, kept, with_policy(HTML, text)).into_response()
}
