//! Errors of a load, written so that a user can correct the file.

use std::fmt;
use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use tallyring_archive::Error as ArchiveError;
use tallyring_records::{COUNT_MAX, TimeCode, line};
use thiserror::Error;

/// Why a load ended. Nothing counts then.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file as the caller named it.
        file: Arc<str>,
        /// The error of the disk.
        source: io::Error,
    },
    /// A file is not valid input.
    #[error("{file}: {what}")]
    File {
        /// The file as the caller named it.
        file: Arc<str>,
        /// The problem and its remedy.
        what: String,
    },
    /// A row cannot be used.
    #[error("{0}")]
    Row(BadRow),
    /// The counts of a key do not balance or are too large.
    #[error("{what} of {namespace}/{key} at {at}: {detail}", namespace = .0.namespace, key = .0.key, at = .0.at, what = .0.what, detail = .0.detail)]
    Counts(Box<WrongCounts>),
    /// A run cannot be written or read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Counts that cannot be right, with their bucket.
#[derive(Debug)]
pub struct WrongCounts {
    /// Such as `the count`, or `the breakdown by c`.
    pub what: String,
    /// Namespace.
    pub namespace: String,
    /// The key of the rows, escaped.
    pub key: String,
    /// Start of the bucket, RFC 3339.
    pub at: String,
    /// The problem and its remedy.
    pub detail: String,
}

impl WrongCounts {
    /// The error for the bucket `code` of `total_key`, whose key is `raw` in the rows.
    pub fn error(
        what: &str,
        total_key: &[u8],
        raw: String,
        code: TimeCode,
        detail: String,
    ) -> LoadError {
        let section = line::section(total_key);
        let namespace = section.strip_suffix(b"|").unwrap_or(section);
        let at = Timestamp::from_second(code.start())
            .map_or_else(|_| code.to_string(), |at| at.to_string());
        LoadError::Counts(Box::new(Self {
            what: what.to_owned(),
            namespace: String::from_utf8_lossy(namespace).into_owned(),
            key: raw,
            at,
            detail,
        }))
    }

    /// The error for a bucket whose rows together exceed a counter.
    pub fn too_large(total_key: &[u8], raw: String, code: TimeCode) -> LoadError {
        let detail = format!("the rows sum to more than {COUNT_MAX}, which no counter can hold");
        Self::error("the count", total_key, raw, code, detail)
    }
}

/// A row that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The file as the caller named it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u64,
    /// The problem and its remedy, escaped.
    pub detail: String,
    /// The row as it is in the file, at most 4 KiB of it.
    pub text: Vec<u8>,
}

/// Bytes of a bad row that are kept, at most.
pub(super) const SHOWN_BYTES_MAX: usize = 4 << 10;

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {}", self.file, self.line, self.detail)
    }
}
