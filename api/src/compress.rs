//! Compressed answers: gzip or zstd, as the client likes.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate, SizeAbove};

use crate::problem::Problem;
use crate::state::ApiState;

/// Answers of fewer bytes are sent as they are.
const COMPRESSED_ABOVE: u64 = 1_024;

/// Compresses the answers of these routes.
pub fn answers(routes: Router<ApiState>) -> Router<ApiState> {
    let large = DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_ABOVE));
    routes
        .layer(CompressionLayer::new().compress_when(large))
        .layer(map_response(say_406))
}

/// The layer refuses by changing the status of the answer that it cannot send: a client would take its body
/// for what it asked for, and a cache its validator.
async fn say_406(response: Response) -> Response {
    if response.status() != StatusCode::NOT_ACCEPTABLE {
        return response;
    }
    let detail =
        "Accept-Encoding refuses every encoding that is sent; accept gzip, zstd or identity";
    let mut problem = Problem::new(StatusCode::NOT_ACCEPTABLE, "Not acceptable", detail)
        .about("accept-encoding", None)
        .into_response();
    let vary = header::HeaderValue::from_static("accept-encoding");
    problem.headers_mut().insert(header::VARY, vary);
    problem
}
