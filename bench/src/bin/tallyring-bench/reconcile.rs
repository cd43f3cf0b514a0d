//! `tallyring-bench reconcile`: how long the recount of a closed day takes, beside the replay of the same events.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::Value;

use crate::actions::events::{EVENTS_A_BODY, Events};
use crate::actions::stand::Stand;
use crate::effort::{Effort, unflushed};
use crate::load::{Load, histogram, p99};
use crate::nights::{DAY, FIRST, wait_for_rebuild};
use crate::report::Report;
use crate::server::{ServerProcess, memory_bytes, processor_seconds};

/// Options of `tallyring-bench reconcile`.
#[derive(Args)]
#[command(after_help = "\
Events have four entities, ids, users, a view, an insertion, two subtotals and their cross,
minutes and distinct users. They are sent in one day of the server's clock, as they happened or
up to ten minutes late. First the server is killed and counts all of them again from its log.
Then, three days later, a rebuild has closed the day, and it is reconciled. At last 20,000 events
a second come in bodies of 100, at rest and while the day is reconciled once more.

Examples:
  tallyring-bench reconcile --events 6000000 --runs 1
  tallyring-bench reconcile --events 100000000 --events-before 10000000 --alone --runs 1")]
pub(crate) struct ReconcileArgs {
    /// Events of the day
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    events: u64,
    /// Events of each of the seven days before, whose ids a reconcile looks through, too
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    events_before: u64,
    /// Only reconcile: without the replay, and without the events beside it
    #[arg(long)]
    alone: bool,
}

const CONFIG: &str = "\
[events.click]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = [\"country\", \"device\", \"country*device\"]
[events.impression]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = [\"country\", \"device\", \"country*device\"]
";
/// For days before: their ids are kept, and no day becomes final by itself.
const KEPT: &str = "[final]\nids_days = 30\nby_hand = true\n";
const DAYS_BEFORE: u64 = 7;
const SENDERS: u64 = 4;
const USERS: u64 = 1_000_000;
const CONNECTIONS: usize = 8;
/// Events of a body that is sent beside a reconcile, and such bodies a second.
const EVENTS_BESIDE: u64 = 100;
const BODIES_A_SECOND: f64 = 200.0;
const LOOK: Duration = Duration::from_millis(20);
/// Seconds by which an event comes late, at most.
const LATE: i64 = 600;
const JOB_MAX: Duration = Duration::from_secs(3_600);
const MB: f64 = 1e6;

/// Measures both.
///
/// # Errors
/// When a server fails, or the day does not become final.
pub(crate) fn run(effort: &Effort, args: &ReconcileArgs) -> Result<Report> {
    let mut report = Report::new("reconcile");
    let (mut replays, mut recounts, mut dry) = (Vec::new(), Vec::new(), Vec::new());
    let (mut replays_a_core, mut recounts_a_core) = (Vec::new(), Vec::new());
    let (mut peaks, mut scratch) = (Vec::new(), Vec::new());
    let (mut at_rest, mut beside, mut besides) = (Vec::new(), Vec::new(), Vec::new());
    let events = args.events as f64;
    for _ in 0..effort.runs {
        let late = FIRST + 23 * 3_600;
        let kept = if args.events_before > 0 { KEPT } else { "" };
        let config = format!("{CONFIG}{kept}");
        let filled = match args.alone {
            true => config.clone(),
            false => format!("{config}{}", unflushed()),
        };
        let mut stand = filled_stand(effort, args, &filled, late)?;
        if !args.alone {
            let began = Instant::now();
            stand.restart(effort, &filled, Some(late))?;
            replays.push(events / began.elapsed().as_secs_f64());
            replays_a_core.push(events / stand.server.processor_seconds());
        }
        stand.restart(effort, &config, Some(FIRST + 3 * DAY + 600))?;
        wait_for_rebuild(&stand.server, stand.data(), FIRST + DAY)?;
        let mut took = 0.0_f64;
        for (order, figures) in [(true, &mut dry), (false, &mut recounts)] {
            let job = reconcile(&stand, order)?;
            took = took.max(job.seconds);
            figures.push(events / job.seconds);
            if !order {
                recounts_a_core.push(events / job.processor_seconds);
            }
            peaks.push(job.peak_bytes / MB);
            scratch.push(job.scratch_bytes / MB);
        }
        if args.alone {
            continue;
        }
        let mut sender = Events::new(SENDERS, USERS, FIRST + 3 * DAY..FIRST + 3 * DAY + LATE);
        sender.a_body = EVENTS_BESIDE;
        // At rest for about as long as beside the reconcile, so that both see what happens now and then.
        let windows = (took / effort.duration().as_secs_f64()).ceil() as u64;
        at_rest.push(send_often(windows, effort, &stand, &mut sender)?);
        let (latency, job) = send_beside(effort, &stand, &mut sender)?;
        beside.push(latency);
        besides.push(events / job.seconds);
    }
    if !args.alone {
        report.row("replay after kill -9", "event/s", &replays);
    }
    report.row("reconcile that only tells", "event/s", &dry);
    report.row("reconcile that publishes", "event/s", &recounts);
    report.row("reconcile, of processor time", "event/s", &recounts_a_core);
    report.row("memory of the worker, the most", "MB", &peaks);
    report.row("files in incoming/, the most", "MB", &scratch);
    if args.alone {
        return Ok(report);
    }
    report.ratio("to the replay", &recounts, &replays);
    report.row("replay, of processor time", "event/s", &replays_a_core);
    report.ratio("to the replay", &recounts_a_core, &replays_a_core);
    report.row("reconcile beside 20,000 events/s", "event/s", &besides);
    report.latency("100 of 20,000 events/s, at rest", &at_rest);
    report.latency("beside a reconcile", &beside);
    report.ratio("p99 beside to p99 at rest", &p99(&beside), &p99(&at_rest));
    Ok(report)
}

/// Starts a server that has counted the days before and the day, at which its clock shows `late`.
fn filled_stand(effort: &Effort, args: &ReconcileArgs, config: &str, late: i64) -> Result<Stand> {
    let days_before = match args.events_before {
        0 => 0,
        _ => DAYS_BEFORE,
    };
    let ago = |day: u64| day as i64 * DAY;
    let mut stand = Stand::new(effort, config, Some(late - ago(days_before)))?;
    for day in (1..=days_before).rev() {
        fill(&stand.server, args.events_before, day, FIRST - ago(day))?;
        stand.restart(effort, config, Some(late - ago(day - 1)))?;
    }
    fill(&stand.server, args.events, 0, FIRST)?;
    Ok(stand)
}

/// Sends the events of the first 23 hours of a day, which begins at `first`. Numbers of days have ids of their own.
fn fill(server: &ServerProcess, count: u64, day: u64, first: i64) -> Result<()> {
    let bodies = count.div_ceil(SENDERS * EVENTS_A_BODY) as i64;
    let seconds = 23 * 3_600 - LATE;
    let mut senders: Vec<Events> = (day * SENDERS..(day + 1) * SENDERS)
        .map(|sender| Events::new(sender, USERS, first..first + DAY))
        .collect();
    let bodies = senders.iter_mut().map(|events| {
        (0..bodies).map(|number| {
            let of = |number: i64| first + seconds * number / bodies;
            events.times = of(number)..of(number + 1) + LATE;
            events.body()
        })
    });
    Load::at_once(server.address, bodies)
}

/// Sends new events at an even rate.
fn send(effort: &Effort, stand: &Stand, sender: &mut Events) -> Result<Histogram<u64>> {
    // As many as the load sends in its warm-up, too.
    let bodies = (effort.duration() + Duration::from_secs(1)).as_secs_f64() * BODIES_A_SECOND;
    let bodies: Vec<_> = sender.bodies().take(bodies as usize).collect();
    let sent = effort.ask(&stand.server, CONNECTIONS, &bodies, Some(BODIES_A_SECOND))?;
    Ok(sent.latency)
}

/// As [`send`], `windows` times.
fn send_often(
    windows: u64,
    effort: &Effort,
    stand: &Stand,
    sender: &mut Events,
) -> Result<Histogram<u64>> {
    let mut all = histogram()?;
    for _ in 0..windows {
        let sent = send(effort, stand, sender)?;
        all.add(sent).context("cannot add latencies")?;
    }
    Ok(all)
}

/// Sends new events for as long as a reconcile runs.
fn send_beside(
    effort: &Effort,
    stand: &Stand,
    sender: &mut Events,
) -> Result<(Histogram<u64>, Job)> {
    thread::scope(|scope| {
        let running = scope.spawn(|| reconcile(stand, true));
        let mut all = histogram()?;
        while !running.is_finished() {
            let sent = send(effort, stand, sender)?;
            all.add(sent).context("cannot add latencies")?;
        }
        let job = running
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok((all, job))
    })
}

/// How a reconcile went.
struct Job {
    seconds: f64,
    /// Processor time of the server and its worker.
    processor_seconds: f64,
    peak_bytes: f64,
    scratch_bytes: f64,
}

/// Reconciles the day and watches the worker.
fn reconcile(stand: &Stand, dry_run: bool) -> Result<Job> {
    let url = format!("http://{}/v1/admin/reconcile", stand.server.address);
    let order = format!("{{\"day\":\"2026-01-01\",\"dry_run\":{dry_run}}}");
    let (began, server_before) = (Instant::now(), stand.server.processor_seconds());
    ureq::post(&url)
        .content_type("application/json")
        .send(&order)?;
    let (mut peak, mut scratch, mut of_worker) = (0, 0, 0.0_f64);
    while began.elapsed() < JOB_MAX {
        let text = ureq::get(&url).call()?.body_mut().read_to_string()?;
        let job: Value = serde_json::from_str(&text)?;
        match job["state"].as_str() {
            Some("running") => {}
            Some("done") if job["unexplained"]["counters"] == 0 => {
                return Ok(Job {
                    seconds: began.elapsed().as_secs_f64(),
                    processor_seconds: of_worker + stand.server.processor_seconds() - server_before,
                    peak_bytes: peak as f64,
                    scratch_bytes: scratch as f64,
                });
            }
            _ => bail!("the day did not become final: {job}"),
        }
        let workers = stand.server.children();
        for worker in &workers {
            of_worker = of_worker.max(processor_seconds(*worker));
        }
        let bytes = workers
            .into_iter()
            .map(|worker| memory_bytes(worker, "VmHWM:"));
        peak = bytes.max().unwrap_or(0).max(peak);
        scratch = bytes_of(&stand.data().join("incoming"))?.max(scratch);
        thread::sleep(LOOK);
    }
    bail!("the reconcile did not end within {JOB_MAX:?}")
}

fn bytes_of(directory: &Path) -> Result<u64> {
    let files = std::fs::read_dir(directory).context("cannot list a directory")?;
    // A file may go meanwhile.
    let sizes = files
        .flatten()
        .filter_map(|file| Some(file.metadata().ok()?.len()));
    Ok(sizes.sum())
}
