//! The command line.

mod actions;
mod alerts;
#[cfg(feature = "cluster")]
mod cluster;
mod deletes;
mod export;
mod lists;
mod upkeep;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tallyring_rebuild::load::Program;
use tallyring_records::Day;

use crate::base_url::ServerArgs;
use crate::demo::DemoArgs;
use crate::error::{CommandError, Result};
use crate::listen;
use crate::read_only;
use crate::send::SendArgs;
use crate::shares::ShareArgs;
use crate::shell::{CompletionsArgs, ManArgs};
use crate::start_time::ClockStart;
use crate::status::StatusArgs;

pub(crate) use actions::{
    ActionsArgs, ActionsCommand, AskedArgs, CheckArgs, CountArgs, DistinctPer, FrequencyArgs,
    UserArgs, WantedArgs,
};
pub(crate) use alerts::{AlertsArgs, AlertsCommand};
#[cfg(feature = "cluster")]
pub(crate) use cluster::{ClusterArgs, ClusterCommand, EnginesArgs, InitArgs};
pub(crate) use deletes::{DeleteArgs, UndeleteArgs};
pub(crate) use export::{ExportArgs, ExportFormat};
pub(crate) use lists::{ListsArgs, ListsCommand};
pub(crate) use upkeep::{
    AuditArgs, BackupArgs, ReconcileArgs, RecountArgs, ReloadArgs, RestoreArgs, VerifyArgs,
};

/// Tallyring counts clicks: increments in over HTTP, counts out by hour, day, week or month in any time zone.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "\
Begin:
  tallyring serve                     starts a server on http://127.0.0.1:7117
  curl 'http://127.0.0.1:7117/v1/incr?key.l=abc&by.c=US'
  tallyring query l/abc --unit day    shows the counts"
)]
pub(crate) struct Cli {
    /// How results are printed.
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    #[command(subcommand)]
    pub command: Command,
}

/// Forms of output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For spreadsheets (query and actions only).
    Csv,
    /// A picture (query only).
    Svg,
}

impl Output {
    /// Checks that commands other than `query` and `actions` have this form. Fails with a usage error for CSV and SVG.
    pub(crate) fn check_for_commands(self) -> Result<()> {
        let only = match self {
            Self::Table | Self::Json => return Ok(()),
            Self::Csv => "csv is a form of `tallyring query` and `tallyring actions` only",
            Self::Svg => "svg is a form of `tallyring query` only",
        };
        Err(CommandError::Usage(format!(
            "--output {only}; use --output json, or leave it out"
        )))
    }
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the server: accept increments, answer reads, rebuild after midnight
    Serve(ServeArgs),
    Send(SendArgs),
    /// Load historical counts in bulk, from CSV or JSON lines, as a dataset
    Load(LoadArgs),
    /// Write the counts of closed days to files, by month, for other programs
    Export(ExportArgs),
    /// List the bulk datasets
    Datasets(DataArgs),
    /// Drop a bulk dataset: it stops counting with the next rebuild
    Drop(DropArgs),
    /// Show the counts of one key as a table with a sparkline
    Query(QueryArgs),
    /// Ask what users did: counts, caps, reach and frequency, or all of one person
    Actions(ActionsArgs),
    /// Export finished days and merge them into a new archive generation, now
    Rebuild(RebuildArgs),
    /// Have the running server read its configuration file again
    Reload(ReloadArgs),
    /// Count a closed day again from the log, and publish the differences as its final numbers
    Reconcile(ReconcileArgs),
    /// Take the counts of a key on some days away
    Delete(DeleteArgs),
    /// Let deleted counts of a key count again
    Undelete(UndeleteArgs),
    /// Write the archive of closed years once again, smaller; a server does it after its nightly rebuild
    Recompress(DataArgs),
    /// Copy the data directory elsewhere, with checks; a later run copies new files only
    Backup(BackupArgs),
    /// Make a data directory from a backup
    Restore(RestoreArgs),
    /// Check every file: checksums, order, subtotals against totals, books
    Verify(VerifyArgs),
    Recount(RecountArgs),
    /// Print a log, store, archive, manifest or file as text
    Cat(CatArgs),
    /// Print everything that people changed: rules, settings, erasures, voids, final versions and final history
    Audit(AuditArgs),
    /// Make, list or revoke API keys
    Key(KeyArgs),
    /// Make, list or revoke links that show counts to somebody without a key
    Share(ShareArgs),
    /// Print or check a configuration
    Config(ConfigArgs),
    /// Set up the engines that several nodes share
    #[cfg(feature = "cluster")]
    Cluster(ClusterArgs),
    /// Try the receivers of alerts
    Alerts(AlertsArgs),
    /// Show the lists that rules judge by, or replace one
    Lists(ListsArgs),
    /// Show ring, log and archive at a glance
    Status(StatusArgs),
    /// Serve a made-up year of history with live traffic, to look at
    Demo(DemoArgs),
    /// Print a script with which a shell completes commands
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command
    Man(ManArgs),
    /// Do a part of the work of the process that holds the data directory
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// Where the data is.
#[derive(Args, Clone)]
pub(crate) struct DataArgs {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
    /// Configuration file (default: the embedded one, see `tallyring config default`)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The data directory when none is named.
pub(crate) const DATA_DEFAULT: &str = "tallyring-data";

/// Options of `serve`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring serve
  tallyring serve --read-only /mnt/copy --listen 127.0.0.1:7118
  tallyring serve --read-only s3://metrics/clicks --cache /var/cache/clicks")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:7117]
    #[arg(long, value_name = "ADDR", value_parser = listen::parse)]
    pub listen: Option<SocketAddr>,
    /// Serve the files of a data directory, of a copy or backup of one, or of a bucket of a cluster. The server takes
    /// no lock there, reads no log and accepts no increments; it looks for newer files every few seconds
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX", value_parser = read_only::parse,
        conflicts_with_all = ["data", "trust_clock"])]
    pub read_only: Option<read_only::Place>,
    /// With --read-only s3://…: an empty directory for the parts of files that were read lately, or that of its last
    /// run; it is made if absent
    #[arg(long, value_name = "DIR", requires = "read_only")]
    pub cache: Option<PathBuf>,
    /// Room for these parts, such as 512MiB or 2GiB; at least 32MiB
    #[arg(long, value_name = "SIZE", value_parser = crate::load::parse_memory, default_value = "10GiB",
        requires = "cache")]
    pub cache_max: u64,
    /// Run a virtual clock from START (RFC 3339 or Unix seconds) at RATE virtual seconds a second,
    /// for replays and tests; such as 2012-03-16T18:40:00Z@3600
    #[arg(long, value_name = "START[@RATE]")]
    pub clock: Option<ClockStart>,
    /// Trust the clock, however far it is from the newest record. A clock more than a day away otherwise waits ten
    /// minutes before it forgets ids, logs and detail and turns the ring
    #[arg(long, conflicts_with = "clock")]
    pub trust_clock: bool,
}

/// Options of `rebuild`.
#[derive(Args)]
pub(crate) struct RebuildArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Without a server: trust the clock, however far it is from the newest record, and turn the ring to its day
    #[arg(long)]
    pub trust_clock: bool,
}

/// Options of `load`.
#[derive(Args)]
#[command(after_help = "\
A CSV file begins with a header, its columns in any order:
  namespace,key,hour,count                   totals
  namespace,key,hour,count,subtotal,value    breakdowns (no subtotal: a total)

The hour is RFC 3339 or Unix seconds, and counts in the bucket that holds it. Rows may come in any order, in \
several files, plain, gzip or zstd; equal ones are summed. JSON lines have the same fields. - is standard input.

A column `unit` says that a row counts a whole `day` in UTC (its hour may be a date then), an `hour` or a `quarter`; \
an empty one is the base bucket of the namespace.

The values of a breakdown sum to their total, or --fill puts what they lack under `-` (`-*-` where two are \
crossed). A breakdown without a row for some key and hour reads as `-` there.

The dataset adds to what the ring counts. It appears with the next rebuild, in one step; so do the changes of \
--replace and `tallyring drop`. A server that runs is not disturbed.

Examples:
  tallyring load clicks-2011 clicks-2011-*.csv.gz
  zcat clicks.csv.gz | tallyring load clicks-2012 -
  tallyring load clicks-2012 new.csv --replace --on-error skip --rejects bad.csv
  tallyring rebuild")]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Name of the dataset: letters, digits, `_`, `-` and `.`, at most 64
    pub dataset: String,
    /// CSV or JSON lines
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Program that exported the files, in place of rows of counts: shlink, goatcounter or plausible
    #[arg(long, value_name = "PROGRAM", requires = "namespace")]
    pub from: Option<Program>,
    /// Namespace in which files of another program count
    #[arg(long, value_name = "NAME", requires = "from")]
    pub namespace: Option<String>,
    /// Key of the rows of another program that have none
    #[arg(long, value_name = "KEY", requires = "from")]
    pub key: Option<String>,
    /// Replace the dataset of that name
    #[arg(long)]
    pub replace: bool,
    /// Make the counts part of the final numbers of their days, which then never change: such a dataset cannot be
    /// dropped or replaced once a rebuild counted it, and no day of it may be final before; one that is lost, or has
    /// lost files, is loaded again so, with exactly its counts
    #[arg(long = "final")]
    pub is_final: bool,
    /// Put what breakdowns lack of their totals under `-`
    #[arg(long)]
    pub fill: bool,
    /// Show the change by month and namespace, and change nothing; increments in a server's memory are not in the
    /// present counts
    #[arg(long)]
    pub dry_run: bool,
    /// Memory for rows and keys, such as 512MiB or 2GiB; at least 32MiB [default: a quarter of the memory there is, at
    /// most 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::load::parse_memory)]
    pub memory: Option<u64>,
    /// Answer to a row that cannot be used
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
    /// Where to list skipped rows, as CSV [default: only how many]
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
}

/// Answer to a row that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Stop the load at the first such row, and change nothing
    Stop,
    /// Skip such rows and load the others
    Skip,
}

/// Options of `drop`.
#[derive(Args)]
pub(crate) struct DropArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Name of the dataset
    pub dataset: String,
    /// Give up a dataset that was loaded with --final and is lost, or has lost files: its days are final without it.
    /// The reason is for the audit trail, 1 to 256 bytes
    #[arg(long, value_name = "REASON")]
    pub gone: Option<String>,
}

/// Options of `query`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tallyring query l/abc --unit hour --units 24 --timezone Europe/Berlin --by c\n  tallyring query l --top --units 30\n  tallyring query ad_click/42 --uniques --output svg > users.svg"
)]
pub(crate) struct QueryArgs {
    /// NAMESPACE/KEY, such as l/abc; everything after the first slash is the key. NAMESPACE alone: all its keys
    /// together
    pub key: String,
    /// minute, hour, day, week (from Sunday), mweek (from Monday), month, quarter or year [default: day]
    #[arg(long)]
    pub unit: Option<String>,
    /// How many units, or -1 for all [default: 7; of keys all]
    #[arg(long, allow_negative_numbers = true)]
    pub units: Option<i64>,
    /// First time, instead of units; or first day, such as 2026-03-01, beside a time zone
    #[arg(long)]
    pub from: Option<String>,
    /// Last time, or last day [default: now]
    #[arg(long)]
    pub until: Option<String>,
    /// IANA time zone [default: UTC]
    #[arg(long)]
    pub timezone: Option<String>,
    /// Hours from UTC instead of a zone, such as 5.5
    #[arg(long, allow_negative_numbers = true, conflicts_with = "timezone")]
    pub hour_offset: Option<f64>,
    /// Break down by this subtotal
    #[arg(long, value_name = "SUBTOTAL")]
    pub by: Option<String>,
    /// Rank the keys of NAMESPACE
    #[arg(long, conflicts_with_all = ["by", "uniques"])]
    pub top: bool,
    /// List the keys of NAMESPACE that begin with this text; an empty one lists all
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["by", "uniques", "top"])]
    pub prefix: Option<String>,
    /// List the keys of NAMESPACE that have this text anywhere
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["by", "uniques", "top", "prefix"])]
    pub contains: Option<String>,
    /// Order of listed keys: key, count or rising
    #[arg(long, value_name = "ORDER", conflicts_with_all = ["by", "uniques", "top"])]
    pub sort: Option<String>,
    /// Go on with the keys behind those that were listed, as the list before says
    #[arg(long, value_name = "PAGE", conflicts_with_all = ["by", "uniques", "top"])]
    pub page: Option<String>,
    /// Estimate the distinct users instead
    #[arg(long, conflicts_with = "by")]
    pub uniques: bool,
    /// Values or keys that are listed [default: 10, as CSV all of up to 10000]
    #[arg(long)]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Options of `cat`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring cat oplog --from 1000      records of the log from number 1000 on
  tallyring cat oplog --day 2012-03-16 its events of that UTC day, early or late
  tallyring cat slot                   names of the delta stores
  tallyring cat slot day-2012-03-16    its counters, one data point a line
  tallyring cat archive 2012-03        that month archived (a closed year: 2012)
  tallyring cat manifest               what counts, as JSON
  tallyring cat file archive/NAME      any sorted file, a line each")]
pub(crate) struct CatArgs {
    /// Thing to print
    #[arg(value_enum)]
    pub what: CatWhat,
    /// Which one: a store of `slot`, a partition of `archive`, a number of `manifest`, a name of `file`
    pub which: Option<String>,
    /// First record of `oplog`, as it is printed (1:80) or its number alone
    #[arg(long, value_parser = crate::cat::parse_record)]
    pub from: Option<u64>,
    /// Only events of `oplog` whose own time is on this UTC day; with --output json, one object a line
    #[arg(long, conflicts_with = "from")]
    pub day: Option<Day>,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// The things that `cat` prints.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum CatWhat {
    /// The log
    Oplog,
    /// A delta store of the ring, or a late one
    Slot,
    /// The active generation
    Archive,
    /// A manifest
    Manifest,
    /// One sorted file
    File,
}

/// Options of `key`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring key new --scope write --note redirector    may only count
  tallyring key new --scope read --namespace l,u       may only ask for these
  tallyring key list
  tallyring key revoke 2bq4xyz7                        in force at once

As soon as a key exists, every request needs one, except /healthz, /readyz, /docs and the pages of the dashboard, which \
hold no data. Commands on the data directory of a running server need no key; commands with --to take theirs from \
TALLYRING_KEY.")]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// The commands of `key`.
#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key and print it; it is shown this once
    New(NewKeyArgs),
    /// List all keys, revoked ones too
    List(DataArgs),
    /// Revoke a key
    Revoke {
        /// The id: the part of the key between the underscores
        id: String,
        #[command(flatten)]
        data: DataArgs,
    },
}

/// Options of `key new`.
#[derive(Args)]
pub(crate) struct NewKeyArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The scopes of the key: write, read, actions (of users), admin (all)
    #[arg(long, value_name = "SCOPE,…", required = true, value_delimiter = ',', value_parser = crate::keys::parse_scope)]
    pub scope: Vec<tallyring_realtime::catalog::Scope>,
    /// Limit it to these namespaces [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub namespace: Option<Vec<String>>,
    /// The login whose counts the bitly-compatible reads answer
    #[arg(long, value_name = "NAME")]
    pub login: Option<String>,
    /// Items a second, such as 100/s [default: unlimited]
    #[arg(long, value_name = "N/s", value_parser = crate::keys::parse_limit)]
    pub limit: Option<u32>,
    /// The most that one increment may count [default: 1000000 with --namespace, else no bound]
    #[arg(long, value_name = "N")]
    pub max_n: Option<u64>,
    /// Share an identity, which owns ids: a key with the identity of another one takes its ids over [default: its own,
    /// named as the key's id]
    #[arg(long, value_name = "NAME", conflicts_with = "shared_ids")]
    pub identity: Option<String>,
    /// Share the ids of everything that comes without a key, such as StatsD
    #[arg(long)]
    pub shared_ids: bool,
    /// A note for people, such as the program that uses the key
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// Options of `config`.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// The commands of `config`.
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the embedded configuration, commented
    Default,
    /// Check a file and print what it means
    Check {
        /// The file
        file: PathBuf,
        /// The data directory that the file is for: names that its store has may stay
        #[arg(long)]
        data: Option<PathBuf>,
    },
}

/// Options of the hidden worker.
#[derive(Args)]
pub(crate) struct WorkerArgs {
    /// Data directory
    #[arg(long)]
    pub data: PathBuf,
}
