//! `tallyring-bench events`: how many events with distinct ids are counted a second, how soon each is visible, and the
//! latency of dashboard reads meanwhile, at the highest rate or at that of `--rate`. `--hot` adds the latency of events
//! and reads of other keys beside a hot one, in turn with events spread evenly.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tallyring_bench::Chance;
use ureq::Agent;

use crate::effort::Effort;
use crate::load::histogram;
use crate::report::Report;

/// Options of `tallyring-bench events`.
#[derive(Args, Clone)]
pub(crate) struct EventsArgs {
    /// Events of a run
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1_000..=50_000_000))]
    events: u64,
    /// Events a second, in batches that are due at even times [default: as fast as they are taken]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// Share of the events that go to one ad, percent; compared with none
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    hot: u64,
}

/// Events of a batch.
const BATCH: u64 = 5_000;
/// Connections that send at once.
const CLIENTS: u64 = 4;
/// Each ad group has 10 ads, each campaign 100, each advertiser 1,000.
const ADS: u64 = 10_000;
const USERS: u64 = 100_000;
/// The pause between two reads of the dashboard.
const DASHBOARD_PAUSE: Duration = Duration::from_millis(10);
/// The reads of the dashboard: the last hour by minute, and by country and device.
const DASHBOARD: [&str; 3] = [
    "/v1/ad_click/1/counts?unit=minute&units=60",
    "/v1/ad_click/1/by/country*device?unit=hour&units=1",
    "/v1/ratios/ctr/campaign/0?unit=hour&units=24",
];

/// The figures of all runs; each run has a server of its own.
#[derive(Default)]
struct Measured {
    rate: Vec<f64>,
    bytes_each: Vec<f64>,
    batches: Vec<Histogram<u64>>,
    visible: Vec<Histogram<u64>>,
    dashboard: Vec<Histogram<u64>>,
    /// Latencies of single events of other ads, and of reads of them.
    others: [Vec<Histogram<u64>>; 2],
    /// Bytes of memory of a remembered id that is in no run.
    id_bytes: Vec<f64>,
}

/// Runs the benchmark.
pub(crate) fn run(effort: &Effort, args: &EventsArgs) -> Result<Report> {
    let (mut measured, mut evenly) = (Measured::default(), Measured::default());
    let spread = EventsArgs {
        hot: 0,
        ..args.clone()
    };
    for _ in 0..effort.runs {
        if args.hot > 0 {
            run_once(effort, &spread, &mut evenly)?;
        }
        run_once(effort, args, &mut measured)?;
    }
    let mut report = Report::new("events");
    report.row("events", "event/s", &measured.rate);
    report.latency(&format!("a batch of {BATCH}"), &measured.batches);
    report.latency("acknowledged until visible", &measured.visible);
    report.latency("read of a dashboard meanwhile", &measured.dashboard);
    report.row("resident, an event", "bytes", &measured.bytes_each);
    report.row("remembered, a million ids", "MB", &measured.id_bytes);
    if args.hot > 0 {
        report.row("events spread evenly", "event/s", &evenly.rate);
        for (what, at) in [("event", 0), ("read", 1)] {
            let (hot, even) = (&measured.others[at], &evenly.others[at]);
            report.latency(&format!("{what} of another ad, spread evenly"), even);
            let what = format!("{what} of another ad, {} % on one", args.hot);
            report.latency(&what, hot);
            report.ratio(format!("{what}, p99 to evenly"), &p99(hot), &p99(even));
        }
    }
    Ok(report)
}

fn p99(runs: &[Histogram<u64>]) -> Vec<f64> {
    let p99 = |run: &Histogram<u64>| run.value_at_percentile(99.0) as f64;
    runs.iter().map(p99).collect()
}

fn run_once(effort: &Effort, args: &EventsArgs, measured: &mut Measured) -> Result<()> {
    let bodies = bodies(args);
    let directory = effort.directory()?;
    let server = effort.serve(directory.path(), &[])?;
    let url = format!("http://{}", server.address);
    let before = server.resident_bytes();
    let done = AtomicBool::new(false);
    let batches = Mutex::new(histogram()?);
    let began = Instant::now();
    let due = Due {
        bodies: &bodies,
        next: AtomicUsize::new(0),
        began,
        pause: args.rate.map(|rate| BATCH as f64 / rate as f64),
    };
    let (sent, seconds, dashboard, others) = thread::scope(|scope| {
        let send = || {
            let sent = send_all(&url, &due)?;
            let mut batches = batches.lock().unwrap_or_else(|error| error.into_inner());
            batches.add(&sent).context("cannot add latencies")
        };
        let dashboard = scope.spawn(|| ask_until(&url, &done));
        let others = scope.spawn(|| others_until(&url, &done));
        let senders: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(send)).collect();
        let sent: Result<Vec<()>> = senders
            .into_iter()
            .map(|sender| joined(sender.join()))
            .collect();
        let seconds = began.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        (
            sent,
            seconds,
            joined(dashboard.join()),
            joined(others.join()),
        )
    });
    sent?;
    measured.rate.push(args.events as f64 / seconds);
    let grown = server.resident_bytes().saturating_sub(before);
    measured.bytes_each.push(grown as f64 / args.events as f64);
    let ids = get(&agent(), &format!("{url}/v1/admin/status"))?["ids"].clone();
    if let (Some(count @ 1..), Some(bytes)) =
        (ids["in_memory"].as_u64(), ids["memory_bytes"].as_u64())
    {
        measured.id_bytes.push(bytes as f64 / count as f64);
    }
    let batches = batches.into_inner();
    measured
        .batches
        .push(batches.unwrap_or_else(|error| error.into_inner()));
    measured.dashboard.push(dashboard?);
    for (runs, run) in measured.others.iter_mut().zip(others?) {
        runs.push(run);
    }
    measured.visible.push(until_visible(&url)?);
    check(args, &url)
}

fn joined<T>(outcome: thread::Result<Result<T>>) -> Result<T> {
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Checks that every event was counted: the clicks and impressions of all advertisers together.
fn check(args: &EventsArgs, url: &str) -> Result<()> {
    let agent = agent();
    let mut counted = 0;
    for namespace in ["advertiser_click", "advertiser_impression"] {
        let top = get(
            &agent,
            &format!("{url}/v1/{namespace}/top?unit=day&units=2"),
        )?;
        counted += top["total"].as_u64().unwrap_or(0);
    }
    if counted == args.events {
        return Ok(());
    }
    bail!(
        "{} events were accepted, {counted} counted: this is a bug",
        args.events
    )
}

/// Makes all batches before anything is measured.
fn bodies(args: &EventsArgs) -> Vec<String> {
    let mut dice = Chance::new(0x5eed);
    let mut bodies = Vec::new();
    let mut number = 0;
    while number < args.events {
        let mut body = String::new();
        for _ in 0..BATCH.min(args.events - number) {
            number += 1;
            let hot = dice.below(100) < args.hot;
            let ad = if hot { 1 } else { dice.below(ADS) };
            let kind = if dice.below(20) == 0 {
                "click"
            } else {
                "impression"
            };
            let country = ["US", "DE", "JP", "BR", "IN", "FR", "GB", "-"][dice.below(8) as usize];
            let device = ["mobile", "desktop", "tablet", "other"][dice.below(4) as usize];
            let id = (dice.next(), dice.next());
            body.push_str(&format!(
                "{{\"id\":\"{:016x}{:016x}\",\"type\":\"{kind}\",\"entities\":{{\"ad\":\"{ad}\",\"ad_group\":\"{}\",\
                 \"campaign\":\"{}\",\"advertiser\":\"{}\"}},\"by\":{{\"country\":\"{country}\",\"device\":\"{device}\"}},\
                 \"user\":\"u{}\"}}\n",
                id.0,
                id.1,
                ad / 10,
                ad / 100,
                ad / 1_000,
                dice.below(USERS)
            ));
        }
        bodies.push(body);
    }
    bodies
}

/// The schedule of the batches.
struct Due<'b> {
    bodies: &'b [String],
    next: AtomicUsize,
    began: Instant,
    /// Seconds from one batch to the next; `None` sends each batch when the one before was answered.
    pause: Option<f64>,
}

impl Due<'_> {
    /// Returns the next batch when its time has come, with that time: latency counts from when the batch was due, not
    /// from when it could be sent.
    fn next(&self) -> Option<(&str, Instant)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let body = self.bodies.get(number)?;
        let Some(pause) = self.pause else {
            return Some((body, Instant::now()));
        };
        let due = self.began + Duration::from_secs_f64(pause * number as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        Some((body, due))
    }
}

fn send_all(url: &str, due: &Due<'_>) -> Result<Histogram<u64>> {
    let (agent, url) = (agent(), format!("{url}/v1/events"));
    let mut latencies = histogram()?;
    while let Some((body, began)) = due.next() {
        let accepted = post(&agent, &url, body)?["accepted"].as_u64();
        record(&mut latencies, began);
        if accepted != Some(body.lines().count() as u64) {
            bail!("not every event of a batch was new");
        }
    }
    Ok(latencies)
}

fn ask_until(url: &str, done: &AtomicBool) -> Result<Histogram<u64>> {
    let agent = agent();
    let mut latencies = histogram()?;
    while !done.load(Ordering::Relaxed) {
        for path in DASHBOARD {
            let began = Instant::now();
            get(&agent, &format!("{url}{path}"))?;
            record(&mut latencies, began);
        }
        thread::sleep(DASHBOARD_PAUSE);
    }
    Ok(latencies)
}

/// Counts single events of other ads, without an advertiser, and reads those ads.
fn others_until(url: &str, done: &AtomicBool) -> Result<[Histogram<u64>; 2]> {
    let (agent, mut dice) = (agent(), Chance::new(0x07e5));
    let (mut events, mut reads) = (histogram()?, histogram()?);
    while !done.load(Ordering::Relaxed) {
        let ad = 2 + dice.below(ADS);
        let id = format!("other-{:016x}", dice.next());
        let event = json!({"id": id, "type": "click", "entities": {"ad": ad.to_string()}});
        let began = Instant::now();
        post(&agent, &format!("{url}/v1/events"), &event.to_string())?;
        record(&mut events, began);
        let began = Instant::now();
        get(
            &agent,
            &format!("{url}/v1/ad_click/{ad}/counts?unit=minute&units=60"),
        )?;
        record(&mut reads, began);
        thread::sleep(DASHBOARD_PAUSE);
    }
    Ok([events, reads])
}

/// Measures from an acknowledgement to the end of the first read that shows the event.
fn until_visible(url: &str) -> Result<Histogram<u64>> {
    const PROBES: u64 = 200;
    let agent = agent();
    let mut latencies = histogram()?;
    for probe in 1..=PROBES {
        let event =
            json!({"id": format!("probe-{probe}"), "type": "click", "entities": {"ad": "probe"}});
        post(&agent, &format!("{url}/v1/events"), &event.to_string())?;
        let acknowledged = Instant::now();
        let path = format!("{url}/v1/ad_click/probe/summary?unit=day&units=2");
        while get(&agent, &path)?["total"].as_u64() != Some(probe) {}
        record(&mut latencies, acknowledged);
    }
    Ok(latencies)
}

fn record(latencies: &mut Histogram<u64>, began: Instant) {
    latencies.saturating_record(began.elapsed().as_nanos() as u64);
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .new_agent()
}

fn get(agent: &Agent, url: &str) -> Result<Value> {
    read(url, agent.get(url).call())
}

fn post(agent: &Agent, url: &str, body: &str) -> Result<Value> {
    let request = agent
        .post(url)
        .header("content-type", "application/x-ndjson");
    read(url, request.send(body))
}

fn read(
    url: &str,
    answer: std::result::Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Value> {
    let mut answer = answer.with_context(|| url.to_owned())?;
    let text = answer.body_mut().read_to_string()?;
    if !answer.status().is_success() {
        bail!("{url}: {text}");
    }
    Ok(serde_json::from_str(&text)?)
}
