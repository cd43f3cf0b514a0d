//! What a handler leaves unread of a request's body, read to its end before the answer goes out.
//!
//! An answer that goes out before the body has come in ends the connection behind it, and a client
//! that keeps connections loses its next request there. So a short rest is read (and ignored), and
//! where it is not short the answer says that the connection ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, SizeHint};

/// The largest rest that is read.
const REST_BYTES_MAX: usize = 64 << 10;
/// How long a client may take to send it.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets `answer` read the body, and reads what it left of it.
pub async fn drained(
    version: Version,
    body: Body,
    answer: impl AsyncFnOnce(Body) -> Response,
) -> Response {
    if body.is_end_stream() {
        return answer(body).await;
    }
    let body = Shared(Arc::new(Mutex::new(body)));
    let rest = body.clone();
    let mut response = answer(Body::new(body)).await;
    // Who took too long has had the time.
    let is_late = response.status() == StatusCode::REQUEST_TIMEOUT;
    // A connection of HTTP/2 goes on whatever becomes of one stream.
    if version < Version::HTTP_2 && (is_late || !rest.ends().await) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// A body that the handler reads, and whoever looks for its rest after the handler.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a short rest; false when there may be more.
    async fn ends(self) -> bool {
        if self.is_end_stream() {
            return true;
        }
        if self.size_hint().lower() > REST_BYTES_MAX as u64 {
            return false;
        }
        let rest = Limited::new(self, REST_BYTES_MAX).collect();
        matches!(tokio::time::timeout(REST_TIMEOUT, rest).await, Ok(Ok(_)))
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}
