//! The counts of a series: one of every bucket.

use std::sync::Arc;

use itoa::Buffer;
use serde::{Serialize, Serializer};
use tallyring_realtime::State;

use super::answer::Answer;
use super::before::BEFORE_COLUMN;
use super::csv::STATE_COLUMN;
use super::filtered::FILTERED_COLUMNS;
use super::text;
use crate::calendar::Buckets;
use crate::problem::Result;
use crate::table::Table;

/// The count of every bucket, oldest first.
#[derive(Debug)]
pub(super) struct BucketCounts {
    buckets: Buckets,
    counts: Vec<u64>,
    /// The state of every bucket, or nothing.
    states: Vec<State>,
}

/// One bucket's count, as an answer says it.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes what `BucketCounts` writes itself")]
pub(super) struct Count {
    start: String,
    count: u64,
    /// Once the store has final days
    #[schema(nullable = false)]
    state: Option<String>,
}

impl BucketCounts {
    /// These counts of these buckets, with the state of each or without states.
    pub(super) fn new(buckets: Buckets, counts: Vec<u64>, states: Vec<State>) -> Self {
        Self {
            buckets,
            counts,
            states,
        }
    }

    /// The columns of a table of them: where the store has final days, with the state of each bucket, and with what the
    /// answer has beside.
    pub(super) fn columns(&self, answer: &Answer) -> Vec<&'static str> {
        let mut columns = vec!["start", "count"];
        columns.extend((!self.states.is_empty()).then_some(STATE_COLUMN));
        let filtered = answer.filtered.iter();
        columns.extend(filtered.flat_map(|_| FILTERED_COLUMNS));
        columns.extend(answer.before.as_ref().map(|_| BEFORE_COLUMN));
        columns
    }

    /// Adds their rows to a table with these columns.
    pub(super) fn add_rows(&self, answer: &Answer, table: &mut Table) {
        let filtered = answer.filtered.as_ref();
        for (index, (start, count)) in self.iter().enumerate() {
            let text = count.to_string();
            let mut cells = vec![&**start, text.as_str()];
            cells.extend(self.state(index).map(State::as_str));
            let beside = filtered.map(|filtered| filtered.of_bucket(index, count));
            let gross = beside.map_or(count, |[_, gross]| gross);
            let beside = beside.map(|beside| beside.map(|n| n.to_string()));
            cells.extend(beside.iter().flatten().map(String::as_str));
            let before = answer.before.as_ref().map(|before| before.cell(index));
            cells.extend(before.as_deref());
            table.counted(&cells, gross);
        }
    }

    /// The state of a bucket, where buckets have states.
    pub(super) fn state(&self, index: usize) -> Option<State> {
        self.states.get(index).copied()
    }

    /// When each bucket starts, in words, and its count.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let counts = self.counts.iter().copied();
        self.buckets.labels().iter().zip(counts)
    }

    /// The counts alone.
    pub(super) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The counts alone, taken out.
    pub(super) fn into_counts(self) -> Vec<u64> {
        self.counts
    }

    /// True: serde leaves the counts out, as they stand behind all other fields of an answer and are added there. So an
    /// answer with counts is JSON only by [`BucketCounts::write_json_behind`].
    pub(super) fn is_added(&self) -> bool {
        true
    }

    /// Adds an answer that has these counts to `text`, as JSON.
    pub(super) fn write_json_behind(
        &self,
        answer: &impl Serialize,
        text: &mut Vec<u8>,
    ) -> Result<()> {
        text::write_json(answer, text)?;
        self.add_to(text);
        Ok(())
    }

    /// Bytes of them as JSON, about.
    pub(super) fn json_bytes(&self) -> usize {
        /// Bytes of `{"start":"2012-03-16T00:00:00-04:00","count":12345},`.
        const BYTES_OF_ONE: usize = 56;
        self.counts.len() * BYTES_OF_ONE
    }

    /// Adds `counts` to a JSON object that is not empty. A list of hundreds of times and numbers is most of an answer,
    /// so it is written here: serde would look for what to escape in times, where there is nothing.
    fn add_to(&self, object: &mut Vec<u8>) {
        const OPENING: &str = "{\"start\":\"";
        const MIDDLE: &str = "\",\"count\":";
        const STATE: &str = ",\"state\":\"";
        object.reserve(self.json_bytes());
        let end = object.pop();
        assert_eq!(end, Some(b'}'), "BUG: that is no object");
        object.extend_from_slice(b",\"counts\":[");
        let mut digits = Buffer::new();
        for (index, (start, count)) in self.iter().enumerate() {
            if index > 0 {
                object.push(b',');
            }
            object.extend_from_slice(OPENING.as_bytes());
            object.extend_from_slice(start.as_bytes());
            object.extend_from_slice(MIDDLE.as_bytes());
            object.extend_from_slice(digits.format(count).as_bytes());
            if let Some(state) = self.states.get(index) {
                object.extend_from_slice(STATE.as_bytes());
                object.extend_from_slice(state.as_str().as_bytes());
                object.push(b'"');
            }
            object.push(b'}');
        }
        object.extend_from_slice(b"]}");
    }
}

/// The counts without their buckets, which follow from the range: for validators.
impl Serialize for BucketCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.counts.serialize(serializer)
    }
}
