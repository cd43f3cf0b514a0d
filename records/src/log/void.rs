//! The fields of a record that voids an id ([`crate::log`] describes them).

use crate::identity::is_identity;
use crate::increment::Text;
use crate::varint::{read_i64, read_str, read_text, write_bytes, write_i64};

/// Longest reason, bytes.
pub const VOID_REASON_BYTES_MAX: usize = 256;

/// An id that people took out of the counts of one UTC day. It stays known, so what repeats it is still a duplicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Void {
    /// The identity that sent the id; none where the store had no keys then.
    pub identity: Option<Text>,
    /// The id.
    pub id: String,
    /// Time of the event, Unix seconds. Its UTC day loses the event.
    pub at: i64,
    /// The reason, which a person gave; 1 to 256 bytes without control characters.
    pub reason: String,
    /// Id of the API key that voided it; [`INSTALLATION`](crate::INSTALLATION) where there are no keys.
    pub actor: String,
}

/// True for a reason of 1 to 256 bytes without control characters that is not blank.
pub fn is_void_reason(reason: &str) -> bool {
    let is_long = (1..=VOID_REASON_BYTES_MAX).contains(&reason.len());
    is_long && !reason.trim().is_empty() && !reason.chars().any(char::is_control)
}

impl Void {
    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: u8) {
        out.push(kind);
        write_bytes(out, self.id.as_bytes());
        write_i64(out, self.at);
        write_bytes(out, self.reason.as_bytes());
        write_bytes(out, self.actor.as_bytes());
    }

    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            identity: None,
            id: read_text(input)?,
            at: read_i64(input)?,
            reason: read_reason(input)?,
            actor: read_actor(input)?,
        })
    }
}

/// The reason that a person gave.
pub(super) fn read_reason(input: &mut &[u8]) -> Option<String> {
    let is_long = |reason: &&str| (1..=VOID_REASON_BYTES_MAX).contains(&reason.len());
    read_str(input).filter(is_long).map(str::to_owned)
}

/// The id of an API key.
pub(super) fn read_actor(input: &mut &[u8]) -> Option<String> {
    let actor = read_str(input).filter(|actor| is_identity(actor));
    actor.map(str::to_owned)
}
