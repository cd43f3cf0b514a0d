//! The state that handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tallyring_realtime::catalog::Job;
use tallyring_realtime::{Batch, Counted, Error, Part, Refusal, Service, Store};
use tallyring_records::{Day, Schema};

use crate::access::Access;
use crate::actions::ActionRules;
use crate::after::{self, QUESTION_WAIT};
use crate::nodes::Nodes;
use crate::problem::Result;
use crate::reconcile::{ReconcileJob, ReconcileOrder};
use crate::write::consume::Consuming;
use crate::write::rules::WriteRules;

/// The running service, and what the binary hands in beside it.
#[derive(Clone)]
pub struct ApiState {
    /// The store and its threads.
    pub service: Arc<Service>,
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

/// How the API starts jobs, which it cannot run itself.
pub struct Admin {
    /// Starts a rebuild, or joins the one that runs; its job number.
    pub rebuild: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The newest job.
    pub last_rebuild: Box<dyn Fn() -> Option<Job> + Send + Sync>,
    /// Starts a reconcile, or joins that of the same order; its job number. Fails where the day cannot be reconciled.
    pub reconcile: Box<dyn Fn(ReconcileOrder) -> Result<u64, Error> + Send + Sync>,
    /// The newest reconcile.
    pub last_reconcile: Box<dyn Fn() -> Option<ReconcileJob> + Send + Sync>,
    /// Days that should be final by now, oldest first.
    pub overdue: Box<dyn Fn() -> Vec<Overdue> + Send + Sync>,
    /// Days that have left the log without being final, oldest first: they never become final.
    pub closed_without_final: Box<dyn Fn() -> Vec<Day> + Send + Sync>,
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
}

impl Admin {
    /// For a store that runs no jobs.
    pub fn without_jobs() -> Self {
        Self {
            rebuild: Box::new(|| 0),
            last_rebuild: Box::new(|| None),
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
        }
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

/// The newest jobs of a server.
pub(crate) struct Jobs {
    pub rebuild: Option<Job>,
    pub reconcile: Option<ReconcileJob>,
    /// Days that should be final by now, oldest first.
    pub overdue: Vec<Overdue>,
    pub failed_again: FailedAgain,
    /// The configuration file; none where the server was started without one.
    pub config: Option<ConfigState>,
    /// Why topics are not consumed, a sentence each.
    pub unconsumed: Vec<String>,
}

impl Admin {
    /// The newest jobs.
    pub(crate) fn jobs(&self) -> Jobs {
        Jobs {
            rebuild: (self.last_rebuild)(),
            reconcile: (self.last_reconcile)(),
            overdue: (self.overdue)(),
            failed_again: (self.failed_again)(),
            config: (self.config)(),
            unconsumed: self.consuming.faults(),
        }
    }
}

impl ApiState {
    /// How writes are read now.
    pub(crate) fn writes(&self) -> Arc<WriteRules> {
        self.settings.writes()
    }

    /// The caps of now.
    pub(crate) fn actions(&self) -> Arc<ActionRules> {
        self.settings.actions()
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.service.store()
    }

    /// Has a batch counted, by this node or by the one that writes the log; resolves when it is durable and visible
    /// here, or refused.
    pub(crate) async fn count(&self, batch: Batch) -> Result<Counted, Refusal> {
        match self.store().part() {
            Part::Follows { .. } => self.nodes.hand_over(self.store(), batch).await,
            Part::Writes | Part::Reads => self.service.count(batch).await,
        }
    }

    /// Fails with 503 where a node follows and has read something by declarations that the node that writes has others
    /// for by now. An item that is wrong by the former may be right by the latter, so nobody is to be told that.
    pub(crate) async fn check_current(&self, schema: &Schema) -> Result<()> {
        if !matches!(self.store().part(), Part::Follows { .. }) {
            return Ok(());
        }
        // The outcome of nothing tells how far the node that writes has counted.
        self.count(Batch::default()).await?;
        after::counted(self.store(), self.nodes.told(), QUESTION_WAIT).await?;
        match self.store().schemas().last() {
            Some(in_force) if in_force.schema != *schema => Err(Refusal::Redeclared.into()),
            _ => Ok(()),
        }
    }

    /// Unix seconds of the store's clock.
    pub(crate) fn now(&self) -> i64 {
        self.store().world().clock.now_ms().div_euclid(1_000)
    }
}
