//! The page that shows the API, and its description: from the binary, for browsers to keep.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use utoipa::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::etag::{self, IfNoneMatch};
use crate::openapi::ApiDocument;
use crate::problem;
use crate::segments::undecodable;
use crate::state::ApiState;

const DESCRIPTION: &str = "/openapi.json";
/// Scripts and styles change with the binary only.
const ASSET: HeaderValue = HeaderValue::from_static("public, max-age=86400");
/// Everything else is asked for again each time.
const PAGE: HeaderValue = HeaderValue::from_static("no-cache");

/// `/docs` and `/openapi.json`.
pub fn routes() -> Router<ApiState> {
    let document = ApiDocument::openapi().to_json();
    let document = document.expect("BUG: the description is JSON");
    let tag = etag::of(&document);
    let document = Bytes::from(document);
    let describe = move |headers: HeaderMap| async move { description(&headers, &tag, document) };
    let page = SwaggerUi::new("/docs").config(Config::from(DESCRIPTION));
    Router::new()
        .merge(page)
        .layer(from_fn(keep))
        .route(DESCRIPTION, get(describe))
}

fn description(headers: &HeaderMap, tag: &HeaderValue, document: Bytes) -> Response {
    let kept = [(header::CACHE_CONTROL, PAGE), (header::ETAG, tag.clone())];
    if IfNoneMatch::of(headers).matches(tag) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kept, kind, document).into_response()
}

/// Says how long a file may be kept, and that a file is not there, or its name is none, as everything else is said.
async fn keep(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND {
        return problem::no_route(&path).into_response();
    }
    if response.status() == StatusCode::BAD_REQUEST {
        return undecodable(&path).into_response();
    }
    let is_asset = path.ends_with(".css") || path.ends_with(".png") || path.ends_with(".js");
    // The script that names the description may name another one in the next version.
    let is_kept = is_asset && !path.ends_with("/swagger-initializer.js");
    let cache = if is_kept { ASSET } else { PAGE };
    response.headers_mut().insert(header::CACHE_CONTROL, cache);
    response
}
