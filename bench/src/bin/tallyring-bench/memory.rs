//! `tallyring-bench memory`: resident memory a live counter, when nothing is flushed.

use anyhow::Result;

use crate::effort::Effort;
use crate::load::Load;
use crate::report::Report;
use crate::request::post;

const ROWS: u64 = 1_000;

/// Counts every key once and reads the memory of the process.
pub(crate) fn run(effort: &Effort, keys: u64) -> Result<Report> {
    let mut report = Report::new("memory");
    let (mut resident, mut each) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let directory = effort.directory()?;
        let server = effort.serve_unflushed(directory.path())?;
        let before = server.resident_bytes();
        Load::each_once(server.address, keys.div_ceil(ROWS), |body| {
            let rows = body * ROWS..keys.min((body + 1) * ROWS);
            let row = |key| {
                format!("{{\"keys\":{{\"u\":\"k{key}\"}},\"by\":{{\"c\":\"US\",\"r\":\"a\"}}}}\n")
            };
            let rows: String = rows.map(row).collect();
            post("/v1/increments", "application/x-ndjson", &rows)
        })?;
        let bytes = (server.resident_bytes() - before) as f64;
        resident.push(bytes / (1 << 20) as f64);
        each.push(bytes / (3 * keys) as f64);
    }
    report.row(format!("{} live counters", 3 * keys), "MiB", &resident);
    report.row("a counter", "bytes", &each);
    Ok(report)
}
