//! The staged batches of a group commit, and how they are taken back.

use std::collections::BTreeMap;

use tallyring_records::{Record, TimeCode, TopicPartition};

use super::Writer;
use super::batch::Counted;
use super::ids::Seen;
use super::owned::Bits;
use super::producers::LastSequence;
use crate::error::Refusal;
use crate::holds::{ShownAction, Until};
use crate::view::{LoggedFrame, Rules};

/// Sums that are added to counters, by total key (`u|jehiah`) and base bucket.
pub(super) type Added = BTreeMap<(String, TimeCode), u64>;

/// A producer whose sequence numbers advanced, and its last one before that.
type Followed = (u128, Option<LastSequence>);

/// Traces that batches leave besides records, to be removed when the records cannot be written.
#[derive(Default)]
pub(super) struct Staged {
    ids: Vec<u128>,
    /// Actions that end holds once they are visible; with another strand where they count there.
    pub shown: Vec<(ShownAction, Option<Until>)>,
    pub producers: Vec<Followed>,
    /// Partitions of topics that advanced, each with its next offset before that.
    pub consumed: Vec<(TopicPartition, Option<u64>)>,
    /// Events that no rule caught and some rule could not judge.
    pub undecided: u64,
    /// Indices of these batches in [`Group::outcomes`].
    outcomes: Vec<usize>,
}

impl Staged {
    pub(super) fn is_one_batch(&self) -> bool {
        self.outcomes.len() == 1
    }

    pub(super) fn append(&mut self, later: Self) {
        self.ids.extend(later.ids);
        self.shown.extend(later.shown);
        self.producers.extend(later.producers);
        self.consumed.extend(later.consumed);
        self.undecided += later.undecided;
        self.outcomes.extend(later.outcomes);
    }

    /// Removes the ids and sets producers and partitions back, the last step first. Returns the indices of the batches.
    fn take_back(self, writer: &mut Writer) -> Vec<usize> {
        for id in self.ids {
            writer.ids.withdraw(id);
        }
        for (id, before) in self.producers.into_iter().rev() {
            writer.producers.withdraw(id, before);
        }
        for (of, before) in self.consumed.into_iter().rev() {
            writer.consumed.withdraw(of, before);
        }
        self.outcomes
    }
}

/// A group commit under construction.
pub(super) struct Group {
    pub rules: Rules,
    pub now_ms: i64,
    pub outcomes: Vec<Result<Counted, Refusal>>,
    pub sum: u64,
    /// Sums that the staged batches add to each counter; kept only when some counter may overflow.
    pub added: Option<Added>,
    /// Records of the open frame, and `open` with the traces of their batches.
    pub frame: Vec<Record>,
    pub open: Staged,
    /// Frames that were appended, and `unsynced` with the traces of their batches.
    pub written: Vec<LoggedFrame>,
    pub unsynced: Staged,
}

/// State of a group before a batch was staged.
pub(super) struct Mark {
    bytes: usize,
    records: usize,
    ids: usize,
    shown: usize,
    producers: usize,
    consumed: usize,
    undecided: u64,
    sum: u64,
}

impl Group {
    pub(super) fn new(rules: Rules, now_ms: i64) -> Self {
        Self {
            rules,
            now_ms,
            outcomes: Vec::new(),
            sum: 0,
            added: None,
            frame: Vec::new(),
            open: Staged::default(),
            written: Vec::new(),
            unsynced: Staged::default(),
        }
    }

    pub(super) fn mark(&self, writer: &Writer) -> Mark {
        Mark {
            bytes: writer.payload.len(),
            records: self.frame.len(),
            ids: self.open.ids.len(),
            shown: self.open.shown.len(),
            producers: self.open.producers.len(),
            consumed: self.open.consumed.len(),
            undecided: self.open.undecided,
            sum: self.sum,
        }
    }

    /// Removes what was staged since `mark` of a batch without an outcome.
    pub(super) fn go_back(&mut self, writer: &mut Writer, mark: Mark) {
        if self.frame.len() > mark.records {
            // The sums in `added` include these records.
            self.added = None;
            writer.judge.forget(self.now_ms.div_euclid(1_000));
        }
        self.open.undecided = mark.undecided;
        writer.payload.truncate(mark.bytes);
        self.frame.truncate(mark.records);
        let since = Staged {
            ids: self.open.ids.split_off(mark.ids),
            shown: self.open.shown.split_off(mark.shown),
            producers: self.open.producers.split_off(mark.producers),
            consumed: self.open.consumed.split_off(mark.consumed),
            ..Staged::default()
        };
        since.take_back(writer);
        self.sum = mark.sum;
    }

    /// All staged records, in order.
    pub(super) fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        let written = self.written.iter().flat_map(|frame| &frame.records);
        written.chain(&self.frame)
    }

    /// Accepts the next batch. A batch that left no record repeats an earlier one, whose records may be unsynced: both
    /// succeed or fail together.
    pub(super) fn accept(&mut self, counted: Counted) {
        let staged = if self.frame.is_empty() {
            &mut self.unsynced
        } else {
            &mut self.open
        };
        staged.outcomes.push(self.outcomes.len());
        self.outcomes.push(Ok(counted));
    }

    /// Refuses the batches of records that could not be written, and removes their traces.
    pub(super) fn refuse(&mut self, writer: &mut Writer, staged: Staged, refusal: &Refusal) {
        writer.judge.forget(self.now_ms.div_euclid(1_000));
        for index in staged.take_back(writer) {
            self.outcomes[index] = Err(refusal.clone());
        }
    }

    /// Remembers an id for the record that is pushed next. `base` is the sequence number of the frame's first record.
    pub(super) fn remember(&mut self, writer: &mut Writer, id: Bits, base: u64) {
        let sequence = base + self.frame.len() as u64;
        writer.ids.insert(
            id,
            Seen {
                sequence,
                arrived_ms: self.now_ms,
            },
        );
        self.open.ids.push(id.bits);
    }

    pub(super) fn push(&mut self, writer: &mut Writer, record: Record) {
        record.encode(&mut writer.payload);
        self.frame.push(record);
    }
}
