//! The fields of records of a hold ([`crate::log`] describes them).

use crate::actions::UserKey;
use crate::position::Offset;
use crate::varint::{read_array, read_i64, read_str, read_u64, write_bytes, write_i64, write_u64};

/// A user is about to do something, which caps count until the hold ends or an event takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedHold {
    /// The name of the hold.
    pub id: u128,
    /// The user.
    pub user: UserKey,
    /// The text of the action, as [`What`](crate::What) reads it.
    pub what: String,
    /// The hold counts until then, Unix milliseconds.
    pub until_ms: i64,
}

impl LoggedHold {
    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: u8) {
        out.push(kind);
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(self.user.as_bytes());
        write_bytes(out, self.what.as_bytes());
        write_i64(out, self.until_ms);
    }

    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            id: u128::from_be_bytes(read_array(input)?),
            user: UserKey::from_bytes(read_array(input)?),
            what: read_str(input)?.to_owned(),
            until_ms: read_i64(input)?,
        })
    }
}

/// An event that counts in another strand took the place of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownHold {
    /// The name of the hold; or one that only tells which users are concerned, where the hold is of before.
    pub id: u128,
    /// The number of that strand.
    pub strand: u32,
    /// A node that has counted everything before this offset of that strand has the event.
    pub before: Offset,
}

impl ShownHold {
    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: u8) {
        out.push(kind);
        out.extend_from_slice(&self.id.to_be_bytes());
        write_u64(out, self.strand.into());
        write_u64(out, self.before.epoch.into());
        write_u64(out, self.before.sequence);
    }

    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            id: u128::from_be_bytes(read_array(input)?),
            strand: u32::try_from(read_u64(input)?).ok()?,
            before: Offset {
                epoch: u32::try_from(read_u64(input)?).ok()?,
                sequence: read_u64(input)?,
            },
        })
    }
}

pub(super) fn encode_ended(out: &mut Vec<u8>, kind: u8, id: u128) {
    out.push(kind);
    out.extend_from_slice(&id.to_be_bytes());
}
