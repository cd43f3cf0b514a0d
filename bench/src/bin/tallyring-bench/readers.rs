//! `tallyring-bench readers`: many readers of a large breakdown at once. Their rate, the server's memory, and the
//! latency of other reads and of increments beside them.

use std::thread;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::effort::Effort;
use crate::history::{self, History};
use crate::load::Outcome;
use crate::rebuild::Stand;
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

const ROWS: u64 = 3_000_000;
const DAY_S: i64 = 86_400;
const DAYS: i64 = 30;
const READERS: [usize; 6] = [1, 4, 8, 16, 32, 64];
const OTHERS: usize = 8;
const OTHER_READS_A_SECOND: f64 = 500.0;
const INCREMENTS_A_SECOND: f64 = 2_000.0;

/// Serves 30 days with breakdowns, and reads the most popular key by referrer. Fails when a program or the server
/// fails.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    let stand = Stand::new(directory.path())?;
    let today = jiff::Timestamp::now().as_second().div_euclid(DAY_S) * DAY_S;
    let history = History {
        rows: ROWS,
        breakdowns: true,
        links: 100_000.0,
        from: today - DAYS * DAY_S,
        hours: DAYS as u64 * 24,
    };
    history.write(&stand.file)?;
    stand.load(effort, "512MiB")?;
    let server = effort.serve(&stand.data, &["--config", &stand.config.to_string_lossy()])?;
    let crowd = Crowd::new(effort, &server, today)?;
    let mut report = Report::new("readers");
    let mut rates: Vec<Vec<f64>> = Vec::new();
    for readers in READERS {
        let runs = (0..effort.runs).map(|_| Ok(crowd.large(readers)?.per_second));
        rates.push(runs.collect::<Result<_>>()?);
        let what = format!("a popular key by referrer, {readers} readers");
        report.row(what, "req/s", &rates[rates.len() - 1]);
    }
    let best =
        (0..effort.runs as usize).map(|run| rates.iter().map(|runs| runs[run]).fold(0.0, f64::max));
    report.ratio(
        "64 readers to the best",
        &rates[READERS.len() - 1],
        &best.collect::<Vec<_>>(),
    );
    let mut resident = Vec::new();
    let mut alone: [Vec<Histogram<u64>>; 2] = Default::default();
    let mut beside: [Vec<Histogram<u64>>; 2] = Default::default();
    for _ in 0..effort.runs {
        alone[0].push(crowd.other_reads()?.latency);
        alone[1].push(crowd.increments()?.latency);
        let (reads, increments) = thread::scope(|scope| -> Result<_> {
            let large = scope.spawn(|| [crowd.large(64), crowd.large(64)]);
            let found = (crowd.other_reads()?, crowd.increments()?);
            resident.push((server.resident_bytes() >> 20) as f64);
            for outcome in large
                .join()
                .map_err(|_| anyhow::anyhow!("a reader failed"))?
            {
                outcome?;
            }
            Ok(found)
        })?;
        beside[0].push(reads.latency);
        beside[1].push(increments.latency);
    }
    report.row("resident beside 64 readers", "MiB", &resident);
    for (index, what) in ["other reads, p99", "increments, p99"].iter().enumerate() {
        let p99 = |runs: &[Histogram<u64>]| -> Vec<f64> {
            let at = |run: &Histogram<u64>| run.value_at_percentile(99.0) as f64 / 1e6;
            runs.iter().map(at).collect()
        };
        let (alone, beside) = (p99(&alone[index]), p99(&beside[index]));
        report.row(format!("{what}, alone"), "ms", &alone);
        report.row(format!("{what}, beside 64 readers"), "ms", &beside);
        report.ratio("  to alone", &beside, &alone);
    }
    Ok(report)
}

struct Crowd<'e> {
    effort: &'e Effort,
    server: &'e ServerProcess,
    large: Vec<Vec<u8>>,
    others: Vec<Vec<u8>>,
    increments: Vec<Vec<u8>>,
}

impl<'e> Crowd<'e> {
    fn new(effort: &'e Effort, server: &'e ServerProcess, today: i64) -> Result<Self> {
        let stamp = jiff::Timestamp::from_second(today).context("an instant")?;
        let range = format!(
            "unit=day&units=30&to={}",
            stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
        );
        let key = |rank| history::name(rank);
        let other = |rank| request::get(&format!("/v1/l/{}/counts?{range}", key(rank)));
        Ok(Self {
            effort,
            server,
            large: vec![request::get(&format!("/v1/l/{}/by/r?{range}", key(1)))],
            others: (1_000..1_200).map(other).collect(),
            increments: (0..1_000)
                .map(|number| request::get(&format!("/v1/incr?key.l=new{number}&by.c=US")))
                .collect(),
        })
    }

    fn large(&self, readers: usize) -> Result<Outcome> {
        self.effort.ask(self.server, readers, &self.large, None)
    }

    fn other_reads(&self) -> Result<Outcome> {
        self.effort.ask(
            self.server,
            OTHERS,
            &self.others,
            Some(OTHER_READS_A_SECOND),
        )
    }

    fn increments(&self) -> Result<Outcome> {
        self.effort.ask(
            self.server,
            OTHERS,
            &self.increments,
            Some(INCREMENTS_A_SECOND),
        )
    }
}
