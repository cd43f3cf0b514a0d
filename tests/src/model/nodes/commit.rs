//! Batches go to any node, and each answer is what the model says. Where no answer came, the next take-over tells.

use std::sync::Arc;

use tallyring_realtime::{Accepted, Batch, BatchKey, ItemFault, Refusal, Store, View, WrongItem};
use tallyring_records::Increment;

use super::Nodes;
use super::clicks;
use crate::model::check::whole;
use crate::model::naive::{Counted, IdState};

/// Marks of batches that never count, which are looked for.
const VOID_MAX: usize = 50;
/// Batches whose clients try again, at most.
const AGAIN_MAX: usize = 20;

/// A batch.
#[derive(Clone)]
pub(super) struct Sent {
    pub increments: Vec<Increment>,
    /// The key that no other batch counts on; none where the batch must be acknowledged.
    pub mark: Option<String>,
    key: Option<String>,
    /// When it was sent first, Unix milliseconds.
    pub at_ms: i64,
    /// Its counts if the log has it, by the ids that were known when it was sent; none above the largest count.
    pub counted: Option<Counted>,
}

impl Nodes {
    /// Sends some batches to a node that believes to write, by another node that has counted them before it answers.
    pub(super) fn commit(&mut self) -> Result<(), String> {
        self.pass(50);
        let Some((site, store)) = self.strand.claimant() else {
            return Ok(());
        };
        let batches = if self.strand.chance.percent(10) { 2 } else { 1 };
        let sent: Vec<Sent> = (0..batches).map(|_| self.draw(site)).collect();
        self.strand.note(format!("{site} commits {}", shown(&sent)));
        self.strand.stats.batches += batches;
        let batches = sent.iter();
        let batches = batches.map(|sent| batch(&store, &sent.increments, sent.key.as_ref()));
        let batches = batches.collect();
        let outcomes = store.intake().commit(batches);
        let stores = store.status().stores;
        self.naive.ring = stores.iter().map(|store| (store.id, store.cut)).collect();
        for (sent, outcome) in sent.into_iter().zip(outcomes) {
            self.strand.note(format!("  -> {outcome:?}"));
            self.outcome((site, &store), sent, outcome)?;
        }
        let by = self.strand.any_site();
        match by != site && !self.strand.troubled && self.strand.race.is_none() {
            true => self.read_here(by),
            false => Ok(()),
        }
    }

    fn draw(&mut self, site: usize) -> Sent {
        if self.strand.chance.percent(20)
            && let Some(again) = self.again.pop()
        {
            return again;
        }
        let now_ms = self.strand.now_ms();
        if self.strand.chance.percent(6) && !self.keyed.is_empty() {
            let keys: Vec<String> = self.keyed.keys().cloned().collect();
            let key = self.strand.chance.pick(&keys).clone();
            return Sent {
                increments: self.keyed[&key].0.clone(),
                mark: None,
                key: Some(key),
                at_ms: now_ms,
                counted: None,
            };
        }
        let (now, schema) = (now_ms.div_euclid(1_000), clicks::schema(0));
        let ids: Vec<String> = self.naive.ids.keys().cloned().collect();
        let is_risky = self.strand.is_risky(site);
        let chance = &mut self.strand.chance;
        let has_ids = chance.percent(50);
        let many = match chance.below(100) {
            0..4 => 50 + chance.below(200),
            _ => 1 + chance.below(6),
        };
        let mut increments = Vec::new();
        for _ in 0..many {
            let mut increment = match increments.len() {
                0..6 => clicks::increment(chance, schema, now, &ids),
                _ => clicks::plain(chance, schema, now),
            };
            if has_ids && increment.id.is_none() {
                increment.id = Some(format!("id-{:016x}", chance.bits()));
            }
            increments.push(increment);
        }
        let mark = format!("mark-{:016x}", chance.bits());
        let mark = is_risky.then_some(mark);
        if let Some(mark) = &mark {
            let at = chance.below(increments.len() as u64 + 1);
            let counts = Increment {
                id: has_ids.then(|| mark.clone()),
                ..clicks::mark(mark, now)
            };
            increments.insert(usize::try_from(at).expect("BUG: a short list"), counts);
        }
        let key = format!("batch {:016x}", chance.bits());
        Sent {
            increments,
            mark,
            key: chance.percent(20).then_some(key),
            at_ms: now_ms,
            counted: None,
        }
    }

    fn outcome(
        &mut self,
        (site, store): (usize, &Arc<Store>),
        sent: Sent,
        outcome: Result<Accepted, Refusal>,
    ) -> Result<(), String> {
        let accepted = match outcome {
            Ok(accepted) => accepted,
            Err(Refusal::Items(wrong)) => return self.overflown(site, &sent, &wrong),
            Err(refusal) => {
                self.strand.allow(site, "a commit", &refusal.to_string())?;
                self.strand.stats.unanswered += 1;
                self.strand.sites[site].is_refused = true;
                self.unanswered(sent);
                return Ok(());
            }
        };
        if self.is_known(&sent) {
            return self.repeated(&sent, &accepted);
        }
        if self.strand.writer != Some(site) {
            return Err(format!("{site} acknowledged what it did not write"));
        }
        let schema = clicks::schema(0);
        let counted = self.naive.stage(schema, 0, &sent.increments);
        let counted = counted.ok_or("accepted above the largest count")?;
        let expected = counted.accepted();
        if accepted != expected {
            return Err(format!("answered {accepted:?}, expected {expected:?}"));
        }
        self.strand.stats.count(&accepted);
        let known = IdState::new(self.strand.now_ms());
        self.naive.apply(schema, &counted, known);
        self.remember(&sent, Some(accepted), known);
        self.strand.acknowledge(store);
        Ok(())
    }

    /// A batch was refused as an overflow: the model sees it, too, unless the node did not know all that counts.
    fn overflown(&mut self, site: usize, sent: &Sent, wrong: &[WrongItem]) -> Result<(), String> {
        let is_overflow = |item: &WrongItem| matches!(item.fault, ItemFault::Overflow { .. });
        if wrong.is_empty() || !wrong.iter().all(is_overflow) {
            return Err(format!("refused, and not as overflows: {wrong:?}"));
        }
        self.strand.stats.overflows += 1;
        let staged = self.naive.stage(clicks::schema(0), 0, &sent.increments);
        match staged.is_some() && !self.strand.is_risky(site) {
            true => Err("refused as an overflow that the model does not see".to_owned()),
            false => Ok(()),
        }
    }

    /// True where its key came before: any node gives the answer of then.
    fn is_known(&self, sent: &Sent) -> bool {
        let key = sent.key.as_ref();
        key.is_some_and(|key| self.keyed.contains_key(key))
    }

    fn repeated(&mut self, sent: &Sent, accepted: &Accepted) -> Result<(), String> {
        let key = sent.key.clone().unwrap_or_default();
        let told = self.keyed.get_mut(&key).map(|(_, told)| told);
        let told = told.ok_or("an answer to a batch that does not count")?;
        match *told.get_or_insert_with(|| accepted.clone()) == *accepted {
            true => Ok(()),
            false => Err(format!("a repeated batch gave {accepted:?}, not {told:?}")),
        }
    }

    fn remember(&mut self, sent: &Sent, accepted: Option<Accepted>, known: IdState) {
        if let Some(key) = &sent.key {
            self.naive.batches.insert(key.clone(), known);
            let answered = (sent.increments.clone(), accepted);
            self.keyed.insert(key.clone(), answered);
        }
    }

    /// A batch that was not answered: it counts or not, and its client may try again.
    fn unanswered(&mut self, mut sent: Sent) {
        if self.is_known(&sent) {
            return;
        }
        sent.counted = self.naive.stage(clicks::schema(0), 0, &sent.increments);
        let mut ids = sent.increments.iter().map(|increment| &increment.id);
        // An id that was known before may be forgotten soon.
        let is_new = (sent.counted.as_ref()).is_some_and(|counted| counted.duplicates == 0);
        if is_new && ids.all(Option::is_some) && self.again.len() < AGAIN_MAX {
            self.again.push(sent.clone());
        }
        self.pending.push(sent);
    }

    /// Learns from the node that took the log over, if one did, which batches count that were sent before.
    pub(super) fn resolve(&mut self) -> Result<(), String> {
        let take_overs = self.strand.stats.take_overs;
        let writer = self.strand.writer.filter(|_| take_overs > self.resolved);
        let store = writer.and_then(|site| self.strand.sites[site].store());
        let Some(store) = store.map(Arc::clone) else {
            return Ok(());
        };
        self.resolved = take_overs;
        let view = store.view();
        for sent in std::mem::take(&mut self.pending) {
            let mark = sent.mark.clone();
            let mark = mark.ok_or("BUG: only what has a mark may fail")?;
            let is_known = self.naive.all.total(clicks::MARKS, &mark, hour(&sent)) > 0;
            if is_known {
                continue;
            }
            if !is_marked(&view, &mark)? {
                // A client that tries again may have more luck.
                if self.again.iter().all(|again| again.mark != sent.mark) {
                    self.void.push(mark);
                }
                continue;
            }
            self.strand.note(format!("  {mark} counts"));
            let counted = sent.counted.as_ref();
            let counted = counted.ok_or("a batch counts above the largest count")?;
            let known = IdState::new(sent.at_ms);
            self.naive.apply(clicks::schema(0), counted, known);
            self.remember(&sent, None, known);
        }
        let surplus = self.void.len().saturating_sub(VOID_MAX);
        self.void.drain(..surplus);
        self.strand.acknowledge(&store);
        Ok(())
    }
}

/// Start of the hour in which a batch's mark counts, Unix seconds.
fn hour(sent: &Sent) -> i64 {
    let mark = sent.increments.iter();
    let mark =
        mark.filter(|increment| increment.keys.iter().any(|(name, _)| name == clicks::MARKS));
    let at = mark.map(|increment| increment.at).next().unwrap_or(0);
    at - at.rem_euclid(3_600)
}

/// True where a view counts the batch with this mark.
pub(super) fn is_marked(view: &View<'_>, mark: &str) -> Result<bool, String> {
    let read = whole(clicks::MARKS, mark, None);
    let counts = view.read(&read, None);
    counts
        .map(|counts| !counts.totals.is_empty())
        .map_err(|error| error.to_string())
}

pub(super) fn batch(store: &Store, increments: &[Increment], key: Option<&String>) -> Batch {
    let key = key.map(|key| BatchKey {
        text: key.clone(),
        body: store
            .intake()
            .body_identity(format!("{increments:?}").as_bytes()),
    });
    Batch {
        increments: increments.to_vec(),
        key,
        ..Batch::default()
    }
}

fn shown(sent: &[Sent]) -> String {
    let one = |sent: &Sent| {
        let many = sent.increments.len();
        let (mark, key) = (&sent.mark, &sent.key);
        format!("[{many} increments, mark {mark:?}, key {key:?}]")
    };
    let all: Vec<String> = sent.iter().map(one).collect();
    all.join(" ")
}
