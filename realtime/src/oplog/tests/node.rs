//! Nodes on one topic, which count what the log has as a store does.

use std::time::Duration;

use super::sim_topic::SimTopic;
use super::*;
use crate::oplog::{Frame, Owner, Tail, TopicLog, begin_log};

/// A node: the records that it counts, in order, and its log or its tail.
pub(super) struct Node {
    pub disk: MemoryDisk,
    pub topic: SimTopic,
    pub counted: Vec<Seen>,
    pub role: Role,
}

pub(super) enum Role {
    Writes(Box<TopicLog>),
    Follows(Box<Tail>),
    Nothing,
}

impl Node {
    pub(super) fn new(topic: &SimTopic, number: usize) -> Self {
        let disk = MemoryDisk::default();
        let topic = topic.node(number);
        let tail = Tail::open(Arc::new(disk.clone()), Arc::new(topic.clone()), OPTIONS);
        let tail = tail.unwrap_or_else(|error| panic!("{error}"));
        Self {
            counted: scan_all(&disk).unwrap().1,
            disk,
            topic,
            role: Role::Follows(Box::new(tail)),
        }
    }

    pub(super) fn follow(&mut self) -> Result<(), OplogError> {
        let Role::Follows(tail) = &mut self.role else {
            return Ok(());
        };
        let counted = &mut self.counted;
        let mut apply = |frame: Frame<'_>| {
            counted.push(record_of(frame));
            Ok(())
        };
        while tail.step(Duration::ZERO, &mut apply)? {}
        Ok(())
    }

    pub(super) fn take_over(&mut self, owner: u128) -> Result<(), OplogError> {
        let tail = match std::mem::replace(&mut self.role, Role::Nothing) {
            Role::Follows(tail) => *tail,
            other => {
                self.role = other;
                return Ok(());
            }
        };
        let counted = &mut self.counted;
        let mut apply = |frame: Frame<'_>| {
            counted.push(record_of(frame));
            Ok(())
        };
        match TopicLog::take_over(tail, Owner(owner), NOW_MS, &mut apply) {
            Ok(log) => {
                self.role = Role::Writes(Box::new(log));
                Ok(())
            }
            Err(not) => {
                self.role = Role::Follows(Box::new(not.tail));
                Err(not.error)
            }
        }
    }

    pub(super) fn log(&mut self) -> &mut TopicLog {
        match &mut self.role {
            Role::Writes(log) => log,
            _ => panic!("the node does not write"),
        }
    }

    /// Appends a group of frames, and counts them once they are acknowledged, as the store does.
    pub(super) fn commit(&mut self, group: &[Vec<u8>]) -> Result<(), OplogError> {
        let log = self.log();
        let mut frames = Vec::new();
        for payload in group {
            frames.push(Seen {
                epoch: log.epoch(),
                first_sequence: log.append(payload, 1, NOW_MS)?,
                count: 1,
                payload: payload.clone(),
            });
        }
        assert_eq!(log.appended(), log.commit()?);
        self.counted.extend(frames);
        Ok(())
    }

    pub(super) fn step_down(&mut self) {
        self.role = match std::mem::replace(&mut self.role, Role::Nothing) {
            Role::Writes(log) => Role::Follows(Box::new(log.step_down().unwrap())),
            other => other,
        };
    }

    pub(super) fn reopen(&mut self) -> Result<(), OplogError> {
        let (disk, topic) = (Arc::new(self.disk.clone()), Arc::new(self.topic.clone()));
        let tail = Tail::open(disk, topic, OPTIONS)?;
        self.counted = scan_all(&self.disk)?.1;
        self.role = Role::Follows(Box::new(tail));
        Ok(())
    }

    /// Moves the mirror aside.
    pub(super) fn begin_anew(&mut self) {
        self.role = Role::Nothing;
        self.disk.heal();
        for file in self.disk.list("oplog").unwrap() {
            self.disk.remove(&format!("oplog/{file}")).unwrap();
        }
        self.disk.sync_directory("oplog").unwrap();
    }

    /// Checks that the node counts what the log has, and its mirror has that, too.
    pub(super) fn check(&self, expected: &[Seen]) {
        assert_eq!(self.counted, expected);
        let (summary, seen) = scan_all(&self.disk).unwrap();
        assert_eq!(seen, expected);
        assert_eq!(summary.torn, None);
    }
}

/// A topic with a log, and two nodes of which the first writes.
pub(super) fn two_nodes() -> (SimTopic, Node, Node) {
    let topic = SimTopic::default();
    begin_log(&topic, OPTIONS.store_id, Owner(1), NOW_MS).unwrap();
    let mut first = Node::new(&topic, 1);
    first.take_over(11).unwrap();
    let second = Node::new(&topic, 2);
    (topic, first, second)
}

/// All that counts, as a node finds it that was never there before.
pub(super) fn counts(topic: &SimTopic) -> Vec<Seen> {
    topic.settle();
    Node::new(topic, 9).counted
}
