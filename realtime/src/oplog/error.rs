//! Errors of the log: one variant for each next step of the operator or the caller.

use std::io;

use tallyring_archive::is_full;

use super::topic::TopicError;

/// The reason why the caller refused a frame during [`super::FileLog::open`] or [`super::scan`].
pub type ApplyError = Box<dyn std::error::Error + Send + Sync>;

/// A result of the oplog, unless it names another error.
pub(super) type Result<T, E = OplogError> = std::result::Result<T, E>;

/// A failure of the oplog. Files are named relative to the data directory.
#[derive(Debug, thiserror::Error)]
pub enum OplogError {
    /// The disk failed, and the log is unchanged. After a failed open the process must end: a sync that failed once may
    /// claim success when it is repeated.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// The file or directory.
        file: String,
        /// The failed action, as in "cannot write".
        action: &'static str,
        /// The error of the disk.
        source: io::Error,
    },

    /// The disk has no space. Nothing was appended and the log still works: free some space and try again.
    #[error("{file}: no space for {action}: {source}; nothing was appended, free disk space")]
    Full {
        /// The file that could not be written.
        file: String,
        /// The purpose of the space.
        action: &'static str,
        /// The error of the disk.
        source: io::Error,
    },

    /// The log has as many bytes as it may have. Nothing was appended and the log still works: segments that leave it,
    /// or a higher limit, make room.
    #[error(
        "the log has {bytes} bytes and may not grow above `oplog.max_bytes` = {bytes_max}; nothing was appended: raise \
         `oplog.max_bytes`, or lower `oplog.keep_days` so that old segments go earlier"
    )]
    Limit {
        /// Size of the log, bytes.
        bytes: u64,
        /// Size that the log may have, bytes.
        bytes_max: u64,
    },

    /// A write or sync failed. Frames since the last sync may or may not be on the disk, and this process can never
    /// learn which.
    #[error(
        "the oplog takes no more writes: {cause}; it is unknown whether the last appends are durable, so check the disk and \
         restart, which reads the log back"
    )]
    Poisoned {
        /// The first failure.
        cause: String,
    },

    /// The payload is larger than a frame may be.
    #[error("a frame of {bytes} bytes is above the limit of {bytes_max}; commit smaller groups")]
    TooLarge {
        /// Size of the payload, bytes.
        bytes: usize,
        /// Size that it may have, bytes.
        bytes_max: usize,
    },

    /// This node is not the writer of the log any more, or cannot tell whether its last appends count.
    #[error(
        "this node writes the log no more (epoch {epoch}): {cause}; appends that were not acknowledged may count or not: \
         send them again, with their ids, to the node that writes now"
    )]
    Deposed {
        /// The epoch in which the node wrote.
        epoch: u32,
        /// The first failure, or the other node's deed.
        cause: String,
    },

    /// A segment is damaged where it had been durable: acknowledged records may be lost.
    #[error(
        "{file}: damaged at byte {offset}, from record {sequence} on: {problem}; the start is refused: move the damaged \
         copy aside and restore this segment from a backup"
    )]
    Corrupt {
        /// The segment.
        file: String,
        /// Position of the damage in the file, bytes.
        offset: u64,
        /// Sequence number of the first record that cannot be read.
        sequence: u64,
        /// The found and the expected content.
        problem: String,
    },

    /// Segments are missing.
    #[error(
        "{file} is missing: records {from} to {to} cannot be read; restore it, or a backup of the \
         counts that holds those records",
        to = next - 1
    )]
    Missing {
        /// The first missing segment as far as it is known, otherwise the last.
        file: String,
        /// Sequence number of the first missing record.
        from: u64,
        /// Sequence number of the first record after the gap.
        next: u64,
    },

    /// The segment was written by another build.
    #[error(
        "{file}: oplog format {found}, this build reads formats up to {supported}; run the build that \
         wrote it, or upgrade"
    )]
    Version {
        /// The segment.
        file: String,
        /// Format of the segment.
        found: u16,
        /// The highest format that this build reads.
        supported: u16,
    },

    /// The segment belongs to another store.
    #[error(
        "{file}: the segment belongs to store {found}, but this data directory is store {expected}; restore the oplog that \
         belongs here, or name the topic of this store"
    )]
    ForeignStore {
        /// The segment.
        file: String,
        /// The store of the segment, in hex digits.
        found: String,
        /// The store of the data directory, in hex digits.
        expected: String,
    },

    /// The topic has no log where one should begin.
    #[error(
        "the log's topic has no segment header at offset {offset}; name the topic of this store, or begin the log with \
         `tallyring cluster init`"
    )]
    NoLog {
        /// Offset in the topic.
        offset: u64,
    },

    /// The topic, in which a log was to begin, has messages.
    #[error(
        "the log's topic is in use: it has had messages up to offset {end}, and a log begins in an empty topic alone; make \
         a new topic, or use the log that is there"
    )]
    TopicInUse {
        /// Offset behind the messages.
        end: u64,
    },

    /// The log's topic failed.
    #[error("the log's topic: cannot {action}: {source}")]
    Topic {
        /// The failed action, as in "cannot read".
        action: &'static str,
        /// The error of the topic.
        source: TopicError,
    },

    /// This node has records that the log's topic lacks.
    #[error(
        "the log's topic is another one, or was cut off: it ends at record {topic}, or differs before that, but this \
         node's copy of it in `oplog/` ends at record {mirror}, which may be the last copy; name the topic of this store, \
         or save `oplog/` of all nodes before you begin a topic anew"
    )]
    TopicDiffers {
        /// Sequence number after the last record of the mirror.
        mirror: u64,
        /// Sequence number after the last record of the topic.
        topic: u64,
    },

    /// The log's topic lost its end while this node read it.
    #[error(
        "the log's topic was cut off: it ends at offset {end}, but this node read it up to offset {next}, and its copy of \
         the log in `oplog/` may be the last one; save `oplog/` of all nodes before you go on"
    )]
    TopicCut {
        /// Offset behind the messages of the topic.
        end: u64,
        /// Offset behind the messages that this node read.
        next: u64,
    },

    /// Records between this node's mirror and the log's topic are gone.
    #[error(
        "the log's topic begins at record {topic}, but this node's copy of it in `oplog/` ends at record {mirror}: the \
         node was away for too long; move its `oplog/` aside, so that the node reads the topic from its begin"
    )]
    MirrorBehind {
        /// Sequence number after the last record of the mirror.
        mirror: u64,
        /// Sequence number of the first record of the topic.
        topic: u64,
    },

    /// The second copy of the log has records that the log lost.
    #[error(
        "the second copy of the log ends at record {copy}, but the log itself ends at record {log}: the records between may \
         have been acknowledged, and only the copy has them; make a new data directory with `tallyring restore BACKUP --log \
         COPY --data NEW`, or move the copy away to go on without these records"
    )]
    CopyAhead {
        /// Sequence number after the last record of the copy.
        copy: u64,
        /// Sequence number after the last record of the log.
        log: u64,
    },

    /// The directory of the second copy holds another log.
    #[error(
        "{file}: the second copy is of another log: {problem}; move the copy away, or name another directory for it"
    )]
    CopyDiffers {
        /// The segment, or the identity file.
        file: String,
        /// The difference.
        problem: String,
    },

    /// The caller refused a frame.
    #[error("{file}: the frame at byte {offset}, record {sequence}, cannot be applied: {source}")]
    Apply {
        /// The segment.
        file: String,
        /// Position of the frame in the file, bytes.
        offset: u64,
        /// Sequence number of the first record of the frame.
        sequence: u64,
        /// Why the caller refused the frame.
        source: ApplyError,
    },
}

impl OplogError {
    /// True when there is no room for a write, on the disk or below the limit. The log is unchanged then.
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Limit { .. })
    }

    /// The error for a segment of another store.
    pub(super) fn foreign(file: String, found: [u8; 16], expected: [u8; 16]) -> Self {
        let [found, expected] = [found, expected].map(|id| {
            let digits = id.iter().map(|byte| format!("{byte:02x}"));
            digits.collect::<String>()
        });
        Self::ForeignStore {
            file,
            found,
            expected,
        }
    }

    /// For `map_err`: wraps an error of the disk.
    pub(crate) fn io(file: &str, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io {
            file,
            action,
            source,
        }
    }

    /// For `map_err` where the log was not touched: tells a full disk from a failing one.
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
                    action: "write",
                    source,
                }
            }
        }
    }
}
