//! Changes of the manifest that move counts between generations (publish and rollback), or to smaller files.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_archive::merge::{add_sums, may_lose};
use tallyring_archive::{
    ArchiveEntry, Build, DatasetEntry, GENERATIONS_KEPT, GenerationEntry, Manifest, Partition, Run,
    RunEntry, StoreEntry, Sums,
};
use tallyring_records::{Day, StoreId};

use super::datasets::prove;
use super::{Ledger, Root};
use crate::error::{Error, Result};

impl Ledger {
    /// Publishes the result of a rebuild in one step: its generation becomes the active one, and the exported delta
    /// stores are cleared. Fails when the build no longer fits the store.
    pub fn publish(&self, build: &Build) -> Result<()> {
        // Outside of the lock, because this reads files.
        let unproven = self.unproven_datasets(&self.intake.live().manifest().archive);
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        prove(&mut next.archive, &unproven);
        check_build(&next, build)?;
        next.intake
            .stores
            .retain(|store| !build.exported.contains(&store.id));
        next.archive.runs.extend(build.runs.iter().cloned());
        if let Some(built) = &build.generation {
            // An empty stand-in stays for as long as a generation would: until then no source run is replaced, so that
            // another recount may follow.
            let kept = next.archive.generations.iter_mut();
            for stand_in in kept.filter(|kept| kept.is_stand_in()) {
                stand_in.merged.clear();
                stand_in.files.clear();
            }
            next.archive.generations.push(GenerationEntry {
                created_at_ms: next.written_at_ms,
                ..built.clone()
            });
            next.archive.active = built.number;
            let surplus = next
                .archive
                .generations
                .len()
                .saturating_sub(GENERATIONS_KEPT);
            next.archive.generations.drain(..surplus);
            forget_beyond_healing(&mut next.archive, &self.damaged());
            replace_merged_sources(&mut next);
            if let Some(days) = self.intake.options().final_days {
                // The ring's today follows no doubted clock.
                let today = next.intake.today.number();
                let before = Day::from_number(today.saturating_sub(days));
                next.archive.keep_sums_of_finals(before);
            }
        }
        for cleaned in &build.cleaned {
            match &cleaned.by {
                Some(by) => drop(self.put_in_place(&mut next, &cleaned.hash, by)?),
                None => next.archive.forget(&cleaned.hash),
            }
        }
        next.archive.forget_datasets();
        self.switch(&mut root, next, &build.exported)?;
        for why in &build.refused {
            tracing::error!(
                "the fixes of a month are not merged, and reads of a count fail: {why}"
            );
        }
        Ok(())
    }

    /// Puts the content of `by` in the place of the content with this hash, under every name of it in `next`. Returns
    /// whether there is a name.
    fn put_in_place(&self, next: &mut Manifest, hash: &str, by: &RunEntry) -> Result<bool> {
        Run::open_named(&self.blobs, by)?;
        let named = next.archive.replace(hash, by);
        for name in named.iter().filter(|name| **name != by.name) {
            self.blobs.copy(&by.name, name)?;
        }
        Ok(!named.is_empty())
    }

    /// Makes an older generation the active one. Increments that it lacks count as deltas again, and the next rebuild
    /// merges them. The datasets are those of that generation: datasets that were merged later are forgotten, and
    /// datasets that were dropped later are back. Datasets that no generation has merged go on waiting for the next
    /// one, and so do final ones that this generation lacks. Fails with [`Error::NoGeneration`] when the generation is
    /// not kept.
    pub fn activate(&self, generation: u64) -> Result<()> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        let active = root.manifest.archive.active;
        let kept = root.manifest.archive.generations.iter();
        let kept = kept.filter(|kept| !kept.is_stand_in() || kept.number == active);
        let kept: Vec<u64> = kept.map(|kept| kept.number).collect();
        if !kept.contains(&generation) {
            let kept: Vec<String> = kept.iter().map(u64::to_string).collect();
            return Err(Error::NoGeneration {
                number: generation,
                kept: kept.join(", "),
            });
        }
        if active == generation {
            return Ok(());
        }
        next.archive.active = generation;
        want_datasets_of(&mut next.archive, generation);
        next.archive.forget_datasets();
        self.switch(&mut root, next, &[])
    }

    /// Replaces the content of `before` by the content of `replacement`, which has equal lines, under every name of
    /// that content. Returns false when no name is left; `replacement` is removed then. Fails when `replacement` is not
    /// a valid run.
    pub fn replace(&self, before: &RunEntry, replacement: &RunEntry) -> Result<bool> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        let is_replaced = self.put_in_place(&mut next, &before.hash, replacement)?;
        if is_replaced {
            self.switch(&mut root, next, &[])?;
        }
        let is_named = root
            .manifest
            .files()
            .any(|file| file.name == replacement.name);
        // A remaining file only takes space, and the next start removes it.
        if !is_named && let Err(error) = self.blobs.remove(&replacement.name) {
            tracing::debug!(file = replacement.name, %error, "cannot remove a file that is not needed");
        }
        Ok(is_replaced)
    }

    /// Removes those of the files that a failed rebuild has `made` which were not published. Files that others make
    /// stay. Fails when it is unknown which manifest counts; the next start then removes the files.
    pub fn remove_unpublished(&self, made: &[String]) -> Result<()> {
        let root = &mut *self.root();
        root.check()?;
        let made = made.iter().map(String::as_str);
        root.files.remove_unnamed(&self.blobs, made, &root.manifest);
        Ok(())
    }

    /// Commits `next` and shows it to queries, together with the removal of the cleared delta stores.
    pub(super) fn switch(
        &self,
        root: &mut Root,
        next: Manifest,
        cleared: &[StoreId],
    ) -> Result<()> {
        let blobs = &self.blobs;
        // Opened before the commit, because a file that cannot be read must not be published. Flushes wait for the
        // root meanwhile, so all that the object store is asked for is asked at once.
        root.files.open_whole(blobs, &next)?;
        let archive = Arc::new(root.files.archive(blobs, &next)?);
        self.commit_manifest(root, next)?;
        let live = self.intake.live();
        live.publish(archive, &root.manifest, cleared);
        Ok(())
    }
}

/// Forgets kept generations that are not read and have merged damaged source runs that nothing wants any more, such as
/// those of a dataset that was given up: their files cannot be made again.
fn forget_beyond_healing(archive: &mut ArchiveEntry, damaged: &BTreeSet<String>) {
    let sources: BTreeSet<&str> = archive.sources().map(|run| &*run.name).collect();
    let is_lost = |name: &String| damaged.contains(name) && !sources.contains(&**name);
    let beyond = archive.generations.iter().filter(|kept| {
        let mut merged = kept.merged.iter();
        kept.number != archive.active && merged.any(is_lost)
    });
    let beyond: BTreeSet<u64> = beyond.map(|kept| kept.number).collect();
    let is_kept = |kept: &GenerationEntry| !beyond.contains(&kept.number);
    archive.generations.retain(is_kept);
}

/// Wants the datasets of a kept generation, the datasets that no generation has merged yet, and final ones: a rollback
/// is no request to lose them. A waiting dataset replaces the dataset with its name in that generation, as it would
/// have.
fn want_datasets_of(archive: &mut ArchiveEntry, number: u64) {
    let ArchiveEntry {
        datasets,
        generations,
        ..
    } = archive;
    let waits = |dataset: &DatasetEntry| {
        let is_merged = generations.iter().any(|kept| dataset.is_in(kept));
        dataset.wanted && (dataset.is_final || !is_merged)
    };
    let waiting: BTreeSet<String> = datasets
        .iter()
        .filter(|dataset| waits(dataset))
        .map(|dataset| dataset.name.clone())
        .collect();
    let active = generations.iter().find(|kept| kept.number == number);
    for dataset in datasets {
        let is_in = active.is_some_and(|active| dataset.is_in(active));
        dataset.wanted = waits(dataset) || is_in && !waiting.contains(&dataset.name);
    }
}

/// Checks that the exported delta stores are as they were, so that publishing neither loses nor doubles counts.
fn check_build(manifest: &Manifest, build: &Build) -> Result<()> {
    let newest = manifest
        .archive
        .generations
        .last()
        .map_or(0, |generation| generation.number);
    if let Some(built) = build
        .generation
        .as_ref()
        .filter(|built| built.number != newest + 1)
    {
        return Err(Error::StaleBuild(format!(
            "the build is generation {}, but the next generation is {}",
            built.number,
            newest + 1
        )));
    }
    if let Some(built) = &build.generation {
        check_fixes(manifest, built)?;
    }
    for id in &build.exported {
        let store = manifest.intake.stores.iter().find(|store| store.id == *id);
        if !store.is_some_and(StoreEntry::is_closed) {
            return Err(Error::StaleBuild(format!(
                "delta store {id} is not closed and flushed"
            )));
        }
    }
    // Runs of a dataset that was dropped, replaced, rolled back or left out meanwhile are missing here.
    let known: BTreeSet<&str> = manifest
        .archive
        .sources()
        .chain(&build.runs)
        .map(|run| run.name.as_str())
        .collect();
    let merged = build.generation.iter().flat_map(|built| &built.merged);
    if let Some(missing) = merged
        .into_iter()
        .find(|name| !known.contains(name.as_str()))
    {
        return Err(Error::StaleBuild(format!(
            "{missing} is no longer a source run"
        )));
    }
    Ok(())
}

/// Checks that a generation keeps the detail of every fix that it has not merged: counts that are taken away must
/// find those counts in the same buckets.
fn check_fixes(manifest: &Manifest, built: &GenerationEntry) -> Result<()> {
    let horizon = built.horizon();
    let fixes = manifest
        .archive
        .runs
        .iter()
        .filter(|run| run.origin.is_fix());
    let mut left = fixes.filter(|run| !built.merged.contains(&run.name));
    match left.find(|run| horizon.loses(run)) {
        Some(run) => Err(Error::StaleBuild(format!(
            "it leaves out detail of a day that {} corrects, and has not merged this run",
            run.name
        ))),
        None => Ok(()),
    }
}

/// Replaces the source runs that every kept generation has merged by the files of the oldest generation for the same
/// span of time. Those files must be exactly the merge of these runs, apart from expired minutes or actions and folded
/// hours; shards may differ. A merge of these files with later runs gives the same bytes, because no later generation
/// keeps more minutes or hours. Where days of a partition were corrected, all its source runs stay.
fn replace_merged_sources(manifest: &mut Manifest) {
    let Some(oldest) = manifest.archive.generations.first().cloned() else {
        return;
    };
    let partitions: BTreeSet<Partition> = oldest
        .files
        .iter()
        .map(|file| file.meta.partition)
        .collect();
    for partition in partitions {
        let of_partition = |file: &&RunEntry| file.meta.partition == partition;
        let files: Vec<&RunEntry> = oldest.files.iter().filter(of_partition).collect();
        let in_oldest = |run: &&RunEntry| {
            partition.holds(run.meta.partition) && oldest.merged.contains(&run.name)
        };
        let runs: Vec<&RunEntry> = manifest.archive.runs.iter().filter(in_oldest).collect();
        let replaced: BTreeSet<String> = runs.iter().map(|run| run.name.clone()).collect();
        if replaced.is_empty() || hashes(&runs) == hashes(&files) {
            continue;
        }
        // A recount would lose the fixes with the runs, and no version of their days could be told from another.
        if runs.iter().any(|run| run.origin.is_fix()) {
            continue;
        }
        // Unequal sums: the files have other sources too, such as datasets.
        let sums = |entries: &[&RunEntry]| {
            let metas = entries.iter().map(|entry| (entry.sign(), &entry.meta));
            add_sums(metas).ok()
        };
        let is_same = sums(&runs).zip(sums(&files));
        if !is_same.is_some_and(|(runs, files)| are_equal_but_for_what_expires(&runs, &files)) {
            continue;
        }
        manifest
            .archive
            .runs
            .retain(|run| !replaced.contains(&run.name));
        manifest.archive.runs.extend(files.iter().copied().cloned());
        for generation in &mut manifest.archive.generations {
            generation.merged.retain(|name| !replaced.contains(name));
            let names = files.iter().map(|file| file.name.clone());
            generation.merged.extend(names);
        }
    }
}

fn hashes<'r>(runs: &[&'r RunEntry]) -> BTreeSet<&'r str> {
    runs.iter().map(|run| run.hash.as_str()).collect()
}

fn are_equal_but_for_what_expires(sums: &Sums, others: &Sums) -> bool {
    let counted = |sums: &Sums| -> Sums {
        let sums = sums.iter();
        let counted = sums.filter(|(section, _)| !may_lose(section));
        counted
            .map(|(section, &sum)| (section.clone(), sum))
            .collect()
    };
    counted(sums) == counted(others)
}
