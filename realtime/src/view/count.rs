//! The end of a group commit: durable records become visible, all of them at once.
//!
//! A small group is counted under the lock of the newest view. A large group is counted before that, in deltas of its
//! own. Under the lock these deltas only become layers, which are then folded into the layers below in short steps;
//! views are taken between the steps. The caller holds the lock of the intake until everything is counted, so nothing
//! else counts, flushes or cuts meanwhile.
//!
//! The layers of a very large group are folded by another thread while the next group is on its way ([`Live::fold`]).
//! Layers that a view holds stay unchanged until the view is gone. Where a delta store has many layers, small ones are
//! merged by copying.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;

use tallyring_records::{Increment, Offset, Record, Schema, StoreId, TimeCode, line};

use super::Live;
use super::finals::Counted;
use super::lateness::Watermarks;
use super::rules::Rules;
use super::snapshot::Newest;
use crate::delta::{Delta, Folding, Layers, Step};
use crate::heavy::Heavy;
use crate::sync::give_way;

/// Counters of a group that is counted under the lock, at most: as many as a step of a fold moves under it. A hundred
/// clicks of ten counters are such a group.
const SMALL_GROUP_COUNTERS: usize = if MANY_ORDERS { 18 } else { STEP_COUNTERS };

/// Records of a group whose layers the committing thread folds itself, at most: waking another thread would take as
/// long.
const FOLDED_AT_ONCE_RECORDS: usize = if MANY_ORDERS { 4 } else { 256 };

/// True where a scheduler tries many orders of threads; groups must then be small.
const MANY_ORDERS: bool = cfg!(feature = "shuttle");

/// Attempts to fold layers that views hold: most views are gone in a few microseconds.
const TRIES: usize = 16;

/// Lookups and counters that one step moves, which takes well under a millisecond.
const STEP_COUNTERS: usize = 1_000;

/// Records that one step adds to the last minute, which takes as long.
const STEP_RECORDS: usize = 250;

/// Records of one frame that is durable in the log.
pub(crate) struct LoggedFrame {
    /// Sequence number of the first record.
    pub first: u64,
    pub records: Vec<Record>,
}

impl Live {
    /// Counts durable records, so that everything before `applied` is counted. `now` is in Unix seconds.
    pub(crate) fn count(&self, rules: &Rules, written: &[LoggedFrame], applied: Offset, now: i64) {
        let increments = || written.iter().flat_map(increments_of);
        let mut watermarks = Watermarks::default();
        increments().for_each(|(_, _, increment)| watermarks.see(increment));
        let counted = Counted::of(increments().map(|(at, _, increment)| (at, increment)));
        let records: usize = written.iter().map(|frame| frame.records.len()).sum();
        if is_small(&rules.schema, increments()) {
            let mut newest = self.newest.write();
            for (_, _, increment) in increments() {
                self.weigh(&mut newest.heavy, &rules.schema, increment);
            }
            let view = newest.snapshot_mut();
            view.ring
                .count(&self.keys, &rules.schema, Delta::add, increments());
            view.watermarks.merge(&watermarks);
            view.finals.note(&counted);
            view.apply_until(applied);
            if view.ring.has_layers() {
                self.has_arrived.store(true, Ordering::Release);
            }
        } else {
            let arriving = self.count_apart(rules, increments());
            let heavy = weigh_apart(rules, arriving.values());
            // Layers of the group before are folded first.
            self.fold();
            let mut newest = self.newest.write();
            newest.heavy.unite(heavy);
            let view = newest.snapshot_mut();
            for (id, delta) in arriving {
                let store = view.ring.store_mut(id);
                let store = store.expect("BUG: counted for a delta store that does not exist");
                store.layers.push(delta);
            }
            view.watermarks.merge(&watermarks);
            view.finals.note(&counted);
            view.apply_until(applied);
            self.has_arrived.store(true, Ordering::Release);
            give_way(newest);
            if records <= FOLDED_AT_ONCE_RECORDS {
                self.fold();
            }
        }
        self.advanced.notify_waiters();
        let parts = written
            .iter()
            .flat_map(|frame| frame.records.chunks(STEP_RECORDS));
        for part in parts {
            let mut recent = self.recent.write();
            let increments = part.iter().filter_map(Record::increment);
            let arrived = increments.filter(|(_, increment)| increment.filtering_rule().is_none());
            for (_, increment) in arrived {
                recent.add(&self.keys, &rules.schema, increment, now);
            }
            give_way(recent);
        }
    }

    /// Counts an increment among the heavy keys.
    fn weigh(&self, heavy: &mut Heavy, schema: &Schema, increment: &Increment) {
        for (name, raw) in &increment.keys {
            if let Some(namespace) = schema.counted(name) {
                let key = line::total_key(name, &self.keys.stored(raw));
                let code = TimeCode::containing(increment.at, namespace.grain);
                heavy.add(key.as_bytes(), code, increment.n);
            }
        }
    }

    /// Counts increments in new deltas that no view holds yet.
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
            let mut delta = Delta::new(self.form);
            delta.add(&self.keys, &rules.schema, &increments);
            (id, delta)
        };
        by_store.into_iter().map(counted).collect()
    }

    /// True when [`Live::fold`] may have layers to fold.
    pub fn has_arrived(&self) -> bool {
        self.has_arrived.load(Ordering::Acquire)
    }

    /// Folds the layers of all delta stores; views are taken between the steps. Counts are right without folding, but a
    /// read then visits more layers. Returns false where views hold layers, which can be folded later.
    pub fn fold(&self) -> bool {
        if !self.has_arrived() {
            return true;
        }
        // Two threads that fold in turns would wait for each other after every step.
        let _folding = self.folding();
        let view = self.snapshot();
        let stores = view.ring.stores();
        let stores = stores.filter(|store| store.layers.has_above());
        let stores: Vec<StoreId> = stores.map(|store| store.id).collect();
        drop(view);
        let mut is_done = true;
        for store in stores {
            let is_folded = self.fold_store(store);
            is_done &= is_folded;
            if !is_folded {
                self.merge_layers(store);
            }
        }
        let newest = self.newest.write();
        let is_left = newest.snapshot().ring.has_layers();
        self.has_arrived.store(is_left, Ordering::Release);
        is_done
    }

    /// Folds the layers of one delta store that no view holds. Returns false where some are left.
    fn fold_store(&self, id: StoreId) -> bool {
        let mut folding = Folding::default();
        let mut tries = 0;
        while tries < TRIES {
            let mut newest = self.newest.write();
            let Some(layers) = layers_of(&mut newest, id) else {
                return true;
            };
            let step = layers.step(&mut folding, STEP_COUNTERS);
            give_way(newest);
            match step {
                Step::More => {}
                // The memory of the layer is freed without a lock.
                Step::Ended(layer) => drop(layer),
                Step::Nothing => return true,
                Step::Shared => {
                    tries += 1;
                    thread::yield_now();
                }
            }
        }
        false
    }

    /// Merges small layers of a delta store by copying, where views hold many of them.
    fn merge_layers(&self, id: StoreId) {
        let view = self.snapshot();
        let store = view.ring.store(id);
        let Some(copying) = store.and_then(|store| store.layers.many()) else {
            return;
        };
        drop(view);
        let merged = copying.merged();
        let mut newest = self.newest.write();
        let replaced = layers_of(&mut newest, id).map(|layers| layers.replace(copying, merged));
        give_way(newest);
        drop(replaced);
    }
}

/// The layers of one delta store.
fn layers_of(newest: &mut Newest, id: StoreId) -> Option<&mut Layers> {
    let store = newest.snapshot_mut().ring.store_mut(id)?;
    Some(&mut store.layers)
}

/// Heavy keys of deltas that no view holds yet. Uniting the result takes a bounded time, however many keys the deltas
/// have.
fn weigh_apart<'d>(rules: &Rules, deltas: impl Iterator<Item = &'d Delta>) -> Heavy {
    let mut heavy = Heavy::new(rules.schema.counted_namespaces(), rules.today);
    for delta in deltas {
        delta.each_total(&mut |key, code, count| heavy.add(key, code, count));
    }
    heavy
}

/// True when the increments count in few counters.
fn is_small<'i>(
    schema: &Schema,
    mut increments: impl Iterator<Item = (u64, bool, &'i Increment)>,
) -> bool {
    let mut room = SMALL_GROUP_COUNTERS;
    increments.all(|(_, _, increment)| {
        let keys = increment.keys.iter();
        let namespaces = keys.filter_map(|(name, _)| schema.counted(name));
        let counters = namespaces.map(|namespace| 1 + namespace.subtotals.len());
        let left = room.checked_sub(counters.sum());
        room = left.unwrap_or(0);
        left.is_some()
    })
}

/// Increments of a frame, each with its sequence number and whether the record is a late one.
fn increments_of(frame: &LoggedFrame) -> impl Iterator<Item = (u64, bool, &Increment)> {
    let numbered = (frame.first..).zip(&frame.records);
    numbered.filter_map(|(sequence, record)| {
        let (late, increment) = record.increment()?;
        Some((sequence, late, increment))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_small_by_its_counters_not_by_its_increments() {
        let schema = Schema::default_clicks();
        let is_small = |increments: usize, keys: &[&str]| {
            let keys = keys.iter().map(|&name| (name, "a"));
            let increments = vec![Increment::new(0, 1, keys); increments];
            is_small(
                &schema,
                (0..).zip(&increments).map(|(at, of)| (at, false, of)),
            )
        };
        // Each has ten counters, then four.
        assert!(is_small(SMALL_GROUP_COUNTERS / 10, &["l", "u", "d"]));
        assert!(!is_small(SMALL_GROUP_COUNTERS / 10 + 1, &["l", "u", "d"]));
        assert!(is_small(SMALL_GROUP_COUNTERS / 4, &["l"]));
        assert!(!is_small(SMALL_GROUP_COUNTERS / 4 + 1, &["l"]));
    }
}
