//! Options of `cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::base_url::ServerArgs;

/// Options of `cluster`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring cluster init --config node-a.toml     once, from any machine
  tallyring cluster check --config node-a.toml
  tallyring serve --config node-a.toml            on each node, with a name and an address of its own
  tallyring cluster status --to http://10.0.0.11:7117")]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// The commands of `cluster`.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Check that the brokers and the bucket keep what a store relies on
    Check(EnginesArgs),
    /// Make the topics where they are missing, and a new store in the empty topic and bucket
    Init(EnginesArgs),
    /// Show the nodes: which one writes, and how far each has counted the log
    Status(ServerArgs),
}

/// Where the engines are.
#[derive(Args)]
pub(crate) struct EnginesArgs {
    /// Configuration file with a section `[cluster]`
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}
