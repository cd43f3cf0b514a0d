//! `tallyring-bench undisturbed`: the latency of reads while history loads and rebuilds, against that at rest.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::effort::Effort;
use crate::history::{self, History};
use crate::load::{histogram, p99};
use crate::report::Report;
use crate::request;

const CONNECTIONS: usize = 8;
const READS_A_SECOND: f64 = 1_000.0;
const LINKS: u64 = 200;
/// Rows of the archive that is served.
const BASE_ROWS: u64 = 1_000_000;

/// Serves a year, and loads `rows` rows of history meanwhile. Fails when a program or the server fails.
pub(crate) fn run(effort: &Effort, rows: u64) -> Result<Report> {
    let directory = effort.directory()?;
    let (data, file) = (
        directory.path().join("data"),
        directory.path().join("history.csv"),
    );
    History::of_2012(BASE_ROWS, false).write(&file)?;
    add(effort, &data, "base", &file)?;
    History::of_2012(rows, false).write(&file)?;
    let server = effort.serve(&data, &[])?;
    let reads = reads();
    let ask = || {
        effort
            .ask(&server, CONNECTIONS, &reads, Some(READS_A_SECOND))
            .map(|outcome| outcome.latency)
    };
    let (mut at_rest, mut beside) = (Vec::new(), Vec::new());
    for run in 0..effort.runs {
        at_rest.push(ask()?);
        let name = format!("history{run}");
        beside.push(asked_beside(|| add(effort, &data, &name, &file), ask)?);
        effort.command(&["drop", &name], &data)?;
    }
    let mut report = Report::new("undisturbed");
    report.latency("1,000 reads a second, at rest", &at_rest);
    let what = format!("while {} M rows load and rebuild", rows as f64 / 1e6);
    report.latency(&what, &beside);
    report.ratio("p99 beside to p99 at rest", &p99(&beside), &p99(&at_rest));
    Ok(report)
}

/// Latencies of what `ask` asks again and again while `work` goes on. Fails when one of them does.
pub(crate) fn asked_beside(
    work: impl FnOnce() -> Result<()> + Send,
    ask: impl Fn() -> Result<Histogram<u64>>,
) -> Result<Histogram<u64>> {
    thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut all = histogram()?;
        while !working.is_finished() {
            all.add(ask()?).context("cannot add latencies")?;
        }
        working
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(all)
    })
}

fn add(effort: &Effort, data: &Path, dataset: &str, file: &Path) -> Result<()> {
    effort.command(&["load", dataset, &file.to_string_lossy()], data)?;
    effort.command(&["rebuild"], data)
}

fn reads() -> Vec<Vec<u8>> {
    let range = "unit=day&units=30&to=2012-06-30T00:00:00Z&timezone=America/New_York";
    let read = |rank| request::get(&format!("/v1/l/{}/counts?{range}", history::name(rank)));
    (1..=LINKS).map(read).collect()
}
