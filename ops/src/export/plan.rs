//! Which months an export has, and which files each of them is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tallyring_archive::{Manifest, Partition, RunEntry};
use tallyring_records::{Day, Grain, Namespace, StoreId, TimeCode};

/// Begins what a digest is of: another number has all months written again.
const VERSION: &str = "tallyring export 1\n";

/// All months with closed days that files count something of.
pub(super) struct Plan<'m> {
    /// The first day that is not closed.
    pub until: Day,
    /// Ascending.
    pub groups: Vec<Group<'m>>,
}

/// Months that are made of the same files: one, or those of a closed year.
pub(super) struct Group<'m> {
    /// Files that count, and those whose counts are taken away, each with the number of its strand.
    runs: Vec<(usize, &'m RunEntry)>,
    /// The months with the digest of what each is made of.
    pub months: BTreeMap<Partition, String>,
    until: Day,
}

/// The first and the last month that are asked for.
pub(super) type Asked = (Option<Partition>, Option<Partition>);

/// True for a month that is asked for.
pub(super) fn is_asked(month: Partition, (from, to): Asked) -> bool {
    from.is_none_or(|from| from.start() <= month.start())
        && to.is_none_or(|to| month.end() <= to.end())
}

impl<'m> Plan<'m> {
    /// Plans from the manifests of all strands.
    pub(super) fn of(manifests: &'m [Manifest], namespaces: &[&Namespace], asked: Asked) -> Self {
        let until = manifests.iter().map(open_from).min();
        let until = until.expect("BUG: a store has a strand");
        let runs: Vec<(usize, &RunEntry)> = (0..)
            .zip(manifests)
            .flat_map(|(strand, manifest)| counted(manifest).map(move |run| (strand, run)))
            .collect();
        let partitions = runs.iter().map(|(_, run)| run.meta.partition);
        let years: BTreeSet<i16> = partitions
            .filter(|of| of.is_year())
            .map(Partition::year)
            .collect();
        let mut grouped: BTreeMap<Partition, Vec<(usize, &RunEntry)>> = BTreeMap::new();
        for (strand, run) in runs {
            let partition = run.meta.partition;
            let partition = match years.contains(&partition.year()) {
                true => partition.folded(i16::MAX),
                false => partition,
            };
            grouped.entry(partition).or_default().push((strand, run));
        }
        let groups = grouped.into_iter().map(|(partition, runs)| {
            let months = months(partition).filter(|month| is_asked(*month, asked));
            let months = months.filter_map(|month| {
                let counted = within(&runs, &closed(month, until));
                let digest = digest(namespaces, &counted, closed(month, until));
                (!counted.is_empty()).then_some((month, digest))
            });
            let months = months.collect();
            Group {
                runs,
                months,
                until,
            }
        });
        Self {
            until,
            groups: groups.collect(),
        }
    }
}

impl Group<'_> {
    /// Size of the files, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.runs.iter().map(|(_, run)| run.bytes).sum()
    }

    /// The instants of some of its months that are closed, Unix seconds.
    pub(super) fn range(&self, months: &[Partition]) -> Range<i64> {
        let ranges = || months.iter().map(|month| closed(*month, self.until));
        let start = ranges().map(|range| range.start).min();
        let end = ranges().map(|range| range.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// The files that count in a range, shard by shard where all have equally many shards: a key is in one of them.
    pub(super) fn by_shard(&self, range: &Range<i64>) -> Vec<Vec<(usize, &RunEntry)>> {
        let runs = within(&self.runs, range);
        let shards: BTreeSet<u16> = runs.iter().map(|(_, run)| run.meta.shards).collect();
        if shards.len() > 1 {
            return vec![runs];
        }
        let mut of_shards: BTreeMap<u16, Vec<(usize, &RunEntry)>> = BTreeMap::new();
        for run in runs {
            of_shards.entry(run.1.meta.shard).or_default().push(run);
        }
        of_shards.into_values().collect()
    }
}

/// The files that may count something in a range.
fn within<'m>(runs: &[(usize, &'m RunEntry)], range: &Range<i64>) -> Vec<(usize, &'m RunEntry)> {
    let counts = |(_, run): &&(usize, &RunEntry)| {
        !range.is_empty() && run.meta.overlaps(range.start, range.end)
    };
    runs.iter().filter(counts).copied().collect()
}

/// The first day of which memory may hold counts that came in time.
fn open_from(manifest: &Manifest) -> Day {
    let stores = manifest.intake.stores.iter();
    let open = stores.filter(|store| !store.is_closed());
    let days = open.filter_map(|store| match store.id {
        StoreId::Day(day) => Some(day),
        StoreId::Again(..) | StoreId::Late(_) => None,
    });
    days.min().unwrap_or(manifest.intake.today)
}

/// The files that count now: those that queries read.
fn counted(manifest: &Manifest) -> impl Iterator<Item = &RunEntry> {
    let active = manifest.archive.active_generation();
    let files = active.into_iter().flat_map(|active| &active.files);
    let flushed = manifest.intake.stores.iter().flat_map(|store| &store.runs);
    files.chain(manifest.archive.pending()).chain(flushed)
}

/// The part of a month that is closed, Unix seconds.
fn closed(month: Partition, until: Day) -> Range<i64> {
    month.start()..month.end().min(until.start())
}

/// The months of a partition.
fn months(partition: Partition) -> impl Iterator<Item = Partition> {
    let of = |start| Partition::month_of(TimeCode::containing(start, Grain::Day));
    let next = move |month: &Partition| Some(of(month.end()));
    let end = partition.end();
    std::iter::successors(Some(of(partition.start())), next)
        .take_while(move |month| month.start() < end)
}

/// A hash of everything that the rows of a month are made of.
fn digest(namespaces: &[&Namespace], runs: &[(usize, &RunEntry)], range: Range<i64>) -> String {
    let mut parts: Vec<String> = runs
        .iter()
        .map(|(strand, run)| format!("{strand} {:?} {} {}\n", run.sign(), run.name, run.hash))
        .collect();
    parts.sort_unstable();
    let subtotals = |of: &&Namespace| format!("{} {}\n", of.name, of.subtotals.join(" "));
    let declared: String = namespaces.iter().map(subtotals).collect();
    let text = format!("{VERSION}{range:?}\n{declared}{}", parts.concat());
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}
