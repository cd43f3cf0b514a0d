//! Compressed answers: gzip or zstd, as the client likes.
//!
//! Small ones are compressed by the thread that serves their connection. For a large one all its other connections would
//! wait, so that is compressed behind other work, whole, and goes out with its length. One that is made while it is sent
//! comes in parts, each compressed where it is sent.

use std::convert::Infallible;
use std::future::ready;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tower::{ServiceExt, service_fn};
use tower_http::compression::predicate::{DefaultPredicate, Predicate, SizeAbove};
use tower_http::compression::{Compression, CompressionLayer};

use crate::access::behind;
use crate::problem::Problem;
use crate::state::ApiState;

/// Answers of fewer bytes are sent as they are.
const COMPRESSED_ABOVE: u64 = 1_024;

/// Answers of more bytes are large: gzip takes half a millisecond for as many.
const LARGE_ABOVE: u64 = 32 << 10;

/// Marks an answer that is large before it is compressed.
#[derive(Clone)]
struct Large;

/// Compresses the answers of these routes.
pub fn answers(routes: Router<ApiState>) -> Router<ApiState> {
    routes
        .layer(map_response(mark_large))
        .layer(CompressionLayer::new().compress_when(worth_it()))
        .layer(map_response(finish))
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
    let mut response = Some(mark_large(response).await);
    let answered = service_fn(|_| {
        ready(Ok::<_, Infallible>(
            response.take().expect("BUG: asked once"),
        ))
    });
    let compressed = Compression::new(answered).compress_when(worth_it());
    let Ok(response) = compressed.oneshot(asked).await;
    finish(response.map(Body::new)).await
}

fn worth_it() -> impl Predicate {
    DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_ABOVE))
}

async fn mark_large(mut response: Response) -> Response {
    let bytes = response.body().size_hint().exact();
    if bytes.is_some_and(|bytes| bytes > LARGE_ABOVE) {
        response.extensions_mut().insert(Large);
    }
    response
}

async fn finish(mut response: Response) -> Response {
    if response.status() == StatusCode::NOT_ACCEPTABLE {
        return say_406();
    }
    let is_large = response.extensions_mut().remove::<Large>().is_some();
    if !is_large || !response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let runtime = Handle::current();
    let compressed = behind(move || {
        let body = runtime.block_on(body.collect());
        Ok(body.expect("BUG: it is in memory").to_bytes())
    });
    match compressed.await {
        Ok(bytes) => Response::from_parts(parts, Body::from(bytes)),
        Err(problem) => problem.into_response(),
    }
}

/// The layer refuses by changing the status of the answer that it cannot send: a client would take its body
/// for what it asked for, and a cache its validator.
fn say_406() -> Response {
    let detail =
        "Accept-Encoding refuses every encoding that is sent; accept gzip, zstd or identity";
    let mut problem = Problem::new(StatusCode::NOT_ACCEPTABLE, "Not acceptable", detail)
        .about("accept-encoding", None)
        .into_response();
    let vary = header::HeaderValue::from_static("accept-encoding");
    problem.headers_mut().insert(header::VARY, vary);
    problem
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::{io, thread};

    use axum::body::Bytes;
    use axum::http::HeaderValue;
    use hyper::body::{Frame, SizeHint};
    use std::pin::Pin;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Context, Poll};

    use super::*;

    /// A body in memory that tells which thread reads it.
    struct Told(Option<Bytes>, Sender<thread::ThreadId>);

    impl HttpBody for Told {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            self.1.send(thread::current().id()).unwrap();
            Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
        }
    }

    #[tokio::test]
    async fn only_large_answers_are_compressed_elsewhere_and_they_have_a_length() {
        for (bytes, encoding, is_elsewhere) in [
            (LARGE_ABOVE + 1, "gzip", true),
            (LARGE_ABOVE, "gzip", false),
            (LARGE_ABOVE + 1, "identity", false),
        ] {
            let plain: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let (tell, told) = channel();
            let body = Body::new(Told(Some(plain.clone().into()), tell));
            let mut asked = HeaderMap::new();
            asked.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
            let response = answer(&asked, Response::new(body)).await;
            let length = response.body().size_hint().exact();
            assert_eq!(length.is_some(), is_elsewhere || encoding == "identity");
            let sent = response.into_body().collect().await.unwrap().to_bytes();
            let mut unpacked = sent.to_vec();
            if encoding == "gzip" {
                unpacked.clear();
                let mut decoder = flate2::read::GzDecoder::new(&*sent);
                decoder.read_to_end(&mut unpacked).unwrap();
            }
            assert!(unpacked == plain, "{} bytes of {bytes}", unpacked.len());
            let here = thread::current().id();
            assert!(
                told.try_iter()
                    .all(|reader| (reader != here) == is_elsewhere)
            );
        }
    }
}
