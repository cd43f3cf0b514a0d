//! State that the intake learns from records of the log at a start.

use tallyring_records::{Origin, Record, Text};

use super::history::Logged;
use super::ids::Seen;
use super::owned::{Domain, Owned};
use super::{Intake, Writer};
use crate::view::Watermarks;

impl Intake {
    /// Learns from records that were read from the log, wherever they count. Ids and producers of records before the
    /// sequence number `ids_from` are in runs.
    pub(crate) fn learn(&self, records: &[Logged], ids_from: u64) {
        let mut writer = self.writer();
        let mut watermarks = Watermarks::default();
        writer.unflushed += records.len() as u64;
        for logged in records {
            writer.consumed.learn(&logged.record);
            if logged.offset.sequence >= ids_from {
                let (at, arrived_ms) = (logged.offset.sequence, logged.arrived_ms);
                self.learn_identity(&mut writer, &logged.record, at, arrived_ms);
            }
            if let Some((_, increment)) = logged.record.increment() {
                watermarks.see(increment);
                writer.bounds.add(increment.at, increment.n);
            }
        }
        self.live.see(&watermarks);
    }

    /// Notes the id and the producer of a record with this sequence number, which arrived at `arrived_ms` (Unix
    /// milliseconds).
    pub(super) fn learn_identity(
        &self,
        writer: &mut Writer,
        record: &Record,
        sequence: u64,
        arrived_ms: i64,
    ) {
        if let Some(owned) = Owned::by(record) {
            let seen = Seen {
                sequence,
                arrived_ms,
            };
            let id = self.bits(&owned);
            // In these domains the first record of an id counts, even if a run holds it.
            let is_noted = matches!(owned.domain, Domain::Again | Domain::Refused)
                && matches!(writer.ids.find(self.live.cache(), id.bits), Ok(Some(_)));
            if !is_noted {
                writer.ids.insert(id, seen);
            }
        }
        if let Some((identity, origin)) = origin_of(record) {
            let id = self.producer(&writer.producers, identity, origin);
            writer.producers.follow(id, origin, arrived_ms);
        }
    }
}

/// The sequence number that its producer gave to the increment of a record, and the identity of the producer.
fn origin_of(record: &Record) -> Option<(Option<&Text>, &Origin)> {
    match record {
        Record::Increment(increment)
        | Record::Late(increment)
        | Record::Filtered { increment, .. } => {
            Some((increment.identity.as_ref(), increment.origin.as_deref()?))
        }
        _ => None,
    }
}
