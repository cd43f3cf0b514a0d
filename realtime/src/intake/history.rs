//! The history of an id, read from the log for as long as the log is kept.

use tallyring_archive::RunEntry;
use tallyring_records::{Day, Offset, Record, StoreId, Text, UserKey};

use super::Intake;
use super::owned::{Domain, Owned};
use crate::error::{Error, Result};
use crate::oplog::{Frame, OplogError};

/// All records of the log for an id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdHistory {
    /// The record that counted the increment, [`Record::Increment`] or [`Record::Late`], or that filtered it,
    /// [`Record::Filtered`].
    pub counted: Option<Logged>,
    /// The first [`Record::Duplicate`] of the increment.
    pub again: Option<Logged>,
    /// The first [`Record::Refused`] with the id.
    pub refused: Option<Logged>,
    /// Number of the active generation when the increment is merged into it; none while a delta store or a pending
    /// source run counts the increment.
    pub generation: Option<u64>,
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
        *self == Self::default()
    }

    /// This history, with records of `other` where it has none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let generation = match self.counted {
            Some(_) => self.generation,
            None => other.generation,
        };
        Self {
            counted: self.counted.or(other.counted),
            again: self.again.or(other.again),
            refused: self.refused.or(other.refused),
            generation,
        }
    }
}

impl Intake {
    /// Finds the increments and events with this id that an identity sent, or that were sent without one. Fails when a
    /// run of ids or the log is damaged.
    pub fn id_history(&self, identity: Option<&Text>, id: &str) -> Result<IdHistory> {
        let find = |domain| self.find_logged(&Owned::new(domain, identity, id));
        let mut history = IdHistory {
            counted: find(Domain::Id)?,
            again: find(Domain::Again)?,
            refused: find(Domain::Refused)?,
            generation: None,
        };
        if let Some(logged) = &history.counted {
            history.generation = self.merged_in(logged);
        }
        Ok(history)
    }

    fn find_logged(&self, owned: &Owned<'_>) -> Result<Option<Logged>> {
        let bits = self.bits(owned).bits;
        // Runs are read without the lock that increments wait for.
        let (mut sequence, runs) = self.writer().ids.candidates(bits);
        for run in runs {
            if sequence.is_none() {
                sequence = run.find(self.live.cache(), bits)?;
            }
        }
        let Some(sequence) = sequence else {
            return Ok(None);
        };
        match self.logged(sequence) {
            // The segment of the record is removed before its id run is.
            Err(Error::Oplog(OplogError::Missing { .. })) => Ok(None),
            found => found.map(|logged| logged.map(|logged| self.without_erased(logged))),
        }
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
            is_of_store && run.meta.overlaps(at, at + 1)
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
