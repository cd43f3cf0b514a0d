//! `tallyring demo`: a server with a generated year of history and live traffic, to look at.
//!
//! The history is loaded as a bulk dataset like any other, what came in the last hours is counted click by click
//! (minutes and users know no other way), and the traffic goes over HTTP: nothing in the server knows that it is a
//! demonstration. The same world gives all of them, so the live counts go on where the others end.

mod chance;
mod history;
mod making;
mod traffic;
mod world;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

use clap::Args;
use serde_json::Value;

use crate::cli::{DataArgs, ServeArgs};
use crate::config::Config;
use crate::data_directory::{lock, open};
use crate::error::{Result, doing};
use crate::in_process::InProcess;
use crate::listen;
use crate::out::note;
use crate::serve;
use traffic::Traffic;
use world::World;

const HOUR_S: i64 = 3_600;
/// Whole hours before this one that are counted click by click.
const RECENT_HOURS: i64 = 2;

/// Options of `demo`.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tallyring demo        then open http://127.0.0.1:7117/ in a browser"
)]
pub struct DemoArgs {
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

fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "write a number such as 0.5")?;
    if (0.0..=100.0).contains(&rate) {
        Ok(rate)
    } else {
        Err("it must be from 0 to 100".into())
    }
}

/// Makes the history unless it is there and what came since, then serves with live traffic until it is stopped.
///
/// # Errors
/// As `load`, `rebuild` and `serve`; when the directory is a store that no demonstration made.
pub fn run(args: &DemoArgs, json: bool) -> Result<()> {
    let data = DataArgs {
        data: args.data.clone(),
        config: None,
    };
    let served = ServeArgs {
        data: data.clone(),
        listen: args.listen,
        clock: None,
        // Its counts are made up, also for the days that nobody looked at it.
        trust_clock: true,
    };
    making::claim(&args.data)?;
    // A history takes a while, after which nobody wants to hear that the port is taken.
    let listener = serve::bind(&served)?;
    let world = World::generate();
    let now = jiff::Timestamp::now().as_second();
    let this_hour = now - now.rem_euclid(HOUR_S);
    let recent = if args.rate > 0.0 { RECENT_HOURS } else { 0 };
    let history_end = this_hour - recent * HOUR_S;
    let busy = if args.rate > 0.0 { args.rate } else { 1.0 };
    making::make_history(&world, &data, (args.days, history_end, busy), json)?;
    if args.rate > 0.0 {
        let traffic = catch_up(world, &data, (history_end, args.rate))?;
        let directory = args.data.clone();
        thread::Builder::new()
            .name("demo".into())
            .spawn(move || traffic.run(&directory))
            .map_err(doing("start the traffic"))?;
    }
    note!("the counts are made up; Ctrl-C stops, the same command goes on");
    serve::run_on(Some(listener), &served, json)
}

/// Counts what came since the history ended or the demonstration was stopped, if that was not long ago.
fn catch_up(world: World, data: &DataArgs, (history_end, rate): (i64, f64)) -> Result<Traffic> {
    let config = Config::for_command(None, &data.data)?;
    let lock = lock(&data.data)?;
    let store = open(&data.data, &config, &lock)?;
    let api = InProcess::over(store)?;
    // Where counting ended: in an hour of the history, which has no minutes, or in a minute of the traffic.
    let hour = end_of_counts(&api, ("hour", HOUR_S), history_end)?;
    // Refused where the history, then made without traffic, reaches into what is asked for: hours have no minutes.
    let minute = end_of_counts(&api, ("minute", 60), history_end).unwrap_or(hour);
    let from = if minute > hour - HOUR_S { minute } else { hour };
    let mut traffic = Traffic::new(world, from, rate);
    traffic.catch_up(&api)?;
    api.stop()?;
    Ok(traffic)
}

/// The end of the last unit from `since` on in which an ad that is always seen was counted; `since` if there is none.
fn end_of_counts(api: &InProcess, (unit, seconds): (&str, i64), since: i64) -> Result<i64> {
    let path = format!("/v1/ad_impression/42/counts?unit={unit}&from={since}");
    let answer: Value = serde_json::from_str(&api.get(&path)?)?;
    let counts = answer["counts"].as_array().map_or(&[][..], Vec::as_slice);
    let counted = counts.iter().rposition(|row| row["count"] != 0);
    let units = counted.map_or(0, |last| last + 1);
    Ok(since + seconds * i64::try_from(units).unwrap_or(0))
}
