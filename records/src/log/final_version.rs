//! The fields of a record of a final version ([`crate::log`] describes them).

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::void::read_actor;
use super::{KIND_FINAL, KIND_FINAL_FORCED, KIND_FINAL_ORDERED, Record};
use crate::day::Day;
use crate::final_sums::FinalSums;
use crate::schema::is_false;
use crate::varint::{
    read_array, read_day, read_i64, read_i128, read_str, read_text, read_u64, read_u128,
    write_bytes, write_i64, write_i128, write_u64, write_u128,
};

/// Most hex digits of the hash of rules.
pub const RULES_CHARS_MAX: usize = 128;
/// Bytes of the hash of counts and verdicts.
pub(super) const CONTENT_BYTES: usize = 32;

/// A final version of a UTC day, as the log knows it: enough to make it again from the records before `upto`, and to
/// tell whether that is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedFinal {
    /// The day.
    pub day: Day,
    /// From 1; versions may skip numbers.
    pub version: u32,
    /// When it was published, Unix milliseconds.
    pub at_ms: i64,
    /// Records of the log before this one were judged.
    pub upto: u64,
    /// Ids of other days were known from this record on.
    pub ids_from: u64,
    /// Hash of the rules that judged: 1 to 128 hex digits.
    pub rules: String,
    /// Hash of its counts and verdicts: 64 hex digits.
    pub content: String,
    /// Sums by event type; those of plain increments stand under `increment`.
    pub types: BTreeMap<String, FinalSums>,
    /// True where its rules filtered more than a reconcile publishes by itself, and somebody insisted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forced: bool,
    /// Id of the API key that ordered it. [`INSTALLATION`](crate::INSTALLATION) while there are no keys, otherwise
    /// [`LOCAL`](crate::LOCAL) for a command on the machine; none where it became final by itself, or an older build
    /// wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// True for 1 to 128 hex digits.
pub fn is_hash_of_rules(text: &str) -> bool {
    (1..=RULES_CHARS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl LoggedFinal {
    /// Writes the kind and the fields. `content` is 64 lowercase hex digits, or all of them are written as 0.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match (&self.actor, self.forced) {
            (Some(_), _) => KIND_FINAL_ORDERED,
            (None, true) => KIND_FINAL_FORCED,
            (None, false) => KIND_FINAL,
        });
        write_u64(out, self.day.number().into());
        write_u64(out, self.version.into());
        write_i64(out, self.at_ms);
        write_u64(out, self.upto);
        write_u64(out, self.ids_from);
        write_bytes(out, self.rules.as_bytes());
        let content = HEXLOWER.decode(self.content.as_bytes()).ok();
        let content: Option<[u8; CONTENT_BYTES]> = content.and_then(|bytes| bytes.try_into().ok());
        out.extend_from_slice(&content.unwrap_or_default());
        write_u64(out, self.types.len() as u64);
        for (kind, sums) in &self.types {
            write_bytes(out, kind.as_bytes());
            for n in [sums.before, sums.after, sums.gross, sums.undecided] {
                write_u128(out, n);
            }
            write_u64(out, sums.causes.len() as u64);
            for (cause, n) in &sums.causes {
                write_bytes(out, cause.as_bytes());
                write_i128(out, *n);
            }
        }
        if let Some(actor) = &self.actor {
            out.push(self.forced.into());
            write_bytes(out, actor.as_bytes());
        }
    }

    /// Reads the fields behind the kind.
    pub(super) fn decode(kind: u8, input: &mut &[u8]) -> Option<Record> {
        let mut version = Self::decode_sums(input)?;
        version.forced = match kind {
            KIND_FINAL_ORDERED => match input.split_off_first()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            kind => kind == KIND_FINAL_FORCED,
        };
        if kind == KIND_FINAL_ORDERED {
            version.actor = Some(read_actor(input)?);
        }
        Some(Record::Final(version))
    }

    /// Reads the fields that all kinds have.
    fn decode_sums(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            day: read_day(input)?,
            version: u32::try_from(read_u64(input)?)
                .ok()
                .filter(|version| *version > 0)?,
            at_ms: read_i64(input)?,
            upto: read_u64(input)?,
            ids_from: read_u64(input)?,
            rules: read_str(input)
                .filter(|rules| is_hash_of_rules(rules))?
                .to_owned(),
            content: HEXLOWER.encode(&read_array::<CONTENT_BYTES>(input)?),
            types: read_map(input, |input| {
                let [before, after, gross, undecided] = [
                    read_u128(input)?,
                    read_u128(input)?,
                    read_u128(input)?,
                    read_u128(input)?,
                ];
                let sums = FinalSums {
                    before,
                    causes: read_map(input, read_i128)?,
                    after,
                    gross,
                    undecided,
                };
                sums.check().is_ok().then_some(sums)
            })?,
            forced: false,
            actor: None,
        })
    }
}

/// Reads a count, and as many names with what `read` reads behind each. The names ascend.
pub(super) fn read_map<T>(
    input: &mut &[u8],
    read: impl Fn(&mut &[u8]) -> Option<T>,
) -> Option<BTreeMap<String, T>> {
    let count = read_u64(input)?;
    let mut map = BTreeMap::new();
    for _ in 0..count {
        let name = read_text(input)?;
        let ascends = map.last_key_value().is_none_or(|(last, _)| *last < name);
        ascends.then_some(())?;
        map.insert(name, read(input)?);
    }
    Some(map)
}
