//! The fields of a record of a refused increment ([`crate::log`] describes them).

use super::{KIND_REFUSED, KIND_REFUSED_OF, Record};
use crate::varint::{read_str, read_text, write_bytes};

/// Writes the kind and the fields.
pub(super) fn encode_refused(out: &mut Vec<u8>, texts: [&String; 3], namespaces: &[String]) {
    // A record without namespaces is written in the older kind.
    let kinds = [KIND_REFUSED_OF, KIND_REFUSED];
    out.push(kinds[usize::from(namespaces.is_empty())]);
    for text in texts {
        write_bytes(out, text.as_bytes());
    }
    if !namespaces.is_empty() {
        // Names have no spaces.
        write_bytes(out, namespaces.join(" ").as_bytes());
    }
}

/// Reads the fields behind the kind.
pub(super) fn decode_refused(kind: u8, input: &mut &[u8]) -> Option<Record> {
    Some(Record::Refused {
        identity: None,
        id: read_text(input)?,
        field: read_text(input)?,
        detail: read_text(input)?,
        namespaces: match kind {
            KIND_REFUSED => Vec::new(),
            _ => read_str(input)?.split(' ').map(str::to_owned).collect(),
        },
    })
}
