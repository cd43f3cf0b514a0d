//! What is answered from the first moment on: that the process lives, and everything else once the store is open.
//!
//! To open a store takes as long as its log takes to read. Until then a client that is refused a connection would take the
//! machine for dead; one that is answered 503 comes again.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::access::{Denial, Route};
use crate::app::App;
use crate::drain::Drain;
use crate::health;

/// Stands before an [`App`] that is still being made.
#[derive(Default)]
pub struct Door(OnceLock<Arc<App>>);

impl Door {
    /// Lets everybody through from now on.
    ///
    /// # Panics
    /// When it is open already.
    pub fn open(&self, app: App) {
        let opened = self.0.set(Arc::new(app));
        assert!(opened.is_ok(), "BUG: the door is open already");
    }

    /// Answers a request of this address.
    pub async fn answer<B>(self: Arc<Self>, request: Request<B>, peer: IpAddr) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        match self.0.get() {
            Some(app) => Arc::clone(app).answer(request, peer).await,
            None => {
                let (parts, body) = request.into_parts();
                let refuse = async |_| before_it_opens(&parts).await;
                Drain::of(&parts).behind(Body::new(body), refuse).await
            }
        }
    }
}

async fn before_it_opens(request: &Parts) -> Response {
    let (method, uri) = (&request.method, &request.uri);
    let is_read = [Method::GET, Method::HEAD].contains(method);
    if is_read && uri.path() == "/healthz" {
        health::healthz().await.into_response()
    } else {
        let route = Route::of(method, None, uri.path());
        Denial::Opening.answer(route.dialect, uri)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::header::RETRY_AFTER;
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn until_the_store_is_open_all_but_being_alive_is_refused_for_a_moment() {
        let door = Arc::new(Door::default());
        for (method, path, status, says) in [
            ("GET", "/healthz", 200, "ok"),
            ("HEAD", "/healthz", 200, ""),
            ("GET", "/readyz", 503, "being opened"),
            ("POST", "/v1/increments", 503, "being opened"),
            ("GET", "/v1/incr?key.l=a", 503, "being opened"),
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
        }
    }
}
