//! The answer in a record of a batch ([`crate::log`] describes its fields).

use super::{KIND_BATCH, KIND_BATCH_FILTERED, KIND_BATCH_SET_ASIDE, KIND_BATCH_SKIPPED};
use crate::accepted::{Accepted, Skipped};
use crate::varint::{read_u64, write_bytes, write_u64};

pub(super) fn encode_batch(out: &mut Vec<u8>, key: &str, body: u128, accepted: &Accepted) {
    let (filtered, set_aside) = (accepted.filtered, accepted.set_aside);
    // A batch without filtered or skipped items or fields set aside is written in an older kind.
    let kind = match (accepted.skipped.is_empty(), filtered, set_aside) {
        (true, 0, 0) => KIND_BATCH,
        (true, _, 0) => KIND_BATCH_FILTERED,
        (false, _, 0) => KIND_BATCH_SKIPPED,
        _ => KIND_BATCH_SET_ASIDE,
    };
    out.push(kind);
    write_bytes(out, key.as_bytes());
    write_bytes(out, &body.to_be_bytes());
    for count in [accepted.accepted, accepted.duplicates, accepted.late] {
        write_u64(out, count);
    }
    if kind != KIND_BATCH {
        write_u64(out, filtered);
    }
    if matches!(kind, KIND_BATCH_SKIPPED | KIND_BATCH_SET_ASIDE) {
        Skipped::encode(&accepted.skipped, out);
    }
    if kind == KIND_BATCH_SET_ASIDE {
        write_u64(out, set_aside);
    }
}

/// Reads the answer of a record of this kind.
pub(super) fn decode_accepted(input: &mut &[u8], kind: u8) -> Option<Accepted> {
    Some(Accepted {
        accepted: read_u64(input)?,
        duplicates: read_u64(input)?,
        late: read_u64(input)?,
        filtered: match kind {
            KIND_BATCH => 0,
            _ => read_u64(input)?,
        },
        skipped: match kind {
            KIND_BATCH_SKIPPED | KIND_BATCH_SET_ASIDE => Skipped::decode(input)?,
            _ => Vec::new(),
        },
        set_aside: match kind {
            KIND_BATCH_SET_ASIDE => read_u64(input)?,
            _ => 0,
        },
    })
}
