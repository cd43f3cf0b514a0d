//! Decisions about a batch before it is written: whether it was answered before, and whether a counter would overflow.

use std::collections::{BTreeSet, HashMap};

use tallyring_records::{
    Accepted, COUNT_MAX, Increment, Namespace, Record, Text, TimeCode, decode_all, line,
};

use super::batch::{Batch, BatchKey};
use super::commit::any_refusal;
use super::group::{Added, Group};
use super::history::Logged;
use super::owned::{Domain, Owned};
use super::{Intake, Writer};
use crate::error::{ItemFault, Refusal, Result, WrongItem};
use crate::oplog::read_each;

/// Bodies and answers of earlier batches, by the sequence number of the [`Record::Batch`] that holds them.
pub(super) type EarlierAnswers = HashMap<u64, (u128, Accepted)>;

impl Intake {
    /// Answers from the log for batches whose keys were known before the group began. The log is read without the lock
    /// of the intake. Answers that cannot be read are left out.
    pub(super) fn earlier_answers(&self, batches: &[Batch]) -> EarlierAnswers {
        let mut answers = EarlierAnswers::new();
        for bits in batches.iter().flat_map(|batch| self.batch_bits(batch)) {
            let Ok(Some(sequence)) = self.answer_of(bits) else {
                continue;
            };
            if self.writer().answered.get(&sequence).is_some() {
                continue;
            }
            if let Some(answer) = self.logged_answer(sequence) {
                answers.insert(sequence, answer);
            }
        }
        answers
    }

    /// The sequence number of the record that answers the batches whose key has these bits; none for a new key. Fails
    /// when a run that may hold the key is damaged.
    fn answer_of(&self, bits: u128) -> Result<Option<u64>> {
        let (seen, runs) = self.writer().ids.candidates_in_window(bits);
        let mut known = seen.map(|seen| seen.sequence);
        for run in runs {
            if known.is_none() {
                known = run.find(self.live.cache(), bits)?;
            }
        }
        Ok(known)
    }

    /// Body and answer of an earlier batch, as the log has them; none where they cannot be read.
    fn logged_answer(&self, sequence: u64) -> Option<(u128, Accepted)> {
        match self.logged(sequence).ok()??.record {
            Record::Batch { body, accepted, .. } => Some((body, accepted)),
            _ => None,
        }
    }

    /// The answer of an earlier batch of this identity, which had this key and this body; none where none had. A caller
    /// asks it about a batch whose items can no longer be read, such as after other declarations. Waits for the disk.
    /// Fails with [`Refusal::Unavailable`] when it cannot be read whether there was one, or its answer.
    pub fn earlier_answer(
        &self,
        identity: Option<Text>,
        key: BatchKey,
    ) -> Result<Option<Accepted>, Refusal> {
        let batch = Batch {
            identity,
            key: Some(key.clone()),
            ..Batch::default()
        };
        for bits in self.batch_bits(&batch) {
            let known = self.answer_of(bits);
            let known = known.map_err(|error| Refusal::Unavailable(error.to_string()))?;
            let Some(sequence) = known else { continue };
            let remembered = self.writer().answered.get(&sequence).cloned();
            let answer = remembered.or_else(|| self.logged_answer(sequence));
            let (body, accepted) = answer.ok_or_else(|| unreadable_answer(sequence))?;
            if body == key.body {
                return Ok(Some(accepted));
            }
        }
        Ok(None)
    }

    /// Answers a batch with a known key as it was answered before. Returns false when the batch is new.
    pub(super) fn earlier_verdict(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        earlier: &EarlierAnswers,
        batch: &Batch,
    ) -> Result<bool, Refusal> {
        let Some(key) = &batch.key else {
            return Ok(false);
        };
        let identities = [batch.identity.as_ref(), None];
        for (bits, identity) in self.batch_bits(batch).zip(identities) {
            let known = writer
                .ids
                .find(self.live.cache(), bits)
                .map_err(|error| Refusal::Unavailable(error.to_string()))?;
            let Some(sequence) = known else { continue };
            let in_group = group.records().rfind(|record| {
                let is_key =
                    matches!(record, Record::Batch { key: known, .. } if *known == key.text);
                is_key && record.identity() == identity
            });
            let (body, accepted) = match in_group {
                Some(Record::Batch { body, accepted, .. }) => (*body, accepted.clone()),
                _ => answered(writer, earlier, sequence)?,
            };
            if body == key.body {
                group.accept(accepted.into());
                return Ok(true);
            }
            // A key from before there were identities may be that of another sender, whose body is another one.
            if identity == batch.identity.as_ref() {
                return Err(Refusal::KeyReused);
            }
        }
        Ok(false)
    }

    /// The bits of a batch's key: its own ones, then those under which it was known before there were identities.
    fn batch_bits(&self, batch: &Batch) -> impl Iterator<Item = u128> {
        let key = batch.key.as_ref();
        let owned = key.map(|key| Owned::new(Domain::BatchKey, batch.identity.as_ref(), &key.text));
        let keys = self.live.keys();
        let own = owned.map(|owned| owned.bits(keys).bits);
        own.into_iter()
            .chain(owned.and_then(|owned| owned.everyones(keys)))
    }

    /// The epoch of a record; none where the log has it no longer, or cannot be read there.
    pub fn epoch_of(&self, sequence: u64) -> Option<u32> {
        let logged = self.logged(sequence).ok().flatten();
        logged.map(|logged| logged.offset.epoch)
    }

    /// Reads the record with this sequence number from the log.
    pub(super) fn logged(&self, sequence: u64) -> Result<Option<Logged>> {
        Ok(self.logged_each(&[sequence])?.pop())
    }

    /// Reads the records with these sequence numbers, which ascend, from the log, without those that a segment lacks.
    /// Fails where the segment of one is gone.
    pub(super) fn logged_each(&self, sequences: &[u64]) -> Result<Vec<Logged>> {
        let mut found = Vec::new();
        read_each(&*self.world.disk, sequences, &mut |frame| {
            let records = (frame.first_sequence..).zip(decode_all(frame.payload, frame.count)?);
            let wanted = records.filter(|(sequence, _)| sequences.binary_search(sequence).is_ok());
            found.extend(wanted.map(|(sequence, record)| Logged::new(&frame, sequence, record)));
            Ok(())
        })?;
        Ok(found)
    }

    /// 128 keyed bits of a body, for a [`BatchKey`](super::BatchKey).
    pub fn body_identity(&self, body: &[u8]) -> u128 {
        self.live.keys().identity(Domain::BatchBody as u8, body)
    }

    /// Refuses a batch that could lift a counter above [`COUNT_MAX`]. The check is cheap while all counts of an hour
    /// together are below that, and reads the counters otherwise.
    pub(super) fn check_counts(
        &self,
        writer: &Writer,
        group: &mut Group,
        batch: &Batch,
    ) -> Result<(), Refusal> {
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

    /// The sums that the staged batches add to each counter.
    fn added_by(&self, group: &Group) -> Added {
        let mut added = Added::new();
        for record in group.records() {
            if let Record::Increment(increment) | Record::Late(increment) = record {
                self.note_added(&mut added, increment);
            }
        }
        added
    }

    /// Adds an increment to these sums.
    pub(super) fn note_added(&self, added: &mut Added, increment: &Increment) {
        for (_, counter) in self.counters(increment) {
            let sum = added.entry(counter).or_insert(0);
            *sum = sum.saturating_add(increment.n);
        }
    }

    /// Refuses a batch if it would make counters overflow on top of the sums in `added`. The refusal names every item
    /// that does not fit after the items before it.
    fn check_batch(&self, writer: &Writer, added: &Added, batch: &Batch) -> Result<(), Refusal> {
        let mut own = Added::new();
        let mut own_ids = BTreeSet::new();
        let identity = batch.identity.as_ref();
        let mut wrong = Vec::new();
        for (index, increment) in batch.increments.iter().enumerate() {
            // A retry of a counted increment adds nothing: it is a duplicate, not an overflow.
            let owned = increment.id.as_ref();
            let owned = owned.map(|id| Owned::new(Domain::Id, identity, id));
            let owned = owned.map(|owned| (owned, self.bits(&owned)));
            if let Some((owned, id)) = owned {
                let known = self.find_owned(writer, &owned, id);
                let known = known.map_err(|error| any_refusal(error.into()))?;
                if known.is_some() || own_ids.contains(&id.bits) {
                    continue;
                }
            }
            if self.is_known_number(writer, identity, increment) {
                continue;
            }
            let counters = self.counters(increment);
            let filtered = self.counters(&increment.filtered_by(""));
            let mut overflow = None;
            for ((name, counter), (_, filtered)) in counters.iter().zip(&filtered) {
                // A rule may catch what was counted, and a reconcile may bring back what a rule caught.
                let mut after = increment.n;
                for counter in [counter, filtered] {
                    let counted = self.live.count_of(&counter.0, counter.1);
                    let counted = counted.map_err(any_refusal)?;
                    let sum = |added: &Added| added.get(counter).copied().unwrap_or(0);
                    let before = sum(added).saturating_add(counted);
                    after = after.saturating_add(before).saturating_add(sum(&own));
                }
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
            own_ids.extend(owned.map(|(_, id)| id.bits));
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

    /// True when the sequence numbers of its producer say that the increment was counted before this batch.
    fn is_known_number(
        &self,
        writer: &Writer,
        identity: Option<&Text>,
        increment: &Increment,
    ) -> bool {
        increment.origin.as_ref().is_some_and(|origin| {
            let (_, known) = self.producer(&writer.producers, identity, origin);
            writer.producers.is_new(known, origin) == Ok(false)
        })
    }

    /// The totals that an increment counts in, each with the name of its namespace.
    fn counters(&self, increment: &Increment) -> Vec<(String, (String, TimeCode))> {
        let schema = self.live.schema();
        let named = increment
            .keys
            .iter()
            .filter_map(|(name, raw)| Some((name, schema.counted(name)?, raw)));
        let counter = |(name, namespace, raw): (&Text, &Namespace, &Text)| {
            let key = line::total_key(name, &self.live.keys().stored(raw));
            (
                name.to_string(),
                (key, TimeCode::containing(increment.at, namespace.grain)),
            )
        };
        named.map(counter).collect()
    }
}

/// Body and answer of an earlier batch, from the record with this sequence number.
fn answered(
    writer: &mut Writer,
    earlier: &EarlierAnswers,
    sequence: u64,
) -> Result<(u128, Accepted), Refusal> {
    if let Some(answered) = writer.answered.get(&sequence) {
        return Ok(answered.clone());
    }
    let Some(answered) = earlier.get(&sequence) else {
        return Err(unreadable_answer(sequence));
    };
    writer.answered.insert(sequence, answered.clone());
    Ok(answered.clone())
}

fn unreadable_answer(sequence: u64) -> Refusal {
    Refusal::Unavailable(format!(
        "this batch was answered before, but its answer, record {sequence} of the log, cannot be read"
    ))
}
