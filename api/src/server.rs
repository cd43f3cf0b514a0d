//! The accept loop: bounded connections, slow clients cut off, TLS, a graceful end.

mod addresses;
mod lanes;
mod stream;
mod tls;
mod unread;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, Request, Version, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

pub use tls::{Tls, TlsError, Trust};

use crate::head;
use crate::problem::Problem;
use addresses::{Addresses, Connection};
use lanes::Lanes;
use stream::{Activity, PatientStream};
use unread::Unread;

/// Limits of the accept loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at once.
    pub connections_max: usize,
    /// Connections at once of one address; loopback has no such limit.
    pub connections_per_ip_max: usize,
    /// How long a client may take for a TLS handshake.
    pub handshake_timeout: Duration,
    /// How long a client may take to send its request head, from its first byte (or from the start).
    pub header_timeout: Duration,
    /// How long a connection is kept between requests.
    pub idle_timeout: Duration,
    /// How long a client may take to read 64 KiB of its answer.
    pub write_timeout: Duration,
    /// How long requests under way may take once the server is told to stop.
    pub drain_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 4_096,
            connections_per_ip_max: 256,
            handshake_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(20),
        }
    }
}

/// Beyond these hyper refuses without a word; the router says what is wrong before (see [`head`]).
const HEADERS_MAX: usize = 2 * head::HEADERS_MAX;
const HEAD_BYTES_MAX: usize = 2 * head::HEAD_BYTES_MAX;
const H2_HEAD_BYTES_MAX: u32 = HEAD_BYTES_MAX as u32;
const H2_STREAMS_MAX: u32 = 128;
/// Streams that a client may open and take back before they were looked at (rapid reset).
const H2_PENDING_RESETS_MAX: usize = 20;
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
const H2_PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection, whose it is, and what it holds until it ends.
type Arrival = (
    std::net::TcpStream,
    IpAddr,
    (OwnedSemaphorePermit, Connection),
);

/// Serves one way of answering requests, each with its client's address, on any number of addresses.
pub struct Server<A> {
    answer: A,
    limits: ServerLimits,
    builder: Builder<TokioExecutor>,
    places: Arc<Semaphore>,
    addresses: Arc<Addresses>,
}

impl<A, F> Server<A>
where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    /// A server that answers so.
    pub fn new(answer: A, limits: ServerLimits) -> Self {
        Self {
            answer,
            limits,
            builder: builder(&limits),
            places: Arc::new(Semaphore::new(limits.connections_max)),
            addresses: Addresses::new(limits.connections_per_ip_max),
        }
    }

    /// Serves every listener until `stop` resolves, then lets requests under way end: `stop` ends what would not end
    /// by itself ([`Access::close_streams`](crate::Access::close_streams)). Connections are served on threads of their
    /// own, one a processor.
    pub async fn run(
        self,
        listeners: Vec<(TcpListener, Option<Tls>)>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let server = Arc::new(self);
        let lanes = Arc::new(Lanes::start()?);
        let (tell, told) = watch::channel(false);
        let mut loops = JoinSet::new();
        for (listener, tls) in listeners {
            let (server, lanes) = (Arc::clone(&server), Arc::clone(&lanes));
            loops.spawn(server.accept_until(listener, tls, lanes, told.clone()));
        }
        stop.await;
        let _ = tell.send(true);
        // A runtime that ends cancels them.
        while loops.join_next().await.is_some() {}
        Ok(())
    }

    async fn accept_until(
        self: Arc<Self>,
        listener: TcpListener,
        tls: Option<Tls>,
        lanes: Arc<Lanes>,
        mut told: watch::Receiver<bool>,
    ) {
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                _ = told.wait_for(|stop| *stop) => break,
                accepted = self.accept(&listener) => accepted,
            };
            let Some((stream, peer, held)) = accepted else {
                continue;
            };
            let (server, tls, watcher) = (Arc::clone(&self), tls.clone(), graceful.watcher());
            lanes.spawn(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => server.connection(stream, tls, peer, watcher).await,
                    Err(error) => tracing::warn!(%error, "cannot serve a connection"),
                }
                drop(held);
            });
        }
        drop(listener);
        let drained = tokio::time::timeout(self.limits.drain_timeout, graceful.shutdown()).await;
        if drained.is_err() {
            tracing::warn!("some requests were still running when the time to drain was over");
        }
    }

    async fn accept(&self, listener: &TcpListener) -> Option<Arrival> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let accepted = listener.accept().await;
        // Its lane has another runtime.
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                let Some(connection) = self.addresses.enter(peer.ip()) else {
                    metrics::counter!("tallyring_connections_refused_total").increment(1);
                    return None;
                };
                // Answers are small: waiting to fill a packet would only delay them.
                let _ = stream.set_nodelay(true);
                Some((stream, peer.ip(), (place, connection)))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                None
            }
        }
    }

    async fn connection(&self, stream: TcpStream, tls: Option<Tls>, peer: IpAddr, watch: Watcher) {
        let Some(Tls(acceptor)) = tls else {
            return self.speak_http(stream, peer, watch).await;
        };
        let shaken = tokio::time::timeout(self.limits.handshake_timeout, acceptor.accept(stream));
        match shaken.await {
            Ok(Ok(stream)) => self.speak_http(stream, peer, watch).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
        }
    }

    async fn speak_http<S>(&self, stream: S, peer: IpAddr, watch: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Activity::new();
        let stream = PatientStream::new(
            stream,
            activity.clone(),
            self.limits.header_timeout,
            self.limits.write_timeout,
        );
        let answer = self.answer.clone();
        let unread = Unread::new(self.limits.write_timeout);
        let answers = Arc::clone(&unread);
        let service = service_fn(move |request: Request<Incoming>| {
            activity.answering();
            let is_h2 = request.version() == Version::HTTP_2;
            let checked = head::check_host(request.version(), request.headers());
            let answer = checked.map(|()| answer(request, peer));
            let (activity, answers) = (activity.clone(), is_h2.then(|| Arc::clone(&answers)));
            async move {
                let answer = match answer {
                    Ok(answer) => answer.await,
                    Err(problem) => cut_off(problem),
                };
                activity.answered();
                Ok::<_, Infallible>(match answers {
                    Some(answers) => answer.map(|body| answers.watch(body)),
                    None => answer,
                })
            }
        });
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            ended = watch.watch(connection.into_owned()) => if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended badly");
            },
            () = unread.left() => tracing::debug!(%peer, "a client did not read its answers in time"),
        }
    }
}

/// A client that writes such heads may mean another request by the bytes behind them.
fn cut_off(problem: Problem) -> Response {
    let mut response = problem.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn builder(limits: &ServerLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // hyper's clock runs between requests too; the stream has a shorter one for the head itself.
        .header_read_timeout(limits.idle_timeout.max(limits.header_timeout))
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_header_list_size(H2_HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(H2_PENDING_RESETS_MAX)
        .keep_alive_interval(H2_PING_INTERVAL)
        .keep_alive_timeout(H2_PING_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{self, Ipv4Addr};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_that_does_not_end_in_time_is_cut_off_and_gives_back_what_it_held() {
        let (arrived, mut seen) = mpsc::unbounded_channel();
        let held = Arc::new(());
        let holding = Arc::clone(&held);
        let answer = move |_: Request<Incoming>, _: IpAddr| {
            let (arrived, holding) = (arrived.clone(), Arc::clone(&holding));
            async move {
                arrived.send(()).unwrap();
                let never: Response = future::pending().await;
                drop(holding);
                never
            }
        };
        let limits = ServerLimits {
            drain_timeout: Duration::from_millis(10),
            ..ServerLimits::default()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .unwrap();
        let stop = async { seen.recv().await.unwrap() };
        let running = Server::new(answer, limits).run(vec![(listener, None)], stop);
        running.await.unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
        match client.read(&mut [0; 64]) {
            Ok(read) => assert_eq!(read, 0, "no answer"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}
