//! What can go wrong with the live store.

use tallyring_records::{Increment, SchemaError};
use thiserror::Error;

use crate::oplog::OplogError;
use crate::store::SteppedBack;

/// An error of opening, reading or changing a store.
#[derive(Debug, Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    Archive(#[from] tallyring_archive::Error),
    /// The log.
    #[error(transparent)]
    Oplog(#[from] OplogError),
    /// What is declared.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The identity file.
    #[error("{name}: {what}")]
    Identity {
        /// File name.
        name: &'static str,
        /// What is wrong and what to do.
        what: String,
    },
    /// Files are missing that must be there.
    #[error("{0}")]
    Missing(String),
    /// The newest manifest was lost.
    #[error(
        "the log says that manifest {lost} was committed, but the newest that is left is {newest}: \
         {name} was lost. Nothing was changed. Put that file back, or restore the whole directory from a backup; \
         `tallyring verify --repair` does so from `--backup`, and without one goes on from manifest {newest}, where \
         everything it names is there: a dataset or a generation that came since does not count then, and its files are \
         kept in {aside}/",
        lost = .0.lost, newest = .0.newest, name = tallyring_archive::names::manifest(.0.lost),
        aside = tallyring_archive::names::ASIDE
    )]
    SteppedBack(SteppedBack),
    /// The store was opened for reading only.
    #[error(
        "the store is open for reading only; stop the server that holds it, or ask that server"
    )]
    ReadOnly,
    /// A replay that may not flush, or cannot, would take more memory than there is.
    #[error(
        "what the oplog holds and no run has takes {} MiB of memory so far, and there are {} MiB: open the directory with \
         `tallyring serve`, which flushes it to runs as it reads, or give this command more memory",
        bytes >> 20,
        memory_bytes >> 20
    )]
    Memory {
        /// Memory of deltas and ids.
        bytes: u64,
        /// Memory there is.
        memory_bytes: u64,
    },
    /// A change of the manifest failed half-way; what is on disk is right, this process cannot go on.
    #[error(
        "the manifest could not be committed earlier ({0}); restart, which reads what is on disk"
    )]
    Uncertain(String),
    /// A generation that is not kept.
    #[error("generation {number} is not kept; kept are {kept}")]
    NoGeneration {
        /// What was asked for.
        number: u64,
        /// What there is.
        kept: String,
    },
    /// One request that reads needs more memory than one may hold.
    #[error(
        "this request needs more than {} MiB of memory, which is what one request may hold; ask for a shorter range, a \
         coarser unit, or fewer keys at once", limit >> 20
    )]
    ReadTooLarge {
        /// Bytes that one request may hold.
        limit: usize,
    },
    /// All requests that read now need more memory than they may hold together.
    #[error(
        "the requests that read now need more than {} MiB of memory together; ask again in a moment", limit >> 20
    )]
    ReadsTooLarge {
        /// Bytes that all may hold together.
        limit: usize,
    },
    /// Nobody waits for the answer any more.
    #[error("the client no longer waits for the answer")]
    Abandoned,
    /// What a rebuild built does not fit the store any more.
    #[error("the rebuild's result does not fit: {0}; nothing was published, run it again")]
    StaleBuild(String),
    /// A dataset of that name exists.
    #[error("dataset `{0}` exists already; replace it with --replace, or choose another name")]
    DatasetTaken(String),
    /// There is no such dataset.
    #[error("there is no dataset `{}`; there are: {}", name.escape_debug(), if existing.is_empty() { "none" } else { existing })]
    NoDataset {
        /// Asked for.
        name: String,
        /// Those that are there.
        existing: String,
    },
    /// There is no such load.
    #[error("there is no load `{0}` that waits to be adopted")]
    NoLoad(String),
    /// A load cannot be taken.
    #[error("the load cannot be taken: {0}")]
    Load(String),
}

impl Error {
    /// True when the disk is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Archive(error) => error.is_disk_full(),
            Self::Oplog(error) => matches!(error, OplogError::Full { .. }),
            _ => false,
        }
    }
}

/// Why an increment was not accepted. Nothing of its batch was counted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Items that cannot be counted: at least one, by index. Without them the batch can be.
    #[error("{}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Items(Vec<WrongItem>),
    /// The disk is full. Reads go on.
    #[error("the disk is full; nothing was counted, retry when there is space")]
    DiskFull,
    /// The log failed: whether the increment is durable is unknown.
    #[error("{0}")]
    Unavailable(String),
    /// The batch's key came before with another body.
    #[error("this Idempotency-Key came before with another body; use a new key for another batch")]
    KeyReused,
    /// The queue is full.
    #[error("too many increments are waiting to be written; retry after a second")]
    Busy,
}

/// An item that keeps its batch from being counted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{fault}; nothing was counted")]
pub struct WrongItem {
    /// Index in the batch.
    pub index: usize,
    /// What is wrong with it.
    pub fault: ItemFault,
}

/// What is wrong with an item.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ItemFault {
    /// A counter would exceed 2^53−1.
    #[error("the counter of {field} would exceed 9007199254740991")]
    Overflow {
        /// The item itself.
        increment: Box<Increment>,
        /// `keys.<namespace>`.
        field: String,
    },
    /// A producer's number is not the one that follows.
    #[error("{}", .0.detail)]
    Sequence(OutOfOrder),
}

impl WrongItem {
    /// The item itself, where it may have an id.
    pub fn increment(&self) -> Option<&Increment> {
        match &self.fault {
            ItemFault::Overflow { increment, .. } => Some(increment),
            // What has a number has no id.
            ItemFault::Sequence(_) => None,
        }
    }
}

/// A field of a producer's that does not fit what it sent before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfOrder {
    /// `producer`, `epoch` or `sequence`.
    pub field: &'static str,
    /// As it was sent.
    pub value: String,
    /// What was expected instead.
    pub detail: String,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
