//! API keys as they are stored: never the secret, only its hash.
//!
//! A revoked key stays as an entry, and the first key is noted in `STORE`, too: a store that ever had keys never
//! becomes open again by itself, even when the catalog and its snapshot are lost.

use serde::{Deserialize, Serialize};

use super::{Catalog, CatalogError, Content};
use crate::identity::Identity;

/// Requests that a key permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Sending increments.
    Write,
    /// Reading counts and metrics.
    Read,
    /// Asking what users did.
    Actions,
    /// Operating the server.
    Admin,
}

impl Scope {
    /// All scopes, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Actions, Self::Admin];

    /// The name in requests and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Actions => "actions",
            Self::Admin => "admin",
        }
    }
}

/// One API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEntry {
    /// Public part, unique.
    pub id: String,
    /// blake3 of the secret part.
    pub secret_hash: [u8; 32],
    /// Scopes of the key; never empty.
    pub scopes: Vec<Scope>,
    /// Namespaces for which the key is valid; none stands for all.
    pub namespaces: Option<Vec<String>>,
    /// The login whose counts the bitly-compatible reads return.
    pub login: Option<String>,
    /// Items a second; none stands for unlimited.
    pub limit: Option<u32>,
    /// The most that one increment may count; none stands for no bound, as for keys that are older than this field.
    pub max_n: Option<u64>,
    /// The identity of the ids that the key sends, where it shares that with other keys; none says that the key has its
    /// own, as keys that are older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// A note for people.
    pub note: Option<String>,
    /// Unix milliseconds of the injected clock.
    pub created_ms: i64,
    /// Unix milliseconds of the injected clock, once it was revoked.
    pub revoked_ms: Option<i64>,
}

impl KeyEntry {
    /// The identity of the ids that the key sends: its own has the name of the key's id.
    pub fn identity(&self) -> &str {
        self.identity.as_deref().unwrap_or(&self.id)
    }
}

pub(super) const KEYS: &str = "keys";

impl Catalog {
    /// Writes a key under its id, durably.
    pub fn put_key(&self, key: &KeyEntry) -> Result<(), CatalogError> {
        self.insert(KEYS, key.id.as_bytes(), key)?;
        self.sync()?;
        self.write_snapshot()?;
        self.mark_store()
    }

    /// True once the store ever had a key, even if the catalog has lost it: every request then needs a key.
    pub fn had_keys(&self) -> Result<bool, CatalogError> {
        if !self.keys()?.is_empty() {
            return Ok(true);
        }
        let identity = Identity::load(&self.blobs()?).map_err(Box::new)?;
        Ok(identity.is_some_and(|identity| identity.is_keyed))
    }

    /// Notes in `STORE` that the store has keys. A key that is made before its store is noted when the catalog is
    /// opened next.
    pub(super) fn mark_store(&self) -> Result<(), CatalogError> {
        if self.keys()?.is_empty() {
            return Ok(());
        }
        Ok(Identity::mark_keyed(&self.blobs()?).map_err(Box::new)?)
    }

    /// All keys, including revoked ones, oldest first.
    pub fn keys(&self) -> Result<Vec<KeyEntry>, CatalogError> {
        if let Content::Text(text) = &self.content {
            return Ok(text.keys.clone());
        }
        let mut keys: Vec<KeyEntry> = self.all(KEYS)?;
        keys.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        Ok(keys)
    }
}
