//! Errors of the live store, and refusals of increments.

use std::fmt;

use tallyring_archive::ERASURES_MAX;
use tallyring_records::{Day, FieldError, Increment, RulesError, SchemaError};
use thiserror::Error;

use crate::oplog::OplogError;
use crate::store::SteppedBack;

/// An error of opening, reading or changing a store.
#[derive(Debug, Error)]
pub enum Error {
    /// A file of the archive cannot be read or written.
    #[error(transparent)]
    Archive(#[from] tallyring_archive::Error),
    /// The log cannot be read or written.
    #[error(transparent)]
    Oplog(#[from] OplogError),
    /// The schema is invalid or cannot be stored.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A list of rules cannot be used.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// A field of an order cannot be used.
    #[error("{}", .0.detail)]
    Field(FieldError),
    /// A list is not declared, or shrank by more than half.
    #[error("list `{list}`: {what}")]
    List {
        /// Name of the list.
        list: String,
        /// The problem and its remedy.
        what: String,
    },
    /// The identity file is damaged.
    #[error("{name}: {what}")]
    Identity {
        /// File name.
        name: &'static str,
        /// The problem and its remedy, as a sentence.
        what: String,
    },
    /// Files that must exist are missing.
    #[error("{0}")]
    Missing(String),
    /// The newest manifest was lost.
    #[error(
        "the log says that manifest {lost} was committed, but the newest manifest in the directory is {newest}: \
         {name} was lost. Nothing was changed. Put that file back, or restore the whole directory from a backup. \
         `tallyring verify --repair` with `--backup` takes the file from a backup. Without `--backup` it continues from \
         manifest {newest} if every file that this manifest names exists: datasets and generations that were published \
         later do not count then, and their files are kept in {aside}/",
        lost = .0.lost, newest = .0.newest, name = tallyring_archive::names::manifest(.0.lost),
        aside = tallyring_archive::names::ASIDE
    )]
    SteppedBack(SteppedBack),
    /// The store was opened for reading only.
    #[error(
        "the store is open for reading only; stop the server that holds it, or ask that server"
    )]
    ReadOnly,
    /// Too many erased users wait to leave the files.
    #[error(
        "{waiting} erased users wait to leave the files, and at most {ERASURES_MAX} may wait; erase these after the rebuild \
         of the next night"
    )]
    Erasures {
        /// Users that wait.
        waiting: usize,
    },
    /// An id has too many counts to be voided.
    #[error("the log has {counts} counts of this id, and an id with at most 1,024 can be voided")]
    Voids {
        /// Counts that the log has.
        counts: usize,
    },
    /// Too many orders about the counts of keys are of days that may be reconciled again.
    #[error(
        "the store has {known} orders about the counts of keys, which is the most; a new one is possible once the oldest \
         days of these have left the log"
    )]
    Deletes {
        /// Orders that the store has.
        known: usize,
    },
    /// A replay that may not flush, or cannot, would take more memory than this process may use.
    #[error(
        "the records of the log that no run holds take {} MiB of memory so far, and this process may use {} MiB: open the \
         directory with `tallyring serve`, which flushes the records to runs as it reads, or give this command more memory",
        bytes >> 20,
        memory_bytes >> 20
    )]
    Memory {
        /// Memory that delta stores and ids take, bytes.
        bytes: u64,
        /// Memory that this process may use, bytes.
        memory_bytes: u64,
    },
    /// A commit of the manifest failed half-way. The files on disk are right, but this process cannot go on.
    #[error(
        "the manifest could not be committed earlier ({0}); restart the process, which then reads the files on disk"
    )]
    Uncertain(String),
    /// The generation is not kept.
    #[error("generation {number} is not kept; kept are {kept}")]
    NoGeneration {
        /// Number of the requested generation.
        number: u64,
        /// Numbers of the kept generations.
        kept: String,
    },
    /// A read of several strands asks for a kept generation.
    #[error(
        "this store has several strands, and each numbers generations of its own, so none is read by a number such as \
         {number}; ask for what is counted now"
    )]
    ManyGenerations {
        /// Number of the requested generation.
        number: u64,
    },
    /// One request needs more memory than one request may hold.
    #[error(
        "this request needs more than {} MiB of memory, the limit of one request; ask for a shorter range, a coarser unit, \
         or fewer keys at once", limit >> 20
    )]
    ReadTooLarge {
        /// Memory that one request may hold, bytes.
        limit: usize,
    },
    /// All running requests together need more memory than they may hold.
    #[error(
        "the requests that are running need more than {} MiB of memory together; retry in a moment", limit >> 20
    )]
    ReadsTooLarge {
        /// Memory that all requests together may hold, bytes.
        limit: usize,
    },
    /// The log does not hold the records that follow a cursor.
    #[error(
        "the log does not hold the records that follow this cursor; begin again at the time until which it was told"
    )]
    CursorGone {
        /// Buckets that end at this time or before were told, Unix seconds.
        settled: i64,
    },
    /// A cursor is behind records that this store lacks: they were lost, or another node has counted them already.
    #[error(
        "this cursor is behind records that are not counted here; ask again in a moment, or begin again at the time until \
         which it was told"
    )]
    CursorAhead {
        /// Buckets that end at this time or before were told, Unix seconds.
        settled: i64,
    },
    /// The client has gone, so the read was ended.
    #[error("the client no longer waits for the answer")]
    Abandoned,
    /// The result of a rebuild no longer fits the store.
    #[error(
        "the result of the rebuild does not fit the store: {0}; nothing was published, run the rebuild again"
    )]
    StaleBuild(String),
    /// A dataset of that name exists already.
    #[error("dataset `{0}` exists already; replace it with --replace, or choose another name")]
    DatasetTaken(String),
    /// No dataset has that name.
    #[error("no dataset is named `{}`; existing datasets: {}", name.escape_debug(), if existing.is_empty() { "none" } else { existing })]
    NoDataset {
        /// The requested name.
        name: String,
        /// Names of the existing datasets.
        existing: String,
    },
    /// No load has that name.
    #[error("no load `{0}` waits to be adopted")]
    NoLoad(String),
    /// A fix cannot be published.
    #[error("the fix cannot be published: {0}; nothing was changed")]
    Fix(String),
    /// A day is to be reconciled before it is closed.
    #[error(
        "{day} is not closed: it takes late events until the first rebuild on {} (UTC) or later; reconcile it after that",
        day.next().next()
    )]
    NotClosed {
        /// The day.
        day: Day,
    },
    /// A day cannot be reconciled.
    #[error("the day cannot be reconciled: {0}; nothing was changed")]
    Reconcile(String),
    /// A day of a read of final numbers has no such version.
    #[error("{day} is not final{}", others(versions))]
    NotFinal {
        /// The first such day.
        day: Day,
        /// Its final versions, ascending.
        versions: Vec<u32>,
    },
    /// A day of a read of final numbers has counts of a dataset that are no part of its final numbers.
    #[error("{day} may have counts of the dataset `{dataset}`, {beside}")]
    Loaded {
        /// The first such day.
        day: Day,
        /// The dataset.
        dataset: String,
        /// Why they are no part.
        beside: Beside,
    },
    /// A final day has the sums of its versions alone.
    #[error(
        "the books of {day} are no longer kept (`final.keep_days`); `/v1/finals/{day}` has the sums of its versions by event \
         type"
    )]
    SumsOnly {
        /// The first such day.
        day: Day,
    },
    /// A dataset whose counts are part of final numbers was to be dropped or replaced.
    #[error(
        "the counts of the dataset `{0}` are part of final numbers, which never change: it was loaded with --final, and a \
         generation counts it"
    )]
    DatasetFinal(String),
    /// A dataset was to be given up that is not lost.
    #[error("the dataset `{}` is not given up: {what}", name.escape_debug())]
    NotLost {
        /// The requested name.
        name: String,
        /// The reason, and what to do instead.
        what: String,
    },
    /// A read of final numbers covers too many days.
    #[error(
        "the range has {days} UTC days, and at most {days_max} final days are read at once; ask in parts"
    )]
    ManyFinalDays {
        /// Days of the range.
        days: usize,
        /// Days that one read may have.
        days_max: usize,
    },
    /// A final version of a day cannot be published.
    #[error("the final numbers cannot be published: {0}; nothing was changed")]
    Final(String),
    /// The load cannot be adopted.
    #[error("the load cannot be adopted: {0}")]
    Load(String),
}

/// Why the counts of a dataset are no part of final numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// It was not loaded as final.
    NotFinal,
    /// It was dropped or given up, and counts until the next rebuild.
    Dropped,
    /// It is final, and counts with the next rebuild.
    Waits,
    /// The log has its record, and no manifest names it.
    Lost,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFinal => "which was not loaded with --final",
            Self::Dropped => "which was dropped and counts until the next rebuild",
            Self::Waits => "which is final and counts with the next rebuild",
            Self::Lost => "which was part of final numbers and is lost",
        })
    }
}

/// The versions that a day has, behind the word that it lacks one.
fn others(versions: &[u32]) -> String {
    if versions.is_empty() {
        return String::new();
    }
    let versions: Vec<String> = versions.iter().map(u32::to_string).collect();
    format!(" in this version; its versions are {}", versions.join(", "))
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
    /// At least one item cannot be counted; the items are listed by index. The rest of the batch can be counted.
    #[error("{}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Items(Vec<WrongItem>),
    /// The disk is full. Reads continue.
    #[error("the disk is full; nothing was counted, retry when the disk has space")]
    DiskFull,
    /// The log has as many bytes as it may have. Reads continue.
    #[error(
        "the log may not grow above `oplog.max_bytes` = {bytes_max}, and none of its segments may go yet; nothing was \
         counted: raise `oplog.max_bytes`, or lower `oplog.keep_days`"
    )]
    LogFull {
        /// Size that the log may have, bytes.
        bytes_max: u64,
    },
    /// The log failed, so it is unknown whether the increment is durable.
    #[error("{0}")]
    Unavailable(String),
    /// An earlier batch with the same Idempotency-Key had another body.
    #[error("this Idempotency-Key came before with another body; use a new key for another batch")]
    KeyReused,
    /// Counting the batch would take more memory than delta stores may have.
    #[error(
        "this batch may take {bytes} bytes of memory once it is counted, and {bytes_max} are there for counts: \
        divide it into {} batches, or raise `memory.deltas_mib`",
        .bytes.div_ceil(*.bytes_max).max(2)
    )]
    TooLarge {
        /// Memory that the batch would take if everything in it were new, bytes.
        bytes: usize,
        /// Memory for one batch, bytes.
        bytes_max: usize,
    },
    /// The batch is larger than what the log takes at once.
    #[error("this batch has {bytes} bytes for the log, which takes {bytes_max} at once: divide it")]
    TooLargeForLog {
        /// Size of its records, bytes.
        bytes: usize,
        /// Size that they may have, bytes.
        bytes_max: usize,
    },
    /// The batch was checked by declarations that are in force no longer, and those in force lack what it names.
    #[error(
        "what is declared has changed while this was on its way, and it names what is declared no longer; nothing was \
         counted, retry with the same id: it is then read by what is declared now"
    )]
    Redeclared,
    /// The batch stands for messages of a topic, and the log is not where the batch begins: somebody else consumed
    /// them.
    #[error("messages of a topic were consumed already; nothing was counted")]
    Consumed,
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
    /// The fault of the item.
    pub fault: ItemFault,
}

/// Faults of items.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ItemFault {
    /// The counter would exceed 2^53−1.
    #[error("the counter of {field} would exceed 9007199254740991")]
    Overflow {
        /// The increment of the item.
        increment: Box<Increment>,
        /// Field of the request that names the counter: `keys.<namespace>`.
        field: String,
    },
    /// The producer, epoch or sequence number is not the expected one.
    #[error("{}", .0.detail)]
    Sequence(OutOfOrder),
}

impl WrongItem {
    /// The increment of the item; none where the item has a producer's number and therefore no id.
    pub fn increment(&self) -> Option<&Increment> {
        match &self.fault {
            ItemFault::Overflow { increment, .. } => Some(increment),
            ItemFault::Sequence(_) => None,
        }
    }
}

/// A field of a producer that does not fit the fields that the producer sent before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfOrder {
    /// `producer`, `epoch` or `sequence`.
    pub field: &'static str,
    /// The value that the client sent.
    pub value: String,
    /// A full sentence that says which value was expected.
    pub detail: String,
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
