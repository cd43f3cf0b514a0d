//! `tallyring-bench cold`: how many blocks of the archive the first read of a key decodes, and how long it takes.

use std::time::Instant;

use anyhow::Result;

use crate::effort::Effort;
use crate::load::{Load, histogram};
use crate::reads::{KEYS, load_archive, target};
use crate::report::Report;
use crate::request;

/// The number of keys, so far from each other that no two share a block.
const READS: u64 = 20;

/// The metric that counts decoded blocks.
pub(crate) const BLOCKS: &str = "tallyring_blocks_decoded";

/// Reads keys of a server that has just started.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    load_archive(effort, directory.path())?;
    let (mut blocks, mut latency) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let server = effort.serve(directory.path(), &[])?;
        let mut histogram = histogram()?;
        let before = server.metric(BLOCKS)?;
        for read in 0..READS {
            let path = target(&format!("k{}", read * (KEYS / READS)));
            let began = Instant::now();
            Load::each_once(server.address, 1, |_| request::get(&path))?;
            histogram.saturating_record(began.elapsed().as_nanos() as u64);
        }
        let decoded = server.metric(BLOCKS)? - before;
        blocks.push(decoded / READS as f64);
        latency.push(histogram);
    }
    let mut report = Report::new("cold");
    report.row("blocks read for a key's 30 days", "blocks", &blocks);
    report.latency("the first read of a key, with its connection", &latency);
    Ok(report)
}
