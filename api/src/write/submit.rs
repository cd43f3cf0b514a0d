//! The way of a batch to the logs of its strands.
//!
//! A store that is not divided commits a batch whole. Otherwise the parts of a batch are committed each by itself, and
//! its rest once all of them are: what no retry would find counts only where all else does.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tallyring_realtime::{Accepted, Batch, BatchKey, BatchPart, Counted, Refusal, Split, Stores};
use tallyring_records::Text;

use crate::state::ApiState;

/// The parts of a batch that count so far.
#[derive(Default)]
pub(crate) struct Submission {
    /// By their strands.
    parts: BTreeMap<usize, Counted>,
    /// The strand of increments that are bound to none; each try has the same.
    home: Option<usize>,
    /// True once it is unknown whether a part counts.
    is_doubtful: bool,
}

impl Submission {
    /// Has a batch counted. After [`Refusal::Items`] it may be submitted again without what was refused: parts that
    /// count are not sent again.
    ///
    /// # Errors
    /// With why a part was not counted. Other parts may count all the same ([`Submission::may_have_counted`]).
    pub(crate) async fn submit(
        &mut self,
        state: &ApiState,
        batch: Batch,
    ) -> Result<Counted, Refusal> {
        match state.of_strands.is_empty() {
            true => state.count_alone(0, batch).await,
            // A single store has no use for so large a future.
            false => Box::pin(self.submit_parts(state, batch)).await,
        }
    }

    async fn submit_parts(&mut self, state: &ApiState, batch: Batch) -> Result<Counted, Refusal> {
        let home = *self.home.get_or_insert_with(|| state.strands.home());
        let Split { parts, rest } = state.strands.split(batch, home);
        let new = parts.into_iter();
        let new = new.filter(|part| !self.parts.contains_key(&part.strand));
        let committing = new.map(async |part| (part.strand, commit(state, part).await));
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
            Some(rest) => Some(commit(state, rest).await?),
            None => None,
        };
        Ok(self.parts.values().cloned().chain(rest).sum())
    }

    /// True when a part may count of a batch that was refused: its sender must send it again with the same ids.
    pub(crate) fn may_have_counted(&self) -> bool {
        let mut parts = self.parts.values();
        self.is_doubtful || parts.any(|part| part.accepted.accepted > 0)
    }
}

/// The answer that all parts of a batch with this key got before; none where the last one did not come.
pub(super) fn earlier_answer(
    stores: &Stores,
    identity: Option<Text>,
    key: &BatchKey,
) -> Result<Option<Accepted>, Refusal> {
    let (mut parts, last) = (Vec::new(), stores.strand_of(&key.text));
    for (strand, store) in stores.all().iter().enumerate() {
        let earlier = store
            .intake()
            .earlier_answer(identity.clone(), key.clone())?;
        if strand == last && earlier.is_none() {
            return Ok(None);
        }
        parts.extend(earlier);
    }
    Ok(Some(parts.into_iter().sum()))
}

async fn commit(state: &ApiState, part: BatchPart) -> Result<Counted, Refusal> {
    let strand = part.strand;
    let (batch, of_whole) = part.into_batch();
    state.count_alone(strand, batch).await.map_err(of_whole)
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
