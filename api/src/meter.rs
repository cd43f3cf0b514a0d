//! Counts and times requests by route and status. No label holds a key.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;

/// Measures one request.
pub async fn measure(request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let start = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16().to_string();
    metrics::histogram!("tallyring_http_request_seconds", "route" => route.clone())
        .record(start.elapsed().as_secs_f64());
    metrics::counter!("tallyring_http_requests_total", "route" => route, "status" => status)
        .increment(1);
    response
}
