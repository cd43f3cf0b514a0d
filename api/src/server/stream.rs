//! A connection that does not wait for ever: for a request, for the rest of its head, or for a client to read.
//!
//! hyper starts no clock before it knows the protocol, has one clock only for idling and for a head on its way, and
//! makes a timer for each request. This stream has a clock from the first byte after an answer (or from the start)
//! until the request's head is complete, and one from an answer to the next byte, and their timer is set anew when
//! it rings, not when a request comes. HTTP/2 is known by its preface; from there its own pings watch over it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A client that does not read this much within the write timeout is cut off.
const PROGRESS_BYTES: usize = 64 << 10;

const HEAD: u8 = 0;
const ANSWERING: u8 = 1;
const IDLE: u8 = 2;

/// What the connection does, told by who handles its requests.
#[derive(Debug, Clone)]
pub struct Activity(Arc<AtomicU8>);

impl Activity {
    /// A connection from which a head is expected.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU8::new(HEAD)))
    }

    /// A head is complete.
    pub fn answering(&self) {
        self.0.store(ANSWERING, Ordering::Relaxed);
    }

    /// The answer is ready; what comes next is another request.
    pub fn answered(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }

    /// True when a head begins with what came. Only from idle: while answering, what comes is a body.
    fn received(&self) -> bool {
        let order = Ordering::Relaxed;
        self.0.compare_exchange(IDLE, HEAD, order, order).is_ok()
    }
}

/// How long a client may keep a connection waiting.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the rest of a head.
    pub head: Duration,
    /// For a request.
    pub idle: Duration,
    /// For its reading 64 KiB of an answer.
    pub write: Duration,
}

/// A stream with these clocks.
#[derive(Debug)]
pub struct PatientStream<S> {
    inner: S,
    activity: Activity,
    patience: Patience,
    /// Bytes of the HTTP/2 preface seen; none once the protocol is known not to be it.
    preface: Option<usize>,
    read: Clock,
    write: Clock,
    written: usize,
}

/// A deadline, none while it stands still.
#[derive(Debug, Default)]
struct Clock {
    deadline: Option<Instant>,
    /// Rings at the deadline or before: then it is set anew.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    fn stop(&mut self) {
        self.deadline = None;
    }

    fn runs(&self) -> bool {
        self.deadline.is_some()
    }

    /// Starts it if it stands still; true once its time is over.
    fn is_over(&mut self, limit: Duration, cx: &mut Context<'_>) -> bool {
        let starts = || Instant::now() + limit;
        let deadline = *self.deadline.get_or_insert_with(starts);
        let sleeps = || Box::pin(tokio::time::sleep_until(deadline));
        let sleep = self.sleep.get_or_insert_with(sleeps);
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() == deadline {
                return true;
            }
            sleep.as_mut().reset(deadline);
        }
        false
    }
}

impl<S> PatientStream<S> {
    /// Bounds how long `inner` waits.
    pub fn new(inner: S, activity: Activity, patience: Patience) -> Self {
        Self {
            inner,
            activity,
            patience,
            preface: Some(0),
            read: Clock::default(),
            write: Clock::default(),
            written: 0,
        }
    }

    /// How long it waits for the client's next byte, and what is wrong when that is over.
    fn awaits(&self) -> Option<(Duration, &'static str)> {
        if self.is_h2() {
            return None;
        }
        match self.activity.0.load(Ordering::Relaxed) {
            HEAD => Some((
                self.patience.head,
                "the client did not send a request's head in time",
            )),
            IDLE => Some((self.patience.idle, "the client sent no request in time")),
            _ => None,
        }
    }

    fn is_h2(&self) -> bool {
        self.preface == Some(H2_PREFACE.len())
    }

    fn watch_preface(&mut self, received: &[u8]) {
        let Some(seen) = self.preface.filter(|&seen| seen < H2_PREFACE.len()) else {
            return;
        };
        let length = received.len().min(H2_PREFACE.len() - seen);
        let as_expected = received[..length] == H2_PREFACE[seen..seen + length];
        self.preface = as_expected.then_some(seen + length);
    }

    /// After a write that made progress, or none.
    fn watch_writing<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.write.is_over(self.patience.write, cx) {
            let error = "the client did not read its answer in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)));
        }
        polled
    }

    fn wrote(&mut self, bytes: usize) {
        if self.write.runs() {
            self.written += bytes;
            if self.written >= PROGRESS_BYTES {
                self.write.stop();
                self.written = 0;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PatientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buffer);
        if polled.is_ready() && buffer.filled().len() > before {
            this.watch_preface(&buffer.filled()[before..]);
            if this.activity.received() {
                this.read.stop();
            }
            // A client that asks again has read what it was answered.
            this.write.stop();
            this.written = 0;
        }
        match this.awaits() {
            Some((limit, error)) if polled.is_pending() && this.read.is_over(limit, cx) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)))
            }
            Some(_) => polled,
            None => {
                this.read.stop();
                polled
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PatientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        let written = ready!(self.watch_writing(cx, polled))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match slices {
            // As an answer without a body is: to write one slice, the system has a shorter way.
            [slice] => Pin::new(&mut self.inner).poll_write(cx, slice),
            slices => Pin::new(&mut self.inner).poll_write_vectored(cx, slices),
        };
        let written = ready!(self.watch_writing(cx, polled))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch_writing(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch_writing(cx, polled)
    }
}
