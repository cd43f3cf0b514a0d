//! Files of an export: zstd with a checksum, CSV as in RFC 4180 or JSON lines, in the columns that `load` takes.
//!
//! A text stands in its cell as it was counted, also where a spreadsheet would take it for a formula: a guard before it
//! would be loaded as a part of the key. No text reaches the name of a file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use tallyring_archive::Partition;
use tallyring_rebuild::CountRow;
use tallyring_rebuild::load::COLUMNS;
use tallyring_records::Grain;

use super::directory::Made;
use crate::cli::ExportFormat;
use crate::error::{CommandError, Result, doing};

const LEVEL: i32 = 6;

/// Files of some months that are being written.
pub(super) struct MonthFiles {
    directory: PathBuf,
    format: ExportFormat,
    /// None before the first row.
    files: BTreeMap<Partition, Option<Rows>>,
}

impl MonthFiles {
    pub(super) fn new(directory: &Path, format: ExportFormat, months: &[Partition]) -> Self {
        Self {
            directory: directory.to_owned(),
            format,
            files: months.iter().map(|month| (*month, None)).collect(),
        }
    }

    /// Writes a row to the file of its month, unless that month is not to be written.
    pub(super) fn push(&mut self, row: &CountRow<'_>) -> Result<()> {
        let month = Partition::month_of(row.bucket);
        let part = || part(&self.directory, &name(month, self.format));
        let Some(file) = self.files.get_mut(&month) else {
            return Ok(());
        };
        let file = match file {
            Some(file) => file,
            None => file.insert(Rows::create(part(), self.format)?),
        };
        file.push(row)
    }

    /// Ends the file of a month, and puts it in its place durably. No file is made without rows.
    pub(super) fn finish(&mut self, month: Partition) -> Result<Made> {
        let file = name(month, self.format);
        let Some(rows) = self.files.remove(&month).flatten() else {
            let (rows, bytes) = (0, 0);
            return Ok(Made { file, rows, bytes });
        };
        let (rows, bytes) = rows.finish()?;
        let path = self.directory.join(&file);
        let put = fs::rename(part(&self.directory, &file), &path)
            .and_then(|()| File::open(&self.directory)?.sync_all());
        put.map_err(doing(format!("write {}", path.display())))?;
        Ok(Made { file, rows, bytes })
    }
}

impl Drop for MonthFiles {
    /// Removes what was not finished. The next export writes over a file that cannot be removed.
    fn drop(&mut self) {
        for month in self.files.keys() {
            let _ = fs::remove_file(part(&self.directory, &name(*month, self.format)));
        }
    }
}

/// The name of the file of a month.
pub(super) fn name(month: Partition, format: ExportFormat) -> String {
    let ending = match format {
        ExportFormat::Csv => "csv",
        ExportFormat::Ndjson => "ndjson",
    };
    format!("{month}.{ending}.zst")
}

fn part(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.part"))
}

type Packed = zstd::Encoder<'static, BufWriter<File>>;

/// Rows of one file.
struct Rows {
    path: PathBuf,
    out: Out,
    rows: u64,
}

enum Out {
    Csv(Box<csv::Writer<Packed>>),
    Ndjson(Packed),
}

/// A row as a line of JSON.
#[derive(Serialize)]
struct Line<'r> {
    namespace: &'r str,
    key: &'r str,
    hour: String,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    subtotal: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'r str>,
    unit: &'static str,
}

impl Rows {
    fn create(path: PathBuf, format: ExportFormat) -> Result<Self> {
        let packed = File::create(&path)
            .and_then(|file| Packed::new(BufWriter::new(file), LEVEL))
            .and_then(|mut packed| packed.include_checksum(true).map(|()| packed));
        let packed = packed.map_err(failed(&path))?;
        let out = match format {
            ExportFormat::Ndjson => Out::Ndjson(packed),
            ExportFormat::Csv => {
                let mut csv = csv::Writer::from_writer(packed);
                csv.write_record(COLUMNS).map_err(failed(&path))?;
                Out::Csv(Box::new(csv))
            }
        };
        let rows = 0;
        Ok(Self { path, out, rows })
    }

    fn push(&mut self, row: &CountRow<'_>) -> Result<()> {
        let hour = Timestamp::from_second(row.bucket.start());
        let hour = hour.map_err(failed(&self.path))?.to_string();
        let unit = match row.bucket.grain() {
            Grain::Day => "day",
            Grain::Hour => "hour",
            Grain::Quarter => "quarter",
            Grain::Minute => "minute",
        };
        let (subtotal, value) = row.part.unzip();
        match &mut self.out {
            Out::Csv(csv) => {
                let count = row.count.to_string();
                let (subtotal, value) = (subtotal.unwrap_or(""), value.unwrap_or(""));
                let cells = [row.namespace, row.key, &hour, &count, subtotal, value, unit];
                csv.write_record(cells).map_err(failed(&self.path))?;
            }
            Out::Ndjson(out) => {
                let mut line = serde_json::to_vec(&Line {
                    namespace: row.namespace,
                    key: row.key,
                    hour,
                    count: row.count,
                    subtotal,
                    value,
                    unit,
                })?;
                line.push(b'\n');
                out.write_all(&line).map_err(failed(&self.path))?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Writes the end durably. Returns the number of rows, and the size of the file, bytes.
    fn finish(self) -> Result<(u64, u64)> {
        let Self { path, out, rows } = self;
        let packed = match out {
            Out::Ndjson(packed) => packed,
            Out::Csv(csv) => csv.into_inner().map_err(failed(&path))?,
        };
        let ended = packed.finish().and_then(|buffered| {
            let file = buffered.into_inner().map_err(|error| error.into_error())?;
            file.sync_all()?;
            file.metadata()
        });
        Ok((rows, ended.map_err(failed(&path))?.len()))
    }
}

fn failed<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> CommandError {
    doing(format!("write {}", path.display()))
}
