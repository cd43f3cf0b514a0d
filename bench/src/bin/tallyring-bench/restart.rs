//! `tallyring-bench restart`: the time from kill -9 to ready, with all increments in the log only.

use std::time::Instant;

use anyhow::Result;

use crate::effort::Effort;
use crate::load::Load;
use crate::report::Report;
use crate::request;

const ROWS: u64 = 1_000;
const KEYS: u64 = 200_000;
const BODIES: usize = 500;

/// Writes the log once, and starts a server on it in every run.
pub(crate) fn run(effort: &Effort, increments: u64) -> Result<Report> {
    let directory = effort.directory()?;
    let server = effort.serve_unflushed(directory.path())?;
    let bodies = request::batches(KEYS, BODIES);
    Load::each_once(server.address, increments.div_ceil(ROWS), |number| {
        bodies[number as usize % bodies.len()].clone()
    })?;
    server.kill();
    let mut seconds = Vec::new();
    for _ in 0..effort.runs {
        let began = Instant::now();
        let server = effort.serve_unflushed(directory.path())?;
        Load::each_once(server.address, 1, |_| request::get("/readyz"))?;
        seconds.push(began.elapsed().as_secs_f64());
        server.kill();
    }
    let mut report = Report::new("restart");
    report.row(
        format!("kill -9 to ready, {increments} increments"),
        "s",
        &seconds,
    );
    Ok(report)
}
