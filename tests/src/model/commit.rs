//! Commits: random batches go in, and each answer is what the model says.

use tallyring_realtime::{
    Accepted, Batch, BatchKey, Clock, Durability, ItemFault, Refusal, StoreStatus, WrongItem,
};
use tallyring_records::{Day, Increment, Origin, Schema, StoreId, Text};

use super::naive::{Counted, IdState};
use super::{Driver, Pending, clicks};

/// Increments of the largest batch, about.
const BURST: u64 = 1_000;

/// Identities that send; one in two batches comes without.
const IDENTITIES: [&str; 4] = ["", "", "a", "b"];

/// An id, a producer or a key in the model: a text, behind the identity that it belongs to.
pub(super) fn name(identity: &str, text: &str) -> String {
    match identity {
        "" => text.to_owned(),
        identity => format!("{identity}/{text}"),
    }
}

/// The identity and the text of a name, as a sender gives them.
pub(super) fn parts_of(name: &str) -> (Option<Text>, &str) {
    match name.split_once('/') {
        Some((identity, text)) => (Some(identity.into()), text),
        None => (None, name),
    }
}

fn text_of(name: &str) -> &str {
    parts_of(name).1
}

/// A batch to be committed.
struct Sent {
    /// Empty for none.
    identity: &'static str,
    /// Their ids and producers are names.
    increments: Vec<Increment>,
    mark: Option<String>,
    key: Option<String>,
    /// Its key came before, with this answer, or with another body.
    repeats: Option<Option<Accepted>>,
}

impl Driver {
    pub(super) fn commit(&mut self) -> Result<(), String> {
        self.set_clock(self.now_ms + 50);
        let batches = match self.chance.below(10) {
            0 => 3,
            1 => 2,
            _ => 1,
        };
        let mut sent: Vec<Sent> = Vec::new();
        for _ in 0..batches {
            let batch = self.draw_batch(&sent);
            sent.push(batch);
        }
        self.send(sent)
    }

    /// Sends increments, each alone in its batch. The names of their ids say whose they are.
    pub(super) fn send_alone(&mut self, increments: Vec<Increment>) -> Result<(), String> {
        if increments.is_empty() {
            return Ok(());
        }
        let sent = increments.into_iter().map(|increment| {
            let is_of = |identity: &&&str| {
                let id = increment.id.as_ref();
                !identity.is_empty() && id.is_some_and(|id| id.starts_with(&name(identity, "")))
            };
            Sent {
                identity: IDENTITIES.iter().find(is_of).copied().unwrap_or_default(),
                increments: vec![increment],
                mark: None,
                key: None,
                repeats: None,
            }
        });
        self.send(sent.collect())
    }

    fn send(&mut self, sent: Vec<Sent>) -> Result<(), String> {
        self.stats.batches += sent.len() as u64;
        self.note(format!("commit {}", shown(&sent)));
        let batches = sent.iter().map(|sent| self.batch(sent)).collect();
        self.naive.log_end = self.store().live().applied().sequence;
        let outcomes = self.store().intake().commit(batches);
        self.follow_ring()?;
        if outcomes.len() != sent.len() {
            return Err("not one outcome for each batch".to_owned());
        }
        for (sent, outcome) in sent.into_iter().zip(outcomes) {
            self.outcome(sent, outcome)?;
        }
        if self.store().intake().wants_flush() && self.chance.percent(50) {
            self.flush()?;
        }
        Ok(())
    }

    /// True when a batch that is committed now may have an uncertain fate.
    pub(super) fn is_risky(&mut self) -> bool {
        self.options.durability != Durability::Fsync
            || self.fault_at.is_some()
            || self.is_troubled()
    }

    fn draw_batch(&mut self, others: &[Sent]) -> Sent {
        let now = self.now_ms.div_euclid(1_000);
        let risky = self.is_risky();
        if self.chance.percent(6)
            && let Some(sent) = self.draw_repeat(others)
        {
            return sent;
        }
        let schema = clicks::schema(self.schema);
        let mut ids: Vec<String> = self.naive.ids.keys().cloned().collect();
        ids.extend(
            others
                .iter()
                .flat_map(|sent| &sent.increments)
                .filter_map(|one| one.id.clone()),
        );
        let identity = *self.chance.pick(&IDENTITIES);
        let mut increments = Vec::new();
        let (many, is_burst) = match self.chance.below(100) {
            0..4 => (50 + self.chance.below(BURST), true),
            _ => (1 + self.chance.below(6), false),
        };
        for _ in 0..many {
            if is_burst && increments.len() > 5 {
                increments.push(clicks::plain(&mut self.chance, schema, now));
                continue;
            }
            let mut increment = clicks::increment(&mut self.chance, schema, now, &ids);
            let id = increment.id.take();
            increment.id = id.and_then(|drawn| self.id_of(identity, &drawn, &ids));
            let stale = increment.id.as_ref().is_some_and(|id| self.is_stale(id));
            if stale && !risky && others.is_empty() && increments.is_empty() {
                increments.push(increment);
                break;
            }
            if stale {
                increment.id = None;
            }
            ids.extend(increment.id.clone());
            increments.push(increment);
        }
        let has_stale = increments
            .iter()
            .any(|increment| increment.id.as_ref().is_some_and(|id| self.is_stale(id)));
        // In one batch of a group at most: another could only go on when this one is taken.
        if others.is_empty() && !has_stale && self.chance.percent(15) {
            self.draw_numbered(identity, &mut increments, now);
        }
        let mark = risky.then(|| format!("mark-{}", self.chance.bits()));
        if let Some(mark) = &mark {
            let at = usize::try_from(self.chance.below(increments.len() as u64 + 1));
            increments.insert(at.expect("BUG: a short list"), clicks::mark(mark, now));
        }
        let keyed = !has_stale && self.chance.percent(20);
        let key = keyed.then(|| name(identity, &format!("batch {}", self.chance.bits())));
        Sent {
            identity,
            increments,
            mark,
            key,
            repeats: None,
        }
    }

    /// The name of an id that an identity sends with the text of a drawn one. An id that was sent without an identity
    /// is known to all, so its name stays.
    fn id_of(&self, identity: &str, drawn: &str, ids: &[String]) -> Option<String> {
        let text = text_of(drawn);
        if identity.is_empty() || !ids.iter().any(|id| id == text) {
            return Some(name(identity, text));
        }
        // Another batch of the group may fail, or the id be forgotten: whose it is then, only the store knows.
        let is_known = self.naive.ids.contains_key(text) && !self.is_stale(text);
        is_known.then(|| text.to_owned())
    }

    /// The increments that a producer sends next, perhaps behind some that it has sent before.
    fn draw_numbered(&mut self, identity: &str, increments: &mut Vec<Increment>, now: i64) {
        let producer = match identity {
            "" => format!("producer {}", self.chance.below(3)),
            // Numbers from before would go on.
            identity => name(identity, &format!("with key {}", self.chance.below(2))),
        };
        let window_ms = self.window_ms();
        let (mut known, mut next) = (0, 0);
        if let Some(numbered) = self.naive.producers.get_mut(&producer) {
            // A sender that may be forgotten begins at any number: a repeated batch would count, or be refused.
            if numbered.seen.age_ms > window_ms {
                numbered.first = numbered.next;
            }
            next = numbered.next;
            known = next.saturating_sub(numbered.first);
        }
        let first = next - self.chance.below(known.min(4) + 1);
        for sequence in first..=first + self.chance.below(6) {
            let origin = Origin {
                producer: producer.clone(),
                epoch: 0,
                sequence,
            };
            increments.push(clicks::numbered(&mut self.chance, now, origin));
        }
    }

    /// A keyed batch again, perhaps with another body.
    fn draw_repeat(&mut self, others: &[Sent]) -> Option<Sent> {
        let window_ms = self.window_ms();
        let known: Vec<String> = self
            .keyed
            .keys()
            .filter(|key| {
                let state = self.naive.batches.get(*key);
                // The log, which holds its answer, goes by the clock when a segment was ended.
                state.is_some_and(|state| state.moved_ms <= window_ms)
            })
            .filter(|key| others.iter().all(|sent| sent.key.as_ref() != Some(key)))
            .cloned()
            .collect();
        if known.is_empty() {
            return None;
        }
        let key = self.chance.pick(&known).clone();
        let (mut increments, accepted) = self.keyed.get(&key)?.clone();
        let same = self.chance.percent(70);
        if !same {
            increments.push(increments.first()?.clone());
        }
        let is_of = |identity: &&&str| key.starts_with(&name(identity, "batch "));
        let identity = IDENTITIES.iter().find(is_of)?;
        Some(Sent {
            identity,
            increments,
            mark: None,
            key: Some(key),
            repeats: Some(same.then_some(accepted)),
        })
    }

    fn batch(&self, sent: &Sent) -> Batch {
        let key = sent.key.as_deref().map(|key| BatchKey {
            text: text_of(key).to_owned(),
            body: self
                .store()
                .intake()
                .body_identity(format!("{:?}", sent.increments).as_bytes()),
        });
        let mut increments = sent.increments.clone();
        for increment in &mut increments {
            if let Some(id) = &mut increment.id {
                *id = text_of(id).to_owned();
            }
            if let Some(origin) = &mut increment.origin {
                origin.producer = text_of(&origin.producer).to_owned();
            }
        }
        Batch {
            increments,
            identity: (!sent.identity.is_empty()).then(|| sent.identity.into()),
            key,
            ..Batch::default()
        }
    }

    pub(super) fn is_stale(&self, id: &str) -> bool {
        let window_ms = self.window_ms();
        self.naive
            .ids
            .get(id)
            .is_some_and(|state| state.age_ms > window_ms)
    }

    fn window_ms(&self) -> i64 {
        i64::from(self.options.id_hours) * 3_600_000
    }

    fn outcome(&mut self, sent: Sent, outcome: Result<Accepted, Refusal>) -> Result<(), String> {
        self.note(format!("  -> {outcome:?}"));
        match outcome {
            Ok(accepted) => self.accepted(sent, accepted),
            Err(Refusal::Unavailable(text)) if sent.repeats.is_some() => {
                self.allow("a repeated batch", &text)
            }
            Err(Refusal::Unavailable(text)) => {
                self.allow("a commit", &text)?;
                let mark = sent.mark.ok_or("uncertain, but no fault was set")?;
                self.pending.push(Pending {
                    mark,
                    increments: sent.increments,
                    counted: Counted {
                        schema: self.schema,
                        sequence_min: self.naive.log_end,
                        ..Counted::default()
                    },
                    arrived_ms: self.now_ms,
                    moved_ms: 0,
                    key: sent.key,
                    ring: self.naive.ring.clone(),
                });
                Ok(())
            }
            Err(Refusal::DiskFull) => self.allow("a commit", "the disk is full"),
            Err(refusal @ Refusal::LogFull { .. }) => {
                self.allow("a commit", &refusal.to_string())?;
                self.make_room_in_log()
            }
            Err(Refusal::KeyReused) => match sent.repeats {
                Some(None) => Ok(()),
                _ => Err("refused as reused, but the key is new or its body the same".to_owned()),
            },
            Err(Refusal::Items(wrong)) => {
                let is_overflow =
                    |item: &WrongItem| matches!(item.fault, ItemFault::Overflow { .. });
                if wrong.is_empty() || !wrong.iter().all(is_overflow) {
                    return Err(format!("refused, and not as overflows: {wrong:?}"));
                }
                self.stats.overflows += 1;
                let schema = clicks::schema(self.schema);
                let staged = self.naive.stage(schema, self.schema, &sent.increments);
                let ids = sent.increments.iter().filter_map(|one| one.id.as_ref());
                let is_open = ids.into_iter().any(|id| self.is_stale(id));
                match staged {
                    None => Ok(()),
                    // Another batch of the group, that failed after, may have lifted the counter.
                    Some(_) if is_open || self.is_troubled() || self.may_be_full() => Ok(()),
                    Some(_) => Err("refused as an overflow that the model does not see".to_owned()),
                }
            }
            // No queue bounds batches here, no declaration changes beside one, and no topic is consumed.
            Err(other) => Err(format!("refused, and not for a known reason: {other}")),
        }
    }

    fn accepted(&mut self, sent: Sent, accepted: Accepted) -> Result<(), String> {
        match sent.repeats {
            Some(Some(before)) if before == accepted => return Ok(()),
            Some(before) => {
                return Err(format!(
                    "a repeated batch gave {accepted:?}, expected {before:?}"
                ));
            }
            None => {}
        }
        let stale = sent.increments.iter().filter_map(|one| one.id.clone());
        for id in stale.filter(|id| self.is_stale(id)).collect::<Vec<_>>() {
            // Alone in its batch: the answer tells whether the id was still known.
            if accepted.accepted + accepted.filtered == 1 {
                self.naive.ids.remove(&id);
            }
        }
        let schema = clicks::schema(self.schema);
        let staged = self.naive.stage(schema, self.schema, &sent.increments);
        let mut counted = staged.ok_or("accepted above the largest count")?;
        counted.follow_memory(&accepted, &self.naive.history);
        let expected = counted.accepted();
        if accepted != expected {
            return Err(format!("answered {accepted:?}, expected {expected:?}"));
        }
        self.stats.count(&accepted);
        self.count(schema, sent, counted, accepted);
        Ok(())
    }

    fn count(&mut self, schema: &Schema, sent: Sent, counted: Counted, accepted: Accepted) {
        let known = IdState::new(self.now_ms);
        self.naive.apply(schema, &counted, known);
        if let Some(key) = &sent.key {
            self.remember(key, &sent.increments, accepted, known);
        }
        if self.options.durability == Durability::Fsync {
            return;
        }
        let end = self.store().status().applied.sequence;
        let pending = Pending {
            mark: sent
                .mark
                .expect("BUG: without a sync every batch is marked"),
            increments: sent.increments,
            counted,
            arrived_ms: self.now_ms,
            moved_ms: 0,
            key: sent.key,
            ring: self.naive.ring.clone(),
        };
        self.unsynced.push((end, pending));
    }

    pub(super) fn remember(
        &mut self,
        key: &str,
        increments: &[Increment],
        accepted: Accepted,
        known: IdState,
    ) {
        self.naive.batches.insert(key.to_owned(), known);
        self.keyed
            .insert(key.to_owned(), (increments.to_vec(), accepted));
    }

    /// Lets the model's ring turn as the store's did, and compares the two.
    pub(super) fn follow_ring(&mut self) -> Result<(), String> {
        let status = self.store().status();
        let (before, day) = (self.naive.today, Day::of(self.now_ms.div_euclid(1_000)));
        if before != Some(status.today) {
            // It goes back only where it was more than a day ahead.
            let back = before.filter(|before| status.today < *before);
            let is_back_for_nothing = back.is_some_and(|before| before <= day.next());
            if is_back_for_nothing || status.today > day {
                return Err(format!(
                    "the ring turned to {}, the clock says {day}",
                    status.today
                ));
            }
            self.naive.rotate(status.today);
        }
        // Yesterday has a further store once its store is cut; only the log knows the record that is its name.
        let yesterday = status.today.previous();
        if self.naive.open_store_of(yesterday).is_none() {
            let is_new = |store: &&StoreStatus| {
                matches!(store.id, StoreId::Again(day, _) if day == yesterday)
                    && !self.naive.ring.contains_key(&store.id)
            };
            if let Some(store) = status.stores.iter().find(is_new) {
                self.naive.ring.insert(store.id, false);
            }
        }
        let found = status.stores.iter().map(|store| (store.id, store.cut));
        if found.clone().eq(self.naive.ring.clone()) {
            return Ok(());
        }
        if self.is_troubled() || self.full {
            self.naive.ring = found.collect();
            return Ok(());
        }
        let found: Vec<(StoreId, bool)> = found.collect();
        Err(format!(
            "the ring is {found:?}, expected {:?}",
            self.naive.ring
        ))
    }

    /// Keeps time; a clock that is plausible, as one is whose jumps are meant, turns the ring at once.
    pub(super) fn tick(&mut self) -> Result<(), String> {
        self.note("tick".to_owned());
        if let Err(refusal) = self.store().intake().tick() {
            self.allow("a tick", &refusal.to_string())?;
            return self.follow_ring();
        }
        self.follow_ring()?;
        let day = Day::of(self.now_ms.div_euclid(1_000));
        let status = self.store().status();
        if status.clock_jumped && self.clock.jumps_are_meant() {
            return Err("a clock is doubted whose jumps are meant".to_owned());
        }
        let today = status.today;
        if !status.clock_jumped && self.naive.open_store_of(today.previous()).is_none() {
            return Err(format!("the day before {today} has no open store"));
        }
        if !status.clock_jumped && today != day && today != day.next() {
            return Err(format!("the clock says {day}, the ring stays at {today}"));
        }
        Ok(())
    }
}

fn shown(sent: &[Sent]) -> String {
    let mut text = String::new();
    for batch in sent {
        let ids = batch.increments.iter().filter(|one| one.id.is_some());
        text.push_str(&format!(
            "[{} increments, {} ids, mark {:?}, key {:?}, repeats {}] ",
            batch.increments.len(),
            ids.count(),
            batch.mark,
            batch.key,
            batch.repeats.is_some()
        ));
    }
    text
}
