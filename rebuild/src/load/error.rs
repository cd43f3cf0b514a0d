//! What can go wrong in a load, told so that the user can mend the file.

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
        /// The file as it was named.
        file: Arc<str>,
        /// Why.
        source: io::Error,
    },
    /// A file is not what a load takes.
    #[error("{file}: {what}")]
    File {
        /// The file as it was named.
        file: Arc<str>,
        /// What is wrong and what to do.
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

/// Counts that cannot be right, and where.
#[derive(Debug)]
pub struct WrongCounts {
    /// Such as `the count`, or `the breakdown by c`.
    pub what: String,
    /// Namespace.
    pub namespace: String,
    /// The key as it was given, made safe to show.
    pub key: String,
    /// Start of the bucket, RFC 3339.
    pub at: String,
    /// What is wrong and what to do.
    pub detail: String,
}

impl WrongCounts {
    /// Of the bucket `code` of `total_key`, whose key was given as `raw`.
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

    /// Of a bucket in which the rows together are more than a counter holds.
    pub fn too_large(total_key: &[u8], raw: String, code: TimeCode) -> LoadError {
        let detail = format!("it is more than {COUNT_MAX} in all; no counter can hold that");
        Self::error("the count", total_key, raw, code, detail)
    }
}

/// A row that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The file as it was named.
    pub file: Arc<str>,
    /// Its line, from 1.
    pub line: u64,
    /// What is wrong and what to do, safe to show.
    pub detail: String,
    /// The row as it stands in the file, at most 4 KiB of it.
    pub text: Vec<u8>,
}

/// Bytes of a bad row that are kept.
pub const SHOWN_BYTES_MAX: usize = 4 << 10;

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {}", self.file, self.line, self.detail)
    }
}
