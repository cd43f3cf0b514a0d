//! Immutable files: runs and archive, their reader, the block index, manifests, verification.
//!
//! This crate knows nothing of HTTP, of the oplog or of the clock: it turns sorted lines into
//! checked files and back, merges them, and names the files that count in numbered manifests.

mod blobs;
mod build;
mod counts_hash;
pub mod disk;
mod erasures;
mod error;
mod leftovers;
pub mod manifest;
pub mod merge;
pub mod names;
mod objects;
mod origin;
mod os_disk;
mod outage;
mod partition;
mod parts;
mod run;
pub mod sealed;
mod sign;
mod staged;
mod sweep;
mod verify;

pub use blobs::{Blobs, PutGroup, Unnamed};
pub use build::{Build, Cleaned, Work};
pub use counts_hash::counts_hash;
pub use disk::{Content, Disk, DiskFile};
pub use erasures::{ERASURES_MAX, Erasures, Hidden};
pub use error::{Error, Result, is_full};
pub use leftovers::{
    Cleared, any_sorted_file, clear_at_start, remove_leftovers, remove_unfinished, sorted_files,
};
pub use manifest::{
    ArchiveEntry, DELETES_MAX, DatasetEntry, DatasetProof, DeleteEntry, FilteredSums, FinalEntry,
    FinalProof, GENERATIONS_KEPT, GenerationEntry, IdRunEntry, IdsEntry, IntakeEntry, KeepDays,
    LeftOut, LoggedDatasets, Manifest, ProducerEntry, RepeatedKey, RepeatedKeys, SchemaEntry,
    StoreEntry, takes_place,
};
pub use objects::{ObjectInfo, Objects};
pub use origin::Origin;
pub use os_disk::{OsDisk, create_private};
pub use partition::Partition;
pub use parts::{ObjectParts, PartCache};
pub use run::{
    BLOCK_BYTES, BlockCache, Cursor, Run, RunEntry, RunMeta, RunSpec, RunWriter, Summary, Sums,
    TopList,
};
pub use sign::{Corrects, Sign};
pub use staged::Staged;
pub use sweep::{Sweep, Swept, Turn};
pub use tallyring_records::{FinalSums, ShownSums};
pub use verify::{Checked, verify_bytes, verify_on_disk, verify_run};
