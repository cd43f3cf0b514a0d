//! Several nodes over one topic and one object store, against the naive model of one store.
//!
//! [`Nodes`] owns the topic, the object store, a clock and some nodes, and draws their fate from a seed: nodes hang,
//! die, start again, take the log over, and some of them believe to write it when they do not. Invariants: what was
//! acknowledged is counted once; a batch is whole or absent; a read that knows of an acknowledgement counts it on any
//! node; no node goes back; nodes at one position of the log answer alike; manifests name only objects that are there.
//! When all faults are over, every node has everything, and a new one has it as well.
//!
//! A batch that was sent and not acknowledged carries a mark, a key of its own. The next node that takes the log over
//! tells by it whether the batch counts: nothing that was sent before counts later.

mod alike;
mod calm;
mod check;
mod commit;
mod divided;
mod joined;
mod life;
mod strand;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_realtime::{Accepted, Clock, Options};
use tallyring_records::Increment;

use super::chance::{Chance, ManualClock, world};
use super::clicks;
use super::naive::Naive;
use super::run::Stats;
use alike::Alike;
use commit::Sent;
use strand::Strand;

pub(super) use divided::Divided;

/// 2012-03-16T20:00:00Z.
const START_MS: i64 = 1_331_928_000_000;
const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;
/// Ids are sent again while they are so much younger than the window in which nodes know them.
const MARGIN_MS: i64 = 3_600_000;

/// Nodes that share a store of one strand, and the model.
pub(super) struct Nodes {
    strand: Strand,
    naive: Naive,
    /// Keyed batches that count, with the answer if it was told.
    keyed: BTreeMap<String, (Vec<Increment>, Option<Accepted>)>,
    /// Batches that were sent since the last take-over and may count.
    pending: Vec<Sent>,
    /// Take-overs after which the fate of those before was told.
    resolved: u64,
    /// Batches whose client tries again: each increment has an id.
    again: Vec<Sent>,
    /// Marks of batches that never count.
    void: Vec<String>,
    alike: Alike,
    /// Answers compared with the model.
    compared: Cell<u64>,
}

impl Nodes {
    /// So many nodes, all of them down, and a store that was just made.
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS, true));
        Self {
            strand: Strand::new(seed, nodes, clock),
            naive: Naive::default(),
            keyed: BTreeMap::new(),
            pending: Vec::new(),
            resolved: 0,
            again: Vec::new(),
            void: Vec::new(),
            alike: Alike::default(),
            compared: Cell::new(0),
        }
    }

    /// The steps so far.
    pub(super) fn trace(&self) -> &[String] {
        &self.strand.trace
    }

    /// The work that was done.
    pub(super) fn stats(&self) -> Stats {
        Stats {
            reads: self.compared.get(),
            ..self.strand.stats.clone()
        }
    }

    /// So many operations, and a calm end.
    ///
    /// # Errors
    /// The first thing that is not as the model says.
    pub(super) fn run(&mut self, operations: u64) -> Result<(), String> {
        self.calm()?;
        while self.strand.stats.steps < operations {
            self.strand.stats.steps += 1;
            self.operation()?;
            self.resolve()?;
            self.strand.check_always()?;
        }
        self.calm()?;
        self.check_new_node()
    }

    fn operation(&mut self) -> Result<(), String> {
        match self.strand.chance.below(100) {
            0..34 => self.commit(),
            34..48 => self.strand.tend(),
            48..60 => self.read(),
            60..65 => self.strand.flush(),
            65..69 => self.strand.rebuild(),
            69..71 => self.strand.publish_held(),
            71..74 => self.strand.take_over_by_any(),
            74..79 => self.race(),
            79..83 => self.strand.kill(),
            83..85 => {
                let site = self.strand.any_site();
                self.strand.hang(site);
                Ok(())
            }
            85..90 => {
                self.strand.set_fault();
                Ok(())
            }
            90..92 => self.calm(),
            92..95 => {
                self.let_time_pass();
                Ok(())
            }
            95..97 => self.strand.put_key(),
            _ => self.strand.tidy(),
        }
    }

    /// One node does something, and in its middle another one takes the log over.
    fn race(&mut self) -> Result<(), String> {
        if !self.strand.begin_race()? {
            return Ok(());
        }
        let done = match self.strand.chance.below(6) {
            0 | 1 => self.commit(),
            2 => self.strand.flush(),
            3 => self.strand.rebuild(),
            4 => self.strand.put_key(),
            _ => self.strand.take_over_by_any(),
        };
        let ended = self.strand.end_race();
        done.and(ended)
    }

    fn pass(&mut self, passed_ms: i64) {
        self.strand.clock.pass(passed_ms);
        self.strand.tell_time();
        let known_ms = known_ms(&self.strand.options);
        age(&mut self.naive, &self.strand.clock, passed_ms, known_ms);
        let sent_from_ms = self.strand.now_ms() - known_ms;
        self.again.retain(|sent| sent.at_ms > sent_from_ms);
        let known = &self.naive.batches;
        self.keyed.retain(|key, _| known.contains_key(key));
    }

    fn let_time_pass(&mut self) {
        let now_ms = self.strand.now_ms();
        let passed_ms = some_time(&mut self.strand.chance, now_ms);
        self.strand.note(format!("{passed_ms} ms pass"));
        // Histories of ids reach as far back as the logs of nodes.
        self.alike.forget();
        self.pass(passed_ms);
    }
}

/// How long ids are sent again, milliseconds.
fn known_ms(options: &Options) -> i64 {
    i64::from(options.id_hours) * 3_600_000 - MARGIN_MS
}

/// Time passed: the model forgets ids and keys that came `known_ms` ago.
fn age(naive: &mut Naive, clock: &ManualClock, passed_ms: i64, known_ms: i64) {
    naive.age(clock.now_ms(), passed_ms);
    naive.ids.retain(|_, id| id.is_within(known_ms));
    naive.batches.retain(|_, key| key.is_within(known_ms));
}

/// Minutes, hours or days, in milliseconds.
fn some_time(chance: &mut Chance, now_ms: i64) -> i64 {
    let to_midnight = DAY_MS - now_ms.rem_euclid(DAY_MS);
    match chance.below(10) {
        0..6 => chance.between(1, 59) * MINUTE_MS,
        6..8 => chance.between(1, 23) * 60 * MINUTE_MS,
        8 => to_midnight + chance.between(-1, 30_000),
        _ => chance.between(1, 3) * DAY_MS,
    }
}
