//! Options of `alerts`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `alerts`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring alerts test --config tallyring.toml
      sends a message to every receiver, and tells what each answered
  tallyring alerts test ops --config tallyring.toml")]
pub(crate) struct AlertsArgs {
    #[command(subcommand)]
    pub command: AlertsCommand,
}

/// The commands of `alerts`.
#[derive(Subcommand)]
pub(crate) enum AlertsCommand {
    /// Send a test message to receivers, and tell what came back
    Test {
        /// Receiver, or alert whose receivers are meant [default: all receivers]
        name: Option<String>,
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}
