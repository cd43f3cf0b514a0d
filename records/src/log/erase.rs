//! The fields of a record that erases users ([`crate::log`] describes them).

use super::Record;
use crate::actions::UserKey;
use crate::varint::{read_array, read_u64, write_u64};

/// Writes the kind and the users.
pub(super) fn encode_erase(out: &mut Vec<u8>, kind: u8, users: &[UserKey]) {
    out.push(kind);
    write_u64(out, users.len() as u64);
    for user in users {
        out.extend_from_slice(user.as_bytes());
    }
}

/// Reads the users behind the kind.
pub(super) fn decode_erase(input: &mut &[u8]) -> Option<Record> {
    let count = read_u64(input)?;
    let user = |_| read_array(input).map(UserKey::from_bytes);
    let users = (0..count).map(user).collect::<Option<_>>()?;
    Some(Record::Erase { users })
}
