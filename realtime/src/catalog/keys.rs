//! The API keys of the catalog: an index of those that the log has, beside which it has those that no server took into
//! the log yet.
//!
//! A revoked key stays as an entry, and the first key is noted in `STORE`, too: a store that ever had keys never
//! becomes open again by itself, even when the catalog and its snapshot are lost.

use tallyring_records::KeyEntry;

use super::{Catalog, CatalogError, Content};
use crate::identity::Identity;

pub(super) const KEYS: &str = "keys";

impl Catalog {
    /// Writes a key under its id, durably.
    pub fn put_key(&self, key: &KeyEntry) -> Result<(), CatalogError> {
        self.put_keys(std::slice::from_ref(key))
    }

    /// As [`Self::put_key`], for many keys.
    pub fn put_keys(&self, keys: &[KeyEntry]) -> Result<(), CatalogError> {
        for key in keys {
            self.insert(KEYS, key.id.as_bytes(), key)?;
        }
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
