//! Questions of what users did, each kind over few connections and over many, beside a plain handler.

use anyhow::Result;
use tallyring_bench::Chance;

use super::events::ADS;
use crate::effort::Effort;
use crate::load::{Load, Outcome};
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;

const CANDIDATES: u64 = 20;
/// Users that are asked about before questions come again. With few users their holds would pile up.
const USERS_ASKED: u64 = 100_000;
const CONNECTIONS: [usize; 2] = [16, 64];
/// A kind of questions: text, route, and users of a question.
type Kind = (&'static str, &'static str, u64);
const KINDS: [Kind; 4] = [
    ("one user, 20 candidates, 3 ranges", "query", 1),
    ("100 users, 20 candidates, 3 ranges", "query", 100),
    ("check of 20 candidates", "check", 1),
    ("reserve one of 20 candidates", "reserve", 1),
];
const LOGGED: Kind = ("reserve one of 20 candidates, in the log", "reserve", 1);
const HELD: &str = "tallyring_reservations_total{outcome=\"held\"}";
const BLOCKED: &str = "tallyring_reservations_total{outcome=\"blocked\"}";

/// The cap that checks and reservations apply.
pub(crate) const CAP: &str = "
[caps.ad_day]
entity = \"ad\"
action = \"impression\"
limit = 3
within = \"24h\"
";

/// Figures of all kinds of questions.
#[derive(Default)]
pub(crate) struct Questions {
    asked: Vec<Asked>,
    held: Vec<f64>,
}

/// Figures of one kind of question over so many connections.
#[derive(Default)]
struct Asked {
    what: String,
    users: u64,
    plain: Vec<f64>,
    rates: Vec<f64>,
    /// Requests a second that were told to come again: files are read by few at once.
    refused: Vec<f64>,
    p99: Vec<f64>,
    processor: Vec<f64>,
}

impl Questions {
    /// Asks a server and a plain handler about `of` users. Fails when one of them does.
    pub(crate) fn ask(
        &mut self,
        effort: &Effort,
        (server, plain): (&ServerProcess, &ServerProcess),
        of: u64,
    ) -> Result<()> {
        let mut dice = Chance::new(12);
        for kind in KINDS {
            self.ask_kind(effort, (server, plain), (kind, of), &mut dice)?;
        }
        let held = server.metric(HELD)?;
        let blocked = server.find_metric(BLOCKED)?.unwrap_or(0.0);
        self.held.push(held / (held + blocked));
        Ok(())
    }

    /// Asks a server that keeps reservations in its log for reservations of `of` users. Fails when one of them does.
    pub(crate) fn ask_logged(
        &mut self,
        effort: &Effort,
        servers: (&ServerProcess, &ServerProcess),
        of: u64,
    ) -> Result<()> {
        self.ask_kind(effort, servers, (LOGGED, of), &mut Chance::new(13))
    }

    fn ask_kind(
        &mut self,
        effort: &Effort,
        (server, plain): (&ServerProcess, &ServerProcess),
        ((what, path, users), of): (Kind, u64),
        dice: &mut Chance,
    ) -> Result<()> {
        let questions: Vec<Vec<u8>> = (0..USERS_ASKED / users)
            .map(|_| question(path, users, of, dice))
            .collect();
        for connections in CONNECTIONS {
            let bare = ask(effort, plain, connections, &questions, None)?;
            let outcome = ask(effort, server, connections, &questions, None)?;
            // A queue of waiting requests says nothing of a request: the latency is that at half the rate.
            let half = Some(outcome.per_second / 2.0);
            let calm = ask(effort, server, connections, &questions, half)?;
            let asked = self.asked(format!("{what}, {connections} connections"), users);
            asked.plain.push(bare.per_second * users as f64);
            asked.rates.push(outcome.per_second * users as f64);
            asked.refused.push(outcome.refused_per_second);
            asked.processor.push(outcome.processor_us / users as f64);
            asked.p99.push(calm.milliseconds(99.0));
        }
        Ok(())
    }

    fn asked(&mut self, what: String, users: u64) -> &mut Asked {
        let place = self.asked.iter().position(|asked| asked.what == what);
        let place = place.unwrap_or_else(|| {
            self.asked.push(Asked {
                what,
                users,
                ..Asked::default()
            });
            self.asked.len() - 1
        });
        &mut self.asked[place]
    }

    /// Adds a few rows for each kind.
    pub(crate) fn report(&self, report: &mut Report) {
        for asked in &self.asked {
            report.row(asked.what.as_str(), "user/s", &asked.rates);
            report.ratio(
                "  to a plain handler of as many requests",
                &asked.rates,
                &asked.plain,
            );
            if asked.refused.iter().any(|&refused| refused > 0.0) {
                report.row("  refused beside", "req/s", &asked.refused);
            }
            report.row("  p99 at half the rate", "ms", &asked.p99);
            let what = format!("  processor time, each of {} users", asked.users);
            report.row(what, "µs", &asked.processor);
        }
        report.row("reservations that held a candidate", "×", &self.held);
    }
}

fn ask(
    effort: &Effort,
    server: &ServerProcess,
    connections: usize,
    requests: &[Vec<u8>],
    rate: Option<f64>,
) -> Result<Outcome> {
    let load = Load {
        may_refuse: true,
        ..effort.load(server, connections, requests, rate)
    };
    load.run()
}

/// A question about random users, of `of` there are.
pub(crate) fn question(path: &str, users: u64, of: u64, dice: &mut Chance) -> Vec<u8> {
    let ads: Vec<u64> = (0..CANDIDATES).map(|_| dice.skewed(ADS)).collect();
    let body = match path {
        "check" | "reserve" => {
            let candidates: Vec<String> = ads
                .iter()
                .map(|ad| format!("{{\"ad\":\"{ad}\"}}"))
                .collect();
            // Holds end soon, so that they never fill their memory.
            let hold = if path == "reserve" {
                ",\"hold\":\"1s\""
            } else {
                ""
            };
            let (user, candidates) = (dice.below(of), candidates.join(","));
            format!("{{\"user\":\"u{user}\",\"candidates\":[{candidates}]{hold}}}")
        }
        _ => {
            let users: Vec<String> = (0..users)
                .map(|_| format!("\"u{}\"", dice.below(of)))
                .collect();
            about(&users.join(","), &ads)
        }
    };
    request::post(&format!("/v1/actions/{path}"), "application/json", &body)
}

/// A question about a user whom nobody knows.
pub(crate) fn about_a_stranger(dice: &mut Chance) -> Vec<u8> {
    let ads: Vec<u64> = (0..CANDIDATES).map(|_| dice.skewed(ADS)).collect();
    let user = format!("\"stranger{:x}\"", dice.next());
    request::post("/v1/actions/query", "application/json", &about(&user, &ads))
}

fn about(users: &str, ads: &[u64]) -> String {
    let ads: Vec<String> = ads.iter().map(|ad| format!("\"{ad}\"")).collect();
    let ads = ads.join(",");
    format!(
        "{{\"users\":[{users}],\"ranges\":[\"1h\",\"24h\",\"30d\"],\"action\":[\"impression\"],\"entity\":{{\"ad\":[{ads}]}}}}"
    )
}
