//! Numbers of a benchmark: medians with their spread, and percentiles of latencies.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Latencies from a microsecond to ten minutes, to three digits.
pub struct Latencies(Histogram<u64>);

const MICROSECONDS_MAX: u64 = 600_000_000;

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MICROSECONDS_MAX, 3);
        Self(histogram.expect("BUG: the bounds are valid"))
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        let microseconds = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0
            .saturating_record(microseconds.clamp(1, MICROSECONDS_MAX));
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("BUG: both have the same bounds");
    }

    /// Median, tail and maximum in milliseconds.
    pub fn json(&self) -> Value {
        let at = |quantile| self.milliseconds(quantile);
        json!({"count": self.0.len(), "p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "max_ms": at(1.0)})
    }

    /// The same for people.
    pub fn text(&self) -> String {
        format!(
            "p50 {:.2}  p95 {:.2}  p99 {:.2}  max {:.2} ms  ({} measured)",
            self.milliseconds(0.5),
            self.milliseconds(0.95),
            self.milliseconds(0.99),
            self.milliseconds(1.0),
            self.0.len()
        )
    }

    fn milliseconds(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1_000.0
    }
}

/// One number of each run.
#[derive(Debug, Default)]
pub struct Runs(Vec<f64>);

impl Runs {
    /// Adds a run's.
    pub fn push(&mut self, number: f64) {
        self.0.push(number);
        self.0.sort_by(f64::total_cmp);
    }

    /// The middle one, the smallest and the largest.
    pub fn spread(&self) -> (f64, f64, f64) {
        let of = |at: usize| self.0.get(at).copied().unwrap_or(0.0);
        (
            of(self.0.len() / 2),
            of(0),
            of(self.0.len().saturating_sub(1)),
        )
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let (median, least, most) = self.spread();
        json!({"median": median, "least": least, "most": most})
    }

    /// For people.
    pub fn text(&self) -> String {
        let (median, least, most) = self.spread();
        format!(
            "{median:.0}  (from {least:.0} to {most:.0} in {} runs)",
            self.0.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_spread_are_those_of_the_runs() {
        let mut runs = Runs::default();
        for number in [3.0, 1.0, 2.0] {
            runs.push(number);
        }
        assert_eq!(runs.spread(), (2.0, 1.0, 3.0));
    }

    #[test]
    fn percentiles_are_in_milliseconds() {
        let mut latencies = Latencies::default();
        for milliseconds in 1..=100 {
            latencies.record(Duration::from_millis(milliseconds));
        }
        let json = latencies.json();
        let p95 = json["p95_ms"].as_f64().unwrap_or_default();
        assert!((94.9..95.2).contains(&p95), "{json}");
    }
}
