//! Options of the commands that copy, check and make again.

use std::path::PathBuf;

use clap::Args;

use tallyring_api::Days;
use tallyring_records::Day;

use super::{DATA_DEFAULT, DataArgs};

/// Options of `backup`.
#[derive(Args)]
#[command(after_help = "\
A backup copies new files only, beside a running server or without one. A server with `path` in `[backup]` of its \
configuration backs up after every rebuild. An interrupted backup leaves the copy as it was, and can be run again.

Examples:
  tallyring backup /mnt/second-disk/tallyring
  tallyring verify --data /mnt/second-disk/tallyring     checks the copy
  tallyring restore /mnt/second-disk/tallyring --data restored")]
pub(crate) struct BackupArgs {
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
      the state of the backup
  tallyring restore /mnt/backup --log /mnt/log-copy --data new
      and all later records, from the second copy that [log_copy] keeps")]
pub(crate) struct RestoreArgs {
    /// The backup
    pub backup: PathBuf,
    /// Continue with the records after the backup, from this second copy of the log (`path` of `[log_copy]`)
    #[arg(long, value_name = "DIR")]
    pub log: Option<PathBuf>,
    /// The new data directory: empty, or absent
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Options of `reconcile`.
#[derive(Args)]
#[command(after_help = "\
Dashboards show what was counted as it came. A reconcile counts a closed day once more from the log: each id once, \
however late it came again, and every event by the rules of now. The differences, each with its cause, become the next \
final version of the day. A count that nothing explains is an error, and then nothing is published.

Of several days, each is published by itself, in order; one that fails does not stop the others. A day of which rules \
would newly filter more than 20 % of an event type with 1,000 events or more is refused without --force: a wrong \
pattern empties no day.

--rules tells what the [filters] and [lists] of a file would change, and publishes nothing. To apply them, put them into \
the configuration, `tallyring reload`, and reconcile the days again. Undo is the same: take them out, and reconcile again.

Examples:
  tallyring reconcile 2012-03-16 --dry-run     tells what would change
  tallyring reconcile 2012-03-16               makes the day final
  tallyring reconcile 2012-03-01..2012-03-16   makes each of these days final
  tallyring reconcile 2012-03-16 --rules new.toml --by advertiser
      tells what other rules would change, and whose counts")]
pub(crate) struct ReconcileArgs {
    /// The UTC day, such as 2012-03-16, or the first and the last one: 2012-03-01..2012-03-16, at most 400. A rebuild
    /// must have closed it
    #[arg(value_name = "DAYS")]
    pub days: Days,
    /// Only tell what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Only tell what the filters and lists of this configuration would change in the place of those in force
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Tell each cause by the keys of a namespace, or of an entity of event types such as advertiser: the 100 with the
    /// largest sums
    #[arg(long, value_name = "NAMESPACE")]
    pub by: Option<String>,
    /// Publish although rules newly filter more than 20 % of an event type
    #[arg(long, conflicts_with_all = ["dry_run", "rules"])]
    pub force: bool,
    /// End with 1 where duplicates are more than this part of what an event type had counted, such as 0.001
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub fail_above: Option<f64>,
    #[command(flatten)]
    pub data: DataArgs,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok();
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "write a number from 0 to 1, such as 0.001".to_owned())
}

/// Options of `audit`.
#[derive(Args)]
#[command(after_help = "\
Prints, oldest first, the declarations that the log has with strict, caps, enrichment and CloudEvents (what each \
added, removed and changed, by name), erasures (how many users, never who), voids (id, reason and the key that ordered \
it), deletes and undeletes of counts of a key, every final version of a day with its causes, and history that was \
loaded as final. A server may run meanwhile. The log tells of changes for as long as it is kept.

Examples:
  tallyring audit
  tallyring audit --day 2012-03-16                   what concerns that day
  tallyring audit --from 2012-03-16 --to 2012-03-18  changes made on these days
  tallyring audit --output json                      one object a line")]
pub(crate) struct AuditArgs {
    /// Only voids, deletes, final versions and final history of this UTC day, and what changed for all days since it
    /// began
    #[arg(long)]
    pub day: Option<Day>,
    /// Only changes that were made on this UTC day or later
    #[arg(long, value_name = "DAY")]
    pub from: Option<Day>,
    /// Only changes that were made on this UTC day or before
    #[arg(long, value_name = "DAY")]
    pub to: Option<Day>,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Options of `verify`.
#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// Also merge the source runs of every month again and compare: bytes, or lines where another zstd or level wrote
    /// them
    #[arg(long)]
    pub deep: bool,
    /// Also look for what is left of erased users in files, also those of `aside/`, in the log, and in its second copy
    /// where the configuration names one; fail where something is left
    #[arg(long)]
    pub erased: bool,
    /// Heal damaged and missing files from the backup or by merging again; no server may run
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

/// Make all derived files again from the log: stores, runs, generation and manifest
#[derive(Args)]
#[command(after_help = "\
A recount counts every day that the log holds whole, by the decisions in the log. Older days keep their source runs, which \
are checked first. A recount that misses a file changes nothing. No server may run. Equal logs give equal bytes.

Examples:
  tallyring recount                      after runs/ or manifests/ were lost
  tallyring recount --from 2012-03-16    that day and later ones only")]
pub(crate) struct RecountArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// First day that is counted again [default: as far back as the log reaches]
    #[arg(long, value_name = "DAY")]
    pub from: Option<Day>,
}

/// Options of `reload`.
#[derive(Args)]
#[command(after_help = "\
A server reads its file by itself within seconds of a change, and at SIGHUP. What changed is in force from then on: \
rules, lists, event types, namespaces, ratios, titles, caps, [enrich], [[cloudevents]] and strict. Other settings are \
named, and need a restart. A file that cannot be used changes nothing; `tallyring status` says so.")]
pub(crate) struct ReloadArgs {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}
