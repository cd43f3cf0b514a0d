//! API keys as they are kept: never the secret, only its hash.
//!
//! A revoked key stays as an entry, and the first one is noted in `STORE` too: a store that ever had keys never becomes open
//! again by itself, even when the catalog and its snapshot are gone.

use serde::{Deserialize, Serialize};

use super::{Catalog, CatalogError};
use crate::identity::Identity;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Count.
    Write,
    /// Ask for counts and metrics.
    Read,
    /// Operate.
    Admin,
}

impl Scope {
    /// All of them, in the order in which they are named.
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Admin];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
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
    /// What it may do; never empty.
    pub scopes: Vec<Scope>,
    /// The namespaces it may do that in; none says all.
    pub namespaces: Option<Vec<String>>,
    /// The login whose counts the bitly-compatible reads answer.
    pub login: Option<String>,
    /// Items a second; none says unlimited.
    pub limit: Option<u32>,
    /// The most that one increment may count; none says no bound, as for keys that were made before there was one.
    #[serde(default)]
    pub max_n: Option<u64>,
    /// For people.
    pub note: Option<String>,
    /// Unix milliseconds of the injected clock.
    pub created_ms: i64,
    /// Unix milliseconds of the injected clock, once it was revoked.
    pub revoked_ms: Option<i64>,
}

pub(super) const KEYS: &str = "keys";

impl Catalog {
    /// Writes a key under its id, durably.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn put_key(&self, key: &KeyEntry) -> Result<(), CatalogError> {
        self.insert(KEYS, key.id.as_bytes(), key)?;
        self.sync()?;
        self.write_snapshot()?;
        self.mark_store()
    }

    /// True once the store ever had a key, also when the catalog has lost it: every request needs one then.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn had_keys(&self) -> Result<bool, CatalogError> {
        if !self.keys()?.is_empty() {
            return Ok(true);
        }
        let identity = Identity::load(&self.blobs()?).map_err(Box::new)?;
        Ok(identity.is_some_and(|identity| identity.is_keyed))
    }

    /// Notes in `STORE` that there are keys. A key that is made before its store is noted when the catalog is opened next.
    pub(super) fn mark_store(&self) -> Result<(), CatalogError> {
        if self.keys()?.is_empty() {
            return Ok(());
        }
        Ok(Identity::mark_keyed(&self.blobs()?).map_err(Box::new)?)
    }

    /// Every key that ever was, revoked ones too, oldest first.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn keys(&self) -> Result<Vec<KeyEntry>, CatalogError> {
        let mut keys = Vec::new();
        for entry in self.tree(KEYS)?.iter() {
            let (_, value) = entry.map_err(|error| self.wrong(error.to_string()))?;
            let key: KeyEntry =
                serde_json::from_slice(&value).map_err(|error| self.wrong(error.to_string()))?;
            keys.push(key);
        }
        keys.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        Ok(keys)
    }
}
