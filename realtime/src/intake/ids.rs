//! Remembered ids, which make a retry harmless.
//!
//! An id is 128 keyed bits of its text and its identity. The id is remembered for a window of time after its arrival,
//! whatever the time or the keys of its increment.
//!
//! New ids are in memory. With every flush they become a sorted run of lines `id|<32 hex digits>,<arrival
//! minute>:<sequence>`. A Bloom filter in memory answers "surely new" for nearly all new ids, and the run decides
//! otherwise. Runs are merged as they add up. A run whose newest id is older than the window loses its filter: it then
//! only serves the history of an id and reconciles, for at least as long as the log has a record of one of its ids.
//!
//! Cost of a million ids: 38 to 76 MB in memory, depending on how recently the table grew; 20 MB in a run, whose filter
//! takes 1.8 MB of memory and whose index of blocks 0.1 MB.

mod compact;

pub(crate) use compact::compact;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use fastbloom::BloomFilter;
use hashbrown::HashMap;
use tallyring_archive::{
    Blobs, BlockCache, Error, IdRunEntry, IdsEntry, Origin, Partition, Result, Run, RunSpec,
    RunWriter,
};
use tallyring_records::line::{entries, push_entry};
use tallyring_records::{Grain, TimeCode};

use super::owned::Bits;

/// All ids of the window.
pub(crate) struct Ids {
    recent: HashMap<u128, Seen>,
    /// Frozen ids, which count until a manifest names their run.
    frozen: Option<FrozenIds>,
    /// Runs of the window, with filters.
    runs: Vec<Arc<IdRun>>,
    /// Older runs, which decide of no new id.
    beyond: Vec<Arc<IdRun>>,
    /// Arrival of the newest id of no identity, Unix milliseconds; 0 once all of them are older than the window.
    unowned_until_ms: i64,
}

/// Ids that are being written. Their records are before the sequence number `until`.
struct FrozenIds {
    until: u64,
    ids: Arc<HashMap<u128, Seen>>,
}

impl FrozenIds {
    /// The ids whose records are not before the sequence number `until`; none where all may be before it. A run must
    /// not get an id that another run has: a merge would add the sequence numbers up.
    fn behind(self, until: u64) -> Option<Self> {
        if self.until <= until {
            return None;
        }
        let ids = self.ids.iter().map(|(id, seen)| (*id, *seen));
        let ids = ids.filter(|(_, seen)| seen.sequence >= until).collect();
        Some(Self {
            ids: Arc::new(ids),
            ..self
        })
    }
}

/// The record that made an id known, and its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Sequence number of the record.
    pub sequence: u64,
    /// Arrival, Unix milliseconds.
    pub arrived_ms: i64,
}

/// A run of ids with its filter; within the window only.
pub(crate) struct IdRun {
    entry: IdRunEntry,
    run: Arc<Run>,
    filter: Option<BloomFilter>,
}

/// Chance that the filter of a run sends a new id to the run.
const FALSE_POSITIVES: f64 = 0.001;

/// Memory of an id in a table at its fullest, seven eighths.
const BYTES_EACH: usize = (size_of::<(u128, Seen)>() + 1) * 8 / 7;

impl Ids {
    /// Opens the id runs that the manifest names. Ids that arrived since `known_from_ms` (Unix milliseconds) are
    /// remembered. Fails when a run of theirs is damaged; an older one is lost then.
    pub(crate) fn open(blobs: &Blobs, entry: &IdsEntry, known_from_ms: i64) -> Result<Self> {
        let unowned_until_ms = entry.unowned_until_ms.unwrap_or(newest_ms(&entry.runs));
        let mut ids = Self {
            recent: HashMap::new(),
            frozen: None,
            runs: Vec::new(),
            beyond: Vec::new(),
            unowned_until_ms,
        };
        for entry in &entry.runs {
            ids.add(Arc::new(IdRun::open(blobs, entry.clone(), known_from_ms)?));
        }
        Ok(ids)
    }

    /// Sequence number of the record that made this id known; none for a new id. Fails when a run that may hold it is
    /// damaged.
    pub(crate) fn find(&self, cache: &BlockCache, id: u128) -> Result<Option<u64>> {
        if let Some(seen) = self.in_memory_of(id) {
            return Ok(Some(seen.sequence));
        }
        for run in self.runs.iter().filter(|run| run.may_remember(id)) {
            if let Some(sequence) = run.find(cache, id)? {
                return Ok(Some(sequence));
            }
        }
        Ok(None)
    }

    /// The record in memory of an id, and the runs that may hold the id, including those beyond the window with ids
    /// that arrived since `from_ms` (Unix milliseconds).
    pub(crate) fn candidates(&self, id: u128, from_ms: i64) -> (Option<Seen>, Vec<Arc<IdRun>>) {
        let (seen, mut runs) = self.candidates_in_window(id);
        let beyond = self.beyond.iter();
        runs.extend(beyond.filter(|run| run.entry.newest_ms >= from_ms).cloned());
        (seen, runs)
    }

    /// [`Ids::candidates`] of the window alone, where [`Ids::find`] looks.
    pub(crate) fn candidates_in_window(&self, id: u128) -> (Option<Seen>, Vec<Arc<IdRun>>) {
        let runs = self.runs.iter().filter(|run| run.may_remember(id));
        (self.in_memory_of(id).copied(), runs.cloned().collect())
    }

    fn in_memory_of(&self, id: u128) -> Option<&Seen> {
        let recent = self.recent.get(&id);
        recent.or_else(|| self.frozen.as_ref()?.ids.get(&id))
    }

    /// Remembers an id; the first record of an id wins.
    pub(super) fn insert(&mut self, id: Bits, seen: Seen) {
        if !id.is_owned {
            self.unowned_until_ms = self.unowned_until_ms.max(seen.arrived_ms);
        }
        self.recent.entry(id.bits).or_insert(seen);
    }

    /// True while an id of no identity may be remembered.
    pub(super) fn may_have_unowned(&self) -> bool {
        self.unowned_until_ms > 0
    }

    /// The arrival of the newest id of no identity, where a manifest cannot tell that by these runs.
    pub(crate) fn unowned_until_ms(&self, runs: &[IdRunEntry]) -> Option<i64> {
        (self.unowned_until_ms < newest_ms(runs)).then_some(self.unowned_until_ms)
    }

    /// Forgets an id whose record was not written after all.
    pub(crate) fn withdraw(&mut self, id: u128) {
        self.recent.remove(&id);
    }

    /// Number of ids in memory.
    pub(crate) fn in_memory(&self) -> usize {
        self.recent.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.ids.len())
    }

    /// Memory of ids that no run holds, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let frozen = self.frozen.as_ref();
        let frozen = frozen.map_or(0, |frozen| frozen.ids.capacity());
        (self.recent.capacity() + frozen) * BYTES_EACH
    }

    /// Freezes the ids in memory, to be written; none when memory holds no id. Their records are before the sequence
    /// number `until`.
    pub(crate) fn freeze(&mut self, until: u64) -> Option<Arc<HashMap<u128, Seen>>> {
        let mut taken = std::mem::take(&mut self.recent);
        if let Some(frozen) = self.frozen.take() {
            // An earlier flush failed, and no longer reads its ids: they are written with the new ones, which are
            // fewer.
            let mut earlier = Arc::unwrap_or_clone(frozen.ids);
            for (id, seen) in taken {
                earlier.entry(id).or_insert(seen);
            }
            taken = earlier;
        }
        if taken.is_empty() {
            return None;
        }
        let taken = Arc::new(taken);
        self.frozen = Some(FrozenIds {
            until,
            ids: Arc::clone(&taken),
        });
        Some(taken)
    }

    /// Adopts the runs that the manifest now names. They hold the ids of all records before the sequence number
    /// `until`, unnamed runs are closed, and runs older than `known_from_ms` no longer decide whether an id is new.
    pub(crate) fn adopt(
        &mut self,
        fresh: Vec<IdRun>,
        entries: &[IdRunEntry],
        until: u64,
        known_from_ms: i64,
    ) {
        let named: HashSet<&str> = entries.iter().map(|of| &*of.run.name).collect();
        let is_named = |run: &Arc<IdRun>| named.contains(&*run.entry.run.name);
        self.beyond.retain(is_named);
        let open = std::mem::take(&mut self.runs).into_iter();
        for run in open.chain(fresh.into_iter().map(Arc::new)).filter(is_named) {
            self.add(match run.entry.newest_ms < known_from_ms {
                true => run.without_filter(),
                false => run,
            });
        }
        // Another writer of the log may have written these runs while more was frozen here.
        let frozen = self.frozen.take();
        self.frozen = frozen.and_then(|frozen| frozen.behind(until));
        if self.unowned_until_ms < known_from_ms {
            self.unowned_until_ms = 0;
        }
    }

    /// Names of runs that could not be opened.
    pub(crate) fn lost(&self) -> impl Iterator<Item = &str> {
        let lost = self.beyond.iter().filter(|run| run.run.is_lost());
        lost.map(|run| run.run.name())
    }

    /// The manifest's entry of an open run; none for another file.
    pub(crate) fn entry(&self, name: &str) -> Option<IdRunEntry> {
        let mut runs = self.runs.iter().chain(&self.beyond);
        let run = runs.find(|run| run.entry.run.name == name)?;
        Some(run.entry.clone())
    }

    /// Puts a run in the place of the open one of its name; does nothing where that was forgotten meanwhile.
    pub(crate) fn replace(&mut self, run: IdRun) {
        let name = &run.entry.run.name;
        if self.entry(name).is_some() {
            let is_other = |open: &Arc<IdRun>| open.entry.run.name != *name;
            self.runs.retain(is_other);
            self.beyond.retain(is_other);
            self.add(Arc::new(run));
        }
    }

    fn add(&mut self, run: Arc<IdRun>) {
        match run.filter {
            Some(_) => self.runs.push(run),
            None => self.beyond.push(run),
        }
    }

    /// The entries whose runs are not open.
    pub(crate) fn not_open<'e>(&self, entries: &'e [IdRunEntry]) -> Vec<&'e IdRunEntry> {
        let open = self.runs.iter().chain(&self.beyond);
        let open: HashSet<&str> = open.map(|run| &*run.entry.run.name).collect();
        let entries = entries.iter();
        entries.filter(|of| !open.contains(&*of.run.name)).collect()
    }

    /// Arrival of the oldest id that a run has, to the minute (Unix milliseconds); none without runs.
    pub(crate) fn oldest_ms(&self) -> Option<i64> {
        let runs = self.runs.iter().chain(&self.beyond);
        oldest_ms(runs.map(|run| &run.entry))
    }
}

/// Writes ids as a run, durably. Returns none when there are no ids.
pub(crate) fn write_run(
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

/// The description of a run whose newest id arrived at `newest_ms`.
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
    /// Opens a run. A run within the window is read once for its filter. An older one that is damaged decides of no new
    /// id, and only its reads fail.
    pub(crate) fn open(blobs: &Blobs, entry: IdRunEntry, known_from_ms: i64) -> Result<Self> {
        let run = Run::open_named(blobs, &entry.run);
        if entry.newest_ms < known_from_ms {
            let run = match run {
                Err(error) if error.is_damage() => Run::lost(&entry.run, &error),
                run => run?,
            };
            let filter = None;
            return Ok(Self { entry, run, filter });
        }
        let run = run?;
        let lines = usize::try_from(run.meta().lines).unwrap_or(usize::MAX);
        let mut filter = BloomFilter::with_false_pos(FALSE_POSITIVES).expected_items(lines);
        let mut cursor = run.cursor();
        while cursor.advance()? {
            let (key, _) = cursor.line()?.expect("BUG: the cursor stands on a line");
            let id = std::str::from_utf8(&key[3.min(key.len())..])
                .ok()
                .and_then(|hex| u128::from_str_radix(hex, 16).ok());
            let what = "the run has a line that is not an id";
            let id = id.ok_or_else(|| Error::malformed(&entry.run.name, what))?;
            filter.insert(&id);
        }
        let filter = Some(filter);
        Ok(Self { entry, run, filter })
    }

    /// This run, beyond the window.
    fn without_filter(&self) -> Arc<Self> {
        Arc::new(Self {
            entry: self.entry.clone(),
            run: Arc::clone(&self.run),
            filter: None,
        })
    }

    /// False where the id is surely none of the run, or the run decides of no new id.
    fn may_remember(&self, id: u128) -> bool {
        let filter = self.filter.as_ref();
        filter.is_some_and(|filter| filter.contains(&id))
    }

    /// True for a run that decides of no new id.
    pub(crate) fn is_beyond(&self) -> bool {
        self.filter.is_none()
    }

    /// Sequence number of the record that made this id known, if the run has the id. Fails when a block that may hold
    /// it is damaged.
    pub(crate) fn find(&self, cache: &BlockCache, id: u128) -> Result<Option<u64>> {
        Ok(self.find_all(cache, id)?.first().map(|seen| seen.sequence))
    }

    /// All records of the run that made the id known, with the minutes in which they arrived. Fails as [`IdRun::find`]
    /// does.
    pub(crate) fn find_all(&self, cache: &BlockCache, id: u128) -> Result<Vec<Seen>> {
        let wanted = key(id);
        let mut found = Vec::new();
        self.run
            .visit_from(cache, wanted.as_bytes(), &mut |key, payload| {
                if key == wanted.as_bytes() {
                    let seen = |(minute, sequence)| {
                        let arrived = TimeCode::parse(minute).map_or(0, TimeCode::start);
                        Seen {
                            sequence,
                            arrived_ms: arrived * 1_000,
                        }
                    };
                    found.extend(entries(payload).flatten().map(seen));
                }
                ControlFlow::Break(())
            })?;
        Ok(found)
    }
}

/// Arrival of the oldest id in these runs, to the minute (Unix milliseconds); none where there are none.
pub(crate) fn oldest_ms<'e>(runs: impl IntoIterator<Item = &'e IdRunEntry>) -> Option<i64> {
    let runs = runs.into_iter();
    runs.map(|entry| entry.run.meta.first * 1_000).min()
}

/// Arrival of the newest id in these runs, Unix milliseconds; 0 where there are none.
fn newest_ms(runs: &[IdRunEntry]) -> i64 {
    runs.iter().map(|entry| entry.newest_ms).max().unwrap_or(0)
}

fn key(id: u128) -> String {
    format!("id|{id:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_manifest_end_the_ids_that_were_frozen_before_it_and_no_others() {
        let mut ids = Ids {
            recent: HashMap::new(),
            frozen: None,
            runs: Vec::new(),
            beyond: Vec::new(),
            unowned_until_ms: 0,
        };
        let cache = BlockCache::new(1 << 10);
        let learn = |ids: &mut Ids, bits: u128| {
            let seen = Seen {
                sequence: bits as u64,
                arrived_ms: 0,
            };
            let is_owned = true;
            ids.insert(Bits { bits, is_owned }, seen);
        };
        learn(&mut ids, 1);
        assert_eq!(ids.freeze(2).map(|frozen| frozen.len()), Some(1));
        // That flush failed: the next one writes its ids, too.
        learn(&mut ids, 3);
        assert_eq!(ids.freeze(4).map(|frozen| frozen.len()), Some(2));
        learn(&mut ids, 5);
        let known = |ids: &Ids| [1, 3, 5].map(|id| ids.find(&cache, id).unwrap());
        // A manifest of the first flush comes all the same, from another writer.
        ids.adopt(Vec::new(), &[], 2, 0);
        assert_eq!(
            known(&ids),
            [None, Some(3), Some(5)],
            "its run has the first"
        );
        ids.adopt(Vec::new(), &[], 4, 0);
        assert_eq!(known(&ids), [None, None, Some(5)], "the runs have them");
    }
}
