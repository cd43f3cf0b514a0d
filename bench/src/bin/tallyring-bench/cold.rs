//! `tallyring-bench cold`: how many blocks of the archive the first read of a key decodes, and how long it takes.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::effort::Effort;
use crate::load::{Load, histogram};
use crate::reads::{KEYS, load_archive, target};
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

/// The number of keys, so far from each other that no two share a block.
const READS: u64 = 20;

/// Reads keys of a server that has just started.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    load_archive(effort, directory.path())?;
    let (mut blocks, mut latency) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let server = effort.serve(directory.path(), &[])?;
        let mut histogram = histogram()?;
        let before = blocks_decoded(&server)?;
        for read in 0..READS {
            let path = target(&format!("k{}", read * (KEYS / READS)));
            let began = Instant::now();
            Load::each_once(server.address, 1, |_| request::get(&path))?;
            histogram.saturating_record(began.elapsed().as_nanos() as u64);
        }
        let decoded = blocks_decoded(&server)? - before;
        blocks.push(decoded / READS as f64);
        latency.push(histogram);
    }
    let mut report = Report::new("cold");
    report.row("blocks read for a key's 30 days", "blocks", &blocks);
    report.latency("the first read of a key, with its connection", &latency);
    Ok(report)
}

fn blocks_decoded(server: &ServerProcess) -> Result<f64> {
    let mut answer = ureq::get(format!("http://{}/metrics", server.address)).call()?;
    let metrics = answer.body_mut().read_to_string()?;
    let name = "tallyring_blocks_decoded ";
    let found = metrics.lines().find_map(|line| line.strip_prefix(name));
    let found = found.and_then(|number| number.trim().parse().ok());
    found.context("the metrics count no blocks")
}
