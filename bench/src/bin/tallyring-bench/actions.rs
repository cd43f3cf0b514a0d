//! `tallyring-bench actions`: questions of what users did, from memory and from files, against a plain handler; and
//! what it costs to keep actions.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use tallyring_bench::Chance;

use crate::effort::Effort;
use crate::load::{Load, Outcome, histogram};
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

/// Options of `tallyring-bench actions`.
#[derive(Args)]
#[command(after_help = "\
Half of the servers keep actions, in turn with servers that do not. Events of today stay in memory;
those of 30 days before, as many again, are exported and merged before the server starts anew.

Example:
  tallyring-bench actions --users 1000000 --each 30 --runs 1")]
pub(crate) struct ActionsArgs {
    /// Users
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    users: u64,
    /// Actions of each user, on average
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    each: u64,
}

const ADS: u64 = 10_000;
const DAY: i64 = 86_400;
/// Users, and candidates, of a question with many users.
const MANY_USERS: u64 = 100;
const CANDIDATES: u64 = 20;
const QUESTIONS: usize = 2_000;
const CONNECTIONS: usize = 32;
/// Where actions are not kept.
const WITHOUT: &str = "\
[events.click]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = [\"country\", \"device\", \"country*device\"]
actions = false
[events.impression]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = [\"country\", \"device\", \"country*device\"]
actions = false
";
const WITH: &str = "
[caps.ad_day]
entity = \"ad\"
action = \"impression\"
limit = 3
within = \"24h\"
";

/// Measures ingest with and without actions, then questions.
///
/// # Errors
/// When a server fails.
pub(crate) fn run(effort: &Effort, args: &ActionsArgs) -> Result<Report> {
    let mut report = Report::new("actions");
    let mut figures = Figures::default();
    let plain = ServerProcess::plain()?;
    for _ in 0..effort.runs {
        let without = Stand::new(effort, WITHOUT)?;
        figures.without.push(without.fill(args, 0)?);
        let bare = without.server.resident_bytes();
        drop(without);
        let mut stand = Stand::new(
            effort,
            &WITHOUT.replace("actions = false", "actions = true"),
        )?;
        figures.with.push(stand.fill(args, 0)?);
        let grown = stand.server.resident_bytes().saturating_sub(bare);
        let actions = (args.users * args.each) as f64;
        figures.bytes.push(grown as f64 / actions);
        figures.ask(effort, args, (&stand.server, &plain))?;
        stand.fill(args, 30)?;
        stand.archive(effort)?;
        figures.disk.push(stand.disk_bytes()? / actions);
        figures.cold(&stand.server, args)?;
    }
    figures.report(&mut report);
    Ok(report)
}

/// A server, its directory and its configuration.
struct Stand {
    directory: tempfile::TempDir,
    server: ServerProcess,
}

impl Stand {
    fn new(effort: &Effort, config: &str) -> Result<Self> {
        let directory = effort.directory()?;
        let config = format!("{config}{}", if config == WITHOUT { "" } else { WITH });
        std::fs::write(directory.path().join("bench.toml"), config)
            .context("cannot write a configuration")?;
        let server = serve(effort, directory.path())?;
        Ok(Self { directory, server })
    }

    /// Sends the actions of all users, spread over today or the days before. Returns events a second.
    fn fill(&self, args: &ActionsArgs, days: i64) -> Result<f64> {
        let mut dice = Chance::new(11 + days as u64);
        let now = jiff::Timestamp::now().as_second();
        let events = args.users * args.each;
        let began = Instant::now();
        Load::each_once(
            self.server.address,
            events.div_ceil(EVENTS_A_BODY),
            |number| body(number, args.users, (now, days), &mut dice),
        )?;
        Ok(events as f64 / began.elapsed().as_secs_f64())
    }

    /// Exports and merges everything, and starts the server anew.
    fn archive(&mut self, effort: &Effort) -> Result<()> {
        let data = self.directory.path();
        std::mem::replace(
            &mut self.server,
            ServerProcess::elsewhere(([127, 0, 0, 1], 1).into()),
        )
        .kill();
        let config = data.join("bench.toml");
        effort.command(&["rebuild", "--config", &config.to_string_lossy()], data)?;
        self.server = serve(effort, data)?;
        Ok(())
    }

    /// Bytes of the lines of actions in the archive, as they are compressed there.
    fn disk_bytes(&self) -> Result<f64> {
        let files = std::fs::read_dir(self.directory.path().join("archive"))
            .context("cannot list the archive")?;
        let bytes = files.map(|file| Ok(file?.metadata()?.len()));
        Ok(bytes.sum::<Result<u64>>()? as f64)
    }
}

fn serve(effort: &Effort, data: &Path) -> Result<ServerProcess> {
    let config = data.join("bench.toml");
    effort.serve(data, &["--config", &config.to_string_lossy()])
}

#[derive(Default)]
struct Figures {
    with: Vec<f64>,
    without: Vec<f64>,
    bytes: Vec<f64>,
    disk: Vec<f64>,
    asked: Vec<Asked>,
    cold: Vec<hdrhistogram::Histogram<u64>>,
}

/// Figures of one kind of question.
struct Asked {
    what: &'static str,
    users: f64,
    plain: Vec<f64>,
    rates: Vec<f64>,
    p99: Vec<f64>,
    processor: Vec<f64>,
}

impl Figures {
    fn ask(
        &mut self,
        effort: &Effort,
        args: &ActionsArgs,
        (server, plain): (&ServerProcess, &ServerProcess),
    ) -> Result<()> {
        let mut dice = Chance::new(12);
        let kinds: [(&str, u64, &str); 4] = [
            ("one user, 20 candidates, 3 ranges", 1, "query"),
            ("100 users, 20 candidates, 3 ranges", MANY_USERS, "query"),
            ("check of 20 candidates", 1, "check"),
            ("reserve one of 20 candidates", 1, "reserve"),
        ];
        for (what, users, path) in kinds {
            let questions: Vec<Vec<u8>> = (0..QUESTIONS)
                .map(|_| question(path, users, args.users, &mut dice))
                .collect();
            let bare: Outcome = effort.ask(plain, CONNECTIONS, &questions, None)?;
            let outcome = effort.ask(server, CONNECTIONS, &questions, None)?;
            let place = self.asked.iter().position(|asked| asked.what == what);
            let place = place.unwrap_or_else(|| {
                self.asked.push(Asked {
                    what,
                    users: users as f64,
                    plain: Vec::new(),
                    rates: Vec::new(),
                    p99: Vec::new(),
                    processor: Vec::new(),
                });
                self.asked.len() - 1
            });
            let asked = &mut self.asked[place];
            asked.plain.push(bare.per_second * users as f64);
            asked.rates.push(outcome.per_second * users as f64);
            asked.processor.push(outcome.processor_us / users as f64);
            // A queue of waiting requests says nothing of a request: the latency is that at half the rate.
            let calm = effort.ask(
                server,
                CONNECTIONS,
                &questions,
                Some(outcome.per_second / 2.0),
            )?;
            asked.p99.push(calm.milliseconds(99.0));
        }
        Ok(())
    }

    /// Asks for users that nobody asked for since the start of the server.
    fn cold(&mut self, server: &ServerProcess, args: &ActionsArgs) -> Result<()> {
        let mut latencies = histogram()?;
        let mut dice = Chance::new(13);
        for _ in 0..1_000 {
            let question = question("query", 1, args.users, &mut dice);
            let began = Instant::now();
            Load::each_once(server.address, 1, |_| question.clone())?;
            latencies
                .record(began.elapsed().as_nanos() as u64)
                .context("a latency")?;
        }
        self.cold.push(latencies);
        Ok(())
    }

    fn report(&self, report: &mut Report) {
        report.row("events, actions not kept", "event/s", &self.without);
        report.row("events, actions kept", "event/s", &self.with);
        report.ratio("kept to not kept", &self.with, &self.without);
        report.row("memory of an action", "bytes", &self.bytes);
        report.row("archive, an action with its counts", "bytes", &self.disk);
        for asked in &self.asked {
            report.row(asked.what, "user/s", &asked.rates);
            report.ratio(
                "  to a plain handler of as many requests",
                &asked.rates,
                &asked.plain,
            );
            report.row("  p99 at half the rate", "ms", &asked.p99);
            report.row(
                format!("  processor time, each of {} users", asked.users),
                "µs",
                &asked.processor,
            );
        }
        report.latency("one user, 30 days from files, one at a time", &self.cold);
    }
}

const EVENTS_A_BODY: u64 = 1_000;

/// A body of events.
fn body(number: u64, users: u64, (now, days): (i64, i64), dice: &mut Chance) -> Vec<u8> {
    let mut body = String::new();
    for event in 0..EVENTS_A_BODY {
        let (ad, user) = (dice.skewed(ADS), dice.below(users));
        let kind = if dice.below(20) == 0 {
            "click"
        } else {
            "impression"
        };
        let at = match days {
            0 => now - dice.below(3_600) as i64,
            days => now - DAY - dice.below((days * DAY - 2 * DAY) as u64) as i64,
        };
        body.push_str(&format!(
            "{{\"id\":\"{days}-{number}-{event}\",\"type\":\"{kind}\",\"at\":{at},\"entities\":{{\"ad\":\"{ad}\",\"ad_group\":\"{}\",\
             \"campaign\":\"{}\",\"advertiser\":\"{}\"}},\"by\":{{\"country\":\"{}\",\"device\":\"mobile\"}},\"user\":\"u{user}\",\
             \"view\":\"home\",\"insertion\":\"{:x}\"}}\n",
            ad / 10,
            ad / 100,
            ad / 1_000,
            request::COUNTRIES[dice.skewed(16) as usize],
            dice.next(),
        ));
    }
    request::post("/v1/events", "application/x-ndjson", &body)
}

/// A question about random users.
fn question(path: &str, users: u64, of: u64, dice: &mut Chance) -> Vec<u8> {
    let ads: Vec<u64> = (0..CANDIDATES).map(|_| dice.skewed(ADS)).collect();
    let body = match path {
        "check" | "reserve" => {
            let candidates: Vec<String> = ads
                .iter()
                .map(|ad| format!("{{\"ad\":\"{ad}\"}}"))
                .collect();
            // Holds end soon, so that they never fill their memory.
            let hold = match path {
                "reserve" => ",\"hold\":\"1s\"",
                _ => "",
            };
            format!(
                "{{\"user\":\"u{}\",\"candidates\":[{}]{hold}}}",
                dice.below(of),
                candidates.join(",")
            )
        }
        _ => {
            let users: Vec<String> = (0..users)
                .map(|_| format!("\"u{}\"", dice.below(of)))
                .collect();
            let ads: Vec<String> = ads.iter().map(|ad| format!("\"{ad}\"")).collect();
            format!(
                "{{\"users\":[{}],\"ranges\":[\"1h\",\"24h\",\"30d\"],\"action\":[\"impression\"],\"entity\":{{\"ad\":[{}]}}}}",
                users.join(","),
                ads.join(","),
            )
        }
    };
    request::post(&format!("/v1/actions/{path}"), "application/json", &body)
}
