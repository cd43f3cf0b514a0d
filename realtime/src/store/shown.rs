//! A store without a log, which shows what manifests name: that of a server that only reads.
//!
//! It writes nothing, but for parts of objects in a cache of its own, and takes no lock. A server that writes the store
//! goes on. Counts that only the log holds are not shown, and answers say until when all are.

use std::sync::Arc;

use tallyring_archive::{Blobs, IdsEntry, Manifest, manifest, names, remove_unfinished};
use tallyring_records::{Day, Offset};

use super::Store;
use super::open::{check_identity, no_identity, no_manifest};
use crate::delta::Form;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::intake::{Ids, Part};
use crate::ledger::{Files, Waiting, find_whole, remove_copies};
use crate::options::{Options, World};
use crate::view::Snapshot;

/// The manifest that a store without a log shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub manifest: u64,
    /// When it was written, Unix milliseconds.
    pub written_ms: i64,
    /// Everything that came before is counted, Unix seconds. Some of what came later is, too, until it was written.
    pub counted_until: i64,
    /// A newer state of the files that cannot be shown: its manifest is damaged or lacks files, newer ones cannot be
    /// looked for, or the files are no later ones of this store.
    pub waiting: Option<Waiting>,
    /// Address of the server that writes the store, where that is known.
    pub writer: Option<Arc<str>>,
}

impl Store {
    /// Opens what the newest manifest names whose files are all there, and nothing else. Where there is no such
    /// manifest, the newest readable one is shown, and reads that need a lost file fail. Fails when there is no store,
    /// when no manifest can be read, and when the disk or the object store does not answer.
    pub fn open_without_log(world: World, options: Options) -> Result<Self> {
        let blobs = world.blobs();
        if world.objects.is_some() {
            blobs.prepare()?;
        }
        if manifest::numbers(&blobs)?.is_empty() {
            return Err(no_manifest());
        }
        let identity = Identity::load(&blobs)?.ok_or_else(no_identity)?;
        let mut files = Files::default();
        let (manifest, waiting) = newest(&mut files, &blobs, &identity)?;
        check_identity(&identity, &manifest)?;
        if world.objects.is_some() {
            remove_unfinished(&blobs)?;
            remove_copies(&blobs, &manifest)?;
        }
        let counts = counts(&mut files, &blobs, options.form(), &manifest)?;
        // An id is looked for in the log, so without one none is known.
        let none = IdsEntry {
            runs: Vec::new(),
            ..manifest.intake.ids.clone()
        };
        let ids = Ids::open(&blobs, &none, i64::MAX)?;
        let parts = ((manifest, files), (counts, ids));
        let store = Self::of_parts((world, options), &identity, parts.0, parts.1);
        store.ledger().note_waiting(waiting);
        Ok(store)
    }

    /// Looks for a manifest that is newer than the one that is shown, and shows it where all of its files are there;
    /// true then. Only a store without a log may do so. Fails when the disk or the object store does not answer, and
    /// where another store, an earlier state of this one or one that is counted anew took the place of its files; the
    /// same counts are shown then as before, and [`Shown::waiting`] says so.
    pub fn show_newer(&self) -> Result<bool> {
        let (blobs, form) = (self.world().blobs(), self.options().form());
        let looked = self.check_place().and_then(|()| {
            self.ledger().show_newer(|files, manifest| {
                self.check_counts(manifest)?;
                counts(files, &blobs, form, manifest)
            })
        });
        if let Err(error) = &looked {
            let error = error.to_string();
            let manifest = None;
            self.ledger()
                .note_waiting(Some(Waiting { manifest, error }));
        }
        looked
    }

    /// Fails where the directory or the object store is not that of this store any more, or does not answer.
    pub fn check_place(&self) -> Result<()> {
        let there = Identity::load(&self.world().blobs())?.ok_or_else(no_identity)?;
        let (there, shown) = (there.store_id_text(), self.manifest());
        let ours = &shown.store_id;
        if there == *ours {
            return Ok(());
        }
        Err(Error::Identity {
            name: names::IDENTITY,
            what: format!(
                "the file is of store {there} now, and this server serves store {ours}; start the server again to \
                 serve what is there, or put back what was there"
            ),
        })
    }

    /// Fails where a manifest counts less of the log than the one that is shown, as while a recount reads the log anew.
    fn check_counts(&self, manifest: &Manifest) -> Result<()> {
        let (there, shown) = (applied(manifest), self.live().applied());
        if there >= shown {
            return Ok(());
        }
        Err(Error::Missing(format!(
            "manifest {} counts the log up to {there} only, and {shown} is shown: the store is counted anew, and is \
             served again once it has come as far; or it went back, as by a restore: then start this server again",
            manifest.number
        )))
    }

    /// The manifest that is shown; none for a store that has its log, which waits for nobody here.
    pub fn shown(&self) -> Option<Shown> {
        if self.part() != Part::Reads {
            return None;
        }
        self.shown_by(&self.live().snapshot())
    }

    pub(super) fn shown_by(&self, snapshot: &Snapshot) -> Option<Shown> {
        Some(Shown {
            counted_until: snapshot.counted_until?,
            manifest: snapshot.manifest.number,
            written_ms: snapshot.manifest.written_at_ms,
            waiting: self.ledger().waiting(),
            writer: self.intake().server(),
        })
    }
}

/// The manifest to begin with, and a newer one that cannot be shown.
fn newest(
    files: &mut Files,
    blobs: &Blobs,
    identity: &Identity,
) -> Result<(Manifest, Option<Waiting>)> {
    let found = find_whole(files, blobs, (&identity.store_id_text(), 0))?;
    let waiting = found.waiting;
    if let Some(whole) = found.whole {
        return Ok((whole, waiting));
    }
    let mut failed = None;
    for number in manifest::numbers(blobs)?.into_iter().rev() {
        match Manifest::load_number(blobs, number) {
            Ok(readable) => {
                files.open_readable(blobs, &readable)?;
                return Ok((readable, waiting.filter(|of| of.manifest > Some(number))));
            }
            Err(error) if error.is_damage() => {
                failed.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(failed.map_or_else(no_manifest, Error::from))
}

/// The counts of a manifest's files, with the schema that it names last.
fn counts(files: &mut Files, blobs: &Blobs, form: Form, manifest: &Manifest) -> Result<Snapshot> {
    let mut counts = files.counts(blobs, form, (manifest, u64::MAX))?;
    counts.apply_until(applied(manifest));
    counts.counted_until = Some(counted_until(manifest));
    Ok(counts)
}

/// The offset before which the files of a manifest count everything.
fn applied(manifest: &Manifest) -> Offset {
    let open = manifest.intake.stores.iter();
    let open = open.filter(|store| !store.is_closed());
    let flushed = open.map(|store| store.flushed).min();
    flushed.unwrap_or(manifest.intake.ids.flushed)
}

/// A time (Unix seconds) until when everything that came is in the files. A manifest does not tell when memory was
/// flushed last, and it may be written long after. So this is the latest arrival of which the files tell.
fn counted_until(manifest: &Manifest) -> i64 {
    let intake = &manifest.intake;
    let ids = intake.ids.runs.iter().map(|ids| ids.newest_ms);
    let producers = intake.ids.producers.iter().map(|producer| producer.seen_ms);
    let arrived = ids.chain(producers).max();
    let arrived = arrived.map(|ms| ms.min(manifest.written_at_ms).div_euclid(1_000));
    // A rebuild flushes all memory after the end of the last day that it cuts.
    let active = manifest.archive.active_generation();
    let cut = active.and_then(|active| active.cut_at_ms);
    let cut = cut.map(|ms| Day::of(ms.div_euclid(1_000)).start());
    let begun = intake.begun.map(Day::start);
    let latest = [arrived, cut, begun].into_iter().flatten().max();
    latest.unwrap_or(0)
}
