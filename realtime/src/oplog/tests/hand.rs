//! A writer of a topic for tests, and the nodes that follow it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::sim_topic::SimTopic;
use super::*;
use crate::oplog::{Ahead, Chain, Frame, Owner, Tail};

pub(super) const A: Owner = Owner(0xa);
pub(super) const B: Owner = Owner(0xb00);

/// A writer that is always alone: whatever it sends counts.
pub(super) struct Hand {
    pub topic: SimTopic,
    pub ahead: Ahead,
    owner: Owner,
}

impl Hand {
    /// Begins a log in a topic.
    pub(super) fn begin() -> Self {
        let topic = SimTopic::default();
        topic.put(A, &first_header(OPTIONS.store_id));
        let chain = Chain::begin(&topic.messages()[0], OPTIONS.store_id).unwrap();
        Self {
            ahead: chain.ahead(),
            topic,
            owner: A,
        }
    }

    pub(super) fn frame(&mut self, payload: &[u8]) {
        let bytes = self.ahead.frame(payload, 1, NOW_MS, true);
        self.topic.put(self.owner, &bytes);
    }

    pub(super) fn roll(&mut self) {
        let bytes = self.ahead.header(NOW_MS);
        self.topic.put(self.owner, &bytes);
    }

    pub(super) fn take_over(&mut self, owner: Owner) {
        self.owner = owner;
        let bytes = self.ahead.take_over(owner, NOW_MS, true);
        self.topic.put(owner, &bytes);
    }

    /// A log of four segments with two records each, void messages between, and a take-over.
    pub(super) fn of_four_segments() -> Self {
        let mut hand = Self::begin();
        for byte in 0..8_u8 {
            hand.topic.put(B, b"no message of ours");
            if byte == 5 {
                hand.take_over(B);
            }
            if byte > 0 && byte % 2 == 0 {
                hand.roll();
                hand.topic.skip_offset();
            }
            hand.frame(&[byte; 100]);
            let stale = hand.topic.messages().pop().unwrap();
            hand.topic.put(stale.owner, &stale.bytes);
        }
        hand
    }
}

pub(super) fn follow(disk: &MemoryDisk, topic: &SimTopic) -> Result<Tail, OplogError> {
    Tail::open(Arc::new(disk.clone()), Arc::new(topic.clone()), OPTIONS)
}

pub(super) fn followed(disk: &MemoryDisk, topic: &SimTopic) -> Tail {
    follow(disk, topic).unwrap_or_else(|error| panic!("{error}"))
}

/// Follows to the end, and returns what was passed on.
pub(super) fn steps(tail: &mut Tail) -> Result<Vec<Seen>, OplogError> {
    let mut seen = Vec::new();
    let mut apply = |frame: Frame<'_>| {
        seen.push(record_of(frame));
        Ok(())
    };
    while tail.step(Duration::ZERO, &mut apply)? {}
    Ok(seen)
}

/// The segments of a disk.
pub(super) fn segments(disk: &MemoryDisk) -> BTreeMap<String, Vec<u8>> {
    let files = disk.list("oplog").unwrap();
    let segments = files.iter().filter(|file| file.ends_with(".tlog"));
    let bytes = |file: &String| disk.bytes(&format!("oplog/{file}"));
    segments.map(|file| (file.clone(), bytes(file))).collect()
}
