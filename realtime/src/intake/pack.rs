//! Packs the segments of the log that a restart would not replay, takes erased users out of them, and gives the users
//! of the oldest ones pseudonyms.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use tallyring_archive::{Erasures, names};
use tallyring_records::{Details, LongKeys, Record, UserKey, decode_all, pseudonym};

use super::Intake;
use crate::error::Result;
use crate::oplog::{ApplyError, Frame, OplogError, SegmentInfo, count_days, pack, redact};

/// Packed segments in which erased users were looked for, by their first records. A start begins anew. That costs one
/// more read of each, in the thread of lowest priority, and only while erased users are listed or a journal has a
/// second copy.
#[derive(Debug, Default)]
pub(super) struct Redactions(BTreeMap<u64, Look>);

/// A look for erased users in one segment.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    /// All users whom a record before this one erased were looked for, and are gone.
    until: u64,
    /// Day of the last try, a number of UTC days.
    day: i64,
}

impl Intake {
    /// First record of the oldest segment that can be packed: written no more, with all records from `from` on and
    /// before `needed`. Fails when the store is open for reading only.
    pub(crate) fn to_pack(&self, from: u64, needed: u64) -> Result<Option<u64>> {
        Ok(self.writer().log()?.segments().to_pack(from, needed))
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
                false => count_days(&frame, days),
            },
        )?;
        Ok(self.writer().log()?.segments_mut().put_packed(&packing)?)
    }

    /// First record of the oldest packed segment that is to be written again, if the last try was before `day`: it may
    /// have users who were erased since the last look, or belongs to the journal and names users as they were sent. So
    /// a segment is read once for each set of erasures, and once a day at most. Segments that the second copy lacks
    /// wait until it has them. Fails when the store is open for reading only.
    pub(crate) fn to_redact(&self, day: i64) -> Result<Option<u64>> {
        let until = self.live.erasures().until();
        if until == 0 && self.options.journal_days == 0 {
            return Ok(None);
        }
        let mut looks = self.packing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.writer();
        let journal_ms = self.journal_until_ms(&writer);
        let log = writer.log()?;
        let packed: BTreeSet<u64> = log
            .segments()
            .packed()
            .map(|one| one.first_sequence)
            .collect();
        looks.0.retain(|first, _| packed.contains(first));
        let copy = self.log_copy.as_ref();
        let is_due = |one: &&SegmentInfo| {
            let Some(look) = looks.0.get(&one.first_sequence) else {
                // A crash may have left the second copy with names.
                let has_names = one.is_pseudonymous && copy.is_some();
                return has_names || one.first_sequence < until || is_for_journal(one, journal_ms);
            };
            let has_erased = one.first_sequence < until && look.until < until;
            (has_erased || is_for_journal(one, journal_ms)) && look.day != day
        };
        let is_copied =
            |one: &&SegmentInfo| copy.is_none_or(|copy| copy.has_whole(one.first_sequence));
        let mut due = log.segments().packed().filter(is_due);
        Ok(due.find(is_copied).map(|one| one.first_sequence))
    }

    /// Takes the names of erased users, and all else that the log keeps of their events beside what is counted, out of
    /// that segment and its second copy; of all users, where the segment belongs to the journal. Returns false when it
    /// has none, or is gone. After an error each of both is as it was or without these users, and [`Self::to_redact`]
    /// names the segment again on the next day, or at once where the disk is full. Fails soon after `stop` is set, when
    /// the segment is damaged, and when a disk fails or is full.
    pub(crate) fn redact(&self, first_sequence: u64, day: i64, stop: &AtomicBool) -> Result<bool> {
        let mut looks = self.packing.lock().unwrap_or_else(PoisonError::into_inner);
        let erasures = self.live.erasures();
        let redacted = match self.take_out(first_sequence, &erasures, stop) {
            // It has expired meanwhile.
            Err(_) if !self.has_packed(first_sequence)? => return Ok(false),
            redacted => redacted,
        };
        let look = looks.0.entry(first_sequence).or_default();
        match &redacted {
            Ok(_) => {
                let until = erasures.until();
                *look = Look { until, day };
            }
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(full) if full.is_disk_full() => {}
            // A damaged segment is not read again and again.
            Err(_) => look.day = day,
        }
        redacted
    }

    fn has_packed(&self, first: u64) -> Result<bool> {
        let mut writer = self.writer();
        let mut packed = writer.log()?.segments().packed();
        Ok(packed.any(|one| one.first_sequence == first))
    }

    /// Whether the users of a packed segment are to have pseudonyms.
    fn is_pseudonymous(&self, first: u64) -> Result<bool> {
        let mut writer = self.writer();
        let journal_ms = self.journal_until_ms(&writer);
        let mut packed = writer.log()?.segments().packed();
        let found = packed.find(|one| one.first_sequence == first);
        Ok(found.is_some_and(|one| one.is_pseudonymous || is_for_journal(one, journal_ms)))
    }

    fn take_out(&self, first: u64, erasures: &Erasures, stop: &AtomicBool) -> Result<bool> {
        let keys = self.live.keys();
        let disk = &*self.world.disk;
        let pseudonymous = self.is_pseudonymous(first)?;
        let redacted = redact(disk, first, pseudonymous, &mut |frame| match stop
            .load(Ordering::Relaxed)
        {
            true => Err("the store is stopping".into()),
            false => without_persons(frame, pseudonymous, erasures, keys),
        })?;
        let is_put = match &redacted {
            Some(redacted) => self.writer().log()?.segments_mut().put_packed(redacted)?,
            None => false,
        };
        // A crash must not bring the person back once the copy or a backup has no other form of the segment.
        disk.sync_directory(names::OPLOG)
            .map_err(OplogError::io(names::OPLOG, "sync directory"))?;
        if let Some(copy) = &self.log_copy {
            copy.write_again(first, stop)?;
        }
        Ok(is_put)
    }
}

/// True for a segment whose users are to get pseudonyms: it was written before `journal_ms` (Unix milliseconds).
fn is_for_journal(segment: &SegmentInfo, journal_ms: i64) -> bool {
    !segment.is_pseudonymous && segment.written_until_ms < journal_ms
}

/// The payload of a frame in which records of before an erasure do not tell of the user, and where it is `pseudonymous`
/// the others name users by pseudonyms only; none where the frame stays as it is.
fn without_persons(
    frame: Frame<'_>,
    pseudonymous: bool,
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
                } else if pseudonymous {
                    let user = increment.user.as_ref().map(|user| pseudonym(keys, user));
                    // Rules tell events by insertions, which name nobody.
                    let insertion = increment.details.as_ref();
                    let insertion = insertion.and_then(|details| details.insertion.clone());
                    let details = Details {
                        insertion,
                        ..Details::default()
                    }
                    .boxed();
                    is_other |= (&user, &details) != (&increment.user, &increment.details);
                    (increment.user, increment.details) = (user, details);
                }
            }
            // It has long expired.
            Record::Hold(hold) if pseudonymous || is_erased(&hold.user, sequence) => {
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
