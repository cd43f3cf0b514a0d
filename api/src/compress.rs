//! Compressed answers: gzip or zstd, as the client likes.

use std::convert::Infallible;
use std::future::ready;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use tower::{ServiceExt, service_fn};
use tower_http::compression::predicate::{DefaultPredicate, Predicate, SizeAbove};
use tower_http::compression::{Compression, CompressionLayer};

use crate::problem::Problem;
use crate::state::ApiState;

/// Answers of fewer bytes are sent as they are.
const COMPRESSED_ABOVE: u64 = 1_024;

/// Compresses the answers of these routes.
pub fn answers(routes: Router<ApiState>) -> Router<ApiState> {
    routes
        .layer(CompressionLayer::new().compress_when(large()))
        .layer(map_response(say_406))
}

/// Compresses an answer as the request that it is for likes it.
pub async fn answer(request: &HeaderMap, response: Response) -> Response {
    let mut accepted = request.get_all(header::ACCEPT_ENCODING).iter().peekable();
    if accepted.peek().is_none() {
        return response;
    }
    let mut asked = Request::new(());
    for encoding in accepted {
        let headers = asked.headers_mut();
        headers.append(header::ACCEPT_ENCODING, encoding.clone());
    }
    let mut response = Some(response);
    let answered = service_fn(|_| {
        ready(Ok::<_, Infallible>(
            response.take().expect("BUG: asked once"),
        ))
    });
    let compressed = Compression::new(answered).compress_when(large());
    let Ok(response) = compressed.oneshot(asked).await;
    say_406(response.map(Body::new)).await
}

fn large() -> impl Predicate {
    DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_ABOVE))
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
