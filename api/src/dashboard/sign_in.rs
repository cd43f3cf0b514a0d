//! `/login` and `/logout`: forms that work without a script.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;

use crate::access::{Denial, Peer, begin, end, is_own_page};
use crate::body;
use crate::chart::push_escaped;
use crate::page::{HTML, with_policy};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::state::ApiState;

const BODY_BYTES_MAX: usize = 4 << 10;
const PAGE: &str = include_str!("page/login.html");

/// The form; the overview where no key is needed.
pub(super) async fn form(State(state): State<ApiState>, uri: Uri) -> Response {
    let mut query = QueryString::parse(uri.query()).unwrap_or_else(|_| QueryString::of([]));
    let next = query.take("next").ok().flatten();
    let next = own_address(next.as_deref());
    if state.access.needs_keys() {
        page(StatusCode::OK, "", next)
    } else {
        see(next, None)
    }
}

/// Signs in: a right key goes into the cookie. Fails with 400, 413 and 415 for a body that no form sends.
pub(super) async fn sign_in(
    State(state): State<ApiState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let bytes = body::read(&headers, body, BODY_BYTES_MAX).await?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Problem::malformed("body", "", "must be a form: key=tr_…"))?;
    let mut form = QueryString::parse(Some(text))?;
    let next = form.take("next")?;
    let next = own_address(next.as_deref());
    let key = form.take("key")?.unwrap_or_default();
    let key = key.trim();
    if !state.access.needs_keys() {
        return Ok(see(next, None));
    }
    if !is_own_page(&headers) {
        let why = "Sign in on this page; another site sent the form.";
        return Ok(page(StatusCode::FORBIDDEN, why, next));
    }
    let peer = peer.map(|Extension(peer)| peer);
    match state.access.sign_in(key, peer) {
        // A right key has no character that a header cannot hold.
        Ok(()) => Ok(see(next, begin(key))),
        Err(Denial::TooMany { .. }) => {
            let why = "Too many wrong keys came from this address. Wait a moment.";
            Ok(page(StatusCode::TOO_MANY_REQUESTS, why, next))
        }
        Err(Denial::Forbidden(_)) => {
            let why = "This key lacks the scope `read`.";
            Ok(page(StatusCode::FORBIDDEN, why, next))
        }
        Err(_) => {
            let why = "This key is not known here, or was revoked.";
            Ok(page(StatusCode::UNAUTHORIZED, why, next))
        }
    }
}

/// Signs out.
pub(super) async fn sign_out() -> Response {
    see("/login", Some(end()))
}

/// Where to go on after signing in: an address of this server, never another site.
fn own_address(next: Option<&str>) -> &str {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let is_own = |text: &&str| {
        text.starts_with('/')
            && !text.contains('\\')
            && !text.contains("//")
            && !decoded(text).starts_with("//")
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    next.filter(is_own).unwrap_or("/")
}

fn see(address: &str, cookie: Option<HeaderValue>) -> Response {
    let location = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response();
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn page(status: StatusCode, why: &str, next: &str) -> Response {
    let mut shown = String::new();
    push_escaped(&mut shown, next);
    let text = PAGE.replace("{{why}}", why).replace("{{next}}", &shown);
    let kept = [(header::CACHE_CONTROL, "no-store")];
    (status, kept, with_policy(HTML, text)).into_response()
}

#[cfg(test)]
mod tests {
    use super::own_address;

    #[test]
    fn signing_in_goes_on_at_this_server_only() {
        for own in ["/", "/keys/l/abc?unit=day", "/search?q=a%2Fb"] {
            assert_eq!(own_address(Some(own)), own);
        }
        for elsewhere in [
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "evil",
            "/a\r\nb",
            "/%2Fx//y",
        ] {
            assert_eq!(own_address(Some(elsewhere)), "/", "{elsewhere}");
        }
        assert_eq!(own_address(None), "/");
    }
}
