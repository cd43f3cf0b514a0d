//! Open files of the current manifest, each opened once and shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{
    Disk, Error, Manifest, Result, Run, RunEntry, disk::remove_temporary_files, names,
};

use crate::delta::OpenRun;

/// Runs by name.
#[derive(Default)]
pub struct Files {
    open: BTreeMap<String, Arc<Run>>,
}

/// What queries read of the archive: the active generation and the source runs it lacks.
pub struct ArchiveFiles {
    /// Number of the active generation, 0 before the first.
    pub generation: u64,
    /// Its files and the pending source runs.
    pub runs: Vec<Arc<Run>>,
    /// Files of every kept generation, as it was.
    pub kept: BTreeMap<u64, Vec<Arc<Run>>>,
    /// Since when each kept generation has minutes, Unix seconds; those not listed have all.
    pub minutes_from: BTreeMap<u64, i64>,
}

impl Files {
    /// The open run that the manifest names so.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&mut self, disk: &dyn Disk, entry: &RunEntry) -> Result<OpenRun> {
        let run = match self.open.get(&entry.name) {
            Some(run) => Arc::clone(run),
            None => {
                let run = Run::open(disk, &entry.name)?;
                self.open.insert(entry.name.clone(), Arc::clone(&run));
                run
            }
        };
        Ok(OpenRun {
            entry: entry.clone(),
            run,
        })
    }

    /// Opens what queries read of the archive under `manifest`.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn archive(&mut self, disk: &dyn Disk, manifest: &Manifest) -> Result<ArchiveFiles> {
        let mut kept = BTreeMap::new();
        for generation in &manifest.generations {
            kept.insert(generation.number, self.open_all(disk, &generation.files)?);
        }
        let mut runs = kept.get(&manifest.active).cloned().unwrap_or_default();
        runs.extend(self.open_all(disk, manifest.pending())?);
        Ok(ArchiveFiles {
            generation: manifest.active,
            runs,
            kept,
            minutes_from: manifest
                .generations
                .iter()
                .filter_map(|generation| Some((generation.number, generation.minutes_from?)))
                .collect(),
        })
    }

    fn open_all<'e>(
        &mut self,
        disk: &dyn Disk,
        entries: impl IntoIterator<Item = &'e RunEntry>,
    ) -> Result<Vec<Arc<Run>>> {
        entries
            .into_iter()
            .map(|entry| self.open(disk, entry).map(|open| open.run))
            .collect()
    }

    /// Forgets and removes files that the manifest no longer names. Views that read them go on.
    pub fn remove_unnamed(&mut self, disk: &dyn Disk, before: &Manifest, after: &Manifest) {
        let named: BTreeSet<&str> = after.files().map(|entry| entry.name.as_str()).collect();
        for entry in before
            .files()
            .filter(|entry| !named.contains(entry.name.as_str()))
        {
            self.open.remove(&entry.name);
            // A file that stays is only space: the next start removes it.
            if let Err(error) = disk.remove(&entry.name) {
                tracing::debug!(file = entry.name, %error, "cannot remove a file that is no longer named");
            }
        }
    }
}

/// Removes what a crash left: temporary files, and sorted files that the manifest does not name.
///
/// # Errors
/// When the disk refuses.
pub fn remove_leftovers(disk: &dyn Disk, manifest: Option<&Manifest>) -> Result<usize> {
    let mut removed = 0;
    for directory in names::DIRECTORIES {
        // What is sorted for a load belongs to the process that sorts it.
        if directory != names::OPLOG && directory != names::INCOMING {
            removed +=
                remove_temporary_files(disk, directory).map_err(Error::io("clean", directory))?;
        }
    }
    let named: BTreeSet<&str> = manifest
        .map(|manifest| manifest.files().map(|entry| entry.name.as_str()).collect())
        .unwrap_or_default();
    for directory in names::SORTED_FILE_DIRECTORIES {
        for file in disk.list(directory).map_err(Error::io("list", directory))? {
            let name = format!("{directory}/{file}");
            if !named.contains(name.as_str()) {
                disk.remove(&name).map_err(Error::io("remove", &name))?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}
