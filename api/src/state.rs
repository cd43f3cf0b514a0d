//! The state that handlers share.

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use tallyring_realtime::catalog::Job;
use tallyring_realtime::{Service, Store};

use crate::access::Access;
use crate::actions::ActionRules;
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
    /// How writes are read.
    pub writes: Arc<WriteRules>,
    /// Caps, and how long actions are kept.
    pub actions: Arc<ActionRules>,
    /// Renders the metrics.
    pub metrics: PrometheusHandle,
}

/// How the API starts jobs, which it cannot run itself.
pub struct Admin {
    /// Starts a rebuild, or joins the one that runs; its job number.
    pub rebuild: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The newest job.
    pub last_rebuild: Box<dyn Fn() -> Option<Job> + Send + Sync>,
    /// Where rebuilds are copied to, for people; none where no backup is configured.
    pub backup_path: Option<String>,
}

impl ApiState {
    pub(crate) fn store(&self) -> &Arc<Store> {
        self.service.store()
    }

    /// Unix seconds of the store's clock.
    pub(crate) fn now(&self) -> i64 {
        self.store().world().clock.now_ms().div_euclid(1_000)
    }
}
