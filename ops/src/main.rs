//! `tallyring`: the one binary. It wires the crates, owns the command line and the configuration,
//! and is the only place that prints and exits.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what a command line is for"
)]

mod allocator;
mod backup;
mod bench;
mod cat;
mod cli;
mod config;
mod data_directory;
mod datasets;
mod demo;
mod error;
mod http_client;
mod incoming;
mod keys;
mod load;
mod preview;
mod progress;
mod query;
mod rebuild;
mod rebuilds;
mod repair;
mod send;
mod serve;
mod shell;
mod start_time;
mod status;
mod verify;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use error::CommandError;

#[global_allocator]
static ALLOCATOR: allocator::BySize = allocator::BySize;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.output.is_json();
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Send(args) => return send_and_exit(args, json),
        Command::Load(args) => load::run(&args, json),
        Command::Datasets(args) => datasets::list(&args, json),
        Command::Drop(args) => datasets::drop(&args, json),
        Command::Query(args) => query::run(&args, cli.output),
        Command::Rebuild(args) => rebuild::run(&args, json),
        Command::Backup(args) => backup::run(&args, json),
        Command::Restore(args) => backup::restore(&args, json),
        Command::Verify(args) => verify::run(&args, json),
        Command::Cat(args) => cat::run(&args),
        Command::Key(args) => keys::run(&args, json),
        Command::Demo(args) => demo::run(&args),
        Command::Status(args) => status::run(&args, json),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::Bench(args) => bench::run(&args, json),
        Command::Config(args) => config::command::run(&args, json),
        Command::RebuildWorker(args) => worker::rebuild(&args),
        Command::BackupWorker(args) => worker::back_up(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn send_and_exit(args: send::SendArgs, json: bool) -> ExitCode {
    match send::run(args, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

impl From<String> for CommandError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}
