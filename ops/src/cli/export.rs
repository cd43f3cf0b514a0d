//! Options of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tallyring_archive::Partition;

use super::DATA_DEFAULT;

/// Options of `export`.
#[derive(Args)]
#[command(after_help = "\
Each month becomes a file, such as 2026-03.csv.zst, with the columns that `tallyring load` takes:
  namespace,key,hour,count,subtotal,value,unit

A later run into the same directory writes only the months that changed. It works beside a running server. The files \
have the counts of closed days, by hour (or quarter, or day) in UTC. Users, minutes, actions of users and filtered \
events are left out.

Examples:
  tallyring export /srv/clicks
  tallyring export /srv/links --namespace l --from 2026-01 --format ndjson
  tallyring load clicks /srv/clicks/*.csv.zst --data another")]
pub(crate) struct ExportArgs {
    /// Where the files go: the directory of an earlier export, or an empty or new one
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Data directory, or a backup of one
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
    /// Only this namespace; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    pub namespace: Vec<String>,
    /// First month to look at, such as 2026-01 [default: all]
    #[arg(long, value_name = "MONTH")]
    pub from: Option<Partition>,
    /// Last month to look at
    #[arg(long, value_name = "MONTH")]
    pub to: Option<Partition>,
    /// Form of the files
    #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
    pub format: ExportFormat,
}

/// Forms of exported files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExportFormat {
    /// Comma-separated values (RFC 4180)
    Csv,
    /// One JSON object a line
    Ndjson,
}
