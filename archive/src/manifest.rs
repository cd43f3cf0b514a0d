//! The manifest: the one root, which says what is counted where.
//!
//! `manifests/manifest-<number>` is a line `tallyring manifest 1 crc32 <8 hex digits> bytes <n>` and
//! then that many bytes of JSON. Invariants: manifests are numbered without gaps and never change; number N+1
//! is committed by creating its name if absent; every file a manifest names was synced, and its
//! directory too, before the manifest was.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tallyring_records::{Day, Position, Schema, StoreId};

use crate::disk::{Disk, write_whole};
use crate::error::{Error, Result};
use crate::merge::Horizon;
use crate::names;
use crate::run::RunEntry;
use crate::sealed;

/// What counts, at one moment.
///
/// ```
/// use tallyring_archive::{Disk, Manifest, OsDisk, names};
///
/// let directory = tempfile::tempdir()?;
/// let disk = OsDisk::new(directory.path())?;
/// disk.create_directory(names::MANIFESTS)?;
/// let manifest: Manifest = serde_json::from_str(
///     r#"{"number": 1, "written_at_ms": 0, "store_id": "", "today": "2012-03-16", "schemas": [],
///         "stores": [], "runs": [], "generations": [], "active": 0, "ids": {"flushed": "", "runs": []}}"#,
/// )?;
/// manifest.commit(&disk)?;
/// assert!(manifest.commit(&disk).is_err(), "the number is taken");
/// assert_eq!(Manifest::load(&disk)?, Some(manifest));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Rises by one with every change; the first is 1.
    pub number: u64,
    /// When it was written, Unix milliseconds of the injected clock; for people.
    pub written_at_ms: i64,
    /// When the clock was plausible last, Unix milliseconds, where it was not when this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plausible_at_ms: Option<i64>,
    /// The store's identity, 32 hex digits; the same in the oplog.
    pub store_id: String,
    /// The ring's today.
    pub today: Day,
    /// Declarations of the namespaces, each with the position from which it holds; ascending. Old manifests lack those
    /// that were not in force any more.
    pub schemas: Vec<SchemaEntry>,
    /// Delta stores, with what they flushed.
    pub stores: Vec<StoreEntry>,
    /// Source runs of the ring: what export made of cleared stores.
    pub runs: Vec<RunEntry>,
    /// Bulk datasets, in the order they were adopted.
    #[serde(default)]
    pub datasets: Vec<DatasetEntry>,
    /// Kept generations, ascending; at most [`GENERATIONS_KEPT`].
    pub generations: Vec<GenerationEntry>,
    /// Number of the generation that is read; 0 before the first.
    pub active: u64,
    /// Remembered ids.
    pub ids: IdsEntry,
    /// Unix seconds of the newest event of each type, as far as ids are flushed: until when events are expected must
    /// not go back at a restart, which replays only what follows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub newest_events: BTreeMap<String, i64>,
}

/// A declaration and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaEntry {
    /// First position it holds for.
    pub since: Position,
    /// The declaration.
    pub schema: Schema,
}

/// A delta store: which part of the log it counts and what of it is in runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreEntry {
    /// Day or late epoch.
    pub id: StoreId,
    /// First position it takes.
    pub opened: Position,
    /// Position from which it takes nothing more; none while it is open.
    pub cut: Option<Position>,
    /// Everything before this position is in `runs`.
    pub flushed: Position,
    /// Flushed runs, oldest first.
    pub runs: Vec<RunEntry>,
}

impl StoreEntry {
    /// True when it takes nothing more and its runs hold everything it took.
    pub fn is_closed(&self) -> bool {
        let cut = self.cut.as_ref().map(|cut| cut.offset(0));
        cut.is_some_and(|cut| self.flushed.offset(0) >= cut)
    }
}

/// A bulk dataset: source runs that count in the generations that merged them, and never before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetEntry {
    /// As it was named; one of that name at most is wanted.
    pub name: String,
    /// The load that made it.
    pub load: String,
    /// When it was adopted, Unix milliseconds of the injected clock.
    pub adopted_at_ms: i64,
    /// Rows that were loaded.
    pub rows: u64,
    /// True when the next generation counts it. What was dropped, replaced or rolled back stays for as long
    /// as a kept generation counts it.
    pub wanted: bool,
    /// One for each partition and shard it has counts in.
    pub runs: Vec<RunEntry>,
}

impl DatasetEntry {
    /// What it is to the generation that is read, and to the next one, in a word or two.
    pub fn state(&self, active: Option<&GenerationEntry>) -> &'static str {
        match (active.is_some_and(|active| self.is_in(active)), self.wanted) {
            (true, true) => "counted",
            (false, true) => "counts with the next rebuild",
            (true, false) => "counted until the next rebuild",
            (false, false) => "kept for rollback",
        }
    }

    /// True when the generation counts it.
    pub fn is_in(&self, generation: &GenerationEntry) -> bool {
        self.runs
            .iter()
            .any(|run| generation.merged.contains(&run.name))
    }
}

/// One published generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationEntry {
    /// From 1.
    pub number: u64,
    /// When it was published, Unix milliseconds of the injected clock; 0 until it is.
    pub created_at_ms: i64,
    /// When what it merges was cut off, Unix milliseconds: it holds the days that had ended then. Not known of old ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at_ms: Option<i64>,
    /// Names of the source runs it has merged; the others are still deltas to it.
    pub merged: Vec<String>,
    /// Its files, by partition and shard.
    pub files: Vec<RunEntry>,
    /// Its files keep no minutes of base buckets that began earlier, Unix seconds; none keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes_from: Option<i64>,
    /// Its files keep base buckets that began earlier by the day, Unix seconds; none keeps all as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours_from: Option<i64>,
    /// What was asked for when it was built; the next build without a configuration goes by it.
    #[serde(default)]
    pub keep: KeepDays,
}

impl GenerationEntry {
    /// From when on its files keep finer forms.
    pub fn horizon(&self) -> Horizon {
        Horizon {
            minutes_from: self.minutes_from.unwrap_or(i64::MIN),
            hours_from: self.hours_from.unwrap_or(i64::MIN),
        }
    }
}

/// How long finer forms are kept at least, days; none keeps them for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepDays {
    /// Minutes.
    pub minutes: Option<u32>,
    /// Hours and quarters, which then fold into days.
    pub hours: Option<u32>,
}

/// Remembered ids on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdsEntry {
    /// Ids of everything before this position are in `runs` or forgotten.
    pub flushed: Position,
    /// Sorted id runs with the arrival of their newest id, oldest first.
    pub runs: Vec<IdRunEntry>,
    /// Producers that number what they send, as of that position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub producers: Vec<ProducerEntry>,
}

/// How far a producer's numbers have come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducerEntry {
    /// 128 keyed bits of its name, hex.
    pub id: String,
    /// Its newest epoch.
    pub epoch: u64,
    /// The number with which that epoch began.
    #[serde(default)]
    pub first: u64,
    /// The number that follows.
    pub next: u64,
    /// Arrival of its newest increment, Unix milliseconds.
    pub seen_ms: i64,
}

/// A run of ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdRunEntry {
    /// Arrival of the newest id in it, Unix milliseconds.
    pub newest_ms: i64,
    /// The file.
    pub run: RunEntry,
}

/// How many generations are kept for rollback.
pub const GENERATIONS_KEPT: usize = 3;

/// How many manifests are kept for people to look at.
const MANIFESTS_KEPT: u64 = 8;

const KIND: &str = "manifest";
const FORMAT: u32 = 1;

impl Manifest {
    /// The generation called `number`.
    pub fn generation(&self, number: u64) -> Option<&GenerationEntry> {
        self.generations
            .iter()
            .find(|generation| generation.number == number)
    }

    /// The dataset that the next generation counts under a name.
    pub fn dataset(&self, name: &str) -> Option<&DatasetEntry> {
        self.datasets
            .iter()
            .find(|dataset| dataset.wanted && dataset.name == name)
    }

    /// Source runs that the next generation counts.
    pub fn sources(&self) -> impl Iterator<Item = &RunEntry> {
        let wanted = self.datasets.iter().filter(|dataset| dataset.wanted);
        self.runs
            .iter()
            .chain(wanted.flat_map(|dataset| &dataset.runs))
    }

    /// When the clock was plausible last, as far as this tells, Unix milliseconds.
    pub fn plausible_ms(&self) -> i64 {
        self.plausible_at_ms.unwrap_or(self.written_at_ms)
    }

    /// The log's records that this manifest needs begin there.
    pub fn log_from(&self) -> u64 {
        let ids = self.ids.flushed.offset(0).sequence;
        self.counts_from().map_or(ids, |counts| counts.min(ids))
    }

    /// The first record of which something may count in memory; none where no store is open. What an earlier one decides
    /// of the ring is in this manifest.
    pub fn counts_from(&self) -> Option<u64> {
        let open = self.stores.iter().filter(|store| !store.is_closed());
        open.map(|store| store.flushed.offset(0).sequence).min()
    }

    /// The log reaches at least there: runs hold what is before.
    pub fn log_until(&self) -> u64 {
        let flushed = self.stores.iter().map(|store| &store.flushed);
        let all = flushed.chain([&self.ids.flushed]);
        all.map(|flushed| flushed.offset(0).sequence)
            .max()
            .unwrap_or(0)
    }

    /// Source runs that the next generation or a kept one counts.
    pub fn all_sources(&self) -> impl Iterator<Item = &RunEntry> {
        let of_datasets = self.datasets.iter().flat_map(|dataset| &dataset.runs);
        self.runs.iter().chain(of_datasets)
    }

    /// Puts the content of `by`, which has the same lines, in the place of the content of that hash, wherever a source
    /// run or a file of a generation has it. The names under which it is then named.
    pub fn replace(&mut self, hash: &str, by: &RunEntry) -> BTreeSet<String> {
        let mut names = BTreeMap::new();
        let of_datasets = self.datasets.iter_mut();
        let of_generations = self.generations.iter_mut();
        let runs = self
            .runs
            .iter_mut()
            .chain(of_datasets.flat_map(|dataset| &mut dataset.runs))
            .chain(of_generations.flat_map(|generation| &mut generation.files));
        for run in runs.filter(|run| run.hash == hash) {
            if let Some(name) = run.name_of(&by.hash) {
                names.insert(std::mem::replace(&mut run.name, name.clone()), name.clone());
                *run = RunEntry { name, ..by.clone() };
            }
        }
        for generation in &mut self.generations {
            for name in &mut generation.merged {
                if let Some(other) = names.get(name) {
                    name.clone_from(other);
                }
            }
        }
        names.into_values().collect()
    }

    /// Forgets datasets that nothing counts any more.
    pub fn forget_datasets(&mut self) {
        let generations = &self.generations;
        self.datasets
            .retain(|dataset| dataset.wanted || generations.iter().any(|kept| dataset.is_in(kept)));
    }

    /// Source runs of the ring that the active generation has not merged.
    pub fn pending(&self) -> impl Iterator<Item = &RunEntry> {
        let active = self.generation(self.active).into_iter();
        let merged: BTreeSet<&str> = active
            .flat_map(|generation| &generation.merged)
            .map(String::as_str)
            .collect();
        self.runs
            .iter()
            .filter(move |run| !merged.contains(run.name.as_str()))
    }

    /// The names of all files that count.
    pub fn file_names(&self) -> BTreeSet<&str> {
        self.files().map(|file| file.name.as_str()).collect()
    }

    /// Every file it names, some more than once.
    pub fn files(&self) -> impl Iterator<Item = &RunEntry> {
        self.stores
            .iter()
            .flat_map(|store| &store.runs)
            .chain(self.all_sources())
            .chain(
                self.generations
                    .iter()
                    .flat_map(|generation| &generation.files),
            )
            .chain(self.ids.runs.iter().map(|ids| &ids.run))
    }

    /// The newest manifest of a data directory; none when there is none.
    ///
    /// # Errors
    /// When it cannot be read or is damaged: an older one is never taken instead.
    pub fn load(disk: &dyn Disk) -> Result<Option<Self>> {
        match numbers(disk)?.pop() {
            Some(number) => Self::load_number(disk, number).map(Some),
            None => Ok(None),
        }
    }

    /// The manifest called `number`.
    ///
    /// # Errors
    /// When it cannot be read or is damaged.
    pub fn load_number(disk: &dyn Disk, number: u64) -> Result<Self> {
        let name = names::manifest(number);
        let content = disk.read(&name).map_err(Error::io("read", &name))?;
        let manifest = decode(&name, &content)?;
        if manifest.number != number {
            return Err(Error::damaged(
                &name,
                0,
                format!("it says it is number {}", manifest.number),
            ));
        }
        Ok(manifest)
    }

    /// Writes the manifest under its number, which must be free, and removes the oldest ones.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the number is taken; otherwise when the disk refuses. When the name is
    /// there after an error, whether it survives a crash is unknown.
    pub fn commit(&self, disk: &dyn Disk) -> Result<()> {
        let name = names::manifest(self.number);
        let free = write_whole(disk, &name, &encode(self))?;
        if !free {
            return Err(Error::Conflict {
                number: self.number,
            });
        }
        disk.sync_directory(names::MANIFESTS)
            .map_err(Error::io("sync", names::MANIFESTS))?;
        // It is committed: what cannot be tidied up now is only space.
        for number in numbers(disk).unwrap_or_default() {
            if number + MANIFESTS_KEPT <= self.number {
                let _ = disk.remove(&names::manifest(number));
            }
        }
        Ok(())
    }
}

/// Numbers of the manifests that are there, ascending.
///
/// # Errors
/// When the directory cannot be listed.
pub fn numbers(disk: &dyn Disk) -> Result<Vec<u64>> {
    let files = disk
        .list(names::MANIFESTS)
        .map_err(Error::io("list", names::MANIFESTS))?;
    let mut numbers: Vec<u64> = files
        .iter()
        .filter_map(|file| names::manifest_number(file))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn encode(manifest: &Manifest) -> Vec<u8> {
    let json = serde_json::to_vec_pretty(manifest).expect("BUG: a manifest is plain data");
    sealed::seal(KIND, FORMAT, &json)
}

fn decode(name: &str, content: &[u8]) -> Result<Manifest> {
    let json = sealed::unseal(name, KIND, FORMAT, content)?;
    serde_json::from_slice(json)
        .map_err(|error| Error::damaged(name, 0, format!("it is not readable: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsDisk;

    fn manifest(number: u64) -> Manifest {
        Manifest {
            number,
            written_at_ms: 1,
            plausible_at_ms: None,
            store_id: "00".repeat(16),
            today: Day::of(1_331_923_247),
            schemas: vec![SchemaEntry {
                since: Position::default(),
                schema: Schema::default_clicks(),
            }],
            stores: Vec::new(),
            runs: Vec::new(),
            datasets: Vec::new(),
            generations: Vec::new(),
            active: 0,
            ids: IdsEntry::default(),
            newest_events: BTreeMap::new(),
        }
    }

    #[test]
    fn the_newest_is_loaded_a_taken_number_conflicts_and_old_ones_go() {
        let directory = tempfile::tempdir().unwrap();
        let disk = OsDisk::new(directory.path()).unwrap();
        disk.create_directory(names::MANIFESTS).unwrap();
        assert!(Manifest::load(&disk).unwrap().is_none());
        for number in 1..=20 {
            manifest(number).commit(&disk).unwrap();
        }
        assert_eq!(Manifest::load(&disk).unwrap(), Some(manifest(20)));
        assert!(matches!(
            manifest(20).commit(&disk),
            Err(Error::Conflict { number: 20 })
        ));
        assert_eq!(numbers(&disk).unwrap(), (13..=20).collect::<Vec<_>>());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = encode(&manifest(1));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode("manifest", &bad).is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(
                decode("manifest", &good[..length]).is_err(),
                "length {length}"
            );
        }
    }
}
