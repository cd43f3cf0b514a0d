//! Memory is frozen to be flushed, and with it all that a manifest tells of the same offset.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use tallyring_archive::ProducerEntry;
use tallyring_records::{Consumed, Offset, Record};

use super::ids::Seen;
use super::{Intake, Writer};
use crate::error::Result;
use crate::view::FrozenStore;

/// All memory, frozen at one durable offset to be flushed.
pub(crate) struct Frozen {
    /// The frozen memory and the runs together hold everything before this offset.
    pub until: Offset,
    /// Frozen memory of the delta stores.
    pub stores: Vec<FrozenStore>,
    /// Ids that no run holds.
    pub ids: Option<Arc<HashMap<u128, Seen>>>,
    /// The last sequence number of every producer.
    pub producers: Vec<ProducerEntry>,
    /// How far topics were consumed.
    pub consumed: Vec<Consumed>,
    /// Time of the newest event of each type.
    pub newest_events: BTreeMap<String, i64>,
}

impl Intake {
    /// Freezes all memory at one durable offset. It counts until [`Intake::flushed`]. Where other nodes follow the log,
    /// a mark tells them the offset. Fails when the log cannot be synced, or takes no mark.
    pub(crate) fn freeze(&self) -> Result<Frozen> {
        self.freeze_locked(&mut self.writer())
    }

    /// As [`Intake::freeze`]; later late increments go to another late store, unless too many wait for a rebuild. That
    /// store opens behind the frozen offset, and so behind the mark, which is a record.
    pub(crate) fn freeze_apart(&self) -> Result<Frozen> {
        let mut writer = self.writer();
        let frozen = self.freeze_locked(&mut writer)?;
        let ring = &self.live.snapshot().ring;
        if let Some(late) = ring.late_to_part(frozen.until.sequence) {
            let stores = vec![late];
            self.append_and_follow(&mut writer, &Record::Cut { stores })?;
        }
        Ok(frozen)
    }

    fn freeze_locked(&self, writer: &mut Writer) -> Result<Frozen> {
        let log = writer.log()?;
        if log.is_shared() {
            let after = self.append_one(writer, &Record::Mark)?;
            self.live.pass(after);
        } else {
            log.commit()?;
        }
        let end = writer.log()?.appended();
        Ok(self.freeze_until(writer, end))
    }

    /// Freezes all memory, where the log ends with record `end`.
    pub(super) fn freeze_until(&self, writer: &mut Writer, end: u64) -> Frozen {
        let frozen = self.live.freeze();
        let ids = writer.ids.freeze(frozen.until.sequence);
        // Records that a replay has yet to read may go on with the numbers of any producer.
        if frozen.until.sequence >= end {
            let oldest_ms = self.oldest_known_ms(writer);
            writer.producers.forget(oldest_ms);
        }
        let producers = writer.producers.entries();
        Frozen {
            until: frozen.until,
            stores: frozen.stores,
            ids,
            producers,
            consumed: writer.consumed.entries(),
            newest_events: frozen.newest_events,
        }
    }
}
