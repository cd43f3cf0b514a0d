//! The keys of the store: its log has them, and the catalog is an index of them, which commands without a server read.

use std::collections::HashMap;
use std::sync::Arc;

use tallyring_realtime::Store;
use tallyring_realtime::catalog::CatalogError;

use super::{Access, Catalogued};

impl Access {
    /// Goes by the keys of a store that was just opened, and by each change of them: another node may make it. The log
    /// gets keys that only the catalog has. Nothing may be served before. Fails when the catalog cannot be read.
    pub fn attach(self: &Arc<Self>, store: &Arc<Store>) -> Result<(), CatalogError> {
        let Some(kept) = &self.catalog else {
            return Ok(());
        };
        let catalogued = kept.catalog.keys()?;
        let _ = kept.store.set(Arc::clone(store));
        // Changes are put in force one by one only after that: each takes as long as there are keys.
        if let Err(error) = store.intake().adopt_keys(&catalogued) {
            tracing::warn!(%error, "the log lacks API keys of the catalog, which are in force; the next start tells it again");
        }
        let access = Arc::downgrade(self);
        store.intake().on_change_of_keys(move || {
            if let Some(access) = access.upgrade() {
                access.change();
            }
        });
        self.reload()?;
        if self.needs_keys() && store.intake().keys().iter().all(|key| key.shared.is_some()) {
            tracing::warn!(
                "the catalog of the API keys was lost: every request is refused until `tallyring key new` makes a key"
            );
        }
        kept.bring_up();
        Ok(())
    }

    /// Brings the catalog up to date after each change of the keys, for as long as it is polled.
    pub async fn keep_catalog(self: Arc<Self>) {
        let Some(kept) = &self.catalog else {
            return;
        };
        loop {
            kept.changed.notified().await;
            let access = Arc::clone(&self);
            let brought = tokio::task::spawn_blocking(move || {
                if let Some(kept) = &access.catalog {
                    let _writing = kept.writing.lock();
                    kept.bring_up();
                }
            });
            // It fails where the process ends.
            let _ = brought.await;
        }
    }

    /// Puts the keys of the store in force as they are now.
    fn change(&self) {
        if let Err(error) = self.reload() {
            tracing::error!(%error, "a change of the API keys is not in force");
        }
        if let Some(kept) = &self.catalog {
            kept.changed.notify_one();
        }
    }
}

impl Catalogued {
    /// Writes keys of the store that the catalog does not have so. A catalog that takes no writes lacks them until it
    /// does: the log has them.
    pub(super) fn bring_up(&self) {
        if let Err(error) = self.try_bring_up() {
            tracing::warn!(%error, "the catalog lacks API keys that are in force; the log has them");
        }
    }

    fn try_bring_up(&self) -> Result<(), CatalogError> {
        let Some(store) = self.store.get().filter(|_| self.catalog.takes_writes()) else {
            return Ok(());
        };
        let known = self.catalog.keys()?.into_iter();
        let known: HashMap<_, _> = known.map(|key| (key.id.clone(), key)).collect();
        let mut lacking = store.intake().keys();
        // Older builds would take shares for keys there, and close a store that has no others.
        lacking.retain(|key| key.shared.is_none() && known.get(&key.id) != Some(key));
        match lacking.is_empty() {
            true => Ok(()),
            false => self.catalog.put_keys(&lacking),
        }
    }
}
