//! Bulk datasets: what a load sorted is adopted, dropped again, and counts with the next generation.

use tallyring_archive::{
    DatasetEntry, Error as ArchiveError, Origin, RunEntry, Staged, names, verify_bytes,
};

use super::{Ledger, Root};
use crate::error::{Error, Result};

/// Longest name of a dataset.
const NAME_CHARS_MAX: usize = 64;

impl Ledger {
    /// Adopts the runs of the load `load` as the dataset `name`: every byte is checked, they get their names
    /// among the source runs, and one manifest names them. They count when the next generation is published;
    /// with `replace`, what had the name until then stops counting in the same step.
    ///
    /// # Errors
    /// When the name is taken or cannot be one, the load is not there or damaged, or the disk refuses.
    /// Nothing changed then.
    pub fn adopt(&self, name: &str, load: &str, replace: bool) -> Result<DatasetEntry> {
        check_dataset_name(name)?;
        if !names::is_load(load) {
            return Err(Error::Load(format!("`{}` is no load", load.escape_debug())));
        }
        let blobs = &self.blobs;
        let staged = match Staged::read(blobs, load) {
            Err(error) if error.is_gone() => return Err(Error::NoLoad(load.to_owned())),
            read => read?,
        };
        if staged.store_id != self.intake.live().manifest().store_id || staged.load != load {
            return Err(Error::Load(
                "it was sorted for another data directory".into(),
            ));
        }
        // Outside the lock: this reads all of it.
        for run in &staged.runs {
            verify_bytes(blobs, run).map_err(|error| match error {
                ArchiveError::Io { .. } => error.into(),
                damage => Error::Load(format!("its files are damaged: {damage}")),
            })?;
        }
        let mut root = self.root();
        let adopted = self.adopt_staged(&mut root, name, &staged, replace);
        if adopted.is_err() && root.check().is_ok() {
            self.withdraw(&mut root, &staged);
        }
        let adopted = adopted?;
        drop(root);
        // They have their other names now; what cannot be removed is only space.
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

    /// Names the runs of a load among the source runs, and them in a manifest.
    fn adopt_staged(
        &self,
        root: &mut Root,
        name: &str,
        staged: &Staged,
        replace: bool,
    ) -> Result<DatasetEntry> {
        let blobs = &self.blobs;
        let mut next = self.next_manifest(root)?;
        if let Some(taken) = next
            .archive
            .datasets
            .iter_mut()
            .find(|of| of.wanted && of.name == name)
        {
            if !replace {
                return Err(Error::DatasetTaken(name.to_owned()));
            }
            taken.wanted = false;
        }
        let mut runs = Vec::new();
        for run in &staged.runs {
            let source = source_run(&staged.load, run)?;
            // A taken name is the same content: the name is its hash.
            blobs.copy(&run.name, &source.name)?;
            runs.push(source);
        }
        let adopted = DatasetEntry {
            name: name.to_owned(),
            load: staged.load.clone(),
            adopted_at_ms: next.written_at_ms,
            rows: staged.rows,
            wanted: true,
            runs,
        };
        next.archive.datasets.push(adopted.clone());
        next.archive.forget_datasets();
        self.intake.raise_bounds(&adopted.runs);
        self.commit_datasets(root, next)?;
        Ok(adopted)
    }

    /// Takes back the names that an adoption which failed has given: otherwise the bytes stay until the next start, also
    /// when the load's own names go, and a full disk stays full.
    fn withdraw(&self, root: &mut Root, staged: &Staged) {
        let given: Vec<String> = staged
            .runs
            .iter()
            .filter_map(|run| Some(source_run(&staged.load, run).ok()?.name))
            .collect();
        let given = given.iter().map(String::as_str);
        root.files
            .remove_unnamed(&self.blobs, given, &root.manifest);
    }

    /// Drops a dataset: it stops counting when the next generation is published.
    ///
    /// # Errors
    /// When there is none of that name, or the disk refuses.
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        let mut root = self.root();
        let mut next = self.next_manifest(&root)?;
        let Some(found) = next
            .archive
            .datasets
            .iter_mut()
            .find(|of| of.wanted && of.name == name)
        else {
            let wanted = next.archive.datasets.iter().filter(|of| of.wanted);
            return Err(Error::NoDataset {
                name: name.to_owned(),
                existing: wanted
                    .map(|of| of.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            });
        };
        found.wanted = false;
        next.archive.forget_datasets();
        self.commit_datasets(&mut root, next)
    }

    fn commit_datasets(&self, root: &mut Root, next: tallyring_archive::Manifest) -> Result<()> {
        self.commit_manifest(root, next)?;
        self.intake.live().name(&root.manifest);
        Ok(())
    }
}

/// The entry that a load's run becomes among the source runs.
fn source_run(load: &str, run: &RunEntry) -> Result<RunEntry> {
    let sorted = run.renamed(Origin::Sorted(load.to_owned()));
    if run.name != sorted.name {
        return Err(Error::Load(format!("{} is not one of its runs", run.name)));
    }
    Ok(run.renamed(Origin::Load(load.to_owned())))
}

/// Says whether a dataset may have this name.
///
/// # Errors
/// What a name must be.
pub fn check_dataset_name(name: &str) -> Result<()> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let valid = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(word)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if valid {
        return Ok(());
    }
    Err(Error::Load(format!(
        "`{}` cannot be the name of a dataset: 1 to {NAME_CHARS_MAX} of letters, digits, `_`, `-` and `.`, a letter or digit first",
        name.chars().take(80).collect::<String>().escape_debug()
    )))
}
