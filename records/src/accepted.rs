//! The answer to a batch. The log keeps the answer, and a retry of the batch gets it again.

use std::iter::Sum;

use crate::varint::{read_text, read_u64, write_bytes, write_u64};

/// The answer to a batch, as numbers of its items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Items that count, the late ones included.
    pub accepted: u64,
    /// Items whose id or number was known; they do not count again.
    pub duplicates: u64,
    /// Items that count for days that were cut already or lie outside the ring, and events that came
    /// after their time was settled.
    pub late: u64,
    /// Events that a rule of the schema keeps from being counted; the log has them.
    pub filtered: u64,
    /// Fields of the items that count which were set aside.
    pub set_aside: u64,
    /// Items that the store refused while it counted the others. A retry reads the batch again, so items that
    /// cannot be read are not listed here.
    pub skipped: Vec<Skipped>,
}

/// The answer to a batch whose parts got these.
impl Sum for Accepted {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        let mut whole = Self::default();
        for part in parts {
            whole.accepted += part.accepted;
            whole.duplicates += part.duplicates;
            whole.late += part.late;
            whole.filtered += part.filtered;
            whole.set_aside += part.set_aside;
            whole.skipped.extend(part.skipped);
        }
        whole.skipped.sort_by_key(|item| item.index);
        whole
    }
}

/// An item that the store refused, of a batch whose other items count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The number of the item in the body, from 0.
    pub index: u64,
    /// The field that is wrong.
    pub field: String,
    /// The reason, and what the sender must change.
    pub detail: String,
}

impl Skipped {
    /// Appends the items of a batch that were skipped.
    pub(crate) fn encode(skipped: &[Self], out: &mut Vec<u8>) {
        write_u64(out, skipped.len() as u64);
        for item in skipped {
            write_u64(out, item.index);
            write_bytes(out, item.field.as_bytes());
            write_bytes(out, item.detail.as_bytes());
        }
    }

    /// Reads what [`Skipped::encode`] wrote.
    pub(crate) fn decode(input: &mut &[u8]) -> Option<Vec<Self>> {
        let count = read_u64(input)?;
        let mut skipped = Vec::new();
        for _ in 0..count {
            skipped.push(Self {
                index: read_u64(input)?,
                field: read_text(input)?,
                detail: read_text(input)?,
            });
        }
        Some(skipped)
    }
}
