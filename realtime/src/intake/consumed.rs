//! How far topics of Kafka were consumed, so that each message counts once.
//!
//! A batch of messages says from where to where it takes each partition. It counts only where the log says that the
//! partition was consumed up to there, and the record of its end stands in the frame of its increments. So a message
//! that comes again counts nothing, whoever brings it: a restart, a replay of the topic, or a node that was the writer.
//!
//! Nothing is forgotten: each manifest names all partitions as of its flush.

use std::collections::BTreeMap;

use tallyring_archive::Manifest;
use tallyring_records::{Consumed, Record, TopicPartition};

use super::group::Group;
use super::{Intake, Writer};
use crate::error::Refusal;

/// A step of a batch over messages of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The next offset of before, as the log has it; none for a partition of which nothing was consumed.
    pub from: Option<u64>,
    /// The partition, and the next offset behind the messages: above that of before.
    pub to: Consumed,
}

/// The next offset of each partition.
#[derive(Default)]
pub(super) struct NextOffsets(BTreeMap<TopicPartition, u64>);

impl NextOffsets {
    /// The offsets that a manifest names.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let mut offsets = Self::default();
        offsets.learn_all(manifest);
        offsets
    }

    /// Takes over what a manifest tells.
    pub(super) fn learn_all(&mut self, manifest: &Manifest) {
        let named = manifest.intake.consumed.iter();
        named.for_each(|consumed| self.raise(consumed));
    }

    /// Takes over what a record of the log tells. An offset only rises, so records may be read twice.
    pub(super) fn learn(&mut self, record: &Record) {
        if let Record::Consumed(consumed) = record {
            self.raise(consumed);
        }
    }

    /// All partitions, ascending.
    pub(super) fn entries(&self) -> Vec<Consumed> {
        let entries = self.0.iter();
        let entry = |(of, next): (&TopicPartition, &u64)| Consumed {
            of: of.clone(),
            next: *next,
        };
        entries.map(entry).collect()
    }

    /// Sets a partition back to `before`.
    pub(super) fn withdraw(&mut self, of: TopicPartition, before: Option<u64>) {
        match before {
            Some(next) => self.0.insert(of, next),
            None => self.0.remove(&of),
        };
    }

    fn raise(&mut self, consumed: &Consumed) {
        match self.0.get_mut(&consumed.of) {
            Some(next) => *next = consumed.next.max(*next),
            None => drop(self.0.insert(consumed.of.clone(), consumed.next)),
        }
    }
}

impl Intake {
    /// How far the partitions of topics were consumed, ascending by topic: what of it is durable, and what a group
    /// commit that is under way adds. Waits for that commit.
    pub fn consumed(&self) -> Vec<Consumed> {
        self.writer().consumed.entries()
    }
}

/// Takes the steps of a batch, whose records the caller adds. Refuses one that does not begin where the log says; the
/// caller takes back the steps before it.
pub(super) fn advance(
    writer: &mut Writer,
    group: &mut Group,
    steps: &[Advance],
) -> Result<(), Refusal> {
    for Advance { from, to } in steps {
        let known = writer.consumed.0.get(&to.of).copied();
        let is_ahead = known.is_none_or(|next| to.next > next);
        if known != *from || !is_ahead || !to.of.is_valid() {
            return Err(Refusal::Consumed);
        }
        writer.consumed.0.insert(to.of.clone(), to.next);
        group.open.consumed.push((to.of.clone(), known));
    }
    Ok(())
}
