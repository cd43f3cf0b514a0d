//! The API over a store, as a server has it that nothing was configured for.

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusBuilder;
use tallyring_api::{Access, AccessLimits, Admin, ApiState};
use tallyring_realtime::Service;

/// The API over a service, open to all and without jobs. Its metrics are nobody's.
pub fn state(service: Arc<Service>) -> ApiState {
    ApiState {
        strands: Arc::new(service.into()),
        of_strands: Arc::default(),
        admin: Arc::new(Admin::without_jobs()),
        settings: Arc::default(),
        nodes: Arc::default(),
        access: Arc::new(Access::open(AccessLimits::default())),
        metrics: PrometheusBuilder::new().build_recorder().handle(),
    }
}
