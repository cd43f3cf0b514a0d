//! Packs the segments of the log that a restart would not replay.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use tallyring_records::{Day, Record, decode_all};

use super::Intake;
use crate::error::Result;
use crate::oplog::{ApplyError, Frame, pack};

impl Intake {
    /// First record of the oldest segment that can be packed: written no more, with all records from `from` on and
    /// before `needed`. Fails when the store is open for reading only.
    pub(crate) fn to_pack(&self, from: u64, needed: u64) -> Result<Option<u64>> {
        Ok(self.writer().log()?.to_pack(from, needed))
    }

    /// Packs that segment. The lock of the intake is held only while the packed file takes the place of the plain one.
    /// Returns false when the segment is gone. After an error the log is as it was. Fails soon after `stop` is set,
    /// when the segment is damaged, and when the disk fails or is full.
    pub(crate) fn pack(&self, first_sequence: u64, stop: &AtomicBool) -> Result<bool> {
        // Two at once would write the same file.
        let _one = self.packing.lock().unwrap_or_else(PoisonError::into_inner);
        let packing = pack(
            &*self.world.disk,
            first_sequence,
            &mut |frame, days| match stop.load(Ordering::Relaxed) {
                true => Err("the store is stopping".into()),
                false => count_days(frame, days),
            },
        )?;
        Ok(self.writer().log()?.put_packed(&packing)?)
    }
}

/// Adds the events of a frame, counted or filtered, to those of the days of their own times.
fn count_days(frame: Frame<'_>, days: &mut BTreeMap<u32, u64>) -> Result<(), ApplyError> {
    for record in decode_all(frame.payload, frame.count)? {
        if let Record::Increment(increment)
        | Record::Late(increment)
        | Record::Filtered { increment, .. } = record
        {
            *days.entry(Day::of(increment.at).number()).or_default() += 1;
        }
    }
    Ok(())
}
