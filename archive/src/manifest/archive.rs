//! Questions to the archive of a manifest, and changes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::RangeInclusive;

use tallyring_records::{Day, LoggedFinal};

use super::{ArchiveEntry, DatasetEntry, FinalEntry, GenerationEntry};
use crate::origin::Origin;
use crate::run::RunEntry;

impl ArchiveEntry {
    /// The generation called `number`.
    pub fn generation(&self, number: u64) -> Option<&GenerationEntry> {
        self.generations
            .iter()
            .find(|generation| generation.number == number)
    }

    /// The generation that is read; none before the first rebuild.
    pub fn active_generation(&self) -> Option<&GenerationEntry> {
        self.generation(self.active)
    }

    /// The dataset that the next generation counts under a name.
    pub fn dataset(&self, name: &str) -> Option<&DatasetEntry> {
        self.datasets
            .iter()
            .find(|dataset| dataset.wanted && dataset.name == name)
    }

    /// As [`ArchiveEntry::dataset`], to be changed.
    pub fn dataset_mut(&mut self, name: &str) -> Option<&mut DatasetEntry> {
        self.datasets
            .iter_mut()
            .find(|dataset| dataset.wanted && dataset.name == name)
    }

    /// Source runs that the next generation counts.
    pub fn sources(&self) -> impl Iterator<Item = &RunEntry> {
        let wanted = self.datasets.iter().filter(|dataset| dataset.wanted);
        self.runs
            .iter()
            .chain(wanted.flat_map(|dataset| &dataset.runs))
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
            let renamed = RunEntry {
                corrects: run.corrects,
                ..by.renamed(run.origin.clone())
            };
            names.insert(
                mem::replace(&mut run.name, renamed.name.clone()),
                renamed.name.clone(),
            );
            *run = renamed;
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

    /// Forgets the content of that hash, wherever a source run or a file of a generation has it. It counts nothing.
    pub fn forget(&mut self, hash: &str) {
        let is_kept = |run: &RunEntry| run.hash != hash;
        let gone = self.all_sources().filter(|run| !is_kept(run));
        let gone: BTreeSet<String> = gone.map(|run| run.name.clone()).collect();
        self.runs.retain(is_kept);
        for dataset in &mut self.datasets {
            dataset.runs.retain(is_kept);
        }
        for generation in &mut self.generations {
            generation.files.retain(is_kept);
            generation.merged.retain(|name| !gone.contains(name));
        }
    }

    /// Forgets datasets that nothing counts any more.
    pub fn forget_datasets(&mut self) {
        let generations = &self.generations;
        self.datasets
            .retain(|dataset| dataset.wanted || generations.iter().any(|kept| dataset.is_in(kept)));
    }

    /// Final versions of a day, ascending.
    pub fn finals_of(&self, day: Day) -> &[FinalEntry] {
        let from = self.finals.partition_point(|version| version.day < day);
        let until = self.finals.partition_point(|version| version.day <= day);
        &self.finals[from..until]
    }

    /// The final version that was published last.
    pub fn newest_final(&self) -> Option<&FinalEntry> {
        let newest = |version: &&FinalEntry| (version.at_ms, version.day, version.version);
        self.finals.iter().max_by_key(newest)
    }

    /// The first of these days that is final, or awaited, with that version. Days that may have lost a final dataset
    /// are passed over.
    pub fn first_final(&self, days: &RangeInclusive<Day>) -> Option<(Day, u32)> {
        let finals = self.finals.iter().map(|known| (known.day, known.version));
        let awaited = self.awaited.iter().map(|known| (known.day, known.version));
        let all = finals.chain(awaited);
        let all = all.filter(|(day, _)| days.contains(day) && !self.told_by_log.contains(day));
        all.min()
    }

    /// Marks the newest final version of each of these days as touched: something else counts of the day.
    pub fn touch_finals(&mut self, days: RangeInclusive<Day>) {
        let mut newest = None;
        for version in self.finals.iter_mut().rev() {
            let is_newest = newest.replace(version.day) != Some(version.day);
            version.touched |= is_newest && days.contains(&version.day);
        }
    }

    /// Lets go of books and verdicts of final days before this one, and of the keys that versions from before it name.
    /// The sums of versions stay. A day of which a version is awaited keeps the others, which that one is made from.
    pub fn keep_sums_of_finals(&mut self, before: Day) {
        let awaited = self.awaited.iter().map(|known| known.day);
        let awaited: BTreeSet<Day> = awaited.collect();
        for version in &mut self.finals {
            if version.day < before && !awaited.contains(&version.day) {
                version.books.clear();
                version.verdicts = None;
                version.sums_only = true;
                // A day may have become final long after it.
                let is_old = Day::of(version.at_ms.div_euclid(1_000)) < before;
                let repeated = version.repeated.as_mut().filter(|_| is_old);
                repeated.into_iter().for_each(|keys| keys.most.clear());
            }
        }
    }

    /// Awaited versions of a day, ascending.
    pub fn awaited_of(&self, day: Day) -> impl Iterator<Item = &LoggedFinal> {
        self.awaited.iter().filter(move |logged| logged.day == day)
    }

    /// True where a final version of that day and number is named or awaited.
    pub fn knows_final(&self, day: Day, version: u32) -> bool {
        let mut finals = self.finals_of(day).iter();
        finals.any(|known| known.version == version)
            || self.awaited_of(day).any(|known| known.version == version)
    }

    /// Awaits a final version that the log has, unless it is named or awaited already.
    pub fn await_final(&mut self, logged: LoggedFinal) {
        let (day, version) = (logged.day, logged.version);
        if !self.knows_final(day, version) {
            let is_before = |known: &LoggedFinal| (known.day, known.version) < (day, version);
            let place = self.awaited.partition_point(is_before);
            self.awaited.insert(place, logged);
        }
    }

    /// The least version that the next fix of a day may have, and the version that its next final version has: above
    /// those of all its fixes and final versions, the awaited ones included.
    pub fn next_fix(&self, day: Day) -> u32 {
        let finals = self.finals_of(day).iter().map(|version| version.version);
        let awaited = self.awaited_of(day).map(|version| version.version);
        let fixes = self.runs.iter().filter_map(|run| match run.origin {
            Origin::Fix {
                day: of, version, ..
            } if of == day => Some(version),
            _ => None,
        });
        let versions = fixes.chain(finals).chain(awaited);
        versions.max().unwrap_or(0).saturating_add(1)
    }

    /// Days that have a fix; a day comes once for each of its runs.
    pub fn fixed_days(&self) -> impl Iterator<Item = Day> {
        self.runs.iter().filter_map(|run| match run.origin {
            Origin::Fix { day, .. } => Some(day),
            _ => None,
        })
    }

    /// Source runs of the ring that the active generation has not merged.
    pub fn pending(&self) -> impl Iterator<Item = &RunEntry> {
        let active = self.active_generation().into_iter();
        let merged: BTreeSet<&str> = active
            .flat_map(|generation| &generation.merged)
            .map(String::as_str)
            .collect();
        self.runs
            .iter()
            .filter(move |run| !merged.contains(run.name.as_str()))
    }
}
