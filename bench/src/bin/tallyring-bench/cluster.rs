//! `tallyring-bench cluster`: nodes over a real log and a real bucket, beside a server of one machine. With several
//! strands the nodes write at once, and are measured together.

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use hdrhistogram::Histogram;

use crate::effort::Effort;
use crate::history::History;
use crate::load::{Load, Outcome, histogram, p99};
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;
use crate::undisturbed::asked_beside;

/// Options of `tallyring-bench cluster`.
#[derive(Args)]
#[command(after_help = "\
Needs a `tallyring` with the feature `cluster`, and engines that the environment names:
  eval \"$(tests/cluster/engines.sh start 3)\"
  tallyring-bench cluster --runs 3
  tests/cluster/engines.sh stop
`bench/cluster.sh` does all of it, and asks a producer of Kafka for as many messages.")]
pub(crate) struct ClusterArgs {
    /// Increments that a new node catches up with
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    records: u64,
    /// Rows of history that are loaded into the bucket beside increments
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    rows: u64,
    /// Strands of the store. Only what all nodes are sent at once is measured where there are several
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    strands: u64,
}

/// Nodes that share the store.
const NODES: usize = 3;
const CONNECTIONS: usize = 64;
const KEYS: u64 = 200_000;
/// Connections that send batches at once.
const SENDERS: usize = 8;
/// Different bodies of batches.
const BODIES: usize = 100;
/// Single increments a second beside a load.
const BESIDE_A_SECOND: f64 = 1_000.0;
/// Increments whose way to a follower is timed.
const SEEN: u64 = 500;
/// Nodes share strands out among themselves a minute after they have come, one after the other.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);

/// Measures a server of one machine, one node, three nodes, and a fourth that catches up. Fails where the environment
/// names no engines, and when a server fails.
pub(crate) fn run(effort: &Effort, args: &ClusterArgs) -> Result<Report> {
    let directory = effort.directory()?;
    let mut report = Report::new("cluster");
    if args.strands > 1 {
        let mut nodes = Nodes::begin(effort, directory.path(), args.strands)?;
        for _ in 0..NODES {
            nodes.add(effort)?;
        }
        nodes.share_writing(args.strands)?;
        together(effort, &nodes.servers, &mut report)?;
        return Ok(report);
    }
    let alone = effort.serve(&directory.path().join("alone"), &[])?;
    let beside = acknowledged(effort, &alone, "one machine", &mut report)?;
    batches(effort, &alone, "one machine", &mut report)?;
    drop(alone);
    let mut nodes = Nodes::begin(effort, directory.path(), 1)?;
    nodes.add(effort)?;
    let writer = nodes.writer()?;
    let one = acknowledged(effort, writer, "one node", &mut report)?;
    report.ratio("  to one machine", &one, &beside);
    batches(effort, writer, "one node", &mut report)?;
    for _ in 1..NODES {
        nodes.add(effort)?;
    }
    let writer = nodes.writer()?;
    let three = acknowledged(effort, writer, "three nodes, to the writer", &mut report)?;
    report.ratio("  to one machine", &three, &beside);
    let follower = nodes.follower()?;
    acknowledged(effort, follower, "three nodes, to another", &mut report)?;
    let lag = seen(writer, follower, "seen", SEEN)?;
    report.latency("an acknowledged increment on a follower", &[lag]);
    for count in 1..=nodes.servers.len() {
        let servers = &nodes.servers[..count];
        let rates = (0..effort.runs).map(|_| at_once(effort, servers, CONNECTIONS, &reads()));
        let rates: Vec<f64> = rates.collect::<Result<_>>()?;
        report.row(
            format!("reads of a key, {count} nodes together"),
            "req/s",
            &rates,
        );
    }
    together(effort, &nodes.servers, &mut report)?;
    batches(effort, nodes.writer()?, "three nodes", &mut report)?;
    caught_up(effort, &mut nodes, args.records, &mut report)?;
    loaded(effort, &nodes, args.rows, &mut report)?;
    Ok(report)
}

/// Adds how long a new node takes to catch up with so many increments, which are sent before.
fn caught_up(effort: &Effort, nodes: &mut Nodes, records: u64, report: &mut Report) -> Result<()> {
    let bodies = records.div_ceil(request::INCREMENTS_A_BODY);
    let began = Instant::now();
    Load::each_once(nodes.writer()?.address, bodies, request::batch_of_each)?;
    let filled = records as f64 / began.elapsed().as_secs_f64();
    report.row(
        "increments in batches of 1,000, one connection",
        "incr/s",
        &[filled],
    );
    let began = Instant::now();
    nodes.add(effort)?;
    let newest = nodes.servers.last().context("a node was added")?;
    seen(nodes.writer()?, newest, "last", 1)?;
    let took = began.elapsed().as_secs_f64();
    report.row(
        format!("a new node catches up with {records} increments"),
        "s",
        &[took],
    );
    Ok(())
}

/// Adds the rate of batches over several connections, and the processor time that the server takes for each.
fn batches(effort: &Effort, server: &ServerProcess, what: &str, report: &mut Report) -> Result<()> {
    let bodies = request::batches(KEYS, BODIES);
    let (mut rates, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let outcome = effort.ask(server, SENDERS, &bodies, None)?;
        rates.push(outcome.per_second);
        taken.push(outcome.processor_us / 1e3);
    }
    let what = format!("batches of 1,000, {SENDERS} connections, {what}");
    report.row(what, "batch/s", &rates);
    report.row("  processor time of each", "ms", &taken);
    Ok(())
}

/// Loads rows of history into the bucket, and adds how long that and the rebuild take, and what increments take at
/// rest and meanwhile.
fn loaded(effort: &Effort, nodes: &Nodes, rows: u64, report: &mut Report) -> Result<()> {
    let writer = nodes.writer()?;
    let is_writer = |server: &ServerProcess| server.address == writer.address;
    let number = nodes.servers.iter().position(is_writer);
    let (data, config) = nodes.of_node(number.context("a node of the store")? + 1);
    let file = nodes.directory.join("history.csv");
    History::of_2012(rows, false).write(&file)?;
    let (config, file) = (config.to_string_lossy(), file.to_string_lossy());
    let command = |arguments: &[&str]| {
        let arguments = [arguments, &["--config", &config]].concat();
        effort.command(&arguments, &data)
    };
    let increments = request::increments(KEYS);
    let ask = || -> Result<_> {
        let outcome = effort.ask(writer, CONNECTIONS, &increments, Some(BESIDE_A_SECOND))?;
        Ok(outcome.latency)
    };
    let at_rest = [ask()?];
    let began = Instant::now();
    let work = || {
        command(&["load", "history", &file])?;
        command(&["rebuild"])
    };
    let beside = [asked_beside(work, ask)?];
    let took = began.elapsed().as_secs_f64();
    let what = format!(
        "{} M rows load into the bucket and rebuild",
        rows as f64 / 1e6
    );
    report.row(what, "s", &[took]);
    report.latency("1,000 increments a second, at rest", &at_rest);
    report.latency("while they load", &beside);
    report.ratio("p99 beside to p99 at rest", &p99(&beside), &p99(&at_rest));
    Ok(())
}

/// Adds the rate of single increments that a server acknowledges, and their latency at half of it. Returns the rates.
fn acknowledged(
    effort: &Effort,
    server: &ServerProcess,
    what: &str,
    report: &mut Report,
) -> Result<Vec<f64>> {
    let increments = request::increments(KEYS);
    let ask = |rate| -> Result<Outcome> { effort.ask(server, CONNECTIONS, &increments, rate) };
    let (mut rates, mut paced) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let rate = ask(None)?.per_second;
        paced.push(ask(Some(rate / 2.0))?.latency);
        rates.push(rate);
    }
    report.row(format!("increments, {what}"), "req/s", &rates);
    report.latency("  at half the rate", &paced);
    Ok(rates)
}

/// How long after the answer of one node another one answers with an increment; `count` times, of a new key each.
fn seen(
    writer: &ServerProcess,
    follower: &ServerProcess,
    key: &str,
    count: u64,
) -> Result<Histogram<u64>> {
    let mut all = histogram()?;
    for number in 0..count {
        let counted = format!("http://{}/v1/incr?key.l={key}{number}", writer.address);
        let counted = ureq::post(counted);
        let counted = counted.send_empty()?;
        let position = counted.headers().get("tallyring-position");
        let position = position.context("no position")?.to_str()?.to_owned();
        let began = Instant::now();
        let url = format!(
            "http://{}/v1/l/{key}{number}/summary?unit=day&units=2&after={position}",
            follower.address
        );
        let text = ureq::get(url).call()?.body_mut().read_to_string()?;
        all.saturating_record(began.elapsed().as_nanos() as u64);
        let answer: serde_json::Value = serde_json::from_str(&text)?;
        if answer["total"] != 1 {
            bail!("a follower answered {text}");
        }
    }
    Ok(all)
}

/// Adds the rates of increments and of batches that all of these acknowledge at once. Increments without an id are
/// bound to no strand, so each node counts them in one that it writes. A batch with ids is divided among all strands.
fn together(effort: &Effort, servers: &[ServerProcess], report: &mut Report) -> Result<()> {
    let count = servers.len();
    let (increments, bodies) = (request::increments(KEYS), request::batches(KEYS, BODIES));
    let (mut rates, mut of_batches, mut with_ids) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..effort.runs {
        rates.push(at_once(effort, servers, CONNECTIONS / count, &increments)?);
        of_batches.push(at_once(effort, servers, SENDERS / count, &bodies)?);
        with_ids.push(batches_with_ids(servers, run.into())?);
    }
    let what = format!("increments, {count} nodes together");
    report.row(what, "req/s", &rates);
    let what = format!("batches of 1,000, {count} nodes together");
    report.row(what, "batch/s", &of_batches);
    let what = format!("batches of 1,000 with ids, {count} nodes together");
    report.row(what, "batch/s", &with_ids);
    Ok(())
}

/// Batches that all of these acknowledge in a second. No id came before: those of each run are others.
fn batches_with_ids(servers: &[ServerProcess], run: u64) -> Result<f64> {
    let connections = servers.len() * (SENDERS / servers.len());
    let began = Instant::now();
    thread::scope(|scope| {
        let sending = (0..connections).map(|connection| {
            let server = &servers[connection % servers.len()];
            let first = (run * SENDERS as u64 + connection as u64) * BODIES as u64;
            let bodies = first..first + BODIES as u64;
            scope.spawn(move || {
                let requests = bodies.map(request::batch_with_ids);
                Load::one_by_one(server.address, requests, |_| Ok(()))
            })
        });
        let sending: Vec<_> = sending.collect();
        let mut sent = sending.into_iter().map(|sending| sending.join());
        sent.try_for_each(|sent| sent.unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    Ok((connections * BODIES) as f64 / began.elapsed().as_secs_f64())
}

/// Reads of some keys.
fn reads() -> Vec<Vec<u8>> {
    let targets = (0..1_000).map(|key| format!("/v1/u/k{key}/counts?unit=day&units=2"));
    targets.map(|target| request::get(&target)).collect()
}

/// Requests that all of these answer in a second, at once.
fn at_once(
    effort: &Effort,
    servers: &[ServerProcess],
    connections: usize,
    requests: &[Vec<u8>],
) -> Result<f64> {
    thread::scope(|scope| {
        let asking = servers
            .iter()
            .map(|server| scope.spawn(|| effort.ask(server, connections, requests, None)));
        let asking: Vec<_> = asking.collect();
        let asked = asking.into_iter().map(|asking| {
            let outcome = asking.join();
            Ok(outcome
                .unwrap_or_else(|panic| resume_unwind(panic))?
                .per_second)
        });
        asked.sum()
    })
}

/// Nodes of one store that is made for the measurement.
struct Nodes {
    directory: PathBuf,
    /// The topic, and the part of the bucket.
    name: String,
    brokers: String,
    bucket: String,
    servers: Vec<ServerProcess>,
}

impl Nodes {
    /// Makes the store, with so many strands.
    fn begin(effort: &Effort, directory: &Path, strands: u64) -> Result<Self> {
        let named = |name: &str| {
            let advice = "start engines with `eval \"$(tests/cluster/engines.sh start)\"`";
            std::env::var(name).with_context(|| format!("the environment has no {name}; {advice}"))
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let nodes = Self {
            directory: directory.to_owned(),
            name: format!("bench-{}-{}", std::process::id(), now.as_millis()),
            brokers: named("TALLYRING_KAFKA")?,
            bucket: named("TALLYRING_S3")?,
            servers: Vec::new(),
        };
        let config = nodes.config(1)?;
        let mut init = effort.program()?;
        let made = init.args(["cluster", "init", "--strands", &strands.to_string()]);
        let made = made.arg("--config").arg(config);
        let made = made.stdin(Stdio::null()).output();
        let made = made.context("cannot run `tallyring cluster init`")?;
        if !made.status.success() {
            bail!("{}", String::from_utf8_lossy(&made.stderr));
        }
        Ok(nodes)
    }

    /// The directory and the configuration of a node.
    fn of_node(&self, number: usize) -> (PathBuf, PathBuf) {
        let file = |name: String| self.directory.join(name);
        (
            file(format!("node-{number}")),
            file(format!("node-{number}.toml")),
        )
    }

    /// Writes the configuration of a node.
    fn config(&self, number: usize) -> Result<PathBuf> {
        let (_, path) = self.of_node(number);
        let port = free_port()?;
        let brokers: Vec<_> = self
            .brokers
            .split(',')
            .map(|at| format!("\"{at}\""))
            .collect();
        let (brokers, bucket, name) = (brokers.join(", "), &self.bucket, &self.name);
        let text = format!(
            "listen = \"127.0.0.1:{port}\"\n[cluster]\nnode = \"{number}\"\naddress = \"http://127.0.0.1:{port}\"\n\
             log.kafka = [{brokers}]\nlog.topic = \"{name}\"\nfiles.s3 = \"{bucket}/{name}\"\n"
        );
        std::fs::write(&path, text).context("cannot write a configuration")?;
        Ok(path)
    }

    /// Starts one more node, and waits until it answers.
    fn add(&mut self, effort: &Effort) -> Result<()> {
        let number = self.servers.len() + 1;
        let (data, _) = self.of_node(number);
        let config = self.config(number)?;
        let mut command = effort.prepare(&["serve"], &data)?;
        let server = ServerProcess::start(command.arg("--config").arg(config))?;
        until("a node answers", || {
            let ready = ureq::get(format!("http://{}/readyz", server.address)).call();
            Ok(ready.is_ok().then_some(()))
        })?;
        self.servers.push(server);
        Ok(())
    }

    /// Waits until the nodes write as many strands each, but for one.
    fn share_writing(&self, strands: u64) -> Result<()> {
        let least = strands / self.servers.len() as u64;
        until("the nodes share the writing", || {
            for server in &self.servers {
                let status = server.status()?;
                let of_strands = status["cluster"]["strands"].as_array();
                let of_strands = of_strands.context("the store has no strands")?;
                let written = of_strands.iter().filter(|of| of["writes"] == true);
                if (written.count() as u64) < least {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// The node that writes.
    fn writer(&self) -> Result<&ServerProcess> {
        self.found(true)
    }

    /// A node that follows.
    fn follower(&self) -> Result<&ServerProcess> {
        self.found(false)
    }

    fn found(&self, writes: bool) -> Result<&ServerProcess> {
        until("a node writes", || {
            for server in &self.servers {
                if server.status()?["cluster"]["writes"] == writes {
                    return Ok(Some(server));
                }
            }
            Ok(None)
        })
    }
}

/// A port that is free now, for an address that other nodes are told.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// Looks until something is found. Fails after some minutes.
fn until<T>(what: &str, look: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(found) = look()? {
            return Ok(found);
        }
        thread::sleep(LOOK);
    }
    bail!("waited {PATIENCE:?}: {what}")
}
