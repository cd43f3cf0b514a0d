//! Looks for files that went bad while nobody read them, so that it is known while a backup still has them whole.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use tallyring_archive::{Error as ArchiveError, RunEntry, verify_bytes};

use super::Store;
use crate::error::Result;
use crate::sync::MutexGuard;

/// In so many nights every file has had its turn.
const NIGHTS: i64 = 7;
/// Where all files together have no more bytes, they have it every night.
const BYTES_A_NIGHT: u64 = 1 << 30;

impl Store {
    /// The files whose turn it is on this night, a day's number.
    pub fn files_to_scrub(&self, night: i64) -> Vec<RunEntry> {
        let manifest = self.manifest();
        let all: u64 = manifest.files().map(|file| file.bytes).sum();
        let has_turn = |file: &&RunEntry| {
            let turn = i64::from(crc32fast::hash(file.hash.as_bytes()));
            all <= BYTES_A_NIGHT || turn.rem_euclid(NIGHTS) == night.rem_euclid(NIGHTS)
        };
        manifest.files().filter(has_turn).cloned().collect()
    }

    /// Reads every byte of a file. One that is damaged is in the status until it is found whole, or not named any more.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn scrub(&self, file: &RunEntry) -> Result<()> {
        let verified = verify_bytes(&*self.world.disk, file);
        if let Err(ArchiveError::Io { source, .. }) = &verified
            && source.kind() == ErrorKind::NotFound
            && !self.names(&file.name)
        {
            return Ok(());
        }
        let mut damaged = self.damaged();
        match verified {
            Ok(_) => {
                damaged.remove(&file.name);
                Ok(())
            }
            Err(error) => {
                damaged.insert(file.name.clone());
                Err(error.into())
            }
        }
    }

    /// Names of files that were found damaged and still count.
    pub(super) fn damaged_files(&self) -> Vec<String> {
        let manifest = self.manifest();
        let mut damaged = self.damaged();
        damaged.retain(|name| manifest.files().any(|file| file.name == *name));
        damaged.iter().cloned().collect()
    }

    fn names(&self, name: &str) -> bool {
        self.manifest().files().any(|file| file.name == name)
    }

    fn damaged(&self) -> MutexGuard<'_, BTreeSet<String>> {
        let damaged = self.damaged.lock();
        damaged.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
