//! The description of the API: as OpenAPI, and as a page that a reader can use without scripts.

mod page;

use axum::Router;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use utoipa::OpenApi;

use crate::openapi::ApiDocument;
use crate::page::{CSS, HTML, cached};
use crate::problem;
use crate::segments::Segments;
use crate::state::ApiState;

const DESCRIPTION: &str = "/openapi.json";
const STYLE: &str = include_str!("docs/style.css");

/// `/docs` and `/openapi.json`.
pub fn routes() -> Router<ApiState> {
    let document = ApiDocument::openapi().to_json();
    let document = document.expect("BUG: the description is JSON");
    let parsed = serde_json::from_str(&document);
    let page = page::render(&parsed.expect("BUG: the description is JSON"));
    let (document, page) = (Bytes::from(document), Bytes::from(page));
    let describe =
        move |headers: HeaderMap| async move { cached(&headers, "application/json", document) };
    let show = move |headers: HeaderMap| async move { cached(&headers, HTML, page) };
    Router::new()
        .route("/docs", get(show.clone()))
        .route("/docs/", get(show))
        .route("/docs/{file}", get(file))
        .route(DESCRIPTION, get(describe))
}

async fn file(Segments(name): Segments<String>, headers: HeaderMap) -> Response {
    match name.as_str() {
        "style.css" => cached(&headers, CSS, STYLE),
        _ => problem::no_route(&format!("/docs/{name}")).into_response(),
    }
}
