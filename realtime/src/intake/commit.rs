//! The group commit: many batches, one sync.
//!
//! Each batch lies within one frame, so it counts all or not at all. The records of a group become visible together,
//! and only then is any client answered.

use std::sync::Arc;

use tallyring_records::{Accepted, Increment, Record, Text};

use super::batch::{Batch, Counted, RefusedItem};
use super::consumed;
use super::group::Group;
use super::owned::{Domain, Owned};
use super::{Intake, Writer};
use crate::error::{Error, ItemFault, OutOfOrder, Refusal, WrongItem};
use crate::holds::{ReservationId, ShownAction, Until};
use crate::oplog::{OplogError, PAYLOAD_BYTES_MAX};
use crate::options::Durability;
use crate::view::LoggedFrame;

/// Size at which a frame is closed, bytes; one batch may be larger.
const FRAME_BYTES: usize = 1 << 20;

impl Intake {
    /// Makes batches durable and counts them. The answers are in the order of the batches.
    pub fn commit(&self, batches: Vec<Batch>) -> Vec<Result<Accepted, Refusal>> {
        let outcomes = self.count(batches).into_iter();
        let answers = outcomes.map(|outcome| outcome.map(|counted| counted.accepted));
        answers.collect()
    }

    /// As [`Intake::commit`]; tells, too, which reservations the events name that count. None of these ended yet.
    pub(crate) fn count(&self, batches: Vec<Batch>) -> Vec<Result<Counted, Refusal>> {
        let earlier = self.earlier_answers(&batches);
        let mut writer = self.writer();
        let copied = self.copy_before(&mut writer);
        let turned = copied.and_then(|()| self.turn(&mut writer).map_err(any_refusal));
        if let Err(refusal) = turned {
            return batches.iter().map(|_| Err(refusal.clone())).collect();
        }
        let mut group = Group::new(self.live.rules(), self.world.clock.now_ms());
        for batch in batches {
            let before = group.mark(&writer);
            let staged = match self.earlier_verdict(&mut writer, &mut group, &earlier, &batch) {
                Ok(true) => continue,
                Ok(false) => self.stage(&mut writer, &mut group, batch),
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = staged {
                // A damaged id run may be met half-way: the part of the batch that is in the frame is removed.
                group.go_back(&mut writer, before);
                group.outcomes.push(Err(refusal));
            }
            if writer.payload.len() >= FRAME_BYTES {
                self.close_frame(&mut writer, &mut group);
            }
        }
        self.close_frame(&mut writer, &mut group);
        let outcomes = self.finish(&mut writer, group);
        // Refusals because of the disk or the log, not because of the batch.
        let refused = outcomes.iter().find_map(|outcome| match outcome {
            Err(
                refusal @ (Refusal::DiskFull | Refusal::LogFull { .. } | Refusal::Unavailable(_)),
            ) => Some(refusal),
            _ => None,
        });
        if let Some(refusal) = refused {
            writer.refused = Some(refusal.clone());
        }
        outcomes
    }

    /// Adds a batch to the open frame: verdicts, targets and bytes. On refusal the caller removes the part that was
    /// staged.
    fn stage(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        mut batch: Batch,
    ) -> Result<(), Refusal> {
        self.check_declared(group, &batch)?;
        self.check_counts(writer, group, &batch)?;
        consumed::advance(writer, group, &batch.consumed)?;
        let base = writer.log().map_err(any_refusal)?.end().sequence;
        let mut accepted = Accepted {
            skipped: std::mem::take(&mut batch.skipped),
            ..Accepted::default()
        };
        let (mut wrong, mut named) = (Vec::new(), Vec::new());
        let is_of_topic = !batch.consumed.is_empty();
        let mut confirming = std::mem::take(&mut batch.confirming).into_iter().peekable();
        let increments = std::mem::take(&mut batch.increments);
        group.frame.reserve(increments.len());
        for (index, mut increment) in increments.into_iter().enumerate() {
            if increment.id.is_some() || increment.origin.is_some() {
                increment.identity.clone_from(&batch.identity);
            }
            let confirmed = confirming.next_if(|(of, _)| *of == index);
            match self.is_numbered_duplicate(writer, group, &mut increment, is_of_topic) {
                Ok(true) => accepted.duplicates += 1,
                Ok(false) => {
                    let by = (&*group.rules.schema, self.live.keys());
                    let shown = confirmed.and_then(|(_, id)| ShownAction::of(id, &increment, by));
                    let is_counted =
                        self.stage_increment(writer, group, base, increment, &mut accepted)?;
                    if let Some(shown) = shown.filter(|_| is_counted) {
                        named.push(shown.id);
                        self.end_hold(writer, group, (shown, None));
                    }
                }
                Err(out_of_order) => wrong.push(WrongItem {
                    index,
                    fault: ItemFault::Sequence(out_of_order),
                }),
            }
        }
        if !wrong.is_empty() {
            return Err(Refusal::Items(wrong));
        }
        self.stage_rest(writer, group, base, (batch, &accepted), &mut named)?;
        group.accept(Counted {
            accepted,
            shown: named,
            ..Counted::default()
        });
        Ok(())
    }

    /// Adds all of a batch to the open frame but its increments, which were accepted so. Adds the holds that events of
    /// another strand name to `named`.
    fn stage_rest(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        base: u64,
        (batch, accepted): (Batch, &Accepted),
        named: &mut Vec<ReservationId>,
    ) -> Result<(), Refusal> {
        let identity = batch.identity;
        let held = batch.held;
        let held = held.and_then(|id| self.holds.record(id, self.moment()));
        held.into_iter()
            .for_each(|record| group.push(writer, record));
        if let Some(id) = batch.released {
            group.push(writer, id.ended());
        }
        if let Some((until, shown)) = batch.beside {
            for shown in shown {
                named.push(shown.id);
                self.end_hold(writer, group, (shown, Some(until)));
            }
        }
        for item in batch.refused {
            self.stage_refused(writer, group, base, (identity.clone(), item))?;
        }
        for step in batch.consumed {
            group.push(writer, Record::Consumed(step.to));
        }
        if let Some(key) = batch.key {
            let owned = Owned::new(Domain::BatchKey, identity.as_ref(), &key.text);
            group.remember(writer, self.bits(&owned), base);
            let record = Record::Batch {
                identity,
                key: key.text,
                body: key.body,
                accepted: accepted.clone(),
            };
            group.push(writer, record);
        }
        Ok(())
    }

    /// Refuses a batch that was read by a schema before the one in force, where the latter does not have what its
    /// increments name, or has the first rules that judge by evidence: the events came without.
    fn check_declared(&self, group: &Group, batch: &Batch) -> Result<(), Refusal> {
        let in_force = &group.rules.schema;
        let Some(declared) = batch.declared.as_ref() else {
            return Ok(());
        };
        if Arc::ptr_eq(declared, in_force) {
            return Ok(());
        }
        let lacks_evidence = self.options.drops_evidence
            && in_force.judges_evidence()
            && !declared.judges_evidence();
        let goes = |increment: &Increment| {
            increment.is_declared(in_force) && !(lacks_evidence && increment.event.is_some())
        };
        match batch.increments.iter().all(goes) {
            true => Ok(()),
            false => Err(Refusal::Redeclared),
        }
    }

    /// True when the sequence numbers of its producer say that the increment was counted; otherwise the number is
    /// noted. An increment of a topic goes on behind a gap, because nobody can send the missing ones, and loses its
    /// number where no further producer is followed, so that a replay of the log does not follow it either.
    fn is_numbered_duplicate(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        increment: &mut Increment,
        is_of_topic: bool,
    ) -> Result<bool, OutOfOrder> {
        let Some(origin) = &increment.origin else {
            return Ok(false);
        };
        let identity = increment.identity.as_ref();
        let (id, known) = self.producer(&writer.producers, identity, origin);
        if is_of_topic && !writer.producers.has_room(known) {
            increment.origin = None;
            return Ok(false);
        }
        let goes_on = is_of_topic && writer.producers.skips(known, origin);
        let is_new = goes_on || writer.producers.is_new(known, origin)?;
        if is_new {
            let before = writer.producers.follow((id, known), origin, group.now_ms);
            group.open.producers.push((id, before));
        }
        Ok(!is_new)
    }

    /// Adds an increment to the open frame, or the verdict that it does not count. Returns whether it counts.
    fn stage_increment(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        base: u64,
        mut increment: Increment,
        accepted: &mut Accepted,
    ) -> Result<bool, Refusal> {
        if let Some(text) = &increment.id {
            let owned = Owned::new(Domain::Id, increment.identity.as_ref(), text);
            let id = self.bits(&owned);
            let known = self.find_owned(writer, &owned, id);
            if let Some(of) = known.map_err(|error| Refusal::Unavailable(error.to_string()))? {
                accepted.duplicates += 1;
                let domain = Domain::Again;
                self.remember_first(writer, group, base, &Owned { domain, ..owned })?;
                let record = Record::Duplicate {
                    identity: increment.identity.clone(),
                    id: text.clone(),
                    of,
                };
                group.push(writer, record);
                return Ok(false);
            }
            group.remember(writer, id, base);
        }
        let judged = writer.judge.judge(self.live.keys(), &increment);
        self.drop_evidence(&mut increment);
        group.open.undecided += u64::from(judged.undecided);
        if let Some(index) = judged.caught {
            let rule = group.rules.schema.filters[index].name.clone();
            accepted.filtered += 1;
            let counted = increment.filtered_by(&rule);
            group.push(writer, Record::Filtered { rule, increment });
            self.push_counted(writer, group, counted);
            return Ok(false);
        }
        accepted.accepted += 1;
        accepted.set_aside += increment.set_aside();
        accepted.late += u64::from(self.push_counted(writer, group, increment));
        Ok(true)
    }

    /// Adds an item that the caller refused to the open frame.
    fn stage_refused(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        base: u64,
        (identity, item): (Option<Text>, RefusedItem),
    ) -> Result<(), Refusal> {
        let owned = Owned::new(Domain::Refused, identity.as_ref(), &item.id);
        self.remember_first(writer, group, base, &owned)?;
        let record = Record::Refused {
            identity,
            id: item.id,
            field: item.field,
            detail: item.detail,
            namespaces: item.namespaces,
        };
        group.push(writer, record);
        Ok(())
    }

    /// Adds an increment that counts to the open frame. Returns whether it came late: its day's store is closed, or its
    /// time was settled.
    fn push_counted(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        mut increment: Increment,
    ) -> bool {
        let now = group.now_ms.div_euclid(1_000);
        let late = group.rules.judge(&mut increment, now);
        let event = increment.event.as_ref();
        let correction = event.is_some_and(|event| event.correction);
        if let Some(mut added) = group.added.take() {
            self.note_added(&mut added, &increment);
            group.added = Some(added);
        }
        let record = if late {
            Record::Late(increment)
        } else {
            Record::Increment(increment)
        };
        group.push(writer, record);
        late || correction
    }

    /// Lets a counted increment take the place of the hold that it names: the one that is staged last, or one of
    /// another strand, whose end is always in the log.
    fn end_hold(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        (shown, beside): (ShownAction, Option<Until>),
    ) {
        let is_logged = self.options.logs_holds || beside.is_some();
        if is_logged && self.holds.is_held(&shown, self.moment().elapsed_ms) {
            let ended = beside.map_or(shown.id.ended(), |until| shown.id.ended_beside(until));
            group.push(writer, ended);
        }
        group.open.shown.push((shown, beside));
    }

    /// Remembers the id for the record that is pushed next, unless an earlier record has it.
    fn remember_first(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        base: u64,
        owned: &Owned<'_>,
    ) -> Result<(), Refusal> {
        let id = self.bits(owned);
        let known = writer.ids.find(self.live.cache(), id.bits);
        if known
            .map_err(|error| Refusal::Unavailable(error.to_string()))?
            .is_none()
        {
            group.remember(writer, id, base);
        }
        Ok(())
    }

    /// Writes the open frame. On failure, only the batches of this frame are refused. A batch is too large for the log
    /// where it is alone: one that shares a frame is told to come again.
    fn close_frame(&self, writer: &mut Writer, group: &mut Group) {
        if group.frame.is_empty() {
            return;
        }
        let records = std::mem::take(&mut group.frame);
        let staged = std::mem::take(&mut group.open);
        let is_alone = staged.is_one_batch();
        let count = u32::try_from(records.len()).expect("BUG: a frame holds 2^32 records");
        let payload = std::mem::take(&mut writer.payload);
        let now_ms = group.now_ms;
        let appended = match writer.log() {
            Ok(log) => (log.segments().check_room(payload.len()))
                .and_then(|()| log.append(&payload, count, now_ms))
                .map_err(|error| match error {
                    OplogError::TooLarge { bytes, bytes_max } if is_alone => {
                        Refusal::TooLargeForLog { bytes, bytes_max }
                    }
                    other => refusal(other),
                }),
            Err(error) => Err(any_refusal(error)),
        };
        writer.payload = payload;
        writer.payload.clear();
        match appended {
            Ok(first) => {
                group.written.push(LoggedFrame { first, records });
                group.unsynced.append(staged);
            }
            Err(refusal) => {
                group.added = None;
                group.refuse(writer, staged, &refusal);
            }
        }
    }

    /// Syncs the log, then makes the whole group visible at once.
    fn finish(&self, writer: &mut Writer, mut group: Group) -> Vec<Result<Counted, Refusal>> {
        if group.written.is_empty() {
            return group.outcomes;
        }
        let synced = match (self.options.durability, writer.log()) {
            (Durability::Fsync, Ok(log)) => log.commit().map(drop).map_err(refusal),
            _ => Ok(()),
        };
        if let Err(refusal) = synced {
            let staged = std::mem::take(&mut group.unsynced);
            group.refuse(writer, staged, &refusal);
            return group.outcomes;
        }
        let copied = self.copy_after(writer);
        writer.last_append_ms = group.now_ms;
        writer.refused = None;
        writer.unflushed += group.records().count() as u64;
        for (_, increment) in group.records().filter_map(Record::increment) {
            writer.bounds.add(increment.at, increment.n);
        }
        for frame in &group.written {
            for (sequence, record) in (frame.first..).zip(&frame.records) {
                if let Record::Batch { body, accepted, .. } = record {
                    writer.answered.insert(sequence, (*body, accepted.clone()));
                }
            }
        }
        let Ok(log) = writer.log() else {
            return group.outcomes;
        };
        let applied = log.end();
        let now = group.now_ms.div_euclid(1_000);
        writer
            .judge
            .count(group.records(), group.unsynced.undecided);
        if !group.unsynced.shown.is_empty() {
            let elapsed_ms = self.moment().elapsed_ms;
            for (shown, beside) in &group.unsynced.shown {
                match beside {
                    Some(until) => self.holds.confirm_beside(shown, *until, elapsed_ms),
                    None => self.holds.confirm(shown, applied, elapsed_ms),
                }
            }
        }
        self.live.count(&group.rules, &group.written, applied, now);
        if let Err(refusal) = copied {
            // The group counts, as the log says, but every client gets an error.
            let outcomes = group.outcomes.iter_mut();
            outcomes
                .filter(|outcome| outcome.is_ok())
                .for_each(|outcome| *outcome = Err(refusal.clone()));
        }
        group.outcomes
    }
}

const _: () = assert!(FRAME_BYTES < PAYLOAD_BYTES_MAX / 2);

pub(super) fn refusal(error: OplogError) -> Refusal {
    match error {
        OplogError::Full { .. } => Refusal::DiskFull,
        OplogError::Limit { bytes_max, .. } => Refusal::LogFull { bytes_max },
        other => Refusal::Unavailable(other.to_string()),
    }
}

pub(super) fn any_refusal(error: Error) -> Refusal {
    match error {
        Error::Oplog(error) => refusal(error),
        other => Refusal::Unavailable(other.to_string()),
    }
}
