//! The fields of a record that deletes the counts of a key, or gives them back ([`crate::log`] describes them).

use serde::{Deserialize, Serialize};

use super::void::{read_actor, read_reason};
use crate::day::Day;
use crate::varint::{read_day, read_text, write_bytes, write_u64};

/// Most days of one order: of a delete, whose record has no more, and of a reconcile.
pub const ORDER_DAYS_MAX: u32 = 400;

const GONE: u8 = 0;
const BACK: u8 = 1;

/// An order about the counts of one key on some UTC days, of all records before this one. The newest
/// order about a key and a day holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// The namespace.
    pub namespace: String,
    /// The key, as it was sent.
    pub key: String,
    /// The first UTC day.
    pub from: Day,
    /// The last UTC day.
    pub to: Day,
    /// True where the counts count again, whatever was ordered before; false where they go.
    pub undo: bool,
    /// The reason, which a person gave; 1 to 256 bytes without control characters.
    pub reason: String,
    /// Id of the API key that ordered it; [`INSTALLATION`](crate::INSTALLATION) where there are no keys.
    pub actor: String,
}

impl Delete {
    /// The days in order, [`ORDER_DAYS_MAX`] at most.
    pub fn days(&self) -> impl Iterator<Item = Day> + use<> {
        self.from.through(self.to).take(ORDER_DAYS_MAX as usize)
    }

    /// True where the order is about a day.
    pub fn has(&self, day: Day) -> bool {
        (self.from..=self.to).contains(&day)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: u8) {
        out.push(kind);
        out.push(if self.undo { BACK } else { GONE });
        write_bytes(out, self.namespace.as_bytes());
        write_bytes(out, self.key.as_bytes());
        write_u64(out, self.from.number().into());
        write_u64(out, self.to.number().into());
        write_bytes(out, self.reason.as_bytes());
        write_bytes(out, self.actor.as_bytes());
    }

    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        let undo = match *input.split_off_first()? {
            GONE => false,
            BACK => true,
            _ => return None,
        };
        let delete = Self {
            undo,
            namespace: read_text(input)?,
            key: read_text(input)?,
            from: read_day(input)?,
            to: read_day(input)?,
            reason: read_reason(input)?,
            actor: read_actor(input)?,
        };
        let further = delete.to.number().checked_sub(delete.from.number())?;
        (further < ORDER_DAYS_MAX).then_some(delete)
    }
}
