//! A batch, divided among strands.
//!
//! Invariant: an increment with an id, and one that its producer numbered, is always in the strand of that text,
//! whichever batch brings it. So one log alone decides whether it came before. Numbers in messages of topics are known
//! apart from those: they are in the strand of the offsets, in one frame with these, and no message is read again once
//! they are known.
//!
//! Parts of such increments may be committed in any order: a retry finds those that were. No retry finds increments
//! without such a text, nor the offsets of messages: they are in the rest of a batch, which is committed last, once all
//! parts were. A batch with a key has a rest, too, so its key is known in the strand of the key once all of it counts.
//!
//! An event may name a hold of another strand. The part of the event has what the strand of the hold is told once the
//! part is committed.

use std::collections::{BTreeMap, HashSet};

use tallyring_records::{Increment, LongKeys, Schema};

use crate::error::Refusal;
use crate::holds::{ReservationId, ShownAction};
use crate::intake::Batch;

/// Domain of [`LongKeys::identity`] for the strand of a text. Other domains are in `realtime/src/intake/owned.rs`.
const STRAND_DOMAIN: u8 = 9;

/// The strand of a text among `count`: an id, the name of a producer, or the key of a batch. An identity is no part of
/// it, because every identity knows the ids that came before there were identities.
pub(super) fn strand_of(keys: &LongKeys, text: &str, count: usize) -> usize {
    let bits = keys.identity(STRAND_DOMAIN, text.as_bytes());
    (bits % count as u128) as usize
}

/// A divided batch.
#[derive(Debug)]
pub(super) struct Split {
    /// Parts whose increments a retry finds again, one for each strand that has any.
    pub parts: Vec<BatchPart>,
    /// The part that is committed after all others, if there is one, with all else for its strand.
    pub rest: Option<BatchPart>,
}

/// The part of a batch for one strand.
#[derive(Debug)]
pub(super) struct BatchPart {
    /// The strand.
    pub strand: usize,
    /// The increments and all that belongs to them.
    pub batch: Batch,
    /// Index in the whole batch of each increment, rising.
    places: Vec<usize>,
    /// Events that name holds of other strands.
    shown: Vec<ShownAction>,
}

/// The work that is left on a part that was committed, or refused.
pub(super) struct Committed {
    places: Vec<usize>,
    shown: Vec<ShownAction>,
}

impl Split {
    /// Divides a batch among `count` strands. Increments that are bound to none of them go to `home`. Events are of the
    /// types of this schema.
    pub(super) fn new(
        batch: Batch,
        (schema, keys): (&Schema, &LongKeys),
        (count, home): (usize, usize),
    ) -> Self {
        let of = |text: &str| strand_of(keys, text, count);
        let of_rest = match &batch.key {
            // Topics are consumed where strand 0 is written.
            _ if !batch.consumed.is_empty() => 0,
            Some(key) => of(&key.text),
            None => home,
        };
        let is_of_topic = !batch.consumed.is_empty();
        let has_rest = batch.key.is_some()
            || batch.held.is_some()
            || batch.released.is_some()
            || !batch.skipped.is_empty()
            || !batch.consumed.is_empty()
            || batch
                .increments
                .iter()
                .any(|item| text_of(item, is_of_topic).is_none());
        let mut parts: Vec<BatchPart> = (0..count)
            .map(|strand| BatchPart::of(&batch, strand))
            .collect();
        let mut confirming = batch.confirming.into_iter().peekable();
        let mut named = HashSet::new();
        for (place, mut increment) in batch.increments.into_iter().enumerate() {
            let part = &mut parts[text_of(&increment, is_of_topic).map_or(of_rest, of)];
            if increment.id.is_some() {
                // The numbers of its producer are in several strands, so each would miss the others'.
                increment.origin = None;
            }
            if let Some((_, hold)) = confirming.next_if(|(index, _)| *index == place) {
                let is_here = hold.strand(count) == part.strand;
                // Which of several events with one name counted cannot be told apart later.
                let is_first = is_here || named.insert(hold);
                let shown = || ShownAction::of(hold, &increment, (schema, keys));
                let elsewhere = (!is_here && is_first).then(shown).flatten();
                if is_here || elsewhere.is_some() {
                    part.batch.confirming.push((part.places.len(), hold));
                }
                part.shown.extend(elsewhere);
            }
            part.places.push(place);
            part.batch.increments.push(increment);
        }
        for item in batch.refused {
            parts[of(&item.id)].batch.refused.push(item);
        }
        // A strand answers a key once, so all that the batch has for the strand of the rest is one part.
        let rest = has_rest.then(|| {
            let mut rest = parts.remove(of_rest);
            rest.batch = Batch {
                held: batch.held,
                released: batch.released,
                skipped: batch.skipped,
                consumed: batch.consumed,
                ..rest.batch
            };
            rest
        });
        parts.retain(|part| !part.batch.increments.is_empty() || !part.batch.refused.is_empty());
        Self { parts, rest }
    }
}

impl BatchPart {
    fn of(batch: &Batch, strand: usize) -> Self {
        let batch = Batch {
            declared: batch.declared.clone(),
            identity: batch.identity.clone(),
            key: batch.key.clone(),
            ..Batch::default()
        };
        Self {
            strand,
            batch,
            places: Vec::new(),
            shown: Vec::new(),
        }
    }

    /// The batch, and what is left to do once it is committed or refused.
    pub(super) fn into_batch(self) -> (Batch, Committed) {
        let Self { places, shown, .. } = self;
        (self.batch, Committed { places, shown })
    }
}

impl Committed {
    /// The refusal of the part as one of the whole batch.
    pub(super) fn of_whole(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Items(mut wrong) => {
                for item in &mut wrong {
                    item.index = self.places[item.index];
                }
                Refusal::Items(wrong)
            }
            other => other,
        }
    }

    /// By strand among `count`, the events that name its holds, out of those that count now: these name `counted`.
    pub(super) fn shown(
        self,
        counted: &[ReservationId],
        count: usize,
    ) -> BTreeMap<usize, Vec<ShownAction>> {
        let counted: HashSet<&ReservationId> = counted.iter().collect();
        let mut by_strand: BTreeMap<usize, Vec<ShownAction>> = BTreeMap::new();
        for shown in self.shown {
            if counted.contains(&shown.id) {
                let of_strand = by_strand.entry(shown.id.strand(count)).or_default();
                of_strand.push(shown);
            }
        }
        by_strand
    }
}

/// The text that binds an increment to its strand; none where a retry of it would count again.
fn text_of(increment: &Increment, is_of_topic: bool) -> Option<&str> {
    let origin = increment.origin.as_ref().filter(|_| !is_of_topic);
    let producer = origin.map(|origin| &*origin.producer);
    increment.id.as_deref().or(producer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tallyring_records::{Consumed, Origin, TopicPartition};

    use super::*;
    use crate::error::{ItemFault, OutOfOrder, WrongItem};
    use crate::intake::{Advance, BatchKey};

    const STRANDS: usize = 3;
    const HOME: usize = 2;

    /// By id, by the number of a producer, by both, or bound to nothing.
    fn increment(kind: u8, number: u8) -> Increment {
        Increment {
            n: u64::from(number),
            id: [0, 3].contains(&kind).then(|| format!("id-{number}")),
            origin: [1, 3].contains(&kind).then(|| {
                Box::new(Origin {
                    producer: format!("p-{}", number % 4),
                    epoch: 0,
                    sequence: number.into(),
                })
            }),
            ..Increment::default()
        }
    }

    fn keys() -> LongKeys {
        LongKeys::new([7; 32])
    }

    fn split(increments: Vec<Increment>, key: Option<&str>) -> Split {
        let batch = Batch {
            increments,
            key: key.map(|text| BatchKey {
                text: text.to_owned(),
                body: 1,
            }),
            ..Batch::default()
        };
        Split::new(batch, (&Schema::default_clicks(), &keys()), (STRANDS, HOME))
    }

    proptest! {
        /// Every increment is in one part: that of its text, or the rest. A strand gets one part, and parts keep the
        /// order. A refusal names the items of the whole batch.
        #[test]
        fn prop_parts_have_every_increment_once(
            sent in prop::collection::vec((0..4_u8, any::<u8>()), 0..40),
            is_keyed in any::<bool>(),
        ) {
            let sent: Vec<Increment> = sent.into_iter().map(|(kind, n)| increment(kind, n)).collect();
            let Split { parts, rest } = split(sent.clone(), is_keyed.then_some("key"));
            let has_bare = sent.iter().any(|item| text_of(item, false).is_none());
            prop_assert_eq!(rest.is_some(), is_keyed || has_bare);
            let of_rest = if is_keyed { strand_of(&keys(), "key", STRANDS) } else { HOME };
            prop_assert!(rest.iter().all(|rest| rest.strand == of_rest));
            let mut strands = Vec::new();
            let mut found: Vec<Option<Increment>> = vec![None; sent.len()];
            for part in parts.into_iter().chain(rest) {
                prop_assert!(part.places.is_sorted());
                prop_assert_eq!(part.batch.key.is_some(), is_keyed);
                strands.push(part.strand);
                let strand = part.strand;
                let (batch, committed) = part.into_batch();
                let wrong = (0..batch.increments.len()).map(|index| WrongItem {
                    index,
                    fault: ItemFault::Sequence(OutOfOrder {
                        field: "sequence",
                        value: String::new(),
                        detail: String::new(),
                    }),
                });
                let Refusal::Items(wrong) = committed.of_whole(Refusal::Items(wrong.collect())) else {
                    panic!("other items");
                };
                for (item, increment) in wrong.iter().zip(batch.increments) {
                    let expected = text_of(&increment, false).map_or(of_rest, |text| strand_of(&keys(), text, STRANDS));
                    prop_assert_eq!(strand, expected);
                    prop_assert!(found[item.index].replace(increment).is_none());
                }
            }
            strands.sort_unstable();
            prop_assert!(strands.windows(2).all(|pair| pair[0] < pair[1]), "{strands:?}");
            let by_id = |mut item: Increment| {
                item.origin.take_if(|_| item.id.is_some());
                item
            };
            let expected: Vec<Increment> = sent.into_iter().map(by_id).collect();
            prop_assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn numbers_in_messages_of_topics_are_in_the_strand_of_the_offsets() {
        let of = TopicPartition {
            topic: "t".into(),
            topic_id: "i".into(),
            cluster: "k".into(),
            partition: 0,
        };
        let to = Consumed { of, next: 9 };
        let batch = Batch {
            increments: (0..40)
                .map(|number| increment(number % 4, number))
                .collect(),
            consumed: vec![Advance { from: None, to }],
            ..Batch::default()
        };
        let by = (&Schema::default_clicks(), &keys());
        let Split { parts, rest } = Split::new(batch, by, (STRANDS, HOME));
        let rest = rest.expect("the offsets");
        assert_eq!((rest.strand, rest.batch.consumed.len()), (0, 1));
        let has_id = |item: &Increment| item.id.is_some();
        assert_eq!(parts.len(), STRANDS - 1);
        assert!(
            parts
                .iter()
                .all(|part| part.batch.increments.iter().all(has_id))
        );
        let numbered = rest
            .batch
            .increments
            .iter()
            .filter(|item| item.origin.is_some());
        assert_eq!(numbered.count(), 10);
    }

    #[test]
    fn texts_stay_in_their_strands_whatever_build_divides() {
        let of = |text: &str| strand_of(&keys(), text, 16);
        assert_eq!(["id-1", "id-2", "id-3", ""].map(of), [11, 8, 5, 1]);
    }
}
