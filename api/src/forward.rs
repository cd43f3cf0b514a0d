//! Requests that only the node answers that writes the log: any other node sends them on to it as they came.
//!
//! Keys, limits and answers are those of the node that writes. A request is sent on once: a node that gets it and does
//! not write either refuses it, and the client tries again. The node that was asked answers when it has counted all
//! that the other one had then, so a client that goes on asking it reads what it wrote. The position of the answer is
//! that of the node that writes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tallyring_realtime::{Part, Store};
use tallyring_records::Offset;

use crate::after::POSITION;
use crate::drain::Drain;
use crate::problem::Problem;

/// Marks a request that another node sent on.
const HOP: HeaderName = HeaderName::from_static("tallyring-hop");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Headers of one connection, which the next one does not have.
const OF_CONNECTION: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

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
/// How long that of an operator's request may take, as where it is answered.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// True for a request that only the node answers that writes the log. All nodes answer the others.
pub(crate) fn needs_writer(method: &Method, path: &str) -> bool {
    let is_read = method.is_safe();
    match path {
        "/v1/incr" => *method == Method::GET || *method == Method::POST,
        "/v1/increments" | "/v1/events" | "/v1/users/erase" | "/v1/actions/reserve" => !is_read,
        // Each node has a file of its own.
        "/v1/admin/reload" => false,
        // Jobs run where the log is written.
        path if path.starts_with("/v1/admin/reconcile") => true,
        path if path.starts_with("/v1/admin/") => !is_read,
        path if path.starts_with("/v1/actions/reservations/") => !is_read,
        path if path.starts_with("/v1/events/") => !is_read && path.ends_with("/void"),
        _ => false,
    }
}

/// True for a request that another node sent on.
fn was_sent_on(parts: &Parts) -> bool {
    parts.headers.contains_key(HOP)
}

/// Sends requests on to another node.
pub(crate) struct Forward {
    client: Client<HttpConnector, Body>,
    store: Arc<Store>,
}

impl Forward {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        Self { client, store }
    }

    /// The answer of the node at `writer`, such as `http://10.0.0.11:7117`; 503 where it is not known or does not
    /// answer.
    pub(crate) async fn answer<B>(
        &self,
        parts: Parts,
        body: B,
        peer: IpAddr,
        writer: Option<&str>,
    ) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let drain = Drain::of(&parts);
        let answer = async |body| {
            let sent = self.send(parts, body, peer, writer).await;
            sent.unwrap_or_else(Problem::into_response)
        };
        drain.behind(Body::new(body), answer).await
    }

    async fn send(
        &self,
        parts: Parts,
        body: Body,
        peer: IpAddr,
        writer: Option<&str>,
    ) -> Result<Response, Problem> {
        if was_sent_on(&parts) {
            return Err(Problem::unavailable(
                "Another node sent this here, and this node does not write the log any more; retry in a moment.",
            ));
        }
        let writer = writer.ok_or_else(|| {
            Problem::unavailable(
                "No node writes the log now; one of them takes it over within seconds. Retry in a moment.",
            )
        })?;
        let timeout = match parts.uri.path().starts_with("/v1/admin/") {
            true => OPERATION_TIMEOUT,
            false => ANSWER_TIMEOUT,
        };
        let request = sent_on(parts, body, peer, writer)?;
        let answered = tokio::select! {
            answered = tokio::time::timeout(timeout, self.client.request(request)) => answered.ok(),
            () = self.succeeded(writer) => None,
        };
        match answered {
            Some(Ok(answer)) => {
                let mut answer = answer.map(Body::new);
                leave_out(answer.headers_mut());
                self.count_up_to(answer.headers()).await;
                Ok(answer.into_response())
            }
            Some(Err(error)) if error.is_connect() => Err(Problem::unavailable(format!(
                "The node that writes the log cannot be reached at {writer}; retry in a moment."
            ))),
            Some(Err(_)) | None => Err(Problem::unavailable(format!(
                "The node that writes the log, at {writer}, did not answer. It may have counted this: send it again with \
                 the same ids."
            ))),
        }
    }

    /// Resolves once the node at `writer` is not the one that writes any more, as far as this node hears: one that
    /// hangs would never answer.
    async fn succeeded(&self, writer: &str) {
        let mut part = self.store.part();
        while matches!(&part, Part::Follows { writer: Some(known) } if **known == *writer) {
            tokio::time::sleep(LOOK_PAUSE).await;
            part = self.store.part();
        }
    }

    /// Waits a moment until this node has counted what the other one had when it answered so.
    async fn count_up_to(&self, answer: &HeaderMap) {
        let position = answer.get(POSITION).and_then(|text| text.to_str().ok());
        if let Some(position) = position.and_then(|text| text.parse::<Offset>().ok()) {
            let counted = self.store.live().wait_for(position);
            // It is counted, and this node will have it soon.
            let _ = tokio::time::timeout(COUNTED_TIMEOUT, counted).await;
        }
    }
}

/// The request for the node at `writer`.
fn sent_on(parts: Parts, body: Body, peer: IpAddr, writer: &str) -> Result<Request<Body>, Problem> {
    let target = parts.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let uri: Result<Uri, _> = format!("{writer}{target}").parse();
    let uri = uri.map_err(|error| {
        Problem::unavailable(format!(
            "The node that writes the log calls itself {writer}: {error}."
        ))
    })?;
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    *headers = parts.headers;
    leave_out(headers);
    // The client was told to go on when its body was asked for.
    headers.remove(header::EXPECT);
    headers.insert(HOP, HeaderValue::from_static("1"));
    let peer = peer.to_canonical().to_string();
    let peer = HeaderValue::from_str(&peer).expect("BUG: an address is a header value");
    headers.append(FORWARDED_FOR, peer);
    Ok(request)
}

/// Leaves out the headers of the connection, those among them that only the connection names.
fn leave_out(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_counts_goes_to_the_writer_and_reads_stay() {
        let (get, post) = (Method::GET, Method::POST);
        for (method, path) in [
            (&get, "/v1/incr"),
            (&post, "/v1/incr"),
            (&post, "/v1/increments"),
            (&post, "/v1/events"),
            (&post, "/v1/events/7/void"),
            (&post, "/v1/users/erase"),
            (&post, "/v1/actions/reserve"),
            (&Method::DELETE, "/v1/actions/reservations/7"),
            (&post, "/v1/admin/rebuild"),
            (&get, "/v1/admin/reconcile"),
            (&get, "/v1/admin/reconciles/2012-03-16"),
            (&Method::DELETE, "/v1/admin/datasets/a"),
            (&post, "/v1/admin/keys"),
            (&Method::DELETE, "/v1/admin/keys/2bq4xyz7"),
        ] {
            assert!(needs_writer(method, path), "{method} {path}");
        }
        for (method, path) in [
            (&Method::HEAD, "/v1/incr"),
            (&get, "/v1/increments"),
            (&get, "/v1/events/7"),
            (&get, "/v1/l/a/counts"),
            (&post, "/v1/query"),
            (&post, "/v1/actions/query"),
            (&post, "/v1/actions/check"),
            (&post, "/v1/users/lookup"),
            (&get, "/v1/admin/status"),
            (&post, "/v1/admin/reload"),
            (&get, "/v1/admin/keys"),
            (&post, "/login"),
            (&get, "/v3/link/clicks"),
            (&get, "/readyz"),
        ] {
            assert!(!needs_writer(method, path), "{method} {path}");
        }
    }

    #[test]
    fn a_request_goes_on_as_it_came_without_what_belongs_to_its_connection() {
        let came = Request::post("/v1/increments?a=%20b")
            .header("host", "counts.example")
            .header("authorization", "Bearer x")
            .header("connection", "close, x-mine")
            .header("x-mine", "1")
            .header("expect", "100-continue")
            .header("x-forwarded-for", "192.0.2.1")
            .body(())
            .unwrap();
        let (parts, ()) = came.into_parts();
        let peer = "::ffff:198.51.100.7".parse().unwrap();
        let sent = sent_on(parts, Body::empty(), peer, "http://10.0.0.11:7117").unwrap();
        assert_eq!(sent.uri(), "http://10.0.0.11:7117/v1/increments?a=%20b");
        let headers = sent.headers().iter();
        let headers: Vec<String> = headers
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        let expected = [
            "host: counts.example",
            "authorization: Bearer x",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-for: 198.51.100.7",
            "tallyring-hop: 1",
        ];
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        assert_eq!(sorted(headers), sorted(expected.map(String::from).to_vec()));
    }
}
