//! What is staged of the batches of a group commit, and how it is taken back.

use std::collections::BTreeMap;

use tallyring_records::{Accepted, Record, TimeCode};

use super::Writer;
use super::ids::Seen;
use super::producers::LastSequence;
use crate::error::Refusal;
use crate::view::{LoggedFrame, Rules};

/// What is added to counters: `u|jehiah` and base bucket.
pub(super) type Added = BTreeMap<(String, TimeCode), u64>;

/// A producer whose numbers went on, and how far they had come before.
type Followed = (u128, Option<LastSequence>);

/// What batches leave besides records, to be taken back where those cannot be written.
#[derive(Default)]
pub(super) struct Staged {
    ids: Vec<u128>,
    pub producers: Vec<Followed>,
    /// Which outcomes of the group are theirs.
    outcomes: Vec<usize>,
}

impl Staged {
    pub fn append(&mut self, later: Self) {
        self.ids.extend(later.ids);
        self.producers.extend(later.producers);
        self.outcomes.extend(later.outcomes);
    }

    /// Forgets the ids and how far producers have come, the last step first. Returns whose they were.
    fn take_back(self, writer: &mut Writer) -> Vec<usize> {
        for id in self.ids {
            writer.ids.withdraw(id);
        }
        for (id, before) in self.producers.into_iter().rev() {
            writer.producers.withdraw(id, before);
        }
        self.outcomes
    }
}

/// A group commit in the making.
pub(super) struct Group {
    pub rules: Rules,
    pub now_ms: i64,
    pub outcomes: Vec<Result<Accepted, Refusal>>,
    pub sum: u64,
    /// What the batches staged so far add to each counter; only kept when some counter may overflow.
    pub added: Option<Added>,
    /// Records of the open frame, and what they go with.
    pub frame: Vec<Record>,
    pub open: Staged,
    /// Frames that were appended, and what they go with.
    pub written: Vec<LoggedFrame>,
    pub unsynced: Staged,
}

/// How far a group had come before a batch.
pub(super) struct Mark {
    bytes: usize,
    records: usize,
    ids: usize,
    producers: usize,
    sum: u64,
}

impl Group {
    pub fn new(rules: Rules, now_ms: i64) -> Self {
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

    pub fn mark(&self, writer: &Writer) -> Mark {
        Mark {
            bytes: writer.payload.len(),
            records: self.frame.len(),
            ids: self.open.ids.len(),
            producers: self.open.producers.len(),
            sum: self.sum,
        }
    }

    /// Takes back what was staged since of a batch, which has no outcome yet.
    pub fn go_back(&mut self, writer: &mut Writer, mark: Mark) {
        if self.frame.len() > mark.records {
            // It is part of what others are added to.
            self.added = None;
        }
        writer.payload.truncate(mark.bytes);
        self.frame.truncate(mark.records);
        let since = Staged {
            ids: self.open.ids.split_off(mark.ids),
            producers: self.open.producers.split_off(mark.producers),
            outcomes: Vec::new(),
        };
        since.take_back(writer);
        self.sum = mark.sum;
    }

    /// All records that are staged, in their order.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        let written = self.written.iter().flat_map(|frame| &frame.records);
        written.chain(&self.frame)
    }

    /// Answers the batch whose turn it is. One that left no record repeats what may be on its way to the disk only now:
    /// they succeed or fail together.
    pub fn accept(&mut self, accepted: Accepted) {
        let staged = if self.frame.is_empty() {
            &mut self.unsynced
        } else {
            &mut self.open
        };
        staged.outcomes.push(self.outcomes.len());
        self.outcomes.push(Ok(accepted));
    }

    /// Refuses the batches of what could not be written, and takes it back.
    pub fn refuse(&mut self, writer: &mut Writer, staged: Staged, refusal: &Refusal) {
        for index in staged.take_back(writer) {
            self.outcomes[index] = Err(refusal.clone());
        }
    }

    /// Remembers an id as that of the record pushed next; `base` is the number of the frame's first.
    pub fn remember(&mut self, writer: &mut Writer, id: u128, base: u64) {
        let sequence = base + self.frame.len() as u64;
        writer.ids.insert(
            id,
            Seen {
                sequence,
                arrived_ms: self.now_ms,
            },
        );
        self.open.ids.push(id);
    }

    pub fn push(&mut self, writer: &mut Writer, record: Record) {
        record.encode(&mut writer.payload);
        self.frame.push(record);
    }
}
