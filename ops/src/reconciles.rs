//! Reconciles of a server: one at a time, the heavy part in a child process of low priority.

mod again;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tallyring_api::{ReconcileJob, ReconcileOrder};
use tallyring_realtime::catalog::{JobProgress, JobState};
use tallyring_realtime::{
    Error, Reconcile, Reconciled, Store, first_not_final, not_final, priority,
};
use tallyring_records::Day;

use crate::child::{self, worker};
use crate::error::{CommandError, Result};
use crate::incoming::Incoming;
use crate::rebuilds::Rebuilds;

use again::Again;

/// How often a reconcile begins again when its files change before it has opened them.
const ATTEMPTS: usize = 3;

/// Starts reconciles and remembers the newest.
pub(crate) struct Reconciles {
    store: Arc<Store>,
    data: PathBuf,
    /// No rebuild runs beside a reconcile: its files stay, and so does the log.
    rebuilds: Arc<Rebuilds>,
    /// zstd level of final books.
    level: i32,
    last: Mutex<Option<ReconcileJob>>,
    /// Days that are not to become final by themselves again, and the day of that try.
    failed: Mutex<BTreeMap<Day, Day>>,
    again: Mutex<Again>,
}

impl Reconciles {
    /// Reconciles of a store that take turns with its rebuilds.
    pub(crate) fn new(
        store: Arc<Store>,
        rebuilds: Arc<Rebuilds>,
        data: &Path,
        level: i32,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            data: data.to_owned(),
            rebuilds,
            level,
            last: Mutex::new(None),
            failed: Mutex::default(),
            again: Mutex::default(),
        })
    }

    /// Returns the newest job.
    pub(crate) fn last(&self) -> Option<ReconcileJob> {
        self.lock().clone()
    }

    /// Starts a reconcile, or joins one of the same order; returns the number of the job. Fails where another one runs,
    /// or the day cannot be reconciled.
    pub(crate) fn start(self: &Arc<Self>, order: ReconcileOrder) -> Result<u64, Error> {
        let mut last = self.lock();
        let number = last.as_ref().map_or(0, |last| last.job) + 1;
        if let Some(running) = last.as_ref().filter(|job| job.state == JobState::Running) {
            if running.order == order {
                return Ok(running.job);
            }
            return Err(Error::Reconcile(format!(
                "the server reconciles {} now; try again once that has ended",
                running.order.day
            )));
        }
        let reconcile = self.reconcile(order, "");
        reconcile.check(&self.store.world().blobs(), &self.store.manifest())?;
        let started_ms = self.store.world().clock.now_ms();
        let job = ReconcileJob::begin(number, order, started_ms);
        *last = Some(job);
        drop(last);
        let this = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name("reconcile".into())
            .spawn(move || this.run(order));
        if let Err(error) = spawned {
            self.end(Err(CommandError::Failed(error.to_string())));
        }
        Ok(number)
    }

    /// Days that should have been final for a day; none where no day becomes final by itself.
    pub(crate) fn overdue(&self, after_hours: Option<u32>) -> Vec<Day> {
        let Some(after_hours) = after_hours else {
            return Vec::new();
        };
        let now_s = self.store.world().clock.now_ms().div_euclid(1_000);
        let until = now_s - i64::from(after_hours + 24) * 3_600;
        let (blobs, manifest) = (self.store.world().blobs(), self.store.manifest());
        not_final(&blobs, &manifest, until).unwrap_or_default()
    }

    /// Starts the reconcile of the oldest day that ended so many hours ago and is not final. A day that failed is tried
    /// again on the next day.
    pub(crate) fn start_due(self: &Arc<Self>, after_hours: u32) {
        let now_s = self.store.world().clock.now_ms().div_euclid(1_000);
        let is_running = |last: &ReconcileJob| last.state == JobState::Running;
        if self.lock().as_ref().is_some_and(is_running) {
            return;
        }
        let until = now_s - i64::from(after_hours) * 3_600;
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, tried| *tried == Day::of(now_s));
        let (blobs, manifest) = (self.store.world().blobs(), self.store.manifest());
        let due = match first_not_final(&blobs, &manifest, until, |day| failed.contains_key(&day)) {
            Ok(due) => due,
            Err(error) => return tracing::warn!(%error, "cannot look for days that become final"),
        };
        let Some(day) = due else {
            return;
        };
        // Until it has ended well.
        failed.insert(day, Day::of(now_s));
        drop(failed);
        let order = ReconcileOrder {
            day,
            dry_run: false,
        };
        if let Err(error) = self.start(order) {
            tracing::warn!(%day, %error, "the day does not become final");
        }
    }

    fn run(&self, order: ReconcileOrder) {
        priority::run_as_usual();
        tracing::info!(day = %order.day, dry_run = order.dry_run, "reconcile started");
        let result = self.judge_and_publish(order);
        self.end(result);
    }

    fn judge_and_publish(&self, order: ReconcileOrder) -> Result<bool> {
        let _files_stay = self.rebuilds.hold_files();
        let incoming = Incoming::begin(&self.data)?;
        let reconciled = self.judge(order, &incoming)?;
        if let Some(job) = &mut *self.lock() {
            job.reconciled = Some(reconciled.clone());
        }
        publish(&self.store, reconciled, order.dry_run)
    }

    fn judge(&self, order: ReconcileOrder, incoming: &Incoming) -> Result<Reconciled> {
        let mut attempt = 1;
        loop {
            self.store.ledger().flush()?;
            let manifest = self.store.manifest();
            let reconcile = self.reconcile(order, incoming.load());
            let mut worker = self.worker(&reconcile, manifest.number);
            let heard = |progress| self.advance(progress);
            let judged = child::follow(&mut worker, &heard, &mut Vec::new());
            if judged.is_ok() || attempt == ATTEMPTS || self.store.manifest() == manifest {
                return judged;
            }
            attempt += 1;
        }
    }

    fn worker(&self, reconcile: &Reconcile<'_>, manifest: u64) -> Command {
        let mut worker = worker("reconcile-worker", &self.data);
        worker.args(["--manifest", &manifest.to_string()]);
        worker.args([
            "--day",
            &reconcile.day.to_string(),
            "--load",
            reconcile.load,
        ]);
        worker.args(["--shards", &reconcile.shards.to_string()]);
        worker.args(["--level", &reconcile.level.to_string()]);
        worker.args(["--memory", &reconcile.memory_bytes.to_string()]);
        worker
    }

    fn reconcile<'l>(&self, order: ReconcileOrder, load: &'l str) -> Reconcile<'l> {
        let options = self.store.options();
        Reconcile {
            day: order.day,
            load,
            shards: options.shards,
            level: self.level,
            memory_bytes: options.delta_bytes_max,
        }
    }

    fn advance(&self, progress: JobProgress) {
        if let Some(job) = &mut *self.lock() {
            job.progress = Some(progress);
        }
    }

    fn end(&self, result: Result<bool>) {
        let mut last = self.lock();
        let Some(job) = last.as_mut() else {
            return;
        };
        job.ended_ms = Some(self.store.world().clock.now_ms());
        job.progress = None;
        let day = job.order.day;
        match result {
            Ok(is_published) => {
                job.state = JobState::Done;
                job.is_published = is_published;
                tracing::info!(%day, is_published, "reconcile done");
            }
            Err(error) => {
                job.state = JobState::Failed;
                tracing::error!(%day, %error, "reconcile failed; the day is as it was");
                job.error = Some(error.to_string());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ReconcileJob>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes what a reconcile found, unless it only tells; true when there is a new version. Fails where something is
/// unexplained.
pub(crate) fn publish(store: &Store, reconciled: Reconciled, dry_run: bool) -> Result<bool> {
    if !reconciled.unexplained.is_none() {
        return Err(CommandError::Failed(unexplained(&reconciled)));
    }
    if dry_run || !reconciled.is_new {
        return Ok(false);
    }
    store.ledger().publish_final(&reconciled.into_final())?;
    Ok(true)
}

/// The error about counts that nothing explains.
fn unexplained(reconciled: &Reconciled) -> String {
    let found = &reconciled.unexplained;
    format!(
        "{} does not become final: {} counters differ by {} from what the log explains, such as {}; run `tallyring verify`, \
         and then `tallyring recount`, which makes the files again",
        reconciled.day,
        found.counters,
        found.n,
        found.first.join(", ")
    )
}
