//! Voids: people take an id out of the counts of its days. The log says so, and the next reconcile of each day obeys.
//!
//! Where four eyes are needed, the first order only asks, and the order of another API key confirms.

use std::collections::BTreeSet;

use tallyring_records::{Day, Offset, Record, Text, Void};

use super::history::{ID_COUNTS_MAX, Logged};
use super::ids::Seen;
use super::owned::{Domain, Owned};
use super::{Intake, Writer};
use crate::error::{Error, Result};

/// Orders of the same id that may come first while one looks into the log.
const ATTEMPTS: usize = 16;

/// The order to void an id.
#[derive(Debug, Clone, Copy)]
pub struct VoidOrder<'a> {
    /// The identity that sent the id. Counts without an identity are voided, too.
    pub identity: Option<&'a Text>,
    /// The id.
    pub id: &'a str,
    /// The reason, as [`is_void_reason`](tallyring_records::is_void_reason) allows it.
    pub reason: &'a str,
    /// Id of the API key that orders it.
    pub actor: &'a str,
    /// True where two keys must order it.
    pub four_eyes: bool,
}

/// The voids of an id, one for each UTC day on which the log has counts of it, the earliest count first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voided {
    /// Records that this order wrote: [`Record::Void`], or [`Record::VoidAsked`] where another key has to confirm.
    pub now: Vec<Logged>,
    /// Records by which this key asked before, and which no other key has confirmed.
    pub waiting: Vec<Logged>,
    /// Voids that were in the log before.
    pub before: Vec<Logged>,
}

impl Intake {
    /// Voids an id on every day on which the log has counts of it. No count changes before the next reconcile of such a
    /// day, and an event that repeats the id stays a duplicate. Nothing is voided twice, and all lists of the answer
    /// are empty where the log has no count of the id. Counts that only a damaged run beyond the window knows are left
    /// out, which [`IdHistory::is_partial`](super::IdHistory::is_partial) tells. Fails when the log has more than 1,024
    /// counts of the id, when a run of the window or the log is damaged, and when the log takes no more writes.
    pub fn void(&self, order: VoidOrder<'_>) -> Result<Voided> {
        for _ in 0..ATTEMPTS {
            let (mut voided, wanted) = self.voids_of(order)?;
            if wanted.is_empty() {
                return Ok(voided);
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
            voided.now = self.append_voids(&mut writer, wanted)?;
            return Ok(voided);
        }
        let what =
            "the ids know a void that the log lacks; `tallyring verify` finds what is damaged";
        Err(Error::Missing(what.into()))
    }

    /// The record of this domain that voids a counted or filtered record, or asks for it; none where there is none.
    pub(super) fn void_of(&self, domain: Domain, logged: &Logged) -> Result<Option<Logged>> {
        let (Record::Increment(increment)
        | Record::Late(increment)
        | Record::Filtered { increment, .. }) = &logged.record
        else {
            return Ok(None);
        };
        let Some(id) = &increment.id else {
            return Ok(None);
        };
        let owned = Owned {
            day: Some(Day::of(increment.at)),
            ..Owned::new(domain, increment.identity.as_ref(), id)
        };
        let found = self.find_logged(&owned, 1)?;
        Ok(found.logged.into_iter().next())
    }

    /// The voids that the log has, and the records that it lacks.
    fn voids_of(&self, order: VoidOrder<'_>) -> Result<(Voided, Vec<Record>)> {
        let (mut voided, mut wanted, mut days) = (Voided::default(), Vec::new(), BTreeSet::new());
        for logged in self.counts_of(order)? {
            let (Record::Increment(increment)
            | Record::Late(increment)
            | Record::Filtered { increment, .. }) = &logged.record
            else {
                continue;
            };
            if !days.insert((increment.identity.clone(), Day::of(increment.at))) {
                continue;
            }
            if let Some(void) = self.void_of(Domain::Void, &logged)? {
                voided.before.push(void);
                continue;
            }
            let void = Void {
                identity: increment.identity.clone(),
                id: order.id.to_owned(),
                at: increment.at,
                reason: order.reason.to_owned(),
                actor: order.actor.to_owned(),
            };
            let asked = match order.four_eyes {
                true => self.void_of(Domain::VoidAsked, &logged)?,
                false => None,
            };
            match asked {
                Some(asked) if asked.is_of(order.actor) => voided.waiting.push(asked),
                None if order.four_eyes => wanted.push(Record::VoidAsked(void)),
                _ => wanted.push(Record::Void(void)),
            }
        }
        Ok((voided, wanted))
    }

    /// The counts of the id, oldest first.
    fn counts_of(&self, order: VoidOrder<'_>) -> Result<Vec<Logged>> {
        let mut counts = Vec::new();
        let identities = [None, order.identity];
        let asked = match order.identity {
            None => &identities[..1],
            Some(_) => &identities[..],
        };
        for identity in asked {
            let owned = Owned::new(Domain::Id, *identity, order.id);
            let found = self.find_logged(&owned, ID_COUNTS_MAX)?;
            if found.older > 0 {
                let counts = ID_COUNTS_MAX + found.older;
                return Err(Error::Voids { counts });
            }
            counts.extend(found.logged);
        }
        counts.sort_by_key(|logged| logged.offset);
        Ok(counts)
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
        self.copy_now(writer, u64::MAX)?;
        Ok(now)
    }
}

impl Logged {
    /// True for a void that this key ordered or asked for.
    fn is_of(&self, actor: &str) -> bool {
        matches!(&self.record, Record::Void(void) | Record::VoidAsked(void) if void.actor == actor)
    }
}
