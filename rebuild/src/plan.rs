//! Plans which partitions a new generation must rewrite, and which files it shares with a kept one.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::merge::Horizon;
use tallyring_archive::{
    Corrects, GenerationEntry, Manifest, Origin, Partition, RunEntry, StoreEntry,
};
use tallyring_records::{Day, is_breakdown_section};

use crate::closed::first_open_year;
use crate::export::bytes;
use crate::generation::BuildOptions;
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
#[derive(Default)]
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

/// At most this many exports of a partition and shard wait: a read looks into each of them.
const WAITING_RUNS_MAX: usize = 32;
/// Late exports of a closed month wait while they are smaller than this part of its files,
const LATE_PART: u64 = 8;
/// and fewer than this for each shard.
const LATE_RUNS_MAX: usize = 8;

/// Plans a generation over the sources of `manifest` and the source runs that were just `exported`, with finer detail
/// from the `horizon` on. Fixes of the `refused` partitions stay deltas.
pub(crate) fn plan<'r>(
    manifest: &'r Manifest,
    exported: &'r [RunEntry],
    options: &BuildOptions,
    horizon: Horizon,
    refused: &BTreeMap<Partition, String>,
) -> Plan<'r> {
    let shards = options.shards;
    let sources: Vec<&RunEntry> = manifest.archive.sources().chain(exported).collect();
    let folds = Folds::new(manifest, exported);
    let mut partitions: BTreeMap<Partition, Vec<&'r RunEntry>> = BTreeMap::new();
    for run in sources {
        let partition = folds.of(run.meta.partition);
        partitions.entry(partition).or_default().push(run);
    }
    let mut plan = Plan::default();
    for (partition, mut runs) in partitions {
        leave_waiting(
            manifest,
            &folds,
            partition,
            (options.rewrite_bytes_min, horizon),
            &mut runs,
        );
        leave_early_fixes(manifest, &mut runs);
        if refused.contains_key(&partition) {
            runs.retain(|run| !run.origin.is_fix());
        }
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

/// Removes exports from `runs` whose merge would write much more than they hold; they go on counting as deltas.
///
/// In the month of yesterday they wait until they hold twice as much as the partition's files. A month is thus written
/// again each time that it has tripled, and once more when it is over: all merges of a month write about twice its
/// bytes. Merged every night, they would write it fifteen times.
fn leave_waiting(
    manifest: &Manifest,
    folds: &Folds<'_>,
    partition: Partition,
    (rewrite_bytes_min, horizon): (u64, Horizon),
    runs: &mut Vec<&RunEntry>,
) {
    let Some(newest) = manifest.archive.generations.last() else {
        return;
    };
    let merged = folds.merged_into(newest, partition);
    let files_bytes = bytes(&files_of(newest, partition).collect::<Vec<_>>());
    let (old, new): (Vec<&RunEntry>, Vec<&RunEntry>) = runs
        .iter()
        .copied()
        .partition(|run| merged.contains(run.name.as_str()));
    let is_open = partition.end() > manifest.intake.today.previous().start();
    let may_wait = |run: &&RunEntry| {
        let is_of_ring = match run.origin {
            Origin::Export { .. } => true,
            // No file may lose detail that is to be taken away from it.
            Origin::Fix { .. } => !horizon.loses(run),
            _ => false,
        };
        run.origin.is_late_export() || is_open && is_of_ring
    };
    let has_gone = merged.len() > old.len();
    if files_bytes < rewrite_bytes_min || has_gone || !new.iter().all(may_wait) {
        return;
    }
    // A file with breakdowns by minute would have to be written again as soon as these expire. The source runs of one
    // delta store wait together, so that a generation holds all of a day or nothing of it.
    let expire = new.iter().filter(|run| has_breakdowns(run, horizon));
    let expire: BTreeSet<&Origin> = expire.map(|run| &run.origin).collect();
    let (whole, expiring): (Vec<&RunEntry>, Vec<&RunEntry>) = new
        .into_iter()
        .partition(|run| !is_open || !expire.contains(&run.origin));
    let (bytes_max, count_max) = match is_open {
        true => (2 * files_bytes, WAITING_RUNS_MAX),
        false => (files_bytes / LATE_PART, LATE_RUNS_MAX),
    };
    let shards = files_of(newest, partition).count();
    let waits = bytes(&whole) < bytes_max && whole.len() + expiring.len() < count_max * shards;
    // Counts are taken away only together with all counts from which they may be taken.
    let fixes_wait = waits && !whole.is_empty() || !expiring.is_empty();
    runs.retain(|run| {
        let named = |waiting: &[&RunEntry]| waiting.iter().any(|other| other.name == run.name);
        let is_new = named(&whole) || named(&expiring);
        !(named(&expiring) || is_new && (waits || fixes_wait && run.origin.is_fix()))
    });
}

/// Removes fixes from `runs` as long as a delta store that no export of this build holds may count something that they
/// take away: until then they stay deltas. So do later fixes of the day, which may take away what the earlier ones add.
/// A fix that a generation has merged is never early again: whatever a delta store counts since then is not corrected
/// by it. All other source runs of the partition are in `runs`.
fn leave_early_fixes(manifest: &Manifest, runs: &mut Vec<&RunEntry>) {
    let kept = manifest.archive.generations.iter();
    // A recount counts again what the files counted for which a generation stands in.
    let kept = kept.filter(|kept| !kept.is_stand_in());
    let merged: BTreeSet<&str> = kept
        .flat_map(|kept| &kept.merged)
        .map(|name| &**name)
        .collect();
    let mut early: BTreeMap<Day, u32> = BTreeMap::new();
    for run in runs.iter().filter(|run| !merged.contains(&*run.name)) {
        if let (Some(corrects), &Origin::Fix { day, version, .. }) = (run.corrects, &run.origin)
            && may_be_counted(manifest, day, corrects)
        {
            let first = early.entry(day).or_insert(version);
            *first = version.min(*first);
        }
    }
    runs.retain(|run| match &run.origin {
        Origin::Fix { day, version, .. } => early.get(day).is_none_or(|first| version < first),
        _ => true,
    });
}

/// True where an open delta store has counts of records that a fix of `day` corrects. This build exports closed ones.
fn may_be_counted(manifest: &Manifest, day: Day, corrects: Corrects) -> bool {
    let (start, end) = (day.start(), day.next().start());
    let has_counts = |store: &StoreEntry| {
        let mut runs = store.runs.iter();
        // The late store stays open for as long as it counts nothing.
        store.flushed.sequence < corrects.until || runs.any(|run| run.meta.overlaps(start, end))
    };
    let open = manifest
        .intake
        .stores
        .iter()
        .filter(|store| !store.is_closed());
    let mut of_day = open.filter(|store| store.id.day().is_none_or(|of| of == day));
    of_day.any(|store| corrects.meets(store) && has_counts(store))
}

/// True when the run may hold breakdowns by minute that are still kept.
fn has_breakdowns(run: &RunEntry, horizon: Horizon) -> bool {
    let mut sections = run.meta.sums.keys();
    run.meta.last >= horizon.breakdowns_from && sections.any(|name| is_breakdown_section(name))
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
