//! Options of `lists`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tallyring_records::Day;

use super::DATA_DEFAULT;

/// Options of `lists`.
#[derive(Args)]
#[command(after_help = "\
A server takes a file that changes within a second. It keeps the list before where a file cannot be used, or has less \
than half of its lines; `tallyring status` says so, and a restart takes the shorter one.

Examples:
  tallyring lists show --config tallyring.toml --data tallyring-data
  tallyring lists put crawlers new-crawlers.txt --config tallyring.toml
  tallyring lists put crawlers new.txt --config c.toml --preview 2012-03-16
      puts nothing, and tells what a reconcile of that day would change")]
pub(crate) struct ListsArgs {
    #[command(subcommand)]
    pub command: ListsCommand,
}

/// The commands of `lists`.
#[derive(Subcommand)]
pub(crate) enum ListsCommand {
    /// Check the files of all lists, and show what they hold
    Show {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Data directory: tell of each list, too, whether the store judges by what its file holds
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Check a file, and put it in the place of a list's in one step
    Put {
        /// Name of the list: [lists.NAME] of the configuration
        name: String,
        /// The file with the new content
        file: PathBuf,
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Put it there although it has less than half of the lines; a running server takes it with its next start
        #[arg(long)]
        force: bool,
        /// Put nothing there, and tell what the next reconcile of this UTC day would change with the file
        #[arg(long, value_name = "DAY", conflicts_with = "force")]
        preview: Option<Day>,
        /// Tell each cause by the keys of a namespace, or of an entity of event types such as advertiser
        #[arg(long, value_name = "NAMESPACE", requires = "preview")]
        by: Option<String>,
        /// Data directory of the preview
        #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
        data: PathBuf,
    },
}
