//! `tallyring-bench latency`: the latency of durable increments at half the rate that saturates.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::effort::Effort;
use crate::load::{Outcome, histogram};
use crate::report::{Report, median};
use crate::request;

const CONNECTIONS: usize = 64;
const KEYS: u64 = 200_000;
const SYNCS: u64 = 1_000;

/// Finds the rate that saturates, then measures at half of it, in turn with the disk.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    let server = effort.serve(directory.path(), &[])?;
    let increments = request::increments(KEYS);
    let ask = |rate| -> Result<Outcome> { effort.ask(&server, CONNECTIONS, &increments, rate) };
    let mut saturated = Vec::new();
    for _ in 0..effort.runs {
        saturated.push(ask(None)?.per_second);
    }
    let half = median(&saturated) / 2.0;
    let (mut syncs, mut paced) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        syncs.push(sync_milliseconds(directory.path())?);
        paced.push(ask(Some(half))?.latency);
    }
    let mut report = Report::new("latency");
    report.row("increments, saturated", "req/s", &saturated);
    report.row("fdatasync of 4 KiB, p99", "ms", &syncs);
    report.latency(&format!("increments at {half:.0}/s"), &paced);
    let tails: Vec<f64> = paced
        .iter()
        .map(|run| run.value_at_percentile(99.0) as f64 / 1e6)
        .collect();
    let limits: Vec<f64> = syncs.iter().map(|sync| 3.0 * sync + 1.0).collect();
    report.ratio("p99 to 3 fdatasync + 1 ms", &tails, &limits);
    Ok(report)
}

/// The 99th percentile of durable writes of 4 KiB over existing bytes of a file, milliseconds.
fn sync_milliseconds(directory: &Path) -> Result<f64> {
    let path = directory.join("fdatasync");
    let file = File::create(&path).context("cannot make a file")?;
    let block = [7_u8; 4 << 10];
    let write = |at: u64| file.write_all_at(&block, at * block.len() as u64);
    (0..SYNCS)
        .try_for_each(write)
        .and_then(|()| file.sync_all())
        .context("cannot write a file")?;
    let mut histogram = histogram()?;
    for at in 0..SYNCS {
        let began = Instant::now();
        write(at)
            .and_then(|()| file.sync_data())
            .context("cannot write a file")?;
        histogram.saturating_record(began.elapsed().as_nanos() as u64);
    }
    std::fs::remove_file(&path).context("cannot remove a file")?;
    Ok(histogram.value_at_percentile(99.0) as f64 / 1e6)
}
