//! Options of the commands that delete counts of a key, and give them back.

use clap::Args;
use tallyring_api::Days;

use super::DataArgs;

/// Options of `delete`.
#[derive(Args)]
#[command(after_help = "\
Without --reason it tells what counts of the key would go, and changes nothing. With --reason the running server takes \
the order into its log, and the days are reconciled: their counts go, and they become final. What comes after the \
order counts. Events, sums by event type and what users did stay, and so does loaded history. The log must still have \
each day. `tallyring undelete` takes an order back.

Examples:
  tallyring delete l/abc --days 2012-03-16
      tells what the key has on that day
  tallyring delete l/abc --days 2012-03-14..2012-03-16 --reason 'a crawler'
      takes its counts of these days away")]
pub(crate) struct DeleteArgs {
    /// The namespace and the key
    #[arg(value_name = "NAMESPACE/KEY")]
    pub key: String,
    /// The UTC day, or the first and the last one: 2012-03-14..2012-03-16, at most 400. A rebuild must have closed them
    #[arg(long, value_name = "DAYS")]
    pub days: Days,
    /// Why the counts go, 1 to 256 bytes: the log and `tallyring audit` keep it
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub data: DataArgs,
}

/// Options of `undelete`.
#[derive(Args)]
#[command(after_help = "\
Counts that were deleted count again, once each day is reconciled, which this command orders. The log must still have \
each day. `tallyring audit` tells which counts were deleted.

Example:
  tallyring undelete l/abc --days 2012-03-14..2012-03-16 --reason 'no crawler'")]
pub(crate) struct UndeleteArgs {
    /// The namespace and the key
    #[arg(value_name = "NAMESPACE/KEY")]
    pub key: String,
    /// The UTC day, or the first and the last one, at most 400
    #[arg(long, value_name = "DAYS")]
    pub days: Days,
    /// Why the counts come back, 1 to 256 bytes: the log and `tallyring audit` keep it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    #[command(flatten)]
    pub data: DataArgs,
}
