//! Immutable files: runs and archive, their reader, the block index, manifests, verification.
//!
//! This crate knows nothing of HTTP, of the oplog or of the clock: it turns sorted lines into
//! checked files and back, and names the files that count in numbered manifests.

pub mod disk;
mod os_disk;

pub use disk::{Content, Disk, DiskFile};
pub use os_disk::OsDisk;
