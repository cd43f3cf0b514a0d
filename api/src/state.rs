//! The state that handlers share.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::slice;
use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tallyring_realtime::catalog::{Job, JobProgress};
use tallyring_realtime::{
    Batch, Counted, Error, Part, Refusal, Store, Stores, Strands, Submission,
};
use tallyring_records::{Day, Offset, Position, Schema};

use crate::access::Access;
use crate::actions::ActionRules;
use crate::after::{self, QUESTION_WAIT};
use crate::alerts::AlertsState;
use crate::nodes::Nodes;
use crate::problem::Result;
use crate::reconcile::{ReconcileJob, ReconcileOrder};
use crate::write::consume::Consuming;
use crate::write::rules::WriteRules;

/// The running service, and what the binary hands in beside it.
#[derive(Clone)]
pub struct ApiState {
    /// The strands of the store, each with its threads.
    pub strands: Arc<Strands>,
    /// Jobs that the binary runs.
    pub admin: Arc<Admin>,
    /// Keys and limits.
    pub access: Arc<Access>,
    /// How requests are read, besides what the schema declares.
    pub settings: Arc<Settings>,
    /// The other nodes of the store.
    pub nodes: Arc<Nodes>,
    /// Renders the metrics.
    pub metrics: PrometheusHandle,
    /// The state of each strand alone, in their order; none where the store is not divided.
    pub of_strands: Arc<[ApiState]>,
}

/// How requests are read. A request takes the settings once; others may be in force before it ends.
pub struct Settings(ArcSwap<(Arc<WriteRules>, Arc<ActionRules>)>);

impl Default for Settings {
    fn default() -> Self {
        Self::new(WriteRules::default(), ActionRules::default())
    }
}

impl Settings {
    /// Begins with these.
    pub fn new(writes: WriteRules, actions: ActionRules) -> Self {
        Self(ArcSwap::from_pointee((Arc::new(writes), Arc::new(actions))))
    }

    /// Puts others in force, all of them at once.
    pub fn replace(&self, writes: WriteRules, actions: ActionRules) {
        self.0
            .store(Arc::new((Arc::new(writes), Arc::new(actions))));
    }

    /// How writes are read.
    pub fn writes(&self) -> Arc<WriteRules> {
        Arc::clone(&self.0.load().0)
    }

    /// Caps, and how long actions are kept.
    pub fn actions(&self) -> Arc<ActionRules> {
        Arc::clone(&self.0.load().1)
    }
}

/// The configuration file of a server.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigState {
    /// The file.
    pub path: String,
    /// When the file was taken, Unix seconds.
    #[serde(skip)]
    pub taken_at: i64,
    /// Why the file as it is now is not in force; none where it is.
    pub failure: Option<String>,
    /// Settings of the file that are in force after a restart only, such as `listen` or `memory.deltas_mib`.
    pub needs_restart: Vec<String>,
}

/// The changes that a reload of the configuration file put in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Settings that are in force from here on, such as `filters.bots`.
    pub changed: Vec<String>,
    /// Settings of the file that are in force after a restart only.
    pub needs_restart: Vec<String>,
}

/// The backups that a server makes while it writes the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupState {
    /// Since when one runs, or waits to, Unix milliseconds; none while none does.
    pub running_since_ms: Option<i64>,
    /// Progress of the one that runs.
    pub progress: Option<JobProgress>,
    /// How the newest one ended; none where none is known to have.
    pub ended: Option<BackupOutcome>,
}

/// Outcome of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupOutcome {
    /// Unix milliseconds of the injected clock; where the server found the backup, when its manifest was written.
    pub ended_ms: i64,
    /// Number of the generation that the backup has; none when the backup failed.
    pub generation: Option<u64>,
    /// Files that were written.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Why the backup failed; the older backup is then kept.
    pub error: Option<String>,
}

/// How the API starts jobs, which it cannot run itself.
pub struct Admin {
    /// Starts a rebuild, or joins the one that runs; its job number.
    pub rebuild: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The newest job.
    pub last_rebuild: Box<dyn Fn() -> Option<Job> + Send + Sync>,
    /// The backups; none where none is configured, and where another node makes them.
    pub last_backup: Box<dyn Fn() -> Option<BackupState> + Send + Sync>,
    /// Starts a reconcile, or joins that of the same order; its job number. Fails where the day cannot be reconciled.
    pub reconcile: Box<dyn Fn(ReconcileOrder) -> Result<u64, Error> + Send + Sync>,
    /// The newest reconcile.
    pub last_reconcile: Box<dyn Fn() -> Option<ReconcileJob> + Send + Sync>,
    /// Days that should be final by now, oldest first.
    pub overdue: Box<dyn Fn() -> Vec<Overdue> + Send + Sync>,
    /// Days that have left the log without being final, oldest first: they never become final.
    pub closed_without_final: Box<dyn Fn() -> Vec<Closed> + Send + Sync>,
    /// Day and version of awaited final versions that could not be made again, and why.
    pub failed_again: Box<dyn Fn() -> FailedAgain + Send + Sync>,
    /// Why days did not become final when they were reconciled last, for the days of which that is known.
    pub failures: Box<dyn Fn() -> BTreeMap<Day, String> + Send + Sync>,
    /// How many hours after its end a day becomes final; none where no day does by itself.
    pub final_after_hours: Option<u32>,
    /// Reads the configuration file again. Fails where it cannot be used, with a sentence; nothing changes then.
    pub reload: Box<dyn Fn() -> Result<Reloaded, String> + Send + Sync>,
    /// The configuration file; none where the server was started without one.
    pub config: Box<dyn Fn() -> Option<ConfigState> + Send + Sync>,
    /// Where rebuilds are copied to, for people; none where no backup is configured.
    pub backup_path: Option<String>,
    /// Topics that this server consumes.
    pub consuming: Arc<Consuming>,
    /// The alerts; none where none is declared, and where another node judges.
    pub alerts: Box<dyn Fn() -> Option<AlertsState> + Send + Sync>,
}

impl Admin {
    /// For a store that runs no jobs.
    pub fn without_jobs() -> Self {
        Self {
            rebuild: Box::new(|| 0),
            last_rebuild: Box::new(|| None),
            last_backup: Box::new(|| None),
            reconcile: Box::new(|_| Ok(0)),
            last_reconcile: Box::new(|| None),
            overdue: Box::new(Vec::new),
            closed_without_final: Box::new(Vec::new),
            failed_again: Box::new(FailedAgain::new),
            failures: Box::new(BTreeMap::new),
            final_after_hours: None,
            reload: Box::new(|| Ok(Reloaded::default())),
            config: Box::new(|| None),
            backup_path: None,
            consuming: Arc::default(),
            alerts: Box::new(|| None),
        }
    }
}

/// Lets a batch, which was read by the declarations of the first strand, go by those of its own: strands take another
/// one at moments of their own. A batch that names what this strand does not declare stays as it is, and is refused.
fn declare_as(store: &Store, batch: &mut Batch) {
    let Some(declared) = &batch.declared else {
        return;
    };
    let own = store.schema();
    let lacks_evidence = own.judges_evidence() && !declared.judges_evidence();
    let mut increments = batch.increments.iter();
    if !lacks_evidence && increments.all(|increment| increment.is_declared(&own)) {
        batch.declared = Some(own);
    }
}

/// By day and version, why an awaited final version could not be made again.
pub(crate) type FailedAgain = BTreeMap<(Day, u32), String>;

/// A day that should be final by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// The day.
    pub day: Day,
    /// Why it did not become final by itself today; none where nothing tried since the server started.
    pub reason: Option<String>,
}

/// A day that left the log without being final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// The day.
    pub day: Day,
    /// Whether it left the log lately.
    pub is_new: bool,
    /// Why it did not become final, where that is known.
    pub reason: Option<String>,
}

/// The newest jobs of a server.
pub(crate) struct Jobs {
    pub rebuild: Option<Job>,
    pub backup: Option<BackupState>,
    pub reconcile: Option<ReconcileJob>,
    /// Days that should be final by now, oldest first.
    pub overdue: Vec<Overdue>,
    /// Days that left the log without being final, oldest first. None where no day becomes final by itself: days leave
    /// the log as they are then.
    pub closed: Vec<Closed>,
    pub failed_again: FailedAgain,
    /// The configuration file; none where the server was started without one.
    pub config: Option<ConfigState>,
    /// Why topics are not consumed, a sentence each.
    pub unconsumed: Vec<String>,
    pub alerts: Option<AlertsState>,
}

impl Admin {
    /// The newest jobs.
    pub(crate) fn jobs(&self) -> Jobs {
        Jobs {
            rebuild: (self.last_rebuild)(),
            backup: (self.last_backup)(),
            reconcile: (self.last_reconcile)(),
            overdue: (self.overdue)(),
            closed: match self.final_after_hours {
                Some(_) => (self.closed_without_final)(),
                None => Vec::new(),
            },
            failed_again: (self.failed_again)(),
            config: (self.config)(),
            unconsumed: self.consuming.faults(),
            alerts: (self.alerts)(),
        }
    }
}

impl ApiState {
    /// The state of a divided store, from those of its strands in their order: each has its strand alone, and the jobs
    /// of that strand. They share all else. One state stays as it is.
    ///
    /// # Panics
    /// Without a strand.
    pub fn of_strands(states: Vec<Self>) -> Self {
        let whole = states.first().expect("BUG: a store has a strand").clone();
        if states.len() == 1 {
            return whole;
        }
        let services = states
            .iter()
            .flat_map(|state| state.strands.services().to_vec());
        let strands = Arc::new(Strands::new(services.collect()));
        let count = states.len();
        let alone = states.into_iter().enumerate().map(|(strand, state)| Self {
            nodes: Arc::new(whole.nodes.of_strand(strand, count)),
            ..state
        });
        Self {
            strands,
            of_strands: alone.collect(),
            ..whole
        }
    }

    /// The store and the jobs of each strand.
    pub(crate) fn each(&self) -> Vec<(Arc<Store>, Arc<Admin>)> {
        let each = self.alone_each().iter();
        each.map(|state| (Arc::clone(state.store()), Arc::clone(&state.admin)))
            .collect()
    }

    /// How writes are read now.
    pub(crate) fn writes(&self) -> Arc<WriteRules> {
        self.settings.writes()
    }

    /// The caps of now.
    pub(crate) fn actions(&self) -> Arc<ActionRules> {
        self.settings.actions()
    }

    /// The store of the first strand, which has what is not divided.
    pub(crate) fn store(&self) -> &Arc<Store> {
        self.stores().first()
    }

    /// The stores of all strands.
    pub(crate) fn stores(&self) -> &Arc<Stores> {
        self.strands.stores()
    }

    /// Has a batch counted, by this node or by those that write the logs of its strands; resolves when it is durable
    /// and visible here, or refused.
    pub(crate) async fn count(&self, batch: Batch) -> Result<Counted, Refusal> {
        self.submit(&mut Submission::default(), batch).await
    }

    /// As [`ApiState::count`], for a batch that may be submitted again without what is refused.
    pub(crate) async fn submit(
        &self,
        submission: &mut Submission,
        batch: Batch,
    ) -> Result<Counted, Refusal> {
        if self.of_strands.is_empty() {
            return self.count_alone(0, batch).await;
        }
        let divided = (batch, self.strands.home());
        if divided.0.confirming.is_empty() {
            // A single store has no use for so large a future.
            return Box::pin(self.submit_divided(submission, divided)).await;
        }
        // Strands are told of reservations even where the client goes away.
        let (state, mut taken) = (self.clone(), std::mem::take(submission));
        let submitting = tokio::spawn(async move {
            let outcome = state.submit_divided(&mut taken, divided).await;
            (taken, outcome)
        });
        let (taken, outcome) = submitting.await.map_err(|stopped| {
            if stopped.is_panic() {
                resume_unwind(stopped.into_panic());
            }
            Refusal::Unavailable("the server is stopping; retry with the same ids".into())
        })?;
        *submission = taken;
        outcome
    }

    async fn submit_divided(
        &self,
        submission: &mut Submission,
        divided: (Batch, usize),
    ) -> Result<Counted, Refusal> {
        let commit = |strand, part| self.count_alone(strand, part);
        let counted_in = |strand| self.counted_in(strand);
        let way = (commit, counted_in);
        submission.submit(self.stores(), divided, way).await
    }

    /// As [`ApiState::count`], for a batch that belongs to this strand.
    pub(crate) async fn count_alone(
        &self,
        strand: usize,
        mut batch: Batch,
    ) -> Result<Counted, Refusal> {
        let (nodes, service) = (&self.alone(strand).nodes, &self.strands.services()[strand]);
        if strand > 0 {
            declare_as(service.store(), &mut batch);
        }
        match service.store().part() {
            Part::Follows { .. } => Box::pin(nodes.hand_over(service.store(), batch)).await,
            Part::Writes | Part::Reads => service.count(batch).await,
        }
    }

    /// How far a strand is counted, on this node or on the one that writes it, with every batch of this node that was
    /// answered.
    pub(crate) fn counted_in(&self, strand: usize) -> Offset {
        let state = self.alone(strand);
        state.store().live().applied().max(state.nodes.told())
    }

    /// Fails with 503 where a node follows and has read something by declarations that the node that writes has others
    /// for by now. An item that is wrong by the former may be right by the latter, so nobody is to be told that it is
    /// wrong. In a store of several strands the first one is looked at, because requests are read by its declarations.
    pub(crate) async fn check_current(&self, schema: &Schema) -> Result<()> {
        let store = self.store();
        if !matches!(store.part(), Part::Follows { .. }) {
            return Ok(());
        }
        // The outcome of nothing tells how far the node that writes has counted.
        self.count_alone(0, Batch::default()).await?;
        let told = self.alone(0).nodes.told();
        after::counted_in(store, told, (QUESTION_WAIT, QUESTION_WAIT)).await?;
        match store.schemas().last() {
            Some(in_force) if in_force.schema != *schema => Err(Refusal::Redeclared.into()),
            _ => Ok(()),
        }
    }

    /// The latest position up to which the nodes that write had counted when they told of batches of this one.
    pub(crate) fn told(&self) -> Position {
        let states = self.alone_each().iter();
        states.map(|state| state.nodes.told()).collect()
    }

    /// Why TLS to nodes that write failed when this one asked them last, a sentence each.
    pub(crate) fn untrusted(&self) -> BTreeSet<String> {
        let states = self.alone_each().iter();
        let untrusted = |state: &Self| state.nodes.untrusted(state.store());
        states.filter_map(untrusted).collect()
    }

    /// The state of one strand alone.
    fn alone(&self, strand: usize) -> &Self {
        &self.alone_each()[strand]
    }

    /// The state of each strand alone.
    fn alone_each(&self) -> &[Self] {
        match self.of_strands.is_empty() {
            true => slice::from_ref(self),
            false => &self.of_strands,
        }
    }

    /// Unix seconds of the store's clock.
    pub(crate) fn now(&self) -> i64 {
        self.store().world().clock.now_ms().div_euclid(1_000)
    }
}
