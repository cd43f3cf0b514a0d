//! Reads lines with the file and number they came from: of a plain or packed file, of standard input, or followed.
//!
//! Invariants: a line takes at most [`LINE_BYTES_MAX`] bytes of memory; numbers start at 1, and start again at 1 where
//! a followed file was replaced or truncated. The reader does not know what a line means.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tallyring_rebuild::load::{Counted, open_input};

use super::place::{Place, SourceLine};

/// The longest line that is read, in bytes without its line end.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

const READ_BUFFER_BYTES: usize = 64 << 10;

/// The result of reading a line.
#[derive(Debug)]
pub(super) enum Next {
    /// A whole line.
    Line(SourceLine),
    /// A line that no format can use, and the reason.
    Bad(SourceLine, &'static str),
    /// A followed file has nothing new at the moment.
    Idle,
    /// The file has ended.
    End,
}

/// Reads the lines of one file, or of standard input.
pub(super) struct LineReader {
    name: Arc<str>,
    input: BufReader<Box<dyn Read>>,
    /// Lines returned so far.
    line_count: u64,
    /// The start of a line whose end has not been read yet.
    partial: Vec<u8>,
    /// The current line was longer than [`LINE_BYTES_MAX`]; `partial` holds its start.
    overlong: bool,
    bytes_read: Arc<AtomicU64>,
    followed: Option<Followed>,
}

/// The file behind a followed name.
struct Followed {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Bytes taken from this file; more than its length means it was truncated.
    bytes_consumed: u64,
}

impl LineReader {
    /// Opens `path`, `-` being standard input, and unpacks gzip and zstd.
    ///
    /// Adds the bytes read from disk (before unpacking) to `bytes_read`.
    pub(super) fn open(path: &Path, bytes_read: Arc<AtomicU64>) -> io::Result<Self> {
        let input = open_input(path, &bytes_read)?;
        Ok(Self::new(path, input, bytes_read, None))
    }

    /// Opens the plain file `path` and keeps reading what is appended, through rotation and truncation. Fails when the
    /// file does not exist or cannot be opened.
    pub(super) fn follow(path: &Path, bytes_read: Arc<AtomicU64>) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let followed = Followed {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes_consumed: 0,
        };
        let input = Counted::new(file, &bytes_read);
        Ok(Self::new(path, Box::new(input), bytes_read, Some(followed)))
    }

    fn new(
        path: &Path,
        input: Box<dyn Read>,
        bytes_read: Arc<AtomicU64>,
        followed: Option<Followed>,
    ) -> Self {
        Self {
            name: path.to_string_lossy().into(),
            input: BufReader::with_capacity(READ_BUFFER_BYTES, input),
            line_count: 0,
            partial: Vec::new(),
            overlong: false,
            bytes_read,
            followed,
        }
    }

    /// Where the next line will start.
    pub(super) fn place(&self) -> Place {
        Place {
            file: Arc::clone(&self.name),
            line: self.line_count + 1,
        }
    }

    /// Reads the next line. Blocks only as the file itself does; a followed file answers [`Next::Idle`]. Fails when the
    /// file cannot be read or unpacked; [`LineReader::place`] says where.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                match self.at_end()? {
                    Some(next) => return Ok(next),
                    None => continue,
                }
            }
            let newline = chunk.iter().position(|&byte| byte == b'\n');
            let part = &chunk[..newline.unwrap_or(chunk.len())];
            let room = LINE_BYTES_MAX.saturating_sub(self.partial.len());
            self.overlong |= part.len() > room;
            self.partial
                .extend_from_slice(&part[..part.len().min(room)]);
            let consumed = part.len() + usize::from(newline.is_some());
            self.input.consume(consumed);
            if let Some(followed) = &mut self.followed {
                followed.bytes_consumed += consumed as u64;
            }
            if newline.is_some() {
                return Ok(self.take_line());
            }
        }
    }

    /// Decides what an empty read means; `None` asks to read again.
    fn at_end(&mut self) -> io::Result<Option<Next>> {
        let Some(followed) = &mut self.followed else {
            let ended = self.partial.is_empty() && !self.overlong;
            return Ok(Some(if ended { Next::End } else { self.take_line() }));
        };
        // A rotated file is gone for a moment before its successor appears.
        let Ok(metadata) = std::fs::metadata(&followed.path) else {
            return Ok(Some(Next::Idle));
        };
        if (metadata.dev(), metadata.ino()) != (followed.device, followed.inode) {
            // The file may have got its last lines between the empty read and the look at the name.
            if !self.input.fill_buf()?.is_empty() {
                return Ok(None);
            }
            let unfinished = (!self.partial.is_empty() || self.overlong).then(|| self.take_line());
            self.reopen()?;
            return Ok(unfinished);
        }
        if metadata.len() < followed.bytes_consumed {
            let unfinished =
                (!self.partial.is_empty() || self.overlong).then(|| self.take_source_line());
            self.reopen()?;
            return Ok(
                unfinished.map(|line| Next::Bad(line, "unfinished when its file was truncated"))
            );
        }
        Ok(Some(Next::Idle))
    }

    /// Starts again with the file that has the followed name now.
    fn reopen(&mut self) -> io::Result<()> {
        let Some(followed) = &mut self.followed else {
            return Ok(());
        };
        let file = match File::open(&followed.path) {
            Ok(file) => file,
            // Rotated twice in a row: the next look finds the newest.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let metadata: Metadata = file.metadata()?;
        (followed.device, followed.inode) = (metadata.dev(), metadata.ino());
        followed.bytes_consumed = 0;
        let counted = Counted::new(file, &self.bytes_read);
        self.input = BufReader::with_capacity(READ_BUFFER_BYTES, Box::new(counted));
        self.line_count = 0;
        Ok(())
    }

    fn take_line(&mut self) -> Next {
        let overlong = self.overlong;
        let line = self.take_source_line();
        if overlong {
            Next::Bad(line, "longer than 1 MiB")
        } else {
            Next::Line(line)
        }
    }

    fn take_source_line(&mut self) -> SourceLine {
        let place = self.place();
        let mut text = std::mem::take(&mut self.partial);
        self.overlong = false;
        self.line_count += 1;
        if text.last() == Some(&b'\r') {
            text.pop();
        }
        SourceLine { place, text }
    }
}

/// Whether `path` means standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether the name of `path` is that of a packed file.
pub(super) fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["gz", "zst"]
            .iter()
            .any(|packed| extension.eq_ignore_ascii_case(packed))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn reader(path: &Path) -> LineReader {
        LineReader::open(path, Arc::default()).expect("open")
    }

    fn all_lines(mut reader: LineReader) -> Vec<(u64, String)> {
        let mut lines = Vec::new();
        while let Next::Line(line) = reader.next().expect("read") {
            lines.push((
                line.place.line,
                String::from_utf8(line.text).expect("UTF-8"),
            ));
        }
        lines
    }

    #[track_caller]
    fn expect_line(reader: &mut LineReader, number: u64, text: &str) {
        match reader.next().expect("read") {
            Next::Line(line) => {
                assert_eq!(
                    (line.place.line, line.text.as_slice()),
                    (number, text.as_bytes())
                );
            }
            other => panic!("expected {text:?}, got {other:?}"),
        }
    }

    #[test]
    fn lines_are_numbered_and_the_last_needs_no_line_end() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a.txt");
        std::fs::write(&path, "one\r\n\nthree").expect("write");
        let expected = vec![
            (1, "one".to_owned()),
            (2, String::new()),
            (3, "three".to_owned()),
        ];
        assert_eq!(all_lines(reader(&path)), expected);
    }

    #[test]
    fn gzip_members_are_read_one_after_the_other_and_damage_is_an_error() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a.txt.gz");
        let mut bytes = Vec::new();
        for text in ["one\n", "two\n"] {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes()).expect("encode");
            bytes.extend(encoder.finish().expect("encode"));
        }
        std::fs::write(&path, &bytes).expect("write");
        assert_eq!(
            all_lines(reader(&path)),
            [(1, "one".to_owned()), (2, "two".to_owned())]
        );

        std::fs::write(&path, &bytes[..bytes.len() - 6]).expect("write");
        let mut damaged = reader(&path);
        expect_line(&mut damaged, 1, "one");
        while let Ok(next) = damaged.next() {
            assert!(!matches!(next, Next::End), "the damage went unnoticed");
        }
    }

    #[test]
    fn an_overlong_line_is_bad_and_the_next_one_is_fine() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a.txt");
        std::fs::write(
            &path,
            format!("{}\nshort\n", "x".repeat(LINE_BYTES_MAX + 1)),
        )
        .expect("write");
        let mut reader = reader(&path);
        assert!(matches!(reader.next().expect("read"), Next::Bad(line, _) if line.place.line == 1));
        expect_line(&mut reader, 2, "short");
        assert!(matches!(reader.next().expect("read"), Next::End));
    }

    #[test]
    fn following_waits_for_line_ends_and_survives_rotation_and_truncation() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a.log");
        let mut file = File::create(&path).expect("create");
        file.write_all(b"one\nha").expect("write");
        let mut reader = LineReader::follow(&path, Arc::default()).expect("follow");
        expect_line(&mut reader, 1, "one");
        assert!(matches!(reader.next().expect("read"), Next::Idle));
        file.write_all(b"lf\n").expect("write");
        expect_line(&mut reader, 2, "half");

        std::fs::rename(&path, directory.path().join("a.log.1")).expect("rotate");
        assert!(matches!(reader.next().expect("read"), Next::Idle));
        file.write_all(b"after the rename\n").expect("write");
        let mut file = File::create(&path).expect("create");
        file.write_all(b"new\n").expect("write");
        expect_line(&mut reader, 3, "after the rename");
        expect_line(&mut reader, 1, "new");
        assert!(matches!(reader.next().expect("read"), Next::Idle));

        file.write_all(b"cut").expect("write");
        assert!(matches!(reader.next().expect("read"), Next::Idle));
        std::fs::write(&path, "x\n").expect("truncate");
        assert!(matches!(reader.next().expect("read"), Next::Bad(line, _) if line.text == b"cut"));
        expect_line(&mut reader, 1, "x");
    }
}
