//! Rebuild jobs of a server: one at a time, the heavy part in a child process of low priority, or on another node.

mod backups;
mod claims;
mod healing;
mod ordered;
#[cfg(test)]
mod stand;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use tallyring_archive::{Build, Manifest, RunEntry};
use tallyring_realtime::catalog::{Catalog, Job, JobProgress, JobState};
use tallyring_realtime::{ObjectsStay, Store, priority};
use tallyring_rebuild::recompressible;
use tracing::Span;

use crate::child;
use crate::config::RebuildConfig;
use crate::error::{CommandError, Result};
use crate::incoming;
use crate::worker::Work;

use backups::{Backups, Begun};
use claims::{Claims, Turns};

/// How often a rebuild starts again when its sources change while it runs.
const ATTEMPTS: usize = 3;

/// Bytes of recompressed files between two backups, exceeded by one file at most: a backup holds old and new files
/// until it is done.
pub(crate) const RECOMPRESSED_BYTES_MAX: u64 = 4 << 30;

/// The manifest that an attempt to rebuild began with, and its result.
type Tried = (Arc<Manifest>, Result<Option<Build>>);

/// Starts rebuilds and records how they ended.
pub(crate) struct Rebuilds {
    store: Arc<Store>,
    data: PathBuf,
    config: RebuildConfig,
    backup: Option<PathBuf>,
    catalog: Arc<Catalog>,
    /// Held during heavy work of this node: of its strands, one has its turn. The order of locks is `turn`,
    /// `backing_up`, `rebuilding`. A holder of `rebuilding` may wait for another node, which takes `turn` for that
    /// before it claims the order and waits for no lock then, or never writes and so has no rebuild of its own. So no
    /// nodes wait for each other.
    turn: Arc<Turns>,
    /// Held while a backup is written.
    backing_up: Mutex<()>,
    /// Held from the manifest with which a rebuild begins until it is published, so that the files it reads stay.
    rebuilding: Mutex<()>,
    /// Held while closed years are recompressed.
    recompressing: Mutex<()>,
    /// Held while files are read.
    scrubbing: Mutex<()>,
    /// Held while this node does a rebuild for the one that writes.
    claiming: Mutex<Claims>,
    /// Where log lines of jobs are.
    span: Span,
    last: Mutex<Option<Last>>,
    backups: Mutex<Backups>,
}

/// The newest job of this node.
struct Last {
    job: Job,
    /// The epoch in which it began: in a later one another node may have made newer ones. None for a job of an earlier
    /// process, of which a server without other nodes tells, too.
    epoch: Option<u32>,
}

impl Last {
    fn is_running(&self) -> bool {
        self.job.state == JobState::Running
    }
}

impl Rebuilds {
    /// Jobs over a strand of the store, continuing the history in its catalog. `turn` is that of all strands. Log lines
    /// are in the span of the caller.
    pub(crate) fn new(
        store: Arc<Store>,
        catalog: Arc<Catalog>,
        data: &Path,
        (config, backup): (RebuildConfig, Option<PathBuf>),
        turn: Arc<Turns>,
    ) -> Arc<Self> {
        let mut last = catalog.last_job().ok().flatten();
        if let Some(job) = last.as_mut().filter(|job| job.state == JobState::Running) {
            job.state = JobState::Failed;
            job.error = Some("the server stopped during the rebuild; nothing was published".into());
        }
        Arc::new(Self {
            store,
            data: data.to_owned(),
            config,
            backup,
            catalog,
            turn,
            backing_up: Mutex::new(()),
            rebuilding: Mutex::new(()),
            recompressing: Mutex::new(()),
            scrubbing: Mutex::new(()),
            claiming: Mutex::default(),
            span: Span::current(),
            last: Mutex::new(last.map(|job| Last { job, epoch: None })),
            backups: Mutex::default(),
        })
    }

    /// Where log lines about the strand are.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the newest job; none where another node writes, or did since and this one has ended: its jobs are newer.
    pub(crate) fn last(&self) -> Option<Job> {
        let last = self.last.lock();
        let epoch = self.store.intake().epoch()?;
        let is_single = self.store.world().objects.is_none();
        let is_newest = |last: &&Last| last.is_running() || is_single || last.epoch == Some(epoch);
        last.as_ref().filter(is_newest).map(|last| last.job.clone())
    }

    /// Starts a rebuild, or joins the running one; returns the number of the job.
    pub(crate) fn start(self: &Arc<Self>) -> u64 {
        let last = self.last.lock();
        match last.as_ref().filter(|last| last.is_running()) {
            Some(running) => running.job.job,
            None => self.begin(last),
        }
    }

    /// Starts a rebuild if a day is due and no rebuild runs. A rebuild ends under this lock after it has published, so
    /// the days that it exported are not taken for due once more.
    pub(crate) fn start_due(self: &Arc<Self>) -> Option<u64> {
        let last = self.last.lock();
        let is_running = last.as_ref().is_some_and(Last::is_running);
        (!is_running && self.store.live().has_due_day()).then(|| self.begin(last))
    }

    fn begin(self: &Arc<Self>, mut last: MutexGuard<'_, Option<Last>>) -> u64 {
        let before = last.as_ref().map(|last| &last.job);
        let job = Job::begin(before, self.store.world().clock.now_ms());
        self.remember(&job);
        *last = Some(Last {
            job: job.clone(),
            epoch: self.store.intake().epoch(),
        });
        drop(last);
        let this = Arc::clone(self);
        let number = job.job;
        let spawned = thread::Builder::new()
            .name("rebuild".into())
            .spawn(move || this.span.in_scope(|| this.run(job)));
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
        // A load that was killed leaves its files, and a server may run for months before the next load removes them.
        incoming::sweep(&self.data);
        if let Some((backup, begun)) = self.backup.as_ref().zip(self.end(number, result)) {
            self.end_backup(begun, self.back_up_in_turn(backup));
        }
    }

    fn rebuild(&self, number: u64) -> Result<(u64, Option<Build>)> {
        let rebuilt = self.cut_and_publish(number);
        // A failed rebuild removes them too, because a full disk may have caused the failure. The segment with persons
        // ends here, so other work is waited for: the next rebuild may be a day away.
        let _files_stay = self.rebuilding.lock();
        note_removed(self.store.ledger().expire_log());
        rebuilt
    }

    /// Removes old log segments where the log is near the limit of its size, unless other work reads files now.
    pub(crate) fn make_room_in_log(&self) {
        if !self.store.intake().log_wants_room() {
            return;
        }
        let files_stay = (self.backing_up.try_lock(), self.rebuilding.try_lock());
        if let (Some(_), Some(_)) = files_stay {
            note_removed(self.store.ledger().make_room_in_log());
        }
    }

    /// The generation that is active then, and the build; none where nothing was to be done.
    fn cut_and_publish(&self, number: u64) -> Result<(u64, Option<Build>)> {
        let mut attempt = 1;
        let build = loop {
            let (manifest, result) = match self.rebuild_elsewhere(number)? {
                Some(tried) => tried,
                None => self.rebuild_here(number)?,
            };
            // A change that asked for a rebuild meanwhile was answered with this job.
            if attempt == ATTEMPTS || wanted(&manifest) == wanted(&self.store.manifest()) {
                break result?;
            }
            tracing::info!("the datasets changed during the rebuild, so the rebuild begins again");
            attempt += 1;
        };
        Ok((self.store.manifest().archive.active, build))
    }

    /// Removes the files that a failed worker has made.
    fn remove_unpublished(&self, made: &[String]) {
        if let Err(error) = self.store.ledger().remove_unpublished(made) {
            tracing::warn!(%error, "the files of a failed worker could not be removed");
        }
    }

    /// Has another node rebuild; none where this node is to do it. It keeps its turn for other strands meanwhile.
    fn rebuild_elsewhere(&self, number: u64) -> Result<Option<Tried>> {
        let Some(asked) = self.asked() else {
            return Ok(None);
        };
        let _files_stay = (self.rebuilding.lock(), self.store.ledger().keep_objects());
        let manifest = self.store.ledger().cut()?;
        let Some(proven) = self.order(number, &manifest, asked)? else {
            return Ok(None);
        };
        let published = self.publish(Ok(proven.build), &proven.files);
        Ok(Some((manifest, published)))
    }

    fn rebuild_here(&self, number: u64) -> Result<Tried> {
        let _files_stay = self.hold_files();
        let manifest = self.store.ledger().cut()?;
        let work = Work::Rebuild {
            manifest: manifest.number,
            options: self.config.build_options(self.store.options()),
        };
        let mut made = Vec::new();
        let built = self.in_child(number, &work, &mut made);
        let published = self.publish(built, &made);
        Ok((manifest, published))
    }

    /// Publishes what was built, and removes the files that were `made` where that fails.
    fn publish(&self, built: Result<Option<Build>>, made: &[String]) -> Result<Option<Build>> {
        let published = built.and_then(|build| {
            match &build {
                Some(build) => self.store.ledger().publish(build)?,
                None => self.store.ledger().prove_datasets()?,
            }
            Ok(build)
        });
        // A rebuild that left out fixes had merged some shards with them before.
        let is_whole = |build: &Option<Build>| {
            let mut build = build.iter();
            build.all(|build| build.refused.is_empty())
        };
        if !published.as_ref().is_ok_and(is_whole) {
            self.remove_unpublished(made);
        }
        published
    }

    /// Waits until no rebuild of this strand runs, and this node does no heavy work for any. None begins, and the
    /// files, the log and what is uploaded stay, while the result is held.
    pub(crate) fn hold_files(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, ()>, ObjectsStay<'_>) {
        let (turn, rebuilding) = (self.turn.lock(), self.rebuilding.lock());
        (turn, rebuilding, self.store.ledger().keep_objects())
    }

    /// True while a rebuild runs, or a backup reads files.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_rebuilding() || self.backing_up.is_locked()
    }

    fn is_rebuilding(&self) -> bool {
        self.last.lock().as_ref().is_some_and(Last::is_running)
    }

    /// Recompresses closed years in a thread of its own, unless a thread does so already.
    pub(crate) fn start_recompression(self: &Arc<Self>) {
        self.start_thread("recompress", Self::recompress);
    }

    fn start_thread(self: &Arc<Self>, name: &str, run: impl FnOnce(&Self) + Send + 'static) {
        let this = Arc::clone(self);
        let spawned = thread::Builder::new().name(name.into());
        if let Err(error) = spawned.spawn(move || this.span.in_scope(|| run(&this))) {
            tracing::warn!(%error, "{name} cannot start; the server tries again later");
        }
    }

    /// Publishes each file by itself, so a server that ends meanwhile continues the next night. A backup follows every
    /// few files, so that it never holds much twice.
    fn recompress(&self) {
        priority::run_as_usual();
        let Some(_one_at_a_time) = self.recompressing.try_lock() else {
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
        let work = Work::Recompress {
            manifest: manifest.number,
            file: file.name.clone(),
            level,
        };
        let mut files = Vec::new();
        // The strands of a node do heavy work one after the other.
        let turn = self.turn.lock();
        let followed = child::follow(&self.data, &work, &|_| {}, &mut files);
        let made: RunEntry = followed.inspect_err(|_| self.remove_unpublished(&files))?;
        drop(turn);
        // Files that a backup or a rebuild reads stay until it is done.
        let _not_read = (self.backing_up.lock(), self.rebuilding.lock());
        let is_replaced = self.store.ledger().replace(file, &made)?;
        if is_replaced {
            let (before, bytes) = (file.bytes, made.bytes);
            tracing::info!(file = file.name, before, bytes, "recompressed");
        }
        Ok(is_replaced)
    }

    /// Runs the child at the lowest priority and records its progress with the job `number`. `made` gets the names of
    /// the files that it makes in the data directory.
    fn in_child<T: DeserializeOwned + Send>(
        &self,
        number: u64,
        work: &Work,
        made: &mut Vec<String>,
    ) -> Result<T> {
        let heard = |progress| self.advance(number, progress);
        child::follow(&self.data, work, &heard, made)
    }

    fn advance(&self, number: u64, progress: JobProgress) {
        let mut last = self.last.lock();
        if let Some(job) = job_of(&mut last, number) {
            job.progress = Some(progress);
        }
    }

    /// Records the other node that does the work of the job `number`; none where this one does.
    fn note_node(&self, number: u64, node: Option<&str>) {
        let mut last = self.last.lock();
        if let Some(job) = job_of(&mut last, number) {
            job.node = node.map(str::to_owned);
        }
    }

    /// Records how the job `number` ended; returns the backup that follows, if one is to be made.
    fn end(&self, number: u64, result: Result<(u64, Option<Build>)>) -> Option<Begun> {
        let mut last = self.last.lock();
        let job = job_of(&mut last, number)?;
        match &result {
            Ok((generation, _)) => {
                tracing::info!(job = number, generation, "rebuild done");
            }
            Err(error) => {
                tracing::error!(job = number, %error, "rebuild failed; the generation before goes on serving");
            }
        }
        // A client that waits for the backup of a job that is done finds one to come.
        let is_backed_up = result.is_ok() && self.backup.is_some();
        let begun = is_backed_up.then(|| self.begin_backup());
        let now_ms = self.store.world().clock.now_ms();
        job.end(now_ms, result.map_err(|error| error.to_string()));
        self.remember(job);
        begun
    }

    fn remember(&self, job: &Job) {
        if let Err(error) = self.catalog.put_job(job) {
            tracing::warn!(%error, "job history is not kept");
        }
    }
}

/// The job with this number; none once another one began.
fn job_of(last: &mut Option<Last>, number: u64) -> Option<&mut Job> {
    let job = last.as_mut().map(|last| &mut last.job);
    job.filter(|job| job.job == number)
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

/// Logs how many segments of the log were removed.
fn note_removed(removed: tallyring_realtime::Result<usize>) {
    match removed {
        Ok(0) => {}
        Ok(segments) => tracing::info!(segments, "old log segments removed"),
        Err(error) => tracing::warn!(%error, "old log segments could not be removed"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tallyring_api::{BackupOutcome, BackupState};
    use tallyring_archive::Blobs;
    use tallyring_realtime::oplog::Owner;
    use tallyring_realtime::{Batch, Follower, Lock, Options, VirtualClock};
    use tallyring_rebuild::build;
    use tallyring_rebuild::orders::HUNG_MS;
    use tallyring_records::{Increment, Schema};

    use super::stand::Stand;
    use super::*;
    use crate::config::Config;
    use crate::data_directory::world;

    /// 2012-03-16T18:00:00Z
    const NOW: i64 = 1_331_920_800;

    /// A store with a click of yesterday, and its jobs.
    fn rebuilds(directory: &Path) -> Arc<Rebuilds> {
        let clock = VirtualClock::new(NOW * 1_000, 0.0);
        let world = world(directory, Arc::new(clock)).unwrap();
        let options = Options::for_memory(1 << 28);
        let (store, _) = Store::open(world, options, Schema::default_clicks()).unwrap();
        let batch = Batch {
            increments: vec![Increment::new(NOW - 86_400, 1, [("l", "abc")])],
            ..Batch::default()
        };
        store.intake().commit(vec![batch]).remove(0).unwrap();
        let catalog = Arc::new(Catalog::open(&directory.join("catalog")).unwrap());
        let config = Config::load(None).unwrap().rebuild;
        Rebuilds::new(
            Arc::new(store),
            catalog,
            directory,
            (config, None),
            Arc::default(),
        )
    }

    fn built(rebuilds: &Rebuilds, manifest: &Manifest, blobs: &Blobs) -> Build {
        let options = rebuilds.config.build_options(rebuilds.store.options());
        let built = build(blobs, manifest, options, &|_, _| {});
        built.unwrap().unwrap()
    }

    #[test]
    fn a_day_that_a_rebuild_has_just_published_starts_no_second_rebuild() {
        let directory = tempfile::tempdir().unwrap();
        let rebuilds = rebuilds(directory.path());
        let store = &rebuilds.store;
        // The schedule looks, and the day is due; then a rebuild publishes it and ends before the schedule goes on.
        assert!(store.live().has_due_day());
        let manifest = store.ledger().cut().unwrap();
        assert!(store.live().has_due_day(), "it is not published yet");
        let build = built(&rebuilds, &manifest, &store.world().blobs());
        store.ledger().publish(&build).unwrap();

        assert_eq!(rebuilds.start_due(), None);
        assert!(rebuilds.last().is_none(), "no job began");
    }

    /// Jobs of the next process over the same store, with a backup at this place.
    fn with_backup(rebuilds: &Rebuilds, place: &Path) -> Arc<Rebuilds> {
        Rebuilds::new(
            Arc::clone(&rebuilds.store),
            Arc::clone(&rebuilds.catalog),
            &rebuilds.data,
            (rebuilds.config, Some(place.to_owned())),
            Arc::default(),
        )
    }

    /// The outcome of the newest backup; no child can make one here.
    fn outcome(rebuilds: &Rebuilds) -> Option<BackupOutcome> {
        rebuilds.make_missing_backup();
        rebuilds.last_backup().unwrap().ended
    }

    #[test]
    fn a_backup_that_has_what_rebuilds_made_is_found_and_any_other_is_made() {
        let (directory, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = place.path().join("copy");
        let rebuilds = rebuilds(directory.path());
        rebuilds.make_missing_backup();
        assert_eq!(rebuilds.last_backup(), None, "there is to be none");
        let next = || with_backup(&rebuilds, &place);
        let fails = |rebuilds: &Rebuilds| outcome(rebuilds).unwrap().error.is_some();
        assert_eq!(outcome(&next()), None, "a rebuild makes the first one");
        let failed = next();
        let outcome_of_failed = BackupOutcome {
            error: Some("the disk is full".into()),
            ..BackupOutcome::default()
        };
        failed.end_backup(failed.begin_backup(), Some(outcome_of_failed));
        assert!(fails(&failed) && outcome(&failed).unwrap().ended_ms > 0);
        let stand = Stand::new();
        let node = with_backup(&stand.rebuilds, &place);
        assert!(fails(&node), "the node that rebuilt may be lost");
        let make = || crate::backup::make(directory.path(), &place, &|_| true, &|_, _| {});
        make().unwrap();
        let written_at_ms = rebuilds.store.manifest().written_at_ms;
        rebuilds.store.ledger().flush().unwrap();
        let found = next();
        let outcome_of_found = outcome(&found).unwrap();
        assert_eq!(
            (outcome_of_found.ended_ms, outcome_of_found.generation),
            (written_at_ms, Some(0))
        );
        assert!(!found.is_busy());

        let manifest = rebuilds.store.ledger().cut().unwrap();
        let build = built(&rebuilds, &manifest, &rebuilds.store.world().blobs());
        rebuilds.store.ledger().publish(&build).unwrap();
        assert!(fails(&next()));
        let lock = Lock::take(&place).unwrap().ok().unwrap();
        assert_eq!(outcome(&next()), None, "another process makes it");
        let waiting = next();
        thread::scope(|scope| {
            let backup = scope.spawn(|| waiting.back_up_again());
            while waiting.last_backup().unwrap().running_since_ms.is_none() {
                thread::yield_now();
            }
            assert!(
                waiting.backing_up.try_lock().is_some(),
                "other work goes on"
            );
            assert_eq!(waiting.last_backup().unwrap().ended, None);
            drop(lock);
            assert!(!backup.join().unwrap());
        });
        assert!(!waiting.is_busy() && waiting.last_backup().unwrap().ended.is_some());
        let job = Job::begin(None, NOW * 1_000);
        let running = next();
        *running.last.lock() = Some(Last { job, epoch: None });
        assert_eq!(outcome(&running), None, "the job that runs makes it");
        make().unwrap();
        assert_eq!(outcome(&next()).unwrap().generation, Some(1));
    }

    #[test]
    fn a_backup_that_hangs_keeps_files_for_an_hour_and_no_longer() {
        let stand = Stand::new();
        let (rebuilds, clock) = (&stand.rebuilds, &stand.clock);
        let (has_begun, is_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        let error = thread::scope(|scope| {
            let copying = scope.spawn(|| {
                rebuilds.while_files_stay::<()>(&|leash, heard| {
                    for _ in 0..3 {
                        clock.pass(HUNG_MS - 1);
                        heard(JobProgress { done: 1, total: 2 });
                    }
                    has_begun.store(true, Ordering::Relaxed);
                    while !leash.is_let_go() {
                        thread::yield_now();
                    }
                    // The disk does not let it end.
                    while !is_gone.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                    Ok(())
                })
            });
            while !has_begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            assert!(rebuilds.is_busy(), "it came further");
            clock.pass(HUNG_MS);
            let files = rebuilds.backing_up.lock();
            assert!(!copying.is_finished());
            drop(files);
            is_gone.store(true, Ordering::Relaxed);
            copying.join().unwrap().unwrap_err().to_string()
        });
        assert!(error.contains("no further for an hour"), "{error}");
        assert!(!rebuilds.is_busy());
    }

    #[test]
    fn a_node_that_takes_the_log_over_tells_nothing_old() {
        let mut stand = Stand::new();
        let rebuilds = Arc::get_mut(&mut stand.rebuilds).unwrap();
        rebuilds.backup = Some("/backup".into());
        let job = Job {
            state: JobState::Failed,
            ..Job::begin(None, 0)
        };
        *rebuilds.last.lock() = Some(Last {
            job: job.clone(),
            epoch: rebuilds.store.intake().epoch(),
        });
        rebuilds.end_backup(rebuilds.begin_backup(), Some(BackupOutcome::default()));
        assert_eq!(rebuilds.last(), Some(job));
        let backup = rebuilds.last_backup().unwrap();
        assert_eq!(
            (backup.running_since_ms, backup.ended),
            (None, Some(BackupOutcome::default()))
        );
        let begun = rebuilds.begin_backup();
        let follower = Follower::step_down(Arc::clone(&rebuilds.store)).unwrap();
        assert_eq!((rebuilds.last(), rebuilds.last_backup()), (None, None));
        assert!(follower.take_over(Owner(9)).is_ok());
        assert_eq!(rebuilds.last(), None);
        let backup = rebuilds.last_backup().unwrap();
        assert!(backup.running_since_ms.is_some() && backup.ended.is_none());
        rebuilds.end_backup(begun, Some(BackupOutcome::default()));
        assert_eq!(rebuilds.last_backup(), Some(BackupState::default()));
        let last = rebuilds.last.lock();
        assert_eq!(last.as_ref().unwrap().job.job, 1, "numbers go on");
    }

    #[test]
    fn a_node_tells_of_its_job_that_still_runs_in_whatever_epoch_it_began() {
        let stand = Stand::new();
        let rebuilds = &stand.rebuilds;
        let job = Job::begin(None, 0);
        *rebuilds.last.lock() = Some(Last {
            job: job.clone(),
            epoch: rebuilds.store.intake().epoch(),
        });
        let follower = Follower::step_down(Arc::clone(&rebuilds.store)).unwrap();
        assert_eq!(rebuilds.last(), None);
        assert!(follower.take_over(Owner(9)).is_ok());
        assert_eq!(rebuilds.last(), Some(job.clone()));
        assert_eq!(rebuilds.start(), job.job, "it is joined");
    }

    #[test]
    fn what_a_failed_worker_made_goes_and_what_another_process_made_stays() {
        let directory = tempfile::tempdir().unwrap();
        let rebuilds = rebuilds(directory.path());
        let manifest = rebuilds.store.ledger().cut().unwrap();
        let blobs = rebuilds.store.world().blobs();
        let made = Arc::new(Mutex::new(Vec::new()));
        let making = Arc::clone(&made);
        let telling = blobs.telling(move |name| making.lock().push(name.to_owned()));
        let build = built(&rebuilds, &manifest, &telling);
        let others = ["runs/ring-late-000007.csv.zst", "archive/2012-03.7-0.tmp"];
        for other in others {
            std::fs::write(directory.path().join(other), "half").unwrap();
        }
        let mut made = made.lock().clone();
        let flushed = manifest.file_names();
        made.extend(flushed.iter().map(|name| (*name).to_owned()));

        rebuilds.remove_unpublished(&made);

        let is_there = |name: &str| directory.path().join(name).exists();
        let runs = build.runs.iter().map(|run| &run.name);
        let files = build.generation.iter().flat_map(|built| &built.files);
        let unpublished: Vec<_> = runs.chain(files.map(|file| &file.name)).collect();
        assert!(unpublished.len() > 1 && unpublished.iter().all(|name| !is_there(name)));
        assert!(others.iter().all(|name| is_there(name)), "of others");
        assert!(flushed.iter().all(|name| is_there(name)), "they count");
    }
}
