//! The other nodes of a store, which one node asks for what only the one that writes can do.
//!
//! A node that follows reads increments and events itself and hands them over as batches ([`hand_over`], [`take`]). All
//! else that changes something it sends on as it came ([`forward`]). It answers when it has counted all that the other
//! one had then, so a client that goes on asking it reads what it wrote. The position of such an answer is not before
//! that of the node that writes.
//!
//! A node whose address begins with `https` is asked over TLS, and nothing is sent to it before its certificate proved
//! the name in that address.

mod forward;
mod hand_over;
mod take;

use std::error::Error;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Method, Request, Response};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tallyring_realtime::{Part, ReservationId, SchemaHashes, Store};
use tallyring_records::Offset;
use tokio_rustls::rustls;

use crate::after;
use crate::server::Trust;
use hand_over::Outbox;

pub(crate) use forward::{is_sent_on, was_sent_on};
pub(crate) use take::{is_for_nodes, take};

/// The other nodes.
pub struct Nodes {
    /// The strand of a divided store that they are asked about.
    strand: Option<usize>,
    /// The number of strands of the store.
    strands: usize,
    client: Client<HttpsConnector<HttpConnector>, Body>,
    hashes: SchemaHashes,
    outbox: Outbox,
    /// The latest position that the node that writes told with an outcome.
    told: Mutex<Offset>,
    /// The address of the node that writes, and why TLS to it failed, where it did in the last request.
    untrusted: Mutex<Option<(String, String)>>,
}

/// Where a node takes the batches of each strand, by its number.
pub(crate) const BATCHES: &str = "/v1/nodes/batches/";
/// The header with the seal of path and body, in hexadecimal digits.
const SEAL: HeaderName = HeaderName::from_static("tallyring-seal");
/// The header with that of path and length of the body: no body of a stranger is read.
const HEAD_SEAL: HeaderName = HeaderName::from_static("tallyring-head-seal");
/// The first byte of a body of batches, and of one of outcomes. Nodes of builds that write another form have another.
const FORM: u8 = 1;
/// Bytes of a body of batches, at most.
const BODY_BYTES_MAX: usize = 16 << 20;

/// How long a connection to another node may take to begin.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection is kept without a request; nodes keep theirs for longer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_MAX: usize = 64;
/// How long an answer may take: a writer waits for its brokers for some seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between looks whether another node writes by now.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How long an answer waits until this node has counted what it tells of.
const COUNTED_TIMEOUT: Duration = Duration::from_secs(1);

/// True for a request that counts increments. A node that follows hands them over.
fn counts(method: &Method, path: &str) -> bool {
    match path {
        "/v1/incr" => *method == Method::GET || *method == Method::POST,
        "/v1/increments" | "/v1/events" => !method.is_safe(),
        _ => false,
    }
}

/// True for a request that changes something.
pub(crate) fn changes(method: &Method, path: &str) -> bool {
    counts(method, path) || is_sent_on(method, path)
}

/// Why no answer was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unheard {
    /// Nothing was sent.
    NotReached,
    /// Nothing was sent, because the certificate was not believed, for this reason.
    NotTrusted(String),
    /// Nothing was sent, because TLS failed so before a certificate was judged.
    NoTls(String),
    /// It may have done what it was asked for.
    NoAnswer,
}

impl From<legacy::Error> for Unheard {
    fn from(error: legacy::Error) -> Self {
        match (error.is_connect(), failure_of_tls(&error)) {
            (true, Some(why @ rustls::Error::InvalidCertificate(_))) => {
                Self::NotTrusted(why.to_string())
            }
            (true, Some(why)) => Self::NoTls(why.to_string()),
            (true, None) => Self::NotReached,
            (false, _) => Self::NoAnswer,
        }
    }
}

/// Why TLS failed, where that is the cause of an error. An I/O error does not tell of the one within as its source.
fn failure_of_tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(failure) = error.downcast_ref() {
        return Some(failure);
    }
    let within = error.downcast_ref::<io::Error>();
    match within.and_then(io::Error::get_ref) {
        Some(within) => failure_of_tls(within),
        None => error.source().and_then(failure_of_tls),
    }
}

impl Unheard {
    /// A sentence about the node at `writer`, for clients.
    fn sentence(&self, writer: &str) -> String {
        match self {
            Self::NotTrusted(why) => format!(
                "The node that writes the log, at {writer}, is not trusted: {why}; nothing was counted. Its certificate \
                 must have the host of that address, and be of an authority that the system of this node trusts, or that \
                 is in the file of `ca` in its section [cluster]."
            ),
            Self::NoTls(why) => format!(
                "The node that writes the log does not speak TLS at {writer}: {why}; nothing was counted. Set [tls] \
                 there, or let its `address` begin with http://."
            ),
            Self::NotReached => format!(
                "The node that writes the log cannot be reached at {writer}; nothing was counted, retry soon."
            ),
            Self::NoAnswer => format!(
                "The node that writes the log, at {writer}, did not answer. It may have counted this: send it again \
                 with the same ids."
            ),
        }
    }
}

/// The sentence for clients where no node is known to write.
const NO_WRITER: &str =
    "No node writes the log now; one of them takes it over within seconds. Retry in a moment.";

impl Default for Nodes {
    fn default() -> Self {
        Self::trusting(Trust::nobody())
    }
}

impl Nodes {
    /// The other nodes, which are believed by these certificates where they serve TLS.
    pub fn trusting(trust: Trust) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        // The scheme of an address decides.
        connector.enforce_http(false);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(HttpsConnector::from((connector, trust.0)));
        Self {
            strand: None,
            strands: 1,
            client,
            hashes: SchemaHashes::default(),
            outbox: Outbox::default(),
            told: Mutex::default(),
            untrusted: Mutex::default(),
        }
    }

    /// These nodes of a store of so many strands, to be asked about this one. Batches of all strands share their room.
    pub(crate) fn of_strand(&self, strand: usize, strands: usize) -> Self {
        Self {
            strand: Some(strand),
            strands,
            client: self.client.clone(),
            hashes: SchemaHashes::default(),
            outbox: self.outbox.beside(),
            told: Mutex::default(),
            untrusted: Mutex::default(),
        }
    }

    /// True for a reservation that another strand decides about.
    fn is_elsewhere(&self, reservation: ReservationId) -> bool {
        reservation.strand(self.strands) != self.strand.unwrap_or(0)
    }

    /// The path under which a node takes the batches of the strand.
    fn batches(&self) -> String {
        format!("{BATCHES}{}", self.strand.unwrap_or(0))
    }

    /// The position of the strand that an answer tells.
    fn position(&self, answer: &HeaderMap) -> Option<Offset> {
        after::told(answer, self.strand.unwrap_or(0))
    }

    /// The latest position up to which the node that writes had counted when it told of a batch of this one.
    pub(crate) fn told(&self) -> Offset {
        *self.told.lock()
    }

    /// Why TLS to the node that writes this store failed, by the last request to it; a sentence with what to change.
    pub(crate) fn untrusted(&self, store: &Store) -> Option<String> {
        let untrusted = self.untrusted.lock();
        let (asked, why) = untrusted.as_ref()?;
        match store.part() {
            Part::Follows { writer } if writer.as_deref() == Some(asked.as_str()) => {
                Some(why.clone())
            }
            _ => None,
        }
    }

    /// Asks the node at `writer`.
    async fn ask(
        &self,
        writer: &str,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Unheard> {
        let answered = self.client.request(request).await.map_err(Unheard::from);
        *self.untrusted.lock() = match &answered {
            Err(unheard @ (Unheard::NotTrusted(_) | Unheard::NoTls(_))) => {
                Some((writer.to_owned(), unheard.sentence(writer)))
            }
            _ => None,
        };
        answered
    }

    fn note_told(&self, position: Offset) {
        let mut told = self.told.lock();
        *told = position.max(*told);
    }
}

/// The answer of the node at `writer`, which is given up after `longest`, and once that node does not write any more.
async fn heard<T>(
    (store, writer): (&Store, &str),
    longest: Duration,
    asking: impl Future<Output = Result<T, Unheard>>,
) -> Result<T, Unheard> {
    tokio::select! {
        answered = tokio::time::timeout(longest, asking) => answered.unwrap_or(Err(Unheard::NoAnswer)),
        () = succeeded(store, writer) => Err(Unheard::NoAnswer),
    }
}

/// Resolves once the node at `writer` is not the one that writes any more, as far as this node hears: one that hangs
/// would never answer.
async fn succeeded(store: &Store, writer: &str) {
    let mut part = store.part();
    while matches!(&part, Part::Follows { writer: Some(known) } if **known == *writer) {
        tokio::time::sleep(LOOK_PAUSE).await;
        part = store.part();
    }
}

/// Waits a moment until this node has counted what the other one had when it told this position.
async fn count_up_to(store: &Store, position: Option<Offset>) {
    if let Some(position) = position {
        // It is counted, and this node will have it soon.
        let _ = tokio::time::timeout(COUNTED_TIMEOUT, store.live().wait_for(position)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn a_node_without_tls_at_an_address_with_https_gets_the_advice_for_that() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let writer = format!("https://{}", listener.local_addr().unwrap());
        let plain = thread::spawn(move || {
            let (mut asked, _) = listener.accept().unwrap();
            asked
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .unwrap();
            asked
        });
        let request = Request::get(&writer).body(Body::empty()).unwrap();
        let unheard = Nodes::default().ask(&writer, request).await.unwrap_err();
        plain.join().unwrap();
        assert!(matches!(unheard, Unheard::NoTls(_)), "{unheard:?}");
        let says = format!("does not speak TLS at {writer}: ");
        assert!(unheard.sentence(&writer).contains(&says));
    }
}
