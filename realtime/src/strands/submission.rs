//! The way of a batch to the logs of its strands: its parts each by itself, and its rest once all of them count.
//!
//! Invariant: what no retry would find counts only where all else does.
//!
//! Where an event that counts names a reservation of another strand, that strand is told next, some times until it
//! takes that. A message that is lost all the same leaves the reservation until it expires, and the event counts.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tallyring_records::{Accepted, Offset, Text};

use super::{BatchPart, Split, Stores};
use crate::error::Refusal;
use crate::holds::{ShownAction, Until};
use crate::intake::{Batch, BatchKey, Counted};

/// Pauses between tries to tell a strand that an event ended one of its holds.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
];

/// The parts of a batch that count so far.
#[derive(Default)]
pub struct Submission {
    /// By their strands.
    parts: BTreeMap<usize, Counted>,
    /// The strand of increments that are bound to none; each try has the same.
    home: Option<usize>,
    /// True once it is unknown whether a part counts.
    is_doubtful: bool,
}

impl Submission {
    /// Has a batch counted: `commit` takes what belongs to one strand there, and `counted_in` tells how far a strand
    /// is counted with all of that. Increments that are bound to none go to `home`, or where they went at the first
    /// try. After [`Refusal::Items`] the batch may be submitted again without what was refused: parts that count are
    /// not sent again.
    ///
    /// # Errors
    /// With why a part was not counted. Other parts may count all the same ([`Submission::may_have_counted`]).
    pub async fn submit<F>(
        &mut self,
        stores: &Stores,
        (batch, home): (Batch, usize),
        way: (impl Fn(usize, Batch) -> F, impl Fn(usize) -> Offset),
    ) -> Result<Counted, Refusal>
    where
        F: Future<Output = Result<Counted, Refusal>>,
    {
        let home = *self.home.get_or_insert(home);
        let Split { parts, rest } = stores.split(batch, home);
        let count = stores.all().len();
        let new = parts.into_iter();
        let new = new.filter(|part| !self.parts.contains_key(&part.strand));
        let committing = new.map(|part| commit_part(part, count, &way));
        let mut refusals = Vec::new();
        for (strand, outcome) in join_all(committing).await {
            match outcome {
                Ok(counted) => {
                    self.parts.insert(strand, counted);
                }
                Err(refusal) => {
                    self.is_doubtful |= matches!(refusal, Refusal::Unavailable(_));
                    refusals.push(refusal);
                }
            }
        }
        if let Some(refusal) = whole(refusals) {
            return Err(refusal);
        }
        let rest = match rest {
            Some(rest) => Some(commit_part(rest, count, &way).await.1?),
            None => None,
        };
        Ok(self.parts.values().cloned().chain(rest).sum())
    }

    /// True once a part is committed.
    pub fn has_begun(&self) -> bool {
        !self.parts.is_empty()
    }

    /// True when a part may count of a batch that was refused: its sender must send it again with the same ids.
    pub fn may_have_counted(&self) -> bool {
        let mut parts = self.parts.values();
        self.is_doubtful || parts.any(|part| part.accepted.accepted > 0)
    }
}

impl Stores {
    /// The answer that all parts of a batch with this key got before; none where the last one did not come.
    ///
    /// # Errors
    /// Where the key came with another body, or the log of a strand cannot be read.
    pub fn earlier_answer(
        &self,
        identity: Option<&Text>,
        key: &BatchKey,
    ) -> Result<Option<Accepted>, Refusal> {
        let (mut parts, last) = (Vec::new(), self.strand_of(&key.text));
        for (strand, store) in self.all().iter().enumerate() {
            let intake = store.intake();
            let earlier = intake.earlier_answer(identity.cloned(), key.clone())?;
            if strand == last && earlier.is_none() {
                return Ok(None);
            }
            parts.extend(earlier);
        }
        Ok(Some(parts.into_iter().sum()))
    }
}

/// Commits a part of a batch among `count` strands, then tells the strands of the reservations that its events name.
/// Returns its strand, too.
async fn commit_part<F>(
    part: BatchPart,
    count: usize,
    (commit, counted_in): &(impl Fn(usize, Batch) -> F, impl Fn(usize) -> Offset),
) -> (usize, Result<Counted, Refusal>)
where
    F: Future<Output = Result<Counted, Refusal>>,
{
    let strand = part.strand;
    let (batch, committed) = part.into_batch();
    let mut counted = match commit(strand, batch).await {
        Err(refusal) => return (strand, Err(committed.of_whole(refusal))),
        Ok(counted) => counted,
    };
    if !counted.shown.is_empty() {
        let until = Until {
            strand: strand as u32,
            before: counted_in(strand),
        };
        let shown = committed.shown(&counted.shown, count).into_iter();
        let told = shown.map(|(of_holds, shown)| tell(of_holds, (until, shown), commit));
        let told = join_all(told).await.into_iter().flatten();
        let ended = told.flat_map(|told| told.confirmed);
        counted.confirmed.extend(ended);
    }
    (strand, Ok(counted))
}

/// Tells a strand of events elsewhere that name its holds, some times where it does not take that. A second time
/// changes nothing.
async fn tell<F>(
    strand: usize,
    beside: (Until, Vec<ShownAction>),
    commit: &impl Fn(usize, Batch) -> F,
) -> Result<Counted, Refusal>
where
    F: Future<Output = Result<Counted, Refusal>>,
{
    let batch = Batch {
        beside: Some(beside),
        ..Batch::default()
    };
    for pause in PAUSES {
        match commit(strand, batch.clone()).await {
            Err(Refusal::Busy | Refusal::Unavailable(_)) => tokio::time::sleep(pause).await,
            outcome => return outcome,
        }
    }
    commit(strand, batch).await
}

/// The refusal of a batch, from those of its parts: all items that were refused, unless something else failed.
fn whole(refusals: Vec<Refusal>) -> Option<Refusal> {
    let mut items = Vec::new();
    for refusal in refusals {
        match refusal {
            Refusal::Items(wrong) => items.extend(wrong),
            other => return Some(other),
        }
    }
    items.sort_by_key(|item| item.index);
    (!items.is_empty()).then_some(Refusal::Items(items))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_strand_that_takes_nothing_is_told_again() {
        let until = Until {
            strand: 1,
            before: Offset::default(),
        };
        let refusals = [Refusal::Busy, Refusal::Unavailable("a take-over".into())];
        let tries = Cell::new(0);
        let commit = |strand, batch: Batch| {
            assert_eq!((strand, batch.beside.is_some()), (2, true));
            let refusal = refusals.get(tries.replace(tries.get() + 1)).cloned();
            std::future::ready(refusal.map_or(Ok(Counted::default()), Err))
        };
        let told = tell(2, (until, Vec::new()), &commit).await;
        assert!(told.is_ok());
        assert_eq!(tries.get(), 3);
    }
}
