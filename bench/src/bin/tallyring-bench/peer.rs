//! `tallyring-bench load`: sends the requests of a file to any server, so that the same generator measures other
//! programs.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::effort::Effort;
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

/// Options of `tallyring-bench load`.
#[derive(Args)]
pub(crate) struct PeerArgs {
    /// The server's name in the report
    name: String,
    /// Where it listens, such as 127.0.0.1:7379
    address: SocketAddr,
    /// JSON lines, each a request: {"target":"/a"}, with "body" and its "type" a POST; sent in turn
    requests: PathBuf,
    /// Connections at once
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Counts of one request
    #[arg(long, default_value_t = 1.0)]
    counts: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    target: String,
    body: Option<String>,
    #[serde(rename = "type", default)]
    kind: String,
}

/// Sends the requests as fast as answers come.
pub(crate) fn run(effort: &Effort, args: &PeerArgs) -> Result<Report> {
    let lines = std::fs::read_to_string(&args.requests)
        .with_context(|| format!("cannot read {}", args.requests.display()))?;
    let mut requests = Vec::new();
    for line in lines.lines() {
        let Line { target, body, kind } = serde_json::from_str(line)?;
        requests.push(match body {
            Some(body) => request::post(&target, &kind, &body),
            None => request::get(&target),
        });
    }
    if requests.is_empty() {
        let path = args.requests.display();
        bail!("{path} holds no request");
    }
    let server = ServerProcess::elsewhere(args.address);
    let (mut rates, mut latency) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let outcome = effort.ask(&server, args.connections, &requests, None)?;
        rates.push(outcome.per_second * args.counts);
        latency.push(outcome.latency);
    }
    let mut report = Report::new("load");
    report.row(args.name.as_str(), "counts/s", &rates);
    report.latency(&args.name, &latency);
    Ok(report)
}
