//! The history of an id, read from the log for as long as the log is kept.

use tallyring_archive::RunEntry;
use tallyring_records::{Day, Offset, Record, StoreId, Text, UserKey};

use super::Intake;
use super::ids::Seen;
use super::owned::{Domain, Owned};
use crate::error::{Error, Result};
use crate::oplog::{Frame, OplogError, oldest_segment};

/// Counts of an id that are read from the log, at most. A log of 400 days has some hundreds where an id counts again
/// after the usual window of 25 hours.
pub const ID_COUNTS_MAX: usize = 1_024;

/// The records of the log for an id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdHistory {
    /// Every count of the id, oldest first: an id counts again once it is no longer remembered. The newest 1,024, where
    /// there are more.
    pub counts: Vec<IdCount>,
    /// Number of counts before those, whose records the log has.
    pub older: usize,
    /// The first [`Record::Duplicate`] of each window, oldest first.
    pub again: Vec<Logged>,
    /// The newest [`Record::Refused`] that is first in its window.
    pub refused: Option<Logged>,
    /// Arrival of the newest count whose record has left the log while its id is still known, to the minute (Unix
    /// milliseconds); none where no such is known. The record counted the id or filtered it.
    pub left_ms: Option<i64>,
    /// True where a run of ids that are no longer remembered is damaged, so that earlier counts may be missing here.
    pub is_partial: bool,
}

/// The records that made a text known.
pub(super) struct Found {
    /// The newest ones that the log has, oldest first.
    pub logged: Vec<Logged>,
    /// How many the log has before those.
    pub older: usize,
    /// Arrival of the newest one that has left the log, to the minute (Unix milliseconds).
    pub left_ms: Option<i64>,
    /// True where a run beyond the window is damaged, which may have further ones.
    pub is_partial: bool,
}

/// A count of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdCount {
    /// The record that counted the increment, [`Record::Increment`] or [`Record::Late`], or that filtered it,
    /// [`Record::Filtered`].
    pub logged: Logged,
    /// Number of the active generation when the increment is merged into it; none while a delta store or a pending
    /// source run counts the increment.
    pub generation: Option<u64>,
    /// The record that voided the id for the day of this count, [`Record::Void`]; none where it was not voided.
    pub voided: Option<Logged>,
    /// The record that asked for such a void, [`Record::VoidAsked`]; none where nobody asked.
    pub void_asked: Option<Logged>,
}

/// A record with its offset and its arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Offset of the record.
    pub offset: Offset,
    /// Arrival, Unix milliseconds.
    pub arrived_ms: i64,
    /// The record itself.
    pub record: Record,
}

impl Logged {
    /// A record of a frame.
    pub(crate) fn new(frame: &Frame<'_>, sequence: u64, record: Record) -> Self {
        Self {
            offset: Offset {
                epoch: frame.epoch,
                sequence,
            },
            arrived_ms: frame.written_ms,
            record,
        }
    }
}

impl IdHistory {
    /// True when the log has no record for the id.
    pub fn is_empty(&self) -> bool {
        let nothing = Self {
            is_partial: self.is_partial,
            ..Self::default()
        };
        *self == nothing
    }

    /// The first record that repeats this count; none where the log has none, or where an earlier repeat was still
    /// remembered.
    pub fn again(&self, count: &IdCount) -> Option<&Logged> {
        let first = count.logged.offset.sequence;
        let repeats =
            |logged: &&Logged| matches!(logged.record, Record::Duplicate { of, .. } if of == first);
        self.again.iter().find(repeats)
    }

    /// Leaves out all counts but the newest `most`, and what repeated the others.
    pub fn keep_newest(&mut self, most: usize) {
        let left_out = self.counts.len().saturating_sub(most);
        self.counts.drain(..left_out);
        self.older += left_out;
        let Some(first) = self
            .counts
            .first()
            .map(|count| count.logged.offset.sequence)
        else {
            return;
        };
        self.again
            .retain(|logged| matches!(logged.record, Record::Duplicate { of, .. } if first <= of));
    }

    /// This history, with the records of `other`. The refusal of `other` is left out where this has one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.counts.extend(other.counts);
        self.counts.sort_by_key(|count| count.logged.offset);
        self.again.extend(other.again);
        self.again.sort_by_key(|logged| logged.offset);
        self.older += other.older;
        self.keep_newest(ID_COUNTS_MAX);
        Self {
            refused: self.refused.or(other.refused),
            left_ms: self.left_ms.max(other.left_ms),
            is_partial: self.is_partial | other.is_partial,
            ..self
        }
    }
}

impl Intake {
    /// Finds the increments and events with this id that an identity sent, or that were sent without one. Reads two
    /// blocks of each run of ids, as many again of each run for each count, and the log up to each record that is
    /// listed. A refusal is found for as long as the log is kept without its journal. Fails when a run of the
    /// window or the log is damaged.
    pub fn id_history(&self, identity: Option<&Text>, id: &str) -> Result<IdHistory> {
        self.id_history_while(identity, id, &|| Ok(()))
    }

    /// [`Intake::id_history`], which calls `check` between counts and fails as it does.
    pub fn id_history_while(
        &self,
        identity: Option<&Text>,
        id: &str,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<IdHistory> {
        check()?;
        let owned = |domain| Owned::new(domain, identity, id);
        let counted = self.find_logged(&owned(Domain::Id), ID_COUNTS_MAX)?;
        // An id that was sent without an identity counts elsewhere, so duplicates are looked for in any case.
        let again = self
            .find_logged(&owned(Domain::Again), ID_COUNTS_MAX)?
            .logged;
        // The journal is kept for its counts, and a block of each of its runs is read.
        let refused = self.find_since(self.log_from_ms(), &owned(Domain::Refused), 1)?;
        let count = |logged| -> Result<IdCount> {
            check()?;
            Ok(IdCount {
                generation: self.merged_in(&logged),
                voided: self.void_of(Domain::Void, &logged)?,
                void_asked: self.void_of(Domain::VoidAsked, &logged)?,
                logged,
            })
        };
        Ok(IdHistory {
            older: counted.older,
            left_ms: counted.left_ms,
            is_partial: counted.is_partial,
            counts: (counted.logged.into_iter())
                .map(count)
                .collect::<Result<_>>()?,
            again,
            refused: refused.logged.into_iter().next(),
        })
    }

    /// The time (Unix milliseconds) since when every count of an id is told; earlier ones have left the log or the runs
    /// of ids.
    pub fn id_histories_from_ms(&self) -> i64 {
        self.log_begun_ms().max(self.ids_known_from_ms())
    }

    /// The time (Unix milliseconds) since when every id is known that came.
    pub fn ids_known_from_ms(&self) -> i64 {
        let oldest_ms = self.writer().ids.oldest_ms();
        oldest_ms.unwrap_or_else(|| self.log_begun_ms())
    }

    /// When the log was begun, as far as it is kept, Unix milliseconds.
    pub fn log_begun_ms(&self) -> i64 {
        self.oldest_segment().map_or(i64::MIN, |(_, begun)| begun)
    }

    /// First record of the oldest segment of the log, and the time when it was begun (Unix milliseconds). Where another
    /// node or process writes the log, the segment says it.
    pub(super) fn oldest_segment(&self) -> Option<(u64, i64)> {
        if let Some(log) = &self.writer().log {
            let oldest = &log.segments().list()[0];
            return Some((oldest.first_sequence, oldest.created_ms));
        }
        let oldest = oldest_segment(&*self.world.disk).ok().flatten()?;
        Some((oldest.first_sequence(), oldest.created_ms()))
    }

    /// The newest `most` records that made a text known. Runs of ids are forgotten no sooner than the log.
    pub(super) fn find_logged(&self, owned: &Owned<'_>, most: usize) -> Result<Found> {
        self.find_since(i64::MIN, owned, most)
    }

    /// [`Intake::find_logged`], without runs of ids that all arrived before `from_ms`, Unix milliseconds.
    fn find_since(&self, from_ms: i64, owned: &Owned<'_>, most: usize) -> Result<Found> {
        let bits = self.bits(owned).bits;
        // Runs are read without the lock that increments wait for.
        let (in_memory, runs) = self.writer().ids.candidates(bits, from_ms);
        let mut seen: Vec<Seen> = in_memory.into_iter().collect();
        let mut is_partial = false;
        for run in runs {
            match run.find_all(self.live.cache(), bits) {
                Err(error) if error.is_damage() && run.is_beyond() => is_partial = true,
                found => seen.extend(found?),
            }
        }
        seen.sort_unstable_by_key(|seen| seen.sequence);
        seen.dedup_by_key(|seen| seen.sequence);
        // The segment of a record is removed before its id run is.
        let begins = self.log_begins();
        let kept = seen.split_off(seen.partition_point(|seen| seen.sequence < begins));
        let older = kept.len().saturating_sub(most);
        let mut found = Found {
            logged: Vec::new(),
            older,
            left_ms: seen.last().map(|seen| seen.arrived_ms),
            is_partial,
        };
        let mut wanted = &kept[older..];
        let logged = loop {
            let sequences: Vec<u64> = wanted.iter().map(|seen| seen.sequence).collect();
            match (self.logged_each(&sequences), wanted.split_first()) {
                // The oldest one was removed meanwhile.
                (Err(Error::Oplog(OplogError::Missing { .. })), Some((removed, rest))) => {
                    found.left_ms = Some(removed.arrived_ms);
                    wanted = rest;
                }
                (logged, _) => break logged?,
            }
        };
        let is_of_text = |logged: &Logged| {
            Owned::by(&logged.record).is_some_and(|owned| self.bits(&owned).bits == bits)
        };
        let logged = logged.into_iter().filter(is_of_text);
        found
            .logged
            .extend(logged.map(|logged| self.without_erased(logged)));
        Ok(found)
    }

    /// The record without what it tells of a person who was erased since.
    fn without_erased(&self, mut logged: Logged) -> Logged {
        let increment = match &mut logged.record {
            Record::Increment(increment)
            | Record::Late(increment)
            | Record::Filtered { increment, .. } => increment,
            _ => return logged,
        };
        let user = increment.user.as_deref();
        let user = user.map(|user| UserKey::of(self.live.keys(), user));
        let erased_at = user.and_then(|user| self.live.erasures().erased_at(&user));
        if erased_at.is_some_and(|at| logged.offset.sequence < at) {
            increment.user = None;
            if let Some(details) = &mut increment.details {
                details.forget_person();
            }
        }
        logged
    }

    /// The active generation, unless the delta store that took the record still counts it, or a source run of such a
    /// delta store waits to be merged.
    fn merged_in(&self, logged: &Logged) -> Option<u64> {
        let view = self.live.snapshot();
        let (at, is_late) = match &logged.record {
            Record::Increment(increment) => (increment.at, false),
            Record::Late(increment) => (increment.at, true),
            _ => return Some(view.archive.generation),
        };
        let day = StoreId::Day(Day::of(at));
        let holds = |run: &RunEntry| {
            let is_of_store = match is_late {
                true => run.origin.is_late_export(),
                false => run.origin.is_export_of(day),
            };
            let opened = run.origin.opened();
            let is_later = opened.is_some_and(|opened| logged.offset.sequence < opened);
            is_of_store && !is_later && run.meta.overlaps(at, at + 1)
        };
        if view.manifest.archive.pending().any(holds) {
            return None;
        }
        let takes = |id: &StoreId| match id {
            StoreId::Late(_) => is_late,
            of_day => !is_late && of_day.day() == day.day(),
        };
        let mut stores = view.ring.stores();
        let waits = stores.any(|store| takes(&store.id) && store.takes(logged.offset.sequence));
        (!waits).then_some(view.archive.generation)
    }
}
