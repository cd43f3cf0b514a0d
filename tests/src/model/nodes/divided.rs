//! Nodes that share a store of several strands, against the naive model of one store.
//!
//! [`Divided`] draws the fate of nodes and strands, and sends batches by any node, divided and in the order of parts as
//! a server does. Between the parts of a batch anything may happen, and each may get lost, or its answer. A client
//! tries again with the same ids, or the same key, until it is answered. Invariants: an acknowledged batch counts once
//! in what all strands of a node say together; nothing counts twice; a batch with a key keeps its answer; what no retry
//! would find counts only where all else of its batch does; nodes at one position answer alike; no flush or rebuild of
//! a strand changes an answer. When all faults are over and each client was answered, counts are those of the model.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tallyring_realtime::{Accepted, Batch, Clock, Counted, Refusal, Stores, Submission};
use tallyring_records::{Increment, StoreId};

use super::alike::Alike;
use super::commit::batch;
use super::strand::Strand;
use super::{Chance, ManualClock, Naive, START_MS, age, clicks, known_ms, some_time};
use crate::model::naive::IdState;
use crate::model::run::Stats;

/// Batches whose clients wait for an answer, at most.
const WAITING_MAX: usize = 12;
/// Ids are sent again for so long, which is well within the time in which nodes know them.
const AGAIN_MS: i64 = 6 * 3_600_000;
/// The greatest count of an increment: no counter comes near the largest count.
const N_MAX: u64 = 1_000;

/// Nodes, the strands that they share, and the model.
pub(in crate::model) struct Divided {
    pub(super) chance: Chance,
    pub(super) clock: Arc<ManualClock>,
    pub(super) strands: Vec<Strand>,
    pub(super) naive: Naive,
    /// Batches with a key that were answered.
    keyed: BTreeMap<String, (Vec<Increment>, Accepted)>,
    /// Batches that may count, and were not answered.
    pub(super) waiting: Vec<Waiting>,
    /// Marks of what never counts.
    pub(super) void: Vec<String>,
    pub(super) alike: Alike,
    /// No message gets lost between nodes.
    pub(super) is_calm: bool,
    /// A finding in the middle of a batch.
    wrong: Option<String>,
    trace: Vec<String>,
    pub(super) stats: Stats,
}

/// A batch whose client waits for an answer.
#[derive(Clone)]
pub(super) struct Waiting {
    pub increments: Vec<Increment>,
    key: Option<String>,
    /// The key that its increments without an id count on, and no other batch. It has no key that finds them, so it is
    /// not sent again as it is.
    pub mark: Option<String>,
    /// When it was sent first, Unix milliseconds.
    at_ms: i64,
    /// It was sent before.
    was_sent: bool,
}

impl Divided {
    /// So many nodes, all of them down, and a store of so many strands that was just made.
    pub(in crate::model) fn new(seed: u64, (nodes, strands): (usize, usize)) -> Self {
        let mut chance = Chance::new(seed);
        let clock = Arc::new(ManualClock::new(START_MS, true));
        let strands = (0..strands).map(|_| Strand::new(chance.bits(), nodes, Arc::clone(&clock)));
        let mut naive = Naive::default();
        // The model does not know which increments are late: that depends on the cuts of each strand.
        naive.ring.insert(StoreId::Late(0), false);
        Self {
            strands: strands.collect(),
            chance,
            clock,
            naive,
            keyed: BTreeMap::new(),
            waiting: Vec::new(),
            void: Vec::new(),
            alike: Alike::default(),
            is_calm: false,
            wrong: None,
            trace: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// The steps so far.
    pub(in crate::model) fn trace(&mut self) -> &[String] {
        self.gather();
        &self.trace
    }

    /// The work that was done.
    pub(in crate::model) fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        for strand in &self.strands {
            stats += strand.stats.clone();
        }
        stats
    }

    /// So many operations, and a calm end.
    ///
    /// # Errors
    /// The first thing that is not as the model says.
    pub(in crate::model) fn run(&mut self, operations: u64) -> Result<(), String> {
        self.calm()?;
        while self.stats.steps < operations {
            self.stats.steps += 1;
            self.operation()?;
            for strand in &mut self.strands {
                strand.check_always()?;
            }
        }
        self.calm()?;
        self.check_new_node()
    }

    fn operation(&mut self) -> Result<(), String> {
        let at = self.any_strand();
        match self.chance.below(100) {
            0..36 => self.send(),
            36..52 => self.strands[at].tend(),
            52..64 => self.read(),
            64..69 => self.unchanged(at, Strand::flush),
            69..73 => self.unchanged(at, Strand::rebuild),
            73..75 => self.strands[at].publish_held(),
            75..79 => self.strands[at].take_over_by_any(),
            79..82 => self.kill(),
            82..84 => {
                let site = self.strands[at].any_site();
                self.strands.iter_mut().for_each(|strand| strand.hang(site));
                Ok(())
            }
            84..90 => {
                self.strands[at].set_fault();
                Ok(())
            }
            90..93 => self.calm(),
            93..96 => self.let_time_pass(),
            // The first strand has all API keys.
            96 => self.strands[0].put_key(),
            _ => self.strands[at].tidy(),
        }
    }

    fn any_strand(&mut self) -> usize {
        let strand = self.chance.below(self.strands.len() as u64);
        usize::try_from(strand).expect("BUG: few strands")
    }

    pub(super) fn note(&mut self, step: String) {
        self.gather();
        self.trace.push(step);
    }

    /// Takes the steps that strands noted.
    fn gather(&mut self) {
        for (number, strand) in self.strands.iter_mut().enumerate() {
            let steps = strand.trace.drain(..);
            let steps = steps.map(|step| format!("strand {number}: {step}"));
            self.trace.extend(steps);
        }
    }

    pub(super) fn pass(&mut self, passed_ms: i64) {
        self.clock.pass(passed_ms);
        self.strands.iter().for_each(Strand::tell_time);
        let known_ms = known_ms(&self.strands[0].options);
        age(&mut self.naive, &self.clock, passed_ms, known_ms);
        let known = &self.naive.batches;
        self.keyed.retain(|key, _| known.contains_key(key));
    }

    /// Clients do not wait for hours.
    fn let_time_pass(&mut self) -> Result<(), String> {
        let now_ms = self.clock.now_ms();
        let passed_ms = some_time(&mut self.chance, now_ms);
        let until_ms = now_ms + passed_ms - AGAIN_MS;
        if self.waiting.iter().any(|sent| sent.at_ms < until_ms) {
            self.calm()?;
        }
        self.note(format!("{passed_ms} ms pass"));
        // Histories of ids reach as far back as the logs of nodes.
        self.alike.forget();
        self.pass(passed_ms);
        Ok(())
    }

    /// A node dies with all its strands, and starts again from its directory or an empty one, perhaps at once.
    fn kill(&mut self) -> Result<(), String> {
        let (site, way) = (self.strands[0].any_site(), self.chance.below(4));
        let starts = self.chance.percent(60);
        for strand in &mut self.strands {
            strand.kill_site(site, way);
            if starts {
                strand.start(site)?;
            }
        }
        Ok(())
    }

    /// Sends a batch by a node.
    fn send(&mut self) -> Result<(), String> {
        self.pass(50);
        let site = self.strands[0].any_site();
        let Some(stores) = self.joined(site) else {
            return Ok(());
        };
        let sent = self.draw();
        self.submit(&stores, sent)
    }

    fn draw(&mut self) -> Waiting {
        let may_wait = self.waiting.len() < WAITING_MAX;
        let again = self.waiting.iter().enumerate();
        let again = again.filter(|(_, sent)| sent.mark.is_none());
        let again: Vec<usize> = again.map(|(number, _)| number).collect();
        if !again.is_empty() && (!may_wait || self.chance.percent(30)) {
            return self.waiting.remove(*self.chance.pick(&again));
        }
        let at_ms = self.clock.now_ms();
        if self.chance.percent(8) && !self.keyed.is_empty() {
            let keys: Vec<String> = self.keyed.keys().cloned().collect();
            let key = self.chance.pick(&keys).clone();
            return Waiting {
                increments: self.keyed[&key].0.clone(),
                key: Some(key),
                mark: None,
                at_ms,
                was_sent: true,
            };
        }
        let key = format!("batch {:016x}", self.chance.bits());
        let key = self.chance.percent(40).then_some(key);
        let mark = format!("mark-{:016x}", self.chance.bits());
        let mark = (may_wait && key.is_none() && self.chance.percent(40)).then_some(mark);
        Waiting {
            increments: self.draw_increments(at_ms, (key.is_none(), mark.as_deref())),
            key,
            mark,
            at_ms,
            was_sent: false,
        }
    }

    /// Increments of a new batch, some of them with ids that count already. Where there is a mark, those without an id
    /// are on it alone.
    fn draw_increments(
        &mut self,
        at_ms: i64,
        (has_ids, mark): (bool, Option<&str>),
    ) -> Vec<Increment> {
        let (now, schema) = (at_ms.div_euclid(1_000), clicks::schema(0));
        let ids = self
            .naive
            .ids
            .iter()
            .filter(|(_, id)| id.is_within(AGAIN_MS));
        let ids: Vec<String> = ids.map(|(id, _)| id.clone()).collect();
        let chance = &mut self.chance;
        let many = match chance.below(100) {
            0..5 => 50 + chance.below(100),
            _ => 1 + chance.below(8),
        };
        let mut increments = Vec::new();
        while increments.len() < many as usize {
            let mut increment = clicks::increment(chance, schema, now, &ids);
            if increment.n > N_MAX {
                continue;
            }
            if has_ids && increment.id.is_none() {
                increment.id = Some(format!("id-{:016x}", chance.bits()));
            }
            increments.push(increment);
        }
        let marks = mark.map(|mark| clicks::mark(mark, now));
        increments.extend(marks);
        increments
    }

    /// Sends a batch to the nodes that write its strands, as a node with these stores does.
    pub(super) fn submit(&mut self, stores: &Stores, mut sent: Waiting) -> Result<(), String> {
        let many = sent.increments.len();
        self.note(format!(
            "{many} increments, key {:?}, mark {:?}",
            sent.key, sent.mark
        ));
        self.stats.batches += 1;
        let (mut submission, home) = (Submission::default(), self.any_strand());
        let whole = batch(stores.first(), &sent.increments, sent.key.as_ref());
        let was_sent = std::mem::replace(&mut sent.was_sent, true);
        let outcome = {
            let nodes = RefCell::new(&mut *self);
            let commit = |strand, part| ready(nodes.borrow_mut().commit(strand, part, was_sent));
            let counted_in = |strand: usize| stores.all()[strand].live().applied();
            let ways = (commit, counted_in);
            let submitted = pin!(submission.submit(stores, (whole, home), ways));
            match submitted.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => return Err("BUG: it waits".to_owned()),
            }
        };
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.note(format!("  => {outcome:?}"));
        match outcome {
            Ok(counted) => self.answered(&sent, was_sent, &counted.accepted),
            Err(Refusal::Items(wrong)) => Err(format!("items were refused: {wrong:?}")),
            Err(refusal) if self.is_calm => Err(format!("refused without a fault: {refusal}")),
            Err(_) => {
                self.stats.unanswered += 1;
                let is_told = sent.key.as_ref().map(|key| self.keyed.contains_key(key));
                if is_told != Some(true) {
                    self.waiting.push(sent);
                }
                Ok(())
            }
        }
    }

    /// Commits a part of a batch. It may get lost on its way, or its answer, or another node takes the log over.
    fn commit(&mut self, strand: usize, part: Batch, was_sent: bool) -> Result<Counted, Refusal> {
        let lost = || Err(Refusal::Unavailable("it got lost".to_owned()));
        let loses = |chance: &mut Chance| chance.percent(7);
        if !self.is_calm && loses(&mut self.chance) {
            return lost();
        }
        let races = !self.is_calm && self.chance.percent(6);
        let is_keyed = part.key.is_some();
        let at = &mut self.strands[strand];
        let Some((site, store)) = at.claimant() else {
            return lost();
        };
        let committed = || -> Result<_, String> {
            let races = races && at.begin_race()?;
            let outcome = store.intake().commit(vec![part]).remove(0);
            at.note(format!("  {site} commits: {outcome:?}"));
            let judged = match &outcome {
                // A key that came before has its answer anywhere.
                Ok(_) if at.writer != Some(site) && !(is_keyed && was_sent) => {
                    Err(format!("{site} acknowledged what it did not write"))
                }
                Ok(_) => {
                    at.acknowledge(&store);
                    Ok(())
                }
                Err(refusal) => {
                    at.sites[site].is_refused = true;
                    at.allow(site, "a commit", &refusal.to_string())
                }
            };
            if races {
                at.end_race()?;
            }
            judged.map(|()| outcome)
        };
        match committed() {
            Ok(Ok(_)) if !self.is_calm && loses(&mut self.chance) => lost(),
            Ok(outcome) => outcome.map(Counted::from),
            Err(wrong) => {
                self.wrong = Some(format!("strand {strand}: {wrong}"));
                lost()
            }
        }
    }

    /// A batch was answered: from here on it counts, and keeps its answer.
    fn answered(
        &mut self,
        sent: &Waiting,
        was_sent: bool,
        accepted: &Accepted,
    ) -> Result<(), String> {
        let told = sent.key.as_ref().and_then(|key| self.keyed.get(key));
        if let Some((_, told)) = told {
            return match told == accepted {
                true => Ok(()),
                false => Err(format!("a repeated batch gave {accepted:?}, not {told:?}")),
            };
        }
        let schema = clicks::schema(0);
        let counted = self.naive.stage(schema, 0, &sent.increments);
        let counted = counted.ok_or("BUG: counts are small")?;
        let expected = counted.accepted();
        let is_right = match was_sent && sent.key.is_none() {
            // Parts that counted before are duplicates by now.
            true => {
                let sum = |of: &Accepted| of.accepted + of.filtered + of.duplicates;
                sum(accepted) == sum(&expected) && accepted.duplicates >= expected.duplicates
            }
            false => {
                *accepted
                    == Accepted {
                        late: accepted.late,
                        ..expected.clone()
                    }
            }
        };
        if !is_right {
            return Err(format!("answered {accepted:?}, expected {expected:?}"));
        }
        self.stats.count(accepted);
        self.counts(sent);
        if let Some(key) = &sent.key {
            let known = IdState::new(sent.at_ms);
            self.naive.batches.insert(key.clone(), known);
            let answered = (sent.increments.clone(), accepted.clone());
            self.keyed.insert(key.clone(), answered);
        }
        Ok(())
    }

    /// A batch counts for sure.
    pub(super) fn counts(&mut self, sent: &Waiting) {
        let schema = clicks::schema(0);
        let counted = self.naive.stage(schema, 0, &sent.increments);
        let counted = counted.expect("BUG: counts are small");
        self.naive.apply(schema, &counted, IdState::new(sent.at_ms));
    }
}
