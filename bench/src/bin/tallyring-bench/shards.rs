//! `tallyring-bench shards`: batches and reads over more shards and more keys, to find a cliff. Every key is counted
//! once before the measurement, which draws popular keys far more often.

use anyhow::{Context, Result};

use crate::effort::Effort;
use crate::load::Load;
use crate::report::Report;
use crate::request;

const SHARDS: [u16; 5] = [1, 2, 4, 8, 16];
const KEYS: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const BODIES: usize = 200;
const CONNECTIONS: usize = 8;
const ROWS: f64 = 1_000.0;
const COUNTERS_A_ROW: f64 = 3.0;

/// Measures every pair of shards and keys on a store of its own.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let mut report = Report::new("shards");
    for keys in KEYS {
        let bodies = request::batches(keys, BODIES);
        let reads: Vec<Vec<u8>> = (0..keys.min(1_000))
            .map(|key| request::get(&format!("/v1/u/k{key}/counts?unit=hour&units=24")))
            .collect();
        for shards in SHARDS {
            let directory = effort.directory()?;
            let config = directory.path().join("bench.toml");
            std::fs::write(&config, format!("shards = {shards}\n"))
                .context("cannot write a configuration")?;
            let data = directory.path().join("data");
            let server = effort.serve(&data, &["--config", &config.to_string_lossy()])?;
            let bodies_of_each = keys / request::INCREMENTS_A_BODY;
            Load::each_once(server.address, bodies_of_each, request::batch_of_each)?;
            let ask = |requests: &[Vec<u8>]| {
                effort
                    .ask(&server, CONNECTIONS, requests, None)
                    .map(|outcome| outcome.per_second)
            };
            let (mut counted, mut read) = (Vec::new(), Vec::new());
            for _ in 0..effort.runs {
                counted.push(ask(&bodies)? * ROWS * COUNTERS_A_ROW / 1e6);
                read.push(ask(&reads)?);
            }
            let of = format!("{keys} keys, {shards} shards");
            report.row(format!("batches, {of}"), "M ctr/s", &counted);
            report.row(format!("reads, {of}"), "req/s", &read);
        }
    }
    Ok(report)
}
