//! Orders about the counts of keys, in manifests.

use serde::{Deserialize, Serialize};
use tallyring_records::{Delete, Offset};

/// Most orders that a manifest names.
pub const DELETES_MAX: usize = 1_000;

/// A [`Record::Delete`](tallyring_records::Record::Delete) of the log. Its record may have left the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteEntry {
    /// Where the record stands.
    pub at: Offset,
    /// When it arrived, Unix milliseconds.
    pub arrived_ms: i64,
    /// The order.
    pub order: Delete,
}
