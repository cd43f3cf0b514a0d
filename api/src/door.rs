//! The door answers from the first moment on: that the process lives, and everything else once the store is open.
//!
//! To open a store takes as long as its log takes to read. Until then a client that is refused a connection would take
//! the machine for dead; one that is answered 503 comes again. Most stores open at once: whoever finds the port open
//! and asks is let through then, and never learns of it.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::access::{Denial, Route};
use crate::app::App;
use crate::drain::Drain;
use crate::probes;

/// How long after its start requests wait for a store that is being opened. A longer opening refuses them at
/// once: requests that waited would take the places of probes that ask whether the process lives.
const PATIENCE: Duration = Duration::from_secs(2);

/// Stands before an [`App`] that is still being made.
pub struct Door {
    app: OnceLock<Arc<App>>,
    opened: Notify,
    patient_until: Instant,
}

impl Door {
    /// One that is closed.
    #[expect(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Self {
        Self {
            app: OnceLock::new(),
            opened: Notify::new(),
            patient_until: Instant::now() + PATIENCE,
        }
    }

    /// Lets everybody through from now on. Panics when it is open already.
    pub fn open(&self, app: Arc<App>) {
        let opened = self.app.set(app);
        assert!(opened.is_ok(), "BUG: the door is open already");
        self.opened.notify_waiters();
    }

    /// Answers a request of this address.
    pub async fn answer<B>(self: Arc<Self>, request: Request<B>, peer: IpAddr) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        // These two tell how it is.
        let is_open = self.app.get().is_some();
        if !is_open && !["/healthz", "/readyz"].contains(&request.uri().path()) {
            self.wait().await;
        }
        match self.app.get() {
            Some(app) => Arc::clone(app).answer(request, peer).await,
            None => {
                let (parts, body) = request.into_parts();
                let refuse = async |_| before_it_opens(&parts).await;
                Drain::of(&parts).behind(Body::new(body), refuse).await
            }
        }
    }

    /// Waits until it is open, for a moment.
    async fn wait(&self) {
        let mut opened = pin!(self.opened.notified());
        // From here on it hears of it.
        opened.as_mut().enable();
        if self.app.get().is_none() {
            let _ = tokio::time::timeout_at(self.patient_until, opened).await;
        }
    }
}

async fn before_it_opens(request: &Parts) -> Response {
    let (method, uri) = (&request.method, &request.uri);
    let is_read = [Method::GET, Method::HEAD].contains(method);
    if is_read && uri.path() == "/healthz" {
        probes::healthz().await.into_response()
    } else {
        let route = Route::of(method, None, uri.path());
        Denial::Opening.answer(route.dialect, uri)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::header::RETRY_AFTER;
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use std::task::Poll;

    use tallyring_records::Schema;

    use super::*;
    use crate::tests::site::Site;

    #[tokio::test(start_paused = true)]
    async fn until_the_store_is_open_all_but_being_alive_is_refused_for_a_moment() {
        let door = Arc::new(Door::new());
        let began = Instant::now();
        for (method, path, status, says) in [
            ("GET", "/healthz", 200, "ok"),
            ("HEAD", "/healthz", 200, ""),
            ("GET", "/readyz", 503, "being opened"),
            ("POST", "/v1/increments", 503, "being opened"),
            ("GET", "/v1/incr?key.l=a", 503, "being opened"),
            ("GET", "/v1/l/a/counts", 503, "being opened"),
            ("GET", "/metrics", 503, "being opened"),
            ("GET", "/v3/link/clicks?link=a", 200, "\"status_code\":503"),
            ("GET", "/v4/user", 503, "TEMPORARILY_UNAVAILABLE"),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::empty()).expect("a request");
            let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let response = Arc::clone(&door).answer(request, peer).await;
            assert_eq!(response.status().as_u16(), status, "{path}");
            let is_refused = path != "/healthz";
            assert_eq!(response.headers().contains_key(RETRY_AFTER), is_refused);
            let body = to_bytes(response.into_body(), 1 << 10).await;
            let body = String::from_utf8(body.expect("a body").into()).expect("text");
            assert!(body.contains(says), "{path}: {body}");
            // A health check does not wait, and no request waits longer than others have.
            let waited = match path {
                "/healthz" | "/readyz" => Duration::ZERO,
                _ => PATIENCE,
            };
            assert_eq!(began.elapsed(), waited, "{path}");
        }
    }

    #[tokio::test]
    async fn who_comes_before_it_opens_is_let_through_then() {
        let site = Site::open(Schema::default_clicks(), 1_331_923_247);
        let door = Arc::new(Door::new());
        let ask = || {
            let request = Request::get("/v1/l/a/counts").body(Body::empty());
            let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Arc::clone(&door).answer(request.expect("a request"), peer)
        };
        let mut waiting = [ask(), ask()].map(Box::pin);
        for answer in &mut waiting {
            let is_answered =
                poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_ready()));
            assert!(!is_answered.await);
        }
        door.open(site.app());
        for answer in waiting {
            // Long before they would look for themselves.
            let answer = tokio::time::timeout(PATIENCE / 2, answer).await;
            assert_eq!(answer.expect("an answer").status(), 200);
        }
        assert_eq!(ask().await.status(), 200);
    }
}
