//! Reads files that nothing else reads, so that damage is found while a backup still has them whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tallyring_archive::{Run, RunEntry, verify_on_disk};

use super::Ledger;
use crate::error::{Error, Result};

/// Number of nights in which every file is read once.
const NIGHTS: i64 = 7;
/// Size of all files together up to which every file is read every night, bytes.
const BYTES_A_NIGHT: u64 = 1 << 30;

impl Ledger {
    /// The files to read on this night, numbered by day. Files that are known to be damaged are read every night.
    pub fn files_to_scrub(&self, night: i64) -> Vec<RunEntry> {
        let manifest = self.intake.live().manifest();
        // Generations share files.
        let files: BTreeMap<&str, &RunEntry> = manifest
            .files()
            .map(|file| (file.name.as_str(), file))
            .collect();
        let all: u64 = files.values().map(|file| file.bytes).sum();
        let damaged = self.damaged().clone();
        let is_due = |file: &&RunEntry| {
            let hash = i64::from(crc32fast::hash(file.hash.as_bytes()));
            all <= BYTES_A_NIGHT
                || hash.rem_euclid(NIGHTS) == night.rem_euclid(NIGHTS)
                || damaged.contains(&file.name)
        };
        files.into_values().filter(is_due).cloned().collect()
    }

    /// Reads every byte of a file from the disk. The status lists a damaged file until it is found whole, or until no
    /// manifest names it. `after_part` is called after every mebibyte.
    pub fn scrub(&self, file: &RunEntry, after_part: &mut dyn FnMut()) -> Result<()> {
        match verify_on_disk(&self.blobs, file, after_part) {
            Ok(()) => {
                if self.damaged().contains(&file.name) {
                    self.reopen(file)?;
                }
                Ok(())
            }
            Err(error) if error.is_gone() && !self.names(&file.name) => Ok(()),
            Err(error) => {
                if error.is_damage() {
                    self.damaged().insert(file.name.clone());
                }
                Err(error.into())
            }
        }
    }

    /// Checks that every file exists, begins and ends as it should, including files that only a rebuild reads. Others
    /// are damaged.
    pub fn look_for_lost(&self) {
        let manifest = self.intake.live().manifest();
        let files: BTreeMap<&str, &RunEntry> =
            manifest.files().map(|file| (&*file.name, file)).collect();
        for (name, file) in files {
            if let Err(error) = Run::open_named(&self.blobs, file)
                && error.is_damage()
                && self.names(name)
                && self.damaged().insert(name.to_owned())
            {
                tracing::error!(%error, file = name, "a file is damaged or missing");
            }
        }
    }

    /// The files that are known to be damaged and still count.
    pub fn damaged_entries(&self) -> Vec<RunEntry> {
        let damaged = self.damaged_files();
        let manifest = self.intake.live().manifest();
        let files = manifest.files().map(|file| (&file.name, file));
        let files: BTreeMap<&String, &RunEntry> = files.collect();
        let entries = damaged.iter().filter_map(|name| files.get(name));
        entries.map(|&file| file.clone()).collect()
    }

    /// Opens a repaired file again, so that reads use it from now on.
    pub fn reopen(&self, file: &RunEntry) -> Result<()> {
        // Without the lock of the root, because a filter takes a moment to build.
        self.intake.reopen_ids(file)?;
        let mut root = self.root();
        let blobs = &self.blobs;
        let root = &mut *root;
        if (root.manifest.files()).any(|named| named.name == file.name) {
            let open = root.files.reopen(blobs, file)?;
            let archive = Arc::new(root.files.archive(blobs, &root.manifest)?);
            self.intake.live().reopened(&open, archive);
        }
        self.damaged().remove(&file.name);
        Ok(())
    }

    /// Opens files again that could not be opened: the node that writes may have healed them since.
    pub fn open_lost_again(&self) {
        let mut lost = self.root().files.lost();
        lost.extend(self.intake.lost_ids());
        if lost.is_empty() {
            return;
        }
        let manifest = self.intake.live().manifest();
        for file in manifest.files().filter(|file| lost.contains(&file.name)) {
            // Without the lock of the root first, because an object store may keep this waiting.
            let opened = Run::open_named(&self.blobs, file).map_err(Error::from);
            match opened.and_then(|_| self.reopen(file)) {
                Ok(()) => tracing::info!(file = file.name, "a file is there again"),
                Err(error) => tracing::debug!(%error, file = file.name, "a file stays lost"),
            }
        }
    }

    /// True where a read met damage that was not known before, once for each file.
    pub fn take_found_by_reads(&self) -> bool {
        self.note_damage_of_reads();
        self.found_by_reads.swap(false, Ordering::Relaxed)
    }

    /// Lets all damaged files be read and healed again: another file may have their bytes by now.
    pub(super) fn look_again(&self) {
        self.found_by_reads.store(true, Ordering::Relaxed);
    }

    fn note_damage_of_reads(&self) {
        for name in self.intake.live().cache().take_damaged() {
            if self.damaged().insert(name) {
                self.found_by_reads.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Notes that files are missing that the manifest names.
    pub(crate) fn note_missing(&self, files: &[String]) {
        self.damaged().extend(files.iter().cloned());
    }

    /// Names of files that were found damaged and still count.
    pub(crate) fn damaged_files(&self) -> Vec<String> {
        self.note_damage_of_reads();
        let found = self.damaged().clone();
        if found.is_empty() {
            return Vec::new();
        }
        // The manifest is taken after the names, so files that it does not name are gone. The lock of the names is not
        // held here, because taking the manifest locks `live`.
        let manifest = self.intake.live().manifest();
        let named = manifest.file_names();
        let still_counts = |name: &String| named.contains(name.as_str());
        let (damaged, gone): (Vec<String>, Vec<String>) = found.into_iter().partition(still_counts);
        self.damaged().retain(|name| !gone.contains(name));
        damaged
    }

    /// True when the committed manifest, which the view may not show yet, names the file.
    fn names(&self, name: &str) -> bool {
        self.root().manifest.files().any(|file| file.name == name)
    }
}
