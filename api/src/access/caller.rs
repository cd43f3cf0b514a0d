//! The caller of a request, for handlers.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use tallyring_realtime::catalog::Scope;
use tallyring_records::{INSTALLATION, Increment, Text};

use super::table::Key;
use crate::problem::{Problem, Result};

/// The address of the client, in the extensions of a request of the router. No header of a proxy changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The caller, in the request's extensions. Without keys only the address is known, and everything is allowed.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The login of the key, for the bitly-compatible reads.
    pub login: Option<String>,
    key: Option<(Arc<Key>, Duration)>,
    /// None where a key is known.
    address: Option<IpAddr>,
}

impl Caller {
    /// The bearer of a key, at this time of the rates' clock.
    pub(super) fn new(key: Arc<Key>, now: Duration) -> Self {
        Self {
            login: key.login.clone(),
            key: Some((key, now)),
            address: None,
        }
    }

    /// A client without a key, at this address.
    pub(super) fn at(address: Option<IpAddr>) -> Self {
        Self {
            address,
            ..Self::default()
        }
    }

    /// Its address, if it had to show no key.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// True when keys are configured, and this is the bearer of one.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Its key, if it had to show one.
    pub(super) fn key(&self) -> Option<&Key> {
        self.key.as_ref().map(|(key, _)| key.as_ref())
    }

    /// The identity of the ids that it sends; none without keys.
    pub fn identity(&self) -> Option<&Text> {
        self.key().map(|key| &key.identity)
    }

    /// The id of its key; [`INSTALLATION`] without keys. The log names it where a person changes counts.
    pub fn actor(&self) -> &str {
        self.key().map_or(INSTALLATION, |key| &key.id)
    }

    /// True when it may ask for the ids of every identity.
    pub fn sees_all_identities(&self) -> bool {
        self.key().is_none_or(|key| key.has_scope(Scope::Admin))
    }

    /// True when it may ask what users did.
    pub fn sees_actions(&self) -> bool {
        self.has_for_all(Scope::Actions)
    }

    /// True when it may ask for all that is kept of a person.
    pub fn sees_people(&self) -> bool {
        self.has_for_all(Scope::Admin)
    }

    fn has_for_all(&self, scope: Scope) -> bool {
        !self.is_limited() && self.key().is_none_or(|key| key.has_scope(scope))
    }

    /// True for a key that is limited to some namespaces, and may not be told of all.
    pub fn is_limited(&self) -> bool {
        self.key().is_some_and(|key| key.namespaces().is_some())
    }

    /// Refuses a namespace that the key is not for. Fails with 403 that names it.
    pub fn check_namespace(&self, namespace: &str) -> Result<()> {
        match &self.key {
            Some((key, _)) if !key.may_use(namespace) => Err(not_for(key, namespace)),
            _ => Ok(()),
        }
    }

    /// Passes an increment on, or refuses it for a namespace that the key is not for, or for more than it may count at
    /// once. Fails with 403 that names the namespace; 422 that names `n` and the most it may be.
    pub fn allow(&self, increment: Increment) -> Result<Increment> {
        if let Some(key) = self.key() {
            if let Some(max) = key.max_n.filter(|max| increment.n > *max) {
                return Err(too_many(key, increment.n, max));
            }
            for (namespace, _) in &increment.keys {
                self.check_namespace(namespace)?;
            }
        }
        Ok(increment)
    }

    /// Pays for the items of a request beyond the first, which every request pays for.
    pub fn pay_for(&self, items: usize) {
        if let Some((key, now)) = &self.key
            && let Some(rate) = &key.rate
        {
            rate.pay(items.saturating_sub(1) as u64, *now);
        }
    }
}

/// 422 for what counts more than its key may.
fn too_many(key: &Key, n: u64, max: u64) -> Problem {
    let detail = format!(
        "must be at most {max} for the key {}; send the increment in parts, or use a key of `tallyring key new --max-n N`",
        key.id
    );
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not accepted", detail)
        .about("n", Some(n.to_string()))
}

/// 403 for a namespace.
pub(super) fn not_for(key: &Key, namespace: &str) -> Problem {
    let allowed = key.namespaces().unwrap_or_default().join(", ");
    let detail = format!(
        "The key {} is not for the namespace `{}`; it is for {allowed}.",
        key.id,
        namespace.escape_debug()
    );
    Problem::new(StatusCode::FORBIDDEN, "Forbidden", detail)
        .about("namespace", Some(namespace.to_owned()))
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
