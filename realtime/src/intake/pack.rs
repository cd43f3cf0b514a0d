//! Packs the segments of the log that a restart would not replay, and takes erased users out of them.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use tallyring_archive::Erasures;
use tallyring_records::{Day, LongKeys, Record, UserKey, decode_all};

use super::Intake;
use crate::error::Result;
use crate::oplog::{ApplyError, Frame, pack, redact};

/// Packed segments in which erased users were looked for: for each, the record behind the last erasure then, and the
/// day. A start begins anew.
#[derive(Debug, Default)]
pub(super) struct Redactions(BTreeMap<u64, (u64, i64)>);

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

    /// First record of the oldest packed segment that may name a user who was erased, and in which such users were not
    /// looked for yet, or before `day` for the last time and less of them. So a segment is read once a day at most.
    /// Fails when the store is open for reading only.
    pub(crate) fn to_redact(&self, day: i64) -> Result<Option<u64>> {
        let until = self.live.erasures().until();
        if until == 0 {
            return Ok(None);
        }
        let packed = self.writer().log()?.packed_before(until);
        let mut looked = self.packing.lock().unwrap_or_else(PoisonError::into_inner);
        looked
            .0
            .retain(|first, _| packed.binary_search(first).is_ok());
        let is_new = |first: &u64| match looked.0.get(first) {
            Some(&(seen, on)) => seen < until && on < day,
            None => true,
        };
        Ok(packed.into_iter().find(is_new))
    }

    /// Takes the names of erased users, and all else that the log keeps of their events beside what is counted, out of
    /// that segment. Returns false when it has none, or is gone. After an error the log is as it was. Fails soon after
    /// `stop` is set, when the segment is damaged, and when the disk fails or is full.
    pub(crate) fn redact(&self, first_sequence: u64, day: i64, stop: &AtomicBool) -> Result<bool> {
        let mut looked = self.packing.lock().unwrap_or_else(PoisonError::into_inner);
        let erasures = self.live.erasures();
        // Noted before: a damaged segment is not read again and again.
        looked.0.insert(first_sequence, (erasures.until(), day));
        let keys = self.live.keys();
        let found = redact(&*self.world.disk, first_sequence, &mut |frame| match stop
            .load(Ordering::Relaxed)
        {
            true => Err("the store is stopping".into()),
            false => without_erased(frame, &erasures, keys),
        });
        let redacted = found.inspect_err(|_| {
            if stop.load(Ordering::Relaxed) {
                looked.0.remove(&first_sequence);
            }
        })?;
        let is_put = match &redacted {
            Some(redacted) => self.writer().log()?.put_packed(redacted)?,
            None => false,
        };
        if let Some(copy) = &self.log_copy {
            let written = copy.write_again(first_sequence);
            // It is tried again on the next day.
            if written.is_err() {
                looked.0.insert(first_sequence, (0, day));
            }
            written?;
        }
        Ok(is_put)
    }
}

/// The payload of a frame in which records of before an erasure do not tell of the user; none where there are none.
fn without_erased(
    frame: Frame<'_>,
    erasures: &Erasures,
    keys: &LongKeys,
) -> Result<Option<Vec<u8>>, ApplyError> {
    let mut records = decode_all(frame.payload, frame.count)?;
    let is_erased = |user: &UserKey, sequence: u64| {
        let erased_at = erasures.erased_at(user);
        erased_at.is_some_and(|at| sequence < at)
    };
    let mut is_other = false;
    for (sequence, record) in (frame.first_sequence..).zip(&mut records) {
        match record {
            Record::Increment(increment)
            | Record::Late(increment)
            | Record::Filtered { increment, .. } => {
                let user = increment.user.as_ref().map(|user| UserKey::of(keys, user));
                if user.is_some_and(|user| is_erased(&user, sequence)) {
                    (increment.user, increment.details) = (None, None);
                    is_other = true;
                }
            }
            // It has long expired.
            Record::Hold(hold) if is_erased(&hold.user, sequence) => {
                *record = Record::HoldEnded { id: hold.id };
                is_other = true;
            }
            _ => {}
        }
    }
    Ok(is_other.then(|| {
        let mut payload = Vec::with_capacity(frame.payload.len());
        records
            .iter()
            .for_each(|record| record.encode(&mut payload));
        payload
    }))
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
