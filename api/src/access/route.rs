//! The needs of each route. A route that is not named here needs a key with the scope `read`.

use axum::http::Method;
use tallyring_realtime::catalog::Scope;

use super::shared_link::Opens;
use crate::{OF_ANY_NAMESPACE, OF_NAMESPACE, prometheus};

/// The needs of a request before its handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    /// The scope a key must have; none for what is always open.
    pub scope: Option<Scope>,
    /// Which places it takes.
    pub class: Class,
    /// Where the namespaces are that it touches.
    pub namespaces: Namespaces,
    /// How refusals are said.
    pub dialect: Dialect,
    /// True for a read that waits for the position `after`, where it is given one.
    pub comes_after: bool,
    /// The shares that open it; none where no share does.
    pub opens: Option<Opens>,
}

/// Requests that share places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Health: never refused.
    Free,
    /// Single increments.
    Increment,
    /// Batches with bodies.
    Batch,
    /// Reads.
    Query,
    /// Pages and their files, and the form to sign in: open to everybody, so apart from reads.
    Page,
    /// Operators, and metrics.
    Admin,
    /// Streams, which last.
    Stream,
}

/// How a key that is limited to namespaces is held to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespaces {
    /// The route touches none.
    None,
    /// It is this segment of the path; the version is the first.
    Segment(usize),
    /// The handler checks each with [`Caller`](super::Caller).
    Handler,
    /// These, as a bitly-compatible read touches them.
    Fixed(&'static [&'static str]),
    /// Any: a limited key is refused.
    All,
}

/// How refusals are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Problem documents.
    Problem,
    /// bitly's version 3.
    V3,
    /// bitly's version 4.
    V4,
    /// Prometheus' API.
    Prometheus,
}

/// The dashboard's pages and files, and signing in and out.
pub(super) const PAGES: [&str; 15] = [
    "/",
    "/shared",
    "/keys/{namespace}/{key}",
    "/keys/{namespace}/{key}/by/{subtotal}",
    "/reach/{namespace}/{key}",
    "/people",
    "/days",
    "/days/{day}",
    "/search",
    "/namespaces",
    "/compare",
    "/state",
    "/login",
    "/logout",
    "/dashboard/{file}",
];

/// Reads that wait for no position: declarations, and settled counts, whose `after` is a cursor.
const WITHOUT_AFTER: [&str; 2] = ["/v1/namespaces", "/v1/closed"];

impl Route {
    /// The page that says that nothing is there, to a browser: it holds no data.
    pub(super) const MISSING_PAGE: Self = Self {
        scope: None,
        class: Class::Page,
        namespaces: Namespaces::None,
        dialect: Dialect::Problem,
        comes_after: false,
        opens: None,
    };

    /// The needs of the route with this pattern; no pattern stands for a path that no route has.
    pub(crate) fn of(method: &Method, pattern: Option<&str>, path: &str) -> Self {
        use {Class as C, Namespaces as N, Scope as S};
        let is_post = method == Method::POST;
        let (scope, class, namespaces) = match pattern {
            Some("/healthz" | "/readyz") => (None, C::Free, N::None),
            Some("/v1/incr") => (Some(S::Write), C::Increment, N::Handler),
            Some("/v1/increments") => (Some(S::Write), C::Batch, N::Handler),
            Some("/v1/events") if is_post => (Some(S::Write), C::Batch, N::Handler),
            Some("/v1/query" | "/v1/query.csv" | "/v1/closed" | "/v1/events/{id}") => {
                (Some(S::Read), C::Query, N::Handler)
            }
            Some("/v1/events/{id}/void" | "/v1/admin/deletes" | "/v1/admin/deletes/preview") => {
                (Some(S::Admin), C::Admin, N::All)
            }
            Some(pattern) if pattern.starts_with("/v1/actions/") => {
                (Some(S::Actions), C::Query, N::All)
            }
            Some("/v1/users/lookup" | "/v1/users/erase") => (Some(S::Admin), C::Query, N::All),
            Some(pattern) if pattern.starts_with("/v1/ratios/") => {
                (Some(S::Read), C::Query, N::Handler)
            }
            Some("/v1/compare" | "/v1/compare.csv" | "/v1/compare.svg") => {
                (Some(S::Read), C::Query, N::Handler)
            }
            Some("/v1/live") => (Some(S::Read), C::Stream, N::Handler),
            Some("/v1/namespaces") => (Some(S::Read), C::Query, N::Handler),
            Some("/metrics") => (Some(S::Read), C::Admin, N::All),
            // A path without a route.
            None => (Some(S::Read), C::Query, N::None),
            // The description of the API holds no data, and a browser shows no key for a page.
            Some("/openapi.json") => (None, C::Page, N::None),
            Some(pattern) if pattern.starts_with("/docs") => (None, C::Page, N::None),
            // Pages hold no data: their scripts read it, with the key in a cookie.
            Some(pattern) if PAGES.contains(&pattern) => (None, C::Page, N::None),
            Some(pattern) if pattern.starts_with("/v1/admin/") => {
                (Some(S::Admin), C::Admin, N::None)
            }
            Some(pattern) if pattern.starts_with(OF_NAMESPACE) => {
                (Some(S::Read), C::Query, N::Segment(2))
            }
            Some(pattern) if pattern.starts_with(OF_ANY_NAMESPACE) => {
                (Some(S::Read), C::Query, N::Segment(3))
            }
            Some(pattern) if Dialect::of(pattern).is_bitly() => {
                (Some(S::Read), C::Query, N::Fixed(of_bitly(pattern)))
            }
            Some(pattern) if pattern.starts_with(prometheus::PREFIX) => {
                (Some(S::Read), C::Query, N::Handler)
            }
            Some(_) => (Some(S::Read), C::Query, N::All),
        };
        let dialect = Dialect::of(path);
        let is_read = (scope, class) == (Some(S::Read), C::Query) && dialect == Dialect::Problem;
        Self {
            scope,
            class,
            namespaces,
            dialect,
            comes_after: is_read
                && pattern.is_some_and(|pattern| !WITHOUT_AFTER.contains(&pattern)),
            opens: pattern.and_then(|pattern| Opens::of(method, pattern)),
        }
    }
}

/// The namespaces of links, users and domains that a bitly-compatible route may read.
fn of_bitly(pattern: &str) -> &'static [&'static str] {
    let begins = |with: &str| pattern.starts_with(with);
    // No route serves these.
    if matches!(pattern.get(3..), Some("" | "/" | "/{*path}")) {
        return &[];
    }
    let ranks_links = ["/popular_links", "/bitlinks/clicks", "/links/clicks/top"];
    if pattern.ends_with("/tracking_domain_clicks") {
        &["d"]
    } else if ranks_links.iter().any(|end| pattern.ends_with(end)) {
        &["u", "l"]
    } else if ["/v3/user/", "/v4/user", "/v4/groups/", "/v4/organizations/"]
        .into_iter()
        .any(begins)
    {
        &["u"]
    } else {
        &["l"]
    }
}

impl Dialect {
    fn of(path: &str) -> Self {
        match path.split('/').nth(1) {
            Some("v3") => Self::V3,
            Some("v4") => Self::V4,
            Some("api") => Self::Prometheus,
            _ => Self::Problem,
        }
    }

    /// The resource of a path in the words of version 4: its second segment, such as `bitlinks`.
    pub fn resource_of(path: &str) -> &str {
        path.split('/').nth(2).unwrap_or_default()
    }

    /// True where a key may also come bare, or as `access_token`.
    pub fn is_bitly(self) -> bool {
        matches!(self, Self::V3 | Self::V4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_its_scope_and_unknown_ones_are_not_open() {
        let (get, post) = (Method::GET, Method::POST);
        for (method, pattern, scope, class) in [
            (&get, "/healthz", None, Class::Free),
            (&get, "/readyz", None, Class::Free),
            (&get, "/v1/incr", Some(Scope::Write), Class::Increment),
            (&post, "/v1/incr", Some(Scope::Write), Class::Increment),
            (&post, "/v1/increments", Some(Scope::Write), Class::Batch),
            (&post, "/v1/events", Some(Scope::Write), Class::Batch),
            (&get, "/v1/events/{id}", Some(Scope::Read), Class::Query),
            (
                &post,
                "/v1/events/{id}/void",
                Some(Scope::Admin),
                Class::Admin,
            ),
            (&post, "/v1/query", Some(Scope::Read), Class::Query),
            (
                &post,
                "/v1/actions/reserve",
                Some(Scope::Actions),
                Class::Query,
            ),
            (
                &Method::DELETE,
                "/v1/actions/reservations/{reservation}",
                Some(Scope::Actions),
                Class::Query,
            ),
            (
                &get,
                "/v1/{namespace}/{key}/{view}",
                Some(Scope::Read),
                Class::Query,
            ),
            (&get, "/metrics", Some(Scope::Read), Class::Admin),
            (&get, "/v1/admin/status", Some(Scope::Admin), Class::Admin),
            (&post, "/v1/admin/keys", Some(Scope::Admin), Class::Admin),
            (&post, "/v1/users/lookup", Some(Scope::Admin), Class::Query),
            (&post, "/v1/users/erase", Some(Scope::Admin), Class::Query),
            (&get, "/v3/link/clicks", Some(Scope::Read), Class::Query),
            (&get, "/", None, Class::Page),
            (&post, "/login", None, Class::Page),
            (&get, "/v1/live", Some(Scope::Read), Class::Stream),
            (&post, "/api/v1/query", Some(Scope::Read), Class::Query),
            (&get, "/v1/closed", Some(Scope::Read), Class::Query),
            (&get, "/v1/finals", Some(Scope::Read), Class::Query),
            (&get, "/something/new", Some(Scope::Read), Class::Query),
        ] {
            let route = Route::of(method, Some(pattern), pattern);
            assert_eq!(
                (route.scope, route.class),
                (scope, class),
                "{method} {pattern}"
            );
        }
        let unknown = Route::of(&get, None, "/nothing");
        assert_eq!(unknown.scope, Some(Scope::Read));
    }
}
