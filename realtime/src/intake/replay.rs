//! State that the intake learns from records of the log at a start.

use tallyring_records::{Origin, Record};

use super::history::Logged;
use super::ids::Seen;
use super::{AGAIN_DOMAIN, BATCH_KEY_DOMAIN, ID_DOMAIN, Intake, REFUSED_DOMAIN, Writer};
use crate::view::Watermarks;

impl Intake {
    /// Learns from records that were read from the log, wherever they count. Ids and producers of records before the
    /// sequence number `ids_from` are in runs.
    pub(crate) fn learn(&self, records: &[Logged], ids_from: u64) {
        let mut writer = self.writer();
        let mut watermarks = Watermarks::default();
        writer.unflushed += records.len() as u64;
        for logged in records {
            if logged.offset.sequence >= ids_from {
                self.learn_identity(&mut writer, logged);
            }
            if let Some((_, increment)) = logged.record.increment() {
                watermarks.see(increment);
                writer.bounds.add(increment.at, increment.n);
            }
        }
        self.live.see(&watermarks);
    }

    /// Notes the id and the producer of a record.
    fn learn_identity(&self, writer: &mut Writer, logged: &Logged) {
        if let Some((domain, text)) = identity_of(&logged.record) {
            let seen = Seen {
                sequence: logged.offset.sequence,
                arrived_ms: logged.arrived_ms,
            };
            let id = self.live.keys().identity(domain, text.as_bytes());
            // In these domains the first record of an id counts, even if a run holds it.
            let is_noted = matches!(domain, AGAIN_DOMAIN | REFUSED_DOMAIN)
                && matches!(writer.ids.find(self.live.cache(), id), Ok(Some(_)));
            if !is_noted {
                writer.ids.insert(id, seen);
            }
        }
        if let Some(origin) = origin_of(&logged.record) {
            let id = self.producer(origin);
            writer.producers.follow(id, origin, logged.arrived_ms);
        }
    }
}

/// The id or key that a record makes known: its domain and its text.
fn identity_of(record: &Record) -> Option<(u8, &str)> {
    match record {
        Record::Increment(increment) | Record::Late(increment) => {
            increment.id.as_deref().map(|id| (ID_DOMAIN, id))
        }
        Record::Filtered { increment, .. } => increment.id.as_deref().map(|id| (ID_DOMAIN, id)),
        Record::Duplicate { id, .. } => Some((AGAIN_DOMAIN, id)),
        Record::Refused { id, .. } => Some((REFUSED_DOMAIN, id)),
        Record::Batch { key, .. } => Some((BATCH_KEY_DOMAIN, key)),
        Record::Rotate { .. }
        | Record::Turn { .. }
        | Record::Cut { .. }
        | Record::Schema(_)
        | Record::Manifest { .. } => None,
    }
}

/// The sequence number that its producer gave to the increment of a record.
fn origin_of(record: &Record) -> Option<&Origin> {
    match record {
        Record::Increment(increment)
        | Record::Late(increment)
        | Record::Filtered { increment, .. } => increment.origin.as_deref(),
        _ => None,
    }
}
