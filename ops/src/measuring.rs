//! The recorder of the metrics of a server.

use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tallyring_api::describe_metrics;

use crate::error::{Result, doing};

/// How often measurements are folded into buckets.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// Begins to measure. Fails when this process measures already.
pub(crate) fn install_metrics() -> Result<PrometheusHandle> {
    let metrics = PrometheusBuilder::new()
        .set_buckets(&[
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
        ])
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(doing("start the metrics"))?;
    describe_metrics();
    Ok(metrics)
}

/// Folds measurements into buckets: a server that nobody asks for metrics would keep every single measurement.
pub(crate) async fn keep_up_metrics(metrics: PrometheusHandle) {
    let mut due = tokio::time::interval(METRICS_UPKEEP);
    loop {
        due.tick().await;
        metrics.run_upkeep();
    }
}
