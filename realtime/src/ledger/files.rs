//! The open files of the current manifest, each opened once and shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use tallyring_archive::{Blobs, Error, Manifest, Result, Run, RunEntry, SchemaEntry, Sign, names};
use tracing::Span;

use crate::delta::{DeltaStore, Form, OpenRun};
use crate::ring::Ring;
use crate::view::{ArchiveFiles, Snapshot};

/// Files of an object store that are asked for at once: each waits for one answer or two.
const AT_ONCE: usize = 32;

/// A file as it was opened, or why it was not.
type Tried<'m> = (&'m RunEntry, Result<Arc<Run>>);

/// Runs by name.
#[derive(Default)]
pub(crate) struct Files {
    open: BTreeMap<String, Arc<Run>>,
}

impl Files {
    /// Opens all files that queries read under `manifest`. A damaged or missing file costs only its own counts: a lost
    /// run, of which every read fails, takes its place. One that was lost is tried again, since another node may have
    /// healed it. Fails when a file cannot be opened for another reason that was not lost before.
    pub(crate) fn open_readable(&mut self, blobs: &Blobs, manifest: &Manifest) -> Result<()> {
        let ends = |error: &Error| !error.is_damage();
        for (entry, run) in self.missing(blobs, manifest, ends)? {
            let run = match run {
                Err(error) if error.is_damage() => {
                    if !self.open.contains_key(&entry.name) {
                        tracing::error!(%error, file = entry.name, "a file is damaged or missing: reads that need it fail");
                    }
                    Run::lost(entry, &error)
                }
                Err(_) if self.open.contains_key(&entry.name) => continue,
                run => run?,
            };
            self.open.insert(entry.name.clone(), run);
        }
        Ok(())
    }

    /// Opens all files that queries read under `manifest`. Fails where one of them is not there or cannot be opened
    /// that was not lost before; those before it stay open.
    pub(crate) fn open_whole(&mut self, blobs: &Blobs, manifest: &Manifest) -> Result<()> {
        for (entry, run) in self.missing(blobs, manifest, |_| true)? {
            match run {
                Err(_) if self.open.contains_key(&entry.name) => {}
                run => drop(self.open.insert(entry.name.clone(), run?)),
            }
        }
        Ok(())
    }

    /// The files that queries read under `manifest` and that are not open yet or were lost, each as it was opened.
    /// After an error that `ends` this, of a file that was not lost before, some are not tried.
    fn missing<'m>(
        &self,
        blobs: &Blobs,
        manifest: &'m Manifest,
        ends: impl Fn(&Error) -> bool + Sync,
    ) -> Result<Vec<Tried<'m>>> {
        let is_missing = |entry: &&RunEntry| !self.is_open(&entry.name);
        // Generations share files.
        let missing = read_by_queries(manifest).filter(is_missing);
        let missing: BTreeMap<&str, &RunEntry> =
            missing.map(|entry| (entry.name.as_str(), entry)).collect();
        let (in_parts, copied): (Vec<&RunEntry>, Vec<&RunEntry>) = missing
            .into_values()
            .partition(|entry| blobs.reads_in_parts(&entry.name));
        let has_failed = AtomicBool::new(false);
        let open = |entry: &'m RunEntry| {
            let is_wanted = !has_failed.load(Ordering::Relaxed);
            is_wanted.then(|| {
                let run = Run::open_named(blobs, entry);
                let was_lost = self.open.contains_key(&entry.name);
                let ends = !was_lost && run.as_ref().is_err_and(&ends);
                has_failed.fetch_or(ends, Ordering::Relaxed);
                (entry, run)
            })
        };
        let mut opened: Vec<_> = at_once(in_parts, open)?.into_iter().flatten().collect();
        // A copy takes memory while it is made, so they are made one after the other.
        opened.extend(copied.into_iter().filter_map(open));
        Ok(opened)
    }

    /// True for a file that is open and not lost.
    fn is_open(&self, name: &str) -> bool {
        self.open.get(name).is_some_and(|run| !run.is_lost())
    }

    /// The counts of the files that `manifest` names, with the schema that was in force at the record `until` and those
    /// before. No record of the log is counted yet. Fails when a file cannot be opened, or the manifest has no schema.
    pub(crate) fn counts(
        &mut self,
        blobs: &Blobs,
        form: Form,
        (manifest, until): (&Manifest, u64),
    ) -> crate::error::Result<Snapshot> {
        let mut stores = Vec::new();
        for entry in &manifest.intake.stores {
            stores.push(DeltaStore::from_entry(entry, form, |run| {
                self.open(blobs, run)
            })?);
        }
        let archive = self.archive(blobs, manifest)?;
        let schemas = &manifest.intake.schemas;
        let in_force = |entry: &SchemaEntry| entry.since.sequence <= until;
        let known = schemas.partition_point(in_force).max(1);
        let schemas: Vec<_> = schemas.iter().take(known).cloned().collect();
        let last = schemas
            .last()
            .ok_or_else(|| crate::Error::Missing("the manifest declares no namespaces".into()))?;
        let schema = Arc::new(last.schema.clone());
        let ring = Ring::restore(manifest.intake.today, form, stores);
        Ok(Snapshot::new(ring, (schema, schemas), archive, manifest))
    }

    /// True when every file that queries read under `manifest` is open.
    pub(crate) fn serve(&self, manifest: &Manifest) -> bool {
        read_by_queries(manifest).all(|entry| self.open.contains_key(&entry.name))
    }

    /// Forgets an open file, so that the next use opens it anew.
    pub(crate) fn forget(&mut self, name: &str) {
        self.open.remove(name);
    }

    /// Forgets the files that could not be opened, so that the next use tries again.
    pub(crate) fn forget_lost(&mut self) {
        self.open.retain(|_, run| !run.is_lost());
    }

    /// Forgets all open files that the manifest does not name.
    pub(crate) fn forget_unnamed(&mut self, manifest: &Manifest) {
        let named = manifest.file_names();
        self.open.retain(|name, _| named.contains(name.as_str()));
    }

    /// Names of files that could not be opened.
    pub(crate) fn lost(&self) -> BTreeSet<String> {
        let open = self.open.iter();
        let lost = open.filter(|(_, run)| run.is_lost());
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// Opens a file anew whose content was restored.
    pub(crate) fn reopen(&mut self, blobs: &Blobs, entry: &RunEntry) -> Result<OpenRun> {
        let run = Run::open_named(blobs, entry)?;
        self.open.insert(entry.name.clone(), Arc::clone(&run));
        Ok(OpenRun {
            entry: entry.clone(),
            run,
        })
    }

    /// Returns the open run of an entry, and opens it if necessary.
    pub(crate) fn open(&mut self, blobs: &Blobs, entry: &RunEntry) -> Result<OpenRun> {
        let run = match self.open.get(&entry.name) {
            Some(run) => Arc::clone(run),
            None => {
                let run = Run::open_named(blobs, entry)?;
                self.open.insert(entry.name.clone(), Arc::clone(&run));
                run
            }
        };
        Ok(OpenRun {
            entry: entry.clone(),
            run,
        })
    }

    /// Opens the files of the archive that queries read under `manifest`.
    pub(crate) fn archive(&mut self, blobs: &Blobs, manifest: &Manifest) -> Result<ArchiveFiles> {
        let mut kept = BTreeMap::new();
        let mut plus = Vec::new();
        for generation in &manifest.archive.generations {
            let files = self.open_all(blobs, &generation.files)?;
            if generation.number == manifest.archive.active {
                plus.clone_from(&files);
            }
            if !generation.is_stand_in() || generation.number == manifest.archive.active {
                kept.insert(generation.number, files);
            }
        }
        let pending = self.open_all(blobs, manifest.archive.pending())?;
        let (more, minus): (Vec<_>, Vec<_>) = pending
            .into_iter()
            .partition(|run| run.sign() == Sign::Plus);
        plus.extend(more);
        Ok(ArchiveFiles {
            generation: manifest.archive.active,
            plus,
            minus,
            kept,
            minutes_from: manifest
                .archive
                .generations
                .iter()
                .filter_map(|generation| Some((generation.number, generation.minutes_from?)))
                .collect(),
            hours_from: manifest
                .archive
                .generations
                .iter()
                .filter_map(|generation| Some((generation.number, generation.hours_from?)))
                .collect(),
        })
    }

    fn open_all<'e>(
        &mut self,
        blobs: &Blobs,
        entries: impl IntoIterator<Item = &'e RunEntry>,
    ) -> Result<Vec<Arc<Run>>> {
        entries
            .into_iter()
            .map(|entry| self.open(blobs, entry).map(|open| open.run))
            .collect()
    }

    /// Forgets and removes the given files, except those that the manifest names. Views that read a removed file can go
    /// on.
    pub(crate) fn remove_unnamed<'n>(
        &mut self,
        blobs: &Blobs,
        files: impl Iterator<Item = &'n str>,
        manifest: &Manifest,
    ) {
        let named = manifest.file_names();
        for file in files.filter(|file| !named.contains(file)) {
            self.open.remove(file);
            // A remaining file only takes space, and the next start removes it.
            if let Err(error) = blobs.remove(file) {
                tracing::debug!(file, %error, "cannot remove a file that no manifest names");
            }
        }
    }
}

/// Removes the node's copies of files that the manifest does not name: a crash may have left them. Files whose names
/// have another form stay. Copies of files that are read in parts go, too, where the object store has them; the first
/// one for which it does not answer ends that until the next start.
pub(crate) fn remove_copies(blobs: &Blobs, manifest: &Manifest) -> Result<()> {
    let named = manifest.file_names();
    let disk = blobs.disk();
    let mut in_parts = Vec::new();
    for directory in names::SORTED_FILE_DIRECTORIES {
        let failed = |action| move |source| Error::io(action, directory)(source);
        for file in disk.list(directory).map_err(failed("list"))? {
            let name = format!("{directory}/{file}");
            if names::origin_of(&name).is_none() {
                continue;
            }
            if !named.contains(name.as_str()) {
                disk.remove(&name).map_err(failed("remove a copy from"))?;
            } else if blobs.reads_in_parts(&name) {
                in_parts.push(name);
            }
        }
    }
    let has_failed = AtomicBool::new(false);
    at_once(in_parts, |name| {
        if has_failed.load(Ordering::Relaxed) {
            return;
        }
        match blobs.let_go_of_copy(&name) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                file = name,
                "a copy stays whose object is gone or has another length"
            ),
            Err(error) if !has_failed.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "copies stay until the next start that are not needed where the object store has the files");
            }
            Err(_) => {}
        }
    })?;
    Ok(())
}

/// Does the work of each item, many at once, because each waits for an object store. Fails where no threads start.
fn at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Send + Sync) -> Result<Vec<R>> {
    match AT_ONCE.min(items.len()) {
        0 | 1 => Ok(items.into_iter().map(work).collect()),
        threads => {
            let threads = ThreadPoolBuilder::new().num_threads(threads).build();
            let threads = threads
                .map_err(|error| Error::io("open", "files")(std::io::Error::other(error)))?;
            let span = Span::current();
            let work = |item| span.in_scope(|| work(item));
            Ok(threads.install(|| items.into_par_iter().map(work).collect()))
        }
    }
}

/// The files that queries read: runs of delta stores, files of kept generations, and source runs that are not merged
/// yet.
fn read_by_queries(manifest: &Manifest) -> impl Iterator<Item = &RunEntry> {
    let of_stores = manifest.intake.stores.iter().flat_map(|store| &store.runs);
    let kept = manifest.archive.generations.iter();
    let of_kept = kept.flat_map(|kept| &kept.files);
    of_stores.chain(of_kept).chain(manifest.archive.pending())
}
