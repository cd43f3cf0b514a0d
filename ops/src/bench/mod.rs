//! `tallyring bench …`: what the machine gives and what is made of it, measured in the same run.
//!
//! Every server under test is a process of its own on a temporary directory, so that its memory and its end can
//! be measured too. Machines differ and are shared: figures are compared with an empty handler or the disk,
//! measured in turn with them, and every run's figure is kept.

mod batches;
mod child;
mod cold;
mod events;
mod history;
mod hot;
mod increments;
mod latency;
mod load;
mod memory;
mod overload;
mod peer;
mod reads;
mod rebuild;
mod report;
mod request;
mod restart;
mod shards;
mod undisturbed;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tempfile::TempDir;

use crate::error::{Result, doing};
use events::EventsArgs;
use peer::PeerArgs;
use rebuild::RebuildArgs;

/// Options of `bench`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring bench increments                increments against an empty handler
  tallyring bench reads --runs 3 --output json
  tallyring bench memory --keys 10000000    bytes a live counter")]
pub struct BenchArgs {
    #[command(flatten)]
    effort: Effort,
    #[command(subcommand)]
    which: Which,
}

/// How much is measured, and where.
#[derive(Args)]
pub struct Effort {
    /// Runs of each measurement; the median is shown first
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Seconds of each run
    #[arg(long, global = true, default_value_t = 3.0)]
    seconds: f64,
    /// Where data goes, on the disk that is to be measured [default: the system's temporary directory]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What is measured.
#[derive(Subcommand)]
enum Which {
    /// Single durable increments over 64 connections
    Increments,
    /// Batches of 1,000 increments as NDJSON
    Batches,
    /// Latency of durable increments at half the rate that saturates
    Latency,
    /// Reads of one key's 30 days in a zone, a breakdown, and both while increments come
    Reads,
    /// Reads of 100 keys at once against the same one by one
    Query,
    /// Blocks that the first read of a key takes
    Cold,
    /// Batches and reads over 1 to 16 shards and 10,000 to 10 million keys
    Shards,
    /// Ten times as many clients as there are places, 10,000 idle connections, and the load afterwards
    Overload,
    /// Increments on one key against increments on many
    Hot,
    /// Resident memory a live counter
    Memory {
        /// Keys that are counted, each a total and two subtotals
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
    },
    /// Time to ready after kill -9 with increments that are in the log only
    Restart {
        /// Increments in the log
        #[arg(long, default_value_t = 10_000_000)]
        increments: u64,
    },
    /// History in bulk to a published archive, against GNU sort and other programs
    Rebuild(RebuildArgs),
    /// Reads while history loads and rebuilds beside them
    Undisturbed {
        /// Rows that are loaded
        #[arg(long, default_value_t = 20_000_000)]
        rows: u64,
    },
    /// Events with distinct ids in batches, with dedup, minutes and uniques on
    Events(EventsArgs),
    /// Requests of a file to any server, as ops/bench/peers.py does for other programs
    Load(PeerArgs),
    #[command(hide = true)]
    EmptyServer,
}

/// Runs one benchmark and prints its figures.
///
/// # Errors
/// When a server does not start, fails or answers with an error.
pub fn run(args: &BenchArgs, json: bool) -> Result<()> {
    let effort = &args.effort;
    let report = match &args.which {
        Which::Increments => increments::run(effort)?,
        Which::Batches => batches::run(effort)?,
        Which::Latency => latency::run(effort)?,
        Which::Reads => reads::run(effort)?,
        Which::Query => reads::run_query(effort)?,
        Which::Cold => cold::run(effort)?,
        Which::Shards => shards::run(effort)?,
        Which::Overload => overload::run(effort)?,
        Which::Hot => hot::run(effort)?,
        Which::Memory { keys } => memory::run(effort, *keys)?,
        Which::Restart { increments } => restart::run(effort, *increments)?,
        Which::Rebuild(rebuild) => rebuild::run(effort, rebuild)?,
        Which::Undisturbed { rows } => undisturbed::run(effort, *rows)?,
        Which::Events(events) => events::run(effort, events)?,
        Which::Load(peer) => peer::run(effort, peer)?,
        Which::EmptyServer => return child::run_empty_server(),
    };
    report.print(json)
}

impl Effort {
    /// How long one run is measured.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.max(0.1))
    }

    /// A directory that is removed when dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn directory(&self) -> Result<TempDir> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("tallyring-bench-");
        match &self.dir {
            Some(dir) => builder.tempdir_in(dir),
            None => builder.tempdir(),
        }
        .map_err(doing("make a temporary directory"))
    }
}
