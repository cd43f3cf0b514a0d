//! Remembered ids: what makes a retry harmless.
//!
//! An id is 128 keyed bits of its text. It is known by itself, whatever its time or keys, for a
//! window by arrival. New ids are in memory; with every flush they become a sorted run of lines
//! `id|<32 hex digits>,<arrival minute>:<sequence>`, with a Bloom filter in memory that answers
//! "surely new" for nearly all others; the run decides. Runs are merged as they add up. A run whose
//! newest id is older than the window loses its filter: it only tells what became of an id, as long
//! as the log is kept. Cost: 38 to 76 MB a million ids in memory, as the table has just grown or is about to; 1.8 MB once they
//! are in a run.

mod compact;

pub use compact::compact;

use std::ops::ControlFlow;
use std::sync::Arc;

use fastbloom::BloomFilter;
use hashbrown::HashMap;
use tallyring_archive::{
    Blobs, BlockCache, Error, IdRunEntry, Origin, Partition, Result, Run, RunSpec, RunWriter,
};
use tallyring_records::line::{entries, push_entry};
use tallyring_records::{Grain, TimeCode};

/// All ids of the window.
pub struct Ids {
    recent: HashMap<u128, Seen>,
    /// Taken to be flushed; they count until the manifest names their run.
    frozen: Option<Arc<HashMap<u128, Seen>>>,
    runs: Vec<Arc<IdRun>>,
}

/// When and as which record an id was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The record that counted.
    pub sequence: u64,
    /// Arrival, Unix milliseconds.
    pub arrived_ms: i64,
}

/// A run of ids and, within the window, its filter.
pub struct IdRun {
    entry: IdRunEntry,
    run: Arc<Run>,
    filter: Option<BloomFilter>,
}

/// Chance that the filter of a run sends a new id to the run.
const FALSE_POSITIVES: f64 = 0.001;

/// Of a table at its fullest, seven eighths.
const BYTES_EACH: usize = (size_of::<(u128, Seen)>() + 1) * 8 / 7;

impl Ids {
    /// The ids of the runs that the manifest names; ids are known from `known_from_ms` on (Unix milliseconds).
    ///
    /// # Errors
    /// When a run cannot be read.
    pub fn open(blobs: &Blobs, entries: &[IdRunEntry], known_from_ms: i64) -> Result<Self> {
        let runs = entries
            .iter()
            .map(|entry| IdRun::open(blobs, entry.clone(), known_from_ms).map(Arc::new))
            .collect::<Result<_>>()?;
        Ok(Self {
            recent: HashMap::new(),
            frozen: None,
            runs,
        })
    }

    /// The record that counted this id, if it is known.
    ///
    /// # Errors
    /// When a run that may hold it is damaged.
    pub fn find(&self, cache: &BlockCache, id: u128) -> Result<Option<u64>> {
        let in_memory = self
            .recent
            .get(&id)
            .or_else(|| self.frozen.as_ref()?.get(&id));
        if let Some(seen) = in_memory {
            return Ok(Some(seen.sequence));
        }
        for run in &self.runs {
            let may_hold = run
                .filter
                .as_ref()
                .is_some_and(|filter| filter.contains(&id));
            if may_hold && let Some(sequence) = run.find(cache, id)? {
                return Ok(Some(sequence));
            }
        }
        Ok(None)
    }

    /// The record of an id in memory, and the runs that may hold one, those beyond the window too.
    pub fn places(&self, id: u128) -> (Option<u64>, Vec<Arc<IdRun>>) {
        let in_memory = self
            .recent
            .get(&id)
            .or_else(|| self.frozen.as_ref()?.get(&id));
        let may_hold = |run: &&Arc<IdRun>| {
            let filter = run.filter.as_ref();
            filter.is_none_or(|filter| filter.contains(&id))
        };
        let runs = self.runs.iter().filter(may_hold).map(Arc::clone);
        (in_memory.map(|seen| seen.sequence), runs.collect())
    }

    /// As [`Ids::places`], of the window alone: where [`Ids::find`] looks.
    pub fn known_places(&self, id: u128) -> (Option<u64>, Vec<Arc<IdRun>>) {
        let (sequence, mut runs) = self.places(id);
        runs.retain(|run| run.filter.is_some());
        (sequence, runs)
    }

    /// Remembers an id; the first one wins.
    pub fn insert(&mut self, id: u128, seen: Seen) {
        self.recent.entry(id).or_insert(seen);
    }

    /// Forgets an id of a record that was not written after all.
    pub fn withdraw(&mut self, id: u128) {
        self.recent.remove(&id);
    }

    /// Ids in memory.
    pub fn in_memory(&self) -> usize {
        self.recent.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.len())
    }

    /// Bytes of memory held by ids that are in no run.
    pub fn bytes(&self) -> usize {
        let frozen = self.frozen.as_deref().map_or(0, HashMap::capacity);
        (self.recent.capacity() + frozen) * BYTES_EACH
    }

    /// Sets the ids in memory aside, to be written; none when there are none.
    pub fn freeze(&mut self) -> Option<Arc<HashMap<u128, Seen>>> {
        let mut taken = std::mem::take(&mut self.recent);
        if let Some(frozen) = self.frozen.take() {
            // An earlier flush failed, and reads them no more: its ids are written with these, which are fewer.
            let mut earlier = Arc::unwrap_or_clone(frozen);
            for (id, seen) in taken {
                earlier.entry(id).or_insert(seen);
            }
            taken = earlier;
        }
        if taken.is_empty() {
            return None;
        }
        let taken = Arc::new(taken);
        self.frozen = Some(Arc::clone(&taken));
        Some(taken)
    }

    /// The manifest names these runs now: what was set aside is in the fresh ones, others are
    /// forgotten, and those older than `known_from_ms` are no longer asked whether an id is new.
    pub fn adopt(&mut self, fresh: Vec<IdRun>, entries: &[IdRunEntry], known_from_ms: i64) {
        self.runs.extend(fresh.into_iter().map(Arc::new));
        self.runs.retain(|run| entries.contains(&run.entry));
        for run in &mut self.runs {
            if run.entry.newest_ms < known_from_ms && run.filter.is_some() {
                *run = Arc::new(IdRun {
                    entry: run.entry.clone(),
                    run: Arc::clone(&run.run),
                    filter: None,
                });
            }
        }
        self.frozen = None;
    }

    /// True when the run of this entry is open.
    pub fn has(&self, entry: &IdRunEntry) -> bool {
        self.runs.iter().any(|run| run.entry == *entry)
    }
}

/// Writes ids as a run, durably.
///
/// # Errors
/// When the disk refuses.
pub fn write_run(
    blobs: &Blobs,
    ids: &HashMap<u128, Seen>,
    level: i32,
) -> Result<Option<IdRunEntry>> {
    let newest_ms = ids.values().map(|seen| seen.arrived_ms).max().unwrap_or(0);
    let mut out = RunWriter::create(blobs, spec(newest_ms, level))?;
    let mut sorted: Vec<(u128, Seen)> = ids.iter().map(|(&id, &seen)| (id, seen)).collect();
    sorted.sort_unstable_by_key(|&(id, _)| id);
    let (mut payload, mut code) = (Vec::new(), Vec::new());
    for (id, seen) in sorted {
        code.clear();
        TimeCode::containing(seen.arrived_ms.div_euclid(1_000), Grain::Minute).write_to(&mut code);
        payload.clear();
        push_entry(&mut payload, true, &code, seen.sequence);
        out.push(key(id).as_bytes(), &payload)?;
    }
    let run = out.finish()?;
    Ok(run.map(|run| IdRunEntry { newest_ms, run }))
}

/// Where a run goes whose newest id arrived then.
fn spec(newest_ms: i64, level: i32) -> RunSpec {
    let newest = TimeCode::containing(newest_ms.div_euclid(1_000), Grain::Minute);
    RunSpec {
        origin: Origin::Ids,
        partition: Partition::month_of(newest),
        shard: 0,
        shards: 1,
        level,
    }
}

impl IdRun {
    /// Opens a run and, unless it is older than `known_from_ms`, reads it once for its filter.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(blobs: &Blobs, entry: IdRunEntry, known_from_ms: i64) -> Result<Self> {
        let run = Run::open_named(blobs, &entry.run)?;
        if entry.newest_ms < known_from_ms {
            let filter = None;
            return Ok(Self { entry, run, filter });
        }
        let lines = usize::try_from(run.meta().lines).unwrap_or(usize::MAX);
        let mut filter = BloomFilter::with_false_pos(FALSE_POSITIVES).expected_items(lines);
        let mut cursor = run.cursor();
        while cursor.advance()? {
            let (key, _) = cursor.line()?.expect("BUG: the cursor stands on a line");
            let id = std::str::from_utf8(&key[3.min(key.len())..])
                .ok()
                .and_then(|hex| u128::from_str_radix(hex, 16).ok());
            let what = "it has a line that is no id";
            let id = id.ok_or_else(|| Error::malformed(&entry.run.name, what))?;
            filter.insert(&id);
        }
        let filter = Some(filter);
        Ok(Self { entry, run, filter })
    }

    /// The record that counted this id, if the run has it.
    ///
    /// # Errors
    /// When a block that may hold it is damaged.
    pub fn find(&self, cache: &BlockCache, id: u128) -> Result<Option<u64>> {
        let wanted = key(id);
        let mut found = None;
        self.run
            .visit_from(cache, wanted.as_bytes(), &mut |key, payload| {
                if key == wanted.as_bytes() {
                    found = entries(payload)
                        .next()
                        .flatten()
                        .map(|(_, sequence)| sequence);
                }
                ControlFlow::Break(())
            })?;
        Ok(found)
    }
}

fn key(id: u128) -> String {
    format!("id|{id:032x}")
}
