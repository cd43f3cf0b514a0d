//! Voids: people take an id out of the counts of its days. The log says so, and the next reconcile of each day obeys.

use std::collections::BTreeSet;

use tallyring_records::{Day, Offset, Record, Text, Void};

use super::history::Logged;
use super::ids::Seen;
use super::owned::{Domain, Owned};
use super::{Intake, Writer};
use crate::error::{Error, Result};

/// Counts of one id that are read from the log to be voided, at most.
const COUNTS_MAX: usize = 1_024;

/// The order to void an id.
#[derive(Debug, Clone, Copy)]
pub struct VoidOrder<'a> {
    /// The identity that sent the id. What was sent without an identity is voided, too.
    pub identity: Option<&'a Text>,
    /// The id.
    pub id: &'a str,
    /// The reason, as [`is_void_reason`](tallyring_records::is_void_reason) allows it.
    pub reason: &'a str,
    /// Id of the API key that orders it.
    pub actor: &'a str,
}

/// The voids of an id, one for each UTC day on which the log has counts of it, the earliest count first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voided {
    /// Voids that are in the log now.
    pub now: Vec<Logged>,
    /// Voids that were in the log before.
    pub before: Vec<Logged>,
}

impl Intake {
    /// Voids an id on every day on which the log has counts of it. No count changes before the next reconcile of such a
    /// day, and what repeats the id stays a duplicate. Nothing is voided twice, and both lists of the answer are empty
    /// where the log has no count of the id. Fails when the log has more than 1,024 counts of the id, when a run of ids
    /// or the log is damaged, and when the log takes no more writes.
    pub fn void(&self, order: VoidOrder<'_>) -> Result<Voided> {
        loop {
            let (before, wanted) = self.voids_of(order)?;
            if wanted.is_empty() {
                let now = Vec::new();
                return Ok(Voided { now, before });
            }
            let mut writer = self.writer();
            // The log and the runs of ids were read without the lock, and another order may have come first.
            let is_new = |void: &Record| {
                let owned = Owned::by(void).expect("BUG: a void has an id");
                let bits = self.bits(&owned).bits;
                Ok(writer.ids.find(self.live.cache(), bits)?.is_none())
            };
            let is_new: Result<Vec<bool>> = wanted.iter().map(is_new).collect();
            if is_new?.contains(&false) {
                continue;
            }
            let now = self.append_voids(&mut writer, wanted)?;
            return Ok(Voided { now, before });
        }
    }

    /// The void of a counted or filtered record; none where its id was not voided for its day.
    pub(super) fn void_of(&self, logged: &Logged) -> Result<Option<Logged>> {
        let (Record::Increment(increment)
        | Record::Late(increment)
        | Record::Filtered { increment, .. }) = &logged.record
        else {
            return Ok(None);
        };
        let Some(id) = &increment.id else {
            return Ok(None);
        };
        let owned = Owned::void(increment.identity.as_ref(), id, Day::of(increment.at));
        let (found, _) = self.find_logged(&owned, 1)?;
        Ok(found.into_iter().next())
    }

    /// The voids that the log has, and those that it lacks.
    fn voids_of(&self, order: VoidOrder<'_>) -> Result<(Vec<Logged>, Vec<Record>)> {
        let mut counts = Vec::new();
        let identities = [None, order.identity];
        let asked = match order.identity {
            None => &identities[..1],
            Some(_) => &identities[..],
        };
        for identity in asked {
            let owned = Owned::new(Domain::Id, *identity, order.id);
            let (found, older) = self.find_logged(&owned, COUNTS_MAX)?;
            if older > 0 {
                let counts = COUNTS_MAX + older;
                return Err(Error::Voids { counts });
            }
            counts.extend(found);
        }
        counts.sort_by_key(|logged| logged.offset);
        let (mut known, mut wanted, mut days) = (Vec::new(), Vec::new(), BTreeSet::new());
        for logged in &counts {
            let (Record::Increment(increment)
            | Record::Late(increment)
            | Record::Filtered { increment, .. }) = &logged.record
            else {
                continue;
            };
            if !days.insert((increment.identity.clone(), Day::of(increment.at))) {
                continue;
            }
            match self.void_of(logged)? {
                Some(void) => known.push(void),
                None => wanted.push(Record::Void(Void {
                    identity: increment.identity.clone(),
                    id: order.id.to_owned(),
                    at: increment.at,
                    reason: order.reason.to_owned(),
                    actor: order.actor.to_owned(),
                })),
            }
        }
        Ok((known, wanted))
    }

    fn append_voids(&self, writer: &mut Writer, voids: Vec<Record>) -> Result<Vec<Logged>> {
        let after = self.append_all(writer, &voids)?;
        let arrived_ms = writer.last_append_ms;
        let first = after.sequence - voids.len() as u64;
        let mut now = Vec::new();
        for (sequence, record) in (first..).zip(voids) {
            let owned = Owned::by(&record).expect("BUG: a void has an id");
            let seen = Seen {
                sequence,
                arrived_ms,
            };
            writer.ids.insert(self.bits(&owned), seen);
            let offset = Offset { sequence, ..after };
            now.push(Logged {
                offset,
                arrived_ms,
                record,
            });
        }
        self.live.pass(after);
        Ok(now)
    }
}
