//! `tallyring-bench batches`: durable bodies of 1,000 increments. The unit is counters: a total and its two subtotals
//! are three.

use anyhow::Result;

use crate::effort::Effort;
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

const BODIES: usize = 200;
const ROWS: f64 = 1_000.0;
const COUNTERS_A_ROW: f64 = 3.0;

/// Measures one connection and eight, over few and many keys.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let mut report = Report::new("batches");
    let plain = ServerProcess::plain()?;
    for keys in [10_000, 200_000, 10_000_000] {
        let directory = effort.directory()?;
        let server = effort.serve(directory.path(), &[])?;
        let requests = request::batches(keys, BODIES);
        for connections in [1, 8] {
            let ask = |server: &ServerProcess| effort.ask(server, connections, &requests, None);
            let (mut bare, mut counted, mut p99) = (Vec::new(), Vec::new(), Vec::new());
            let mut taken = Vec::new();
            for _ in 0..effort.runs {
                bare.push(ask(&plain)?.per_second * ROWS * COUNTERS_A_ROW / 1e6);
                let outcome = ask(&server)?;
                counted.push(outcome.per_second * ROWS * COUNTERS_A_ROW / 1e6);
                p99.push(outcome.milliseconds(99.0));
                taken.push(outcome.processor_us * 1e3 / (ROWS * COUNTERS_A_ROW));
            }
            let of = format!("{keys} keys, {connections} connections");
            report.row(format!("plain handler, {of}"), "M ctr/s", &bare);
            report.row(format!("batches, {of}"), "M ctr/s", &counted);
            report.row(format!("p99, {of}"), "ms", &p99);
            report.row(format!("processor time, {of}"), "ns/ctr", &taken);
        }
    }
    Ok(report)
}
