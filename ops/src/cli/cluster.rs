//! Options of `cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::DATA_DEFAULT;
use crate::base_url::ServerArgs;

/// Options of `cluster`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring cluster init --config node-a.toml     once, from any machine
  tallyring cluster init --config node-a.toml --from data
      instead: moves the store of a single machine there; stop its server first
  tallyring cluster check --config node-a.toml
  tallyring serve --config node-a.toml            on each node, by its file
  tallyring cluster status --to http://10.0.0.11:7117
  tallyring cluster leave --data DIR              on the machine of that node")]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// The commands of `cluster`.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Check that the brokers and the bucket keep what a store relies on
    Check(EnginesArgs),
    /// Make the topics where they are missing, and a new store in the empty topic and bucket, or move one there
    Init(InitArgs),
    /// Show the nodes: which one writes, and how far each has counted the log
    Status(ServerArgs),
    /// End the node of a data directory: where it writes, another node takes the log over at once
    Leave(LeaveArgs),
}

/// The node that is to end.
#[derive(Args)]
pub(crate) struct LeaveArgs {
    /// Data directory of the node, on this machine
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Where the new store is to be, and where it comes from.
#[derive(Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub engines: EnginesArgs,
    /// Move the store of this data directory, which no server holds. A move that was stopped is completed by the same
    /// command
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Divide the log into so many strands, which different nodes may write. A store keeps the number, also one that
    /// moves
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub strands: u16,
}

/// Where the engines are.
#[derive(Args)]
pub(crate) struct EnginesArgs {
    /// Configuration file with a section `[cluster]`
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}
