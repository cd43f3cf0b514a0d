//! Orders about the counts of keys: people let the counts of a key go on some days, or count again. The log says so,
//! and the next reconcile of each day obeys. Each manifest names the orders, so that the log may lose their records.

use std::collections::BTreeMap;

use tallyring_archive::{DELETES_MAX, DeleteEntry, Manifest};
use tallyring_records::{Delete, Offset, Record};

use super::{Intake, Writer, log_reaches_back};
use crate::error::{Error, Result};
use crate::sync::RwLock;

/// The orders of one store, by their sequence numbers.
pub(super) struct Deletes(RwLock<BTreeMap<u64, DeleteEntry>>);

impl Deletes {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let deletes = Self(RwLock::new(BTreeMap::new()));
        deletes.learn_all(manifest);
        deletes
    }

    fn learn_all(&self, manifest: &Manifest) {
        let named = manifest.intake.deletes.iter();
        let named = named.map(|entry| (entry.at.sequence, entry.clone()));
        self.0.write().extend(named);
    }
}

impl Intake {
    /// All orders about the counts of keys, in the order of the log: those at least of which a day may be reconciled.
    pub fn deletes(&self) -> Vec<DeleteEntry> {
        self.deletes.0.read().values().cloned().collect()
    }

    /// Orders that the counts of a key go on some days, or count again. No count changes before the next reconcile of
    /// such a day. Returns the offset of the record. Fails when manifests have no room for one more order, and when the
    /// log takes no more writes.
    pub fn delete(&self, order: Delete) -> Result<Offset> {
        let mut writer = self.writer();
        self.forget_deletes(&mut writer)?;
        let record = Record::Delete(order);
        let after = self.append_one(&mut writer, &record)?;
        let at = Offset {
            sequence: after.sequence - 1,
            ..after
        };
        self.learn_delete(at, writer.last_append_ms, &record);
        self.live.pass(after);
        self.copy_now(&mut writer, u64::MAX)?;
        Ok(at)
    }

    /// Takes over the order that a record of the log is, if it is one. It arrived at `arrived_ms`, Unix milliseconds.
    pub(crate) fn learn_delete(&self, at: Offset, arrived_ms: i64, record: &Record) {
        if let Record::Delete(order) = record {
            let entry = DeleteEntry {
                at,
                arrived_ms,
                order: order.clone(),
            };
            self.deletes.0.write().insert(at.sequence, entry);
        }
    }

    /// Takes over the orders that a manifest names.
    pub(super) fn learn_deletes(&self, manifest: &Manifest) {
        self.deletes.learn_all(manifest);
    }

    /// Makes room for one more order: those go of which no day can be reconciled any more.
    fn forget_deletes(&self, writer: &mut Writer) -> Result<()> {
        let mut known = self.deletes.0.write();
        if known.len() < DELETES_MAX {
            return Ok(());
        }
        let oldest = &writer.log()?.segments().list()[0];
        let begins = (oldest.first_sequence, oldest.created_ms);
        let manifest = self.live.manifest();
        known.retain(|_, entry| {
            let mut days = entry.order.days();
            days.any(|day| log_reaches_back(&manifest.intake, begins, day))
        });
        match known.len() < DELETES_MAX {
            true => Ok(()),
            false => Err(Error::Deletes { known: known.len() }),
        }
    }
}
