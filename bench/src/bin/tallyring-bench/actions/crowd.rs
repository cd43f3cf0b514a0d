//! `tallyring-bench crowd`: the memory of one process in which many users did something today, how fast it answers, and
//! how long it takes to start anew.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use super::events::{EVENTS_A_BODY, Events};
use super::files::Lines;
use super::questions::{CAP, Questions};
use super::stand::Stand;
use crate::effort::{Effort, unflushed};
use crate::load::Load;
use crate::nights::{DAY, FIRST};
use crate::report::Report;
use crate::server::ServerProcess;

/// Options of `tallyring-bench crowd`.
#[derive(Args)]
#[command(after_help = "\
Events have four entities, a view and an insertion. Beside actions the server counts as little as it
can: totals by the hour, without minutes, breakdowns and distinct users. The events are numbered by
their producers, so that no id is remembered. The clock of the server shows 23 o'clock, and all
events are of that day.

Without --flushed nothing is flushed before all is asked; deltas_mib and replay_records are as large
as they can be. With it, both have their defaults, and files hold most actions.

Examples:
  tallyring-bench crowd --users 1000000 --each 30 --runs 1
  tallyring-bench crowd --users 10000000 --each 10 --runs 1
  tallyring-bench crowd --users 1000000 --each 30 --runs 1 --flushed --ids")]
pub(crate) struct CrowdArgs {
    /// Users
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    users: u64,
    /// Actions of each user, on average
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    each: u64,
    /// Leave the limits of memory at their defaults
    #[arg(long)]
    flushed: bool,
    /// Give each event an id in place of a number
    #[arg(long)]
    ids: bool,
}

const CONFIG: &str = "\
[events.click]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = []
minutes = false
uniques = false
[events.impression]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = []
minutes = false
uniques = false
";
const SENDERS: u64 = 4;
/// The time that the server's clock shows, Unix seconds.
const NOW: i64 = FIRST + 23 * 3_600;
const _: () = assert!(NOW < FIRST + DAY, "all events are of one day");
const MB: f64 = 1e6;

/// Figures of one process after the other.
#[derive(Default)]
struct Crowd {
    rates: Vec<f64>,
    idle: Vec<f64>,
    counted: Vec<f64>,
    ids: Vec<f64>,
    resident: Vec<f64>,
    peak: Vec<f64>,
    asked: Vec<f64>,
    log: Vec<f64>,
    flushed: Vec<f64>,
    starts: Vec<f64>,
    restarted: Vec<f64>,
}

/// Fills a server and asks it.
///
/// # Errors
/// When a server fails.
pub(crate) fn run(effort: &Effort, args: &CrowdArgs) -> Result<Report> {
    let mut crowd = Crowd::default();
    let mut questions = Questions::default();
    let plain = ServerProcess::plain()?;
    let memory = if args.flushed {
        String::new()
    } else {
        unflushed()
    };
    let config = format!("{CONFIG}{CAP}{memory}");
    for _ in 0..effort.runs {
        let mut stand = Stand::new(effort, &config, Some(NOW))?;
        crowd.fill(&mut stand, args)?;
        questions.ask(effort, (&stand.server, &plain), args.users)?;
        crowd.asked.push(stand.server.resident_bytes() as f64 / MB);
        crowd.restart(effort, &config, &mut stand)?;
    }
    let mut report = Report::new("crowd");
    crowd.report(&mut report, (args.users * args.each) as f64);
    questions.report(&mut report);
    Ok(report)
}

impl Crowd {
    fn fill(&mut self, stand: &mut Stand, args: &CrowdArgs) -> Result<()> {
        let server = &stand.server;
        server.settle()?;
        self.idle.push(server.resident_bytes() as f64 / MB);
        let bodies = (args.users * args.each).div_ceil(SENDERS * EVENTS_A_BODY);
        let events = |sender| {
            let mut events = Events::new(sender, args.users, FIRST..NOW);
            (events.has_ids, events.has_breakdowns) = (args.ids, false);
            events
        };
        let mut senders: Vec<Events> = (0..SENDERS).map(events).collect();
        let began = Instant::now();
        let bodies = senders
            .iter_mut()
            .map(|events| events.bodies().take(bodies as usize));
        Load::at_once(server.address, bodies)?;
        let sent: u64 = senders.iter().map(|events| events.made).sum();
        self.rates.push(sent as f64 / began.elapsed().as_secs_f64());
        server.settle()?;
        self.counted
            .push(server.metric("tallyring_delta_bytes")? / MB);
        let ids = server.status()?["ids"]["memory_bytes"].as_f64();
        self.ids
            .push(ids.context("the status tells no memory of ids")? / MB);
        self.resident.push(server.resident_bytes() as f64 / MB);
        self.peak.push(server.peak_bytes() as f64 / MB);
        self.log.push(server.metric("tallyring_oplog_bytes")? / MB);
        self.flushed
            .push(Lines::of_flushed(stand.data())?.bytes_each());
        Ok(())
    }

    /// Starts the server anew after kill -9.
    fn restart(&mut self, effort: &Effort, config: &str, stand: &mut Stand) -> Result<()> {
        let began = Instant::now();
        stand.restart(effort, config, Some(NOW))?;
        self.starts.push(began.elapsed().as_secs_f64());
        stand.server.settle()?;
        self.restarted
            .push(stand.server.resident_bytes() as f64 / MB);
        Ok(())
    }

    fn report(&self, report: &mut Report, actions: f64) {
        let each = |mb: &[f64]| -> Vec<f64> { mb.iter().map(|mb| mb * MB / actions).collect() };
        report.row("events", "event/s", &self.rates);
        report.row("log", "MB", &self.log);
        report.row(
            "memory of counts, as the server counts it",
            "MB",
            &self.counted,
        );
        report.row("  of an action", "bytes", &each(&self.counted));
        report.row("memory of ids, as the server counts it", "MB", &self.ids);
        report.row("resident before the first event", "MB", &self.idle);
        report.row("resident at rest", "MB", &self.resident);
        report.row("  of an action", "bytes", &each(&self.resident));
        report.row("resident, the most", "MB", &self.peak);
        report.row("resident after all questions", "MB", &self.asked);
        report.row(
            "flushed lines of actions, an action",
            "bytes",
            &self.flushed,
        );
        report.row("start after kill -9", "s", &self.starts);
        report.row("resident after that", "MB", &self.restarted);
    }
}
