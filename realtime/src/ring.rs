//! The ring: which delta store takes an increment.
//!
//! Yesterday, today and tomorrow are labels over a map from day to store. What opens and closes a
//! store is a record in the log (`Rotate`, `Cut`), so replay puts every increment where it was put.
//! Invariants: at any offset exactly one late store is open; a day has one store at a time. Today goes forward, and back
//! only where it had followed a clock that was ahead: stores of days ahead then stay until those days are over, and days
//! whose stores are gone get new ones.

use std::collections::BTreeMap;

use tallyring_records::{Day, Increment, LongKeys, Offset, Record, Schema, StoreId};

use crate::delta::{Delta, DeltaStore};

/// Counts increments in a delta: [`Delta::add`] or [`Delta::add_by_all`].
pub type Add = fn(&mut Delta, &LongKeys, &Schema, &[&Increment]);

/// All delta stores and today.
#[derive(Clone)]
pub struct Ring {
    today: Day,
    shards: u16,
    stores: BTreeMap<StoreId, DeltaStore>,
}

impl Ring {
    /// A new ring that opens at `at`: yesterday, today, tomorrow and the first late store.
    pub fn begin(today: Day, shards: u16, at: Offset) -> Self {
        let mut ring = Self {
            today,
            shards,
            stores: BTreeMap::new(),
        };
        for day in around(today) {
            ring.open(StoreId::Day(day), at);
        }
        ring.open(StoreId::Late(0), at);
        ring
    }

    /// A ring of stores as a manifest names them.
    pub fn restore(today: Day, shards: u16, stores: impl IntoIterator<Item = DeltaStore>) -> Self {
        Self {
            today,
            shards,
            stores: stores.into_iter().map(|store| (store.id, store)).collect(),
        }
    }

    /// Today's label.
    pub fn today(&self) -> Day {
        self.today
    }

    /// All stores, days first.
    pub fn stores(&self) -> impl Iterator<Item = &DeltaStore> {
        self.stores.values()
    }

    /// All stores, to change.
    pub fn stores_mut(&mut self) -> impl Iterator<Item = &mut DeltaStore> {
        self.stores.values_mut()
    }

    /// The store called `id`.
    pub fn store(&self, id: StoreId) -> Option<&DeltaStore> {
        self.stores.get(&id)
    }

    /// The store called `id`, to change.
    pub fn store_mut(&mut self, id: StoreId) -> Option<&mut DeltaStore> {
        self.stores.get_mut(&id)
    }

    /// True when the memory of some store has layers to fold.
    pub fn has_layers(&self) -> bool {
        self.stores.values().any(|store| store.layers.has_above())
    }

    /// Forgets a cleared store.
    pub fn remove(&mut self, id: StoreId) {
        self.stores.remove(&id);
    }

    /// Days whose increments go to their own stores when they are accepted now; those of others go to the late store.
    pub fn open_days(&self) -> impl Iterator<Item = Day> {
        self.stores.values().filter_map(|store| match store.id {
            StoreId::Day(day) if store.cut.is_none() => Some(day),
            _ => None,
        })
    }

    /// The late store that takes what is accepted now.
    pub fn open_late(&self) -> StoreId {
        let mut newest_first = self.stores.keys().rev().copied();
        newest_first
            .find(|id| matches!(id, StoreId::Late(_)))
            .expect("BUG: a late store is open at any offset")
    }

    /// Counts records, each with its sequence and whether it is a late one, in the stores that took them, but those
    /// that a store was cleared of or has flushed: runs count them then.
    pub fn count<'i>(
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

    /// The store that counts the record with `sequence` in memory; none when a run does.
    fn target(&self, late: bool, sequence: u64, increment: &Increment) -> Option<StoreId> {
        let store = if late {
            self.stores
                .values()
                .rev()
                .find(|store| matches!(store.id, StoreId::Late(_)) && store.takes(sequence))
        } else {
            self.stores
                .get(&StoreId::Day(Day::of(increment.at)))
                .filter(|store| store.takes(sequence))
        };
        store
            .filter(|store| sequence >= store.flushed.sequence)
            .map(|store| store.id)
    }

    /// Does what a record says that turns the ring or closes stores; `at` is the offset behind it.
    pub fn follow(&mut self, record: &Record, at: Offset) {
        match record {
            Record::Rotate { today } => self.rotate(*today, at),
            Record::Turn { today, opened } => self.turn(*today, opened, at),
            Record::Cut { stores } => self.cut(stores, at),
            _ => {}
        }
    }

    /// Turns the ring: `today` is the new today, and the days up to tomorrow that never had a store
    /// get one. Nothing happens unless `today` is later than before.
    fn rotate(&mut self, today: Day, at: Offset) {
        if today <= self.today {
            return;
        }
        let opened = self.opened_by_rotation(today);
        self.turn(today, &opened, at);
    }

    /// Turns the ring to `today`, where these days get a store unless they have one.
    fn turn(&mut self, today: Day, opened: &[Day], at: Offset) {
        self.today = today;
        for day in opened {
            if !self.stores.contains_key(&StoreId::Day(*day)) {
                self.open(StoreId::Day(*day), at);
            }
        }
    }

    /// The record that turns the ring to `today`, from which on that day and those beside it have stores. It says which
    /// ones are new unless [`Self::rotate`] knows: whether a store is gone, replay could not tell.
    pub fn turn_record(&self, today: Day) -> Record {
        let has_none = |day: &Day| !self.stores.contains_key(&StoreId::Day(*day));
        let opened: Vec<Day> = around(today).into_iter().filter(has_none).collect();
        if today > self.today && opened == self.opened_by_rotation(today) {
            Record::Rotate { today }
        } else {
            Record::Turn { today, opened }
        }
    }

    fn opened_by_rotation(&self, today: Day) -> Vec<Day> {
        let opened_before = self.today.next();
        let days = around(today).into_iter();
        days.filter(|day| *day > opened_before).collect()
    }

    /// Closes stores; a late store is followed by the next epoch. What is closed or gone stays so.
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

    /// Stores to export now: open days before today and late stores, those that count something; and
    /// days that have left the ring, counting or not.
    pub fn due(&self) -> Vec<StoreId> {
        let due = |store: &&DeltaStore| {
            let leaves = matches!(store.id, StoreId::Day(day) if day < self.today.previous());
            let over = matches!(store.id, StoreId::Day(day) if day < self.today);
            let late = matches!(store.id, StoreId::Late(_));
            store.cut.is_none() && (leaves || (over || late) && !store.is_empty())
        };
        self.stores
            .values()
            .filter(due)
            .map(|store| store.id)
            .collect()
    }

    fn open(&mut self, id: StoreId, at: Offset) {
        self.stores.insert(id, DeltaStore::new(id, at, self.shards));
    }
}

/// Yesterday, today and tomorrow.
fn around(today: Day) -> [Day; 3] {
    [today.previous(), today, today.next()]
}
