//! The server's answer to a batch: counts, or a problem (`application/problem+json`).
//!
//! Every text of the server is escaped here, before a message shows it.

use serde::Deserialize;

use crate::escape::{quoted, visible};
use crate::http_client::TLS_ADVICE;

/// The server's verdict on a batch.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Answer {
    /// Events counted, late ones included.
    pub accepted: u64,
    /// Events whose id was known.
    pub duplicates: u64,
    /// Events counted for days that the ring has left.
    #[serde(default)]
    pub late: u64,
    /// Events refused under `on_error=skip`; the first 100.
    #[serde(default)]
    pub rejected: Vec<Rejected>,
}

/// A refused event of a batch.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Rejected {
    /// The position of the event in the batch, from 0.
    pub index: usize,
    #[serde(default)]
    detail: String,
}

impl Rejected {
    /// The server's reason, safe to show.
    pub(super) fn reason(&self) -> String {
        format!("refused by the server: {}", visible(&self.detail))
    }
}

/// The body of an error answer.
#[derive(Debug, Default, Deserialize)]
struct Problem {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
    index: Option<usize>,
}

/// Why a batch was not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PostError {
    /// The server understood and refused; nothing of the batch was counted.
    #[error("the server refused the batch: {why}")]
    Refused {
        /// Status, problem and what to do, safe to show.
        why: String,
        /// The position of the event to blame, from 0.
        index: Option<usize>,
    },
    /// Every attempt failed.
    #[error("gave up after {attempts} attempts: {last}{}", if *.maybe_counted {
        "; the last batch may have been counted all the same, as its answer was lost"
    } else {
        ""
    })]
    Unreachable {
        /// Attempts made.
        attempts: u32,
        /// The failure of the last attempt.
        last: String,
        /// The server may have counted an attempt whose answer was lost.
        maybe_counted: bool,
    },
    /// No TLS session could be made; nothing was sent.
    #[error("{0}; {TLS_ADVICE}")]
    Untrusted(String),
    /// The answer is not one that Tallyring gives.
    #[error("{0}; does --to name a Tallyring server?")]
    NotTallyring(String),
}

/// Describes an error answer in one line, with advice for each status that the command line can cause. Also returns the
/// position of the event to blame.
pub(super) fn describe(status: u16, body: &[u8]) -> (String, Option<usize>) {
    let problem: Problem = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        let detail = if text.trim().is_empty() {
            String::new()
        } else {
            quoted(text.trim())
        };
        Problem {
            detail,
            ..Problem::default()
        }
    });
    let mut why = status.to_string();
    for (before, part) in [(" ", problem.title), (": ", problem.detail)] {
        if !part.is_empty() {
            why.push_str(before);
            why.push_str(&visible(&part));
        }
    }
    why.push_str(match status {
        401 | 403 => "; give a key with the scope `write` in TALLYRING_KEY or --key",
        404 => "; does --to name a Tallyring server?",
        413 => "; try a smaller --batch",
        _ => "",
    });
    (why, problem.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_told_in_full_and_escaped() {
        let body =
            br#"{"title":"Bad","status":400,"detail":"no\u001b[2J","field":"keys.x","index":7}"#;
        assert_eq!(
            describe(400, body),
            ("400 Bad: no\\u{1b}[2J".to_owned(), Some(7))
        );
        assert_eq!(describe(503, b"{}"), ("503".to_owned(), None));
        assert_eq!(describe(503, b""), ("503".to_owned(), None));
        assert_eq!(
            describe(502, b"<html>\x1b"),
            ("502: \"<html>\\u{1b}\"".to_owned(), None)
        );
    }

    #[test]
    fn mistakes_on_the_command_line_come_with_a_hint() {
        for (status, hint) in [
            (401, "TALLYRING_KEY"),
            (403, "TALLYRING_KEY"),
            (404, "--to"),
            (413, "--batch"),
        ] {
            let (why, _) = describe(status, b"no");
            assert!(why.contains(hint), "{why}");
        }
    }

    #[test]
    fn counts_need_only_what_every_answer_has() {
        let answer: Answer =
            serde_json::from_str(r#"{"accepted":998,"duplicates":2}"#).expect("counts");
        assert_eq!(
            answer,
            Answer {
                accepted: 998,
                duplicates: 2,
                ..Answer::default()
            }
        );
    }
}
