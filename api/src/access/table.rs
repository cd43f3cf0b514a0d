//! The keys in force, by id.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::http::StatusCode;
use tallyring_realtime::catalog::{KeyEntry, Scope};
use tallyring_records::{INSTALLATION, Text, filtered_of};

use super::denial::Denial;
use super::key::{KEY, NewKey, Presented};
use super::limits::AccessLimits;
use super::rate::Bucket;
use super::share::Share;
use crate::problem::Problem;

/// A key in force.
#[derive(Debug)]
pub(super) struct Key {
    /// Public part.
    pub id: String,
    /// The login whose counts the bitly-compatible reads answer.
    pub login: Option<String>,
    /// Items a second.
    pub rate: Option<Arc<Bucket>>,
    /// The most that one increment may count.
    pub max_n: Option<u64>,
    /// The identity of the ids that the key sends.
    pub identity: Text,
    /// The key's share of the places.
    pub share: Share,
    secret_hash: [u8; 32],
    scopes: Vec<Scope>,
    namespaces: Option<Vec<String>>,
}

/// All keys in force; replaced whole.
#[derive(Debug)]
pub(super) struct KeyTable {
    keys: HashMap<String, Arc<Key>>,
    /// The identities of all keys that could ever write, and that of what comes without a key.
    pub writing_identities: BTreeSet<Text>,
}

impl KeyTable {
    /// The keys that are not revoked, and the local one. Keys that `before` had keep the state of their rates and
    /// shares.
    pub(super) fn new(
        entries: Vec<KeyEntry>,
        local: &NewKey,
        limits: &AccessLimits,
        before: Option<&Self>,
    ) -> Self {
        let known = |id: &str| before.and_then(|before| before.keys.get(id));
        let share =
            |id: &str| known(id).map_or_else(|| Share::of_key(limits), |key| key.share.clone());
        let may_write = |entry: &&KeyEntry| has_scope(&entry.scopes, Scope::Write);
        let writing = entries.iter().filter(may_write).map(KeyEntry::identity);
        let writing = writing.chain([INSTALLATION, &local.id]);
        let writing_identities = writing.map(Text::from).collect();
        let mut keys: HashMap<_, _> = entries
            .into_iter()
            .filter(|entry| entry.revoked_ms.is_none())
            .map(|entry| {
                let rate = known(&entry.id)
                    .and_then(|key| key.rate.clone())
                    .or_else(|| entry.limit.map(|limit| Arc::new(Bucket::new(limit))));
                let key = Key {
                    share: share(&entry.id),
                    identity: entry.identity().into(),
                    id: entry.id,
                    login: entry.login,
                    rate,
                    max_n: entry.max_n,
                    secret_hash: entry.secret_hash,
                    scopes: entry.scopes,
                    namespaces: entry.namespaces,
                };
                (key.id.clone(), Arc::new(key))
            })
            .collect();
        let local = Key {
            share: share(&local.id),
            id: local.id.clone(),
            login: None,
            rate: None,
            max_n: None,
            identity: local.id.as_str().into(),
            secret_hash: local.secret_hash,
            scopes: Scope::ALL.to_vec(),
            namespaces: None,
        };
        keys.insert(local.id.clone(), Arc::new(local));
        Self {
            keys,
            writing_identities,
        }
    }

    /// True when this key of an earlier table is still in force.
    pub(super) fn holds(&self, key: &Key) -> bool {
        let kept = self.keys.get(&key.id);
        kept.is_some_and(|kept| kept.secret_hash == key.secret_hash)
    }

    /// The key that `text` is, if it is one in force.
    pub(super) fn find(&self, text: &str) -> Option<Arc<Key>> {
        let presented = Presented::parse(KEY, text)?;
        let key = self.keys.get(presented.id);
        presented
            .matches(key.map(|key| &key.secret_hash))
            .then(|| key.cloned())
            .flatten()
    }
}

impl Key {
    /// The bearer of a link, which may do nothing by itself, in these places.
    pub(super) fn of_link(entry: &KeyEntry, places: Share) -> Self {
        Self {
            share: places,
            identity: entry.identity().into(),
            id: entry.id.clone(),
            login: None,
            rate: None,
            max_n: None,
            secret_hash: entry.secret_hash,
            scopes: Vec::new(),
            namespaces: entry.namespaces.clone(),
        }
    }

    /// The hash of the secret part.
    pub(super) fn secret_hash(&self) -> &[u8; 32] {
        &self.secret_hash
    }

    /// True when the key has the scope; `admin` is all of them.
    pub(super) fn has_scope(&self, scope: Scope) -> bool {
        has_scope(&self.scopes, scope)
    }

    /// Lets the key do what it has the scope for. Fails with 403 that lists the scopes of the key.
    pub(super) fn check_scope(&self, scope: Scope) -> Result<(), Denial> {
        if self.has_scope(scope) {
            return Ok(());
        }
        let names: Vec<&str> = self.scopes.iter().map(|scope| scope.name()).collect();
        let detail = format!(
            "The key {} lacks the scope `{}`; it has {}.",
            self.id,
            scope.name(),
            names.join(", ")
        );
        let problem = Problem::new(StatusCode::FORBIDDEN, "Forbidden", detail);
        Err(Denial::Forbidden(problem))
    }

    /// The namespaces it is limited to; none says all.
    pub(super) fn namespaces(&self) -> Option<&[String]> {
        self.namespaces.as_deref()
    }

    /// True when it may do its scopes in this namespace.
    pub(super) fn may_use(&self, namespace: &str) -> bool {
        let of = filtered_of(namespace).unwrap_or(namespace);
        let allowed = self.namespaces.as_ref();
        allowed.is_none_or(|allowed| allowed.iter().any(|name| name == of))
    }
}

fn has_scope(scopes: &[Scope], scope: Scope) -> bool {
    scopes.iter().any(|own| [scope, Scope::Admin].contains(own))
}
