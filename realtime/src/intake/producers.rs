//! Producers that number their increments: exactly once in constant memory, instead of ids.
//!
//! A producer sends its increments in order, each with the next sequence number, and sends an increment again that got
//! no answer. A number below the next one is a duplicate. A number above it shows that an increment is missing, and is
//! refused, so that nothing is lost.
//!
//! A higher epoch begins anew at any number. Two kinds of increments are refused because they never counted: those of a
//! lower epoch, and those below the first number of their epoch.
//!
//! Nobody sends an item of a topic again. So numbers may be missing before one of a topic, and where no further
//! producer can be followed, such an item counts without its number.
//!
//! The log holds every number; the manifest holds the last number of every producer at the last flush. A producer takes
//! about 60 bytes.

use hashbrown::HashMap;
use tallyring_archive::ProducerEntry;
use tallyring_records::Origin;

use crate::error::OutOfOrder;

/// Producers that are followed at once, at most.
const PRODUCERS_MAX: usize = 10_000;

/// The last sequence number of every producer.
#[derive(Default, Clone)]
pub(super) struct Producers(HashMap<u128, LastSequence>);

/// The last sequence number of one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastSequence {
    epoch: u64,
    /// The number with which the epoch began.
    first: u64,
    next: u64,
    seen_ms: i64,
}

impl Producers {
    /// Restores the producers that a manifest names.
    pub(super) fn restore(entries: &[ProducerEntry]) -> Self {
        let last = entries.iter().filter_map(|entry| {
            let last = LastSequence {
                epoch: entry.epoch,
                first: entry.first,
                next: entry.next,
                seen_ms: entry.seen_ms,
            };
            Some((u128::from_str_radix(&entry.id, 16).ok()?, last))
        });
        Self(last.collect())
    }

    /// The producers in the form of a manifest.
    pub(super) fn entries(&self) -> Vec<ProducerEntry> {
        let mut entries: Vec<ProducerEntry> = self
            .0
            .iter()
            .map(|(id, last)| ProducerEntry {
                id: format!("{id:032x}"),
                epoch: last.epoch,
                first: last.first,
                next: last.next,
                seen_ms: last.seen_ms,
            })
            .collect();
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        entries
    }

    /// Forgets producers that were last seen before `oldest_ms` (Unix milliseconds).
    pub(super) fn forget(&mut self, oldest_ms: i64) {
        self.0.retain(|_, last| last.seen_ms >= oldest_ms);
    }

    /// True when the last number of this producer is known.
    pub(super) fn follows(&self, id: u128) -> bool {
        self.0.contains_key(&id)
    }

    /// True when the producer is followed, or can be.
    pub(super) fn has_room(&self, id: u128) -> bool {
        self.follows(id) || self.0.len() < PRODUCERS_MAX
    }

    /// True when the increment with this origin is new, and increments before it are missing.
    pub(super) fn skips(&self, id: u128, origin: &Origin) -> bool {
        let known = self.0.get(&id);
        known.is_some_and(|known| origin.epoch == known.epoch && origin.sequence > known.next)
    }

    /// Returns true when the increment with this origin is new, false when it is a duplicate.
    pub(super) fn is_new(&self, id: u128, origin: &Origin) -> Result<bool, OutOfOrder> {
        let wrong = |field, value: &dyn ToString, detail| {
            let value = value.to_string();
            Err(OutOfOrder {
                field,
                value,
                detail,
            })
        };
        let producer = origin.producer.escape_debug();
        let Some(known) = self.0.get(&id) else {
            if self.has_room(id) {
                return Ok(true);
            }
            let detail = format!(
                "{PRODUCERS_MAX} producers are followed already; send ids instead of numbers"
            );
            return wrong("producer", &origin.producer, detail);
        };
        if origin.epoch < known.epoch {
            let (now, before) = (known.epoch, origin.epoch);
            let detail = format!(
                "producer {producer} is in epoch {now}, and epoch {before} is over; send epoch {now} with sequence {}, or a \
                 higher epoch",
                known.next
            );
            return wrong("epoch", &before, detail);
        }
        if self.skips(id, origin) {
            let detail = format!(
                "producer {producer} sent sequence {}, but {} follows: the numbers between were not counted, send them first",
                origin.sequence, known.next
            );
            return wrong("sequence", &origin.sequence, detail);
        }
        if origin.epoch == known.epoch && origin.sequence < known.first {
            let detail = format!(
                "sequence {} of producer {producer} never counted, because {} came first in epoch {}; send it in a higher \
                 epoch, or with an id",
                origin.sequence, known.first, known.epoch
            );
            return wrong("sequence", &origin.sequence, detail);
        }
        Ok(origin.epoch > known.epoch || origin.sequence == known.next)
    }

    /// Notes that the increment with this origin counts. Its last number stands under `known`. Returns what stood under
    /// `id` before. A replay meets lower numbers than the first: a producer was forgotten, though a manifest still has
    /// it, and began anew.
    pub(super) fn follow(
        &mut self,
        (id, known): (u128, u128),
        origin: &Origin,
        seen_ms: i64,
    ) -> Option<LastSequence> {
        let known = self.0.get(&known);
        let began = known.filter(|known| known.epoch == origin.epoch);
        let last = LastSequence {
            epoch: origin.epoch,
            first: began.map_or(origin.sequence, |known| known.first.min(origin.sequence)),
            next: origin.sequence.saturating_add(1),
            seen_ms,
        };
        self.0.insert(id, last)
    }

    /// Sets a producer back to `before`.
    pub(super) fn withdraw(&mut self, id: u128, before: Option<LastSequence>) {
        match before {
            Some(last) => self.0.insert(id, last),
            None => self.0.remove(&id),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(epoch: u64, sequence: u64) -> Origin {
        Origin {
            producer: "p".into(),
            epoch,
            sequence,
        }
    }

    #[test]
    fn numbers_count_once_in_order_and_a_gap_is_refused() {
        let mut producers = Producers::default();
        let mut sends = |epoch, sequence| {
            let origin = origin(epoch, sequence);
            let new = producers.is_new(1, &origin);
            if new == Ok(true) {
                producers.follow((1, 1), &origin, 5);
            }
            new
        };
        assert_eq!(sends(0, 7), Ok(true), "any number may be the first");
        assert_eq!(sends(0, 8), Ok(true));
        assert_eq!(sends(0, 8), Ok(false));
        assert_eq!(sends(0, 7), Ok(false));
        let lost = sends(0, 6).unwrap_err();
        assert_eq!((lost.field, lost.value.as_str()), ("sequence", "6"));
        assert!(lost.detail.contains("7 came first"), "{}", lost.detail);
        let gap = sends(0, 10).unwrap_err();
        assert_eq!((gap.field, gap.value.as_str()), ("sequence", "10"));
        assert!(gap.detail.contains("9 follows"), "{}", gap.detail);
        assert_eq!(sends(0, 9), Ok(true));
        assert_eq!(sends(2, 3), Ok(true), "a new epoch begins anew");
        let over = sends(1, 10).unwrap_err();
        assert_eq!((over.field, over.value.as_str()), ("epoch", "1"));
        assert!(
            over.detail.contains("epoch 2 with sequence 4"),
            "{}",
            over.detail
        );
        let restored = Producers::restore(&producers.entries());
        assert_eq!(restored.is_new(1, &origin(2, 3)), Ok(false));
        assert_eq!(restored.is_new(1, &origin(2, 4)), Ok(true));
        assert!(restored.is_new(1, &origin(2, 2)).is_err());
        producers.forget(6);
        assert!(producers.entries().is_empty());
    }

    #[test]
    fn a_number_skips_others_of_its_epoch_alone_and_known_producers_always_have_room() {
        let mut producers = Producers::default();
        producers.follow((1, 1), &origin(2, 7), 5);
        for (epoch, sequence, skips) in [(2, 9, true), (2, 8, false), (2, 7, false), (3, 9, false)]
        {
            let origin = origin(epoch, sequence);
            assert_eq!(producers.skips(1, &origin), skips, "{origin:?}");
        }
        assert!(!producers.skips(2, &origin(2, 9)), "it is not known");
        for id in 1..=PRODUCERS_MAX as u128 {
            assert!(producers.has_room(id));
            producers.follow((id, id), &origin(2, 8), 5);
        }
        assert!(producers.has_room(1) && !producers.has_room(0));
        assert!(producers.is_new(0, &origin(0, 0)).is_err());
    }
}
