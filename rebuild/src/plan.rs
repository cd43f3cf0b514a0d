//! Plans which partitions a new generation must rewrite, and which files it shares with a kept one.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::merge::Horizon;
use tallyring_archive::{GenerationEntry, Manifest, Origin, Partition, RunEntry};

use crate::closed::first_open_year;
use crate::horizon::keeps_as_much;

/// One file of the new generation.
pub(crate) struct Target<'r> {
    /// Month or closed year.
    pub partition: Partition,
    /// Shard.
    pub shard: u16,
    /// Source runs to merge.
    pub inputs: Vec<&'r RunEntry>,
}

/// The files of a new generation: shared ones and merged ones.
pub(crate) struct Plan<'r> {
    /// Files of a kept generation with the same source runs.
    pub shared: Vec<RunEntry>,
    /// Files to write.
    pub merged: Vec<Target<'r>>,
    /// Source runs that the generation counts.
    pub counted: Vec<&'r RunEntry>,
    /// True when the files differ from those of the newest generation, if only by a partition that is gone.
    pub changes: bool,
}

/// Late runs of a partition wait as deltas while they are fewer than this for each shard,
const WAITING_RUNS_MAX: usize = 8;
/// smaller than this part of the partition's files,
const WAITING_PART: u64 = 8;
/// and while those files are this large, so that rewriting them takes time.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// Plans a generation of `shards` shards over the sources of `manifest` and the source runs that were just `exported`,
/// with finer detail from the `horizon` on.
pub(crate) fn plan<'r>(
    manifest: &'r Manifest,
    exported: &'r [RunEntry],
    shards: u16,
    horizon: Horizon,
) -> Plan<'r> {
    let sources: Vec<&RunEntry> = manifest.archive.sources().chain(exported).collect();
    let folds = Folds::new(manifest, exported);
    let mut partitions: BTreeMap<Partition, Vec<&'r RunEntry>> = BTreeMap::new();
    for run in sources {
        let partition = folds.of(run.meta.partition);
        partitions.entry(partition).or_default().push(run);
    }
    let mut plan = Plan {
        shared: Vec::new(),
        merged: Vec::new(),
        counted: Vec::new(),
        changes: false,
    };
    for (partition, mut runs) in partitions {
        leave_waiting(manifest, &folds, partition, &mut runs);
        let same = manifest
            .archive
            .generations
            .iter()
            .rev()
            .find(|generation| {
                folds.has_same(generation, partition, &runs, shards)
                    && keeps_as_much(generation, partition, horizon)
            });
        match same {
            Some(generation) => plan.shared.extend(files_of(generation, partition).cloned()),
            None => plan
                .merged
                .extend((0..shards).filter_map(|shard| target(partition, shard, shards, &runs))),
        }
        plan.counted.extend(runs);
    }
    plan.changes = !plan.merged.is_empty() || is_other(manifest, &plan);
    plan
}

/// Whether the planned files differ from those of the active generation.
fn is_other(manifest: &Manifest, plan: &Plan<'_>) -> bool {
    let names = |files: &[RunEntry]| -> BTreeSet<String> {
        files.iter().map(|file| file.name.clone()).collect()
    };
    match manifest.archive.active_generation() {
        Some(active) => names(&active.files) != names(&plan.shared),
        None => !plan.shared.is_empty(),
    }
}

/// Removes late runs from `runs` that are not worth a rewrite yet.
fn leave_waiting(
    manifest: &Manifest,
    folds: &Folds<'_>,
    partition: Partition,
    runs: &mut Vec<&RunEntry>,
) {
    let Some(newest) = manifest.archive.generations.last() else {
        return;
    };
    let merged = folds.merged_into(newest, partition);
    let bytes: u64 = files_of(newest, partition).map(|file| file.bytes).sum();
    let is_new = |run: &&&RunEntry| !merged.contains(run.name.as_str());
    let new: Vec<&&RunEntry> = runs.iter().filter(is_new).collect();
    let new_bytes: u64 = new.iter().map(|run| run.bytes).sum();
    let shards = files_of(newest, partition).count().max(1);
    let waits = bytes >= REWRITE_BYTES_MIN
        && new.iter().all(|run| run.origin.is_late_export())
        && new_bytes < bytes / WAITING_PART
        && new.len() < WAITING_RUNS_MAX * shards
        // No merged run is gone.
        && merged.len() + new.len() == runs.len();
    if waits {
        runs.retain(|run| merged.contains(run.name.as_str()));
    }
}

/// Maps the partition of a run to that of its file: the same month, or its year when that is closed.
struct Folds<'r> {
    first_open_year: i16,
    /// Years that a run holds as a whole: they are closed, whatever today is.
    years: BTreeSet<i16>,
    /// Partition of every source run that the next generation or a kept one counts.
    known: BTreeMap<&'r str, Partition>,
}

impl<'r> Folds<'r> {
    fn new(manifest: &'r Manifest, exported: &'r [RunEntry]) -> Self {
        let known = || manifest.archive.all_sources().chain(exported);
        let years = known().map(|run| run.meta.partition);
        Self {
            first_open_year: first_open_year(manifest.intake.today),
            years: years
                .filter(|partition| partition.is_year())
                .map(Partition::year)
                .collect(),
            known: known()
                .map(|run| (run.name.as_str(), run.meta.partition))
                .collect(),
        }
    }

    fn of(&self, partition: Partition) -> Partition {
        let closed = self.years.contains(&partition.year());
        partition.folded(if closed {
            i16::MAX
        } else {
            self.first_open_year
        })
    }

    /// Names of the source runs that a generation has merged into a partition.
    fn merged_into<'g>(
        &self,
        generation: &'g GenerationEntry,
        partition: Partition,
    ) -> BTreeSet<&'g str> {
        let merged = generation.merged.iter().map(String::as_str);
        merged
            .filter(|name| self.known.get(name).is_some_and(|&of| partition.holds(of)))
            .collect()
    }

    /// True when the generation's files of the partition are the merge of exactly these runs.
    fn has_same(
        &self,
        generation: &GenerationEntry,
        partition: Partition,
        runs: &[&RunEntry],
        shards: u16,
    ) -> bool {
        let names: BTreeSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        self.merged_into(generation, partition) == names
            && files_of(generation, partition).all(|file| file.meta.shards == shards)
            && files_of(generation, partition).next().is_some()
    }
}

/// Merged files of a partition. Runs that stand in for files after a recount are not merged.
fn files_of(generation: &GenerationEntry, partition: Partition) -> impl Iterator<Item = &RunEntry> {
    let files = generation.files.iter();
    files.filter(move |file| file.meta.partition == partition && file.origin == Origin::Merge)
}

/// One file of the new generation, if it has inputs. Runs with another number of shards may hold any key.
fn target<'r>(
    partition: Partition,
    shard: u16,
    shards: u16,
    runs: &[&'r RunEntry],
) -> Option<Target<'r>> {
    let concerns = |run: &&&RunEntry| run.meta.shards != shards || run.meta.shard == shard;
    let inputs: Vec<&RunEntry> = runs.iter().filter(concerns).copied().collect();
    (!inputs.is_empty()).then_some(Target {
        partition,
        shard,
        inputs,
    })
}
