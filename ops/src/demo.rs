//! `tallyring demo`: a server with a generated year of history and live traffic, to look at.
//!
//! The history is a bulk dataset. The traffic of the last hours comes as increments and events, because history has no
//! minutes and no users; for the days before, a few events tell the users. Live traffic comes over HTTP, so nothing in
//! the server knows of the demonstration. One world (crate `tallyring-bench`) gives all of them, so the live counts
//! continue the history.

mod making;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tallyring_archive::names;
use tallyring_bench::{Traffic, World};

use crate::cli::{DataArgs, ServeArgs};
use crate::config::Config;
use crate::data_directory::{lock, open, server_of};
use crate::error::{Result, doing};
use crate::http_client::Server;
use crate::in_process::InProcess;
use crate::listen;
use crate::out::note;
use crate::progress::count_bar;
use crate::serve;

const HOUR_S: i64 = 3_600;
/// How many whole hours before the present one have minutes and users.
const RECENT_HOURS: i64 = 2;
/// How often the traffic looks whether the server answers.
const LOOK: Duration = Duration::from_millis(250);

/// Options of `demo`.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tallyring demo        then open http://127.0.0.1:7117/ in a browser"
)]
pub(crate) struct DemoArgs {
    /// Data directory, a new one or a demonstration's; history is made when there is none
    #[arg(long, value_name = "DIR", default_value = "tallyring-demo")]
    pub data: PathBuf,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:7117]
    #[arg(long, value_name = "ADDR", value_parser = listen::parse)]
    pub listen: Option<SocketAddr>,
    /// Days of history that are made
    #[arg(long, default_value_t = 366, value_parser = clap::value_parser!(u32).range(1..=3_660))]
    pub days: u32,
    /// How many times the usual traffic comes, also in history that is made now; 0 for none, after a usual history
    #[arg(long, default_value_t = 1.0, value_parser = parse_rate)]
    pub rate: f64,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "write a number such as 0.5")?;
    if (0.0..=100.0).contains(&rate) {
        Ok(rate)
    } else {
        Err("it must be from 0 to 100".into())
    }
}

/// Makes the history and the counts since then unless they are there, then serves with live traffic until it is
/// stopped. Fails as `load`, `rebuild` and `serve` do, and when the directory is a store that no demonstration made.
pub(crate) fn run(args: &DemoArgs, json: bool) -> Result<()> {
    let data = DataArgs {
        data: args.data.clone(),
        config: None,
    };
    making::claim(&args.data)?;
    // Older demonstrations have none.
    let caps = Some(args.data.join(names::DEMO_CAPS)).filter(|caps| caps.exists());
    let served = ServeArgs {
        data: DataArgs {
            config: caps,
            ..data.clone()
        },
        listen: args.listen,
        read_only: None,
        cache: None,
        cache_max: 0,
        clock: None,
        // The counts are made up, so nothing is lost by a jump of the clock.
        trust_clock: true,
    };
    // Making a history takes a while, so a taken port is reported before it.
    let listener = serve::bind(&served)?;
    let world = World::generate();
    let now = jiff::Timestamp::now().as_second();
    let this_hour = now - now.rem_euclid(HOUR_S);
    let has_traffic = args.rate > 0.0;
    let (recent, busy) = match has_traffic {
        true => (RECENT_HOURS, args.rate),
        false => (0, 1.0),
    };
    let history_end = this_hour - recent * HOUR_S;
    making::make_history(&world, &data, (args.days, history_end, busy), json)?;
    if has_traffic {
        let traffic = catch_up(world, &data, (history_end, args.rate))?;
        let directory = args.data.clone();
        thread::Builder::new()
            .name("demo".into())
            .spawn(move || send(traffic, &directory))
            .map_err(doing("start the traffic"))?;
    }
    note!("the counts are made up; Ctrl-C stops, the same command continues");
    note!(
        "of ads there are users, too: the page of ad 42 leads to its reach, and /people shows what u1 did"
    );
    serve::run(Some(listener), &served, json)
}

/// Counts the traffic since the history ended or the demonstration was stopped, as far as minutes are kept.
fn catch_up(world: World, data: &DataArgs, (history_end, rate): (i64, f64)) -> Result<Traffic> {
    let config = Config::for_command(None, &data.data)?;
    let lock = lock(&data.data)?;
    let store = open(&data.data, &config, &lock)?;
    let api = InProcess::over(store)?;
    // Counting ended in an hour of the history, which has no minutes, or in a minute of the traffic.
    let hour = end_of_counts(&api, ("hour", HOUR_S), history_end)?;
    // The API refuses minutes where a history that was made without traffic reaches into the range.
    let minute = end_of_counts(&api, ("minute", 60), history_end).unwrap_or(hour);
    let from = if minute > hour - HOUR_S { minute } else { hour };
    let mut traffic = Traffic::new(world, from, rate);
    let bar = count_bar(
        "counting the last hours",
        "minutes",
        traffic.minutes_behind(),
    );
    while traffic.minutes_behind() > 0 {
        traffic.send_minute(|route, items| api.post(route, items).map(drop))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    api.stop()?;
    Ok(traffic)
}

/// Sends live traffic to the server of this process until the process ends.
fn send(traffic: Traffic, data: &Path) {
    let url = loop {
        thread::sleep(LOOK);
        if let Some(url) = server_of(data) {
            break url;
        }
    };
    let server = Server::of(data, &url);
    traffic.run(|route, items| {
        // A server that is busy or stopping loses these items; the next ones are sent all the same.
        let _ = server.post_json(route, &items);
    });
}

/// Returns the end of the last unit since `since` in which an ad with constant traffic was counted, else `since`.
fn end_of_counts(api: &InProcess, (unit, seconds): (&str, i64), since: i64) -> Result<i64> {
    let path = format!("/v1/ad_impression/42/counts?unit={unit}&from={since}");
    let answer: Value = serde_json::from_str(&api.get(&path)?)?;
    let counts = answer["counts"].as_array().map_or(&[][..], Vec::as_slice);
    let counted = counts.iter().rposition(|row| row["count"] != 0);
    let units = counted.map_or(0, |last| last + 1);
    Ok(since + seconds * i64::try_from(units).unwrap_or(0))
}
