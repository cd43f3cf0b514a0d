//! `tallyring bench events`: how many events with distinct ids a second, how soon each is seen, and
//! what a dashboard waits meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use ureq::Agent;

use super::report::{Latencies, Runs};
use super::server::BenchServer;
use crate::error::{CommandError, Result};

/// Options of `bench events`.
#[derive(Args)]
pub struct EventsArgs {
    /// Events of a run
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1_000..=50_000_000))]
    events: u64,
    /// Events of a batch
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Connections that send at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    clients: u64,
    /// Ads; each ad group has 10 of them, each campaign 100, each advertiser 1,000
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    ads: u64,
    /// Users
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    users: u64,
    /// Share of the events that go to one ad, percent
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    hot: u64,
    /// Runs, each with a server of its own
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
}

/// How often the dashboard asks while events come in.
const DASHBOARD_PAUSE: Duration = Duration::from_millis(10);
/// Reads of the dashboard: the last hour by minute, and by country and device.
const DASHBOARD: [&str; 3] = [
    "/v1/ad_click/1/counts?unit=minute&units=60",
    "/v1/ad_click/1/by/country*device?unit=hour&units=1",
    "/v1/ratios/ctr/campaign/0?unit=hour&units=24",
];

/// What all runs gave.
#[derive(Default)]
struct Measured {
    rate: Runs,
    bytes_each: Runs,
    batches: Latencies,
    visible: Latencies,
    dashboard: Latencies,
}

/// Runs the benchmark and prints its result.
///
/// # Errors
/// When a server cannot be started or refuses.
pub fn run(args: &EventsArgs, json: bool) -> Result<()> {
    let mut measured = Measured::default();
    for run in 0..args.runs {
        eprintln!("run {} of {}", run + 1, args.runs);
        run_once(args, &mut measured)?;
    }
    if json {
        let result = json!({
            "events": args.events, "batch": args.batch, "clients": args.clients, "hot_percent": args.hot,
            "events_per_second": measured.rate.json(),
            "resident_bytes_per_event": measured.bytes_each.json(),
            "batch_latency": measured.batches.json(),
            "acknowledgement_to_visible": measured.visible.json(),
            "dashboard_read": measured.dashboard.json(),
        });
        println!("{result}");
        return Ok(());
    }
    println!("events a second      {}", measured.rate.text());
    println!("batch of {:<11} {}", args.batch, measured.batches.text());
    println!("until it is visible  {}", measured.visible.text());
    println!("dashboard read       {}", measured.dashboard.text());
    println!("memory, MB/million   {}", measured.bytes_each.text());
    Ok(())
}

fn run_once(args: &EventsArgs, measured: &mut Measured) -> Result<()> {
    let bodies = bodies(args);
    let server = BenchServer::start()?;
    let before = server.resident_bytes();
    let (next, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let batches = Mutex::new(Latencies::default());
    let began = Instant::now();
    let (sent, seconds, dashboard) = thread::scope(|scope| {
        let send = || {
            let sent = send_all(&server.url, &bodies, &next)?;
            batches
                .lock()
                .unwrap_or_else(|error| error.into_inner())
                .add(&sent);
            Ok(())
        };
        let dashboard = scope.spawn(|| ask_until(&server.url, &done));
        let senders: Vec<_> = (0..args.clients).map(|_| scope.spawn(send)).collect();
        let sent: Result<Vec<()>> = senders
            .into_iter()
            .map(|sender| joined(sender.join()))
            .collect();
        let seconds = began.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        (sent, seconds, joined(dashboard.join()))
    });
    sent?;
    measured.rate.push(args.events as f64 / seconds);
    if let (Some(before), Some(after)) = (before, server.resident_bytes()) {
        measured
            .bytes_each
            .push(after.saturating_sub(before) as f64 / args.events as f64);
    }
    measured.batches.add(
        &batches
            .into_inner()
            .unwrap_or_else(|error| error.into_inner()),
    );
    measured.dashboard.add(&dashboard?);
    measured.visible.add(&until_visible(&server.url)?);
    check(args, &server.url)
}

fn joined<T>(outcome: thread::Result<Result<T>>) -> Result<T> {
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Every event was counted: the clicks and impressions of all advertisers together.
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
    Err(CommandError::Failed(format!(
        "{} events were accepted, {counted} counted: this is a bug",
        args.events
    )))
}

/// Batches of events from now on, made before anything is measured.
fn bodies(args: &EventsArgs) -> Vec<String> {
    let mut random = Random(0x5eed);
    let mut bodies = Vec::new();
    let mut number = 0;
    while number < args.events {
        let mut body = String::new();
        for _ in 0..args.batch.min(args.events - number) {
            number += 1;
            let hot = random.below(100) < args.hot;
            let ad = if hot { 1 } else { random.below(args.ads) };
            let kind = if random.below(20) == 0 {
                "click"
            } else {
                "impression"
            };
            let country = ["US", "DE", "JP", "BR", "IN", "FR", "GB", "-"][random.below(8) as usize];
            let device = ["mobile", "desktop", "tablet", "other"][random.below(4) as usize];
            let id = (random.bits(), random.bits());
            body.push_str(&format!(
                "{{\"id\":\"{:016x}{:016x}\",\"type\":\"{kind}\",\"entities\":{{\"ad\":\"{ad}\",\"ad_group\":\"{}\",\
                 \"campaign\":\"{}\",\"advertiser\":\"{}\"}},\"by\":{{\"country\":\"{country}\",\"device\":\"{device}\"}},\
                 \"user\":\"u{}\"}}\n",
                id.0,
                id.1,
                ad / 10,
                ad / 100,
                ad / 1_000,
                random.below(args.users)
            ));
        }
        bodies.push(body);
    }
    bodies
}

fn send_all(url: &str, bodies: &[String], next: &AtomicUsize) -> Result<Latencies> {
    let (agent, url) = (agent(), format!("{url}/v1/events"));
    let mut latencies = Latencies::default();
    while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
        let began = Instant::now();
        let accepted = post(&agent, &url, body)?["accepted"].as_u64();
        latencies.record(began.elapsed());
        if accepted != Some(body.lines().count() as u64) {
            return Err(CommandError::Failed(
                "not every event of a batch was new".into(),
            ));
        }
    }
    Ok(latencies)
}

fn ask_until(url: &str, done: &AtomicBool) -> Result<Latencies> {
    let agent = agent();
    let mut latencies = Latencies::default();
    while !done.load(Ordering::Relaxed) {
        for path in DASHBOARD {
            let began = Instant::now();
            get(&agent, &format!("{url}{path}"))?;
            latencies.record(began.elapsed());
        }
        thread::sleep(DASHBOARD_PAUSE);
    }
    Ok(latencies)
}

/// From an acknowledgement to the end of the first read that shows the event.
fn until_visible(url: &str) -> Result<Latencies> {
    const PROBES: u64 = 200;
    let agent = agent();
    let mut latencies = Latencies::default();
    for probe in 1..=PROBES {
        let event =
            json!({"id": format!("probe-{probe}"), "type": "click", "entities": {"ad": "probe"}});
        post(&agent, &format!("{url}/v1/events"), &event.to_string())?;
        let acknowledged = Instant::now();
        let path = format!("{url}/v1/ad_click/probe/summary?unit=day&units=2");
        while get(&agent, &path)?["total"].as_u64() != Some(probe) {}
        latencies.record(acknowledged.elapsed());
    }
    Ok(latencies)
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
    let failed = |error: ureq::Error| CommandError::Failed(format!("{url}: {error}"));
    let mut answer = answer.map_err(failed)?;
    let text = answer.body_mut().read_to_string().map_err(failed)?;
    if !answer.status().is_success() {
        return Err(CommandError::Failed(format!("{url}: {text}")));
    }
    Ok(serde_json::from_str(&text)?)
}

/// SplitMix64: the same events in every run.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }
}
