//! A load whose runs are complete: `incoming/<load>.json`, which the holder of the lock reads to adopt them.
//!
//! It is JSON, written whole and synced before it is named; every run it lists was synced and named before.

use serde::{Deserialize, Serialize};
use tallyring_records::is_false;

use crate::blobs::Blobs;
use crate::error::{Error, Result};
use crate::names;
use crate::run::RunEntry;

/// The result of a load.
///
/// ```
/// use tallyring_archive::{Blobs, Staged};
///
/// let directory = tempfile::tempdir()?;
/// let blobs = Blobs::local(directory.path())?;
/// blobs.prepare()?;
/// let staged = Staged {
///     load: "0123456789abcdef".to_owned(),
///     store_id: "00".repeat(16),
///     rows: 0,
///     is_final: false,
///     runs: Vec::new(),
/// };
/// staged.write(&blobs)?;
/// assert_eq!(Staged::read(&blobs, "0123456789abcdef")?, staged);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Staged {
    /// The load's id, which its files begin with.
    pub load: String,
    /// The store it was sorted for: long keys are hashed by its secret.
    pub store_id: String,
    /// Good rows.
    pub rows: u64,
    /// True when its counts are to be part of the final numbers of their days. An older build refuses such a file.
    #[serde(default, rename = "final", skip_serializing_if = "is_false")]
    pub is_final: bool,
    /// Its runs, in `incoming/`.
    pub runs: Vec<RunEntry>,
}

impl Staged {
    /// Writes it beside its runs, whose names are made durable too.
    pub fn write(&self, blobs: &Blobs) -> Result<()> {
        let name = names::staged(&self.load);
        let json = serde_json::to_vec(self).expect("BUG: plain data");
        blobs.put(&name, &json).map(drop)
    }

    /// Reads it. Fails when it is not there.
    pub fn read(blobs: &Blobs, load: &str) -> Result<Self> {
        let name = names::staged(load);
        let content = blobs.read(&name)?;
        serde_json::from_slice(&content)
            .map_err(|error| Error::damaged(&name, 0, format!("it is not readable: {error}")))
    }
}
