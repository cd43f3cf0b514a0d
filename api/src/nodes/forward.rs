//! Requests that only the node answers that writes the log: any other node sends them on to it as they came.
//!
//! Keys, limits and answers are those of the node that writes. A request is sent on once: a node that gets it and does
//! not write either refuses it, and the client tries again.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tallyring_realtime::Store;

use super::{ANSWER_TIMEOUT, NO_WRITER, Nodes, count_up_to, heard};
use crate::drain::Drain;
use crate::orders::STRAND;
use crate::problem::Problem;

/// Marks a request that another node sent on.
const HOP: HeaderName = HeaderName::from_static("tallyring-hop");
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

/// How long the answer to an operator's request may take, as where it is answered.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// True for a request that only the node answers that writes the log. All nodes answer the others.
pub(crate) fn is_sent_on(method: &Method, path: &str) -> bool {
    let is_read = method.is_safe();
    match path {
        "/v1/users/erase" | "/v1/actions/reserve" => !is_read,
        // Each node has a file of its own.
        "/v1/admin/reload" => false,
        // Jobs run where the log is written.
        "/v1/admin/rebuild" => true,
        path if path.starts_with("/v1/admin/reconcile") => true,
        path if path.starts_with("/v1/admin/") => !is_read,
        path if path.starts_with("/v1/actions/reservations/") => !is_read,
        path if path.starts_with("/v1/events/") => !is_read && path.ends_with("/void"),
        _ => false,
    }
}

/// True for a request that another node sent on.
pub(crate) fn was_sent_on(parts: &Parts) -> bool {
    parts.headers.contains_key(HOP)
}

impl Nodes {
    /// The answer of the node at `writer`, such as `http://10.0.0.11:7117`, to a request that this node was asked; 503
    /// where it is not known or does not answer.
    pub(crate) async fn forward<B>(
        &self,
        store: &Store,
        parts: Parts,
        body: B,
        writer: Option<&str>,
    ) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let drain = Drain::of(&parts);
        let answer = async |body| {
            let sent = self.send(store, parts, body, writer).await;
            sent.unwrap_or_else(Problem::into_response)
        };
        drain.behind(Body::new(body), answer).await
    }

    async fn send(
        &self,
        store: &Store,
        parts: Parts,
        body: Body,
        writer: Option<&str>,
    ) -> Result<Response, Problem> {
        if was_sent_on(&parts) {
            return Err(Problem::unavailable(
                "Another node sent this here, and this node does not write the log any more; retry in a moment.",
            ));
        }
        let writer = writer.ok_or_else(|| Problem::unavailable(NO_WRITER))?;
        let timeout = match parts.uri.path().starts_with("/v1/admin/") {
            true => OPERATION_TIMEOUT,
            false => ANSWER_TIMEOUT,
        };
        let mut request = sent_on(parts, body, writer)?;
        if let Some(strand) = self.strand {
            request.headers_mut().insert(STRAND, strand.into());
        }
        let answered = heard((store, writer), timeout, self.ask(writer, request)).await;
        let answer = answered.map_err(|unheard| Problem::unavailable(unheard.sentence(writer)))?;
        let mut answer = answer.map(Body::new);
        leave_out(answer.headers_mut());
        count_up_to(store, self.position(answer.headers())).await;
        Ok(answer.into_response())
    }
}

/// The request for the node at `writer`.
fn sent_on(parts: Parts, body: Body, writer: &str) -> Result<Request<Body>, Problem> {
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
    use crate::nodes::changes;

    #[test]
    fn what_changes_counts_goes_to_the_writer_and_reads_stay() {
        let (get, post) = (Method::GET, Method::POST);
        for (method, path) in [
            (&post, "/v1/events/7/void"),
            (&post, "/v1/users/erase"),
            (&post, "/v1/actions/reserve"),
            (&Method::DELETE, "/v1/actions/reservations/7"),
            (&post, "/v1/admin/rebuild"),
            (&get, "/v1/admin/rebuild"),
            (&get, "/v1/admin/reconcile"),
            (&get, "/v1/admin/reconciles/2012-03-16"),
            (&Method::DELETE, "/v1/admin/datasets/a"),
            (&post, "/v1/admin/keys"),
            (&Method::DELETE, "/v1/admin/keys/2bq4xyz7"),
        ] {
            assert!(
                is_sent_on(method, path) && changes(method, path),
                "{method} {path}"
            );
        }
        for (method, path) in [
            (&get, "/v1/incr"),
            (&post, "/v1/incr"),
            (&post, "/v1/increments"),
            (&post, "/v1/events"),
        ] {
            assert!(
                !is_sent_on(method, path) && changes(method, path),
                "{method} {path}"
            );
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
            assert!(!changes(method, path), "{method} {path}");
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
        let sent = sent_on(parts, Body::empty(), "http://10.0.0.11:7117").unwrap();
        assert_eq!(sent.uri(), "http://10.0.0.11:7117/v1/increments?a=%20b");
        let headers = sent.headers().iter();
        let headers: Vec<String> = headers
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        let expected = [
            "host: counts.example",
            "authorization: Bearer x",
            "x-forwarded-for: 192.0.2.1",
            "tallyring-hop: 1",
        ];
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        assert_eq!(sorted(headers), sorted(expected.map(String::from).to_vec()));
    }
}
