//! Bulk load: rows of historical counts, in any order, become sorted source runs.
//!
//! ```text
//! files ──chunks──▶ parse (all cores) ──▶ lanes: keys interned, rows by partition
//!                                           │ memory full: sort, sum; still full: spill as runs
//!                                           ▼
//!                              one run for each partition and shard, in `incoming/`
//! ```
//!
//! Invariants: nothing here counts until the holder of the lock adopts the runs; the runs depend on the rows
//! alone, not on their order, on threads or on memory; memory stays within the budget whatever the input.
//! A run is complete: every breakdown was compared with its totals.

mod balance;
mod chunk;
mod csv;
mod error;
mod field;
mod input;
mod lane;
mod memory;
mod ndjson;
mod order;
mod partitions;
mod row;
mod separators;
#[cfg(test)]
mod tests;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use tallyring_archive::{Disk, Error, RunEntry, names};
use tallyring_records::{Day, LongKeys, Schema};

pub use error::{BadRow, LoadError};
pub use input::{Counted, open as open_input};
use memory::Memory;

/// Memory of a load when none is named, bytes.
pub const MEMORY_DEFAULT: u64 = 512 << 20;

/// The least memory a load takes, bytes.
pub const MEMORY_MIN: u64 = 32 << 20;

/// What a load needs to know.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions<'a> {
    /// What the files begin with: the load's own id, lower-case letters and digits.
    pub id: &'a str,
    /// What may be counted.
    pub schema: &'a Schema,
    /// How long keys are stored in this installation.
    pub keys: &'a LongKeys,
    /// The ring's today: it tells which years are closed.
    pub today: Day,
    /// Shards of the runs.
    pub shards: u16,
    /// zstd level of the runs, 1–19.
    pub level: i32,
    /// Bytes of rows and keys held in memory, at least [`MEMORY_MIN`].
    pub memory: u64,
    /// Puts what a breakdown lacks under `-` instead of refusing it.
    pub fill: bool,
}

/// How far a load is.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Bytes of the files read, and rows taken from them.
    Read {
        /// Bytes as they are on disk.
        bytes: u64,
        /// Rows.
        rows: u64,
    },
    /// Runs written, of how many.
    Write {
        /// Written.
        done: usize,
        /// In all.
        all: usize,
    },
}

/// Hears of steps, from several threads.
pub type Progress<'p> = &'p (dyn Fn(Step) + Sync);

/// Takes rows that cannot be used; an error ends the load with it.
pub type OnBadRow<'b> = &'b (dyn Fn(BadRow) -> Result<(), LoadError> + Sync);

/// What a load made.
#[derive(Debug)]
pub struct Loaded {
    /// One run for each partition and shard that has rows, in `incoming/`, synced and named.
    pub runs: Vec<RunEntry>,
    /// Good rows.
    pub rows: u64,
    /// Times that memory was written out before the end.
    pub spills: usize,
    /// Files without a byte, as they were named.
    pub empty: Vec<Arc<str>>,
}

/// Sorts `files` (`-` is standard input) into runs.
///
/// # Errors
/// A file that cannot be read, a bad row that `on_bad_row` does not take, counts that do not balance, or the
/// disk. Files it made have names that begin with the id; whoever called removes them.
pub fn load(
    disk: &dyn Disk,
    files: &[PathBuf],
    options: LoadOptions<'_>,
    on_bad_row: OnBadRow<'_>,
    progress: Progress<'_>,
) -> Result<Loaded, LoadError> {
    let mut memory = Memory::new(&options);
    let mut chunks = chunk::Chunks::new(files);
    let mut spilled: Vec<RunEntry> = Vec::new();
    let mut spills = 0;
    let mut rows = 0;
    loop {
        let read = memory.fill(&mut chunks, on_bad_row, &mut rows, progress)?;
        memory.combine()?;
        let last = read.is_end();
        if last && spills == 0 {
            break;
        }
        if last || memory.is_still_full() {
            let what = format!("{}-part{spills}", options.id);
            let level = write::SPILL_LEVEL;
            spilled.extend(write::runs(
                disk,
                &mut memory,
                &options,
                &what,
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
    check_for_rows(files.len(), chunks.empty_files())?;
    let runs = if spills == 0 {
        write::runs(
            disk,
            &mut memory,
            &options,
            options.id,
            options.level,
            progress,
        )?
    } else {
        drop(memory);
        write::merged(disk, &spilled, &options, progress)?
    };
    let mut runs = balance::balanced(disk, runs, &options)?;
    runs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    disk.sync_directory(names::INCOMING)
        .map_err(Error::io("sync", names::INCOMING))?;
    Ok(Loaded {
        runs,
        rows,
        spills,
        empty: chunks.empty_files().to_vec(),
    })
}

/// Empty files are parts that had nothing to say, unless there is nothing but them.
fn check_for_rows(files: usize, empty: &[Arc<str>]) -> Result<(), LoadError> {
    match empty.first() {
        Some(file) if files == empty.len() => Err(LoadError::File {
            file: Arc::clone(file),
            what: csv::Columns::read(b"").err().unwrap_or_default(),
        }),
        _ => Ok(()),
    }
}
