//! The fields of a record of an API key or a share ([`crate::log`] describes them).

use crate::api_key::KeyEntry;
use crate::varint::read_bytes;

/// Reads the key, or the share, behind the kind.
pub(super) fn decode_key(is_share: bool, input: &mut &[u8]) -> Option<Box<KeyEntry>> {
    let key: KeyEntry = serde_json::from_slice(read_bytes(input)?).ok()?;
    let is_right = key.is_valid() && key.shared.is_some() == is_share;
    is_right.then(|| Box::new(key))
}
