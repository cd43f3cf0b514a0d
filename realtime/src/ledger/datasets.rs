//! Bulk datasets: a sorted load is adopted as a dataset, counts with the next generation, and may be dropped again.

use std::collections::BTreeMap;

use tallyring_archive::{
    ArchiveEntry, Blobs, DatasetEntry, DatasetProof, Error as ArchiveError, Manifest, Origin,
    RunEntry, Staged, counts_hash, names, takes_place, verify_bytes,
};
use tallyring_records::{DatasetGone, Day, LoggedDataset, Record, how_many};

use super::{Ledger, Root};
use crate::error::{Error, Result};

/// Longest name of a dataset, characters.
const NAME_CHARS_MAX: usize = 64;

impl Ledger {
    /// Adopts the runs of the load `load` as the dataset `name`. Every byte is checked, the runs get their names among
    /// the source runs, and one manifest names them. The dataset counts when the next generation is published. With
    /// `replace`, the dataset that had the name before stops counting in the same step. So does a final one that has
    /// lost files, where the load has exactly its counts. Fails when the name is taken or invalid, the load is missing
    /// or damaged, final numbers would change, or the disk fails. Nothing has changed then.
    pub fn adopt(&self, name: &str, load: &str, replace: bool) -> Result<DatasetEntry> {
        check_dataset_name(name)?;
        if !names::is_load(load) {
            return Err(Error::Load(format!(
                "`{}` is not the name of a load",
                load.escape_debug()
            )));
        }
        let blobs = &self.blobs;
        let staged = match Staged::read(blobs, load) {
            Err(error) if error.is_gone() => return Err(Error::NoLoad(load.to_owned())),
            read => read?,
        };
        if staged.store_id != self.intake.live().manifest().store_id || staged.load != load {
            return Err(Error::Load(
                "the load was sorted for another data directory".into(),
            ));
        }
        // Outside of the lock, because this reads every byte.
        for run in &staged.runs {
            verify_bytes(blobs, run).map_err(|error| match error {
                ArchiveError::Io { .. } => error.into(),
                damage => Error::Load(format!("the files of the load are damaged: {damage}")),
            })?;
        }
        let content = match staged.is_final {
            true => Some(counts_hash(blobs, &staged.runs)?),
            false => None,
        };
        let broken = broken_final(blobs, &self.intake.live().manifest(), name);
        let is_broken = broken.is_some();
        let mut root = self.root();
        let adopted = self.adopt_staged(&mut root, name, (&staged, content), (replace, broken));
        if adopted.is_err() && root.check().is_ok() {
            self.withdraw(&mut root, &staged);
        }
        let adopted = adopted?;
        drop(root);
        if is_broken {
            self.look_again();
        }
        // The source runs have other names now. A file that cannot be removed only takes space.
        for name in staged
            .runs
            .iter()
            .map(|run| run.name.clone())
            .chain([names::staged(load)])
        {
            let _ = blobs.remove(&name);
        }
        Ok(adopted)
    }

    /// Copies the runs of a load to names among the source runs, and names these in a manifest.
    fn adopt_staged(
        &self,
        root: &mut Root,
        name: &str,
        (staged, content): (&Staged, Option<String>),
        (replace, broken): (bool, Option<LoggedDataset>),
    ) -> Result<DatasetEntry> {
        let blobs = &self.blobs;
        let mut next = self.next_manifest(root)?;
        let mut is_logged = false;
        if let Some(taken) = next.archive.dataset_mut(name) {
            // Another one may have its name by now.
            let broken = broken.filter(|broken| taken.logged().as_ref() == Some(broken));
            match (&broken, &content) {
                (Some(broken), Some(content)) => {
                    check_same(&root.manifest, broken, content)?;
                    is_logged = taken.proof.as_ref().is_some_and(|proof| proof.is_logged);
                }
                _ if !replace => return Err(Error::DatasetTaken(name.to_owned())),
                _ => check_droppable(&root.manifest.archive, taken)?,
            }
            taken.wanted = false;
        }
        if let Some(content) = content.as_ref().filter(|_| !is_logged) {
            check_final(&next, name, &staged.runs, content)?;
            let lost = &mut next.archive.lost_datasets;
            let found = lost.iter().position(|lost| lost.is(name, content));
            is_logged = found.map(|place| lost.remove(place)).is_some();
        }
        let mut runs = Vec::new();
        for run in &staged.runs {
            let source = source_run(&staged.load, run)?;
            // A name is the hash of its content, so a taken name has the same content.
            blobs.copy(&run.name, &source.name)?;
            runs.push(source);
        }
        let adopted = DatasetEntry {
            name: name.to_owned(),
            load: staged.load.clone(),
            adopted_at_ms: next.written_at_ms,
            rows: staged.rows,
            wanted: true,
            is_final: staged.is_final,
            proof: content.map(|content| DatasetProof { content, is_logged }),
            runs,
        };
        // The books of a day are read with its final datasets.
        if !adopted.is_final {
            for run in &adopted.runs {
                next.archive.touch_finals(run.meta.days());
            }
        }
        next.archive.datasets.push(adopted.clone());
        next.archive.forget_datasets();
        self.intake.raise_bounds(&adopted.runs);
        self.commit_datasets(root, next)?;
        Ok(adopted)
    }

    /// Removes the source runs that a failed adoption has created. Otherwise their bytes stay until the next start,
    /// even when the load itself is removed, and a full disk stays full.
    fn withdraw(&self, root: &mut Root, staged: &Staged) {
        let created: Vec<String> = staged
            .runs
            .iter()
            .filter_map(|run| Some(source_run(&staged.load, run).ok()?.name))
            .collect();
        let created = created.iter().map(String::as_str);
        root.files
            .remove_unnamed(&self.blobs, created, &root.manifest);
    }

    /// Drops a dataset. It stops counting when the next generation is published. Fails when no dataset has that name,
    /// when its counts are part of final numbers, or the disk fails.
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        let Some(found) = next.archive.dataset_mut(name) else {
            let wanted = next
                .archive
                .datasets
                .iter()
                .filter(|dataset| dataset.wanted);
            return Err(Error::NoDataset {
                name: name.to_owned(),
                existing: wanted
                    .map(|dataset| dataset.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        };
        check_droppable(&root.manifest.archive, found)?;
        found.wanted = false;
        next.archive.forget_datasets();
        self.commit_datasets(&mut root, next)
    }

    /// Gives up a final dataset that is lost, or of which files are gone or damaged: its days are final without it,
    /// once a generation is published that does not count it. The log has a record of that, with the `reason` and the
    /// `actor` as in [`DatasetGone`]. Reads all files of the dataset. Fails when no such dataset is lost, and when the
    /// log takes no more writes or the disk fails; the log may have the record then, and the next manifest obeys it.
    pub fn give_up_dataset(&self, name: &str, reason: &str, actor: &str) -> Result<()> {
        let broken = broken_final(&self.blobs, &self.intake.live().manifest(), name);
        let mut root = self.root();
        root.check()?;
        let archive = &root.manifest.archive;
        let is_named = |broken: &LoggedDataset| {
            let named = archive.dataset(name).and_then(DatasetEntry::logged);
            named.as_ref() == Some(broken)
        };
        let lost = archive.lost_datasets.iter();
        let lost = lost.filter(|lost| lost.name == name).cloned();
        let lost: Vec<LoggedDataset> = lost.chain(broken.filter(is_named)).collect();
        if lost.is_empty() {
            let what = not_lost(archive, name);
            return Err(Error::NotLost {
                name: name.to_owned(),
                what,
            });
        }
        let gone = lost.into_iter().map(|dataset| DatasetGone {
            dataset,
            reason: reason.to_owned(),
            actor: actor.to_owned(),
        });
        let records: Vec<Record> = gone.map(Record::DatasetGone).collect();
        self.intake.tell(&records)?;
        for record in &records {
            root.finals.datasets.note(record);
        }
        let next = self.next_manifest(&root)?;
        self.commit_datasets(&mut root, next)?;
        drop(root);
        self.look_again();
        Ok(())
    }

    /// Tells the log of final datasets that an older build loaded, where a rebuild finds nothing to publish. One whose
    /// files cannot be read waits for the next rebuild. Fails when the disk does.
    pub fn prove_datasets(&self) -> Result<()> {
        let unproven = self.unproven_datasets(&self.intake.live().manifest().archive);
        if unproven.is_empty() {
            return Ok(());
        }
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        prove(&mut next.archive, &unproven);
        self.commit_datasets(&mut root, next)
    }

    /// The hash of the counts of final datasets of which the log cannot tell yet, because an older build loaded them,
    /// by load. One whose files cannot be read waits for the next rebuild.
    pub(super) fn unproven_datasets(&self, archive: &ArchiveEntry) -> BTreeMap<String, String> {
        let datasets = archive.datasets.iter();
        let unproven = datasets.filter(|dataset| dataset.is_final && dataset.proof.is_none());
        let hashed = unproven.filter_map(|dataset| {
            let hash = counts_hash(&self.blobs, &dataset.runs).inspect_err(|error| {
                tracing::warn!(dataset = dataset.name, %error, "the log is not told of a final dataset yet");
            });
            Some((dataset.load.clone(), hash.ok()?))
        });
        hashed.collect()
    }

    fn commit_datasets(&self, root: &mut Root, next: Manifest) -> Result<()> {
        self.commit_manifest(root, next)?;
        self.intake.live().name(&root.manifest);
        Ok(())
    }
}

/// The reason why a dataset is not lost, and what to do instead.
fn not_lost(archive: &ArchiveEntry, name: &str) -> String {
    match archive.dataset(name) {
        Some(dataset) if archive.has_in_finals(dataset) => {
            "its files are whole, and its counts are part of final numbers".to_owned()
        }
        Some(_) => format!("it is no part of final numbers yet; use `tallyring drop {name}`"),
        None => {
            let lost = archive.lost_datasets.iter().map(|lost| lost.name.as_str());
            let lost: Vec<&str> = lost.collect();
            match lost.is_empty() {
                true => "no dataset has that name, and none is lost".to_owned(),
                false => format!(
                    "no dataset has that name; lost datasets: {}",
                    lost.join(", ")
                ),
            }
        }
    }
}

/// Notes the hashes of datasets that lack them, by load.
pub(super) fn prove(archive: &mut ArchiveEntry, unproven: &BTreeMap<String, String>) {
    for dataset in &mut archive.datasets {
        if let (None, Some(content)) = (&dataset.proof, unproven.get(&dataset.load)) {
            dataset.proof = Some(DatasetProof {
                content: content.clone(),
                is_logged: false,
            });
        }
    }
}

/// The entry of a load's run among the source runs.
fn source_run(load: &str, run: &RunEntry) -> Result<RunEntry> {
    let sorted = run.renamed(Origin::Sorted(load.to_owned()));
    if run.name != sorted.name {
        return Err(Error::Load(format!(
            "{} is not a run of the load",
            run.name
        )));
    }
    Ok(run.renamed(Origin::Load(load.to_owned())))
}

/// Checks that the counts of a dataset are no part of final numbers, so that they may stop counting.
fn check_droppable(archive: &ArchiveEntry, dataset: &DatasetEntry) -> Result<()> {
    match archive.has_in_finals(dataset) {
        true => Err(Error::DatasetFinal(dataset.name.clone())),
        false => Ok(()),
    }
}

/// The final dataset of that name, where the log tells of it and some of its files are gone or damaged: a load of
/// exactly its counts may take its place. Reads all its files.
pub fn broken_final(blobs: &Blobs, manifest: &Manifest, name: &str) -> Option<LoggedDataset> {
    let dataset = manifest.archive.dataset(name);
    let dataset =
        dataset.filter(|dataset| dataset.proof.as_ref().is_some_and(|of| of.is_logged))?;
    let is_broken = |run: &RunEntry| {
        let checked = verify_bytes(blobs, run);
        checked.is_err_and(|error| error.is_beyond_reading())
    };
    match dataset.runs.iter().any(is_broken) {
        true => dataset.logged(),
        false => None,
    }
}

/// Checks that the runs of a load may become part of the final numbers of their days, as the dataset `name`: no day
/// from their first to their last row is final yet, in a version or by another dataset, or they are a dataset that was
/// lost, or has lost files. Reads the runs where some was.
pub fn check_final_load(
    blobs: &Blobs,
    manifest: &Manifest,
    name: &str,
    runs: &[RunEntry],
) -> Result<()> {
    if let Some(broken) = broken_final(blobs, manifest, name) {
        return check_same(manifest, &broken, &counts_hash(blobs, runs)?);
    }
    let content = match manifest.archive.lost_datasets.is_empty() {
        true => String::new(),
        false => counts_hash(blobs, runs)?,
    };
    check_final(manifest, name, runs, &content)
}

/// Checks that a load has the counts of a final dataset that has lost files.
fn check_same(manifest: &Manifest, broken: &LoggedDataset, content: &str) -> Result<()> {
    match broken.is(&broken.name, content) {
        true => Ok(()),
        false => Err(Error::Load(format!(
            "files of the dataset `{}` are gone or damaged, and it is part of final numbers: load exactly its counts, which \
             these are not{}",
            broken.name,
            manifest.told_differences(broken)
        ))),
    }
}

fn check_final(manifest: &Manifest, name: &str, runs: &[RunEntry], content: &str) -> Result<()> {
    if (manifest.archive.lost_datasets.iter()).any(|lost| lost.is(name, content)) {
        return Ok(());
    }
    check_beside_lost(manifest, name, runs)?;
    for run in runs {
        let days = run.meta.days();
        let why = match manifest.archive.first_final(&days) {
            Some((day, version)) => {
                format!("{day} is final already in version {version}, and no version")
            }
            None => match first_final_by_load(manifest, name, run) {
                Some((day, dataset)) => format!(
                    "{day} is final by the dataset `{dataset}`, which was loaded with --final, and no final number"
                ),
                None => continue,
            },
        };
        let (first, last) = days.into_inner();
        return Err(Error::Load(format!(
            "its rows from {first} to {last} cannot be part of final numbers, because {why} ever changes: load them \
             without --final, or leave out days that are final"
        )));
    }
    Ok(())
}

/// Checks that the runs take neither the name nor the days of a dataset that is lost: no other counts take its place.
fn check_beside_lost(manifest: &Manifest, name: &str, runs: &[RunEntry]) -> Result<()> {
    for lost in &manifest.archive.lost_datasets {
        if takes_place(name, runs, lost) {
            let days = lost.from_to();
            return Err(Error::Load(format!(
                "the log says that the dataset `{}` of {} is part of the final numbers{days}, and it is lost: load exactly \
                 its counts under that name first, which these are not{}",
                lost.name,
                how_many(lost.rows, "row"),
                manifest.told_differences(lost)
            )));
        }
    }
    Ok(())
}

/// The first day of a run before the store began that another final dataset makes final, or will with the next
/// rebuild, for a namespace of the run; with that dataset. Days since then become final by their versions alone.
fn first_final_by_load<'m>(
    manifest: &'m Manifest,
    name: &str,
    run: &RunEntry,
) -> Option<(Day, &'m str)> {
    let archive = &manifest.archive;
    // A waiting dataset of that name is replaced.
    let others = archive.datasets.iter().filter(|other| {
        let waits = other.is_final && other.wanted && other.name != name;
        waits || archive.has_in_finals(other)
    });
    let runs = others.flat_map(|other| other.runs.iter().map(|run| (&*other.name, run)));
    let shared = runs.filter_map(|(dataset, known)| {
        let sections = &known.meta.sums;
        let is_shared = run.meta.sums.keys().any(|of| sections.contains_key(of));
        let (days, known) = (run.meta.days(), known.meta.days());
        let day = *days.start().max(known.start());
        let is_before = manifest.intake.begun.is_none_or(|begun| day < begun);
        let is_in_both = days.contains(&day) && known.contains(&day);
        (is_shared && is_in_both && is_before).then_some((day, dataset))
    });
    shared.min()
}

/// Checks that a dataset may have this name.
pub fn check_dataset_name(name: &str) -> Result<()> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let valid = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(word)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if valid {
        return Ok(());
    }
    Err(Error::Load(format!(
        "`{}` cannot be the name of a dataset: a name has 1 to {NAME_CHARS_MAX} letters, digits, `_`, `-` and `.`, and begins with a letter or digit",
        name.chars().take(80).collect::<String>().escape_debug()
    )))
}
