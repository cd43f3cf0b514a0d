//! The progress bar and all messages beside it, on standard error.
//!
//! The bar is drawn only on a terminal; messages always are, and never run into the bar.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

/// Shows how far a run has come.
pub(super) struct Progress {
    bar: ProgressBar,
    bytes_read: Arc<AtomicU64>,
    started: Instant,
}

impl Progress {
    /// Starts the bar; `bytes_total` is the size of all files on disk, `None` where the end is not known.
    pub(super) fn start(bytes_total: Option<u64>) -> Self {
        let (bar, template) = match bytes_total {
            _ if !io::stderr().is_terminal() => (ProgressBar::hidden(), ""),
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{bar:30} {percent:>3} %  {msg}  {eta} left",
            ),
            None => (ProgressBar::new_spinner(), "{spinner}  {msg}  {elapsed}"),
        };
        // The templates are ours, so a failure would only mean the default look.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self {
            bar,
            bytes_read: Arc::default(),
            started: Instant::now(),
        }
    }

    /// The counter of bytes read that moves the bar.
    pub(super) fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_read)
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Shows that `events` have been sent so far.
    pub(super) fn sent(&self, events: u64) {
        let rate = rate_per_second(events, self.elapsed());
        self.bar
            .set_position(self.bytes_read.load(Ordering::Relaxed));
        self.bar.set_message(format!(
            "{} sent, {}/s",
            HumanCount(events),
            HumanCount(rate as u64)
        ));
    }

    /// Prints a line, which must be safe to show.
    pub(super) fn message(&self, text: impl Display) {
        // Nothing can be done when standard error is gone; the run goes on.
        self.bar.suspend(|| writeln!(io::stderr(), "{text}").ok());
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// `events` a second; 0 where no time has passed.
pub(super) fn rate_per_second(events: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        events as f64 / seconds
    } else {
        0.0
    }
}
