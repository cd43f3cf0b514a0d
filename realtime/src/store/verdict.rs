//! What is decided about a batch before it is written: was it answered before, would it overflow.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

use tallyring_records::{
    Accepted, COUNT_MAX, Increment, Namespace, Offset, Record, Text, TimeCode, decode_all, line,
};

use super::commit::{Batch, any_refusal};
use super::group::{Added, Group};
use super::history::Logged;
use super::open::{BATCH_BODY_DOMAIN, BATCH_KEY_DOMAIN, ID_DOMAIN};
use super::{Store, Writer};
use crate::error::{ItemFault, Refusal, Result, WrongItem};
use crate::oplog::{OplogError, scan_segment};

/// Pieces of an answer that are hashed together.
const PIECE_BYTES: usize = 1 << 10;

impl Store {
    /// Answers a batch whose key is known as it was answered before; false when it is new.
    pub(super) fn earlier_verdict(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        batch: &Batch,
    ) -> std::result::Result<bool, Refusal> {
        let Some(key) = &batch.key else {
            return Ok(false);
        };
        let id = self.keys.identity(BATCH_KEY_DOMAIN, key.text.as_bytes());
        let known = writer
            .ids
            .find(&self.cache, id)
            .map_err(|error| Refusal::Unavailable(error.to_string()))?;
        let Some(sequence) = known else {
            return Ok(false);
        };
        let here = group.records().rfind(
            |record| matches!(record, Record::Batch { key: known, .. } if *known == key.text),
        );
        let (body, accepted) = match here {
            Some(Record::Batch { body, accepted, .. }) => (*body, accepted.clone()),
            _ => self.answered(writer, sequence)?,
        };
        if body != key.body {
            return Err(Refusal::KeyReused);
        }
        group.accept(accepted);
        Ok(true)
    }

    /// The body of a batch, and what it was answered, from the record with this sequence.
    fn answered(
        &self,
        writer: &mut Writer,
        sequence: u64,
    ) -> std::result::Result<(u128, Accepted), Refusal> {
        if let Some(answered) = writer.answered.get(&sequence) {
            return Ok(answered.clone());
        }
        let logged = self.logged(sequence).map_err(any_refusal)?;
        let Some(Record::Batch { body, accepted, .. }) = logged.map(|logged| logged.record) else {
            return Err(Refusal::Unavailable(format!(
                "the verdict on this batch, record {sequence}, cannot be read"
            )));
        };
        writer.answered.insert(sequence, (body, accepted.clone()));
        Ok((body, accepted))
    }

    /// The record with this sequence.
    pub(super) fn logged(&self, sequence: u64) -> Result<Option<Logged>> {
        let mut found = None;
        let read = scan_segment(&*self.world.disk, sequence, &mut |frame| {
            let at = usize::try_from(sequence - frame.first_sequence.min(sequence))?;
            let record = decode_all(frame.payload, frame.count)?.into_iter().nth(at);
            found = record.map(|record| Logged {
                offset: Offset {
                    epoch: frame.epoch,
                    sequence,
                },
                arrived_ms: frame.written_ms,
                record,
            });
            // The rest of the log is not wanted.
            Err("found".into())
        });
        match read {
            Err(OplogError::Apply { .. }) | Ok(()) => Ok(found),
            Err(error) => Err(error.into()),
        }
    }

    /// 128 keyed bits of a body: of a batch's for its [`BatchKey`](super::BatchKey).
    pub fn body_identity(&self, body: &[u8]) -> u128 {
        self.keys.identity(BATCH_BODY_DOMAIN, body)
    }

    /// The same of an answer, for its validator; `write` writes what it is made of, which is not kept.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn answer_identity(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<u128> {
        let mut written = Ok(());
        let identity = self.keys.identity_of(BATCH_BODY_DOMAIN, |hasher| {
            let mut pieces = BufWriter::with_capacity(PIECE_BYTES, hasher);
            written = write(&mut pieces).and_then(|()| pieces.flush());
        });
        written.map(|()| identity)
    }

    /// Refuses a batch that could lift a counter above [`COUNT_MAX`]. Cheap while all counts of an
    /// hour together are below that; exact beyond.
    pub(super) fn check_counts(
        &self,
        writer: &Writer,
        group: &mut Group,
        batch: &Batch,
    ) -> std::result::Result<(), Refusal> {
        let (mut sum, mut bound) = (0_u64, 0);
        for increment in &batch.increments {
            sum = sum.saturating_add(increment.n);
            bound = writer.bounds.of(increment.at).max(bound);
        }
        group.sum = group.sum.saturating_add(sum);
        if group.sum.saturating_add(bound) <= COUNT_MAX {
            return Ok(());
        }
        let added = match group.added.take() {
            Some(added) => added,
            None => self.added_by(group),
        };
        let checked = self.check_batch(writer, &added, batch);
        group.added = Some(added);
        checked
    }

    /// What the batches staged before add to each counter.
    fn added_by(&self, group: &Group) -> Added {
        let mut added = Added::new();
        for record in group.records() {
            if let Record::Increment(increment) | Record::Late(increment) = record {
                self.note_added(&mut added, increment);
            }
        }
        added
    }

    /// Adds an increment to what the staged ones add to each counter.
    pub(super) fn note_added(&self, added: &mut Added, increment: &Increment) {
        for (_, counter) in self.counters(increment) {
            let sum = added.entry(counter).or_insert(0);
            *sum = sum.saturating_add(increment.n);
        }
    }

    /// Refuses a batch when some counters would overflow with it and what is `added` before; the refusal names every item
    /// for which there is no room beside those before it.
    fn check_batch(
        &self,
        writer: &Writer,
        added: &Added,
        batch: &Batch,
    ) -> std::result::Result<(), Refusal> {
        let mut own = Added::new();
        let mut own_ids = BTreeSet::new();
        let mut wrong = Vec::new();
        for (index, increment) in batch.increments.iter().enumerate() {
            // A retry of what was counted adds nothing, so it is a duplicate and no overflow.
            let id = increment.id.as_ref();
            let id = id.map(|id| self.keys.identity(ID_DOMAIN, id.as_bytes()));
            if let Some(id) = id {
                let known = writer.ids.find(&self.cache, id);
                let known = known.map_err(|error| any_refusal(error.into()))?;
                if known.is_some() || own_ids.contains(&id) {
                    continue;
                }
            }
            if self.is_known_number(writer, increment) {
                continue;
            }
            let counters = self.counters(increment);
            let mut overflow = None;
            for (name, counter) in &counters {
                let counted = self.count_of(&counter.0, counter.1).map_err(any_refusal)?;
                let sum = |added: &Added| added.get(counter).copied().unwrap_or(0);
                let before = sum(added).saturating_add(counted);
                let after = before.saturating_add(sum(&own)).saturating_add(increment.n);
                if after > COUNT_MAX {
                    overflow = Some(format!("keys.{name}"));
                    break;
                }
            }
            if let Some(field) = overflow {
                let increment = Box::new(increment.clone());
                let fault = ItemFault::Overflow { increment, field };
                wrong.push(WrongItem { index, fault });
                continue;
            }
            own_ids.extend(id);
            for (_, counter) in counters {
                let sum = own.entry(counter).or_insert(0);
                *sum = sum.saturating_add(increment.n);
            }
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(Refusal::Items(wrong)),
        }
    }

    /// True when its producer's numbers say that it was counted before this batch.
    fn is_known_number(&self, writer: &Writer, increment: &Increment) -> bool {
        increment.origin.as_ref().is_some_and(|origin| {
            let id = self.producer(origin);
            writer.producers.is_new(id, origin) == Ok(false)
        })
    }

    /// The totals that an increment counts in, each with its namespace's name.
    fn counters(&self, increment: &Increment) -> Vec<(String, (String, TimeCode))> {
        let schema = self.schema();
        let named = increment
            .keys
            .iter()
            .filter_map(|(name, raw)| Some((schema.namespace(name)?, raw)));
        let counter = |(namespace, raw): (&Namespace, &Text)| {
            let key = line::total_key(&namespace.name, &self.keys.stored(raw));
            (
                namespace.name.clone(),
                (key, TimeCode::containing(increment.at, namespace.grain)),
            )
        };
        named.map(counter).collect()
    }
}
