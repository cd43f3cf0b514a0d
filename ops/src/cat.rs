//! `tallyring cat`: prints any stored file, store or log as text, or as JSON with one object a line.

mod oplog;
mod record;

pub(crate) use oplog::log_bar;

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tallyring_archive::{Blobs, Manifest, Run, names};
use tallyring_records::StoreId;

use crate::cli::{CatArgs, CatWhat};
use crate::data_directory::{self, open_read_only, require_some_store};
use crate::error::{CommandError, Result};
use crate::out;

/// Prints the named thing. Fails when it does not exist or is damaged.
pub(crate) fn run(args: &CatArgs, json: bool) -> Result<()> {
    if args.day.is_some() && !matches!(args.what, CatWhat::Oplog) {
        let detail = "`--day` chooses events of the log: write `tallyring cat oplog --day DAY`";
        return Err(CommandError::Usage(detail.into()));
    }
    require_some_store(&args.data)?;
    let blobs = data_directory::blobs(&args.data)?;
    let mut out = Printed {
        out: BufWriter::new(io::stdout().lock()),
        json,
    };
    let printed = match args.what {
        CatWhat::Oplog => {
            let (from, day) = (args.from, args.day);
            oplog::print(&blobs, oplog::Wanted { from, day }, &mut out)
        }
        CatWhat::Slot => slot(&args.data, args.which.as_deref(), &mut out),
        CatWhat::Archive => archive(&blobs, args.which.as_deref(), &mut out),
        CatWhat::Manifest => manifest(&blobs, args.which.as_deref(), &mut out),
        CatWhat::File => file(&blobs, args.which.as_deref(), &mut out),
    };
    match printed.and_then(|()| out.out.flush().map_err(Into::into)) {
        Err(CatError::Output(error)) => Err(out::failed(error)),
        Err(CatError::Command(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// Reads the number of a record: alone, or with its epoch as `cat` prints it. No two epochs use the same number. The
/// error is a sentence for the user.
pub(crate) fn parse_record(text: &str) -> Result<u64, String> {
    let (epoch, number) = text.split_once(':').unwrap_or(("0", text));
    let number = epoch.parse::<u32>().and_then(|_| number.parse());
    number.map_err(|_| "must be a position such as 1:80, or its number".to_owned())
}

/// Standard output, and whether its lines are JSON.
struct Printed {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
}

impl Printed {
    /// Prints a line, as text or as JSON.
    fn line(&mut self, text: impl Display, json: impl FnOnce() -> Value) -> io::Result<()> {
        match self.json {
            true => writeln!(self.out, "{}", json()),
            false => writeln!(self.out, "{text}"),
        }
    }
}

enum CatError {
    Output(io::Error),
    Command(CommandError),
}

impl From<io::Error> for CatError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl<E: Into<CommandError>> From<E> for CatError {
    fn from(error: E) -> Self {
        Self::Command(error.into())
    }
}

fn slot(data: &Path, which: Option<&str>, out: &mut Printed) -> Result<(), CatError> {
    let store = open_read_only(data)?;
    let Some(which) = which else {
        for id in store.live().store_ids() {
            out.line(id, || json!({ "store": id.to_string() }))?;
        }
        return Ok(());
    };
    let id: StoreId = which.parse().map_err(CommandError::Usage)?;
    if !store.live().store_ids().contains(&id) {
        let detail = format!("{id} is no delta store now; `tallyring cat slot` lists them");
        return Err(CommandError::Failed(detail).into());
    }
    for point in store.live().points(id)? {
        out.line(&point, || {
            json!({
                "key": point.key, "value": point.value, "bucket": point.code.to_string(), "count": point.count,
            })
        })?;
    }
    Ok(())
}

fn archive(blobs: &Blobs, which: Option<&str>, out: &mut Printed) -> Result<(), CatError> {
    let manifest = data_directory::manifest(blobs)?;
    let files = manifest
        .archive
        .active_generation()
        .map(|generation| generation.files.as_slice())
        .unwrap_or_default();
    let chosen: Vec<_> = files
        .iter()
        .filter(|entry| which.is_none_or(|which| entry.meta.partition.to_string() == which))
        .collect();
    if let Some(which) = which.filter(|_| chosen.is_empty()) {
        let partitions = files.iter().map(|entry| entry.meta.partition.to_string());
        let mut partitions: Vec<String> = partitions.collect();
        partitions.sort_unstable();
        partitions.dedup();
        let has = match partitions.is_empty() {
            true => "which holds nothing".to_owned(),
            false => format!("which has {}", partitions.join(", ")),
        };
        let which = which.escape_debug();
        let detail = format!("`{which}` is no partition of the active generation, {has}");
        return Err(CommandError::Failed(detail).into());
    }
    for entry in chosen {
        lines(blobs, &entry.name, out)?;
    }
    Ok(())
}

fn manifest(blobs: &Blobs, which: Option<&str>, out: &mut Printed) -> Result<(), CatError> {
    let manifest = match which {
        Some(number) => {
            let number = number
                .parse()
                .map_err(|_| CommandError::Usage(format!("`{number}` is no manifest number")))?;
            Manifest::load_number(blobs, number)?
        }
        None => data_directory::manifest(blobs)?,
    };
    let text = serde_json::to_string_pretty(&manifest)?;
    let value = serde_json::to_value(&manifest)?;
    out.line(text, || value)?;
    Ok(())
}

fn file(blobs: &Blobs, which: Option<&str>, out: &mut Printed) -> Result<(), CatError> {
    let name = which
        .ok_or_else(|| CommandError::Usage("name a file, relative to the data directory".into()))?;
    if !name.ends_with(names::SORTED_FILE_SUFFIX) {
        let detail = format!(
            "`{}` is no sorted file, whose name ends in {}; `cat oplog` and `cat manifest` print what is in others",
            name.escape_debug(),
            names::SORTED_FILE_SUFFIX
        );
        return Err(CommandError::Usage(detail).into());
    }
    lines(blobs, name, out)
}

fn lines(blobs: &Blobs, name: &str, out: &mut Printed) -> Result<(), CatError> {
    let run: Arc<Run> = Run::open(blobs, name)?;
    let mut cursor = run.cursor();
    while cursor.advance()? {
        let Some((key, payload)) = cursor.line()? else {
            break;
        };
        if out.json {
            let text = String::from_utf8_lossy;
            let line = json!({ "key": text(key), "payload": text(payload) });
            writeln!(out.out, "{line}")?;
            continue;
        }
        for part in [key, b",", payload, b"\n"] {
            out.out.write_all(part)?;
        }
    }
    Ok(())
}
