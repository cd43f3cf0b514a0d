//! The ring: decides which delta store takes an increment.
//!
//! Yesterday, today and tomorrow are labels over a map from day to delta store. A record in the log (`Rotate`, `Turn`,
//! `Cut`, `Reopen`) opens and closes delta stores, so a replay puts every increment where it was put first.
//!
//! Yesterday keeps an open delta store for its 24 hours: once the store is cut, the day gets a further one for what
//! still comes, which the next rebuild exports.
//!
//! Invariants: at any offset exactly one late store is open. A day has one open delta store at a time. Today goes
//! forward. It goes back only after it had followed a clock that was ahead: delta stores of later days then stay until
//! those days are over, and days whose delta stores are gone get new ones.

use std::collections::BTreeMap;

use tallyring_records::{Day, Increment, LongKeys, Offset, Record, Schema, StoreId, UserKey};

use crate::delta::{Delta, DeltaStore, Form};

/// A function that counts increments in a delta: [`Delta::add`] or [`Delta::add_by_all`].
pub(crate) type Add = fn(&mut Delta, &LongKeys, &Schema, &[&Increment]);

/// Late stores that wait for a rebuild and count something, above which only a rebuild closes another one: each adds
/// runs to every read.
const LATE_STORES_MAX: usize = 16;
/// Late stores that wait, empty ones among them, above which it is so: the manifest names each.
const EMPTY_LATE_STORES_MAX: usize = 64;

/// All delta stores, and the day that is labelled today.
#[derive(Clone)]
pub(crate) struct Ring {
    today: Day,
    form: Form,
    stores: BTreeMap<StoreId, DeltaStore>,
}

impl Ring {
    /// Creates a ring that opens at `at`, with delta stores for yesterday, today and tomorrow and the first late store.
    pub(crate) fn begin(today: Day, form: Form, at: Offset) -> Self {
        let mut ring = Self {
            today,
            form,
            stores: BTreeMap::new(),
        };
        for day in around(today) {
            ring.open(StoreId::Day(day), at);
        }
        ring.open(StoreId::Late(0), at);
        ring
    }

    /// Creates a ring from the delta stores that a manifest names.
    pub(crate) fn restore(
        today: Day,
        form: Form,
        stores: impl IntoIterator<Item = DeltaStore>,
    ) -> Self {
        Self {
            today,
            form,
            stores: stores.into_iter().map(|store| (store.id, store)).collect(),
        }
    }

    /// The day that is labelled today.
    pub(crate) fn today(&self) -> Day {
        self.today
    }

    /// All delta stores, days first.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &DeltaStore> {
        self.stores.values()
    }

    /// All delta stores, to change.
    pub(crate) fn stores_mut(&mut self) -> impl Iterator<Item = &mut DeltaStore> {
        self.stores.values_mut()
    }

    /// The delta store named `id`.
    pub(crate) fn store(&self, id: StoreId) -> Option<&DeltaStore> {
        self.stores.get(&id)
    }

    /// The delta store named `id`, to change.
    pub(crate) fn store_mut(&mut self, id: StoreId) -> Option<&mut DeltaStore> {
        self.stores.get_mut(&id)
    }

    /// True when the memory of a delta store has layers to fold.
    pub(crate) fn has_layers(&self) -> bool {
        self.stores.values().any(|store| store.layers.has_above())
    }

    /// Forgets a cleared delta store.
    pub(crate) fn remove(&mut self, id: StoreId) {
        self.stores.remove(&id);
    }

    /// Days with an open delta store, and its name. An increment of any other day that is accepted now goes to the late
    /// store.
    pub(crate) fn open_days(&self) -> impl Iterator<Item = (Day, StoreId)> {
        let open = self.stores.values().filter(|store| store.cut.is_none());
        open.filter_map(|store| Some((store.id.day()?, store.id)))
    }

    /// Yesterday, if it has no open delta store.
    pub(crate) fn closed_yesterday(&self) -> Option<Day> {
        let yesterday = self.today.previous();
        let is_open = self.open_days().any(|(day, _)| day == yesterday);
        (!is_open).then_some(yesterday)
    }

    /// The late store that takes increments that are accepted now.
    pub(crate) fn open_late(&self) -> StoreId {
        let mut newest_first = self.stores.keys().rev().copied();
        newest_first
            .find(|id| matches!(id, StoreId::Late(_)))
            .expect("BUG: a late store is open at any offset")
    }

    /// The open late store, where it opened before record `end` and few late stores wait for a rebuild. One that counts
    /// nothing yet is due, too: what comes would stand in a store that opened before.
    pub(crate) fn late_to_part(&self, end: u64) -> Option<StoreId> {
        let late = self.open_late();
        let stores: Vec<&DeltaStore> = self
            .stores
            .range(StoreId::Late(0)..=late)
            .map(|(_, store)| store)
            .collect();
        let is_due = stores.last().is_some_and(|open| open.opened.sequence < end);
        let counting = stores.iter().filter(|store| !store.is_empty()).count();
        let are_few = counting <= LATE_STORES_MAX && stores.len() <= EMPTY_LATE_STORES_MAX;
        (is_due && are_few).then_some(late)
    }

    /// Counts records in the delta stores that took them. Each item is a sequence number, whether the record is a late
    /// one, and the increment. A record is skipped when its delta store was cleared or has flushed the record: a run
    /// counts it then.
    pub(crate) fn count<'i>(
        &mut self,
        keys: &LongKeys,
        schema: &Schema,
        add: Add,
        increments: impl Iterator<Item = (u64, bool, &'i Increment)>,
    ) {
        let mut by_store: BTreeMap<StoreId, Vec<&Increment>> = BTreeMap::new();
        for (sequence, late, increment) in increments {
            if let Some(id) = self.target(late, sequence, increment) {
                by_store.entry(id).or_default().push(increment);
            }
        }
        for (id, increments) in by_store {
            if let Some(store) = self.stores.get_mut(&id) {
                add(store.layers.open(), keys, schema, &increments);
            }
        }
    }

    /// Shows no action of these users that was counted before.
    pub(crate) fn erase(&self, users: &[UserKey]) {
        let deltas = self.stores.values().flat_map(DeltaStore::deltas);
        deltas.for_each(|delta| delta.erase(users));
    }

    /// The delta store that counts the record with `sequence` in memory; none when a run counts it.
    fn target(&self, late: bool, sequence: u64, increment: &Increment) -> Option<StoreId> {
        let store = if late {
            self.stores
                .values()
                .rev()
                .find(|store| matches!(store.id, StoreId::Late(_)) && store.takes(sequence))
        } else {
            let day = Day::of(increment.at);
            let takes = |store: &&DeltaStore| store.takes(sequence);
            let first = self.stores.get(&StoreId::Day(day)).filter(takes);
            first.or_else(|| {
                let again = StoreId::Again(day, 0)..=StoreId::Again(day, sequence);
                self.stores.range(again).map(|(_, store)| store).find(takes)
            })
        };
        store
            .filter(|store| sequence >= store.flushed.sequence)
            .map(|store| store.id)
    }

    /// Applies a record that turns the ring or closes delta stores, and ignores others. `at` is the offset behind the
    /// record.
    pub(crate) fn follow(&mut self, record: &Record, at: Offset) {
        match record {
            Record::Rotate { today } => self.rotate(*today, at),
            Record::Turn { today, opened } => self.turn(*today, opened, at),
            Record::Cut { stores } => self.cut(stores, at),
            Record::Reopen { day } => self.reopen(*day, at),
            _ => {}
        }
    }

    /// Turns the ring forward to `today`. Days up to tomorrow that never had a delta store get one. Nothing happens
    /// unless `today` is later than before.
    fn rotate(&mut self, today: Day, at: Offset) {
        if today <= self.today {
            return;
        }
        let opened = self.opened_by_rotation(today);
        self.turn(today, &opened, at);
    }

    /// Turns the ring to `today`, and opens a delta store for each day of `opened` that has none.
    fn turn(&mut self, today: Day, opened: &[Day], at: Offset) {
        self.today = today;
        for day in opened {
            if !self.has_store_of(*day) {
                self.open(StoreId::Day(*day), at);
            }
        }
    }

    /// Gives a day a further delta store. A manifest may know that store already: its ring is that of a later record.
    fn reopen(&mut self, day: Day, at: Offset) {
        let id = StoreId::Again(day, at.sequence);
        if !self.stores.contains_key(&id) {
            self.open(id, at);
        }
    }

    /// The record that turns the ring to `today` and gives that day and its neighbours delta stores. The record names
    /// the opened days unless [`Self::rotate`] finds them by itself: a replay cannot know which delta stores are gone.
    pub(crate) fn turn_record(&self, today: Day) -> Record {
        let has_none = |day: &Day| !self.has_store_of(*day);
        let opened: Vec<Day> = around(today).into_iter().filter(has_none).collect();
        if today > self.today && opened == self.opened_by_rotation(today) {
            Record::Rotate { today }
        } else {
            Record::Turn { today, opened }
        }
    }

    fn has_store_of(&self, day: Day) -> bool {
        self.stores.keys().any(|id| id.day() == Some(day))
    }

    fn opened_by_rotation(&self, today: Day) -> Vec<Day> {
        let opened_before = self.today.next();
        let days = around(today).into_iter();
        days.filter(|day| *day > opened_before).collect()
    }

    /// Closes delta stores. The next epoch of the late store follows a closed one. Closed and missing stores stay as
    /// they are.
    fn cut(&mut self, stores: &[StoreId], at: Offset) {
        for id in stores {
            let Some(store) = self.stores.get_mut(id).filter(|store| store.cut.is_none()) else {
                continue;
            };
            store.cut = Some(at);
            if let StoreId::Late(epoch) = id {
                self.open(StoreId::Late(epoch + 1), at);
            }
        }
    }

    /// Delta stores to export now: open days before today and late stores that count something, and open days that have
    /// left the ring whether they count something or not.
    pub(crate) fn due(&self) -> Vec<StoreId> {
        let due = |store: &&DeltaStore| {
            let day = store.id.day();
            let leaves = day.is_some_and(|day| day < self.today.previous());
            let over = day.is_none_or(|day| day < self.today);
            store.cut.is_none() && (leaves || over && !store.is_empty())
        };
        self.stores
            .values()
            .filter(due)
            .map(|store| store.id)
            .collect()
    }

    /// True when a day before today waits for a rebuild: its delta store, or what still came for it before it left the
    /// ring. Further increments for yesterday wait for the next rebuild, and begin none.
    pub(crate) fn has_due_day(&self) -> bool {
        let waits = |id: &StoreId| match id {
            StoreId::Day(_) => true,
            StoreId::Again(day, _) => *day < self.today.previous(),
            StoreId::Late(_) => false,
        };
        let cut = self.stores.values().filter(|store| store.cut.is_some());
        self.due().iter().any(waits) || cut.map(|store| &store.id).any(waits)
    }

    fn open(&mut self, id: StoreId, at: Offset) {
        self.stores.insert(id, DeltaStore::new(id, at, self.form));
    }
}

/// Yesterday, today and tomorrow.
fn around(today: Day) -> [Day; 3] {
    [today.previous(), today, today.next()]
}
