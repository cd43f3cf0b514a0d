//! Batches and their outcomes as bytes, in which a node hands a batch over to the one that writes.
//!
//! A batch travels as the records that the log may have of it, with the rest before them, so whatever the log keeps of
//! an increment goes along. Bytes are read as those of a stranger: all that no node sends is an error, and each
//! increment is checked again by the schema that the batch names.

use std::sync::{Arc, Mutex, PoisonError};

use tallyring_records::varint::{
    read_array, read_bytes, read_text, read_u64, write_bytes, write_u64,
};
use tallyring_records::{
    Accepted, ID_BYTES_MAX, Increment, LoggedHold, Record, Schema, ShownHold, Skipped, decode_all,
    is_identity,
};

use super::batch::{Batch, BatchKey, Counted, RefusedItem};
use super::consumed::Advance;
use crate::error::{ItemFault, OutOfOrder, Refusal, WrongItem};
use crate::holds::{ReservationId, ShownAction, Until};
use crate::view::Live;

/// The hash of the schema that was asked for last: nearly all batches name the one in force.
#[derive(Default)]
pub struct SchemaHashes(Mutex<Option<(Arc<Schema>, [u8; 32])>>);

impl SchemaHashes {
    /// The schema with this hash; none where the store never had it.
    fn find(&self, hash: &[u8; 32], live: &Live) -> Option<Arc<Schema>> {
        let in_force = live.schema();
        if self.of(&in_force) == *hash {
            return Some(in_force);
        }
        let schemas = Arc::clone(&live.snapshot().schemas);
        let mut earlier = schemas.iter().rev().map(|entry| &entry.schema);
        let found = earlier.find(|schema| schema.hash() == *hash);
        found.cloned().map(Arc::new)
    }

    fn of(&self, schema: &Arc<Schema>) -> [u8; 32] {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, hash)) if Arc::ptr_eq(known, schema) => *hash,
            _ => {
                let hash = schema.hash();
                *last = Some((Arc::clone(schema), hash));
                hash
            }
        }
    }
}

impl Batch {
    /// The batch as bytes.
    pub fn encode(self, hashes: &SchemaHashes) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 64 * self.increments.len());
        let declared = self.declared.map(|schema| hashes.of(&schema));
        write_bytes(&mut out, declared.as_ref().map_or(&[], |hash| hash));
        write_bytes(
            &mut out,
            self.identity.as_deref().unwrap_or_default().as_bytes(),
        );
        let held = self.held.map(ReservationId::to_bytes);
        write_bytes(&mut out, held.as_ref().map_or(&[], |id| id));
        write_u64(&mut out, self.confirming.len() as u64);
        for (index, id) in self.confirming {
            write_u64(&mut out, index as u64);
            out.extend_from_slice(&id.to_bytes());
        }
        write_u64(&mut out, self.consumed.len() as u64);
        for step in &self.consumed {
            out.push(u8::from(step.from.is_some()));
            write_u64(&mut out, step.from.unwrap_or(0));
        }
        // An empty key is none.
        let is_answered = self.key.is_some() || !self.skipped.is_empty();
        let key = self.key.unwrap_or_else(|| BatchKey {
            text: String::new(),
            body: 0,
        });
        let answer = is_answered.then_some(Record::Batch {
            identity: None,
            key: key.text,
            body: key.body,
            accepted: Accepted {
                skipped: self.skipped,
                ..Accepted::default()
            },
        });
        let increments = self.increments.into_iter().map(Record::Increment);
        let refused = self.refused.into_iter().map(RefusedItem::into_record);
        let beside = self.beside.map_or_else(Vec::new, beside_records);
        let consumed = self.consumed.into_iter();
        let records: Vec<Record> = increments
            .chain(refused)
            .chain(self.released.map(ReservationId::ended))
            .chain(beside)
            .chain(consumed.map(|step| Record::Consumed(step.to)))
            .chain(answer)
            .collect();
        write_u64(&mut out, records.len() as u64);
        records.iter().for_each(|record| record.encode(&mut out));
        out
    }

    /// Reads a batch that another node handed over to the one with these counts. Fails with [`Refusal::Redeclared`] for
    /// a schema that they never had, and with [`Refusal::Unavailable`] for anything that no node of this build sends.
    pub fn decode(bytes: &[u8], (hashes, live): (&SchemaHashes, &Live)) -> Result<Self, Refusal> {
        Self::decode_by(bytes, |hash| hashes.find(hash, live))
    }

    fn decode_by(
        bytes: &[u8],
        schema: impl Fn(&[u8; 32]) -> Option<Arc<Schema>>,
    ) -> Result<Self, Refusal> {
        let (hash, mut batch) = read_batch(bytes).ok_or_else(unreadable)?;
        if let Some(hash) = hash {
            batch.declared = Some(schema(&hash).ok_or(Refusal::Redeclared)?);
        }
        let declared = batch.declared.as_deref();
        let is_declared = |increment: &Increment| {
            declared.is_some_and(|schema| increment.is_declared(schema))
                && increment.identity.is_none()
        };
        match batch.increments.iter().all(is_declared) {
            true => Ok(batch),
            false => Err(unreadable()),
        }
    }
}

/// Appends the outcome of a batch.
pub fn encode_outcome(outcome: Result<Counted, Refusal>, out: &mut Vec<u8>) {
    let refusal = match outcome {
        Ok(counted) => {
            out.push(match counted.shown[..] {
                [] => COUNTED,
                _ => COUNTED_SHOWN,
            });
            write_ids(out, &counted.confirmed);
            if !counted.shown.is_empty() {
                write_ids(out, &counted.shown);
            }
            let answer = Record::Batch {
                identity: None,
                key: String::new(),
                body: 0,
                accepted: counted.accepted,
            };
            return answer.encode(out);
        }
        Err(refusal) => refusal,
    };
    let (kind, numbers) = match &refusal {
        Refusal::Items(_) => (ITEMS, None),
        Refusal::DiskFull => (DISK_FULL, None),
        Refusal::LogFull { bytes_max } => (LOG_FULL, Some([*bytes_max, 0])),
        Refusal::Unavailable(_) => (UNAVAILABLE, None),
        Refusal::KeyReused => (KEY_REUSED, None),
        Refusal::TooLarge { bytes, bytes_max } => {
            (TOO_LARGE, Some([*bytes as u64, *bytes_max as u64]))
        }
        Refusal::TooLargeForLog { bytes, bytes_max } => {
            (TOO_LARGE_FOR_LOG, Some([*bytes as u64, *bytes_max as u64]))
        }
        Refusal::Redeclared => (REDECLARED, None),
        Refusal::Consumed => (CONSUMED, None),
        Refusal::Busy => (BUSY, None),
    };
    out.push(kind);
    numbers
        .into_iter()
        .flatten()
        .for_each(|number| write_u64(out, number));
    match refusal {
        Refusal::Unavailable(why) => write_bytes(out, why.as_bytes()),
        Refusal::Items(wrong) => {
            write_u64(out, wrong.len() as u64);
            wrong.into_iter().for_each(|item| encode_wrong(item, out));
        }
        _ => {}
    }
}

/// Reads an outcome; none for anything that [`encode_outcome`] does not write.
pub fn decode_outcome(mut bytes: &[u8]) -> Option<Result<Counted, Refusal>> {
    let input = &mut bytes;
    let kind = *input.split_off_first()?;
    if kind == COUNTED || kind == COUNTED_SHOWN {
        let confirmed = read_many(input, read_id)?;
        let shown = match kind {
            COUNTED_SHOWN => read_many(input, read_id).filter(|shown| !shown.is_empty())?,
            _ => Vec::new(),
        };
        let Record::Batch { accepted, .. } = decode_all(input, 1).ok()?.pop()? else {
            return None;
        };
        return Some(Ok(Counted {
            accepted,
            confirmed,
            shown,
        }));
    }
    let mut size = || usize::try_from(read_u64(input)?).ok();
    let refusal = match kind {
        DISK_FULL => Refusal::DiskFull,
        LOG_FULL => {
            let bytes_max = size()? as u64;
            (size()? == 0).then_some(Refusal::LogFull { bytes_max })?
        }
        TOO_LARGE => Refusal::TooLarge {
            bytes: size()?,
            bytes_max: size()?,
        },
        TOO_LARGE_FOR_LOG => Refusal::TooLargeForLog {
            bytes: size()?,
            bytes_max: size()?,
        },
        UNAVAILABLE => Refusal::Unavailable(read_text(input)?),
        ITEMS => Refusal::Items(read_many(input, read_wrong)?),
        KEY_REUSED => Refusal::KeyReused,
        REDECLARED => Refusal::Redeclared,
        CONSUMED => Refusal::Consumed,
        BUSY => Refusal::Busy,
        _ => return None,
    };
    input.is_empty().then_some(Err(refusal))
}

const COUNTED: u8 = 0;
const ITEMS: u8 = 1;
const DISK_FULL: u8 = 2;
const LOG_FULL: u8 = 3;
const UNAVAILABLE: u8 = 4;
const KEY_REUSED: u8 = 5;
const TOO_LARGE: u8 = 6;
const TOO_LARGE_FOR_LOG: u8 = 7;
const REDECLARED: u8 = 8;
const CONSUMED: u8 = 9;
const BUSY: u8 = 10;
const COUNTED_SHOWN: u8 = 11;

/// The fields of producers that may be out of order.
const OUT_OF_ORDER: [&str; 3] = ["producer", "epoch", "sequence"];

impl RefusedItem {
    fn into_record(self) -> Record {
        Record::Refused {
            identity: None,
            id: self.id,
            field: self.field,
            detail: self.detail,
            namespaces: self.namespaces,
        }
    }
}

/// The batch without its schema, and the hash of that.
fn read_batch(mut bytes: &[u8]) -> Option<(Option<[u8; 32]>, Batch)> {
    let input = &mut bytes;
    let hash = read_optional(input, |bytes| bytes.try_into().ok())?;
    let identity = read_optional(input, |bytes| {
        let name = str::from_utf8(bytes).ok().filter(|name| is_identity(name));
        name.map(Into::into)
    })?;
    let held = read_optional(input, |bytes| {
        ReservationId::of_bytes(bytes.try_into().ok()?)
    })?;
    let confirming = read_many(input, |input| {
        let index = usize::try_from(read_u64(input)?).ok()?;
        Some((index, read_id(input)?))
    })?;
    let mut from = read_many(input, |input| {
        let is_known = *input.split_off_first()?;
        let next = read_u64(input)?;
        match (is_known, next) {
            (0, 0) => Some(None),
            (1, next) => Some(Some(next)),
            _ => None,
        }
    })?
    .into_iter();
    let mut batch = Batch {
        identity,
        held,
        confirming,
        ..Batch::default()
    };
    read_records(input, &mut batch, &mut from)?;
    let is_rising = batch.confirming.is_sorted_by(|one, next| one.0 < next.0);
    let last = batch.confirming.last();
    let is_there = last.is_none_or(|(index, _)| *index < batch.increments.len());
    (from.next().is_none() && is_rising && is_there).then_some((hash, batch))
}

/// Reads the records of a batch, and what they say into the batch.
fn read_records(
    input: &mut &[u8],
    batch: &mut Batch,
    from: &mut impl Iterator<Item = Option<u64>>,
) -> Option<()> {
    let count = u32::try_from(read_u64(input)?).ok()?;
    let (mut is_answered, mut events) = (false, Vec::new());
    for record in decode_all(input, count).ok()? {
        // Nothing comes behind the answer.
        (!is_answered && record.identity().is_none()).then_some(())?;
        match record {
            Record::Increment(increment) => batch.increments.push(increment),
            Record::Refused {
                id,
                field,
                detail,
                namespaces,
                ..
            } => {
                (1..=ID_BYTES_MAX).contains(&id.len()).then_some(())?;
                batch.refused.push(RefusedItem {
                    id,
                    field,
                    detail,
                    namespaces,
                });
            }
            Record::Hold(shown) => events.push(ShownAction {
                id: ReservationId::of_bytes(shown.id.to_be_bytes())?,
                user: shown.user,
                what: shown.what,
            }),
            Record::HoldShown(ShownHold { strand, before, .. }) if batch.beside.is_none() => {
                batch.beside = Some((Until { strand, before }, std::mem::take(&mut events)));
            }
            Record::HoldEnded { id } if batch.released.is_none() => {
                batch.released = Some(ReservationId::of_bytes(id.to_be_bytes())?);
            }
            Record::Consumed(to) => batch.consumed.push(Advance {
                from: from.next()?,
                to,
            }),
            Record::Batch {
                key,
                body,
                accepted,
                ..
            } => {
                is_answered = true;
                (batch.key, batch.skipped) = read_answer(key, body, accepted)?;
            }
            _ => return None,
        }
    }
    events.is_empty().then_some(())
}

/// Events of another strand as records of the holds that they name, and how far that strand is counted behind them.
fn beside_records((until, events): (Until, Vec<ShownAction>)) -> Vec<Record> {
    let held = events.into_iter().map(|shown| {
        Record::Hold(LoggedHold {
            id: u128::from_be_bytes(shown.id.to_bytes()),
            user: shown.user,
            what: shown.what,
            until_ms: 0,
        })
    });
    let Until { strand, before } = until;
    let id = 0;
    let until = Record::HoldShown(ShownHold { id, strand, before });
    held.chain([until]).collect()
}

/// The key of a batch, where it has one, and the items that were skipped.
fn read_answer(
    text: String,
    body: u128,
    accepted: Accepted,
) -> Option<(Option<BatchKey>, Vec<Skipped>)> {
    let Accepted { skipped, .. } = &accepted;
    let plain = Accepted {
        skipped: skipped.clone(),
        ..Accepted::default()
    };
    let is_new = accepted == plain && text.len() <= ID_BYTES_MAX;
    let key = (!text.is_empty()).then_some(BatchKey { text, body });
    is_new.then_some((key, accepted.skipped))
}

fn encode_wrong(item: WrongItem, out: &mut Vec<u8>) {
    write_u64(out, item.index as u64);
    match item.fault {
        ItemFault::Overflow { increment, field } => {
            let mut record = Vec::new();
            Record::Increment(*increment).encode(&mut record);
            out.push(0);
            write_bytes(out, &record);
            write_bytes(out, field.as_bytes());
        }
        ItemFault::Sequence(OutOfOrder {
            field,
            value,
            detail,
        }) => {
            let place = OUT_OF_ORDER.iter().position(|known| *known == field);
            let place = place.expect("BUG: a field of a producer");
            out.push(1 + place as u8);
            write_bytes(out, value.as_bytes());
            write_bytes(out, detail.as_bytes());
        }
    }
}

fn read_wrong(input: &mut &[u8]) -> Option<WrongItem> {
    let index = usize::try_from(read_u64(input)?).ok()?;
    let fault = match usize::from(*input.split_off_first()?).checked_sub(1) {
        None => {
            let mut record = decode_all(read_bytes(input)?, 1).ok()?;
            let Record::Increment(increment) = record.pop()? else {
                return None;
            };
            ItemFault::Overflow {
                increment: Box::new(increment),
                field: read_text(input)?,
            }
        }
        Some(place) => ItemFault::Sequence(OutOfOrder {
            field: OUT_OF_ORDER.get(place)?,
            value: read_text(input)?,
            detail: read_text(input)?,
        }),
    };
    Some(WrongItem { index, fault })
}

fn write_ids(out: &mut Vec<u8>, ids: &[ReservationId]) {
    write_u64(out, ids.len() as u64);
    ids.iter()
        .for_each(|id| out.extend_from_slice(&id.to_bytes()));
}

fn read_id(input: &mut &[u8]) -> Option<ReservationId> {
    ReservationId::of_bytes(read_array(input)?)
}

/// Reads a count and that many of something; none where one of them cannot be read.
fn read_many<T>(input: &mut &[u8], mut one: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = read_u64(input)?;
    (0..count).map(|_| one(input)).collect()
}

/// Reads something of a length; nothing where the length is 0, and none where it cannot be read.
fn read_optional<T>(input: &mut &[u8], read: impl FnOnce(&[u8]) -> Option<T>) -> Option<Option<T>> {
    match read_bytes(input)? {
        [] => Some(None),
        bytes => read(bytes).map(Some),
    }
}

fn unreadable() -> Refusal {
    Refusal::Unavailable(
        "a node handed over what the node that writes the log cannot read; nothing was counted: run one version on \
         all nodes, then retry"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use tallyring_records::{
        Consumed, Details, Event, Evidence, Offset, Origin, TopicPartition, UserKey,
    };

    use super::*;

    /// A schema with an event type, as [`full`] names it.
    fn schema() -> Arc<Schema> {
        let mut schema = Schema::default_clicks();
        schema.namespaces[0].name = "l_click".into();
        schema.events = vec![tallyring_records::EventType {
            name: "click".into(),
            entities: vec!["l".into()],
            lateness_seconds: 300,
            actions: false,
        }];
        Arc::new(schema)
    }

    fn id(bits: u128) -> ReservationId {
        ReservationId::of_bytes(bits.to_be_bytes()).expect("an id")
    }

    /// A batch with something in every field.
    fn full() -> Batch {
        let event = Increment {
            by: vec![("c".into(), "US".into())],
            id: Some("e\t1\n".into()),
            user: Some("jehiah".into()),
            event: Some(Box::new(Event {
                kind: "click".into(),
                view: Some("home".into()),
                correction: false,
            })),
            details: Some(Box::new(Details {
                set_aside: vec![("by.x".into(), "y".into())],
                insertion: Some("7".into()),
                referrer: Some("https://a.example/".into()),
                meta: Some("{\"a\":1}".into()),
                evidence: Evidence {
                    ip: Some("203.0.113.9".into()),
                    ua: Some("curl".into()),
                    referrer: Some("r".into()),
                },
            })),
            ..Increment::new(1_331_923_247, 1, [("l_click", "\0\u{65e5}")])
        };
        let numbered = Increment {
            origin: Some(Box::new(Origin {
                producer: "p".into(),
                epoch: 1,
                sequence: 2,
            })),
            ..Increment::new(1_331_923_248, 3, [("u", "a"), ("d", "b")])
        };
        let of = |partition| TopicPartition {
            topic: "t".into(),
            topic_id: "i".into(),
            cluster: "k".into(),
            partition,
        };
        let step = |partition, from| Advance {
            from,
            to: Consumed {
                of: of(partition),
                next: 9,
            },
        };
        Batch {
            increments: vec![event, numbered],
            declared: Some(schema()),
            confirming: vec![(0, id(7))],
            held: Some(id(8)),
            released: Some(id(9)),
            identity: Some("shop".into()),
            key: Some(BatchKey {
                text: "k1".into(),
                body: 1 << 100,
            }),
            refused: vec![RefusedItem {
                id: "e2".into(),
                field: "n".into(),
                detail: "must be 1".into(),
                namespaces: vec!["?".into(), "u".into()],
            }],
            skipped: vec![Skipped {
                index: 3,
                field: "at".into(),
                detail: "lies ahead".into(),
            }],
            consumed: vec![step(0, None), step(1, Some(4))],
            beside: None,
        }
    }

    fn encode(batch: &Batch) -> Vec<u8> {
        batch.clone().encode(&SchemaHashes::default())
    }

    fn decode(bytes: &[u8]) -> Result<Batch, Refusal> {
        Batch::decode_by(bytes, |hash| {
            Some(schema()).filter(|schema| schema.hash() == *hash)
        })
    }

    fn outcomes() -> Vec<Result<Counted, Refusal>> {
        let accepted = Accepted {
            accepted: 1,
            duplicates: 2,
            late: 3,
            filtered: 4,
            set_aside: 5,
            skipped: full().skipped,
        };
        let wrong = |index, fault| WrongItem { index, fault };
        let overflow = ItemFault::Overflow {
            increment: Box::new(full().increments.remove(0)),
            field: "keys.l".into(),
        };
        let sequence = |field| {
            ItemFault::Sequence(OutOfOrder {
                field,
                value: "7".into(),
                detail: "must be 8".into(),
            })
        };
        let mut items = vec![wrong(0, overflow)];
        items.extend(OUT_OF_ORDER.map(|field| wrong(1, sequence(field))));
        let sizes = (1 << 40, 1 << 20);
        vec![
            Ok(Counted::default()),
            Ok(Counted {
                accepted,
                confirmed: vec![id(7), id(8)],
                shown: Vec::new(),
            }),
            Err(Refusal::Items(items)),
            Err(Refusal::DiskFull),
            Err(Refusal::LogFull { bytes_max: 7 }),
            Err(Refusal::Unavailable("why\n".into())),
            Err(Refusal::KeyReused),
            Err(Refusal::TooLarge {
                bytes: sizes.0,
                bytes_max: sizes.1,
            }),
            Err(Refusal::TooLargeForLog {
                bytes: sizes.0,
                bytes_max: sizes.1,
            }),
            Err(Refusal::Redeclared),
            Err(Refusal::Consumed),
            Err(Refusal::Busy),
        ]
    }

    /// A batch that tells of events of another strand.
    fn of_events() -> Batch {
        let shown = |bits, what: &str| ShownAction {
            id: id(bits),
            user: UserKey::from_bytes([9; 12]),
            what: what.into(),
        };
        let before = Offset {
            epoch: 3,
            sequence: 4_711,
        };
        let until = Until { strand: 2, before };
        Batch {
            beside: Some((until, vec![shown(7, "click..l=a"), shown(8, "\0\n")])),
            ..Batch::default()
        }
    }

    fn told() -> Result<Counted, Refusal> {
        Ok(Counted {
            confirmed: vec![id(7)],
            shown: vec![id(9), id(9)],
            ..Counted::default()
        })
    }

    fn encoded(outcome: &Result<Counted, Refusal>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_outcome(outcome.clone(), &mut out);
        out
    }

    /// A text of a batch is equal where all of it is.
    fn shown(batch: &Batch) -> String {
        format!("{batch:?}")
    }

    #[test]
    fn every_field_of_a_batch_and_every_outcome_travels() {
        for batch in [full(), of_events(), Batch::default()] {
            let read = decode(&encode(&batch)).expect("a batch");
            assert_eq!(shown(&read), shown(&batch));
        }
        for outcome in outcomes().into_iter().chain([told()]) {
            assert_eq!(decode_outcome(&encoded(&outcome)), Some(outcome));
        }
    }

    #[test]
    fn the_bytes_stay_as_nodes_of_other_builds_write_them() {
        let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..16].to_owned();
        let outcomes: Vec<u8> = outcomes().iter().flat_map(encoded).collect();
        let declared = Batch {
            declared: None,
            ..full()
        };
        assert_eq!(
            [hash(&encode(&declared)), hash(&outcomes)],
            ["e3bd7d50941a5a90", "766894fcc8b2072e"]
        );
        assert_eq!(encode(&Batch::default()), [0; 6]);
    }

    #[test]
    fn a_batch_that_no_node_sends_is_refused() {
        let refused = |change: fn(&mut Batch)| {
            let mut batch = full();
            change(&mut batch);
            decode(&encode(&batch)).expect_err("refused")
        };
        let odd: [fn(&mut Batch); 11] = [
            |batch| batch.declared = None,
            |batch| batch.identity = Some("a b".into()),
            |batch| batch.confirming = vec![(2, id(1))],
            |batch| batch.confirming = vec![(0, id(1)), (0, id(2))],
            |batch| batch.increments[0].n = 0,
            |batch| batch.increments[0].keys[0].0 = "x".into(),
            |batch| batch.increments[0].identity = Some("other".into()),
            |batch| batch.increments[1].keys.clear(),
            |batch| batch.refused[0].id = String::new(),
            |batch| batch.key.as_mut().expect("a key").text = "x".repeat(ID_BYTES_MAX + 1),
            |batch| batch.consumed[0].to.of.topic = "\n".into(),
        ];
        for change in odd {
            assert_eq!(refused(change), unreadable());
        }
        let redeclared = refused(|batch| {
            batch.declared = Some(Arc::new(Schema::default_clicks()));
        });
        assert_eq!(redeclared, Refusal::Redeclared);
    }

    proptest! {
        /// Bytes are read or refused, whatever they are; and what is read is written so again.
        #[test]
        fn prop_any_bytes_are_read_or_refused(
            random in vec(any::<u8>(), 0..200),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in option::of(any::<prop::sample::Index>()),
        ) {
            let change = |mut bytes: Vec<u8>| {
                for (place, byte) in &changes {
                    let place = place.index(bytes.len());
                    bytes[place] = *byte;
                }
                let length = cut.map_or(bytes.len(), |cut| cut.index(bytes.len()));
                bytes.truncate(length);
                bytes
            };
            for bytes in [random.clone(), change(encode(&full())), change(encode(&of_events()))] {
                if let Ok(batch) = decode(&bytes) {
                    let again = decode(&encode(&batch)).expect("a batch");
                    prop_assert_eq!(shown(&again), shown(&batch));
                }
            }
            for bytes in outcomes().iter().chain([&told()]).map(encoded).map(change).chain([random]) {
                if let Some(outcome) = decode_outcome(&bytes) {
                    prop_assert_eq!(decode_outcome(&encoded(&outcome)), Some(outcome));
                }
            }
        }
    }
}
