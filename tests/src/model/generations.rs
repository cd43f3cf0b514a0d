//! Flushes, cuts, rebuilds, recompressions, publications and rollbacks.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tallyring_archive::{Build, GENERATIONS_KEPT, KeepDays, Manifest, Origin, RunEntry};
use tallyring_realtime::Error;
use tallyring_rebuild::{
    BuildOptions, REWRITE_BYTES_MIN, build, recompress, recompressible, remake,
};
use tallyring_records::StoreId;

use super::clicks;
use super::datasets::wanted_of;
use super::naive::Piece;
use super::{Driver, Made};
use crate::sim_disk::SimDisk;

/// zstd levels of files, and of those of closed years in the end.
const LEVEL: i32 = 1;
const CLOSED_LEVEL: i32 = 2;

impl Driver {
    pub(super) fn flush(&mut self) -> Result<(), String> {
        self.note("flush".to_owned());
        self.stats.flushes += 1;
        match self.store().ledger().flush() {
            Ok(()) => Ok(()),
            Err(error) => self.allow("a flush", &error.to_string()),
        }
    }

    /// Closes what is due.
    pub(super) fn cut(&mut self) -> Result<Option<Manifest>, String> {
        let due = self.naive.due();
        self.note(format!("cut {due:?}"));
        match self.store().ledger().cut() {
            Ok(manifest) => {
                self.naive.cut(&due);
                self.follow_ring()?;
                Ok(Some((*manifest).clone()))
            }
            Err(error) => {
                let error = error.to_string();
                self.allow("a cut", &error)?;
                if self.is_log_full(&error) {
                    // Each store that is cut is a record, and there was room for some.
                    let stores = self.store().status().stores;
                    self.naive.ring = stores.iter().map(|store| (store.id, store.cut)).collect();
                }
                self.follow_ring()?;
                Ok(None)
            }
        }
    }

    /// Builds a generation and keeps it back.
    pub(super) fn build_and_hold(&mut self) -> Result<(), String> {
        let manifest = if self.chance.percent(50) {
            self.cut()?
        } else {
            Some((*self.store().manifest()).clone())
        };
        if let Some(manifest) = manifest {
            self.held = self.build(&manifest)?;
        }
        Ok(())
    }

    /// Publishes what was kept back, if it still fits.
    pub(super) fn publish_held(&mut self) -> Result<(), String> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        self.note(format!(
            "publish the held build {:?}",
            number_of(&held.build)
        ));
        match self.store().ledger().publish(&held.build) {
            Ok(()) => self.published(&held),
            Err(Error::StaleBuild(_)) => Ok(()),
            Err(error) => {
                // A start since has removed its files.
                self.note(format!("  it is refused: {error}"));
                if self.is_troubled() {
                    self.attempted = Some(held);
                }
                Ok(())
            }
        }
    }

    /// A rebuild as a whole.
    pub(super) fn rebuild(&mut self) -> Result<(), String> {
        let Some(manifest) = self.cut()? else {
            return Ok(());
        };
        if self.chance.percent(15) {
            // Serving goes on while it is built.
            self.commit()?;
            self.flush()?;
        }
        let Some(made) = self.build(&manifest)? else {
            return Ok(());
        };
        if self.chance.percent(15) {
            self.commit()?;
            self.flush()?;
        }
        self.note(format!("publish {:?}", number_of(&made.build)));
        match self.store().ledger().publish(&made.build) {
            Ok(()) => self.published(&made),
            Err(error) => {
                self.attempted = Some(made);
                self.allow("a publication", &error.to_string())
            }
        }
    }

    fn published(&mut self, made: &Made) -> Result<(), String> {
        self.stats.generations += 1;
        self.attempted = None;
        self.follow_publication(made);
        self.follow_ring()?;
        self.check_generations()?;
        self.verify()
    }

    /// The model publishes it too.
    pub(super) fn follow_publication(&mut self, made: &Made) {
        self.naive.publish(made, GENERATIONS_KEPT);
        self.stats.waited += u64::from(!self.naive.waiting.is_empty());
    }

    fn build(&mut self, manifest: &Manifest) -> Result<Option<Made>, String> {
        // The months of a run are smaller than any that wait, unless there is no such limit.
        let may_wait = self.chance.percent(50);
        let options = BuildOptions {
            breakdown_hours: self.options.breakdown_hours,
            rewrite_bytes_min: if may_wait { 0 } else { REWRITE_BYTES_MIN },
            shards: self.options.shards,
            level: LEVEL,
            keep: KeepDays {
                minutes: Some(30),
                hours: None,
                actions: Some(40),
            },
        };
        self.note(format!(
            "build from manifest {}, exports may wait: {may_wait}",
            manifest.number
        ));
        let disk = self.disk.clone();
        let told = Mutex::new((0, 0));
        let progress = |done: u64, total: u64| {
            let mut told = told.lock().expect("BUG: nobody panicked");
            assert!(told.0 <= done && told.1 <= total && done <= total);
            *told = (done, total);
        };
        let built = on_one_thread(|| build(&disk.blobs(), manifest, options, &progress));
        let (done, total) = told.into_inner().expect("BUG: nobody panicked");
        match built {
            Ok(_) if done != total => {
                Err(format!("a build told {done} of {total} bytes at its end"))
            }
            Ok(None) => Ok(None),
            Ok(Some(build)) if !build.refused.is_empty() => Err(build.refused.join("; ")),
            Ok(Some(build)) => Ok(Some(Made {
                merged: merged_by(&build, manifest)?,
                datasets: wanted_of(manifest),
                build,
            })),
            Err(error) => {
                self.allow("a build", &error.to_string())?;
                Ok(None)
            }
        }
    }

    /// Writes a file of a closed year again, while other things may happen, and publishes it.
    pub(super) fn recompress(&mut self) -> Result<(), String> {
        let manifest = self.store().manifest();
        let files = recompressible(&manifest, CLOSED_LEVEL);
        if files.is_empty() {
            return Ok(());
        }
        let file = *self.chance.pick(&files);
        self.note(format!("recompress {}", file.name));
        let disk = self.disk.clone();
        let made = recompress(&disk.blobs(), file, CLOSED_LEVEL, &|_, _| {});
        let made = match made {
            Ok(made) => made,
            Err(error) => return self.allow("a recompression", &error.to_string()),
        };
        if self.chance.percent(30) {
            self.rebuild()?;
        }
        if self.chance.percent(10) {
            self.drop_dataset()?;
        }
        match self.store().ledger().replace(file, &made) {
            Ok(is_replaced) => {
                self.stats.recompressed += u64::from(is_replaced);
                self.check_generations()?;
                self.verify()?;
                self.remake()
            }
            Err(error) => self.allow("a recompression", &error.to_string()),
        }
    }

    /// Every file of the active generation is what its source runs merge to.
    fn remake(&mut self) -> Result<(), String> {
        let manifest = self.store().manifest();
        let made =
            on_one_thread(|| remake(&self.disk.blobs(), &SimDisk::default().blobs(), &manifest));
        match made {
            Err(error) if !self.is_troubled() && !self.full => {
                Err(format!("merged again after a recompression: {error}"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn roll_back(&mut self) -> Result<(), String> {
        let numbers: Vec<u64> = self.naive.generations.keys().copied().collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let number = *self.chance.pick(&numbers);
        self.note(format!("activate {number}"));
        self.stats.rollbacks += 1;
        match self.store().ledger().activate(number) {
            Ok(()) => {
                if number != self.naive.active {
                    let kept = &self.naive.generations;
                    let is_merged = |load: &String| {
                        kept.values()
                            .any(|kept| kept.datasets.values().any(|of| of == load))
                    };
                    let mut wanted = kept[&number].datasets.clone();
                    // Runs that no generation has merged go on waiting, in the place of those of their names.
                    let waiting = self
                        .naive
                        .wanted
                        .iter()
                        .filter(|(_, load)| !is_merged(load));
                    wanted.extend(waiting.map(|(name, load)| (name.clone(), load.clone())));
                    self.naive.wanted = wanted;
                    self.naive.read_from(number);
                }
                self.check_generations()?;
                self.verify()
            }
            Err(error) => self.allow("a rollback", &error.to_string()),
        }
    }

    /// Erases some users. Where batches may count or not, nobody could tell which of them came before.
    pub(super) fn erase(&mut self) -> Result<(), String> {
        if self.is_troubled() || !self.pending.is_empty() {
            return Ok(());
        }
        let mut users = clicks::users();
        users.retain(|_| self.chance.percent(30));
        self.note(format!("erase {users:?}"));
        let erased = self.store().intake().erase(&users);
        for user in &users {
            self.naive.actions.erase(user, erased.is_err());
        }
        self.naive.history.erase(&users);
        match erased {
            Ok(_) => Ok(()),
            Err(error) => self.allow("an erasure", &error.to_string()),
        }
    }

    /// The log without its oldest segments.
    pub(super) fn expire_log(&mut self) -> Result<(), String> {
        match self.store().ledger().expire_log() {
            Ok(removed) => {
                self.note(format!("expire the log: {removed} segments"));
                self.stats.segments_expired += removed as u64;
                Ok(())
            }
            Err(error) => self.allow("an expiry", &error.to_string()),
        }
    }

    /// Lets old segments go, perhaps, as a server does near the limit of the log.
    pub(super) fn make_room_in_log(&mut self) -> Result<(), String> {
        match self.chance.percent(30) {
            true => self.flush().and_then(|()| self.expire_log()),
            false => Ok(()),
        }
    }

    /// Packs all segments of the log that can be packed, as a server does one after the other.
    pub(super) fn pack_log(&mut self) -> Result<(), String> {
        let packed = loop {
            let ledger = self.store().ledger();
            let done = ledger.to_pack(0).and_then(|first| match first {
                Some(first) => ledger.pack(first, &AtomicBool::new(false)),
                None => Ok(false),
            });
            match done {
                Ok(true) => self.stats.segments_packed += 1,
                done => break done,
            }
        };
        self.note(format!("packed the log: {packed:?}"));
        match packed {
            Ok(_) => Ok(()),
            Err(error) => self.allow("packing", &error.to_string()),
        }
    }
}

impl Driver {
    /// Takes erased users out of all segments of the log where any are to be looked for, as a server does. Counts, ids
    /// and answers stay. Returns false where the disk of the log or of the copy did not let it.
    pub(super) fn redact_log(&mut self) -> Result<bool, String> {
        // A server looks once a day.
        let day = i64::try_from(self.stats.steps).map_err(|error| error.to_string())?;
        let done = loop {
            let ledger = self.store().ledger();
            let redacted = ledger.to_redact(day).and_then(|first| {
                let redact = |first| ledger.redact(first, day, &AtomicBool::new(false));
                first.map(redact).transpose()
            });
            match redacted {
                Ok(Some(has)) => self.stats.segments_redacted += u64::from(has),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.note(format!("took erased users out of the log: {done:?}"));
        match done {
            Ok(()) => Ok(true),
            // The disk of the copy has faults of its own.
            Err(_) if self.copy_disk.is_some() => Ok(false),
            Err(error) => {
                self.allow("taking users out", &error.to_string())?;
                Ok(false)
            }
        }
    }
}

/// The generation that a build makes, if it makes one.
pub(super) fn number_of(build: &Build) -> Option<u64> {
    build.generation.as_ref().map(|built| built.number)
}

/// The origin of the source runs that a build makes of a delta store. A day may have several stores at once, and the
/// names of all but one say it.
pub(super) fn origin_in(build: &Build, id: StoreId) -> Origin {
    let named = Origin::export_of(id);
    let further: Vec<Origin> = build
        .exported
        .iter()
        .filter(|other| **other != id)
        .map(|other| Origin::export_of(*other))
        .collect();
    let mut origins = build.runs.iter().map(|run| &run.origin);
    let own = origins.find(|origin| origin.is_export_of(id) && !further.contains(origin));
    own.cloned().unwrap_or(named)
}

/// The exports that a build of this manifest merges.
///
/// # Errors
/// It merges a part of what one store counted in a month.
fn merged_by(build: &Build, manifest: &Manifest) -> Result<BTreeSet<Piece>, String> {
    let Some(generation) = &build.generation else {
        return Ok(BTreeSet::new());
    };
    let merged: BTreeSet<&str> = generation.merged.iter().map(String::as_str).collect();
    let runs = manifest.archive.runs.iter().chain(&build.runs);
    let exports =
        runs.filter(|run| matches!(run.origin, Origin::Export { .. } | Origin::Fix { .. }));
    let (merged, waiting): (Vec<&RunEntry>, Vec<&RunEntry>) =
        exports.partition(|run| merged.contains(run.name.as_str()));
    let pieces = |runs: Vec<&RunEntry>| -> BTreeSet<Piece> {
        let pieces = runs.into_iter();
        pieces
            .map(|run| (run.origin.clone(), run.meta.partition))
            .collect()
    };
    let (merged, waiting) = (pieces(merged), pieces(waiting));
    match merged.intersection(&waiting).next() {
        Some((origin, month)) => Err(format!("a build merges a part of {origin} in {month}")),
        None => Ok(merged),
    }
}

/// Runs it with the calling thread as rayon's only one: the same order of calls to the disk in every run.
pub(super) fn on_one_thread<T>(work: impl FnOnce() -> T) -> T {
    thread_local! {
        static POOL: ThreadPool = ThreadPoolBuilder::new()
            .num_threads(1)
            .use_current_thread()
            .build()
            .expect("a pool without other threads can be made");
    }
    POOL.with(|pool| {
        assert_eq!(
            pool.current_thread_index(),
            Some(0),
            "BUG: another pool's thread"
        );
        work()
    })
}
