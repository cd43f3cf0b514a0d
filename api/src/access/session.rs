//! A key in a cookie, for pages: the browser keeps it, no script reads it, and it opens reads only.
//!
//! The cookie holds the key itself, so a revoked key is out at once and nothing is kept here. It is sent
//! by this site's own pages only (`SameSite=Strict`), over TLS or loopback only (`Secure`, by the prefix
//! of its name too), and is taken for reads and for looking at the state: never for a write or a change,
//! so no page elsewhere can do anything with it.

use std::net::{IpAddr, Ipv4Addr};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use tallyring_realtime::catalog::Scope;

use super::denial::Denial;
use super::route::Route;
use super::{Access, Peer};

/// Name of the cookie.
const COOKIE: &str = "__Host-tallyring";

/// Where reservations are made and released.
const RESERVATIONS: &str = "/v1/actions/reserv";

/// Operators read here with a body, because a user stands in no address.
const LOOKUP: &str = "/v1/users/lookup";

/// How long a browser keeps it, seconds: thirty days.
const MAX_AGE_S: u32 = 2_592_000;

/// True where a cookie will do for this request.
pub(super) fn suffices(route: Route, request: &Parts) -> bool {
    let method = &request.method;
    let is_read = match route.scope {
        Some(Scope::Read) => true,
        Some(Scope::Actions) => !request.uri.path().starts_with(RESERVATIONS),
        Some(Scope::Admin) => {
            let is_lookup = request.uri.path() == LOOKUP;
            is_lookup || method == Method::GET || method == Method::HEAD
        }
        _ => false,
    };
    is_read && is_own_page(&request.headers)
}

/// False when the browser says that a page elsewhere asks.
pub(crate) fn is_own_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_none_or(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
}

impl Access {
    /// Where nobody needs a key, whether this may be asked: by a name of this server only, and by no page elsewhere.
    /// One on this machine may count, but not do what operators do; those of the configured origins may read.
    pub(super) fn may_without_key(&self, route: Route, request: &Parts) -> bool {
        let headers = &request.headers;
        let text = |name| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap_or_default())
        };
        let authority = request.uri.authority().map(|authority| authority.as_str());
        let host = text(header::HOST).or(authority);
        // A browser always says it.
        if host.is_some_and(|host| !self.hosts.hold(host)) {
            return false;
        }
        let origin = text(header::ORIGIN).map(|origin| {
            let from = origin.split_once("://");
            from.map_or("", |(_, from)| from)
        });
        let is_read = route.scope == Some(Scope::Read);
        let may_read = is_read && self.origins.allowed(headers).is_some();
        let is_own = |from| host == Some(from) || self.hosts.hold_origin(from);
        if origin.is_some_and(|from| !is_own(from) && !may_read) {
            return false;
        }
        let is_change = request.method != Method::GET && request.method != Method::HEAD;
        match route.scope {
            Some(Scope::Admin) if is_change => {
                let is_program = origin.is_none() && !headers.contains_key("sec-fetch-site");
                let is_own = origin.is_none_or(|from| host == Some(from));
                is_program || is_own && host.is_some() && is_own_page(headers)
            }
            // A GET counts, too: a picture of that address is enough.
            Some(Scope::Write) => {
                let site = headers.get("sec-fetch-site");
                site.is_none_or(|site| site.as_bytes() != b"cross-site")
            }
            _ => true,
        }
    }
}

/// The key in the cookie.
pub(super) fn key(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// `Set-Cookie` for a key that was found right.
pub(crate) fn begin(key: &str) -> Option<HeaderValue> {
    let attributes = "Path=/; Secure; HttpOnly; SameSite=Strict";
    HeaderValue::from_str(&format!(
        "{COOKIE}={key}; Max-Age={MAX_AGE_S}; {attributes}"
    ))
    .ok()
}

/// `Set-Cookie` that takes it away.
pub(crate) fn end() -> HeaderValue {
    let text = "__Host-tallyring=; Max-Age=0; Path=/; Secure; HttpOnly; SameSite=Strict";
    HeaderValue::from_static(text)
}

impl Access {
    /// Checks a key that somebody signs in with, as one in a header is checked. Fails when it is wrong, or too many
    /// wrong ones came from this address.
    pub fn sign_in(&self, key: &str, peer: Option<Peer>) -> Result<(), Denial> {
        let table = self.table.load();
        let table = table.as_ref().ok_or(Denial::NoKey)?;
        match table.find(key) {
            Some(key) => key.check_scope(Scope::Read),
            None => self.note_wrong_key(peer),
        }
    }

    /// Notes that a wrong key came from this address.
    pub(super) fn note_wrong_key<T>(&self, peer: Option<Peer>) -> Result<T, Denial> {
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        metrics::counter!("tallyring_wrong_keys_total").increment(1);
        match self.wrong_keys.note(peer, self.now()) {
            Ok(()) => Err(Denial::WrongKey),
            Err(wait) => Err(Denial::TooMany {
                what: "Too many wrong keys came from this address",
                wait,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;
    use crate::access::AccessLimits;

    const OWN: &str = "http://127.0.0.1:7117";
    const EVIL: &str = "https://evil.example";
    const HERE: &str = "127.0.0.1:7117";
    const THERE: &str = "http://127.0.0.1:3000";
    const RENAMED: &str = "evil.example:7117";
    const PROXIED: &str = "stats.example";

    /// `Host`, `Sec-Fetch-Site` and `Origin`; whether it may operate, count, read.
    type Asked = (&'static str, &'static str, &'static str, bool, bool, bool);
    const ASKED: &[Asked] = &[
        ("", "", "", true, true, true),
        (HERE, "", "", true, true, true),
        ("LOCALHOST", "", "", true, true, true),
        (HERE, "same-origin", OWN, true, true, true),
        (
            "[::1]:7117",
            "same-origin",
            "http://[::1]:7117",
            true,
            true,
            true,
        ),
        (HERE, "same-site", THERE, false, true, true),
        (HERE, "cross-site", EVIL, false, false, false),
        (HERE, "", EVIL, false, false, false),
        (HERE, "", "null", false, false, false),
        (
            HERE,
            "cross-site",
            "https://pages.example",
            false,
            false,
            true,
        ),
        // The name of a page elsewhere that leads here: its reads say no more than this.
        (RENAMED, "", "", false, false, false),
        (
            RENAMED,
            "same-origin",
            "http://evil.example:7117",
            false,
            false,
            false,
        ),
        ("localhost.evil.example", "", "", false, false, false),
        ("tallyring", "", "", false, false, false),
        // A proxy that passes the name on.
        (PROXIED, "", "", true, true, true),
        ("Stats.Example:443", "", "", true, true, true),
        (
            PROXIED,
            "same-origin",
            "https://stats.example",
            true,
            true,
            true,
        ),
        (PROXIED, "cross-site", EVIL, false, false, false),
    ];

    #[test]
    fn without_keys_pages_elsewhere_do_nothing() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let access = Access::open(AccessLimits::default())
            .with_hosts(&names(&["stats.example"]))
            .with_origins(&names(&["https://pages.example"]));
        for (host, site, origin, operates, counts, reads) in ASKED.iter().copied() {
            for (method, pattern, may) in [
                (Method::POST, "/v1/admin/rebuild", operates),
                (Method::POST, "/v1/increments", counts),
                (Method::GET, "/v1/incr", counts),
                (Method::POST, "/v1/query", reads),
                (Method::GET, "/v1/{namespace}/{key}/counts", reads),
            ] {
                let mut request = axum::http::Request::builder()
                    .method(method.clone())
                    .uri(pattern.replace(['{', '}'], ""));
                let given = [("host", host), ("sec-fetch-site", site), ("origin", origin)];
                for (name, value) in given.into_iter().filter(|(_, value)| !value.is_empty()) {
                    request = request.header(name, value);
                }
                let (request, ()) = request.body(()).unwrap().into_parts();
                let route = Route::of(&method, Some(pattern), pattern);
                let found = access.may_without_key(route, &request);
                assert_eq!(found, may, "{pattern} {host} {site} {origin}");
            }
        }
    }

    #[test]
    fn the_key_is_found_among_other_cookies_and_not_in_their_values() {
        for (cookies, expected) in [
            ("a=1; __Host-tallyring=tr_x_y; b=2", Some("tr_x_y")),
            ("__Host-tallyring=tr_x_y", Some("tr_x_y")),
            ("a=__Host-tallyring=z", None),
            ("__Host-tallyring2=z", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, cookies.parse().unwrap());
            assert_eq!(key(&headers), expected, "{cookies}");
        }
    }

    #[test]
    fn a_cookie_opens_reads_of_own_pages_only() {
        let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
        for (method, pattern, from, suffice) in [
            (&get, "/v1/{namespace}/{key}/counts", "same-origin", true),
            (&get, "/v1/{namespace}/{key}/counts", "none", true),
            (&get, "/v1/{namespace}/{key}/counts", "cross-site", false),
            (&get, "/v1/{namespace}/{key}/counts", "same-site", false),
            (&post, "/v1/query", "same-origin", true),
            (&get, "/v1/admin/status", "same-origin", true),
            (&post, "/v1/admin/rebuild", "same-origin", false),
            (&post, "/v1/actions/frequency", "same-origin", true),
            (&post, "/v1/users/lookup", "same-origin", true),
            (&post, "/v1/users/lookup", "same-site", false),
            (&post, "/v1/users/erase", "same-origin", false),
            (&post, "/v1/events/{id}/void", "same-origin", false),
            (&delete, "/v1/admin/keys/{id}", "same-origin", false),
            (&get, "/v1/incr", "same-origin", false),
            (&post, "/v1/increments", "same-origin", false),
            (&post, "/v1/actions/check", "same-origin", true),
            (&post, "/v1/actions/reserve", "same-origin", false),
            (
                &delete,
                "/v1/actions/reservations/{reservation}",
                "same-origin",
                false,
            ),
        ] {
            let path = pattern.replace(['{', '}'], "");
            let request = Request::builder().method(method).uri(path);
            let request = request.header("sec-fetch-site", from).body(());
            let (request, ()) = request.expect("a request").into_parts();
            let route = Route::of(method, Some(pattern), pattern);
            assert_eq!(
                suffices(route, &request),
                suffice,
                "{method} {pattern} {from}"
            );
        }
    }
}
