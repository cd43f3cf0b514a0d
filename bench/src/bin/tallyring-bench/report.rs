//! The report of a benchmark: rows with every run's figure, as a table of medians or as JSON.

use std::io::Write as _;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;
use tallyring_realtime::priority;

use crate::Output;

/// The figures of one benchmark.
#[derive(Serialize)]
pub(crate) struct Report {
    bench: &'static str,
    /// Processors, memory and kernel.
    machine: String,
    date: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    median: f64,
    runs: Vec<f64>,
}

impl Report {
    /// An empty report.
    pub(crate) fn new(bench: &'static str) -> Self {
        Self {
            bench,
            machine: machine(),
            date: jiff::Timestamp::now().strftime("%F").to_string(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with the figure of every run.
    pub(crate) fn row(&mut self, what: impl Into<String>, unit: &'static str, runs: &[f64]) {
        self.rows.push(Row {
            what: what.into(),
            unit,
            median: median(runs),
            runs: runs.to_vec(),
        });
    }

    /// Adds a row of `a` divided by `b`, run by run.
    pub(crate) fn ratio(&mut self, what: impl Into<String>, a: &[f64], b: &[f64]) {
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        self.row(what, "×", &ratios);
    }

    /// Adds the percentiles 50, 95 and 99 of latencies in nanoseconds; each run has a histogram.
    pub(crate) fn latency(&mut self, what: &str, runs: &[Histogram<u64>]) {
        for percentile in [50.0, 95.0, 99.0] {
            let at = |run: &Histogram<u64>| run.value_at_percentile(percentile) as f64 / 1e6;
            let runs: Vec<f64> = runs.iter().map(at).collect();
            self.row(format!("{what}, p{percentile}"), "ms", &runs);
        }
    }

    /// Prints the report. Fails when standard output is closed.
    pub(crate) fn print(&self, output: Output) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if output == Output::Json {
            writeln!(out, "{}", serde_json::to_string_pretty(self)?)?;
            return Ok(());
        }
        writeln!(out, "{}, {}, {}", self.bench, self.date, self.machine)?;
        for row in &self.rows {
            let runs: Vec<String> = row.runs.iter().map(|&run| shown(run)).collect();
            let (median, unit) = (shown(row.median), row.unit);
            writeln!(
                out,
                "{:<54} {median:>10} {unit:<8} {}",
                row.what,
                runs.join(" ")
            )?;
        }
        Ok(())
    }
}

/// Returns the middle figure, or the mean of the two middle figures.
pub(crate) fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

fn shown(figure: f64) -> String {
    match figure {
        0.0..10.0 => format!("{figure:.3}"),
        10.0..1_000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = priority::processors();
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| {
            let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
            kib.parse::<u64>().ok()
        })
        .unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{processors} processors, {} GiB, Linux {}",
        memory.div_ceil(1 << 20),
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
