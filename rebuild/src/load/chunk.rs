//! Cuts files into chunks of whole records, so that several threads can parse one file.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tallyring_records::input::csv::{first_record_end, last_record_end};

use super::csv::Columns;
use super::error::LoadError;
use super::input;
use super::preset::{self, Preset, Program};

/// Bytes of a chunk, about.
const CHUNK_BYTES: usize = 2 << 20;

/// Longest record, bytes.
const RECORD_BYTES_MAX: usize = 8 << 20;

/// Consecutive lines that may be cut off because nothing closes their quote. After more of them, the file is refused.
const OPEN_LINES_MAX: u32 = 16;

/// Some whole records of one file.
pub(super) struct Chunk {
    /// File of the records.
    pub file: Arc<FileInfo>,
    /// Rises by one from chunk to chunk.
    pub number: u64,
    /// Line number of the first byte, from 1.
    pub first_line: u64,
    /// The records, with their line ends; the last one may lack its own.
    pub bytes: Vec<u8>,
}

/// State that all chunks of a file share.
pub(super) struct FileInfo {
    /// Name as the caller gave it.
    pub name: Arc<str>,
    /// Format of the records.
    pub format: Format,
}

/// Format of records.
pub(super) enum Format {
    /// Comma-separated, with these columns.
    Csv(Columns),
    /// One JSON object in each line.
    NdJson,
    /// CSV of another program.
    Foreign(preset::Columns),
    /// Visits of Shlink, a JSON object in each line.
    Visits(Preset),
}

impl Format {
    /// The format of a file that begins with `begin`. The error is a sentence for the user.
    fn of(begin: &[u8], preset: Option<&Preset>) -> Result<Self, String> {
        let first = begin.iter().find(|byte| !byte.is_ascii_whitespace());
        let header = || &begin[..first_record_end(begin)];
        Ok(match (first, preset) {
            // Either format will do.
            (None, _) if begin.is_empty() => Self::NdJson,
            (Some(b'{'), None) => Self::NdJson,
            (Some(b'{'), Some(preset)) if preset.program() == Program::Shlink => {
                Self::Visits(preset.clone())
            }
            (Some(b'{' | b'['), Some(_)) => {
                return Err("it is JSON; name the files that were exported as CSV".into());
            }
            (_, Some(preset)) => Self::Foreign(preset::Columns::read(preset, header())?),
            (_, None) => Self::Csv(Columns::read(header())?),
        })
    }

    /// True where a record may have several lines.
    fn is_csv(&self) -> bool {
        matches!(self, Self::Csv(_) | Self::Foreign(_))
    }
}

/// The chunks of all files, in order.
#[derive(Default)]
pub(super) struct Chunks<'p> {
    files: VecDeque<PathBuf>,
    preset: Option<&'p Preset>,
    open: Option<OpenFile>,
    next_number: u64,
    bytes_read: Arc<AtomicU64>,
    /// Names of the empty files that were read so far: parts of an export without rows.
    pub empty: Vec<Arc<str>>,
}

struct OpenFile {
    file: Arc<FileInfo>,
    /// True for a file without any byte, which has no header either.
    is_empty: bool,
    reader: Box<dyn Read + Send>,
    /// Bytes that were read behind the last whole record.
    rest: Vec<u8>,
    next_line: u64,
    /// Lines that were cut off since the last whole record.
    open_lines: u32,
}

impl<'p> Chunks<'p> {
    /// Begins the chunks of `files`, which are of another program where there is a preset.
    pub(super) fn new(files: &[PathBuf], preset: Option<&'p Preset>) -> Self {
        Self {
            files: files.iter().cloned().collect(),
            preset,
            ..Self::default()
        }
    }

    /// Bytes that were read so far, as they are on disk.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The next chunk; none at the end of the last file. The chunk reuses the memory of `buffer`.
    pub(super) fn next(&mut self, buffer: Vec<u8>) -> Result<Option<Chunk>, LoadError> {
        let mut buffer = buffer;
        loop {
            if self.open.is_none() {
                let Some(path) = self.files.pop_front() else {
                    return Ok(None);
                };
                let open = OpenFile::open(&path, self.preset, &self.bytes_read)?;
                if open.is_empty {
                    self.empty.push(Arc::clone(&open.file.name));
                    continue;
                }
                self.open = Some(open);
            }
            let open = self.open.as_mut().expect("BUG: just opened");
            let next = open.next(std::mem::take(&mut buffer));
            if let Ok(Some(mut chunk)) = next {
                chunk.number = self.next_number;
                self.next_number += 1;
                return Ok(Some(chunk));
            }
            self.open = None;
            if next.is_err() {
                // The start of the next record is unknown.
                self.files.clear();
                return next;
            }
        }
    }
}

impl OpenFile {
    fn open(
        path: &Path,
        preset: Option<&Preset>,
        bytes_read: &Arc<AtomicU64>,
    ) -> Result<Self, LoadError> {
        let name: Arc<str> = path.display().to_string().escape_debug().to_string().into();
        let failed = |source| LoadError::Read {
            file: Arc::clone(&name),
            source,
        };
        let mut reader = input::open(path, bytes_read).map_err(failed)?;
        let mut rest = Vec::new();
        read_chunk(&mut *reader, &mut rest).map_err(failed)?;
        if rest.starts_with(b"\xef\xbb\xbf") {
            rest.drain(..3);
        }
        let is_empty = rest.is_empty();
        let format = Format::of(&rest, preset).map_err(|what| LoadError::File {
            file: Arc::clone(&name),
            what,
        })?;
        let mut next_line = 1;
        if format.is_csv() {
            let end = first_record_end(&rest);
            next_line += newlines(&rest[..end]);
            rest.drain(..end);
        }
        Ok(Self {
            file: Arc::new(FileInfo { name, format }),
            is_empty,
            reader,
            rest,
            next_line,
            open_lines: 0,
        })
    }

    fn next(&mut self, buffer: Vec<u8>) -> Result<Option<Chunk>, LoadError> {
        let mut bytes = std::mem::replace(&mut self.rest, buffer);
        self.rest.clear();
        let end = loop {
            // After a cut-off line, enough bytes are in memory.
            let is_full = bytes.len() > RECORD_BYTES_MAX;
            if !is_full && self.read(&mut bytes)? {
                break bytes.len();
            }
            let end = match self.file.format.is_csv() {
                true => last_record_end(&bytes),
                false => memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1),
            };
            if end > 0 {
                if !is_full {
                    self.open_lines = 0;
                }
                break end;
            }
            if bytes.len() > RECORD_BYTES_MAX {
                // No field is that long: the quote on the first line is not meant to open one, and only that line is
                // bad.
                if let (true, Some(line_end)) =
                    (self.file.format.is_csv(), memchr::memchr(b'\n', &bytes))
                    && self.open_lines < OPEN_LINES_MAX
                {
                    self.open_lines += 1;
                    break line_end + 1;
                }
                let what = format!(
                    "the record that begins at line {} is longer than {} MiB; a quoted field may lack its closing quote",
                    self.next_line,
                    RECORD_BYTES_MAX >> 20
                );
                let file = Arc::clone(&self.file.name);
                return Err(LoadError::File { file, what });
            }
            bytes.reserve(CHUNK_BYTES);
        };
        if end == 0 {
            return Ok(None);
        }
        self.rest.extend_from_slice(&bytes[end..]);
        bytes.truncate(end);
        let first_line = self.next_line;
        self.next_line += newlines(&bytes);
        Ok(Some(Chunk {
            file: Arc::clone(&self.file),
            number: 0,
            first_line,
            bytes,
        }))
    }

    /// Reads more bytes behind the existing ones. Returns true at the end of the file.
    fn read(&mut self, bytes: &mut Vec<u8>) -> Result<bool, LoadError> {
        read_chunk(&mut *self.reader, bytes).map_err(|source| {
            let file = Arc::clone(&self.file.name);
            LoadError::Read { file, source }
        })
    }
}

/// Reads until `bytes` has a chunk more, or to the end. Returns true at the end.
fn read_chunk(reader: &mut dyn Read, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let wanted = CHUNK_BYTES.max(bytes.len() + CHUNK_BYTES / 2) - bytes.len();
    let read = reader.take(wanted as u64).read_to_end(bytes)?;
    Ok(read < wanted)
}

/// Number of line ends in `bytes`.
pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
