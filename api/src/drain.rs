//! What a handler leaves unread of a request's body, read to its end before the answer goes out.
//!
//! An answer that goes out before the body has come in ends the connection behind it, and a client
//! that keeps connections loses its next request there; one that writes all of a body before it reads may lose the answer,
//! too. So the rest is read (and ignored) as it comes, and where it is larger than any body that is taken, or slow, the
//! answer says that the connection ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

/// The largest rest that is read; nothing of it is kept.
const REST_BYTES_MAX: u64 = 16 << 20;
/// The same of a client that waits for a word before it sends a body (`Expect: 100-continue`): the answer is that word.
const UNASKED_BYTES_MAX: u64 = 64 << 10;
/// How long a client may take to send it.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of a body is read that its handler did not read.
pub struct Drain {
    /// None for a connection of HTTP/2, which goes on whatever becomes of one stream.
    bytes_max: Option<u64>,
}

impl Drain {
    /// That of this request.
    pub fn of(request: &Parts) -> Self {
        let bytes_max = match request.headers.contains_key(header::EXPECT) {
            true => UNASKED_BYTES_MAX,
            false => REST_BYTES_MAX,
        };
        Self {
            bytes_max: (request.version < Version::HTTP_2).then_some(bytes_max),
        }
    }

    /// Lets `answer` read the body, and reads what it left of it.
    pub async fn behind(self, body: Body, answer: impl AsyncFnOnce(Body) -> Response) -> Response {
        let Some(bytes_max) = self.bytes_max.filter(|_| !body.is_end_stream()) else {
            return answer(body).await;
        };
        let body = Shared(Arc::new(Mutex::new(body)));
        let rest = body.clone();
        let mut response = answer(Body::new(body)).await;
        // Who took too long has had the time.
        let is_late = response.status() == StatusCode::REQUEST_TIMEOUT;
        if is_late || !rest.ends(bytes_max).await {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }
}

/// A body that the handler reads, and whoever looks for its rest after the handler.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a rest of at most so many bytes; false when there may be more.
    async fn ends(self, bytes_max: u64) -> bool {
        if self.is_end_stream() {
            return true;
        }
        if self.size_hint().lower() > bytes_max {
            return false;
        }
        let rest = self.read(bytes_max);
        tokio::time::timeout(REST_TIMEOUT, rest).await == Ok(true)
    }

    /// Reads to the end; false when there is more than so many bytes, or the client is gone.
    async fn read(mut self, bytes_max: u64) -> bool {
        let mut bytes = 0;
        while let Some(frame) = self.frame().await {
            let Ok(frame) = frame else {
                return false;
            };
            bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            if bytes > bytes_max {
                return false;
            }
        }
        true
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
