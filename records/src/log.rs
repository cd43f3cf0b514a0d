//! The records of the log.
//!
//! A record is a kind byte and varint fields, and a frame holds one or several records. Replay reads records and never
//! the clock, so everything that decides where an increment goes is a record.
//!
//! Integers are LEB128 without a sign. Integers marked i64 are zigzag first, so that small magnitudes are short.
//! Texts and bytes are their length, then as many bytes; texts are UTF-8. By kind:
//!
//! | kind | record | fields |
//! |---|---|---|
//! | 1 | increment | *body* |
//! | 2 | duplicate | id, sequence of the one that counted |
//! | 3 | rotate | number of the day that is today |
//! | 4 | cut | how many stores, then for each 0 and a day's number, or 1 and a late epoch, or 2, a day's number and the record from which its further store counts |
//! | 5 | schema | its JSON, as bytes |
//! | 6 | late increment | *body* |
//! | 7 | batch | key, hash of its body (16 bytes, the highest first, as bytes), accepted, duplicates, late |
//! | 8 | increment | *body*, *more* |
//! | 9 | late increment | *body*, *more* |
//! | 10 | refused | id, field, detail |
//! | 11 | filtered | the rule's name, then all of a record of kind 1 or 8, its kind byte included |
//! | 12 | batch | as 7, then filtered |
//! | 13 | refused | as 10, then its namespaces, joined by spaces, as one text |
//! | 14 | batch | as 12, then how many items were skipped, and of each its index, field and detail |
//! | 15 | turn | number of the day that is today, how many days got a store with it, and each one's number |
//! | 16 | manifest | its number |
//! | 20 | batch | as 14, then how many fields were set aside |
//! | 21 | of an identity | its name, then all of a record of kind 1, 2, 6 to 14, 20, 28 or 29, its kind byte included |
//! | 24 | reopen | number of the day that gets a further store |
//! | 25 | erase | how many users, and the 96 keyed bits of each one, as bytes |
//! | 26 | hold | id (16 bytes, the highest first), the user's 96 keyed bits, the text of the action, its end (Unix milliseconds, i64) |
//! | 27 | hold ended | id (16 bytes, the highest first) |
//! | 28 | void | id, time of the event (Unix seconds, i64), reason (1 to 256 bytes), the id of the API key that voided it |
//! | 29 | void asked | as 28; the key asked another one to confirm |
//! | 30 | final | number of the day, version, time of publication (Unix milliseconds, i64), the record before which the log was judged, the record from which ids of other days were known, hash of the rules (hex, as text), hash of counts and verdicts (32 bytes), how many event types, and of each its name, its sums before, after, gross and undecided (up to 128 bits), how many causes, and each one's name and sum (zigzag, up to 128 bits) |
//! | 31, 39 | final | as 30; somebody insisted on it (31), or ordered it (39): then follow 1 where somebody insisted on it, and 0 where not, and the id of the API key that ordered it |
//! | 32 | dataset | name, time of the load (Unix milliseconds, i64), rows, hash of its counts (32 bytes), how many namespaces, and of each its name, how many spans of days, and of each the numbers of its first and its last day |
//! | 33 | mark | nothing |
//! | 34, 41 | key | an API key (34) or a share (41), with the hash of its secret, as JSON, as bytes |
//! | 35 | began with | as 5 |
//! | 36 | dataset gone | as 32, then the reason (1 to 256 bytes) and the id of the API key that gave it up |
//! | 37 | consumed | name and id of a topic of Kafka, the id of the cluster, the number of a partition, the offset of its next message |
//! | 38 | hold shown | id (16 bytes, the highest first), the number of another strand, epoch and sequence of an offset of that strand |
//! | 40 | delete | 0 where the counts of a key go, 1 where they count again, namespace, key, numbers of the first and the last day, reason (1 to 256 bytes), the id of the API key that ordered it |
//!
//! *body* is the time (Unix seconds, i64), n, how many keys and each one's namespace and key, how many dimensions and
//! each one's name and value, id, user; an empty id or user is none.
//!
//! *more* is a sum of flags, then the fields that they announce: 1, the event is a correction (nothing follows); 2,
//! the event's type and view, an empty view being none; 4, the origin's producer, epoch and sequence; 16, how many
//! fields were set aside and each one's name and value; 32, insertion, referrer, meta (JSON), and the evidence's ip,
//! ua and referrer, an empty text being none. A record with any other flag cannot be read, because the flag may
//! change the meaning of the record.
//!
//! A record of kind 1, 2, 6 to 14, 20, 28 or 29 that stands alone is of no identity: there was no API key then.
//!
//! A record is written in the oldest kind that can hold it: 8 and 9 did not replace 1 and 6, nor 12, 14 and 20 kind 7,
//! nor 13 kind 10, nor 31 and 39 kind 30. So this build reads older logs, and older builds a log that uses nothing new.

mod batch;
mod body;
mod consumed;
mod dataset;
mod delete;
mod erase;
mod error;
mod final_version;
mod hold;
mod json;
mod key;
mod refused;
mod turn;
mod void;

pub use consumed::{Consumed, TopicPartition};
pub use dataset::{DatasetGone, LoggedDataset};
pub use delete::{Delete, ORDER_DAYS_MAX};
pub use error::RecordError;
pub use final_version::{LoggedFinal, RULES_CHARS_MAX, is_hash_of_rules};
pub use hold::{LoggedHold, ShownHold};
pub use void::{VOID_REASON_BYTES_MAX, Void, is_void_reason};

use batch::{decode_accepted, encode_batch};
use body::{decode_extended, decode_increment, encode_increment};
use erase::{decode_erase, encode_erase};
use hold::encode_ended;
use json::encode_json;
use key::decode_key;
use refused::{decode_refused, encode_refused};
use turn::{decode_turn, encode_turn};

use crate::accepted::Accepted;
use crate::actions::UserKey;
use crate::api_key::KeyEntry;
use crate::day::Day;
use crate::identity::is_identity;
use crate::increment::{Increment, Text};
use crate::position::StoreId;
use crate::schema::Schema;
use crate::varint::{
    read_array, read_bytes, read_day, read_str, read_text, read_u64, write_bytes, write_u64,
};

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An increment that counts in the store of its day.
    Increment(Increment),
    /// An increment that counts in the open late store: its day was cut already or lies outside the ring.
    Late(Increment),
    /// The verdict on an increment whose id was known: nothing counts.
    Duplicate {
        /// The identity that sent it; none where the store had no keys.
        identity: Option<Text>,
        /// The id that came again.
        id: String,
        /// Sequence of the increment that counts.
        of: u64,
    },
    /// An event that a rule keeps from being counted. Its id is known from here on.
    Filtered {
        /// The rule's name.
        rule: String,
        /// The increment that would have counted.
        increment: Increment,
    },
    /// A refused increment with an id, of a batch whose other items count.
    Refused {
        /// The identity that sent it; none where the store had no keys.
        identity: Option<Text>,
        /// The id. It stays unknown, so the corrected increment counts.
        id: String,
        /// The field that is wrong.
        field: String,
        /// The reason, and what the sender must change.
        detail: String,
        /// The namespaces that the increment named; `?` for a namespace that is not declared.
        namespaces: Vec<String>,
    },
    /// The answer to a whole batch that came with a key. It stands behind the records of the batch.
    Batch {
        /// The identity that sent it; none where the store had no keys.
        identity: Option<Text>,
        /// The `Idempotency-Key`, which the sender chose. Older builds wrote a key's id and a line's end before it.
        key: String,
        /// 128 keyed bits of the body: a known key with another body is refused.
        body: u128,
        /// The answer, which a retry gets again.
        accepted: Accepted,
    },
    /// The ring turned forward: `today` is the new today, and the store of tomorrow opens.
    Rotate {
        /// The new today.
        today: Day,
    },
    /// The ring turned in another way than forward to days that never had a store: back, because the clock that it had
    /// followed was ahead, or forward again after that.
    Turn {
        /// The new today.
        today: Day,
        /// Days that get a new store.
        opened: Vec<Day>,
    },
    /// These stores close here. Later increments for them go to the late store.
    Cut {
        /// The closed stores. A cut of the late store opens its next epoch.
        stores: Vec<StoreId>,
    },
    /// A day whose store is cut gets a further store, which takes the records behind this one.
    Reopen {
        /// The day.
        day: Day,
    },
    /// These users are erased: no action of a record before this one counts as theirs any more. Counts stay.
    Erase {
        /// The users.
        users: Vec<UserKey>,
    },
    /// A hold was made.
    Hold(LoggedHold),
    /// A hold ended: an event that counts took its place, or nobody will do what was held.
    HoldEnded {
        /// The name of the hold.
        id: u128,
    },
    /// A hold ended, because an event that counts in another strand took its place.
    HoldShown(ShownHold),
    /// An id was voided. No count changes by this record: the next reconcile of the day takes the count away.
    Void(Void),
    /// Somebody asked for a void, which another one has to confirm by a [`Record::Void`]. Nothing follows from it
    /// alone.
    VoidAsked(Void),
    /// The counts of a key on some days go, or count again. No count changes by this record: the next reconcile of each
    /// day obeys.
    Delete(Delete),
    /// A day has a final version. No count changes by this record: a manifest named the version before.
    Final(LoggedFinal),
    /// Loaded history is part of final numbers. No count changes by this record: a generation counts it already.
    Dataset(LoggedDataset),
    /// A final dataset that was lost is given up. Its days are final without it.
    DatasetGone(DatasetGone),
    /// The declaration of the namespaces that holds from here on.
    Schema(Schema),
    /// The declaration with which the store began. It puts nothing in force: the log of an older build lacked it, and
    /// without manifests the log alone has it.
    BeganWith(Schema),
    /// A manifest was durable before this record was written. It is the newest one from here on.
    Manifest {
        /// The number of the manifest.
        number: u64,
    },
    /// All nodes that follow the log freeze their memory here: runs of a later manifest hold what is before.
    Mark,
    /// An API key or a share was made or revoked. No count changes by this record.
    Key(Box<KeyEntry>),
    /// Messages of a topic were counted or skipped up to here. It stands in one frame with what they counted, and
    /// behind it.
    Consumed(Consumed),
}

const KIND_INCREMENT: u8 = 1;
const KIND_DUPLICATE: u8 = 2;
const KIND_ROTATE: u8 = 3;
const KIND_CUT: u8 = 4;
const KIND_SCHEMA: u8 = 5;
const KIND_LATE: u8 = 6;
const KIND_BATCH: u8 = 7;
const KIND_EXTENDED: u8 = 8;
const KIND_LATE_EXTENDED: u8 = 9;
const KIND_REFUSED: u8 = 10;
const KIND_FILTERED: u8 = 11;
const KIND_BATCH_FILTERED: u8 = 12;
const KIND_REFUSED_OF: u8 = 13;
const KIND_BATCH_SKIPPED: u8 = 14;
const KIND_TURN: u8 = 15;
const KIND_MANIFEST: u8 = 16;
const KIND_BATCH_SET_ASIDE: u8 = 20;
const KIND_OF_IDENTITY: u8 = 21;
const KIND_REOPEN: u8 = 24;
const KIND_ERASE: u8 = 25;
const KIND_HOLD: u8 = 26;
const KIND_HOLD_ENDED: u8 = 27;
const KIND_VOID: u8 = 28;
const KIND_VOID_ASKED: u8 = 29;
const KIND_FINAL: u8 = 30;
const KIND_FINAL_FORCED: u8 = 31;
const KIND_DATASET: u8 = 32;
const KIND_MARK: u8 = 33;
const KIND_KEY: u8 = 34;
const KIND_BEGAN_WITH: u8 = 35;
const KIND_DATASET_GONE: u8 = 36;
const KIND_CONSUMED: u8 = 37;
const KIND_HOLD_SHOWN: u8 = 38;
const KIND_FINAL_ORDERED: u8 = 39;
const KIND_DELETE: u8 = 40;
const KIND_SHARE: u8 = 41;

impl Record {
    /// The increment that the record counts, and whether it counts in the late store.
    pub fn increment(&self) -> Option<(bool, &Increment)> {
        match self {
            Self::Increment(increment) => Some((false, increment)),
            Self::Late(increment) => Some((true, increment)),
            _ => None,
        }
    }

    /// The UTC day of an event, counted or filtered, or of a void of one, by the event's own time. None for every other
    /// record, and for the increment that counts a filtered event.
    pub fn day(&self) -> Option<Day> {
        let at = match self {
            Self::Increment(increment)
            | Self::Late(increment)
            | Self::Filtered { increment, .. } => {
                return (increment.filtering_rule().is_none()).then(|| Day::of(increment.at));
            }
            Self::Void(void) | Self::VoidAsked(void) => void.at,
            _ => return None,
        };
        Some(Day::of(at))
    }

    /// The identity that the record's id, producer or key belongs to.
    pub fn identity(&self) -> Option<&Text> {
        match self {
            Self::Increment(increment)
            | Self::Late(increment)
            | Self::Filtered { increment, .. } => increment.identity.as_ref(),
            Self::Duplicate { identity, .. }
            | Self::Refused { identity, .. }
            | Self::Batch { identity, .. }
            | Self::Void(Void { identity, .. })
            | Self::VoidAsked(Void { identity, .. }) => identity.as_ref(),
            _ => None,
        }
    }

    /// The place of that identity; none in a record that can have none.
    fn identity_mut(&mut self) -> Option<&mut Option<Text>> {
        match self {
            Self::Increment(increment)
            | Self::Late(increment)
            | Self::Filtered { increment, .. } => Some(&mut increment.identity),
            Self::Duplicate { identity, .. }
            | Self::Refused { identity, .. }
            | Self::Batch { identity, .. }
            | Self::Void(Void { identity, .. })
            | Self::VoidAsked(Void { identity, .. }) => Some(identity),
            _ => None,
        }
    }

    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(identity) = self.identity() {
            out.push(KIND_OF_IDENTITY);
            write_bytes(out, identity.as_bytes());
        }
        match self {
            Self::Increment(increment) => {
                encode_increment(out, [KIND_INCREMENT, KIND_EXTENDED], increment)
            }
            Self::Late(increment) => {
                encode_increment(out, [KIND_LATE, KIND_LATE_EXTENDED], increment)
            }
            Self::Filtered { rule, increment } => {
                out.push(KIND_FILTERED);
                write_bytes(out, rule.as_bytes());
                encode_increment(out, [KIND_INCREMENT, KIND_EXTENDED], increment);
            }
            Self::Duplicate { id, of, .. } => {
                out.push(KIND_DUPLICATE);
                write_bytes(out, id.as_bytes());
                write_u64(out, *of);
            }
            Self::Refused {
                id,
                field,
                detail,
                namespaces,
                ..
            } => encode_refused(out, [id, field, detail], namespaces),
            Self::Batch {
                key,
                body,
                accepted,
                ..
            } => encode_batch(out, key, *body, accepted),
            Self::Rotate { today } => encode_number(out, KIND_ROTATE, today.number().into()),
            Self::Turn { today, opened } => {
                out.push(KIND_TURN);
                encode_turn(out, *today, opened);
            }
            Self::Cut { stores } => {
                out.push(KIND_CUT);
                StoreId::encode(stores, out);
            }
            Self::Reopen { day } => encode_number(out, KIND_REOPEN, day.number().into()),
            Self::Erase { users } => encode_erase(out, KIND_ERASE, users),
            Self::Hold(hold) => hold.encode(out, KIND_HOLD),
            Self::HoldEnded { id } => encode_ended(out, KIND_HOLD_ENDED, *id),
            Self::HoldShown(shown) => shown.encode(out, KIND_HOLD_SHOWN),
            Self::Schema(schema) => encode_json(out, KIND_SCHEMA, schema),
            Self::BeganWith(schema) => encode_json(out, KIND_BEGAN_WITH, schema),
            Self::Void(void) => void.encode(out, KIND_VOID),
            Self::VoidAsked(void) => void.encode(out, KIND_VOID_ASKED),
            Self::Delete(delete) => delete.encode(out, KIND_DELETE),
            Self::Final(version) => version.encode(out),
            Self::Dataset(dataset) => dataset.encode(out, KIND_DATASET),
            Self::DatasetGone(gone) => gone.encode(out, KIND_DATASET_GONE),
            Self::Manifest { number } => encode_number(out, KIND_MANIFEST, *number),
            Self::Mark => out.push(KIND_MARK),
            Self::Key(key) if key.shared.is_some() => encode_json(out, KIND_SHARE, key),
            Self::Key(key) => encode_json(out, KIND_KEY, key),
            Self::Consumed(consumed) => consumed.encode(out, KIND_CONSUMED),
        }
    }
}

fn encode_number(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    write_u64(out, number);
}

/// The number of the manifest when the payload begins with a `Manifest` record. Reads no other record.
pub fn noted_manifest(payload: &[u8]) -> Option<u64> {
    let (&KIND_MANIFEST, mut number) = payload.split_first()? else {
        return None;
    };
    read_u64(&mut number)
}

/// Reads the `count` records of a frame's payload. The error names the first record that cannot be read, or says that
/// bytes are left over.
///
/// ```
/// use tallyring_records::{Increment, Record, decode_all};
///
/// let records = vec![
///     Record::Increment(Increment::new(1_331_923_247, 1, [("l", "abc")])),
///     Record::Manifest { number: 7 },
/// ];
/// let mut payload = Vec::new();
/// for record in &records {
///     record.encode(&mut payload);
/// }
/// assert_eq!(decode_all(&payload, 2)?, records);
/// # Ok::<(), tallyring_records::RecordError>(())
/// ```
pub fn decode_all(mut payload: &[u8], count: u32) -> Result<Vec<Record>, RecordError> {
    let mut records = Vec::with_capacity((count as usize).min(payload.len()));
    for index in 0..count {
        let kind = payload.first().copied().unwrap_or(0);
        records.push(decode(&mut payload).ok_or(RecordError { index, kind })?);
    }
    match payload.first() {
        None => Ok(records),
        Some(&kind) => Err(RecordError { index: count, kind }),
    }
}

fn decode(input: &mut &[u8]) -> Option<Record> {
    let kind = *input.split_off_first()?;
    if kind != KIND_OF_IDENTITY {
        return decode_kind(kind, input);
    }
    let identity = read_str(input).filter(|name| is_identity(name))?;
    let kind = *input.split_off_first()?;
    let mut record = decode_kind(kind, input)?;
    *record.identity_mut()? = Some(identity.into());
    Some(record)
}

fn decode_kind(kind: u8, input: &mut &[u8]) -> Option<Record> {
    Some(match kind {
        KIND_INCREMENT => Record::Increment(decode_increment(input)?),
        KIND_LATE => Record::Late(decode_increment(input)?),
        KIND_EXTENDED => Record::Increment(decode_extended(input)?),
        KIND_LATE_EXTENDED => Record::Late(decode_extended(input)?),
        KIND_REFUSED | KIND_REFUSED_OF => decode_refused(kind, input)?,
        KIND_DUPLICATE => Record::Duplicate {
            identity: None,
            id: read_text(input)?,
            of: read_u64(input)?,
        },
        KIND_FILTERED => Record::Filtered {
            rule: read_text(input)?,
            increment: match *input.split_off_first()? {
                KIND_INCREMENT => decode_increment(input)?,
                KIND_EXTENDED => decode_extended(input)?,
                _ => return None,
            },
        },
        KIND_BATCH | KIND_BATCH_FILTERED | KIND_BATCH_SKIPPED | KIND_BATCH_SET_ASIDE => {
            Record::Batch {
                identity: None,
                key: read_text(input)?,
                body: u128::from_be_bytes(read_bytes(input)?.try_into().ok()?),
                accepted: decode_accepted(input, kind)?,
            }
        }
        KIND_ROTATE => Record::Rotate {
            today: read_day(input)?,
        },
        KIND_TURN => decode_turn(input)?,
        KIND_CUT => Record::Cut {
            stores: StoreId::decode(input)?,
        },
        KIND_REOPEN => Record::Reopen {
            day: read_day(input)?,
        },
        KIND_ERASE => decode_erase(input)?,
        KIND_HOLD => Record::Hold(LoggedHold::decode(input)?),
        KIND_HOLD_ENDED => Record::HoldEnded {
            id: u128::from_be_bytes(read_array(input)?),
        },
        KIND_HOLD_SHOWN => Record::HoldShown(ShownHold::decode(input)?),
        KIND_VOID => Record::Void(Void::decode(input)?),
        KIND_VOID_ASKED => Record::VoidAsked(Void::decode(input)?),
        KIND_DELETE => Record::Delete(Delete::decode(input)?),
        KIND_FINAL | KIND_FINAL_FORCED | KIND_FINAL_ORDERED => LoggedFinal::decode(kind, input)?,
        KIND_DATASET => Record::Dataset(LoggedDataset::decode(input)?),
        KIND_DATASET_GONE => Record::DatasetGone(DatasetGone::decode(input)?),
        KIND_SCHEMA => Record::Schema(serde_json::from_slice(read_bytes(input)?).ok()?),
        KIND_BEGAN_WITH => Record::BeganWith(serde_json::from_slice(read_bytes(input)?).ok()?),
        KIND_MANIFEST => Record::Manifest {
            number: read_u64(input)?,
        },
        KIND_MARK => Record::Mark,
        KIND_KEY | KIND_SHARE => Record::Key(decode_key(kind == KIND_SHARE, input)?),
        KIND_CONSUMED => Record::Consumed(Consumed::decode(input)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::accepted::Skipped;
    use crate::api_key::Scope;
    use crate::details::{Details, Evidence};
    use crate::final_sums::FinalSums;
    use crate::increment::{Event, Origin};
    use crate::position::Offset;
    use proptest::prelude::*;

    fn any_identity() -> impl Strategy<Value = Option<Text>> {
        proptest::option::of("[a-zA-Z0-9._-]{1,64}".prop_map(Text::from))
    }

    fn any_increment() -> impl Strategy<Value = Increment> {
        let pair = ("[a-z]{1,3}", "\\PC{0,30}");
        let pair = pair.prop_map(|(name, text)| (Text::from(name), Text::from(text)));
        let pairs = || proptest::collection::vec(pair.clone(), 0..4);
        let id = || proptest::option::of("\\PC{1,30}");
        let event =
            ("[a-z]{1,8}", id(), any::<bool>()).prop_map(|(kind, view, correction)| Event {
                kind,
                view,
                correction,
            });
        let origin = ("\\PC{1,9}", any::<u64>(), any::<u64>());
        let origin = origin.prop_map(|(producer, epoch, sequence)| Origin {
            producer,
            epoch,
            sequence,
        });
        let plain = (any::<i64>(), any::<u64>(), pairs(), pairs(), id(), id());
        let evidence =
            (id(), id(), id()).prop_map(|(ip, ua, referrer)| Evidence { ip, ua, referrer });
        let details = (pairs(), id(), id(), id(), evidence);
        let details =
            details.prop_map(|(set_aside, insertion, referrer, meta, evidence)| Details {
                set_aside,
                insertion,
                referrer,
                meta,
                evidence,
            });
        let event = proptest::option::of(event);
        let origin = proptest::option::of(origin);
        let more = (event, origin, details, any_identity());
        (plain, more).prop_map(
            |((at, n, keys, by, id, user), (event, origin, details, identity))| Increment {
                identity,
                at,
                n,
                keys,
                by,
                id,
                user,
                event: event.map(Box::new),
                origin: origin.map(Box::new),
                details: details.boxed(),
            },
        )
    }

    fn any_skipped() -> impl Strategy<Value = Skipped> {
        (any::<u64>(), "[a-z.]{0,9}", "\\PC{0,30}").prop_map(|(index, field, detail)| Skipped {
            index,
            field,
            detail,
        })
    }

    fn any_accepted() -> impl Strategy<Value = Accepted> {
        let skipped = proptest::collection::vec(any_skipped(), 0..3);
        (any::<[u64; 5]>(), skipped).prop_map(
            |([accepted, duplicates, late, filtered, set_aside], skipped)| Accepted {
                accepted,
                duplicates,
                late,
                filtered,
                set_aside,
                skipped,
            },
        )
    }

    /// The beginning of a hold, or an end of one.
    fn any_hold() -> impl Strategy<Value = Record> {
        let user = any::<[u8; 12]>().prop_map(UserKey::from_bytes);
        let fields = (any::<u128>(), user, any::<String>(), any::<i64>());
        let hold = fields.prop_map(|(id, user, what, until_ms)| {
            Record::Hold(LoggedHold {
                id,
                user,
                what,
                until_ms,
            })
        });
        let shown = any::<(u128, u32, u32, u64)>();
        let shown = shown.prop_map(|(id, strand, epoch, sequence)| {
            let before = Offset { epoch, sequence };
            Record::HoldShown(ShownHold { id, strand, before })
        });
        let ended = any::<u128>().prop_map(|id| Record::HoldEnded { id });
        prop_oneof![hold, shown, ended]
    }

    fn any_void() -> impl Strategy<Value = Record> {
        let fields = (
            any_identity(),
            "\\PC{0,30}",
            any::<i64>(),
            "[^\\p{Cc}]{1,60}",
            "[a-z0-9]{1,9}",
        );
        let void = fields.prop_map(|(identity, id, at, reason, actor)| Void {
            identity,
            id,
            at,
            reason,
            actor,
        });
        (void, any::<bool>()).prop_map(|(void, asks)| match asks {
            true => Record::VoidAsked(void),
            false => Record::Void(void),
        })
    }

    fn any_key() -> impl Strategy<Value = Record> {
        let scopes = proptest::sample::subsequence(&Scope::ALL, 0..4);
        let namespaces = proptest::option::of(proptest::collection::vec("\\PC{0,9}", 0..3));
        let texts = proptest::array::uniform2(proptest::option::of("\\PC{0,30}"));
        let numbers = any::<(Option<u32>, Option<u64>, i64, Option<i64>)>();
        let fields = (
            "[a-z2-7]{1,9}",
            any::<[u8; 32]>(),
            (scopes, namespaces, any_identity(), texts),
            numbers,
        );
        fields.prop_map(
            |(id, secret_hash, (scopes, namespaces, identity, [login, note]), numbers)| {
                let (limit, max_n, created_ms, revoked_ms) = numbers;
                Record::Key(Box::new(KeyEntry {
                    id,
                    secret_hash,
                    scopes,
                    namespaces,
                    login,
                    limit,
                    max_n,
                    identity: identity.map(|identity| identity.to_string()),
                    note,
                    created_ms,
                    revoked_ms,
                    shared: None,
                }))
            },
        )
    }

    fn any_consumed() -> impl Strategy<Value = Record> {
        let names = proptest::array::uniform3("[^\\p{Cc}]{1,30}");
        (names, any::<u32>(), any::<u64>()).prop_map(
            |([topic, topic_id, cluster], partition, next)| {
                let of = TopicPartition {
                    topic,
                    topic_id,
                    cluster,
                    partition,
                };
                Record::Consumed(Consumed { of, next })
            },
        )
    }

    fn any_sums() -> impl Strategy<Value = FinalSums> {
        let causes = proptest::collection::btree_map("[a-z:]{1,9}", any::<i64>(), 0..3);
        (causes, 0..u128::MAX >> 1, any::<[u64; 2]>()).prop_map(|(causes, n, rest)| {
            let causes: BTreeMap<String, i128> = causes
                .into_iter()
                .map(|(cause, n)| (cause, n.into()))
                .collect();
            let before = n.max(1 << 70);
            FinalSums {
                before,
                after: before.saturating_add_signed(causes.values().sum()),
                causes,
                gross: rest[0].into(),
                undecided: rest[1].into(),
            }
        })
    }

    fn any_delete() -> impl Strategy<Value = Record> {
        let days = (0..1_000_000_u32, 0..400_u32, any::<bool>());
        let texts = (
            "[a-z]{1,9}",
            "\\PC{1,30}",
            "[a-z ]{1,256}",
            "[a-zA-Z0-9._-]{1,64}",
        );
        (days, texts).prop_map(|((from, more, undo), (namespace, key, reason, actor))| {
            Record::Delete(Delete {
                namespace,
                key,
                from: Day::from_number(from),
                to: Day::from_number(from + more),
                undo,
                reason,
                actor,
            })
        })
    }

    fn any_final() -> impl Strategy<Value = Record> {
        let numbers = (
            any::<[u64; 2]>(),
            1..=u32::MAX,
            0..1_000_000_u32,
            any::<i64>(),
            any::<bool>(),
        );
        let actor = proptest::option::of("[a-zA-Z0-9._-]{1,64}");
        let texts = ("[0-9a-f]{1,128}", "[0-9a-f]{64}", actor);
        let types = proptest::collection::btree_map("[a-z]{1,9}", any_sums(), 0..3);
        (numbers, texts, types).prop_map(
            |(([upto, ids_from], version, day, at_ms, forced), (rules, content, actor), types)| {
                Record::Final(LoggedFinal {
                    day: Day::from_number(day),
                    version,
                    at_ms,
                    upto,
                    ids_from,
                    rules,
                    content,
                    types,
                    forced,
                    actor,
                })
            },
        )
    }

    fn any_dataset() -> impl Strategy<Value = Record> {
        let steps = proptest::collection::vec((1..9_u32, 0..400_u32), 0..4);
        let spans = steps.prop_map(|steps| {
            let mut next = 0;
            let spans = steps.into_iter().map(|(gap, days)| {
                let first = next + gap;
                next = first + days;
                (Day::from_number(first), Day::from_number(next))
            });
            spans.collect()
        });
        let days = proptest::collection::btree_map("[a-z]{1,9}", spans, 0..3);
        let numbers = (any::<i64>(), any::<u64>());
        ("[a-z0-9._-]{1,64}", numbers, "[0-9a-f]{64}", days).prop_map(
            |(name, (at_ms, rows), content, days)| {
                let dataset = LoggedDataset {
                    name,
                    at_ms,
                    rows,
                    content,
                    days,
                };
                match rows % 2 {
                    0 => Record::Dataset(dataset),
                    _ => Record::DatasetGone(DatasetGone {
                        dataset,
                        reason: "it burnt".into(),
                        actor: "installation".into(),
                    }),
                }
            },
        )
    }

    fn any_record() -> impl Strategy<Value = Record> {
        prop_oneof![
            any_increment().prop_map(Record::Increment),
            any_increment().prop_map(Record::Late),
            ("[a-z]{1,9}", any_increment())
                .prop_map(|(rule, increment)| Record::Filtered { rule, increment }),
            (any_identity(), "\\PC{0,30}", any::<u64>())
                .prop_map(|(identity, id, of)| Record::Duplicate { identity, id, of }),
            (
                any_identity(),
                "\\PC{0,30}",
                "[a-z.]{0,9}",
                "\\PC{0,30}",
                proptest::collection::vec("[a-z]{1,9}", 0..4)
            )
                .prop_map(|(identity, id, field, detail, namespaces)| {
                    Record::Refused {
                        identity,
                        id,
                        field,
                        detail,
                        namespaces,
                    }
                }),
            (any_identity(), "\\PC{0,30}", any::<u128>(), any_accepted()).prop_map(
                |(identity, key, body, accepted)| {
                    Record::Batch {
                        identity,
                        key,
                        body,
                        accepted,
                    }
                }
            ),
            (0..1_000_000_u32).prop_map(|day| Record::Rotate {
                today: Day::from_number(day)
            }),
            (
                0..1_000_000_u32,
                proptest::collection::vec(0..300_000_u32, 0..4)
            )
                .prop_map(|(today, opened)| Record::Turn {
                    today: Day::from_number(today),
                    opened: opened.into_iter().map(Day::from_number).collect(),
                }),
            proptest::collection::vec(
                prop_oneof![
                    (0..300_000_u32).prop_map(|day| StoreId::Day(Day::from_number(day))),
                    any::<u64>().prop_map(StoreId::Late),
                    (0..300_000_u32, any::<u64>())
                        .prop_map(|(day, from)| StoreId::Again(Day::from_number(day), from))
                ],
                0..4
            )
            .prop_map(|stores| Record::Cut { stores }),
            (0..1_000_000_u32).prop_map(|day| Record::Reopen {
                day: Day::from_number(day)
            }),
            proptest::collection::vec(any::<[u8; 12]>().prop_map(UserKey::from_bytes), 0..4)
                .prop_map(|users| Record::Erase { users }),
            any_hold(),
            prop_oneof![any_void(), any_delete()],
            any_final(),
            any_dataset(),
            Just(Record::Schema(Schema::default_clicks())),
            any::<u64>().prop_map(|number| Record::Manifest { number }),
            Just(Record::Mark),
            prop_oneof![any_key(), any_consumed()],
        ]
    }

    proptest! {
        #[test]
        fn prop_records_roundtrip(records in proptest::collection::vec(any_record(), 0..8)) {
            let mut payload = Vec::new();
            for record in &records {
                record.encode(&mut payload);
            }
            let count = u32::try_from(records.len()).unwrap();
            prop_assert_eq!(decode_all(&payload, count), Ok(records));
        }

        #[test]
        fn prop_any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), count in 0..4_u32) {
            let _ = decode_all(&bytes, count);
        }
    }

    #[test]
    fn a_batch_of_an_older_kind_is_read_and_written_alike() {
        let body = [7; 16];
        let before = [&[KIND_BATCH, 1, b'k', 16][..], &body, &[3, 2, 1]].concat();
        let filtered = [
            &[KIND_BATCH_FILTERED, 1, b'k', 16][..],
            &body,
            &[3, 2, 1, 9],
        ]
        .concat();
        for (bytes, filtered) in [(before, 0), (filtered, 9)] {
            let record = Record::Batch {
                identity: None,
                key: "k".to_owned(),
                body: u128::from_be_bytes(body),
                accepted: Accepted {
                    accepted: 3,
                    duplicates: 2,
                    late: 1,
                    filtered,
                    ..Accepted::default()
                },
            };
            assert_eq!(decode_all(&bytes, 1).as_deref(), Ok(&[record.clone()][..]));
            let mut again = Vec::new();
            record.encode(&mut again);
            assert_eq!(again, bytes);
        }
    }

    #[test]
    fn an_identity_stands_once_and_before_a_record_that_has_one_only() {
        let wrapped = |inner: &[u8]| [&[KIND_OF_IDENTITY, 1, b'k'][..], inner].concat();
        let duplicate = [KIND_DUPLICATE, 1, b'a', 7];
        assert!(decode_all(&wrapped(&duplicate), 1).is_ok());
        for wrong in [
            wrapped(&wrapped(&duplicate)),
            wrapped(&[KIND_MANIFEST, 7]),
            wrapped(&[]),
            [&[KIND_OF_IDENTITY, 0][..], &duplicate].concat(),
            [&[KIND_OF_IDENTITY, 1, b'\n'][..], &duplicate].concat(),
        ] {
            let error = decode_all(&wrong, 1).unwrap_err();
            assert_eq!(error.kind, KIND_OF_IDENTITY, "{wrong:?}");
        }
    }
}
