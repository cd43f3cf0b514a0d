//! A connection that does not wait for ever: for the head of a request, or for a client to read.
//!
//! hyper bounds how long a connection may idle between requests, but starts no clock before it knows the
//! protocol, and has one clock only for idling and for a head on its way. This stream has the second:
//! from the first byte after an answer (or from the start) until the request's head is complete. HTTP/2 is
//! known by its preface; from there its own pings watch over it.

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

/// Head and body of an answer, together at most, that are written as one slice.
const JOINED_BYTES: usize = 4 << 10;

const HEAD: u8 = 0;
const ANSWERING: u8 = 1;
const IDLE: u8 = 2;

/// The state of the connection, as the handler of its requests tells it.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<AtomicU8>);

impl Activity {
    /// A connection from which a head is expected.
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(HEAD)))
    }

    /// A head is complete.
    pub(super) fn answering(&self) {
        self.0.store(ANSWERING, Ordering::Relaxed);
    }

    /// The answer is ready; what comes next is another request.
    pub(super) fn answered(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }

    fn reads_head(&self) -> bool {
        self.0.load(Ordering::Relaxed) == HEAD
    }

    fn received(&self) {
        // Only from idle: while answering, what comes is a body.
        let _ = self
            .0
            .compare_exchange(IDLE, HEAD, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A stream with the two clocks.
#[derive(Debug)]
pub(super) struct PatientStream<S> {
    inner: S,
    activity: Activity,
    /// Bytes of the HTTP/2 preface seen; none once the protocol is known not to be it.
    preface: Option<usize>,
    head: Clock,
    write: Clock,
    written: usize,
}

#[derive(Debug)]
struct Clock {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    runs: bool,
}

impl Clock {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            sleep: None,
            runs: false,
        }
    }

    fn stop(&mut self) {
        self.runs = false;
    }

    /// Starts it if it stands still; true once its time is over.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.runs {
            self.runs = true;
            let deadline = Instant::now() + self.limit;
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(deadline),
                None => self.sleep = Some(Box::pin(tokio::time::sleep_until(deadline))),
            }
        }
        let sleep = self.sleep.as_mut().expect("BUG: a clock that runs has one");
        sleep.as_mut().poll(cx).is_ready()
    }
}

impl<S> PatientStream<S> {
    /// Bounds `inner` by how long a head may take and how long a client may not read.
    pub(super) fn new(inner: S, activity: Activity, head: Duration, write: Duration) -> Self {
        Self {
            inner,
            activity,
            preface: Some(0),
            head: Clock::new(head),
            write: Clock::new(write),
            written: 0,
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
        if polled.is_pending() && self.write.is_over(cx) {
            let error = "the client did not read its answer in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)));
        }
        polled
    }

    fn wrote(&mut self, bytes: usize) {
        if self.write.runs {
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
            this.activity.received();
            // A client that asks again has read what it was answered.
            this.write.stop();
            this.written = 0;
        }
        if this.is_h2() || !this.activity.reads_head() {
            this.head.stop();
        } else if polled.is_pending() && this.head.is_over(cx) {
            let error = "the client did not send a request's head in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)));
        }
        polled
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
        // To write one slice, the system has a shorter way, which is worth copying what is small.
        let polled = match slices {
            [slice] => Pin::new(&mut self.inner).poll_write(cx, slice),
            slices if slices.iter().map(|slice| slice.len()).sum::<usize>() <= JOINED_BYTES => {
                let mut buffer = [0; JOINED_BYTES];
                Pin::new(&mut self.inner).poll_write(cx, joined(slices, &mut buffer))
            }
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

/// All slices one behind the other, in a buffer that has room for them.
fn joined<'b>(slices: &[io::IoSlice<'_>], buffer: &'b mut [u8]) -> &'b [u8] {
    let mut end = 0;
    for slice in slices {
        buffer[end..][..slice.len()].copy_from_slice(slice);
        end += slice.len();
    }
    &buffer[..end]
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_written_in_slices_comes_as_one_text_whatever_its_length() {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let limit = Duration::from_secs(60);
        let mut stream = PatientStream::new(near, Activity::new(), limit, limit);
        let text: Vec<u8> = (0..=JOINED_BYTES).map(|at| at as u8).collect();
        for length in [0, 1, 5, JOINED_BYTES, JOINED_BYTES + 1] {
            let (first, rest) = text[..length].split_at(length.min(3));
            let mut slices = [first, &[], rest].map(IoSlice::new);
            let mut slices = &mut slices[..];
            while slices.iter().any(|slice| !slice.is_empty()) {
                let written = stream.write_vectored(slices).await.unwrap();
                IoSlice::advance_slices(&mut slices, written);
            }
            let mut come = vec![0; length];
            far.read_exact(&mut come).await.unwrap();
            assert_eq!(come, text[..length]);
        }
    }
}
