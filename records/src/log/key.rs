//! The fields of a record of an API key ([`crate::log`] describes them).

use crate::api_key::KeyEntry;
use crate::varint::{read_bytes, write_bytes};

/// Writes the kind and the key.
pub(super) fn encode_key(out: &mut Vec<u8>, kind: u8, key: &KeyEntry) {
    out.push(kind);
    let text = serde_json::to_vec(key).expect("BUG: a key is plain data");
    write_bytes(out, &text);
}

/// Reads the key behind the kind.
pub(super) fn decode_key(input: &mut &[u8]) -> Option<Box<KeyEntry>> {
    let key: KeyEntry = serde_json::from_slice(read_bytes(input)?).ok()?;
    key.is_valid().then(|| Box::new(key))
}
