//! The dashboard: pages from the binary that read the API as any client does.
//!
//! Pages hold no data and no inline script or style; everything comes from this server, and nothing else
//! is allowed ([`POLICY`]). So they are open, and what they read needs a key where the API does: signing
//! in puts it into a cookie that no script reads ([`crate::access`]). Every state of a page has an
//! address of its own. Charts are the API's own pictures, inline, under [`page_style_sheet`].

mod sign_in;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::chart::page_style_sheet;
use crate::etag::{self, IfNoneMatch};
use crate::problem;
use crate::segments::Segments;
use crate::state::ApiState;

/// What pages may load: this server's own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// The one page; its script looks at the address.
const PAGE: &str = include_str!("page/index.html");

/// A script of the page.
macro_rules! script {
    ($name:literal) => {
        ($name, JAVASCRIPT, include_str!(concat!("page/", $name)))
    };
}

/// Files of the page: name, media type, text.
const FILES: [(&str, &str, &str); 10] = [
    ("style.css", CSS, include_str!("page/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    script!("app.js"),
    script!("api.js"),
    script!("chart.js"),
    script!("format.js"),
    script!("key.js"),
    script!("live.js"),
    script!("overview.js"),
    script!("search.js"),
];

/// Style sheet of the charts.
const CHARTS: &str = "charts.css";

/// The pages, their files, and signing in and out.
pub fn routes() -> Router<ApiState> {
    Router::new()
        .route("/", get(page))
        .route("/search", get(page))
        .route("/keys/{namespace}/{key}", get(page))
        .route("/dashboard/{file}", get(file))
        .route("/login", get(sign_in::form).post(sign_in::sign_in))
        .route("/logout", post(sign_in::sign_out))
}

async fn page(headers: HeaderMap) -> Response {
    known_or(&headers, HTML, PAGE.to_owned())
}

async fn file(Segments(name): Segments<String>, headers: HeaderMap) -> Response {
    if name == CHARTS {
        return known_or(&headers, CSS, page_style_sheet());
    }
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => known_or(&headers, kind, (*text).to_owned()),
        None => problem::no_route(&format!("/dashboard/{name}")).into_response(),
    }
}

/// A text of the page, or nothing when the browser has it already.
fn known_or(headers: &HeaderMap, kind: &'static str, text: String) -> Response {
    let tag = etag::of(&text);
    let kept = [(header::CACHE_CONTROL, "no-cache")];
    if IfNoneMatch::of(headers).matches(&tag) {
        return (StatusCode::NOT_MODIFIED, kept, [(header::ETAG, tag)]).into_response();
    }
    (kept, [(header::ETAG, tag)], with_policy(kind, text)).into_response()
}

/// A text of this type, and what a browser may do with it.
fn with_policy(kind: &'static str, text: String) -> impl IntoResponse {
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
    (headers, text)
}
