//! The naive model: one map of counts for each store, what was exported, and the ids.
//!
//! It knows the rules of DESIGN §1 and §4 in their simplest form: a day of the ring that is open
//! takes its increments, everything else is late; a generation is what it says that it merged of
//! what was exported when it was published, and never less than the generation before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{Origin, Partition, Sign};
use tallyring_records::{
    Accepted, COUNT_MAX, Day, Grain, Increment, MINUTES, MISSING, Schema, StoreId, TimeCode,
    by_minute as by_minute_of, filtered_namespace, minute_value,
};

use super::Made;
use super::book::Book;
use super::clicks;
use super::datasets::Wanted;
use super::fixes::Fixed;
use super::generations::{number_of, origin_in};
use super::history::History;
use super::oracle::Oracle;

/// The answers that the store must give.
#[derive(Default)]
pub(super) struct Naive {
    /// The ring's today.
    pub today: Option<Day>,
    /// Open and closed stores; true when closed.
    pub ring: BTreeMap<StoreId, bool>,
    /// Everything.
    pub all: Book,
    /// Actions of users.
    pub actions: Oracle,
    /// The log as it was sent.
    pub history: History,
    /// The sequence number that the log had reached before the batches that are staged.
    pub log_end: u64,
    /// The counts of each store that was not exported.
    pub stores: BTreeMap<StoreId, Book>,
    /// The counts that the newest generation has merged of what was exported.
    pub merged: Book,
    /// The counts that it has not merged, or has not taken away.
    pub waiting: BTreeMap<Piece, Book>,
    /// Fixes that count, in the order of their publication.
    pub fixes: Vec<Fixed>,
    /// Days that were corrected: breakdowns by minute were not.
    pub fixed: BTreeSet<Day>,
    /// Generations by number, as they were when they were published.
    pub generations: BTreeMap<u64, Generation>,
    /// The counts of each bulk load.
    pub loads: BTreeMap<String, Book>,
    /// Datasets of the next generation.
    pub wanted: Wanted,
    /// The generation that is read.
    pub active: u64,
    /// Known ids.
    pub ids: BTreeMap<String, IdState>,
    /// Known keys of batches.
    pub batches: BTreeMap<String, IdState>,
    /// How far producers have come that number what they send.
    pub producers: BTreeMap<String, Numbered>,
}

/// The part of an export that counts in one month: a generation merges all of it, or nothing.
pub(super) type Piece = (Origin, Partition);

/// A generation as it was published.
#[derive(Debug, Clone, Default)]
pub(super) struct Generation {
    /// Everything it counts.
    pub book: Book,
    /// The datasets among them.
    pub datasets: Wanted,
    /// The names and bytes of its files when all of it was compared last.
    pub compared: Files,
}

/// Names and bytes of files.
pub(super) type Files = Vec<(String, Arc<Vec<u8>>)>;

/// Since when an id is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdState {
    /// Unix milliseconds.
    pub arrived_ms: i64,
    /// The most that any clock was ahead of that since.
    pub age_ms: i64,
    /// How far the clock has moved since, to and fro.
    pub moved_ms: i64,
}

/// How far a producer has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    /// No number below it is known for sure: its producer may have been forgotten before that one came.
    pub first: u64,
    /// The number that follows.
    pub next: u64,
    /// Since when that is known.
    pub seen: IdState,
}

/// A batch as it was, or would be, counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    /// Where each increment went, and what each filtered one counts.
    pub increments: Vec<(StoreId, Increment)>,
    /// Under which schema.
    pub schema: usize,
    /// No record of it has a lower sequence number.
    pub sequence_min: u64,
    /// Known already.
    pub duplicates: u64,
    /// The sum of the counted increments.
    pub late: u64,
    /// Increments that a rule keeps from being counted.
    pub filtered: Vec<Increment>,
    /// The number that followed for each producer before, and the one that follows then.
    pub numbered: BTreeMap<String, (u64, u64)>,
}

impl Counted {
    /// The increments that the log was sent: those that count, then those that a rule keeps from it.
    pub(super) fn sent(&self) -> impl Iterator<Item = &Increment> {
        let all = self.increments.iter().map(|(_, increment)| increment);
        let counted = all.filter(|increment| increment.filtering_rule().is_none());
        counted.chain(&self.filtered)
    }

    /// The answer of the store.
    pub(super) fn accepted(&self) -> Accepted {
        Accepted {
            accepted: (self.increments.len() - self.filtered.len()) as u64,
            duplicates: self.duplicates,
            late: self.late,
            filtered: self.filtered.len() as u64,
            set_aside: 0,
            skipped: Vec::new(),
        }
    }
}

impl Naive {
    /// The store that takes an increment at `at` now.
    pub(super) fn target(&self, at: i64) -> StoreId {
        self.open_store_of(Day::of(at)).unwrap_or(self.late())
    }

    /// The open store of a day.
    pub(super) fn open_store_of(&self, day: Day) -> Option<StoreId> {
        let open = |(id, closed): &(&StoreId, &bool)| id.day() == Some(day) && !**closed;
        self.ring.iter().find(open).map(|(id, _)| *id)
    }

    pub(super) fn late(&self) -> StoreId {
        let open = |(id, closed): &(&StoreId, &bool)| matches!(id, StoreId::Late(_)) && !**closed;
        let (late, _) = self
            .ring
            .iter()
            .find(open)
            .expect("BUG: one late store is open");
        *late
    }

    /// The ring turns.
    pub(super) fn rotate(&mut self, today: Day) {
        self.today = Some(today);
        for day in [today.previous(), today, today.next()] {
            if !self.ring.keys().any(|id| id.day() == Some(day)) {
                self.ring.insert(StoreId::Day(day), false);
            }
        }
    }

    /// Stores that are to be exported now: those over that count something, and days that leave.
    pub(super) fn due(&self) -> Vec<StoreId> {
        let today = self.today.expect("BUG: a ring has a today");
        let due = |id: &StoreId| {
            let counts = self.stores.get(id).is_some_and(|book| !book.is_empty());
            match id.day() {
                Some(day) => day < today.previous() || day < today && counts,
                None => counts,
            }
        };
        self.ring
            .iter()
            .filter(|(id, closed)| !**closed && due(id))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Closes them.
    pub(super) fn cut(&mut self, stores: &[StoreId]) {
        for id in stores {
            self.ring.insert(*id, true);
            if let StoreId::Late(epoch) = id {
                self.ring.insert(StoreId::Late(epoch + 1), false);
            }
        }
    }

    /// The outcome of a batch; none when a counter would be too large.
    pub(super) fn stage(
        &self,
        schema: &Schema,
        number: usize,
        batch: &[Increment],
    ) -> Option<Counted> {
        let rules = clicks::rules(number);
        let mut counted = Counted {
            schema: number,
            sequence_min: self.log_end,
            ..Counted::default()
        };
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut sums: BTreeMap<(&str, &str, i64), u64> = BTreeMap::new();
        for increment in batch {
            if let Some(id) = increment.id.as_deref()
                && (self.ids.contains_key(id) || !seen.insert(id))
            {
                counted.duplicates += 1;
                continue;
            }
            if let Some(origin) = increment.origin.as_deref() {
                let known = self.producers.get(&origin.producer);
                let before = known.map_or(0, |known| known.next);
                let numbers = counted.numbered.entry(origin.producer.clone());
                let (_, next) = numbers.or_insert((before, before));
                if origin.sequence < *next {
                    counted.duplicates += 1;
                    continue;
                }
                *next = origin.sequence + 1;
            }
            for (name, key) in &increment.keys {
                let start = bucket(schema, name, increment.at);
                let filtered = self.all.total(&filtered_namespace(name), key, start);
                let gross = self.all.total(name, key, start).saturating_add(filtered);
                let sum = sums.entry((name, key, start)).or_insert(0);
                *sum = sum.saturating_add(increment.n);
                if sum.saturating_add(gross) > COUNT_MAX {
                    return None;
                }
            }
            let store = self.target(increment.at);
            if let Some(index) = rules.stateless(increment).caught {
                let by_rule = increment.filtered_by(&schema.filters[index].name);
                counted.increments.push((store, by_rule));
                counted.filtered.push(increment.clone());
                continue;
            }
            counted.late += u64::from(matches!(store, StoreId::Late(_)));
            counted.increments.push((store, increment.clone()));
        }
        Some(counted)
    }

    /// Counts a batch.
    pub(super) fn apply(&mut self, schema: &Schema, counted: &Counted, arrived: IdState) {
        self.history.add(counted, arrived);
        for (store, increment) in &counted.increments {
            self.actions.add(schema, increment);
            for cell in cells(schema, increment) {
                self.all.add(&cell, increment.n);
                self.stores
                    .entry(*store)
                    .or_default()
                    .add(&cell, increment.n);
            }
            if let Some(id) = &increment.id {
                self.ids.insert(id.clone(), arrived);
            }
        }
        for id in counted.filtered.iter().filter_map(|one| one.id.as_ref()) {
            self.ids.insert(id.clone(), arrived);
        }
        for (producer, &(before, next)) in &counted.numbered {
            if next > before {
                let known = self.producers.get(producer);
                let numbered = Numbered {
                    first: known.map_or(before, |known| known.first),
                    next,
                    seen: arrived,
                };
                self.producers.insert(producer.clone(), numbered);
            }
        }
    }

    /// Takes a batch back that a loss of power took.
    pub(super) fn retract(&mut self, schema: &Schema, counted: &Counted) {
        self.history.remove(counted);
        for (store, increment) in &counted.increments {
            self.actions.remove(schema, increment);
            for cell in cells(schema, increment) {
                self.all.subtract(&cell, increment.n);
                if let Some(book) = self.stores.get_mut(store) {
                    book.subtract(&cell, increment.n);
                }
            }
            if let Some(id) = &increment.id {
                self.ids.remove(id);
            }
        }
        for id in counted.filtered.iter().filter_map(|one| one.id.as_ref()) {
            self.ids.remove(id);
        }
        for (producer, &(before, next)) in &counted.numbered {
            if next > before
                && let Some(known) = self.producers.get_mut(producer)
            {
                // Where several batches are lost, the first one says how far the producer had come.
                known.next = known.next.min(before);
                // When that was is not kept here: it may be forgotten any time.
                known.seen.age_ms = i64::MAX;
            }
        }
    }

    /// The exported stores are cleared, and their counts wait. Counts that the build merges are a generation now,
    /// with its datasets.
    pub(super) fn publish(&mut self, made: &Made, kept: usize) {
        for id in &made.build.exported {
            self.ring.remove(id);
            let book = self.stores.remove(id).unwrap_or_default();
            let origin = origin_in(&made.build, *id);
            for (month, part) in book.by_month() {
                let piece = self.waiting.entry((origin.clone(), month));
                piece.or_default().add_all(&part);
            }
        }
        let Some(number) = number_of(&made.build) else {
            return;
        };
        let is_plus = |piece: &&&Piece| piece.0.sign() == Sign::Plus;
        let (plus, minus): (Vec<&Piece>, Vec<&Piece>) =
            made.merged.iter().partition(|piece| is_plus(&piece));
        // A generation before has merged what does not wait.
        for piece in plus {
            if let Some(part) = self.waiting.remove(piece) {
                self.merged.add_all(&part);
            }
        }
        for piece in minus {
            if let Some(part) = self.waiting.remove(piece) {
                self.merged.subtract_all(&part);
            }
        }
        let mut book = self.merged.clone();
        for load in made.datasets.values() {
            book.add_all(&self.loads[load]);
        }
        let datasets = made.datasets.clone();
        let published = Generation {
            book,
            datasets,
            compared: Files::new(),
        };
        self.generations.insert(number, published);
        self.read_from(number);
        while self.generations.len() > kept {
            self.generations.pop_first();
        }
    }

    /// A fix is published.
    pub(super) fn fix(&mut self, fixed: &Fixed) {
        self.fixed.insert(fixed.day);
        self.all.add_all(&fixed.plus);
        self.all.subtract_all(&fixed.minus);
        for (user, deed, n) in &fixed.actions {
            self.actions.correct(*user, deed.clone(), *n);
        }
        self.waiting.extend(fixed.pieces());
        self.fixes.push(fixed.clone());
    }

    /// All counts but those of datasets.
    pub(super) fn of_log(&self) -> Book {
        let mut book = self.all.clone();
        let active = self.generations.get(&self.active);
        for load in active
            .into_iter()
            .flat_map(|active| active.datasets.values())
        {
            book.subtract_all(&self.loads[load]);
        }
        book
    }

    /// Generation `number` is read from now on, with its datasets.
    pub(super) fn read_from(&mut self, number: u64) {
        let datasets = |number| self.generations.get(&number).map(|of| &of.datasets);
        let before = datasets(self.active).into_iter().flat_map(Wanted::values);
        for load in before {
            self.all.subtract_all(&self.loads[load]);
        }
        let after = datasets(number).into_iter().flat_map(Wanted::values);
        for load in after {
            self.all.add_all(&self.loads[load]);
        }
        self.active = number;
    }

    /// The clock was set, `moved_ms` from where it stood.
    pub(super) fn age(&mut self, now_ms: i64, moved_ms: i64) {
        let producers = self.producers.values_mut().map(|known| &mut known.seen);
        let ids = self.ids.values_mut().chain(self.batches.values_mut());
        for state in ids.chain(producers) {
            state.age(now_ms, moved_ms);
        }
        self.history.age(now_ms, moved_ms);
    }
}

impl IdState {
    /// Known from now on.
    pub(super) fn new(arrived_ms: i64) -> Self {
        Self {
            arrived_ms,
            age_ms: 0,
            moved_ms: 0,
        }
    }

    /// The clock was set, `moved_ms` from where it stood.
    pub(super) fn age(&mut self, now_ms: i64, moved_ms: i64) {
        self.age_ms = self.age_ms.max(now_ms - self.arrived_ms);
        self.moved_ms = self.moved_ms.saturating_add(moved_ms.abs());
    }

    /// True when no clock has gone so far since.
    pub(super) fn is_within(&self, ms: i64) -> bool {
        self.age_ms.max(self.moved_ms) < ms
    }
}

/// A counter: namespace, key, perhaps a subtotal with its value, and the bucket's start.
pub(super) struct Cell {
    /// Namespace.
    pub name: String,
    /// Raw key.
    pub key: String,
    /// Subtotal and raw value.
    pub by: Option<(String, String)>,
    /// Unix seconds.
    pub start: i64,
}

pub(super) fn cells(schema: &Schema, increment: &Increment) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (name, key) in &increment.keys {
        let namespace = schema.counted(name).expect("BUG: it was validated");
        let value = |subtotal: &str| {
            let parts = subtotal.split('*');
            let parts = parts.map(|dimension| increment.value(dimension).unwrap_or(MISSING));
            parts.collect::<Vec<&str>>().join("*")
        };
        let values = namespace.subtotals.iter();
        let values = values.map(|subtotal| Some((subtotal.clone(), value(subtotal))));
        let by_minute = namespace.subtotals.iter().filter(|_| namespace.minutes);
        for subtotal in by_minute {
            cells.push(Cell {
                name: name.to_string(),
                key: key.to_string(),
                by: Some((by_minute_of(subtotal), value(subtotal))),
                start: TimeCode::containing(increment.at, Grain::Minute).start(),
            });
        }
        let minute = namespace.minutes.then(|| {
            let value = minute_value(increment.at);
            (
                MINUTES.to_owned(),
                String::from_utf8_lossy(&value).into_owned(),
            )
        });
        for by in std::iter::once(None).chain(values).chain(minute.map(Some)) {
            cells.push(Cell {
                name: name.to_string(),
                key: key.to_string(),
                by,
                start: bucket(schema, name, increment.at),
            });
        }
    }
    cells
}

fn bucket(schema: &Schema, name: &str, at: i64) -> i64 {
    let namespace = schema.counted(name).expect("BUG: it was validated");
    TimeCode::containing(at, namespace.grain).start()
}
