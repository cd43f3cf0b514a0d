//! Compressed answers: gzip or zstd, as the client likes.
//!
//! Small ones are compressed by the thread that serves their connection. For a large one all its other connections
//! would wait, so that is compressed by a thread of its own behind other work, whole, and goes out with its length.

use std::convert::Infallible;
use std::future::ready;
use std::panic::resume_unwind;
use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use rayon::ThreadPool;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tower::{ServiceExt, service_fn};
use tower_http::compression::predicate::{DefaultPredicate, Predicate, SizeAbove};
use tower_http::compression::{Compression, CompressionLayer};

use crate::access::{done_by, threads_behind};
use crate::problem::Problem;

/// Answers of fewer bytes are sent as they are.
const COMPRESSED_ABOVE: u64 = 1_024;

/// Answers of more bytes are large: gzip takes half a millisecond for as many.
const LARGE_ABOVE: u64 = 32 << 10;

/// Large answers that are compressed elsewhere, and wait for it, at once. Further ones are compressed as small ones
/// are, so that none waits for long.
static PLACES: Semaphore = Semaphore::const_new(4);

static ELSEWHERE: LazyLock<Option<ThreadPool>> = LazyLock::new(|| threads_behind("compress", 1));

/// Marks an answer that is large before it is compressed.
#[derive(Clone)]
struct Large;

/// Compresses the answers of these routes.
pub(crate) fn answers<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes
        .layer(from_fn(mark_large))
        .layer(CompressionLayer::new().compress_when(worth_it()))
        .layer(map_response(finish))
}

/// Compresses an answer as the request that it is for likes it.
pub(crate) async fn answer(request: &HeaderMap, response: Response) -> Response {
    answer_in(&PLACES, request, response).await
}

async fn answer_in(places: &Semaphore, request: &HeaderMap, response: Response) -> Response {
    let mut accepted = request.get_all(header::ACCEPT_ENCODING).iter().peekable();
    if accepted.peek().is_none() {
        return response;
    }
    let mut asked = Request::new(());
    for encoding in accepted {
        let headers = asked.headers_mut();
        headers.append(header::ACCEPT_ENCODING, encoding.clone());
    }
    let mut response = Some(marked(response));
    let answered = service_fn(|_| {
        ready(Ok::<_, Infallible>(
            response.take().expect("BUG: asked once"),
        ))
    });
    let compressed = Compression::new(answered).compress_when(worth_it());
    let Ok(response) = compressed.oneshot(asked).await;
    finish_in(places, response.map(Body::new)).await
}

fn worth_it() -> impl Predicate {
    DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_ABOVE))
}

async fn mark_large(request: Request<Body>, next: Next) -> Response {
    // An answer that is not sent is not worth compressing.
    let is_sent = request.method() != Method::HEAD;
    let response = next.run(request).await;
    match is_sent {
        true => marked(response),
        false => response,
    }
}

fn marked(mut response: Response) -> Response {
    let bytes = response.body().size_hint().exact();
    if bytes.is_some_and(|bytes| bytes > LARGE_ABOVE) {
        response.extensions_mut().insert(Large);
    }
    response
}

async fn finish(response: Response) -> Response {
    finish_in(&PLACES, response).await
}

async fn finish_in(places: &Semaphore, mut response: Response) -> Response {
    if response.status() == StatusCode::NOT_ACCEPTABLE {
        return say_406();
    }
    let is_large = response.extensions_mut().remove::<Large>().is_some();
    let is_compressed = response.headers().contains_key(header::CONTENT_ENCODING);
    let (true, Ok(_place), Some(threads)) =
        (is_large && is_compressed, places.try_acquire(), &*ELSEWHERE)
    else {
        return response;
    };
    let (parts, body) = response.into_parts();
    let runtime = Handle::current();
    let compressed = done_by(threads, move || {
        let body = runtime.block_on(body.collect());
        body.expect("BUG: it is in memory").to_bytes()
    });
    let bytes = compressed
        .await
        .unwrap_or_else(|panic| resume_unwind(panic));
    Response::from_parts(parts, Body::from(bytes))
}

/// The layer refuses by changing the status of the answer that it cannot send: a client would take its body
/// for what it asked for, and a cache its validator.
fn say_406() -> Response {
    let detail =
        "`Accept-Encoding` refuses every encoding that is sent; accept gzip, zstd or identity.";
    let mut problem = Problem::new(StatusCode::NOT_ACCEPTABLE, "Not acceptable", detail)
        .about("accept-encoding", None)
        .into_response();
    let vary = header::HeaderValue::from_static("accept-encoding");
    problem.headers_mut().insert(header::VARY, vary);
    problem
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::pin::Pin;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Context, Poll};
    use std::thread;

    use axum::body::Bytes;
    use axum::http::HeaderValue;
    use axum::routing::get;
    use hyper::body::{Frame, SizeHint};

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
        for (bytes, encoding, places, is_elsewhere) in [
            (LARGE_ABOVE + 1, "gzip", 1, true),
            (LARGE_ABOVE + 1, "gzip", 0, false),
            (LARGE_ABOVE, "gzip", 1, false),
            (LARGE_ABOVE + 1, "identity", 1, false),
        ] {
            let plain: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let (tell, told) = channel();
            let body = Body::new(Told(Some(plain.clone().into()), tell));
            let mut asked = HeaderMap::new();
            asked.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
            let places = Semaphore::new(places);
            let response = answer_in(&places, &asked, Response::new(body)).await;
            let length = response.body().size_hint().exact();
            assert_eq!(length.is_some(), is_elsewhere || encoding == "identity");
            let sent = response.into_body().collect().await.unwrap().to_bytes();
            let whole = match encoding {
                "gzip" => unpacked(&sent),
                _ => sent.to_vec(),
            };
            assert!(whole == plain, "{} bytes of {bytes}", whole.len());
            let here = thread::current().id();
            assert!(
                told.try_iter()
                    .all(|reader| (reader != here) == is_elsewhere)
            );
        }
    }

    #[tokio::test]
    async fn a_large_answer_of_the_router_is_whole_and_one_that_is_not_sent_is_not_compressed_before()
     {
        let plain: Vec<u8> = (0..3 * LARGE_ABOVE).map(|at| (at % 251) as u8).collect();
        let large = plain.clone();
        let routes = answers(Router::new().route("/", get(async move || large.clone())));
        let ask = async |method| {
            let request = Request::builder().method(method).uri("/");
            let request = request.header(header::ACCEPT_ENCODING, "gzip");
            let asked = routes.clone().oneshot(request.body(Body::empty()).unwrap());
            let response = asked.await.unwrap();
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            response
        };
        let sent = ask(Method::GET).await.into_body().collect().await;
        assert!(unpacked(&sent.unwrap().to_bytes()) == plain);
        let head = ask(Method::HEAD).await;
        assert_eq!(head.headers().get(header::CONTENT_LENGTH), None);
    }

    fn unpacked(gzip: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(gzip);
        decoder.read_to_end(&mut bytes).unwrap();
        bytes
    }
}
