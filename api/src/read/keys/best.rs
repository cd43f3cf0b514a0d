//! The best of many keys, which come one by one. Equal ones are ranked by their texts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tallyring_realtime::{Charge, FoundKey, View};

use super::ListedKey;

/// Memory of a listed key besides its text.
pub(super) const LISTED_BYTES: usize = 96;

/// Rank, key, and its counts.
type Ranked = (u64, Reverse<String>, Vec<u64>);

/// The best keys so far.
pub(super) struct Best {
    limit: usize,
    /// The top of the heap is the worst of them.
    keys: BinaryHeap<Reverse<Ranked>>,
    bytes: usize,
    charge: Charge,
}

impl Best {
    /// No key so far; `limit` is above 0.
    pub(super) fn new(limit: usize, reader: &View<'_>) -> Self {
        Self {
            limit,
            keys: BinaryHeap::new(),
            bytes: 0,
            charge: reader.reading().charge(),
        }
    }

    /// Takes a key by its count, or by what that is above the one before. Fails when the budget of reads has no room.
    pub(super) fn take(
        &mut self,
        FoundKey { key, counts }: FoundKey,
    ) -> tallyring_realtime::Result<()> {
        let before = counts.get(1).copied().unwrap_or(0);
        let rank = counts[0].saturating_sub(before);
        if rank == 0 {
            return Ok(());
        }
        self.bytes += key.len() + LISTED_BYTES;
        self.charge.grow_to(self.bytes)?;
        self.keys.push(Reverse((rank, Reverse(key), counts)));
        if self.keys.len() > self.limit
            && let Some(Reverse((_, Reverse(key), _))) = self.keys.pop()
        {
            self.bytes -= key.len() + LISTED_BYTES;
        }
        Ok(())
    }

    /// The rank above which a key has a place.
    pub(super) fn least(&self) -> u64 {
        let worst = self.keys.peek().filter(|_| self.keys.len() == self.limit);
        worst.map_or(0, |Reverse((rank, ..))| *rank)
    }

    /// The keys, best first; of equal ones those with the first texts.
    pub(super) fn end(self) -> Vec<ListedKey> {
        let keys = self.keys.into_sorted_vec().into_iter();
        keys.map(|Reverse((_, Reverse(key), counts))| ListedKey::of(FoundKey { key, counts }))
            .collect()
    }
}
