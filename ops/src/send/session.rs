//! A run: reads lines, gathers batches, posts them and keeps the totals.
//!
//! Invariant: `totals.sent` counts the events of answered batches only, and a batch leaves memory only once it was
//! answered. [`Sent`] says exactly how far a run had come, whatever stopped it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tallyring_records::{grouped, how_many};

use super::OnError;
use super::answer::{Answer, PostError};
use super::bad_lines::BadLines;
use super::error::{SendError, Sent, Why};
use super::lines::{LineReader, Next, is_stdin};
use super::place::{Place, SourceLine};
use super::plan::{Input, Plan};
use super::post::{Poster, RetryPolicy};
use super::progress::Progress;
use super::record::{Assembled, Parser};
use super::summary::Totals;

/// The most bytes of one batch; half of what the server takes.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The most bytes of source lines that a batch keeps, to name them if the server refuses some.
const BATCH_SOURCE_BYTES_MAX: usize = 16 << 20;

/// How long a followed line waits for others to share its batch.
const FOLLOW_FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// How often a followed file is looked at.
const FOLLOW_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Events that wait to be posted, in NDJSON, and the lines they came from.
#[derive(Default)]
struct Batch {
    /// Counts from 1; part of the idempotency key.
    number: u64,
    body: Vec<u8>,
    /// `lines[i]` is the source of the body's line `i`.
    lines: Vec<SourceLine>,
    /// The bytes of all `lines`.
    source_bytes: usize,
}

/// A run in progress.
pub(super) struct Session<'a> {
    plan: &'a Plan,
    poster: Poster<'a>,
    batch: Batch,
    bad_lines: BadLines,
    progress: Progress,
    totals: Totals,
    interrupted: &'a AtomicBool,
    flushed_at: Instant,
}

impl<'a> Session<'a> {
    /// Checks that the files are there, and prepares to send them.
    ///
    /// `run_id` must be new for every run. Once `interrupted` turns true, a run that follows a file sends its last
    /// batch and succeeds; any other run stops. Fails when a file is missing or a directory.
    pub(super) fn new(
        plan: &'a Plan,
        run_id: String,
        retry: RetryPolicy,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, SendError> {
        let stopped = |why| SendError::Stopped {
            why,
            sent: Sent {
                events: 0,
                next: None,
                has_id: plan.mapping.has_id(),
            },
        };
        let bytes_total = bytes_total(plan).map_err(stopped)?;
        let rejects = plan.rejects.as_deref();
        let bad_lines = BadLines::new(rejects)
            .map_err(|source| stopped(file_error(rejects.unwrap_or(Path::new("")), source)))?;
        Ok(Self {
            plan,
            poster: Poster::new(&plan.server, plan.path, run_id, retry, interrupted),
            batch: Batch {
                number: 1,
                ..Batch::default()
            },
            bad_lines,
            progress: Progress::start(bytes_total),
            totals: Totals::default(),
            interrupted,
            flushed_at: Instant::now(),
        })
    }

    /// Sends everything. Blocks until done; under `--follow`, until interrupted.
    pub(super) fn run(&mut self) -> Result<(), SendError> {
        let outcome = self.send_all();
        self.progress.finish();
        self.bad_lines.finish(&self.progress);
        self.totals.retries = self.poster.retry_count;
        outcome.map_err(|why| {
            let stopped_at = match &why {
                Why::BadLine { place, .. } => Some(place),
                _ => None,
            };
            let next = self
                .batch
                .lines
                .first()
                .map(|line| &line.place)
                .or(stopped_at)
                .cloned();
            let sent = Sent {
                events: self.totals.sent,
                next,
                has_id: self.plan.mapping.has_id(),
            };
            SendError::Stopped { why, sent }
        })
    }

    /// The counts so far.
    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.progress.elapsed()
    }

    fn send_all(&mut self) -> Result<(), Why> {
        let plan = self.plan;
        for input in &plan.inputs {
            self.send_input(input)?;
        }
        self.flush()
    }

    fn send_input(&mut self, input: &Input) -> Result<(), Why> {
        let bytes_read = self.progress.bytes_read();
        let opened = if self.plan.follow {
            LineReader::follow(&input.path, bytes_read)
        } else {
            LineReader::open(&input.path, bytes_read)
        };
        let mut reader = opened.map_err(|source| file_error(&input.path, source))?;
        let mut parser = Parser::new(input.format);
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return if self.plan.follow {
                    Ok(())
                } else {
                    Err(Why::Interrupted)
                };
            }
            let next = reader.next().map_err(|source| Why::File {
                name: at_line(&reader.place()),
                source,
            })?;
            match next {
                Next::Line(line) => self.take_line(&mut parser, line)?,
                Next::Bad(line, reason) => self.take_bad(&line, reason)?,
                Next::Idle => self.idle()?,
                Next::End => {
                    return match parser.finish() {
                        Some((line, reason)) => self.take_bad(&line, reason),
                        None => Ok(()),
                    };
                }
            }
        }
    }

    fn take_line(&mut self, parser: &mut Parser, line: SourceLine) -> Result<(), Why> {
        let file = line.place.file.clone();
        match parser.assemble(line, &self.plan.mapping) {
            Assembled::Nothing => Ok(()),
            Assembled::Record(record) => self.take_record(parser, record),
            Assembled::Bad(line, reason) => self.take_bad(&line, reason),
            Assembled::Unusable(why) => Err(Why::Unusable {
                file: file.to_string(),
                why,
            }),
        }
    }

    /// Appends a record to the batch, and posts the batch when it is full.
    fn take_record(&mut self, parser: &Parser, line: SourceLine) -> Result<(), Why> {
        let start = self.batch.body.len();
        match self.append(parser, &line.text) {
            Ok(true) => {}
            Ok(false) => {
                self.totals.skipped += 1;
                return Ok(());
            }
            Err(reason) => {
                self.batch.body.truncate(start);
                return self.take_bad(&line, &reason);
            }
        }
        if self.batch.body.len() > BATCH_BYTES_MAX && start > 0 {
            let last = self.batch.body.split_off(start);
            self.flush()?;
            self.batch.body = last;
        }
        self.batch.source_bytes += line.text.len();
        self.batch.lines.push(line);
        let full = self.batch.lines.len() >= self.plan.batch_events_max
            || self.batch.source_bytes >= BATCH_SOURCE_BYTES_MAX;
        if full { self.flush() } else { Ok(()) }
    }

    /// Appends the increment of a record; false where the record is not to be sent.
    fn append(&mut self, parser: &Parser, text: &[u8]) -> Result<bool, String> {
        let record = parser.parse(text)?;
        let Some(increment) = self.plan.mapping.increment(&record)? else {
            return Ok(false);
        };
        serde_json::to_writer(&mut self.batch.body, &increment)
            .map_err(|error| error.to_string())?;
        self.batch.body.push(b'\n');
        Ok(true)
    }

    /// Lists a bad line, or stops at it: what is gathered by then stays unsent.
    fn take_bad(&mut self, line: &SourceLine, reason: &str) -> Result<(), Why> {
        if self.plan.on_error == OnError::Stop {
            return Err(Why::BadLine {
                place: line.place.clone(),
                reason: reason.to_owned(),
            });
        }
        self.totals.bad_lines += 1;
        self.list(line, reason)
    }

    fn list(&mut self, line: &SourceLine, reason: &str) -> Result<(), Why> {
        let listed = self.bad_lines.list(line, reason, &self.progress);
        listed.map_err(|source| Why::File {
            name: self.bad_lines.rejects_name(),
            source,
        })
    }

    /// Waits for more lines; posts what has come when it has waited long enough.
    fn idle(&mut self) -> Result<(), Why> {
        if self.flushed_at.elapsed() >= FOLLOW_FLUSH_INTERVAL {
            self.flush()?;
        }
        thread::sleep(FOLLOW_POLL_INTERVAL);
        Ok(())
    }

    /// Posts the batch, if there is anything in it, and begins the next.
    fn flush(&mut self) -> Result<(), Why> {
        self.flushed_at = Instant::now();
        if self.batch.lines.is_empty() {
            return Ok(());
        }
        let notice = |text: &str| self.progress.message(text);
        let answer = match self
            .poster
            .post(self.batch.number, &self.batch.body, notice)
        {
            Ok(answer) => answer,
            Err(error) => {
                let blamed = match &error {
                    PostError::Refused { index, .. } => {
                        index.and_then(|index| self.batch.lines.get(index))
                    }
                    _ => None,
                };
                let place = blamed.map(|line| line.place.clone());
                return Err(Why::Server { place, error });
            }
        };
        let lines = std::mem::take(&mut self.batch.lines);
        self.batch.body.clear();
        self.batch.source_bytes = 0;
        self.batch.number += 1;
        let settled = self.settle(&answer, &lines);
        self.progress.sent(self.totals.sent);
        settled
    }

    /// Adds an answered batch to the totals.
    fn settle(&mut self, answer: &Answer, lines: &[SourceLine]) -> Result<(), Why> {
        let event_count = lines.len() as u64;
        let taken = answer.accepted.saturating_add(answer.duplicates);
        // The server lists only the first 100 refused events, so the number is a difference.
        let rejected = match self.plan.on_error {
            OnError::Skip => event_count.saturating_sub(taken),
            OnError::Stop => 0,
        };
        self.totals.batches += 1;
        self.totals.sent += event_count;
        self.totals.accepted = self.totals.accepted.saturating_add(answer.accepted);
        self.totals.duplicates = self.totals.duplicates.saturating_add(answer.duplicates);
        self.totals.late = self.totals.late.saturating_add(answer.late);
        self.totals.rejected += rejected;
        if taken.saturating_add(rejected) != event_count {
            self.progress.message(format_args!(
                "warning: of a batch of {} the server accounts for {}; \
                 compare its counts with the source",
                how_many(event_count, "event"),
                grouped(taken)
            ));
        }
        let mut unnamed = rejected;
        let mut last = None;
        for rejection in &answer.rejected {
            let Some(line) = lines.get(rejection.index) else {
                continue;
            };
            self.list(line, &rejection.reason())?;
            unnamed = unnamed.saturating_sub(1);
            last = Some(line);
        }
        match last.or(lines.first()) {
            Some(line) if unnamed > 0 => {
                let listed = self
                    .bad_lines
                    .list_unnamed(unnamed, &line.place, &self.progress);
                listed.map_err(|source| Why::File {
                    name: self.bad_lines.rejects_name(),
                    source,
                })
            }
            _ => Ok(()),
        }
    }
}

/// The bytes of all files on disk; `None` where the end is not known beforehand.
fn bytes_total(plan: &Plan) -> Result<Option<u64>, Why> {
    let mut total = Some(0);
    for input in &plan.inputs {
        if is_stdin(&input.path) {
            total = None;
            continue;
        }
        let metadata =
            std::fs::metadata(&input.path).map_err(|source| file_error(&input.path, source))?;
        if metadata.is_dir() {
            let source = std::io::ErrorKind::IsADirectory.into();
            return Err(file_error(&input.path, source));
        }
        total = total
            .filter(|_| metadata.is_file() && !plan.follow)
            .map(|bytes| bytes + metadata.len());
    }
    Ok(total)
}

fn file_error(path: &Path, source: std::io::Error) -> Why {
    Why::File {
        name: path.to_string_lossy().into_owned(),
        source,
    }
}

fn at_line(place: &Place) -> String {
    format!("{}:{}", place.file, place.line)
}
