//! The end of a group commit: what is durable becomes visible, all of it at once.
//!
//! A small group is counted under the lock that queries wait for. A large one is counted before, in
//! deltas of its own; under the lock they are only shown, and then folded into the stores' deltas in
//! short steps, between which queries go on. The caller holds the writer's lock until all is shown, so
//! nothing else counts, flushes or cuts meanwhile. What a very large one has is folded while the next
//! is on its way ([`Store::fold`], by another thread). Invariant: it is folded before the next large
//! one is shown, and before a store's delta is set aside.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tallyring_records::{Increment, Offset, Record, Schema, StoreId, TimeCode, line};

use super::Store;
use super::group::Appended;
use super::lateness::Watermarks;
use super::rules::Rules;
use crate::delta::{Delta, DeltaStore, Fold};
use crate::heavy::Heavy;
use crate::sync::give_way;

/// Keys of a group that is counted under the lock.
const SMALL_GROUP_KEYS: usize = if MANY_ORDERS { 6 } else { 64 };

/// Records of a group that is folded by who shows it: to wake another thread would take as long.
const FOLDED_AT_ONCE_RECORDS: usize = if MANY_ORDERS { 4 } else { 256 };

/// Where many orders of threads are tried, small groups must do.
const MANY_ORDERS: bool = cfg!(feature = "shuttle");

/// Lookups and counters that a step moves: well under a millisecond.
const STEP_COUNTERS: usize = 1_000;

/// Records of a step of the last minute, as short.
const STEP_RECORDS: usize = 250;

impl Store {
    /// Counts records that are durable; everything before `applied` is then.
    pub(super) fn show(&self, rules: &Rules, written: &[Appended], applied: Offset, now: i64) {
        let increments = || written.iter().flat_map(increments_of);
        let mut watermarks = Watermarks::default();
        increments().for_each(|(_, _, increment)| watermarks.see(increment));
        let keys: usize = increments()
            .map(|(_, _, increment)| increment.keys.len())
            .sum();
        let records: usize = written.iter().map(|frame| frame.records.len()).sum();
        if keys <= SMALL_GROUP_KEYS {
            let mut live = self.live_mut();
            live.ring
                .count(&self.keys, &rules.schema, Delta::add, increments());
            for (_, _, increment) in increments() {
                self.weigh(&mut live.heavy, &rules.schema, increment);
            }
            live.watermarks.merge(watermarks);
            live.applied = applied;
        } else {
            let mut arriving = self.count_apart(rules, increments());
            let heavy = weigh_apart(rules, arriving.values());
            // What arrived before.
            self.fold();
            let mut live = self.live_mut();
            live.heavy.unite(heavy);
            for store in live.ring.stores_mut() {
                store.arriving = arriving.remove(&store.id).map(Fold::new);
            }
            assert!(
                arriving.is_empty(),
                "BUG: counted for a store that is not there"
            );
            live.watermarks.merge(watermarks);
            live.applied = applied;
            self.has_arrived.store(true, Ordering::Release);
            give_way(live);
            if records <= FOLDED_AT_ONCE_RECORDS {
                self.fold();
            }
        }
        let parts = written
            .iter()
            .flat_map(|frame| frame.records.chunks(STEP_RECORDS));
        for part in parts {
            let mut recent = self.recent.write();
            for (_, increment) in part.iter().filter_map(Record::increment) {
                recent.add(&self.keys, &rules.schema, increment, now);
            }
            give_way(recent);
        }
    }

    /// Counts an increment among the heavy keys.
    fn weigh(&self, heavy: &mut Heavy, schema: &Schema, increment: &Increment) {
        for (name, raw) in &increment.keys {
            if let Some(namespace) = schema.namespace(name) {
                let key = line::total_key(name, &self.keys.stored(raw));
                let code = TimeCode::containing(increment.at, namespace.grain);
                heavy.add(key.as_bytes(), code, increment.n);
            }
        }
    }

    /// Counts increments in deltas that nobody sees yet.
    fn count_apart<'i>(
        &self,
        rules: &Rules,
        increments: impl Iterator<Item = (u64, bool, &'i Increment)>,
    ) -> BTreeMap<StoreId, Delta> {
        let mut by_store: BTreeMap<StoreId, Vec<&Increment>> = BTreeMap::new();
        for (_, late, increment) in increments {
            let target = rules.target(late, increment);
            by_store.entry(target).or_default().push(increment);
        }
        let counted = |(id, increments): (StoreId, Vec<&Increment>)| {
            let mut delta = Delta::new(self.options.shards);
            delta.add(&self.keys, &rules.schema, &increments);
            (id, delta)
        };
        by_store.into_iter().map(counted).collect()
    }

    /// True when [`Store::fold`] may have something to do.
    pub fn has_arrived(&self) -> bool {
        self.has_arrived.load(Ordering::Acquire)
    }

    /// Folds what arrived into the stores' deltas; queries that wait read between the steps. Counts are right without it,
    /// but found in more places.
    pub fn fold(&self) {
        if !self.has_arrived() {
            return;
        }
        // Two that took turns would wait for each other after every step.
        let _folding = self.folding.lock().unwrap_or_else(PoisonError::into_inner);
        while self.has_arrived() {
            let mut live = self.live_mut();
            let mut stores = live.ring.stores_mut();
            let Some(store) = stores.find(|store| store.arriving.is_some()) else {
                drop(stores);
                self.has_arrived.store(false, Ordering::Release);
                return;
            };
            let DeltaStore {
                arriving, active, ..
            } = store;
            // It stays where it counts until nothing of it is left.
            let ended = arriving.take_if(|fold| !fold.step(active, STEP_COUNTERS));
            drop(stores);
            give_way(live);
            // An empty delta still holds its memory, which takes a moment to give back.
            drop(ended);
        }
    }
}

/// Heavy keys of deltas that nobody sees yet: to unite them takes as long as there are few, however many keys came.
fn weigh_apart<'d>(rules: &Rules, deltas: impl Iterator<Item = &'d Delta>) -> Heavy {
    let mut heavy = Heavy::new(rules.schema.namespaces.len(), rules.today);
    for delta in deltas {
        delta.each_total(&mut |key, code, count| heavy.add(key, code, count));
    }
    heavy
}

/// Increments of a frame, each with its sequence and whether it is a late one.
fn increments_of(frame: &Appended) -> impl Iterator<Item = (u64, bool, &Increment)> {
    let numbered = (frame.first..).zip(&frame.records);
    numbered.filter_map(|(sequence, record)| {
        let (late, increment) = record.increment()?;
        Some((sequence, late, increment))
    })
}
