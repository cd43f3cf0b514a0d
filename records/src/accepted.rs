//! What became of a batch: its sender's answer, which the log keeps for a retry.

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Counted, `late` included.
    pub accepted: u64,
    /// Known already, not counted again.
    pub duplicates: u64,
    /// Counted for days that were exported already or lie outside the ring, and events that came
    /// after their time was settled.
    pub late: u64,
    /// Kept in the log, but not counted, as a rule of the schema says.
    pub filtered: u64,
    /// Items that the store refused while it took the others; those that could not be read are told anew.
    pub skipped: Vec<Skipped>,
}

/// An item that was refused of a batch whose other items were taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its place in the body, from 0.
    pub index: u64,
    /// The field that is wrong.
    pub field: String,
    /// What is wrong and what to change.
    pub detail: String,
}
