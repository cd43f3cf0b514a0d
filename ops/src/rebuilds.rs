//! Rebuild jobs of a server: one at a time, the heavy part in a child process of low priority.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;

use serde::de::DeserializeOwned;
use tallyring_archive::{Build, Manifest, RunEntry, Work};
use tallyring_realtime::catalog::{BackupOutcome, Catalog, Job, JobProgress, JobState};
use tallyring_realtime::{Store, priority};
use tallyring_rebuild::backup::Copied;
use tallyring_rebuild::{heal, recompressible};

use crate::backup;
use crate::child;
use crate::config::RebuildConfig;
use crate::error::{CommandError, Result};
use crate::incoming;
use crate::repair::open_backup;
use crate::scratch::in_scratch;

/// How often a rebuild starts again when its sources change while it runs.
const ATTEMPTS: usize = 3;

/// Bytes of recompressed files between two backups, exceeded by one file at most: a backup holds old and new files
/// until it is done.
pub(crate) const RECOMPRESSED_BYTES_MAX: u64 = 4 << 30;

/// Starts rebuilds and records how they ended.
pub(crate) struct Rebuilds {
    store: Arc<Store>,
    data: PathBuf,
    config: RebuildConfig,
    backup: Option<PathBuf>,
    catalog: Arc<Catalog>,
    /// Held while a backup is written.
    backing_up: Mutex<()>,
    /// Held from the manifest with which a rebuild begins until it is published, so that the files it reads stay.
    rebuilding: Mutex<()>,
    /// Held while closed years are recompressed.
    recompressing: Mutex<()>,
    /// Held while files are read.
    scrubbing: Mutex<()>,
    last: Mutex<Option<Job>>,
}

impl Rebuilds {
    /// Jobs over a store, continuing the history in its catalog.
    pub(crate) fn new(
        store: Arc<Store>,
        catalog: Arc<Catalog>,
        data: &Path,
        (config, backup): (RebuildConfig, Option<PathBuf>),
    ) -> Arc<Self> {
        let mut last = catalog.last_job().ok().flatten();
        if let Some(job) = last.as_mut().filter(|job| job.state == JobState::Running) {
            job.state = JobState::Failed;
            job.error = Some("the server stopped during the rebuild; nothing was published".into());
        }
        if let Some(job) = last.as_mut().filter(|job| job.backing_up) {
            job.backing_up = false;
            job.backup = Some(BackupOutcome {
                error: Some(
                    "the server stopped during the backup; the backup before it is still valid"
                        .into(),
                ),
                ..BackupOutcome::at(store.world().clock.now_ms())
            });
        }
        // The failure of an earlier process has no reader any more.
        if let Some(job) = last.as_mut().filter(|_| backup.is_none()) {
            job.backup = None;
        }
        Arc::new(Self {
            store,
            data: data.to_owned(),
            config,
            backup,
            catalog,
            backing_up: Mutex::new(()),
            rebuilding: Mutex::new(()),
            recompressing: Mutex::new(()),
            scrubbing: Mutex::new(()),
            last: Mutex::new(last),
        })
    }

    /// Returns the newest job.
    pub(crate) fn last(&self) -> Option<Job> {
        self.lock().clone()
    }

    /// Starts a rebuild, or joins the running one; returns the number of the job.
    pub(crate) fn start(self: &Arc<Self>) -> u64 {
        let mut last = self.lock();
        if let Some(running) = last.as_ref().filter(|job| job.state == JobState::Running) {
            return running.job;
        }
        let job = Job::begin(last.take(), self.store.world().clock.now_ms());
        self.remember(&job);
        *last = Some(job.clone());
        drop(last);
        let this = Arc::clone(self);
        let number = job.job;
        let spawned = thread::Builder::new()
            .name("rebuild".into())
            .spawn(move || this.run(job));
        if let Err(error) = spawned {
            self.end(number, Err(CommandError::Failed(error.to_string())));
        }
        number
    }

    fn run(&self, job: Job) {
        priority::run_as_usual();
        let number = job.job;
        tracing::info!(job = number, "rebuild started");
        let result = self.rebuild(number);
        let is_done = result.is_ok();
        // A load that was killed leaves its files, and a server may run for months before the next load removes them.
        incoming::sweep(&self.data);
        self.end(number, result);
        if let Some(backup) = self.backup.as_ref().filter(|_| is_done) {
            let _one_at_a_time = hold(&self.backing_up);
            self.end_backup(number, self.back_up(number, backup));
        }
    }

    fn rebuild(&self, number: u64) -> Result<(u64, Option<Work>)> {
        let _files_stay = hold(&self.rebuilding);
        let rebuilt = self.cut_and_publish(number);
        // A failed rebuild removes them too, because a full disk may have caused the failure.
        match self.store.ledger().expire_log() {
            Ok(0) => {}
            Ok(segments) => tracing::info!(segments, "old log segments removed"),
            Err(error) => tracing::warn!(%error, "old log segments could not be removed"),
        }
        rebuilt
    }

    fn cut_and_publish(&self, number: u64) -> Result<(u64, Option<Work>)> {
        let mut attempt = 1;
        let build = loop {
            let manifest = self.store.ledger().cut()?;
            let result = self.build_and_publish(number, &manifest);
            if result.is_err() {
                self.remove_leftovers();
            }
            // A change that asked for a rebuild meanwhile was answered with this job.
            if attempt == ATTEMPTS || wanted(&manifest) == wanted(&self.store.manifest()) {
                break result?;
            }
            tracing::info!("the datasets changed during the rebuild, so the rebuild begins again");
            attempt += 1;
        };
        let work = build
            .filter(|build| build.generation.is_some())
            .map(|build| build.work);
        Ok((self.store.manifest().archive.active, work))
    }

    /// Removes the files of a worker that failed. No rebuild may run meanwhile.
    fn remove_leftovers(&self) {
        if let Err(error) = self.store.ledger().remove_leftovers_of_rebuild() {
            tracing::warn!(%error, "the files of a failed worker could not be removed");
        }
    }

    fn build_and_publish(&self, number: u64, manifest: &Manifest) -> Result<Option<Build>> {
        let mut arguments: Vec<OsString> = vec!["rebuild-worker".into()];
        arguments.extend(["--data".into(), self.data.clone().into_os_string()]);
        let config = &self.config;
        let numbers = [
            ("--manifest", Some(manifest.number.to_string())),
            ("--shards", Some(self.store.options().shards.to_string())),
            ("--level", Some(config.level.to_string())),
            (
                "--minute-days",
                config.keep.minutes.map(|days| days.to_string()),
            ),
            (
                "--hour-days",
                config.keep.hours.map(|days| days.to_string()),
            ),
            (
                "--breakdown-hours",
                Some(self.store.options().breakdown_hours.to_string()),
            ),
        ];
        for (option, number) in numbers {
            arguments.extend(
                number
                    .into_iter()
                    .flat_map(|number| [option.into(), number.into()]),
            );
        }
        let build: Option<Build> = self.in_child(number, &arguments)?;
        if let Some(build) = &build {
            self.store.ledger().publish(build)?;
        }
        Ok(build)
    }

    /// True while a rebuild or its backup runs.
    pub(crate) fn is_busy(&self) -> bool {
        let last = self.lock();
        last.as_ref()
            .is_some_and(|job| job.state == JobState::Running || job.backing_up)
    }

    /// Recompresses closed years in a thread of its own, unless a thread does so already.
    pub(crate) fn start_recompression(self: &Arc<Self>) {
        self.start_thread("recompress", Self::recompress);
    }

    /// Reads the files that are due on `night` (a day's number) in a thread of its own, unless a thread does so
    /// already.
    pub(crate) fn start_scrub(self: &Arc<Self>, night: i64) {
        self.start_thread("scrub", move |this| this.scrub(night));
    }

    /// Heals files that are damaged or gone in a thread of its own, unless files are being read already.
    pub(crate) fn start_healing(self: &Arc<Self>) {
        self.start_thread("heal", |this| {
            priority::run_behind();
            let Some(_one_at_a_time) = try_hold(&this.scrubbing) else {
                return;
            };
            this.store.ledger().look_for_lost();
            for file in this.store.ledger().damaged_entries() {
                this.heal(&file);
            }
        });
    }

    /// Heals a file and logs the result.
    fn heal(&self, file: &RunEntry) {
        let name = &*file.name;
        // A reader may panic over damage.
        match catch_unwind(AssertUnwindSafe(|| self.healed(file))) {
            Ok(Ok(Some(from))) => tracing::info!(file = name, from, "healed a file"),
            Ok(Ok(None)) => tracing::error!(
                file = name,
                "a file is damaged or gone, and neither another file nor a backup has its content: stop the server and run \
                 `tallyring verify --repair`, which counts again what the log holds; or restore a backup"
            ),
            Ok(Err(error)) => tracing::error!(%error, file = name, "a file cannot be healed"),
            Err(_) => tracing::error!(file = name, "healing a file panicked"),
        }
    }

    /// Puts the bytes of a file back, or counts its store again. Returns where the content came from; `None` when
    /// nothing has it.
    fn healed(&self, file: &RunEntry) -> Result<Option<&'static str>> {
        // Nothing may remove the files and log segments that are read here.
        let _files_stay = (hold(&self.backing_up), hold(&self.rebuilding));
        let manifest = self.store.manifest();
        let blobs = &self.store.world().blobs();
        let backup = self.backup.as_deref();
        let backup = backup.and_then(|path| open_backup(&self.data, path).ok());
        let backup = backup.as_ref();
        let from = in_scratch(|scratch| Ok(heal(blobs, scratch, &manifest, file, backup)?))?;
        match from {
            Some(from) => {
                self.store.ledger().reopen(file)?;
                Ok(Some(from.told()))
            }
            None => Ok(self
                .store
                .ledger()
                .recount_store_of(file)?
                .then_some("the log")),
        }
    }

    fn start_thread(self: &Arc<Self>, name: &str, run: impl FnOnce(&Self) + Send + 'static) {
        let this = Arc::clone(self);
        let spawned = thread::Builder::new().name(name.into());
        if let Err(error) = spawned.spawn(move || run(&this)) {
            tracing::warn!(%error, "{name} cannot start; the server tries again tomorrow");
        }
    }

    /// Rests as long as it reads, so that disk and processor stay with requests.
    fn scrub(&self, night: i64) {
        priority::run_behind();
        let Some(_one_at_a_time) = try_hold(&self.scrubbing) else {
            return;
        };
        for file in self.store.ledger().files_to_scrub(night) {
            let mut began = Instant::now();
            let mut rest = || {
                thread::sleep(began.elapsed());
                began = Instant::now();
            };
            // The pass only reads. A reader that panics over damage must end neither the server nor the reading of the
            // other files.
            let read = catch_unwind(AssertUnwindSafe(|| {
                self.store.ledger().scrub(&file, &mut rest)
            }));
            match read {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, file = file.name, "a file cannot be read as it was written");
                    self.heal(&file);
                }
                Err(_) => tracing::error!(
                    file = file.name,
                    "reading a file again panicked; check the file with `tallyring verify`"
                ),
            }
        }
    }

    /// Publishes each file by itself, so a server that ends meanwhile continues the next night. A backup follows every
    /// few files, so that it never holds much twice.
    fn recompress(&self) {
        priority::run_as_usual();
        let Some(_one_at_a_time) = try_hold(&self.recompressing) else {
            return;
        };
        let level = self.config.closed_level;
        let mut not_backed_up = 0;
        for file in recompressible(&self.store.manifest(), level) {
            match self.recompress_file(file, level) {
                Ok(true) => not_backed_up += file.bytes,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, file = file.name, "recompression failed; the file stays as it is");
                    let _files_stay = hold(&self.rebuilding);
                    self.remove_leftovers();
                }
            }
            if not_backed_up >= RECOMPRESSED_BYTES_MAX {
                if !self.back_up_again() {
                    return;
                }
                not_backed_up = 0;
            }
        }
        if not_backed_up > 0 {
            self.back_up_again();
        }
    }

    fn recompress_file(&self, file: &RunEntry, level: i32) -> Result<bool> {
        let manifest = self.store.manifest();
        if !recompressible(&manifest, level).contains(&file) {
            return Ok(false);
        }
        let mut arguments: Vec<OsString> = vec!["recompress-worker".into()];
        arguments.extend(["--data".into(), self.data.clone().into_os_string()]);
        arguments.extend(["--manifest".into(), manifest.number.to_string().into()]);
        arguments.extend(["--level".into(), level.to_string().into()]);
        arguments.extend(["--file".into(), file.name.clone().into()]);
        let made: RunEntry = child::follow(itself().args(arguments), &|_| {})?;
        // Files that a backup or a rebuild reads stay until it is done.
        let _not_read = (hold(&self.backing_up), hold(&self.rebuilding));
        let is_replaced = self.store.ledger().replace(file, &made)?;
        if is_replaced {
            let (before, bytes) = (file.bytes, made.bytes);
            tracing::info!(file = file.name, before, bytes, "recompressed");
        }
        Ok(is_replaced)
    }

    /// Makes a backup that no rebuild asked for; false when it failed. A rebuild that ends meanwhile makes a backup of
    /// its own.
    fn back_up_again(&self) -> bool {
        const NO_JOB: u64 = 0;
        let Some(backup) = &self.backup else {
            return true;
        };
        let _one_at_a_time = hold(&self.backing_up);
        let result = self.back_up(NO_JOB, backup);
        let is_done = result.is_ok();
        self.end_backup(NO_JOB, result);
        is_done
    }

    fn back_up(&self, number: u64, backup: &Path) -> Result<Copied> {
        let data = self.data.clone().into_os_string();
        let backup = backup.as_os_str().to_owned();
        let arguments = [
            "backup-worker".into(),
            "--data".into(),
            data,
            "--".into(),
            backup,
        ];
        self.in_child(number, &arguments)
    }

    fn end_backup(&self, number: u64, result: Result<Copied>) {
        let mut last = self.lock();
        let outcome = backup::outcome(self.store.world().clock.now_ms(), &result);
        match &result {
            Ok(copied) => tracing::info!(
                generation = copied.generation,
                files = copied.files,
                bytes = copied.bytes,
                "backup done"
            ),
            Err(error) => {
                tracing::error!(%error, "backup failed; the backup before it is still valid")
            }
        }
        if let Some(job) = last.as_mut() {
            // A rebuild that began meanwhile will make a backup of its own.
            if job.job == number {
                job.backing_up = false;
                job.progress = None;
            }
            job.backup = Some(outcome);
            self.remember(job);
        }
    }

    /// Runs the child at the lowest priority and records its progress with the job `number`.
    fn in_child<T: DeserializeOwned + Send>(
        &self,
        number: u64,
        arguments: &[OsString],
    ) -> Result<T> {
        child::follow(itself().args(arguments), &|progress| {
            self.advance(number, progress)
        })
    }

    fn advance(&self, number: u64, progress: JobProgress) {
        let mut last = self.lock();
        if let Some(job) = last.as_mut().filter(|job| job.job == number) {
            job.progress = Some(progress);
        }
    }

    fn end(&self, number: u64, result: Result<(u64, Option<Work>)>) {
        let mut last = self.lock();
        let Some(job) = last.as_mut().filter(|job| job.job == number) else {
            return;
        };
        match &result {
            Ok((generation, _)) => tracing::info!(job = number, generation, "rebuild done"),
            Err(error) => {
                tracing::error!(job = number, %error, "rebuild failed; the generation before goes on serving");
            }
        }
        // This step also announces the backup, so that a client that waits for it always finds one to come.
        job.backing_up = result.is_ok() && self.backup.is_some();
        let now_ms = self.store.world().clock.now_ms();
        job.end(now_ms, result.map_err(|error| error.to_string()));
        self.remember(job);
    }

    fn remember(&self, job: &Job) {
        if let Err(error) = self.catalog.put_job(job) {
            tracing::warn!(%error, "job history is not kept");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Job>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program that runs now, even when its file was replaced.
fn itself() -> Command {
    Command::new("/proc/self/exe")
}

/// The datasets that the next generation counts.
fn wanted(manifest: &Manifest) -> Vec<&str> {
    let wanted = manifest
        .archive
        .datasets
        .iter()
        .filter(|dataset| dataset.wanted);
    wanted.map(|dataset| dataset.load.as_str()).collect()
}

fn hold(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` while another thread holds the lock. A thread that panicked no longer holds it, and protects no data with it.
fn try_hold(mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match mutex.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
