//! What can go wrong with the log; a variant for each thing the operator or the caller does next.

use std::io;

use tallyring_archive::is_full;

use super::frame::PAYLOAD_BYTES_MAX;

/// The reason for which the caller refused a frame during [`super::Log::open`] or [`super::scan`].
pub type ApplyError = Box<dyn std::error::Error + Send + Sync>;

/// A failure of the oplog. Files are named relative to the data directory.
#[derive(Debug, thiserror::Error)]
pub enum OplogError {
    /// The disk refused something that leaves the log as it was. After a failed open the process
    /// must end: a sync that failed once may claim success when it is tried again.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// The file or directory.
        file: String,
        /// What was tried.
        action: &'static str,
        /// The answer.
        source: io::Error,
    },

    /// No space. Nothing was appended and the log still works: free some and try again.
    #[error("{file}: no space for {action}: {source}; nothing was appended, free disk space")]
    Full {
        /// The file that could not be written.
        file: String,
        /// What was tried.
        action: &'static str,
        /// The answer.
        source: io::Error,
    },

    /// A write or sync failed. What was appended since the last sync may or may not be on the
    /// disk, and this process can never learn which.
    #[error(
        "the oplog takes no more writes: {cause}; whether the last appends are durable is unknown, \
         check the disk and restart, which reads them back"
    )]
    Poisoned {
        /// The first failure.
        cause: String,
    },

    /// The payload is larger than a frame may be.
    #[error(
        "a frame of {bytes} bytes is above the limit of {PAYLOAD_BYTES_MAX}; commit smaller groups"
    )]
    TooLarge {
        /// Bytes of the payload.
        bytes: usize,
    },

    /// A segment is damaged where it had been durable: records that were acknowledged may be lost.
    #[error(
        "{file}: damaged at offset {offset}, record {sequence} on: {problem}; refusing to start: \
         move the damaged copy aside and restore this segment from a backup"
    )]
    Corrupt {
        /// The segment.
        file: String,
        /// Where in it.
        offset: u64,
        /// The first record that cannot be read.
        sequence: u64,
        /// What was found, and what was expected.
        problem: String,
    },

    /// Segments are not there.
    #[error(
        "{file} is missing: records {from} to {to} cannot be read; restore it, or a backup of the \
         counts that holds those records",
        to = next - 1
    )]
    Missing {
        /// The first missing segment as far as it is known, else the last.
        file: String,
        /// The first missing record.
        from: u64,
        /// The first record after the gap.
        next: u64,
    },

    /// Written by another build.
    #[error(
        "{file}: oplog format {found}, this build reads format {supported}; run the build that \
         wrote it, or upgrade"
    )]
    Version {
        /// The segment.
        file: String,
        /// Its format.
        found: u16,
        /// The one this build knows.
        supported: u16,
    },

    /// The segment belongs to another installation.
    #[error(
        "{file}: belongs to store {found}, this data directory is store {expected}; restore the \
         oplog that belongs here"
    )]
    ForeignStore {
        /// The segment.
        file: String,
        /// Its store, in hex.
        found: String,
        /// The store it was opened for, in hex.
        expected: String,
    },

    /// The second copy of the log holds what the log lost.
    #[error(
        "the second copy of the log reaches to record {copy}, the log itself to record {log}: the records between may have \
         been acknowledged, and the copy alone has them; make a new data directory with `tallyring restore BACKUP --log \
         COPY --data NEW`, or move the copy away to go on without them"
    )]
    CopyAhead {
        /// Number after the last record of the copy.
        copy: u64,
        /// Number after the last record of the log.
        log: u64,
    },

    /// The directory of the second copy holds another log.
    #[error(
        "{file}: the second copy is not one of this log: {problem}; move the copy away, or name another directory for it"
    )]
    CopyDiffers {
        /// The segment, or the identity.
        file: String,
        /// What was found.
        problem: String,
    },

    /// The caller refused a frame.
    #[error("{file}: the frame at offset {offset}, record {sequence}, cannot be applied: {source}")]
    Apply {
        /// The segment.
        file: String,
        /// Where the frame begins.
        offset: u64,
        /// Its first record.
        sequence: u64,
        /// Why.
        source: ApplyError,
    },
}

impl OplogError {
    /// For `map_err`: wraps an answer of the disk.
    pub(super) fn io(file: &str, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io {
            file,
            action,
            source,
        }
    }

    /// For `map_err` where nothing of the log was touched: tells a full disk from a failing one.
    pub(super) fn full_or_io(file: &str, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| {
            if is_full(&source) {
                Self::Full {
                    file,
                    action,
                    source,
                }
            } else {
                Self::Io {
                    file,
                    action,
                    source,
                }
            }
        }
    }
}
