//! The bad lines of a run under `--on-error skip`: the first on standard error, all in the rejects file.
//!
//! Rejects file: one JSON object a line, `{"file","line","reason","text"}`, written through at once.

use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::place::{Place, SourceLine};
use super::progress::Progress;
use crate::escape::visible;

/// How many bad lines are shown one by one.
const SHOWN_MAX: u64 = 20;

/// Lists bad lines.
pub(super) struct BadLines {
    rejects: Option<(PathBuf, LineWriter<File>)>,
    count: u64,
}

#[derive(Serialize)]
struct Reject<'a> {
    file: &'a str,
    line: u64,
    reason: &'a str,
    text: &'a str,
}

impl BadLines {
    /// Creates the rejects file, or empties it, when one is wanted.
    pub(super) fn new(rejects: Option<&Path>) -> io::Result<Self> {
        let rejects = match rejects {
            None => None,
            Some(path) => Some((path.to_owned(), LineWriter::new(File::create(path)?))),
        };
        Ok(Self { rejects, count: 0 })
    }

    /// Lists `line`; `reason` must be safe to show.
    pub(super) fn list(
        &mut self,
        line: &SourceLine,
        reason: &str,
        progress: &Progress,
    ) -> io::Result<()> {
        self.show(format_args!("{}: {reason}", line.place), progress);
        self.record(&line.place, reason, &String::from_utf8_lossy(&line.text))
    }

    /// Lists `count` lines that the server refused without naming them; they stand after `place` in one batch.
    pub(super) fn list_unnamed(
        &mut self,
        count: u64,
        place: &Place,
        progress: &Progress,
    ) -> io::Result<()> {
        let reason = format!(
            "further lines of this batch that the server refused without naming them: {count}"
        );
        progress.message(format_args!("from {place} on: {reason}"));
        self.record(place, &reason, "")
    }

    /// Says how many were not shown.
    pub(super) fn finish(&self, progress: &Progress) {
        if self.count <= SHOWN_MAX {
            return;
        }
        let more = self.count - SHOWN_MAX;
        match &self.rejects {
            Some((path, _)) => progress.message(format_args!(
                "and {more} more bad lines; all are in {}",
                visible(&path.to_string_lossy())
            )),
            None => progress.message(format_args!(
                "and {more} more bad lines; --rejects FILE keeps them all"
            )),
        }
    }

    /// The name of the rejects file, for errors.
    pub(super) fn rejects_name(&self) -> String {
        self.rejects
            .as_ref()
            .map(|(path, _)| path.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    fn show(&mut self, text: std::fmt::Arguments<'_>, progress: &Progress) {
        self.count += 1;
        if self.count <= SHOWN_MAX {
            progress.message(text);
        }
    }

    fn record(&mut self, place: &Place, reason: &str, text: &str) -> io::Result<()> {
        let Some((_, file)) = &mut self.rejects else {
            return Ok(());
        };
        serde_json::to_writer(
            &mut *file,
            &Reject {
                file: &place.file,
                line: place.line,
                reason,
                text,
            },
        )?;
        file.write_all(b"\n")
    }
}
