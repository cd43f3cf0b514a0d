//! A record that cannot be read.

use thiserror::Error;

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "record {index} of the frame is not readable (kind {kind}); it was written by a newer build or is damaged"
)]
pub struct RecordError {
    /// The number of the record in its frame, from 0.
    pub index: u32,
    /// The kind byte of the record.
    pub kind: u8,
}
