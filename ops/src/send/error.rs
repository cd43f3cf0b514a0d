//! Why a run ended early, how far it had come, and what a second run would count.

use std::fmt;
use std::io;

use tallyring_records::how_many_were;

use super::answer::PostError;
use super::place::Place;
use crate::error::CommandError;
use crate::escape::visible;

/// The failures of `tallyring send`. The text is safe to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The command line is wrong; nothing was read or sent.
    #[error("{0}")]
    Usage(String),
    /// The run ended before all was sent.
    #[error("{why}; {sent}")]
    Stopped {
        /// The cause.
        why: Why,
        /// How far the run had come.
        sent: Sent,
    },
}

impl From<SendError> for CommandError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Usage(_) => Self::Usage(error.to_string()),
            SendError::Stopped { .. } => Self::Failed(error.to_string()),
        }
    }
}

/// The cause of an early end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// A bad line under `--on-error stop`.
    #[error("{place}: {reason} (--on-error skip lists such lines and goes on)")]
    BadLine {
        /// The place of the line.
        place: Place,
        /// The fault, safe to show.
        reason: String,
    },
    /// A file whose header does not fit the mapping.
    #[error("{}: {why}", visible(.file))]
    Unusable {
        /// The name of the file.
        file: String,
        /// The fault, safe to show.
        why: String,
    },
    /// A file that could not be read or written.
    #[error("{}: {source}", visible(.name))]
    File {
        /// The name of the file, with the line where it is known.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A batch that the server did not take.
    #[error("{}{error}", .place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default())]
    Server {
        /// The line to blame, or the first of the batch.
        place: Option<Place>,
        /// The last failure.
        error: PostError,
    },
    /// The user interrupted the run.
    #[error("interrupted")]
    Interrupted,
}

/// How far a run had come.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Events of batches that the server took.
    pub events: u64,
    /// The first line that was not sent, where it is known.
    pub next: Option<Place>,
    /// Events carry an id.
    pub has_id: bool,
}

impl fmt::Display for Sent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events == 0 {
            return formatter.write_str("no event was sent before that");
        }
        write!(
            formatter,
            "{} sent before that and {} counted",
            how_many_were(self.events, "event"),
            if self.events == 1 { "stays" } else { "stay" }
        )?;
        if let Some(next) = &self.next {
            write!(formatter, "; the first line not sent is {next}")?;
        }
        formatter.write_str(if self.has_id {
            "; running again counts nothing twice, as an id is mapped"
        } else {
            "; running again from the start would count them twice, as no id is mapped"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: u64) -> Place {
        Place {
            file: "clicks.jsonl".into(),
            line,
        }
    }

    #[test]
    fn a_stopped_run_says_what_where_how_far_and_what_next() {
        let error = SendError::Stopped {
            why: Why::BadLine {
                place: place(2014),
                reason: "no `at` (field \"t\"): missing or empty".into(),
            },
            sent: Sent {
                events: 2000,
                next: Some(place(2001)),
                has_id: false,
            },
        };
        assert_eq!(
            error.to_string(),
            "clicks.jsonl:2014: no `at` (field \"t\"): missing or empty (--on-error skip lists such lines and \
             goes on); 2,000 events were sent before that and stay counted; the first line not sent is \
             clicks.jsonl:2001; running again from the start would count them twice, as no id is mapped"
        );
        assert_eq!(CommandError::from(error).exit_code(), 1);
        let usage = SendError::Usage(String::new());
        assert_eq!(CommandError::from(usage).exit_code(), 2);
    }

    #[test]
    fn names_of_files_are_escaped() {
        let why = Why::File {
            name: "a\u{1b}".into(),
            source: io::Error::other("gone"),
        };
        assert_eq!(why.to_string(), "a\\u{1b}: gone");
    }
}
