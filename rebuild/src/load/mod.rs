//! Bulk load: rows of historical counts, in any order, become sorted source runs.
//!
//! ```text
//! files ──chunks──▶ parse (all cores) ──▶ lanes: keys interned, rows by partition
//!                                           │ memory full: sort, sum; still full: spill as runs
//!                                           ▼
//!                              one run for each partition and shard, in `incoming/`
//! ```
//!
//! Invariants: nothing counts until the holder of the lock adopts the runs. The runs depend on the rows alone, not on
//! their order, on threads or on memory. Memory stays within the budget whatever the input. A run is complete: every
//! breakdown was compared with its totals.

mod balance;
mod bucket;
mod chunk;
mod csv;
mod error;
mod field;
mod input;
mod known;
mod lane;
mod memory;
mod ndjson;
mod order;
mod partitions;
mod preset;
mod row;
mod separators;
#[cfg(test)]
mod tests;
mod visits;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use tallyring_archive::{Blobs, Origin, RunEntry};
use tallyring_records::{Day, LongKeys, Schema};

pub use csv::COLUMNS;
pub use error::{BadRow, LoadError};
pub use input::{Counted, open as open_input};
use memory::{Filled, Memory};
pub use preset::{Preset, Program};

/// Memory of a load by default where there is plenty, bytes.
pub const MEMORY_DEFAULT: u64 = 512 << 20;

/// The least memory a load takes, bytes.
pub const MEMORY_MIN: u64 = 32 << 20;

/// Options of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions<'a> {
    /// The load's own id, lower-case letters and digits, with which the names of its files begin.
    pub id: &'a str,
    /// Namespaces and subtotals that may be counted.
    pub schema: &'a Schema,
    /// Hash of long keys of the data directory.
    pub keys: &'a LongKeys,
    /// The ring's today, which tells which years are closed.
    pub today: Day,
    /// The latest hour that is taken, Unix seconds.
    pub latest: i64,
    /// Shards of the runs.
    pub shards: u16,
    /// zstd level of the runs, 1–19.
    pub level: i32,
    /// Memory for rows and keys, bytes, at least [`MEMORY_MIN`].
    pub memory: u64,
    /// Counts the missing part of a breakdown under `-` instead of refusing it.
    pub fill: bool,
    /// How files of another program count; none for rows of counts.
    pub preset: Option<&'a Preset>,
}

/// Progress of a load.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Bytes of the files that were read, and rows in them.
    Read {
        /// Bytes, as they are on disk.
        bytes: u64,
        /// Rows.
        rows: u64,
    },
    /// Runs that were written, and runs in all.
    Write {
        /// Runs that were written.
        done: usize,
        /// Runs in all.
        all: usize,
    },
}

/// A function that gets the progress, from several threads.
pub type Progress<'p> = &'p (dyn Fn(Step) + Sync);

/// A function that takes bad rows; its error ends the load.
pub type OnBadRow<'b> = &'b (dyn Fn(BadRow) -> Result<(), LoadError> + Sync);

/// Result of a load.
#[derive(Debug)]
pub struct Loaded {
    /// One run for each partition and shard that has rows, in `incoming/`, durable.
    pub runs: Vec<RunEntry>,
    /// Number of good rows.
    pub rows: u64,
    /// How often memory was written out before the end.
    pub spills: u32,
    /// Empty files, as the caller named them.
    pub empty: Vec<Arc<str>>,
}

/// Sorts `files` (`-` is standard input) into runs. Fails when `on_bad_row` refuses a bad row, or counts do not
/// balance. The names of new files begin with the id; after an error the caller removes the files.
pub fn load(
    blobs: &Blobs,
    files: &[PathBuf],
    options: LoadOptions<'_>,
    on_bad_row: OnBadRow<'_>,
    progress: Progress<'_>,
) -> Result<Loaded, LoadError> {
    let mut memory = Memory::new(&options);
    let mut chunks = chunk::Chunks::new(files, options.preset);
    let mut spilled: Vec<RunEntry> = Vec::new();
    let mut spills = 0;
    let mut rows = 0;
    loop {
        let read = memory.fill(&mut chunks, on_bad_row, &mut rows, progress)?;
        memory.combine()?;
        let last = read == Filled::End;
        if last && spills == 0 {
            break;
        }
        if last || memory.is_still_full() {
            let load = options.id.to_owned();
            let part = Origin::Spill { load, part: spills };
            let level = write::SPILL_LEVEL;
            spilled.extend(write::runs(
                blobs,
                &mut memory,
                &options,
                &part,
                level,
                &|_| {},
            )?);
            memory = Memory::new(&options);
            spills += 1;
        }
        if last {
            break;
        }
    }
    check_for_rows(files.len(), &chunks.empty)?;
    // Rows that are all in memory are compared there. Where they do not balance, the runs tell the first wrong bucket.
    let (runs, balance) = if spills == 0 {
        let origin = Origin::Sorted(options.id.to_owned());
        let level = options.level;
        let runs = write::runs(blobs, &mut memory, &options, &origin, level, progress)?;
        (runs, memory.balances())
    } else {
        drop(memory);
        (write::merged(blobs, &spilled, &options, progress)?, false)
    };
    let mut runs = match balance {
        true => runs,
        false => balance::balanced(blobs, runs, &options)?,
    };
    runs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Loaded {
        runs,
        rows,
        spills,
        empty: chunks.empty.clone(),
    })
}

/// Refuses a load of nothing but empty files. Beside other files, an empty file is a part without rows.
fn check_for_rows(files: usize, empty: &[Arc<str>]) -> Result<(), LoadError> {
    match empty.first() {
        Some(file) if files == empty.len() => Err(LoadError::File {
            file: Arc::clone(file),
            what: csv::Columns::read(b"").err().unwrap_or_default(),
        }),
        _ => Ok(()),
    }
}
