//! `tallyring cat`: any stored thing as text.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Manifest, OsDisk, Run};
use tallyring_realtime::oplog::{ReadFrom, scan};
use tallyring_records::{Increment, Record, StoreId, decode_all};

use crate::cli::{CatArgs, CatWhat};
use crate::data_directory::open_read_only;
use crate::error::{CommandError, Result, doing};

/// Prints it.
///
/// # Errors
/// When it is not there or damaged.
pub fn run(args: &CatArgs) -> Result<()> {
    if !args.data.is_dir() {
        return Err(CommandError::Failed(format!(
            "{} is no data directory; name one with --data",
            args.data.display()
        )));
    }
    let disk = OsDisk::new(&args.data).map_err(doing("open the data directory"))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.what {
        CatWhat::Oplog => oplog(&disk, args.from, &mut out),
        CatWhat::Slot => slot(&args.data, args.which.as_deref(), &mut out),
        CatWhat::Archive => archive(&disk, args.which.as_deref(), &mut out),
        CatWhat::Manifest => manifest(&disk, args.which.as_deref(), &mut out),
        CatWhat::File => file(&disk, args.which.as_deref(), &mut out),
    };
    match printed.and_then(|()| out.flush().map_err(Into::into)) {
        // Whoever reads may have seen enough.
        Err(CatError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(CatError::Output(error)) => Err(CommandError::Failed(format!("cannot print: {error}"))),
        Err(CatError::Command(error)) => Err(error),
        Ok(()) => Ok(()),
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

fn oplog(
    disk: &OsDisk,
    from: Option<u64>,
    out: &mut dyn Write,
) -> std::result::Result<(), CatError> {
    let start = from.map_or(ReadFrom::Oldest, ReadFrom::Sequence);
    let mut failed = None;
    let read = scan(disk, None, start, &mut |frame| {
        for (index, record) in decode_all(frame.payload, frame.count)?.iter().enumerate() {
            let sequence = frame.first_sequence + index as u64;
            if from.is_some_and(|from| sequence < from) {
                continue;
            }
            let written = jiff::Timestamp::from_millisecond(frame.written_ms).unwrap_or_default();
            if let Err(error) = writeln!(
                out,
                "{}:{sequence} {written} {}",
                frame.epoch,
                shown(record)
            ) {
                failed = Some(error);
                return Err("output".into());
            }
        }
        Ok(())
    });
    match (failed, read) {
        (Some(error), _) => Err(error.into()),
        (None, Ok(_)) => Ok(()),
        (None, Err(error)) => Err(error.into()),
    }
}

fn shown(record: &Record) -> String {
    match record {
        Record::Increment(increment) => format!("increment {}", shown_increment(increment)),
        Record::Late(increment) => format!("late {}", shown_increment(increment)),
        Record::Filtered { rule, increment } => {
            format!("filtered rule={rule} {}", shown_increment(increment))
        }
        Record::Duplicate { id, of } => format!("duplicate id={} of={of}", id.escape_debug()),
        Record::Refused { id, field, detail } => format!(
            "refused id={} {field}: {}",
            id.escape_debug(),
            detail.escape_debug()
        ),
        Record::Batch {
            key,
            accepted,
            duplicates,
            late,
            filtered,
            ..
        } => {
            format!(
                "batch key={} accepted={accepted} duplicates={duplicates} late={late} filtered={filtered}",
                key.escape_debug()
            )
        }
        Record::Rotate { today } => format!("rotate today={today}"),
        Record::Cut { stores } => {
            let stores: Vec<String> = stores.iter().map(StoreId::to_string).collect();
            format!("cut {}", stores.join(" "))
        }
        Record::Schema(schema) => format!("schema {}", schema.names()),
    }
}

fn shown_increment(increment: &Increment) -> String {
    let at = jiff::Timestamp::from_second(increment.at)
        .map_or_else(|_| increment.at.to_string(), |at| at.to_string());
    let mut text = format!("at={at} n={}", increment.n);
    for (prefix, pairs) in [("key", &increment.keys), ("by", &increment.by)] {
        for (name, value) in pairs {
            text.push_str(&format!(" {prefix}.{name}={}", value.escape_debug()));
        }
    }
    for (name, value) in [("id", &increment.id), ("user", &increment.user)] {
        if let Some(value) = value {
            text.push_str(&format!(" {name}={}", value.escape_debug()));
        }
    }
    if let Some(origin) = &increment.origin {
        text.push_str(&format!(
            " producer={} epoch={} sequence={}",
            origin.producer.escape_debug(),
            origin.epoch,
            origin.sequence
        ));
    }
    if let Some(event) = &increment.event {
        text.push_str(&format!(" type={}", event.kind));
        if let Some(view) = &event.view {
            text.push_str(&format!(" view={}", view.escape_debug()));
        }
        if event.correction {
            text.push_str(" correction");
        }
    }
    text
}

fn slot(
    data: &Path,
    which: Option<&str>,
    out: &mut dyn Write,
) -> std::result::Result<(), CatError> {
    let store = open_read_only(data)?;
    let Some(which) = which else {
        for id in store.store_ids() {
            writeln!(out, "{id}")?;
        }
        return Ok(());
    };
    let id: StoreId = which.parse().map_err(CommandError::Usage)?;
    if !store.store_ids().contains(&id) {
        let detail = format!("{id} is no delta store now; `tallyring cat slot` lists them");
        return Err(CommandError::Failed(detail).into());
    }
    for point in store.points(id)? {
        writeln!(out, "{point}")?;
    }
    Ok(())
}

fn archive(
    disk: &OsDisk,
    which: Option<&str>,
    out: &mut dyn Write,
) -> std::result::Result<(), CatError> {
    let manifest = newest(disk)?;
    let files = manifest
        .generation(manifest.active)
        .map(|generation| generation.files.as_slice())
        .unwrap_or_default();
    let chosen: Vec<_> = files
        .iter()
        .filter(|entry| which.is_none_or(|which| entry.meta.partition.to_string() == which))
        .collect();
    if let Some(which) = which.filter(|_| chosen.is_empty()) {
        let detail = format!(
            "`{}` is no partition of the active generation",
            which.escape_debug()
        );
        return Err(CommandError::Failed(detail).into());
    }
    for entry in chosen {
        lines(disk, &entry.name, out)?;
    }
    Ok(())
}

fn manifest(
    disk: &OsDisk,
    which: Option<&str>,
    out: &mut dyn Write,
) -> std::result::Result<(), CatError> {
    let manifest = match which {
        Some(number) => {
            let number = number
                .parse()
                .map_err(|_| CommandError::Usage(format!("`{number}` is no manifest number")))?;
            Manifest::load_number(disk, number)?
        }
        None => newest(disk)?,
    };
    writeln!(out, "{}", serde_json::to_string_pretty(&manifest)?)?;
    Ok(())
}

fn file(
    disk: &OsDisk,
    which: Option<&str>,
    out: &mut dyn Write,
) -> std::result::Result<(), CatError> {
    let name = which
        .ok_or_else(|| CommandError::Usage("name a file, relative to the data directory".into()))?;
    lines(disk, name, out)
}

fn newest(disk: &OsDisk) -> Result<Manifest> {
    Manifest::load(disk)?.ok_or_else(|| CommandError::Failed("there is no manifest here".into()))
}

fn lines(disk: &OsDisk, name: &str, out: &mut dyn Write) -> std::result::Result<(), CatError> {
    let run: Arc<Run> = Run::open(disk, name)?;
    let mut cursor = run.cursor();
    while cursor.advance()? {
        let Some((key, payload)) = cursor.line()? else {
            break;
        };
        out.write_all(key)?;
        out.write_all(b",")?;
        out.write_all(payload)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
