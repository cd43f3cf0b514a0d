//! `tallyring-bench overload`: more clients than the server has places for, idle connections, and the load afterwards.

use std::net::TcpStream;

use anyhow::{Context, Result};

use crate::effort::Effort;
use crate::load::{Load, Outcome};
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

const CONNECTIONS: usize = 64;
/// Ten times the places for increments, so that most requests find none.
const CROWD: usize = 10_240;
const IDLE: usize = 10_000;
const KEYS: u64 = 200_000;
const MIB: f64 = (1 << 20) as f64;

const CONFIG: &str = "[limits]\nconnections = 20000\nconnections_per_ip = 20000\n";

/// Measures a quiet load, a crowd that asks without pause, the quiet load again, and the quiet load beside idle
/// connections.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    let config = directory.path().join("bench.toml");
    std::fs::write(&config, CONFIG).context("cannot write a configuration")?;
    let data = directory.path().join("data");
    let server = effort.serve(&data, &["--config", &config.to_string_lossy()])?;
    let increments = request::increments(KEYS);
    let ask = |connections| -> Result<Outcome> {
        let load = Load {
            server: &server,
            connections,
            requests: &increments,
            rate: None,
            duration: effort.duration(),
            may_refuse: connections > CONNECTIONS,
        };
        load.run()
    };
    let resident = || server.resident_bytes() as f64 / MIB;
    let (mut before, mut after, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    let (mut memory_before, mut memory, mut memory_idle) = (Vec::new(), Vec::new(), Vec::new());
    let (mut accepted, mut refused, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        before.push(ask(CONNECTIONS)?.per_second);
        memory_before.push(resident());
        let crowded = ask(CROWD)?;
        memory.push(server.peak_bytes() as f64 / MIB);
        accepted.push(crowded.per_second);
        refused.push(crowded.refused_per_second);
        latencies.push(crowded.latency);
        after.push(ask(CONNECTIONS)?.per_second);
        let held = hold(&server)?;
        idle.push(ask(CONNECTIONS)?.per_second);
        memory_idle.push(resident());
        drop(held);
    }
    let mut report = Report::new("overload");
    report.row(
        format!("{CONNECTIONS} connections, before"),
        "req/s",
        &before,
    );
    report.row("resident", "MiB", &memory_before);
    report.row(format!("{CROWD} connections, accepted"), "req/s", &accepted);
    report.row(format!("{CROWD} connections, refused"), "req/s", &refused);
    report.latency("accepted of a crowd", &latencies);
    report.row("resident, at most", "MiB", &memory);
    report.row(format!("{CONNECTIONS} connections, after"), "req/s", &after);
    report.ratio("after to before", &after, &before);
    report.row(
        format!("{CONNECTIONS} beside {IDLE} idle ones"),
        "req/s",
        &idle,
    );
    report.ratio("beside idle ones to before", &idle, &before);
    report.row(
        format!("resident with {IDLE} idle ones"),
        "MiB",
        &memory_idle,
    );
    Ok(report)
}

/// Opens connections that send nothing.
fn hold(server: &ServerProcess) -> Result<Vec<TcpStream>> {
    let connect = |_| TcpStream::connect(server.address);
    let held: std::io::Result<Vec<TcpStream>> = (0..IDLE).map(connect).collect();
    held.context("cannot hold idle connections; `ulimit -n` must allow for them")
}
