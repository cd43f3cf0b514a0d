//! Answers over HTTP/2 that a client leaves unread.
//!
//! Over HTTP/1 a client that does not read stops the connection's writes, which have a clock ([`super::stream`]). Over
//! HTTP/2 it may hold back each answer by its window and read everything else, so that answers, what compresses them,
//! and streams stay in memory. Here the body of each answer tells when it was last asked for more, and goes out in
//! pieces, so that of one that is held back no more than a piece waits elsewhere.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The longest piece of a body that is handed on at once.
const PIECE_BYTES: usize = 16 << 10;

/// In the place of a time: the client waits for us.
const WAITS_FOR_US: u64 = u64::MAX;

/// The bodies of one connection.
#[derive(Debug)]
pub(super) struct Unread {
    limit: Duration,
    began: Instant,
    bodies: Mutex<Vec<Weak<Progress>>>,
    /// Told of the first body where there was none.
    some: Notify,
}

/// When a body was last asked for more, milliseconds since the connection began.
#[derive(Debug)]
struct Progress(AtomicU64);

impl Unread {
    /// None yet; a client may leave each unread for `limit`.
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            limit,
            began: Instant::now(),
            bodies: Mutex::default(),
            some: Notify::new(),
        })
    }

    /// A body that is watched.
    pub(super) fn watch(self: &Arc<Self>, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let progress = Arc::new(Progress(AtomicU64::new(self.now())));
        let mut bodies = self.bodies.lock();
        if bodies.is_empty() {
            self.some.notify_one();
        }
        if bodies.len() == bodies.capacity() {
            bodies.retain(|body| body.strong_count() > 0);
        }
        bodies.push(Arc::downgrade(&progress));
        drop(bodies);
        Body::new(Watched {
            of: Arc::clone(self),
            progress,
            body,
            rest: Bytes::new(),
        })
    }

    /// Waits until the client has left some body unread for too long.
    pub(super) async fn left(&self) {
        loop {
            self.some.notified().await;
            loop {
                tokio::time::sleep(self.limit / 2).await;
                let limit = u64::try_from(self.limit.as_millis()).unwrap_or(WAITS_FOR_US);
                let longest = self.now().saturating_sub(limit);
                let mut bodies = self.bodies.lock();
                bodies.retain(|body| body.strong_count() > 0);
                let at = |body: &Weak<Progress>| Some(body.upgrade()?.0.load(Ordering::Relaxed));
                if bodies.iter().filter_map(at).any(|at| at < longest) {
                    return;
                }
                if bodies.is_empty() {
                    break;
                }
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(WAITS_FOR_US - 1)
    }
}

/// A body that tells when it is asked for more.
struct Watched {
    of: Arc<Unread>,
    progress: Arc<Progress>,
    body: Body,
    /// The rest of a piece that was too long.
    rest: Bytes,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            this.progress.0.store(WAITS_FOR_US, Ordering::Relaxed);
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            this.progress.0.store(this.of.now(), Ordering::Relaxed);
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        this.progress.0.store(this.of.now(), Ordering::Relaxed);
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        let upper = hint.upper();
        hint.set_lower(hint.lower() + rest);
        if let Some(upper) = upper {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_body_goes_out_in_pieces_and_whole() {
        let text: Vec<u8> = (0..=255).cycle().take(3 * PIECE_BYTES + 7).collect();
        let unread = Unread::new(LIMIT);
        let mut body = unread.watch(Body::from(text.clone()));
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, text);
        assert!(body.is_end_stream());
    }
}
