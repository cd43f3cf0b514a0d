//! The description of the API: as OpenAPI, and as a page that a reader can use without scripts.

mod page;

use std::sync::LazyLock;

use axum::Router;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use utoipa::OpenApi;

use crate::dashboard::missing;
use crate::openapi::ApiDocument;
use crate::page::{CSS, HTML, Tagged, cached};
use crate::segments::Segments;
use crate::state::ApiState;

const DESCRIPTION: &str = "/openapi.json";
const STYLE: &str = include_str!("docs/style.css");

/// Made by the first reader: commands without a server answer from the same router.
static DOCUMENT: LazyLock<Tagged> = LazyLock::new(|| {
    let document = ApiDocument::openapi().to_json();
    Tagged::new(
        "application/json",
        document.expect("BUG: the description is JSON"),
    )
});

static PAGE: LazyLock<Tagged> = LazyLock::new(|| {
    let document = serde_json::to_value(ApiDocument::openapi());
    Tagged::new(
        HTML,
        page::render(&document.expect("BUG: the description is JSON")),
    )
});

/// `/docs` and `/openapi.json`.
pub(crate) fn routes() -> Router<ApiState> {
    let describe = async |headers: HeaderMap| DOCUMENT.answer(&headers);
    let show = async |headers: HeaderMap| PAGE.answer(&headers);
    Router::new()
        .route("/docs", get(show))
        .route("/docs/", get(show))
        .route("/docs/{file}", get(file))
        .route(DESCRIPTION, get(describe))
}

async fn file(Segments(name): Segments<String>, headers: HeaderMap) -> Response {
    match name.as_str() {
        "style.css" => cached(&headers, CSS, STYLE),
        _ => missing(&headers, &format!("/docs/{name}")),
    }
}
