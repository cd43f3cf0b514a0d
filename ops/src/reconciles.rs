//! Reconciles of a server: one at a time, the heavy part in a child process of low priority.

mod again;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tallyring_api::{Closed, Overdue, ReconcileJob, ReconcileOrder};
use tallyring_archive::Manifest;
use tallyring_realtime::catalog::{JobProgress, JobState};
use tallyring_realtime::{
    Error, Options, Reconcile, Reconciled, Store, closed_without_final, first_not_final, not_final,
    priority, told_from, too_much_filtered, waiting_deletes,
};
use tallyring_records::Day;

use crate::child;
use crate::error::{CommandError, Result};
use crate::incoming::Incoming;
use crate::rebuilds::Rebuilds;
use crate::worker::{ReconcileWork, Work};

use again::Again;

/// For how many days the failure of a day is told that is not tried again: as long as its loss is.
const FAILURES_DAYS: u32 = 15;
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
    /// The last tries, by the UTC day that was to become final: none of today begins by itself again.
    tried: Mutex<BTreeMap<Day, Try>>,
    again: Mutex<Again>,
    obeying: Mutex<Obeying>,
}

/// Final days that are judged again because of deletes, once a day: at the hour at which days become final.
#[derive(Default)]
struct Obeying {
    /// That hour, Unix seconds.
    since: i64,
    /// The days that are left of those with deletes from before it.
    days: BTreeSet<Day>,
}

/// The last try to make a day final.
struct Try {
    /// When it began.
    on: Day,
    /// Why it failed; none where it did not, or not yet.
    error: Option<String>,
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
            tried: Mutex::default(),
            again: Mutex::default(),
            obeying: Mutex::default(),
        })
    }

    /// Returns the newest job.
    pub(crate) fn last(&self) -> Option<ReconcileJob> {
        self.last.lock().clone()
    }

    /// Starts a reconcile, or joins one of the same order; returns the number of the job. Fails where another one runs,
    /// the order cannot be carried out, or its only day cannot be reconciled.
    pub(crate) fn start(self: &Arc<Self>, order: ReconcileOrder) -> Result<u64, Error> {
        let (blobs, manifest) = (self.store.world().blobs(), self.store.manifest());
        let days = order.days;
        // Rules are compiled, which may take long, so the newest job can be asked for meanwhile.
        self.ordered(&order, (days.first(), ""))
            .check_order(&blobs, &manifest)?;
        let mut last = self.last.lock();
        if let Some(running) = last.as_ref().filter(|job| job.state == JobState::Running) {
            if running.order.is_like(&order) {
                return Ok(running.job);
            }
            return Err(Error::Reconcile(format!(
                "the server reconciles {} now; try again once that has ended",
                running.order.days
            )));
        }
        if let Some(day) = days.single() {
            // Where the clock was set back, no manifest may say so yet.
            if day >= self.store.status().today {
                return Err(Error::NotClosed { day });
            }
            let reconcile = self.ordered(&order, (day, ""));
            reconcile.check(&blobs, &manifest)?;
            check_may_have_events(&self.store, day)?;
        }
        let started_ms = self.store.world().clock.now_ms();
        let begun = ReconcileJob::begin(order.clone(), last.as_ref(), started_ms);
        let number = begun.job;
        *last = Some(begun);
        drop(last);
        let this = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name("reconcile".into())
            .spawn(move || this.rebuilds.span().in_scope(|| this.run(&order)));
        if let Err(error) = spawned {
            let failed = CommandError::Failed(error.to_string());
            self.note(days.first(), (None, Err(failed)));
            self.end();
        }
        Ok(number)
    }

    /// Days that should have been final for a day; none where no day becomes final by itself.
    pub(crate) fn overdue(&self) -> Vec<Overdue> {
        let Some(after_hours) = self.store.options().final_after_hours else {
            return Vec::new();
        };
        let now_s = self.store.world().clock.now_ms().div_euclid(1_000);
        let until = now_s - i64::from(after_hours + 24) * 3_600;
        let (blobs, manifest) = (self.store.world().blobs(), self.store.manifest());
        let days = not_final(&blobs, &manifest, until).unwrap_or_default();
        let mut failures = self.failures();
        let overdue = days.into_iter().map(|day| Overdue {
            day,
            reason: failures.remove(&day),
        });
        overdue.collect()
    }

    /// Days that have left the log without being final.
    pub(crate) fn closed_without_final(&self) -> Vec<Closed> {
        let now_s = self.store.world().clock.now_ms().div_euclid(1_000);
        let (blobs, manifest) = (self.store.world().blobs(), self.store.manifest());
        let days = closed_without_final(&blobs, &manifest, now_s).unwrap_or_default();
        let told_from = told_from(&blobs, &manifest, self.store.options(), now_s);
        let told_from = told_from.unwrap_or_default();
        let mut failures = self.failures();
        let closed = days.into_iter().map(|day| Closed {
            day,
            is_new: told_from.is_some_and(|from| day >= from),
            reason: failures.remove(&day),
        });
        closed.collect()
    }

    /// Starts the reconcile of the oldest day that ended so many hours ago and is not final. Where there is none, it is
    /// that of a final day of which a delete waits. A day that failed is tried again on the next day.
    pub(crate) fn start_due(self: &Arc<Self>, after_hours: u32) {
        let now_s = self.store.world().clock.now_ms().div_euclid(1_000);
        let is_running = |last: &ReconcileJob| last.state == JobState::Running;
        if self.last.lock().as_ref().is_some_and(is_running) {
            return;
        }
        let until = now_s - i64::from(after_hours) * 3_600;
        let (blobs, manifest) = (self.store.world().blobs(), self.store.manifest());
        let mut tried = self.tried.lock();
        let today = Day::of(now_s);
        tried.retain(|day, last| {
            let is_final = !manifest.archive.finals_of(*day).is_empty();
            let kept = if is_final { 1 } else { FAILURES_DAYS };
            today.number().saturating_sub(last.on.number()) < kept
        });
        let is_tried = |day: Day| tried.get(&day).is_some_and(|last| last.on == today);
        let due = match first_not_final(&blobs, &manifest, until, is_tried) {
            Ok(due) => due,
            Err(error) => return tracing::warn!(%error, "cannot look for days that become final"),
        };
        drop(tried);
        let Some(day) = due.or_else(|| self.next_to_obey(now_s, after_hours)) else {
            return;
        };
        self.note_try(day, None);
        // Nobody insists at night.
        if let Err(error) = self.start(ReconcileOrder::of(day)) {
            tracing::warn!(%day, %error, "the day is not reconciled");
            self.note_try(day, Some(error.to_string()));
        }
    }

    /// Takes the next final day of which a delete waits that came before days became final the last time.
    fn next_to_obey(&self, now_s: i64, after_hours: u32) -> Option<Day> {
        let after = i64::from(after_hours) * 3_600;
        let since = Day::of(now_s - after).start() + after;
        let mut obeying = self.obeying.lock();
        if obeying.since != since {
            let days = match self.days_to_obey(since * 1_000) {
                Ok(days) => days,
                Err(error) => {
                    tracing::warn!(%error, "cannot look for deletes that wait");
                    BTreeSet::new()
                }
            };
            *obeying = Obeying { since, days };
        }
        obeying.days.pop_first()
    }

    /// Final days of which a delete waits that came before this time, Unix milliseconds.
    fn days_to_obey(&self, before_ms: i64) -> Result<BTreeSet<Day>, Error> {
        let waiting = waiting_deletes(&self.store)?;
        let orders = self.store.intake().deletes().into_iter();
        let orders = orders.filter(|entry| entry.arrived_ms < before_ms);
        let days = orders.filter_map(|entry| waiting.get(&entry.at.sequence));
        let manifest = self.store.manifest();
        let is_final = |day: &Day| !manifest.archive.finals_of(*day).is_empty();
        Ok(days.flatten().copied().filter(is_final).collect())
    }

    /// Why the reconcile of a day failed, for each day whose last one did.
    pub(crate) fn failures(&self) -> BTreeMap<Day, String> {
        let tried = self.tried.lock();
        let failed = tried.iter();
        failed
            .filter_map(|(day, last)| Some((*day, last.error.clone()?)))
            .collect()
    }

    fn note_try(&self, day: Day, error: Option<String>) {
        let now_s = self.store.world().clock.now_ms().div_euclid(1_000);
        let on = Day::of(now_s);
        self.tried.lock().insert(day, Try { on, error });
    }

    fn run(&self, order: &ReconcileOrder) {
        priority::run_as_usual();
        tracing::info!(days = %order.days, only_tells = order.only_tells(), "reconcile started");
        for day in order.days.iter() {
            let outcome = self.judge_and_publish(order, day);
            if !order.only_tells() {
                let error = outcome.1.as_ref().err();
                self.note_try(day, error.map(ToString::to_string));
            }
            self.note(day, outcome);
        }
        self.end();
    }

    /// The numbers of a day, and whether a version of it is published.
    fn judge_and_publish(
        &self,
        order: &ReconcileOrder,
        day: Day,
    ) -> (Option<Reconciled>, Result<bool>) {
        let _files_stay = self.rebuilds.hold_files();
        let judged = Incoming::begin(&self.data).and_then(|incoming| {
            // Dropping it removes the files of the result.
            Ok((self.judge(order, day, &incoming)?, incoming))
        });
        match judged {
            Ok((reconciled, _incoming)) => {
                let found = reconciled.clone();
                (Some(found), publish(&self.store, reconciled, order))
            }
            Err(error) => (None, Err(error)),
        }
    }

    fn judge(&self, order: &ReconcileOrder, day: Day, incoming: &Incoming) -> Result<Reconciled> {
        let reconcile = self.ordered(order, (day, incoming.load()));
        self.attempt(&|progress| self.advance(progress), |manifest| {
            reconcile.check(&self.store.world().blobs(), manifest)?;
            Ok(work(&reconcile, (manifest.number, None)))
        })
    }

    /// Follows a worker with the work that `begin` makes of the newest manifest, and another one where the manifest has
    /// changed meanwhile.
    fn attempt(
        &self,
        heard: &(dyn Fn(JobProgress) + Sync),
        begin: impl Fn(&Manifest) -> Result<Work>,
    ) -> Result<Reconciled> {
        let mut attempt = 1;
        loop {
            let manifest = self.store.ledger().begin_reconcile()?;
            let work = begin(&manifest)?;
            let judged = child::follow(&self.data, &work, heard, &mut Vec::new());
            if judged.is_ok() || attempt == ATTEMPTS || self.store.manifest() == manifest {
                return judged;
            }
            attempt += 1;
        }
    }

    /// One day of an order.
    fn ordered<'l>(&self, order: &'l ReconcileOrder, of: (Day, &'l str)) -> Reconcile<'l> {
        reconcile_of(order, of, self.store.options(), self.level)
    }

    fn advance(&self, progress: JobProgress) {
        if let Some(job) = &mut *self.last.lock() {
            job.progress = Some(progress);
        }
    }

    fn note(&self, day: Day, (found, published): (Option<Reconciled>, Result<bool>)) {
        match &published {
            Ok(is_published) => tracing::info!(%day, is_published, "reconcile done"),
            Err(error) => tracing::error!(%day, %error, "reconcile failed; the day is as it was"),
        }
        if let Some(job) = &mut *self.last.lock() {
            job.note(day, found, published.map_err(|error| error.to_string()));
        }
    }

    fn end(&self) {
        if let Some(job) = &mut *self.last.lock() {
            job.end(self.store.world().clock.now_ms());
        }
    }
}

/// Fails for a day before the store began of which nobody sent an event. Memory may count one that no manifest tells
/// of.
fn check_may_have_events(store: &Store, day: Day) -> Result<(), Error> {
    let begun = store.manifest().intake.begun;
    match begun.filter(|_| store.view().states(&[], 0, None).is_before_store(day)) {
        None => Ok(()),
        Some(begun) => Err(Error::Reconcile(format!(
            "the store began on {begun}, and has no event of {day}"
        ))),
    }
}

/// The reconcile of one day of an order; `level` is the zstd level of its books.
pub(crate) fn reconcile_of<'l>(
    order: &'l ReconcileOrder,
    (day, load): (Day, &'l str),
    options: &Options,
    level: i32,
) -> Reconcile<'l> {
    Reconcile {
        day,
        load,
        rules: order.rules.as_ref(),
        by: order.by.as_deref(),
        shards: options.shards,
        level,
        memory_bytes: options.delta_bytes_max,
    }
}

/// The work of a child that reconciles by a manifest; `version` is the awaited version that is made again.
fn work(reconcile: &Reconcile<'_>, (manifest, version): (u64, Option<u32>)) -> Work {
    Work::Reconcile(ReconcileWork {
        manifest,
        day: reconcile.day,
        load: reconcile.load.to_owned(),
        rules: reconcile.rules.cloned(),
        by: reconcile.by.map(str::to_owned),
        shards: reconcile.shards,
        level: reconcile.level,
        memory_bytes: reconcile.memory_bytes,
        version,
    })
}

/// Publishes what a reconcile found, unless the order only tells; true when there is a new version. Fails where
/// something is unexplained, and where rules newly filter too much and the order does not insist.
pub(crate) fn publish(
    store: &Store,
    reconciled: Reconciled,
    order: &ReconcileOrder,
) -> Result<bool> {
    if !reconciled.unexplained.is_none() {
        return Err(CommandError::Failed(unexplained(&reconciled)));
    }
    if order.only_tells() || !reconciled.is_new {
        return Ok(false);
    }
    let refused = too_much_filtered(&reconciled.types);
    if let Some(why) = refused.as_ref().filter(|_| !order.force) {
        return Err(CommandError::Failed(format!(
            "{why}; nothing was published"
        )));
    }
    let mut closed = reconciled.into_final();
    closed.entry.forced = refused.is_some();
    closed.entry.actor = order.actor.clone();
    store.ledger().publish_final(&closed)?;
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
