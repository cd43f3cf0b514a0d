//! `tallyring-bench reads` and `tallyring-bench query`: reads of one key's 30 days by day in a zone, from a warm
//! archive, against a plain handler; many keys at once; a breakdown; and the reads while increments come.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use tallyring_bench::Chance;
use tempfile::TempDir;

use crate::effort::Effort;
use crate::load::Load;
use crate::report::Report;
use crate::request::{self, COUNTRIES};
use crate::server::ServerProcess;
use crate::wrk;

const CONNECTIONS: usize = 64;
/// Keys of the archive, beside the popular one.
pub(crate) const KEYS: u64 = 10_000;
/// In how many of the last 720 hours a key was counted.
const HOURS_OF_A_KEY: u64 = 100;
const HOURS: u64 = 720;
const KEYS_AT_ONCE: u64 = 100;
const RANGE: &str = "unit=day&units=30&timezone=America/New_York";

/// Measures single reads and breakdowns.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let stand = Stand::new(effort)?;
    let mut report = Report::new("reads");
    stand.single(&mut report)?;
    stand.breakdown(&mut report)?;
    stand.while_ingesting(&mut report)?;
    Ok(report)
}

/// Measures many keys at once.
pub(crate) fn run_query(effort: &Effort) -> Result<Report> {
    let stand = Stand::new(effort)?;
    let mut report = Report::new("query");
    stand.at_once(&mut report)?;
    Ok(report)
}

struct Stand<'e> {
    effort: &'e Effort,
    plain: ServerProcess,
    server: ServerProcess,
    _directory: TempDir,
}

impl<'e> Stand<'e> {
    /// Loads an archive, serves it, and decodes all its blocks.
    fn new(effort: &'e Effort) -> Result<Self> {
        let directory = effort.directory()?;
        load_archive(effort, directory.path())?;
        let server = effort.serve(directory.path(), &[])?;
        Load::each_once(server.address, KEYS, |key| {
            request::get(&target(&format!("k{key}")))
        })?;
        Ok(Self {
            effort,
            plain: ServerProcess::plain()?,
            server,
            _directory: directory,
        })
    }

    fn single(&self, report: &mut Report) -> Result<()> {
        let (nothing, reads) = ([request::get("/")], reads());
        let (mut bare, mut read) = (Vec::new(), Vec::new());
        let mut paced: [Vec<f64>; 2] = Default::default();
        let mut taken: [Vec<f64>; 2] = Default::default();
        let mut by_wrk: [Vec<f64>; 2] = Default::default();
        let has_wrk = wrk::is_installed();
        for _ in 0..self.effort.runs {
            let plain = self.effort.ask(&self.plain, CONNECTIONS, &nothing, None)?;
            let server = self.effort.ask(&self.server, CONNECTIONS, &reads, None)?;
            bare.push(plain.per_second);
            read.push(server.per_second);
            taken[0].push(plain.processor_us);
            taken[1].push(server.processor_us);
            let at_rate = self
                .effort
                .ask(&self.plain, CONNECTIONS, &nothing, Some(2_000.0))?;
            paced[0].push(at_rate.milliseconds(99.0));
            let at_rate = self
                .effort
                .ask(&self.server, CONNECTIONS, &reads, Some(2_000.0))?;
            paced[1].push(at_rate.milliseconds(99.0));
            if has_wrk {
                let ask = |server, requests| {
                    wrk::run(server, CONNECTIONS, requests, self.effort.duration())
                };
                by_wrk[0].push(ask(&self.plain, &nothing)?.per_second);
                by_wrk[1].push(ask(&self.server, &reads)?.per_second);
            }
        }
        report.row("plain handler", "req/s", &bare);
        report.row("30 days of a key by day", "req/s", &read);
        report.ratio("reads to the plain handler", &read, &bare);
        report.row("plain handler, processor time", "µs/req", &taken[0]);
        report.row("reads, processor time", "µs/req", &taken[1]);
        report.row("plain handler, p99 at 2000/s", "ms", &paced[0]);
        report.row("reads, p99 at 2000/s", "ms", &paced[1]);
        if has_wrk {
            let [bare, read] = &by_wrk;
            report.row("wrk: plain handler", "req/s", bare);
            report.row("wrk: 30 days of a key by day", "req/s", read);
            report.ratio("wrk: reads to the plain handler", read, bare);
        }
        Ok(())
    }

    fn at_once(&self, report: &mut Report) -> Result<()> {
        let (reads, queries) = (reads(), queries());
        let (mut one, mut many) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.runs {
            one.push(
                self.effort
                    .ask(&self.server, CONNECTIONS, &reads, None)?
                    .per_second,
            );
            let answered = self.effort.ask(&self.server, 8, &queries, None)?;
            many.push(answered.per_second * KEYS_AT_ONCE as f64);
        }
        report.row("keys one by one", "keys/s", &one);
        report.row("keys, 100 to a POST /v1/query", "keys/s", &many);
        report.ratio("at once to one by one", &many, &one);
        Ok(())
    }

    fn breakdown(&self, report: &mut Report) -> Result<()> {
        let by = request::get(&format!("/v1/u/popular/by/c?{RANGE}"));
        let mut p99 = Vec::new();
        for _ in 0..self.effort.runs {
            let outcome = self
                .effort
                .ask(&self.server, 1, std::slice::from_ref(&by), None)?;
            p99.push(outcome.milliseconds(99.0));
        }
        report.row("30 days of a popular key by country, p99", "ms", &p99);
        Ok(())
    }

    fn while_ingesting(&self, report: &mut Report) -> Result<()> {
        let (reads, increments) = (reads(), request::increments(200_000));
        let saturated = self
            .effort
            .ask(&self.server, CONNECTIONS, &increments, None)?;
        let half = saturated.per_second / 2.0;
        let (mut idle, mut busy) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.runs {
            let read = || {
                self.effort
                    .ask(&self.server, CONNECTIONS, &reads, Some(2_000.0))
            };
            idle.push(read()?.milliseconds(99.0));
            let (read, _) = std::thread::scope(|scope| {
                let ingest = || {
                    self.effort
                        .ask(&self.server, CONNECTIONS, &increments, Some(half))
                };
                let ingesting = scope.spawn(ingest);
                (read(), ingesting.join())
            });
            busy.push(read?.milliseconds(99.0));
        }
        report.row("reads at 2000/s, idle, p99", "ms", &idle);
        let what = format!("the same while {half:.0} increments/s come, p99");
        report.row(what, "ms", &busy);
        report.ratio("ingesting to idle", &busy, &idle);
        Ok(())
    }
}

/// The path of the read that is measured.
pub(crate) fn target(key: &str) -> String {
    format!("/v1/u/{key}/counts?{RANGE}")
}

fn reads() -> Vec<Vec<u8>> {
    let mut dice = Chance::new(3);
    let read = |_| request::get(&target(&format!("k{}", dice.below(KEYS))));
    (0..8_192).map(read).collect()
}

fn queries() -> Vec<Vec<u8>> {
    let mut dice = Chance::new(4);
    let query = |_| {
        let queries: Vec<String> = (0..KEYS_AT_ONCE)
            .map(|_| {
                let key = dice.below(KEYS);
                format!(
                    "{{\"namespace\":\"u\",\"key\":\"k{key}\",\"unit\":\"day\",\"units\":30,\"timezone\":\"America/New_York\"}}"
                )
            })
            .collect();
        let body = format!("{{\"queries\":[{}]}}", queries.join(","));
        request::post("/v1/query", "application/json", &body)
    };
    (0..128).map(query).collect()
}

/// Makes a dataset of the 30 days before today, and a generation with it.
pub(crate) fn load_archive(effort: &Effort, data: &Path) -> Result<()> {
    let today = jiff::Timestamp::now().as_second().div_euclid(86_400) * 86_400;
    let first = today - HOURS as i64 * 3_600;
    let mut rows = String::from("namespace,key,hour,count,subtotal,value\n");
    let mut dice = Chance::new(5);
    for key in 0..KEYS {
        for _ in 0..HOURS_OF_A_KEY {
            let hour = first + dice.below(HOURS) as i64 * 3_600;
            let _ = writeln!(rows, "u,k{key},{hour},{},,", 1 + dice.below(20));
        }
    }
    for hour in 0..HOURS {
        let hour = first + hour as i64 * 3_600;
        for country in COUNTRIES {
            let count = 1 + dice.below(1_000);
            let _ = writeln!(rows, "u,popular,{hour},{count},,");
            let _ = writeln!(rows, "u,popular,{hour},{count},c,{country}");
        }
    }
    let file = data.with_extension("csv");
    std::fs::write(&file, rows).context("cannot write the rows")?;
    let loaded = effort.command(&["load", "bench", &file.to_string_lossy()], data);
    let _ = std::fs::remove_file(&file);
    loaded?;
    effort.command(&["rebuild"], data)
}
