//! Options of the commands that copy, check and make again.

use std::path::PathBuf;

use clap::Args;

use tallyring_records::Day;

use super::{DATA_DEFAULT, DataArgs};

/// Options of `backup`.
#[derive(Args)]
#[command(after_help = "\
Only what is new is copied. A server may run meanwhile; one with `path` in `[backup]` of its configuration does this after \
every rebuild. An interrupted backup is the one before, and can be run again.

Examples:
  tallyring backup /mnt/second-disk/tallyring
  tallyring verify --data /mnt/second-disk/tallyring     checks the copy
  tallyring restore /mnt/second-disk/tallyring --data restored")]
pub struct BackupArgs {
    /// The copy, on another disk; made if absent
    pub backup: PathBuf,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Options of `restore`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring restore /mnt/backup --data new
      as it was when the backup was made
  tallyring restore /mnt/backup --log /mnt/log-copy --data new
      and all that was logged since, from the copy that [log_copy] keeps")]
pub struct RestoreArgs {
    /// The backup
    pub backup: PathBuf,
    /// Go on with what was logged after the backup, from this second copy of the log (`path` of `[log_copy]`)
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// The data directory that is made: empty, or absent
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Options of `verify`.
#[derive(Args)]
pub struct VerifyArgs {
    /// Also merge the source runs of every month again and compare: bytes, or lines where another zstd or level wrote them
    #[arg(long)]
    pub deep: bool,
    /// Heal what is damaged or gone, from the backup or by merging again; no server may run
    #[arg(long)]
    pub repair: bool,
    /// The backup to repair from [default: that of the configuration]
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub backup: Option<PathBuf>,
    /// Configuration file (default: the embedded one, see `tallyring config default`)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Make everything that is derived again: stores, runs, generation and manifest, from the log
#[derive(Args)]
#[command(after_help = "\
What the log holds whole is counted again from the log, as it was decided then; what is older stays in its source runs, \
which are checked first. Nothing is changed when something is missing. No server may run. Equal logs give equal bytes.

Examples:
  tallyring recount                      after runs/ or manifests/ were lost
  tallyring recount --from 2012-03-16    that day and later ones only")]
pub struct RecountArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// First day that is counted again [default: as far back as the log reaches]
    #[arg(long, value_name = "DAY")]
    pub from: Option<Day>,
}
