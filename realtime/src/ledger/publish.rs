//! Changes of the manifest that move counts between generations, publish and rollback, or to smaller files.

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_archive::merge::add_sums;
use tallyring_archive::{
    ArchiveEntry, Build, DatasetEntry, GENERATIONS_KEPT, GenerationEntry, Manifest, Partition, Run,
    RunEntry, StoreEntry, Sums, remove_leftovers_of_rebuild,
};
use tallyring_records::{StoreId, is_minutes_section};

use super::{Ledger, Root};
use crate::error::{Error, Result};

impl Ledger {
    /// Publishes what a rebuild built: its generation becomes the one that is read, the exported
    /// stores are cleared, in one step.
    ///
    /// # Errors
    /// When the build does not fit the store any more, or the disk refuses.
    pub fn publish(&self, build: &Build) -> Result<()> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        check_build(&root.manifest, build)?;
        next.intake
            .stores
            .retain(|store| !build.exported.contains(&store.id));
        next.archive.runs.extend(build.runs.iter().cloned());
        if let Some(built) = &build.generation {
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
            replace_merged_sources(&mut next);
        }
        next.archive.forget_datasets();
        self.switch(&mut root, next, &build.exported)
    }

    /// Reads an older generation from now on. Increments that it lacks count as deltas again, and the next
    /// rebuild merges them. Datasets are those of that generation: what was merged since is forgotten, what
    /// was dropped since is back. What no generation has merged yet goes on waiting for the next one.
    ///
    /// # Errors
    /// [`Error::NoGeneration`] when it is not kept; otherwise when the disk refuses.
    pub fn activate(&self, generation: u64) -> Result<()> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        if root.manifest.archive.generation(generation).is_none() {
            let kept: Vec<String> = root
                .manifest
                .archive
                .generations
                .iter()
                .map(|kept| kept.number.to_string())
                .collect();
            return Err(Error::NoGeneration {
                number: generation,
                kept: kept.join(", "),
            });
        }
        if root.manifest.archive.active == generation {
            return Ok(());
        }
        next.archive.active = generation;
        want_datasets_of(&mut next.archive, generation);
        next.archive.forget_datasets();
        self.switch(&mut root, next, &[])
    }

    /// Puts the content of `made`, which has the same lines, in the place of that of `before`, under every name that it
    /// has by now. False when it has none any more; `made` is removed then.
    ///
    /// # Errors
    /// When `made` is not what it should be, or the disk refuses.
    pub fn replace(&self, before: &RunEntry, made: &RunEntry) -> Result<bool> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        let blobs = &self.blobs;
        Run::open_named(blobs, made)?;
        let named = next.archive.replace(&before.hash, made);
        if !named.is_empty() {
            for name in named.iter().filter(|name| **name != made.name) {
                blobs.copy(&made.name, name)?;
            }
            self.switch(&mut root, next, &[])?;
        }
        let is_named = root.manifest.files().any(|file| file.name == made.name);
        // A file that stays is only space: the next start removes it.
        if !is_named && let Err(error) = blobs.remove(&made.name) {
            tracing::debug!(file = made.name, %error, "cannot remove a file that is not needed");
        }
        Ok(!named.is_empty())
    }

    /// Removes what a rebuild has made that was not published. How many files.
    ///
    /// # Errors
    /// When the disk refuses; the next start removes them.
    pub fn remove_leftovers_of_rebuild(&self) -> Result<usize> {
        let root = self.root();
        root.check()?;
        Ok(remove_leftovers_of_rebuild(&self.blobs, &root.manifest)?)
    }

    /// Commits `next` and lets queries see it, together with the stores it no longer has.
    fn switch(&self, root: &mut Root, next: Manifest, cleared: &[StoreId]) -> Result<()> {
        let blobs = &self.blobs;
        // Opened before the commit: what cannot be read is not published.
        let archive = Arc::new(root.files.archive(blobs, &next)?);
        self.commit_manifest(root, next)?;
        let live = self.intake.live();
        live.publish(archive, &root.manifest, cleared);
        Ok(())
    }
}

/// Wants the datasets of a kept generation, and those that wait to be merged, which are in none: whoever goes back to one
/// did not ask to lose them. They take the place of what has their name there, as they were to.
fn want_datasets_of(archive: &mut ArchiveEntry, number: u64) {
    let ArchiveEntry {
        datasets,
        generations,
        ..
    } = archive;
    let waits = |dataset: &DatasetEntry| {
        dataset.wanted && !generations.iter().any(|kept| dataset.is_in(kept))
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

/// The stores that were exported are as they were, so that publishing neither loses nor doubles.
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
            "it is generation {}, the next is {}",
            built.number,
            newest + 1
        )));
    }
    for id in &build.exported {
        let store = manifest.intake.stores.iter().find(|store| store.id == *id);
        if !store.is_some_and(StoreEntry::is_closed) {
            return Err(Error::StaleBuild(format!(
                "{id} is not a closed and flushed store"
            )));
        }
    }
    // Not those of a dataset that was dropped, replaced or rolled back while it was built.
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
        return Err(Error::StaleBuild(format!("{missing} is no source run now")));
    }
    Ok(())
}

/// Replaces the source runs that every kept generation has merged by the oldest one's files of the same span of time,
/// where those are exactly their merge, expired minutes left out and expired hours folded, however each is sharded. The
/// merge of these files with later runs gives the same bytes: no later generation keeps more of either.
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
        // Of other sources too, such as datasets: not the same counts.
        let sums = |entries: &[&RunEntry]| add_sums(entries.iter().map(|entry| &entry.meta));
        if !are_equal_but_for_minutes(&sums(&runs), &sums(&files)) {
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

fn are_equal_but_for_minutes(sums: &Sums, others: &Sums) -> bool {
    let counted = |sums: &Sums| -> Sums {
        let sums = sums.iter();
        let counted = sums.filter(|(section, _)| !is_minutes_section(section));
        counted
            .map(|(section, &sum)| (section.clone(), sum))
            .collect()
    };
    counted(sums) == counted(others)
}
