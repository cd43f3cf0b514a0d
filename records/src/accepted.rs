//! The answer to a batch. The log keeps the answer, and a retry of the batch gets it again.

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
    /// Items that the store refused while it counted the others. A retry reads the batch again, so items that
    /// cannot be read are not listed here.
    pub skipped: Vec<Skipped>,
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
