//! `tallyring-bench increments`: single durable increments against an empty handler.

use anyhow::Result;

use crate::effort::Effort;
use crate::load::{Load, Outcome};
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

const CONNECTIONS: usize = 64;
const KEYS: u64 = 200_000;

/// Measures empty handler, `/healthz` and increments in turn.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    let empty = ServerProcess::empty()?;
    let server = effort.serve(directory.path(), &[])?;
    let (nothing, health) = ([request::get("/")], [request::get("/healthz")]);
    let increments = request::increments(KEYS);
    let ask = |server: &ServerProcess, requests: &[Vec<u8>]| -> Result<Outcome> {
        let load = Load {
            server,
            connections: CONNECTIONS,
            requests,
            rate: None,
            duration: effort.duration(),
            may_refuse: false,
        };
        load.run()
    };
    let mut outcomes: [Vec<Outcome>; 3] = Default::default();
    for _ in 0..effort.runs {
        outcomes[0].push(ask(&empty, &nothing)?);
        outcomes[1].push(ask(&server, &health)?);
        outcomes[2].push(ask(&server, &increments)?);
    }
    let mut report = Report::new("increments");
    let rates = outcomes.each_ref().map(|outcomes| rates(outcomes));
    let [bare, healthy, counted] = &rates;
    report.row("empty handler", "req/s", bare);
    report.row("/healthz, all layers", "req/s", healthy);
    report.row("increments", "req/s", counted);
    report.ratio("increments to the empty handler", counted, bare);
    report.ratio("increments to /healthz", counted, healthy);
    for (what, outcomes) in ["empty handler", "/healthz", "increments"]
        .iter()
        .zip(&outcomes)
    {
        let taken: Vec<f64> = outcomes
            .iter()
            .map(|outcome| outcome.processor_us)
            .collect();
        report.row(format!("{what}, processor time"), "µs/req", &taken);
    }
    let latency = outcomes[2].iter().map(|outcome| outcome.milliseconds(99.0));
    report.row("p99, saturated", "ms", &latency.collect::<Vec<f64>>());
    Ok(report)
}

fn rates(outcomes: &[Outcome]) -> Vec<f64> {
    outcomes.iter().map(|outcome| outcome.per_second).collect()
}
