//! `tallyring-bench actions`: questions of what users did, from memory and from files, against a plain handler; and
//! what it costs to keep actions.

pub(crate) mod crowd;
pub(crate) mod events;
mod files;
mod questions;
pub(crate) mod stand;

use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::effort::{Effort, unflushed};
use crate::load::Load;
use crate::report::Report;
use crate::server::ServerProcess;
use events::{EVENTS_A_BODY, Events};
use files::Files;
use questions::{CAP, Questions};
use stand::Stand;

/// Options of `tallyring-bench actions`.
#[derive(Args)]
#[command(after_help = "\
Servers that keep actions take events in turn with servers that do not. Nothing is flushed until all
questions to memory are asked. Then the server starts anew with reservations in its log, and is asked
for some. Then a month passes, with as many events, night by night as in
`nights`; the month is read from files before it closes and afterwards, with next to no cache.

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

/// Connections that send events at once.
const SENDERS: u64 = 4;
/// Bodies that each sender has ready before the time is taken.
const BODIES_READY: u64 = 100;
const HOUR: i64 = 3_600;
const KEPT: &str = "\
[events.click]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = [\"country\", \"device\", \"country*device\"]
actions = true
[events.impression]
entities = [\"ad\", \"ad_group\", \"campaign\", \"advertiser\"]
subtotals = [\"country\", \"device\", \"country*device\"]
actions = true
";
const LOGGED: &str = "
[actions]
reservations = \"log\"
";

/// Measures ingest with and without actions, then questions to memory, then files.
///
/// # Errors
/// When a server fails.
pub(crate) fn run(effort: &Effort, args: &ActionsArgs) -> Result<Report> {
    let mut report = Report::new("actions");
    let (mut without, mut with) = (Ingest::default(), Ingest::default());
    let (mut questions, mut files) = (Questions::default(), Files::default());
    let plain = ServerProcess::plain()?;
    let kept = format!("{KEPT}{CAP}{}", unflushed());
    let not_kept = KEPT.replace("actions = true", "actions = false") + &unflushed();
    for run in 0..effort.runs {
        let mut stand = if run % 2 == 0 {
            drop(without.measure(effort, &not_kept, args)?);
            with.measure(effort, &kept, args)?
        } else {
            let stand = with.measure(effort, &kept, args)?;
            drop(without.measure(effort, &not_kept, args)?);
            stand
        };
        questions.ask(effort, (&stand.server, &plain), args.users)?;
        stand.restart(effort, &format!("{kept}{LOGGED}"), None)?;
        stand.server.settle()?;
        questions.ask_logged(effort, (&stand.server, &plain), args.users)?;
        drop(stand);
        files.measure(
            effort,
            &format!("{KEPT}{CAP}"),
            args.users,
            args.users * args.each,
        )?;
    }
    report.row("events, actions not kept", "event/s", &without.rates);
    report.row("events, actions kept", "event/s", &with.rates);
    report.ratio("kept to not kept", &with.rates, &without.rates);
    let actions = (args.users * args.each) as f64;
    // Resident memory of two processes differs by more than actions: `crowd` has that of one.
    let both = with.counted.iter().zip(&without.counted);
    let counted: Vec<f64> = both
        .map(|(with, without)| (with - without) / actions)
        .collect();
    report.row(
        "memory of an action, as the server counts it",
        "bytes",
        &counted,
    );
    questions.report(&mut report);
    files.report(&mut report);
    Ok(report)
}

/// Figures of servers that took the same events.
#[derive(Default)]
struct Ingest {
    /// Events a second.
    rates: Vec<f64>,
    /// Bytes of memory, as the server counts it.
    counted: Vec<f64>,
}

impl Ingest {
    /// Starts a server and sends it all events. Returns the server, at rest.
    fn measure(&mut self, effort: &Effort, config: &str, args: &ActionsArgs) -> Result<Stand> {
        let stand = Stand::new(effort, config, None)?;
        let now = jiff::Timestamp::now().as_second();
        let bodies = (args.users * args.each).div_ceil(SENDERS * EVENTS_A_BODY);
        let senders = (0..SENDERS).map(|sender| Events::new(sender, args.users, now - HOUR..now));
        let mut senders: Vec<Events> = senders.collect();
        // Bodies are made before the time is taken: who makes them takes processor time from the server.
        let ready: Vec<Vec<Vec<u8>>> = senders
            .iter_mut()
            .map(|events| {
                events
                    .bodies()
                    .take(bodies.min(BODIES_READY) as usize)
                    .collect()
            })
            .collect();
        let began = Instant::now();
        Load::at_once(
            stand.server.address,
            ready.iter().map(|bodies| bodies.iter()),
        )?;
        let sent: usize = ready.iter().map(Vec::len).sum();
        let events = sent as f64 * EVENTS_A_BODY as f64;
        self.rates.push(events / began.elapsed().as_secs_f64());
        let rest = bodies.saturating_sub(BODIES_READY) as usize;
        let more = senders.iter_mut().map(|events| events.bodies().take(rest));
        Load::at_once(stand.server.address, more)?;
        stand.server.settle()?;
        self.counted
            .push(stand.server.metric("tallyring_delta_bytes")?);
        Ok(stand)
    }
}
