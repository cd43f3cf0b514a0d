//! The fields of a record of a final dataset ([`crate::log`] describes them).

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::final_version::{CONTENT_BYTES, read_map};
use super::void::{read_actor, read_reason};
use crate::day::Day;
use crate::varint::{
    read_array, read_day, read_i64, read_text, read_u64, write_bytes, write_i64, write_u64,
};

/// Loaded history that is part of the final numbers of its days, as the log knows it: enough to miss it where it is
/// lost, and to tell whether a load is that history again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedDataset {
    /// Name of the dataset.
    pub name: String,
    /// When it was loaded, Unix milliseconds.
    pub at_ms: i64,
    /// Rows that were loaded.
    pub rows: u64,
    /// Hash of its counts: 64 hex digits.
    pub content: String,
    /// By namespace, the spans of UTC days of which it may have counts: first and last days, ascending and apart.
    pub days: BTreeMap<String, Vec<(Day, Day)>>,
}

impl LoggedDataset {
    /// True where it may have counts of the namespace and the day.
    pub fn has(&self, namespace: &str, day: Day) -> bool {
        let spans = self.days.get(namespace);
        let mut spans = spans.into_iter().flatten();
        spans.any(|&(first, last)| (first..=last).contains(&day))
    }

    /// The first and the last day of all namespaces; none without a count.
    pub fn span(&self) -> Option<(Day, Day)> {
        let spans = || self.days.values().flatten();
        let first = spans().map(|span| span.0).min();
        first.zip(spans().map(|span| span.1).max())
    }

    /// These days to go behind a noun, ` from 2012-03-01 to 2012-03-16`; empty without a count.
    pub fn from_to(&self) -> String {
        let span = self.span();
        span.map_or_else(String::new, |(first, last)| {
            format!(" from {first} to {last}")
        })
    }

    /// True where both records tell of one dataset.
    pub fn is(&self, name: &str, content: &str) -> bool {
        self.name == name && self.content == content
    }

    /// `content` is 64 lowercase hex digits, or all of them are written as 0.
    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: u8) {
        out.push(kind);
        write_bytes(out, self.name.as_bytes());
        write_i64(out, self.at_ms);
        write_u64(out, self.rows);
        let content = HEXLOWER.decode(self.content.as_bytes()).ok();
        let content: Option<[u8; CONTENT_BYTES]> = content.and_then(|bytes| bytes.try_into().ok());
        out.extend_from_slice(&content.unwrap_or_default());
        write_u64(out, self.days.len() as u64);
        for (namespace, spans) in &self.days {
            write_bytes(out, namespace.as_bytes());
            write_u64(out, spans.len() as u64);
            for (first, last) in spans {
                write_u64(out, first.number().into());
                write_u64(out, last.number().into());
            }
        }
    }

    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            name: read_text(input)?,
            at_ms: read_i64(input)?,
            rows: read_u64(input)?,
            content: HEXLOWER.encode(&read_array::<CONTENT_BYTES>(input)?),
            days: read_map(input, read_spans)?,
        })
    }
}

/// A final dataset that somebody gave up: it is gone, and its days are final without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetGone {
    /// The dataset, as an earlier record tells of it.
    pub dataset: LoggedDataset,
    /// The reason, which a person gave, as [`is_void_reason`](crate::is_void_reason) allows it.
    pub reason: String,
    /// Id of the API key that gave it up; [`INSTALLATION`](crate::INSTALLATION) where there are no keys.
    pub actor: String,
}

impl DatasetGone {
    /// True where this is about that dataset.
    pub fn is_of(&self, dataset: &LoggedDataset) -> bool {
        self.dataset.is(&dataset.name, &dataset.content)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: u8) {
        self.dataset.encode(out, kind);
        write_bytes(out, self.reason.as_bytes());
        write_bytes(out, self.actor.as_bytes());
    }

    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            dataset: LoggedDataset::decode(input)?,
            reason: read_reason(input)?,
            actor: read_actor(input)?,
        })
    }
}

fn read_spans(input: &mut &[u8]) -> Option<Vec<(Day, Day)>> {
    let mut spans: Vec<(Day, Day)> = Vec::new();
    for _ in 0..read_u64(input)? {
        let (first, last) = (read_day(input)?, read_day(input)?);
        let is_behind = spans.last().is_none_or(|before| before.1 < first);
        (is_behind && first <= last).then_some(())?;
        spans.push((first, last));
    }
    Some(spans)
}
