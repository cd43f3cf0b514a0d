//! The manifest: the one root, which says what is counted where.
//!
//! `manifests/manifest-<number>` is a line `tallyring manifest 11 crc32 <8 hex digits> bytes <n>` and then that many
//! bytes of JSON. Where a day has a fix, the format is 12, where a day is final, 14, and where the log tells of that,
//! 17. Where it says when the store began, that a dataset is final or that a final day has its sums alone, it is 18,
//! where somebody insisted on a final version, 21, and where the log tells of final datasets, days left it under a
//! clock that was set back, or a declaration has settings beside what is counted, 22. Where it names runs that may have
//! sums of values, it is 24, where a record of the log tells with which declaration the store began, 28, where it has
//! API keys, of which the log tells, 30, where topics of Kafka were consumed, 33, where a fix of a day has actions of
//! users, 35, where somebody ordered a final version, 36, where a final version says since when it knew ids, 39, what
//! its rules filter, 71, which keys had counted twice, 72, and where somebody deleted counts of a key, 74. A build that
//! does not know these refuses it. Manifests of earlier formats are read, too. Invariants: manifests are numbered
//! without gaps and never change; number N+1 is committed by creating its name if absent; every file that a manifest
//! names was synced, and its directory too, before the manifest was.

mod archive;
mod datasets;
mod deletes;
mod finals;
mod flat;
mod format;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tallyring_records::{
    Consumed, Day, KeyEntry, LoggedDataset, LoggedFinal, Offset, Schema, StoreId, is_false,
};

use crate::blobs::Blobs;
use crate::erasures::Erasures;
use crate::error::{Error, Result};
use crate::merge::Horizon;
use crate::names;
use crate::origin::Origin;
use crate::run::RunEntry;

use format::{decode, encode};

pub use datasets::{LeftOut, LoggedDatasets, takes_place};
pub use deletes::{DELETES_MAX, DeleteEntry};
pub use finals::{FilteredSums, FinalEntry, FinalProof, RepeatedKey, RepeatedKeys};

/// All files and records that count at one moment.
///
/// ```
/// use tallyring_archive::{Blobs, Manifest};
///
/// let directory = tempfile::tempdir()?;
/// let blobs = Blobs::local(directory.path())?;
/// blobs.prepare()?;
/// let manifest: Manifest = serde_json::from_str(
///     r#"{"number": 1, "written_at_ms": 0, "store_id": "",
///         "intake": {"today": "2012-03-16", "schemas": [], "stores": [], "ids": {"flushed": "0:0", "runs": []}},
///         "archive": {"runs": [], "datasets": [], "generations": [], "active": 0}}"#,
/// )?;
/// manifest.commit(&blobs)?;
/// assert!(manifest.commit(&blobs).is_err(), "the number is taken");
/// assert_eq!(Manifest::load(&blobs)?, Some(manifest));
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
    /// State of the way in of one log.
    pub intake: IntakeEntry,
    /// State of the archive.
    pub archive: ArchiveEntry,
}

/// State of the way in of one log: up to where runs hold what was counted, and how to go on from there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntakeEntry {
    /// The ring's today.
    pub today: Day,
    /// The day on which the log began, by the clock of then, or the earliest one to which the ring turned back since;
    /// none where an older build began it and the log no longer says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Day>,
    /// Days before that one of which the log counted something; none where an older build counted some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<BTreeSet<Day>>,
    /// Days that have lost records with segments of the log, where the time of the oldest segment does not tell so: the
    /// clock had been ahead when they were written.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_log: BTreeSet<Day>,
    /// Declarations of the namespaces, each with the offset from which it holds; ascending. Old manifests lack those
    /// that were not in force any more.
    pub schemas: Vec<SchemaEntry>,
    /// Delta stores, with what they flushed.
    pub stores: Vec<StoreEntry>,
    /// Remembered ids.
    pub ids: IdsEntry,
    /// Unix seconds of the newest event of each type, as far as ids are flushed: until when events are expected must
    /// not go back at a restart, which replays only what follows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub newest_events: BTreeMap<String, i64>,
    /// Erased users whose actions of before some file or segment of the log may still hold.
    #[serde(default, skip_serializing_if = "Erasures::is_empty")]
    pub erasures: Erasures,
    /// API keys, revoked ones too, oldest first: those at least whose records the log may have lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyEntry>,
    /// How far topics of Kafka were consumed at the last flush; ascending, and never forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumed: Vec<Consumed>,
    /// Orders about the counts of keys, in the order of the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deletes: Vec<DeleteEntry>,
}

/// State of the archive: source runs, and the generations that merged them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveEntry {
    /// Source runs of the ring: what export made of cleared stores, and fixes of days.
    pub runs: Vec<RunEntry>,
    /// Bulk datasets, in the order they were adopted.
    pub datasets: Vec<DatasetEntry>,
    /// Kept generations, ascending; at most [`GENERATIONS_KEPT`].
    pub generations: Vec<GenerationEntry>,
    /// Number of the generation that is read; 0 before the first.
    pub active: u64,
    /// Final versions of days, ascending by day and version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finals: Vec<FinalEntry>,
    /// Final versions that the log has and `finals` lacks, ascending by day and version. They are made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<LoggedFinal>,
    /// Days with final versions of which the log alone told a build that wrote no records of final datasets: some that
    /// were part of their final numbers may be lost. Such a dataset can be loaded again until the next version of the
    /// day. This build adds no day.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub told_by_log: BTreeSet<Day>,
    /// Final datasets that the log has and `datasets` lacks: their days are not final until they are loaded again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_datasets: Vec<LoggedDataset>,
}

/// A declaration and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaEntry {
    /// First offset it holds for.
    pub since: Offset,
    /// The declaration.
    pub schema: Schema,
    /// True for the one with which the store began, once a record of its own tells the log of it.
    #[serde(default, rename = "logged", skip_serializing_if = "is_false")]
    pub is_logged: bool,
}

impl SchemaEntry {
    /// A declaration that holds from this offset on.
    pub fn new(since: Offset, schema: Schema) -> Self {
        Self {
            since,
            schema,
            is_logged: false,
        }
    }
}

/// A delta store: which part of the log it counts and what of it is in runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreEntry {
    /// Day or late epoch.
    pub id: StoreId,
    /// First offset it takes.
    pub opened: Offset,
    /// Offset from which it takes nothing more; none while it is open.
    pub cut: Option<Offset>,
    /// Everything before this offset is in `runs`.
    pub flushed: Offset,
    /// Flushed runs, oldest first.
    pub runs: Vec<RunEntry>,
}

impl StoreEntry {
    /// True when it takes nothing more and its runs hold everything it took.
    pub fn is_closed(&self) -> bool {
        self.cut.is_some_and(|cut| self.flushed >= cut)
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
    /// True when the next generation counts it. A dataset that was dropped, replaced or rolled back
    /// stays for as long as a kept generation counts it.
    pub wanted: bool,
    /// True when its counts are part of the final numbers of their days.
    #[serde(default, rename = "final", skip_serializing_if = "is_false")]
    pub is_final: bool,
    /// By what the log knows a final one; none where a build loaded it that did not tell the log of final datasets,
    /// until the next rebuild.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<DatasetProof>,
    /// One for each partition and shard it has counts in.
    pub runs: Vec<RunEntry>,
}

/// By what the log knows a final dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetProof {
    /// Hash of its counts ([`crate::counts_hash`]).
    pub content: String,
    /// True once the log is known to have a record of the dataset.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_logged: bool,
}

impl DatasetEntry {
    /// True when the next generation counts it, or the one that is read does.
    pub fn matters(&self, active: Option<&GenerationEntry>) -> bool {
        self.wanted || active.is_some_and(|active| self.is_in(active))
    }

    /// True when it is final, and the generation that is read counts it: its counts are part of final numbers now.
    pub fn is_in_finals(&self, active: Option<&GenerationEntry>) -> bool {
        self.is_final && active.is_some_and(|active| self.is_in(active))
    }

    /// Its state in the generation that is read, and in the next one, in a word or two.
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
    /// When what it merges was cut off, Unix milliseconds: it holds the days that had ended then. Not known of old
    /// ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at_ms: Option<i64>,
    /// Names of the source runs it has merged; the others are still deltas to it.
    pub merged: Vec<String>,
    /// Its files, by partition and shard. While a recount is not finished, these are the runs of the datasets.
    pub files: Vec<RunEntry>,
    /// Its files keep no minutes of base buckets that began earlier, Unix seconds; none keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes_from: Option<i64>,
    /// Its files keep base buckets that began earlier by the day, Unix seconds; none keeps all as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours_from: Option<i64>,
    /// Its files keep no breakdowns of minutes that began earlier, Unix seconds; none keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakdowns_from: Option<i64>,
    /// Its files keep no actions of days that began earlier, Unix seconds; none keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions_from: Option<i64>,
    /// The retention it was built with; the next build without a configuration goes by it.
    #[serde(default)]
    pub keep: KeepDays,
}

impl GenerationEntry {
    /// True for the generation with which a recount begins: runs of datasets stand in for its files until the recount
    /// has merged everything, and then it is empty. Nothing goes back to it, because it lacks what the delta stores
    /// count meanwhile.
    pub fn is_stand_in(&self) -> bool {
        let is_merge = |file: &RunEntry| file.origin == Origin::Merge;
        self.cut_at_ms.is_none() && !self.files.iter().any(is_merge)
    }

    /// From when on its files keep finer forms.
    pub fn horizon(&self) -> Horizon {
        Horizon {
            minutes_from: self.minutes_from.unwrap_or(i64::MIN),
            hours_from: self.hours_from.unwrap_or(i64::MIN),
            breakdowns_from: self.breakdowns_from.unwrap_or(i64::MIN),
            actions_from: self.actions_from.unwrap_or(i64::MIN),
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
    /// Actions of users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<u32>,
}

/// Remembered ids on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdsEntry {
    /// Ids of everything before this offset are in `runs` or forgotten.
    pub flushed: Offset,
    /// Sorted id runs with the arrival of their newest id, oldest first.
    pub runs: Vec<IdRunEntry>,
    /// Arrival of the newest id that belongs to no identity, Unix milliseconds; none where that is the newest id of all
    /// runs, as in a store that never had an API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unowned_until_ms: Option<i64>,
    /// Producers that number what they send, as of that offset.
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
pub(crate) const MANIFESTS_KEPT: u64 = 8;

impl IntakeEntry {
    /// The records of the log that are needed begin there.
    pub fn log_from(&self) -> u64 {
        let ids = self.ids.flushed.sequence;
        self.counts_from().map_or(ids, |counts| counts.min(ids))
    }

    /// The first record of which something may count in memory; none where no store is open. This entry holds what
    /// earlier records decide of the ring.
    pub fn counts_from(&self) -> Option<u64> {
        let open = self.stores.iter().filter(|store| !store.is_closed());
        open.map(|store| store.flushed.sequence).min()
    }

    /// The log reaches at least there: runs hold what is before.
    pub fn log_until(&self) -> u64 {
        let flushed = self.stores.iter().map(|store| store.flushed);
        let all = flushed.chain([self.ids.flushed]);
        all.map(|flushed| flushed.sequence).max().unwrap_or(0)
    }
}

impl Manifest {
    /// When the clock was plausible last, as far as this tells, Unix milliseconds.
    pub fn plausible_ms(&self) -> i64 {
        self.plausible_at_ms.unwrap_or(self.written_at_ms)
    }

    /// The names of all files that count.
    pub fn file_names(&self) -> BTreeSet<&str> {
        self.files().map(|file| file.name.as_str()).collect()
    }

    /// Every file it names, some more than once.
    pub fn files(&self) -> impl Iterator<Item = &RunEntry> {
        let stores = self.intake.stores.iter();
        let generations = self.archive.generations.iter();
        stores
            .flat_map(|store| &store.runs)
            .chain(self.archive.all_sources())
            .chain(generations.flat_map(|generation| &generation.files))
            .chain(self.intake.ids.runs.iter().map(|ids| &ids.run))
            .chain(self.archive.finals.iter().flat_map(FinalEntry::files))
    }

    /// The newest manifest of a data directory; none when there is none. Fails when it is damaged: an older one is
    /// never taken instead.
    pub fn load(blobs: &Blobs) -> Result<Option<Self>> {
        match numbers(blobs)?.pop() {
            Some(number) => Self::load_number(blobs, number).map(Some),
            None => Ok(None),
        }
    }

    /// The manifest called `number`. Fails when it is damaged.
    pub fn load_number(blobs: &Blobs, number: u64) -> Result<Self> {
        let name = names::manifest(number);
        let content = blobs.read(&name)?;
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

    /// Writes the manifest under its number, which must be free. On a local disk it removes the oldest ones; over an
    /// object store, a [`Sweep`](crate::Sweep) does. Fails with [`Error::Conflict`] when the number is taken. When the
    /// name is there after an error, whether it survives a crash is unknown.
    pub fn commit(&self, blobs: &Blobs) -> Result<()> {
        let name = names::manifest(self.number);
        if !blobs.put(&name, &encode(self))? {
            return Err(Error::Conflict {
                number: self.number,
            });
        }
        if blobs.objects().is_some() {
            return Ok(());
        }
        // It is committed: what cannot be tidied up now is only space.
        for number in numbers(blobs).unwrap_or_default() {
            if number + MANIFESTS_KEPT <= self.number {
                let _ = blobs.remove(&names::manifest(number));
            }
        }
        Ok(())
    }
}

/// Numbers of the manifests that are there, ascending.
pub fn numbers(blobs: &Blobs) -> Result<Vec<u64>> {
    let files = blobs.list(names::MANIFESTS)?;
    let numbers = files.iter().filter_map(|file| names::manifest_number(file));
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::OsDisk;

    fn manifest(number: u64) -> Manifest {
        Manifest {
            number,
            written_at_ms: 1,
            plausible_at_ms: None,
            store_id: "00".repeat(16),
            intake: IntakeEntry {
                today: Day::of(1_331_923_247),
                begun: None,
                early: None,
                left_log: BTreeSet::new(),
                schemas: vec![SchemaEntry::new(
                    Offset::default(),
                    Schema::default_clicks(),
                )],
                stores: Vec::new(),
                ids: IdsEntry::default(),
                newest_events: BTreeMap::new(),
                erasures: Erasures::default(),
                keys: Vec::new(),
                consumed: Vec::new(),
                deletes: Vec::new(),
            },
            archive: ArchiveEntry::default(),
        }
    }

    #[test]
    fn the_newest_is_loaded_a_taken_number_conflicts_and_old_ones_go() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(Arc::new(OsDisk::new(directory.path()).unwrap()));
        blobs.prepare().unwrap();
        assert!(Manifest::load(&blobs).unwrap().is_none());
        for number in 1..=20 {
            manifest(number).commit(&blobs).unwrap();
        }
        assert_eq!(Manifest::load(&blobs).unwrap(), Some(manifest(20)));
        assert!(matches!(
            manifest(20).commit(&blobs),
            Err(Error::Conflict { number: 20 })
        ));
        assert_eq!(numbers(&blobs).unwrap(), (13..=20).collect::<Vec<_>>());
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
