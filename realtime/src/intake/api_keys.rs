//! The API keys of the store. The log has them, so each node that follows it knows all of them, and each manifest names
//! them, so that the log may lose their records. Shares are kept among them until they expire: an entry says when, so a
//! share that the log tells again opens nothing.
//!
//! An index on the disk (`realtime/src/catalog.rs`) may have keys that the log lacks: an older build made them, or a
//! command without a server. They are in force at once, and the log gets them as soon as this store writes it.

use std::collections::BTreeMap;
use std::mem;
use std::sync::OnceLock;

use tallyring_archive::Manifest;
use tallyring_records::{KeyEntry, Record};

use super::{Intake, Writer};
use crate::error::Result;
use crate::sync::RwLock;

/// Bytes of keys after which a frame takes no further one.
const FRAME_BYTES: usize = 256 << 10;

/// Called after each change of the keys, with the lock of the intake held.
type OnChange = Box<dyn Fn() + Send + Sync>;

/// The API keys of one store.
pub(super) struct ApiKeys {
    known: RwLock<BTreeMap<String, Known>>,
    on_change: OnceLock<OnChange>,
}

/// A key, and whether the log or a manifest has it as it is.
struct Known {
    key: KeyEntry,
    is_logged: bool,
}

impl ApiKeys {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let keys = Self::new();
        keys.learn_all(manifest);
        keys
    }

    fn new() -> Self {
        Self {
            known: RwLock::new(BTreeMap::new()),
            on_change: OnceLock::new(),
        }
    }

    fn learn_all(&self, manifest: &Manifest) {
        let named = manifest.intake.keys.iter();
        named.for_each(|key| self.learn(key, true));
    }

    /// Takes over what an entry tells of a key. `is_logged` says that the log or a manifest tells it.
    fn learn(&self, entry: &KeyEntry, is_logged: bool) {
        // The log must never have a record that cannot be read.
        if !entry.is_valid() {
            tracing::error!(
                id = entry.id,
                "an API key is left out, because its id or its identity is no name"
            );
            return;
        }
        let mut known = self.known.write();
        let mut is_news = false;
        let found = known.entry(entry.id.clone()).or_insert_with(|| {
            is_news = true;
            Known {
                key: entry.clone(),
                is_logged,
            }
        });
        if !found.key.is_same_key(entry) {
            tracing::error!(
                id = entry.id,
                "two API keys have this id, and the first one counts: revoke it, and make another one"
            );
            return;
        }
        is_news |= found.key.join(entry);
        // An entry without the revocation that is known here tells less.
        let tells_all = found.key.revoked_ms.is_some() == entry.revoked_ms.is_some();
        found.is_logged = (found.is_logged && !is_news) || (is_logged && tells_all);
        drop(known);
        if is_news && let Some(on_change) = self.on_change.get() {
            on_change();
        }
    }

    /// Lets go of the shares that have expired at this time.
    fn forget_expired(&self, now_ms: i64) {
        let mut known = self.known.write();
        known.retain(|_, known| !known.key.has_expired(now_ms));
    }

    fn all(&self, is_wanted: impl Fn(&Known) -> bool) -> Vec<KeyEntry> {
        let known = self.known.read();
        let wanted = known.values().filter(|known| is_wanted(known));
        let mut keys: Vec<_> = wanted.map(|known| known.key.clone()).collect();
        keys.sort_by_key(|key| key.created_ms);
        keys
    }
}

impl Intake {
    /// All API keys and shares, including revoked ones, oldest first. Shares that have expired are forgotten.
    pub fn keys(&self) -> Vec<KeyEntry> {
        self.keys.forget_expired(self.world.clock.now_ms());
        self.keys.all(|_| true)
    }

    /// Calls `told` after each change of the keys from here on, before anything behind it in the log counts. It is
    /// called with the lock of the intake held, so it takes no time and asks the intake for nothing but its keys. Only
    /// the first call of this function has an effect.
    pub fn on_change_of_keys(&self, told: impl Fn() + Send + Sync + 'static) {
        let _ = self.keys.on_change.set(Box::new(told));
    }

    /// Makes a key, or revokes the one with this id: durable in the log, and in force on each node that has counted up
    /// to there. A revocation is in force here even where that fails: the log takes no more writes, or another node
    /// writes it. The caller has checked the key.
    pub fn put_key(&self, key: KeyEntry) -> Result<()> {
        if key.revoked_ms.is_some() {
            self.keys.learn(&key, false);
        }
        self.log_some(&mut self.writer(), &[key])
    }

    /// Puts keys in force that the log may lack, and logs those that it lacks where this store writes it. Where it does
    /// not, it logs them when it begins to. Fails when the log takes no more writes; the keys are in force all the
    /// same.
    pub fn adopt_keys(&self, keys: &[KeyEntry]) -> Result<()> {
        keys.iter().for_each(|key| self.keys.learn(key, false));
        match self.is_read_only() {
            true => Ok(()),
            false => self.log_keys(),
        }
    }

    /// Tells the log of the keys that it lacks. Fails when it takes no more writes.
    pub(crate) fn log_keys(&self) -> Result<()> {
        let mut writer = self.writer();
        let (mut together, mut bytes) = (Vec::new(), 0);
        for key in self.keys.all(|known| !known.is_logged) {
            bytes += serde_json::to_vec(&key).map_or(0, |text| text.len());
            together.push(key);
            if bytes >= FRAME_BYTES {
                self.log_some(&mut writer, &mem::take(&mut together))?;
                bytes = 0;
            }
        }
        match together.is_empty() {
            true => Ok(()),
            false => self.log_some(&mut writer, &together),
        }
    }

    fn log_some(&self, writer: &mut Writer, keys: &[KeyEntry]) -> Result<()> {
        let records = keys.iter().map(|key| Record::Key(Box::new(key.clone())));
        let records: Vec<Record> = records.collect();
        let after = self.append_all(writer, &records)?;
        records.iter().for_each(|record| self.learn_key(record));
        self.live.pass(after);
        Ok(())
    }

    /// Takes over what a record of the log tells of a key, if it is of one.
    pub(crate) fn learn_key(&self, record: &Record) {
        if let Record::Key(key) = record {
            self.keys.learn(key, true);
        }
    }

    /// Takes over the keys that a manifest names.
    pub(super) fn learn_keys(&self, manifest: &Manifest) {
        self.keys.learn_all(manifest);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn key(id: &str, revoked_ms: Option<i64>) -> KeyEntry {
        KeyEntry {
            revoked_ms,
            ..KeyEntry::new(id.into(), [7; 32], Vec::new(), 1)
        }
    }

    /// The keys, and whether the log lacks something of each.
    fn told(keys: &ApiKeys) -> Vec<(KeyEntry, bool)> {
        let lacking = keys.all(|known| !known.is_logged);
        let all = keys.all(|_| true).into_iter();
        all.map(|key| (key.clone(), lacking.contains(&key)))
            .collect()
    }

    #[test]
    fn entries_in_any_order_and_twice_give_the_same_keys() {
        let entries = [
            key("a", None),
            key("a", Some(2)),
            key("b", None),
            key("c", Some(3)),
        ];
        let expected = [&entries[1], &entries[2], &entries[3]].map(|key| (key.clone(), false));
        for first in 0..4 {
            for second in 0..4 {
                let keys = ApiKeys::new();
                let chosen = [first, second, 0, 1, 2, 3, first, second];
                chosen
                    .into_iter()
                    .for_each(|at| keys.learn(&entries[at], true));
                assert_eq!(told(&keys), expected);
            }
        }
    }

    #[test]
    fn the_log_lacks_a_key_until_it_has_all_of_it() {
        let keys = ApiKeys::new();
        let steps = [
            (key("a", None), false, true),
            (key("a", None), true, false),
            (key("a", None), false, false),
            // A revocation that only the index has.
            (key("a", Some(2)), false, true),
            (key("a", None), true, true),
            (key("a", Some(2)), true, false),
        ];
        for (entry, is_logged, lacks) in steps {
            keys.learn(&entry, is_logged);
            let told: Vec<bool> = told(&keys).into_iter().map(|(_, lacks)| lacks).collect();
            assert_eq!(told, [lacks], "{entry:?}");
        }
        let other = KeyEntry {
            secret_hash: [8; 32],
            ..key("a", None)
        };
        keys.learn(&other, true);
        assert_eq!(
            keys.all(|_| true),
            [key("a", Some(2))],
            "the first one counts"
        );
    }

    #[test]
    fn changes_are_told_and_nothing_else_is() {
        let keys = ApiKeys::new();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let told = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        assert!(keys.on_change.set(Box::new(told)).is_ok());
        for (entry, expected) in [
            (key("a", None), 1),
            (key("a", None), 1),
            (key("a", Some(2)), 2),
            (key("a", None), 2),
            (key("b", Some(2)), 3),
        ] {
            keys.learn(&entry, true);
            assert_eq!(calls.load(Ordering::Relaxed), expected, "{entry:?}");
        }
    }
}
