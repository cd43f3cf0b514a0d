//! Shares: links whose bearers read the counts of one key, or of one namespace, until they expire or are revoked.
//!
//! Closed by default: a request that presents a share is judged by that share alone, whatever else it carries, and only
//! the reads of [`Opens::of`] are open to it. A share comes in the query of an address, never in its path, because log
//! lines have paths. Every refusal of a share has one text, so that it tells nothing of shares. A share that opens a
//! read shows what was counted, never what rules filtered.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use tallyring_realtime::catalog::KeyEntry;

use super::Access;
use super::denial::Denial;
use super::key::{Presented, SHARE};
use super::limits::AccessLimits;
use super::route::{Namespaces, Route};
use super::share::Share;
use super::table::Key;
use crate::problem::Problem;
use crate::query_string::{QueryString, take_out};
use crate::{OF_ANY_NAMESPACE, OF_NAMESPACE};

/// The parameter of an address that holds a share.
pub(crate) const PARAMETER: &str = "share";

/// The shares that are not revoked, by id; replaced whole.
#[derive(Debug)]
pub(super) struct SharedLinks {
    links: HashMap<String, Arc<SharedLink>>,
    /// The places of all of them.
    places: Share,
}

/// A share.
#[derive(Debug)]
pub(crate) struct SharedLink {
    /// The namespace of which it is.
    pub namespace: String,
    /// The key that it is limited to; none opens the whole namespace.
    pub key: Option<String>,
    expires_ms: i64,
    bearer: Arc<Key>,
}

/// Shares that open a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opens {
    /// Shares of the key that the path names, and of its namespace.
    Key,
    /// Shares of the namespace that the path names.
    Namespace,
}

impl Opens {
    /// The shares that open the route with this pattern; none where no share does.
    pub(super) fn of(method: &Method, pattern: &str) -> Option<Self> {
        if method != Method::GET && method != Method::HEAD {
            return None;
        }
        let read = pattern.strip_prefix(OF_ANY_NAMESPACE);
        let read = read.or_else(|| pattern.strip_prefix(OF_NAMESPACE))?;
        let form = [".csv", ".svg"]
            .into_iter()
            .find_map(|form| read.strip_suffix(form));
        match form.unwrap_or(read) {
            "{key}/counts"
            | "{key}/summary"
            | "{key}/uniques"
            | "{key}/week"
            | "{key}/badge"
            | "{key}/by/{subtotal}" => Some(Self::Key),
            "counts" | "by" | "top" => Some(Self::Namespace),
            _ => None,
        }
    }
}

impl SharedLinks {
    /// None yet, within these limits.
    pub(super) fn none(limits: &AccessLimits) -> Self {
        Self {
            links: HashMap::new(),
            places: Share::of_links(limits),
        }
    }

    /// The shares among these entries, in the places of those before.
    pub(super) fn followed_by(&self, entries: Vec<KeyEntry>) -> Self {
        let in_force = entries
            .into_iter()
            .filter(|entry| entry.revoked_ms.is_none());
        let links = in_force.filter_map(|entry| {
            let shared = entry.shared.clone()?;
            let namespace = entry.namespaces.as_deref()?.first()?.clone();
            let link = SharedLink {
                namespace,
                key: shared.key,
                expires_ms: shared.expires_ms,
                bearer: Arc::new(Key::of_link(&entry, self.places.clone())),
            };
            Some((entry.id, Arc::new(link)))
        });
        Self {
            links: links.collect(),
            places: self.places.clone(),
        }
    }

    /// The share that `text` is, if it is one in force at this time.
    fn find(&self, text: &str, now_ms: i64) -> Option<Arc<SharedLink>> {
        let presented = Presented::parse(SHARE, text)?;
        let link = self.links.get(presented.id);
        let is_it = presented.matches(link.map(|link| link.bearer.secret_hash()));
        link.filter(|link| is_it && now_ms < link.expires_ms)
            .cloned()
    }
}

impl SharedLink {
    /// True where the path of a request names what is shared.
    fn has(&self, opens: Opens, namespaces: Namespaces, path: &str) -> bool {
        let Namespaces::Segment(place) = namespaces else {
            return false;
        };
        let is = |place: usize, shared: &str| {
            let segment = path.split('/').nth(place).unwrap_or_default();
            let decoded = percent_decode_str(segment).decode_utf8();
            decoded.is_ok_and(|name| name == shared)
        };
        let has_key = match (&self.key, opens) {
            (None, _) => true,
            (Some(key), Opens::Key) => is(place + 1, key),
            (Some(_), Opens::Namespace) => false,
        };
        has_key && is(place, &self.namespace)
    }
}

impl Access {
    /// The share of this text; none where it opens nothing.
    pub(crate) fn shared(&self, text: &str) -> Option<Arc<SharedLink>> {
        let now_ms = self.kept().ok()?.1.world().clock.now_ms();
        self.shares.load().find(text, now_ms)
    }

    /// The bearer of the share that this request presents; none where it presents none. Fails with 403 where that opens
    /// nothing, or something else.
    pub(super) fn bearer(&self, route: Route, uri: &Uri) -> Result<Option<Arc<Key>>, Denial> {
        // Increments are not searched for what no store without shares has.
        if route.opens.is_none() && self.shares.load().links.is_empty() {
            return Ok(None);
        }
        let mut presented = presented(uri);
        let Some(text) = presented.next() else {
            return Ok(None);
        };
        let opens = route.opens.filter(|_| presented.next().is_none());
        let link = opens.zip(self.shared(text)).and_then(|(opens, link)| {
            link.has(opens, route.namespaces, uri.path())
                .then_some(link)
        });
        let link = link.ok_or_else(|| Denial::Forbidden(refusal()))?;
        // The handler refuses a query that cannot be read.
        if QueryString::parse(uri.query()).is_ok_and(|query| query.gives("filtered")) {
            return Err(Denial::Forbidden(refusal_of_filtered()));
        }
        Ok(Some(Arc::clone(&link.bearer)))
    }
}

/// The shares in the query of an address. An empty parameter counts as left out, as all others do.
pub(crate) fn presented(uri: &Uri) -> impl Iterator<Item = &str> {
    let parts = uri.query().unwrap_or_default().split('&');
    let texts = parts.filter_map(|part| part.strip_prefix(PARAMETER)?.strip_prefix('='));
    texts.filter(|text| !text.is_empty())
}

/// Takes the share out of an address, so that no answer repeats it.
pub(super) fn take(uri: &mut Uri) {
    let expected = "the text of a share";
    // It was read before: there is one of them, and it is text.
    let _: Result<Option<String>, Problem> = take_out(uri, PARAMETER, expected);
}

/// 403 for every share that does not open what is asked for.
fn refusal() -> Problem {
    let detail = "This share does not open that: it has expired, was revoked, is of something else, or was never one of \
                  this server. Ask whoever gave it to you for another one.";
    Problem::new(StatusCode::FORBIDDEN, "Not shared", detail.to_owned())
}

/// 403 for what rules filtered, which no share opens.
fn refusal_of_filtered() -> Problem {
    let detail = "A share shows what was counted, and not what rules filtered: leave `filtered` out, or ask with an API \
                  key.";
    Problem::new(StatusCode::FORBIDDEN, "Not shared", detail.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::key::NewKey;
    use tallyring_records::Shared;

    fn entry(key: &NewKey, of: Option<&str>, expires_ms: i64) -> KeyEntry {
        KeyEntry {
            namespaces: Some(vec!["l".into()]),
            shared: Some(Shared {
                key: of.map(Into::into),
                expires_ms,
            }),
            ..KeyEntry::new(key.id.clone(), key.secret_hash, Vec::new(), 1)
        }
    }

    #[test]
    fn a_share_opens_until_it_expires_or_is_revoked() {
        let limits = AccessLimits::default();
        let share = NewKey::share(|bytes| bytes.fill(1));
        let links = |entry| SharedLinks::none(&limits).followed_by(vec![entry]);
        let kept = links(entry(&share, None, 1_000));
        for (text, now_ms, opens) in [
            (share.text.as_str(), 999, true),
            (&share.text, 1_000, false),
            (&share.text[..share.text.len() - 1], 0, false),
            (&share.text.replace(SHARE, "tr_"), 0, false),
            (&NewKey::share(|bytes| bytes.fill(2)).text, 0, false),
            ("", 0, false),
        ] {
            assert_eq!(kept.find(text, now_ms).is_some(), opens, "{text} {now_ms}");
        }
        let revoked = KeyEntry {
            revoked_ms: Some(2),
            ..entry(&share, None, 1_000)
        };
        assert!(links(revoked).find(&share.text, 0).is_none());
        let key = KeyEntry {
            shared: None,
            ..entry(&share, None, 1_000)
        };
        assert!(links(key).find(&share.text, 0).is_none(), "a key is none");
    }

    #[test]
    fn all_shares_have_the_same_half_of_the_places() {
        let limits = AccessLimits {
            queries: 4,
            ..AccessLimits::default()
        };
        let shares = [
            NewKey::share(|bytes| bytes.fill(1)),
            NewKey::share(|bytes| bytes.fill(2)),
        ];
        let entries =
            |shares: &[NewKey]| shares.iter().map(|share| entry(share, None, 1)).collect();
        let before = SharedLinks::none(&limits).followed_by(entries(&shares[..1]));
        let place = |links: &SharedLinks, share: &NewKey| {
            let link = links.find(&share.text, 0).unwrap();
            link.bearer.share.read().ok()
        };
        let first = place(&before, &shares[0]);
        let links = before.followed_by(entries(&shares));
        let second = place(&links, &shares[1]);
        assert!(first.is_some() && second.is_some());
        for share in &shares {
            assert!(place(&links, share).is_none());
        }
        drop(first);
        assert!(place(&links, &shares[0]).is_some());
    }

    #[test]
    fn a_share_has_what_it_is_of_and_nothing_else() {
        let limits = AccessLimits::default();
        let share = NewKey::share(|bytes| bytes.fill(1));
        let link = |of| {
            let links = SharedLinks::none(&limits).followed_by(vec![entry(&share, of, 1)]);
            links.find(&share.text, 0).unwrap()
        };
        let (of_key, of_namespace) = (link(Some("a/b")), link(None));
        let (segment, after) = (Namespaces::Segment(2), Namespaces::Segment(3));
        for (opens, place, path, by_key, by_namespace) in [
            (Opens::Key, segment, "/v1/l/a%2Fb/counts", true, true),
            (Opens::Key, segment, "/v1/%6C/a%2fb/counts", true, true),
            (
                Opens::Key,
                after,
                "/v1/namespaces/l/a%2Fb/counts",
                true,
                true,
            ),
            (Opens::Key, segment, "/v1/l/a/counts", false, true),
            (Opens::Key, segment, "/v1/u/a%2Fb/counts", false, false),
            (Opens::Key, segment, "/v1/l~/a%2Fb/counts", false, false),
            (Opens::Namespace, segment, "/v1/l/counts", false, true),
            (Opens::Namespace, segment, "/v1/u/counts", false, false),
            (
                Opens::Key,
                Namespaces::None,
                "/v1/l/a%2Fb/counts",
                false,
                false,
            ),
        ] {
            assert_eq!(of_key.has(opens, place, path), by_key, "{path}");
            assert_eq!(of_namespace.has(opens, place, path), by_namespace, "{path}");
        }
    }

    #[test]
    fn the_reads_of_a_key_or_a_namespace_are_open_and_nothing_else_is() {
        let get = Method::GET;
        for (method, pattern, opens) in [
            (&get, "/v1/{namespace}/{key}/counts", Some(Opens::Key)),
            (
                &get,
                "/v1/namespaces/{namespace}/{key}/uniques.csv",
                Some(Opens::Key),
            ),
            (
                &get,
                "/v1/{namespace}/{key}/by/{subtotal}",
                Some(Opens::Key),
            ),
            (&get, "/v1/{namespace}/{key}/week.svg", Some(Opens::Key)),
            (
                &Method::HEAD,
                "/v1/{namespace}/top.svg",
                Some(Opens::Namespace),
            ),
            (&Method::POST, "/v1/{namespace}/{key}/counts", None),
            (&get, "/v1/{namespace}/keys", None),
            (&get, "/v1/{namespace}/{key}/new", None),
            (&get, "/v1/namespaces", None),
            (&get, "/v1/compare.svg", None),
            (&get, "/api/v1/query", None),
            (&get, "/v1/ratios/{ratio}/{entity}/{key}", None),
            (&get, "/v1/admin/keys", None),
        ] {
            assert_eq!(Opens::of(method, pattern), opens, "{method} {pattern}");
        }
    }
}
