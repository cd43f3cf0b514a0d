//! `tallyring send`: posts events from JSON lines, CSV or access logs to a server.
//!
//! Data flows `lines -> record -> mapping -> session -> post`. This module is an HTTP client: it knows the
//! contract of `POST /v1/increments` and nothing of how the server counts.

mod answer;
mod at;
mod bad_lines;
mod combined;
mod condition;
mod csv;
mod error;
mod interrupt;
mod json;
mod lines;
mod mapping;
mod place;
mod plan;
mod post;
mod progress;
mod record;
mod session;
mod source;
mod summary;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::base_url;
use crate::data_directory::random;
use crate::error::{CommandError, Result};
use crate::http_client::KEY_VARIABLE;
use crate::out;
use plan::Plan;
use post::RetryPolicy;
use record::Format;
use session::Session;

const EXAMPLES: &str = "\
Mapping:
  --map TARGET=FIELD says which field of a line becomes what;
  --map TARGET==TEXT sets a constant.
    at                when it happened (needed): Unix seconds, RFC 3339, or an
                      access log's time
    key.<namespace>   what is counted: map at least one. A line may lack some; a
                      line without any is bad, or skipped in access logs
    by.<subtotal>     a breakdown; where a line has none, it counts under -
    n                 how many, 1 if not mapped
    id                the event's own id: sending it again counts nothing twice
    user              who did it, for uniques
    evidence.ip, evidence.ua, evidence.referrer, url
                      the client and its page: the server fills breakdowns that
                      are not mapped from them, as its configuration says
  FIELD is a JSON field (a.b for one inside another), a CSV column, or one of an
  access log's host, user, time, method, path (without its query), link (the
  path without its first slash), status, bytes, referrer, agent.

Examples:
  Clicks as JSON lines; lines without a time or a link are listed and left out:
    tallyring send clicks.jsonl.gz --to http://127.0.0.1:7117 --on-error skip \\
      --map key.l=link --map key.u=account.login --map by.c=country \\
      --map at=time

  Hourly counts from CSV, all for one domain:
    tallyring send hours.csv --to http://127.0.0.1:7117 \\
      --map key.d==example.com --map n=visits --map at=hour

  A web access log while it is being written, by link and referrer; only
  redirects count, and lines without a link are skipped:
    tallyring send access.log --follow --to http://127.0.0.1:7117 \\
      --where method=GET --where status=3xx --on-error skip \\
      --map key.l=link --map by.r=referrer --map at=time

A run tries a batch again when the server is busy or the connection breaks, and counts \
nothing twice. Running the command again does count again, unless an id is mapped.";

/// Options of `tallyring send`.
#[derive(Args, Clone, Debug)]
#[command(
    about = "Post events from JSON lines, CSV or web access logs, in batches",
    after_help = EXAMPLES
)]
pub(crate) struct SendArgs {
    /// Files to read, in this order; - is standard input; gzip and zstd are unpacked
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The server's address, such as http://127.0.0.1:7117
    #[arg(long, value_name = "URL", value_parser = base_url::parse)]
    to: String,

    /// Trust the certificates of this PEM file instead of those that the system trusts
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Which field becomes what; at least `at` and one `key.<namespace>` (see Mapping below)
    #[arg(long, required = true, value_name = "TARGET=FIELD")]
    map: Vec<String>,

    /// Send only lines whose field has this value, or one of several: --where status=301,302; 3xx is every status from
    /// 300 to 399; given more than once, all must hold
    #[arg(long = "where", value_name = "FIELD=VALUE")]
    conditions: Vec<String>,

    /// How lines are written [default: by name, .csv and .log or .log.1 (combined), else json]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Keep reading lines that are appended, through rotation, and send them within about a second
    #[arg(long)]
    follow: bool,

    /// A bad line stops the run, or is listed and skipped
    #[arg(long, value_enum, default_value_t = OnError::Stop, value_name = "WHAT")]
    on_error: OnError,

    /// With --on-error skip, write every bad line here as JSON, with its file, number and reason
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,

    /// The most events of one request
    #[arg(long, default_value_t = 1000, value_name = "EVENTS",
        value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch: u16,

    /// A key with the scope `write`; the variable TALLYRING_KEY is better, because other users can see options
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// The effect of a bad line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Stop at the first; nothing further is sent.
    Stop,
    /// List it and go on.
    Skip,
}

/// Runs `tallyring send` and prints the summary on standard output, as JSON where `json` is true.
///
/// Blocks until all is sent; under `--follow`, until Ctrl-C or SIGTERM, which is a success there. Reads the
/// key from `TALLYRING_KEY`. Takes over Ctrl-C and SIGTERM for the rest of the process. The error is the cause of an
/// early end, in a text for the user that is safe to show. The summary is printed then too.
pub(crate) fn run(args: SendArgs, json: bool) -> Result<()> {
    let plan = Plan::new(args, std::env::var(KEY_VARIABLE).ok())?;
    let mut session = Session::new(
        &plan,
        random_run_id(),
        match plan.follow {
            true => RetryPolicy::forever(),
            false => RetryPolicy::default(),
        },
        interrupt::watch(),
    )?;
    let outcome = session.run();
    if outcome.is_ok() || session.totals().batches > 0 || json {
        let totals = session.totals();
        let written = totals.write(&mut io::stdout().lock(), session.elapsed(), json);
        // The cause of an early end matters more than a summary that could not be written.
        return outcome
            .map_err(CommandError::from)
            .and(written.map_err(out::failed));
    }
    Ok(outcome?)
}

/// 32 hexadecimal digits that no other run has.
fn random_run_id() -> String {
    let mut bytes = [0; 16];
    random(&mut bytes);
    format!("{:032x}", u128::from_le_bytes(bytes))
}
