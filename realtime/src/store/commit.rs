//! The way in: one group commit.
//!
//! Many batches, one sync. Each batch is whole in one frame, so it counts all or not at all; its
//! records become visible together, before anyone is told that they were accepted.

use std::sync::Arc;

use tallyring_records::{
    COUNT_MAX, Day, Increment, Offset, Record, Schema, SchemaError, TimeCode, decode_all, line,
};

use super::open::{BATCH_BODY_DOMAIN, BATCH_KEY_DOMAIN, ID_DOMAIN};
use super::{Store, Writer};
use crate::error::{Error, Refusal, Result};
use crate::ids::Seen;
use crate::oplog::{OplogError, PAYLOAD_BYTES_MAX, ReadFrom, scan};
use crate::options::Durability;

/// Increments that count together or not at all. The caller has validated them.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// At least one.
    pub increments: Vec<Increment>,
    /// Makes a retry of the whole batch harmless.
    pub key: Option<BatchKey>,
}

/// A batch's own identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchKey {
    /// What its sender chose.
    pub text: String,
    /// What [`Store::body_identity`] makes of its body.
    pub body: u128,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Counted, `late` included.
    pub accepted: u64,
    /// Known already, not counted again.
    pub duplicates: u64,
    /// Counted for days that were exported already or lie outside the ring.
    pub late: u64,
}

/// How long a clock must be a day or more ahead before the ring believes it.
const JUMP_BELIEVED_AFTER_MS: i64 = 600_000;

/// Idle time after which the log's end is sealed.
const SEAL_AFTER_MS: i64 = 1_000;

/// Frames are closed when they hold this much; one batch may be larger.
const FRAME_BYTES: usize = 1 << 20;

impl Store {
    /// Makes batches durable and counts them. Answers in order.
    pub fn commit(&self, batches: Vec<Batch>) -> Vec<std::result::Result<Accepted, Refusal>> {
        let mut writer = self.writer();
        if let Err(refusal) = self.turn(&mut writer) {
            return batches.iter().map(|_| Err(refusal.clone())).collect();
        }
        let mut group = Group {
            now_ms: self.world.clock.now_ms(),
            ..Group::default()
        };
        for batch in batches {
            group.outcomes.push(Ok(Accepted::default()));
            let staged = match self.earlier_verdict(&writer, &mut group, &batch) {
                Ok(true) => continue,
                Ok(false) => self.stage(&mut writer, &mut group, batch),
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = staged {
                let index = group.outcomes.len() - 1;
                group.outcomes[index] = Err(refusal);
            }
            if writer.payload.len() >= FRAME_BYTES {
                self.close_frame(&mut writer, &mut group);
            }
        }
        self.close_frame(&mut writer, &mut group);
        self.finish(&mut writer, group)
    }

    /// What is due without traffic: turns the ring, syncs in interval mode, seals an idle log.
    ///
    /// # Errors
    /// When the log takes no more writes.
    pub fn tick(&self) -> std::result::Result<(), Refusal> {
        let mut writer = self.writer();
        self.turn(&mut writer)?;
        let now_ms = self.world.clock.now_ms();
        let idle = now_ms.saturating_sub(writer.last_append_ms) >= SEAL_AFTER_MS;
        let log = writer
            .log()
            .map_err(|error| Refusal::Unavailable(error.to_string()))?;
        if idle {
            log.seal(now_ms)
        } else {
            log.sync().map(drop)
        }
        .map_err(refusal)
    }

    /// Seals the log's end, so that damage to it can never be taken for a torn write.
    ///
    /// # Errors
    /// When the log takes no more writes.
    pub fn seal(&self) -> Result<()> {
        let now_ms = self.world.clock.now_ms();
        Ok(self.writer().log()?.seal(now_ms)?)
    }

    /// Makes the next log segment ahead of need; for a helper thread.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn prepare_segment(&self) -> Result<()> {
        let spare = self.writer().log()?.spare();
        Ok(spare.prepare()?)
    }

    /// Declares the namespaces; a change is a record in the log.
    ///
    /// # Errors
    /// When the declaration cannot be used, or the log takes no more writes.
    pub(super) fn declare(&self, schema: Schema) -> Result<()> {
        schema
            .validate()
            .map_err(|error: SchemaError| Error::Missing(error.to_string()))?;
        let mut writer = self.writer();
        if *self.live().schema == schema {
            return Ok(());
        }
        let record = Record::Schema(schema.clone());
        let after = self.append_one(&mut writer, &record)?;
        let mut live = self.live_mut();
        live.schema = Arc::new(schema.clone());
        live.schemas.push(tallyring_archive::SchemaEntry {
            since: tallyring_records::Position::single(after),
            schema,
        });
        live.applied = after;
        Ok(())
    }

    /// Appends one record of the store's own and makes it durable; returns the offset behind it.
    pub(super) fn append_one(&self, writer: &mut Writer, record: &Record) -> Result<Offset> {
        let now_ms = self.world.clock.now_ms();
        let mut payload = Vec::new();
        record.encode(&mut payload);
        let log = writer.log()?;
        log.append(&payload, 1, now_ms)?;
        log.sync()?;
        writer.last_append_ms = now_ms;
        writer.unflushed += 1;
        let log = writer.log()?;
        Ok(Offset {
            epoch: log.epoch(),
            sequence: log.appended(),
        })
    }

    /// Turns the ring when the clock's day is later than the ring's. A jump of more than a day is
    /// believed only after ten minutes, unless the clock's jumps are meant.
    fn turn(&self, writer: &mut Writer) -> std::result::Result<(), Refusal> {
        let now_ms = self.world.clock.now_ms();
        let day = Day::of(now_ms.div_euclid(1_000));
        let today = self.live().ring.today();
        if day <= today {
            writer.jumped_since_ms = None;
            return Ok(());
        }
        if day > today.next() && !self.world.clock.jumps_are_meant() {
            let since = *writer.jumped_since_ms.get_or_insert(now_ms);
            if now_ms.saturating_sub(since) < JUMP_BELIEVED_AFTER_MS {
                return Ok(());
            }
        }
        writer.jumped_since_ms = None;
        let after = self
            .append_one(writer, &Record::Rotate { today: day })
            .map_err(any_refusal)?;
        let mut live = self.live_mut();
        live.ring.rotate(day, after);
        live.applied = after;
        drop(live);
        tracing::info!(today = %day, "the ring turned");
        Ok(())
    }

    /// Adds a batch to the open frame: verdicts, targets and bytes. On refusal nothing of it stays.
    fn stage(
        &self,
        writer: &mut Writer,
        group: &mut Group,
        batch: Batch,
    ) -> std::result::Result<(), Refusal> {
        self.check_counts(writer, group, &batch)?;
        let base = writer.log().map_err(any_refusal)?.appended();
        let outcome = group.outcomes.len() - 1;
        let mut accepted = Accepted::default();
        for increment in batch.increments {
            let sequence = base + group.frame.len() as u64;
            let id = increment
                .id
                .as_deref()
                .map(|id| self.keys.identity(ID_DOMAIN, id.as_bytes()));
            let known = match id {
                Some(id) => writer
                    .ids
                    .find(&self.cache, id)
                    .map_err(|error| Refusal::Unavailable(error.to_string())),
                None => Ok(None),
            };
            let record = match (known?, increment.id.clone()) {
                (Some(of), Some(id)) => {
                    accepted.duplicates += 1;
                    Record::Duplicate { id, of }
                }
                _ => {
                    accepted.accepted += 1;
                    let late = self.live().ring.is_late(Day::of(increment.at));
                    accepted.late += u64::from(late);
                    if late {
                        Record::Late(increment)
                    } else {
                        Record::Increment(increment)
                    }
                }
            };
            if let (Some(id), Record::Increment(_) | Record::Late(_)) = (id, &record) {
                writer.ids.insert(
                    id,
                    Seen {
                        sequence,
                        arrived_ms: group.now_ms,
                    },
                );
                group.frame_ids.push(id);
            }
            record.encode(&mut writer.payload);
            group.frame.push(record);
        }
        if let Some(key) = batch.key {
            let id = self.keys.identity(BATCH_KEY_DOMAIN, key.text.as_bytes());
            let sequence = base + group.frame.len() as u64;
            writer.ids.insert(
                id,
                Seen {
                    sequence,
                    arrived_ms: group.now_ms,
                },
            );
            group.frame_ids.push(id);
            let Accepted {
                accepted,
                duplicates,
                late,
            } = accepted;
            let record = Record::Batch {
                key: key.text,
                body: key.body,
                accepted,
                duplicates,
                late,
            };
            record.encode(&mut writer.payload);
            group.frame.push(record);
        }
        group.frame_outcomes.push(outcome);
        group.outcomes[outcome] = Ok(accepted);
        Ok(())
    }

    /// Answers a batch whose key is known as it was answered before; false when it is new.
    fn earlier_verdict(
        &self,
        writer: &Writer,
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
        let staged = group
            .written
            .iter()
            .map(|(_, record)| record)
            .chain(&group.frame);
        let here = staged
            .filter(
                |record| matches!(record, Record::Batch { key: known, .. } if *known == key.text),
            )
            .next_back();
        let verdict = match here {
            Some(record) => Some(record.clone()),
            None => self.logged(sequence).map_err(any_refusal)?,
        };
        let Some(Record::Batch {
            body,
            accepted,
            duplicates,
            late,
            ..
        }) = verdict
        else {
            return Err(Refusal::Unavailable(format!(
                "the verdict on this batch, record {sequence}, cannot be read"
            )));
        };
        if body != key.body {
            return Err(Refusal::KeyReused);
        }
        let outcome = group.outcomes.len() - 1;
        group.outcomes[outcome] = Ok(Accepted {
            accepted,
            duplicates,
            late,
        });
        // What it repeats may be on its way to the disk only now: they succeed or fail together.
        if group.frame.is_empty() {
            &mut group.written_outcomes
        } else {
            &mut group.frame_outcomes
        }
        .push(outcome);
        Ok(true)
    }

    /// The record with this sequence.
    fn logged(&self, sequence: u64) -> Result<Option<Record>> {
        let mut found = None;
        let read = scan(
            &*self.world.disk,
            None,
            ReadFrom::Sequence(sequence),
            &mut |frame| {
                let at = usize::try_from(sequence - frame.first_sequence.min(sequence))?;
                found = decode_all(frame.payload, frame.count)?.into_iter().nth(at);
                // The rest of the log is not wanted.
                Err("found".into())
            },
        );
        match read {
            Err(OplogError::Apply { .. }) | Ok(_) => Ok(found),
            Err(error) => Err(error.into()),
        }
    }

    /// 128 keyed bits of a batch's body, for its [`BatchKey`].
    pub fn body_identity(&self, body: &[u8]) -> u128 {
        self.keys.identity(BATCH_BODY_DOMAIN, body)
    }

    /// Writes the open frame. When that fails its batches are refused and the others stand.
    fn close_frame(&self, writer: &mut Writer, group: &mut Group) {
        if group.frame.is_empty() {
            return;
        }
        let records = std::mem::take(&mut group.frame);
        let ids = std::mem::take(&mut group.frame_ids);
        let outcomes = std::mem::take(&mut group.frame_outcomes);
        let count = u32::try_from(records.len())
            .expect("BUG: a frame holds at most a batch more than it should");
        let payload = std::mem::take(&mut writer.payload);
        let now_ms = group.now_ms;
        let appended = match writer.log() {
            Ok(log) => log.append(&payload, count, now_ms).map_err(refusal),
            Err(error) => Err(any_refusal(error)),
        };
        writer.payload = payload;
        writer.payload.clear();
        match appended {
            Ok(first) => {
                let numbered = records
                    .into_iter()
                    .enumerate()
                    .map(|(index, record)| (first + index as u64, record));
                group.written.extend(numbered);
                group.written_ids.extend(ids);
                group.written_outcomes.extend(outcomes);
            }
            Err(refusal) => {
                ids.into_iter().for_each(|id| writer.ids.withdraw(id));
                outcomes
                    .into_iter()
                    .for_each(|index| group.outcomes[index] = Err(refusal.clone()));
            }
        }
    }

    /// Syncs, then makes everything visible at once.
    fn finish(
        &self,
        writer: &mut Writer,
        mut group: Group,
    ) -> Vec<std::result::Result<Accepted, Refusal>> {
        if group.written.is_empty() {
            return group.outcomes;
        }
        let synced = match (self.options.durability, writer.log()) {
            (Durability::Fsync, Ok(log)) => log.sync().map(drop).map_err(refusal),
            _ => Ok(()),
        };
        if let Err(refusal) = synced {
            group
                .written_ids
                .into_iter()
                .for_each(|id| writer.ids.withdraw(id));
            group
                .written_outcomes
                .into_iter()
                .for_each(|index| group.outcomes[index] = Err(refusal.clone()));
            return group.outcomes;
        }
        writer.last_append_ms = group.now_ms;
        writer.unflushed += group.written.len() as u64;
        let Ok(log) = writer.log() else {
            return group.outcomes;
        };
        let applied = Offset {
            epoch: log.epoch(),
            sequence: log.appended(),
        };
        let mut live = self.live_mut();
        let schema = Arc::clone(&live.schema);
        for (sequence, record) in &group.written {
            if let Record::Increment(increment) | Record::Late(increment) = record {
                writer.count_bound = writer.count_bound.saturating_add(increment.n);
                let late = matches!(record, Record::Late(_));
                live.ring
                    .count(&self.keys, &schema, late, *sequence, increment);
            }
        }
        live.applied = applied;
        group.outcomes
    }

    /// Refuses a batch that could lift a counter above [`COUNT_MAX`]. Cheap while all counts of the
    /// store together are below that; exact beyond.
    fn check_counts(
        &self,
        writer: &Writer,
        group: &mut Group,
        batch: &Batch,
    ) -> std::result::Result<(), Refusal> {
        let sum = batch
            .increments
            .iter()
            .fold(0, |sum: u64, increment| sum.saturating_add(increment.n));
        group.sum = group.sum.saturating_add(sum);
        if writer.count_bound.saturating_add(group.sum) <= COUNT_MAX {
            return Ok(());
        }
        let schema = self.schema();
        let mut added: std::collections::BTreeMap<(String, TimeCode), u64> =
            std::collections::BTreeMap::new();
        let staged = group
            .written
            .iter()
            .map(|(_, record)| record)
            .chain(&group.frame)
            .filter_map(|record| match record {
                Record::Increment(increment) | Record::Late(increment) => Some((None, increment)),
                _ => None,
            });
        let own = batch
            .increments
            .iter()
            .enumerate()
            .map(|(index, increment)| (Some(index), increment));
        for (index, increment) in staged.chain(own) {
            for (name, raw) in &increment.keys {
                let Some(namespace) = schema.namespace(name) else {
                    continue;
                };
                let key = line::total_key(name, &self.keys.stored(raw));
                let code = TimeCode::containing(increment.at, namespace.grain);
                let sum = added.entry((key.clone(), code)).or_insert(0);
                *sum = sum.saturating_add(increment.n);
                let counted = self.count_of(&key, code).map_err(any_refusal)?;
                if let Some(index) = index.filter(|_| sum.saturating_add(counted) > COUNT_MAX) {
                    return Err(Refusal::Overflow {
                        index,
                        field: format!("keys.{name}"),
                    });
                }
            }
        }
        Ok(())
    }
}

/// A group commit in the making.
#[derive(Default)]
struct Group {
    now_ms: i64,
    outcomes: Vec<std::result::Result<Accepted, Refusal>>,
    sum: u64,
    /// Records, ids and outcomes of the open frame.
    frame: Vec<Record>,
    frame_ids: Vec<u128>,
    frame_outcomes: Vec<usize>,
    /// The same of the frames that are appended.
    written: Vec<(u64, Record)>,
    written_ids: Vec<u128>,
    written_outcomes: Vec<usize>,
}

const _: () = assert!(FRAME_BYTES < PAYLOAD_BYTES_MAX / 2);

fn refusal(error: OplogError) -> Refusal {
    match error {
        OplogError::Full { .. } => Refusal::DiskFull,
        other => Refusal::Unavailable(other.to_string()),
    }
}

fn any_refusal(error: Error) -> Refusal {
    match error {
        Error::Oplog(error) => refusal(error),
        other => Refusal::Unavailable(other.to_string()),
    }
}
