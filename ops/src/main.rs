//! `tallyring`: the one binary. It wires the crates, owns the command line and the configuration,
//! and is the only place that prints and exits.

mod actions;
mod alerts;
mod allocator;
mod audit;
mod backup;
mod base_url;
mod cat;
mod child;
mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod config;
mod data_directory;
mod datasets;
mod deletes;
mod demo;
mod error;
mod escape;
mod export;
mod geo_watch;
mod http_client;
mod in_process;
mod incoming;
mod inflow;
mod jobs;
#[cfg(feature = "cluster")]
mod kafka_in;
mod keys;
mod lineage;
mod listen;
mod lists;
mod load;
mod log_copy;
mod measuring;
mod merge;
mod out;
mod preview;
mod process;
mod progress;
mod query;
mod read_only;
mod rebuild;
mod rebuilds;
mod recompress;
mod reconcile;
mod reconciles;
mod recount;
mod reload;
mod repair;
mod schedule;
mod scratch;
mod send;
mod serve;
mod shares;
mod shell;
mod signals;
mod start_time;
mod status;
mod strands;
mod verify;
mod watched;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, Output};
use error::{CommandError, Result};
use out::note;

#[global_allocator]
static ALLOCATOR: allocator::BySize = allocator::BySize;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CommandError::Unread) {
                note!("error: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    process::raise_open_files();
    if !matches!(cli.command, Command::Query(_) | Command::Actions(_)) {
        cli.output.check_for_commands()?;
    }
    let json = cli.output == Output::Json;
    match cli.command {
        Command::Query(args) => query::run(&args, cli.output),
        Command::Actions(args) => actions::run(&args, cli.output),
        Command::Serve(args) => match &args.read_only {
            Some(place) => read_only::run(place, &args, json),
            None => serve::run(None, &args, json),
        },
        Command::Send(args) => send::run(args, json),
        Command::Load(args) => load::run(&args, json),
        Command::Export(args) => export::run(&args, json),
        Command::Datasets(args) => datasets::list(&args, json),
        Command::Drop(args) => datasets::drop(&args, json),
        Command::Rebuild(args) => rebuild::run(&args, json),
        Command::Reload(args) => reload::run(&args, json),
        Command::Reconcile(args) => reconcile::run(&args, json),
        Command::Delete(args) => deletes::delete(&args, json),
        Command::Undelete(args) => deletes::undelete(&args, json),
        Command::Recompress(args) => recompress::run(&args, json),
        Command::Backup(args) => backup::run(&args, json),
        Command::Restore(args) => backup::restore(&args, json),
        Command::Verify(args) => verify::run(&args, json),
        Command::Recount(args) => recount::run(&args, json),
        Command::Cat(args) => cat::run(&args, json),
        Command::Audit(args) => audit::run(&args, json),
        Command::Key(args) => keys::run(&args, json),
        Command::Share(args) => shares::run(&args, json),
        Command::Demo(args) => demo::run(&args, json),
        Command::Alerts(args) => alerts::run(&args, json),
        Command::Lists(args) => lists::run(&args, json),
        Command::Status(args) => status::run(&args, json),
        Command::Completions(args) => shell::completions(&args, json),
        Command::Man(args) => shell::man(&args, json),
        Command::Config(args) => config::command::run(&args, json),
        Command::Worker(args) => worker::run(&args.data),
        #[cfg(feature = "cluster")]
        Command::Cluster(args) => cluster::run(&args, json),
    }
}

impl From<String> for CommandError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}
