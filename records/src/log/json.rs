//! Fields of a record that are JSON ([`crate::log`] says which).

use serde::Serialize;

use crate::varint::write_bytes;

/// Writes the kind, and what is plain data as JSON, as bytes.
pub(super) fn encode_json(out: &mut Vec<u8>, kind: u8, of: &impl Serialize) {
    out.push(kind);
    let text = serde_json::to_vec(of).expect("BUG: a record is plain data");
    write_bytes(out, &text);
}
