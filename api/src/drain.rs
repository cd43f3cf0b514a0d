//! Reads the part of a request's body that its handler left unread, before the answer goes out.
//!
//! An answer that goes out before the body has come in ends the connection behind it, and a client
//! that keeps connections loses its next request there; one that writes all of a body before it reads may lose the
//! answer, too. So the rest is read (and ignored) as it comes, and where it is larger than any body that is taken, or
//! slow, the answer says that the connection ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

/// The largest rest that is read; nothing of it is kept.
const REST_BYTES_MAX: u64 = 16 << 20;
/// How long a client may take to send it.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of a body is read that its handler did not read.
pub(crate) struct Drain {
    /// A connection of HTTP/2 goes on whatever becomes of one stream.
    is_h2: bool,
    /// The client waits for a word before it sends a body (`Expect: 100-continue`), which it gets when the body is
    /// asked for.
    expects: bool,
}

impl Drain {
    /// The drain that this request belongs to.
    pub(crate) fn of(request: &Parts) -> Self {
        Self {
            is_h2: request.version >= Version::HTTP_2,
            expects: request.headers.contains_key(header::EXPECT),
        }
    }

    /// Lets `answer` read the body, and reads what it left of it.
    pub(crate) async fn behind(
        self,
        body: Body,
        answer: impl AsyncFnOnce(Body) -> Response,
    ) -> Response {
        if self.is_h2 || body.is_end_stream() {
            return answer(body).await;
        }
        let body = Shared::new(body);
        let rest = body.clone();
        let mut response = answer(Body::new(body)).await;
        // A client that took too long has had the time.
        let is_late = response.status() == StatusCode::REQUEST_TIMEOUT;
        // A client that still waits for `100 Continue` takes the answer for it.
        let is_unasked = self.expects && !rest.0.lock().is_asked;
        if is_late || is_unasked || !rest.ends().await {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }
}

/// A body that the handler reads, and whoever looks for its rest after the handler.
#[derive(Clone)]
struct Shared(Arc<Mutex<Watched>>);

struct Watched {
    body: Body,
    /// Somebody asked for some of it.
    is_asked: bool,
}

impl Shared {
    fn new(body: Body) -> Self {
        let is_asked = false;
        Self(Arc::new(Mutex::new(Watched { body, is_asked })))
    }

    /// Reads the rest; false when there may be more.
    async fn ends(self) -> bool {
        if self.is_end_stream() {
            return true;
        }
        if self.size_hint().lower() > REST_BYTES_MAX {
            return false;
        }
        tokio::time::timeout(REST_TIMEOUT, self.read()).await == Ok(true)
    }

    /// Reads to the end; false when there is too much, or the client is gone.
    async fn read(mut self) -> bool {
        let mut bytes = 0;
        while let Some(frame) = self.frame().await {
            let Ok(frame) = frame else {
                return false;
            };
            bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            if bytes > REST_BYTES_MAX {
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
        let mut watched = self.0.lock();
        watched.is_asked = true;
        Pin::new(&mut watched.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}
