//! The memory of a load: lanes that all threads fill.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rayon::prelude::*;
use tallyring_archive::Partition;
use tallyring_records::{LongKeys, Schema, ShardPrefix, line};

use super::chunk::{Chunk, Chunks, Format};
use super::error::{BadRow, LoadError, SHOWN_BYTES_MAX, WrongCounts};
use super::known::Known;
use super::lane::{Lane, TooLarge};
use super::partitions::Numbered;
use super::row::{Fields, Names, Reader, Row, StagedRows};
use super::{LoadOptions, OnBadRow, Progress, Step, ndjson, visits};
use crate::closed::first_open_year;

/// Number of lanes, about: enough that the keys of one lane fit into a processor's cache.
const LANES: u16 = 64;

/// Rows that a thread collects for one lane before it adds them, where memory is not short, bytes: some eight thousand
/// plain rows. Few keys of a lane are in a processor's cache when rows are added, so many rows have to come at once to
/// find keys there again. A load takes a tenth less time than with the rows of one chunk, which are a seventh of this.
const STAGED_BYTES_MAX: u64 = 256 << 10;

/// The part of the memory that all threads together may use for that: one in so many.
const STAGED_PART: u64 = 16;

/// Memory that each thread needs beside the rows, bytes: chunks, known texts, and a run that is being written.
const WORKING_BYTES: u64 = 15 << 20;

/// Rows in memory, by lane. All keys of a lane belong to one shard.
pub(super) struct Memory<'o> {
    lanes: Vec<Mutex<Lane>>,
    schema: &'o Schema,
    long_keys: &'o LongKeys,
    first_open_year: i16,
    latest: i64,
    names: Names,
    /// Rows that a thread collects for a lane, bytes.
    staged_bytes: usize,
    budget: u64,
    used: AtomicU64,
}

/// Why filling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// All files are read.
    End,
    /// The budget is used up.
    Full,
}

impl<'o> Memory<'o> {
    /// Creates empty memory.
    pub(super) fn new(options: &LoadOptions<'o>) -> Self {
        let lanes_a_shard = LANES.div_ceil(options.shards).max(1);
        let lanes = usize::from(lanes_a_shard) * usize::from(options.shards);
        let threads = rayon::current_num_threads() as u64;
        let buffers = threads * lanes as u64;
        let staged_bytes = (options.memory / STAGED_PART / buffers).min(STAGED_BYTES_MAX);
        let working = WORKING_BYTES * threads + staged_bytes * buffers;
        Self {
            lanes: (0..lanes).map(|_| Mutex::default()).collect(),
            schema: options.schema,
            long_keys: options.keys,
            first_open_year: first_open_year(options.today),
            latest: options.latest,
            names: Names::new(options.schema),
            staged_bytes: usize::try_from(staged_bytes).expect("BUG: staged bytes are bounded"),
            budget: options
                .memory
                .saturating_sub(working)
                .max(options.memory / 2 + 1),
            used: AtomicU64::new(0),
        }
    }

    /// Reads chunks with all threads until the files end or the budget is used up. The error is the first in the order
    /// of the files.
    pub(super) fn fill(
        &self,
        chunks: &mut Chunks<'_>,
        on_bad_row: OnBadRow<'_>,
        rows: &mut u64,
        progress: Progress<'_>,
    ) -> Result<Filled, LoadError> {
        let filling = Filling {
            memory: self,
            chunks: Mutex::new(chunks),
            on_bad_row,
            progress,
            rows: AtomicU64::new(*rows),
            ended: AtomicBool::new(false),
            failed: Mutex::new(None),
        };
        rayon::scope(|scope| {
            for worker in 0..rayon::current_num_threads() {
                let filling = &filling;
                scope.spawn(move |_| filling.work(worker));
            }
        });
        *rows = filling.rows.into_inner();
        match filling.failed.into_inner() {
            Some((_, error)) => Err(error),
            None if filling.ended.into_inner() => Ok(Filled::End),
            None => Ok(Filled::Full),
        }
    }

    /// Sorts all rows and sums equal ones. Fails when a sum is too large.
    pub(super) fn combine(&mut self) -> Result<(), LoadError> {
        let wrong = self.lanes.par_iter_mut().find_map_first(|lane| {
            let lane = lane.get_mut();
            let wrong = lane.combine().err()?;
            Some(too_large(lane, wrong))
        });
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let bytes = self.lanes.iter().map(|lane| lane.lock().bytes() as u64);
        self.used = AtomicU64::new(bytes.sum());
        Ok(())
    }

    /// True when summing did not free enough memory to go on reading.
    pub(super) fn is_still_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.budget / 4 * 3
    }

    /// Whether the values of each bucket of a breakdown sum to its total. The rows are combined.
    pub(super) fn balances(&mut self) -> bool {
        self.lanes.par_iter_mut().all(|lane| {
            let mut partitions = lane.get_mut().partitions.iter();
            partitions.all(|(_, rows)| rows.balance())
        })
    }

    /// All lanes, and the names of subtotals. With `n` shards, the lanes of a shard are every `n`-th one, from its
    /// number on.
    pub(super) fn lanes(&mut self) -> (Vec<&Lane>, &Names) {
        let lanes = self.lanes.iter_mut();
        let lanes = lanes.map(|lane| &*lane.get_mut()).collect();
        (lanes, &self.names)
    }

    fn lane_of(&self, prefix: &ShardPrefix, stored: &[u8]) -> usize {
        // The number of lanes is a multiple of the number of shards, so this refines the shard.
        let lanes = u16::try_from(self.lanes.len()).expect("BUG: few lanes");
        usize::from(prefix.shard_of(stored, lanes))
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.budget
    }
}

/// One filling, shared by its threads.
struct Filling<'f, 'o, 'p> {
    memory: &'f Memory<'o>,
    chunks: Mutex<&'f mut Chunks<'p>>,
    on_bad_row: OnBadRow<'f>,
    progress: Progress<'f>,
    rows: AtomicU64,
    ended: AtomicBool,
    /// The number and error of the failed chunk that comes first in the files.
    failed: Mutex<Option<(u64, LoadError)>>,
}

/// Rows that a thread has read and not yet added to lanes.
struct Batch {
    /// Rows by lane.
    lanes: Vec<StagedRows>,
    known: Known,
    /// Partition of each day since 2000, once it was needed.
    days: Vec<Option<Numbered>>,
}

impl Filling<'_, '_, '_> {
    fn work(&self, worker: usize) {
        let memory = self.memory;
        let mut batch = Batch {
            lanes: memory.lanes.iter().map(|_| StagedRows::default()).collect(),
            known: Known::default(),
            days: Vec::new(),
        };
        let mut buffer = Vec::new();
        while !memory.is_full() && self.failed.lock().is_none() {
            let mut chunks = self.chunks.lock();
            let chunk = match chunks.next(std::mem::take(&mut buffer)) {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    self.ended.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => return self.fail(u64::MAX, error),
            };
            let bytes = chunks.bytes_read();
            drop(chunks);
            if let Err(error) = self.chunk(&chunk, &mut batch, worker) {
                return self.fail(chunk.number, error);
            }
            let rows = self.rows.load(Ordering::Relaxed);
            (self.progress)(Step::Read { bytes, rows });
            buffer = chunk.bytes;
        }
        if self.failed.lock().is_none()
            && let Err(error) = self.flush(&mut batch, worker, 0)
        {
            self.fail(u64::MAX, error);
        }
    }

    fn chunk(&self, chunk: &Chunk, batch: &mut Batch, worker: usize) -> Result<(), LoadError> {
        let memory = self.memory;
        let Batch { lanes, known, .. } = batch;
        let mut reader = Reader::new(
            memory.schema,
            (memory.long_keys, known),
            &memory.names,
            memory.latest,
        );
        let mut count = 0;
        let mut each = |line: u64, fields: Result<Fields<'_>, String>, text: &[u8]| {
            let read = match fields {
                // Borrowed, because a copy would wait for bytes that were written just before.
                Ok(ref fields) => reader.row(fields, |prefix, stored| {
                    &mut lanes[memory.lane_of(prefix, stored)]
                }),
                Err(detail) => Err(detail),
            };
            match read {
                Ok(()) => {
                    count += 1;
                    Ok(())
                }
                Err(detail) => self.refuse(chunk, line, detail, text),
            }
        };
        let (bytes, first_line) = (&chunk.bytes, chunk.first_line);
        match &chunk.file.format {
            Format::Csv(columns) => columns.rows(bytes, first_line, &mut each)?,
            Format::NdJson => ndjson::rows(bytes, first_line, &mut each)?,
            foreign => count = self.records(foreign, chunk, &mut reader, lanes)?,
        }
        self.rows.fetch_add(count, Ordering::Relaxed);
        self.flush(batch, worker, memory.staged_bytes)
    }

    /// Reads records of another program, each of which is several rows: all of them count, or none. Returns how many
    /// records count.
    fn records(
        &self,
        format: &Format,
        chunk: &Chunk,
        reader: &mut Reader<'_>,
        lanes: &mut [StagedRows],
    ) -> Result<u64, LoadError> {
        let memory = self.memory;
        let mut count = 0;
        let mut read = |rows: &[Fields<'_>]| {
            let mut checked = StagedRows::default();
            for row in rows {
                reader.row(row, |_, _| &mut checked)?;
            }
            rows.iter().try_for_each(|row| {
                reader.row(row, |prefix, stored| {
                    &mut lanes[memory.lane_of(prefix, stored)]
                })
            })
        };
        let mut each = |line: u64, rows: Result<&[Fields<'_>], String>, text: &[u8]| {
            let rows = rows.and_then(|rows| {
                read(rows).map_err(|detail| match format {
                    Format::Foreign(columns) => columns.named(&detail),
                    _ => visits::named(&detail),
                })
            });
            match rows {
                Ok(()) => {
                    count += 1;
                    Ok(())
                }
                Err(detail) => self.refuse(chunk, line, detail, text),
            }
        };
        let (bytes, first_line) = (&chunk.bytes, chunk.first_line);
        match format {
            Format::Foreign(columns) => columns.rows(bytes, first_line, &mut each)?,
            Format::Visits(preset) => visits::rows(preset, bytes, first_line, &mut each)?,
            Format::Csv(_) | Format::NdJson => {}
        }
        Ok(count)
    }

    fn refuse(
        &self,
        chunk: &Chunk,
        line: u64,
        detail: String,
        text: &[u8],
    ) -> Result<(), LoadError> {
        (self.on_bad_row)(BadRow {
            file: chunk.file.name.clone(),
            line,
            detail,
            text: text[..text.len().min(SHOWN_BYTES_MAX)].to_vec(),
        })
    }

    /// The partition of a bucket, computed once for each day.
    fn partition(&self, row: &Row, days: &mut Vec<Option<Numbered>>) -> Numbered {
        let day = row.bucket.day();
        if days.len() <= day {
            days.resize(day + 1, None);
        }
        *days[day].get_or_insert_with(|| {
            Partition::keeping(row.bucket.code(), self.memory.first_open_year).into()
        })
    }

    /// Adds the rows of a batch to their lanes, where they have at least `least` bytes. Threads begin at different
    /// lanes, so that they seldom wait for each other.
    fn flush(&self, batch: &mut Batch, worker: usize, least: usize) -> Result<(), LoadError> {
        let lanes = &self.memory.lanes;
        let Batch {
            lanes: read, days, ..
        } = batch;
        let begin = worker * lanes.len() / rayon::current_num_threads();
        for number in (begin..lanes.len()).chain(0..begin) {
            let rows = &mut read[number];
            if rows.is_empty() || rows.bytes() < least {
                continue;
            }
            let mut lane = lanes[number].lock();
            let before = lane.bytes();
            for row in rows.iter() {
                lane.add(row, rows, self.partition(row, days));
                for (hash, raw) in rows.lookups(row) {
                    lane.look_up(hash, raw)?;
                }
            }
            rows.clear(self.memory.staged_bytes);
            let grown = lane.bytes().saturating_sub(before) as u64;
            self.memory.used.fetch_add(grown, Ordering::Relaxed);
        }
        Ok(())
    }

    fn fail(&self, chunk: u64, error: LoadError) {
        let mut failed = self.failed.lock();
        if failed.as_ref().is_none_or(|(first, _)| chunk < *first) {
            *failed = Some((chunk, error));
        }
    }
}

fn too_large(lane: &Lane, wrong: TooLarge) -> LoadError {
    let key = lane.keys.get(wrong.key);
    let raw = lane.raw(line::stored_key(key));
    WrongCounts::too_large(key, raw, wrong.bucket.code())
}
