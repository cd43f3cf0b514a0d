//! `tallyring bench …`: what this machine does, measured over real HTTP against a server of its own.

mod events;
mod report;
mod server;

use clap::{Args, Subcommand};

use crate::error::Result;
use events::EventsArgs;

/// Options of `bench`.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

/// What to measure.
#[derive(Subcommand)]
enum BenchCommand {
    /// Events with distinct ids in batches, with dedup, minutes and uniques on
    Events(EventsArgs),
}

/// Runs a benchmark and prints its result.
///
/// # Errors
/// When the server cannot be started or refuses.
pub fn run(args: &BenchArgs, json: bool) -> Result<()> {
    match &args.command {
        BenchCommand::Events(args) => events::run(args, json),
    }
}
