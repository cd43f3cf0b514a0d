//! The fields of a record of a hold ([`crate::log`] describes them).

use crate::actions::UserKey;
use crate::varint::{read_array, read_i64, read_str, write_bytes, write_i64};

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
