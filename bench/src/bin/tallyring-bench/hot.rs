//! `tallyring-bench hot`: all increments on one key against increments on many, single and in batches.

use anyhow::Result;

use crate::effort::Effort;
use crate::report::Report;
use crate::request;

const KEYS: u64 = 200_000;
const BODIES: usize = 100;

/// Measures both in turn.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let mut report = Report::new("hot");
    let directory = effort.directory()?;
    let server = effort.serve(directory.path(), &[])?;
    for (what, connections, one, many) in [
        (
            "increments",
            64,
            request::increments(1),
            request::increments(KEYS),
        ),
        (
            "batches",
            8,
            request::batches(1, BODIES),
            request::batches(KEYS, BODIES),
        ),
    ] {
        let ask = |requests: &[Vec<u8>]| effort.ask(&server, connections, requests, None);
        let (mut hot, mut spread) = (Vec::new(), Vec::new());
        for _ in 0..effort.runs {
            spread.push(ask(&many)?.per_second);
            hot.push(ask(&one)?.per_second);
        }
        report.row(format!("{what} on {KEYS} keys"), "req/s", &spread);
        report.row(format!("{what} on one key"), "req/s", &hot);
        report.ratio(format!("{what}, one key to many"), &hot, &spread);
    }
    Ok(report)
}
