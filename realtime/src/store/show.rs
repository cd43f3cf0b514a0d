//! The end of a group commit: what is durable becomes visible, all of it at once.
//!
//! A small group is counted under the lock that queries wait for. A large one is counted before, in
//! deltas of its own; under the lock they are only shown, and then folded into the stores' deltas in
//! short steps, between which queries go on. The caller holds the writer's lock, so nothing else
//! counts, flushes or cuts meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_records::{Increment, Offset, Record, Schema, StoreId, TimeCode, line};

use super::Store;
use super::lateness::Watermarks;
use crate::delta::{Delta, Fold};
use crate::heavy::Heavy;
use crate::sync::give_way;

/// Records of a group that is counted under the lock.
const SMALL_GROUP_RECORDS: usize = 8;

/// Counters that a step moves: well under a millisecond.
const STEP_COUNTERS: usize = 1_000;

/// Records of a step of the last minute, as short.
const STEP_RECORDS: usize = 250;

impl Store {
    /// Counts records that are durable, with their sequences; everything before `applied` is then.
    pub(super) fn show(&self, written: &[(u64, Record)], applied: Offset, now: i64) {
        let increments = || written.iter().filter_map(increment);
        let mut watermarks = Watermarks::default();
        increments().for_each(|(_, _, increment)| watermarks.see(increment));
        if written.len() <= SMALL_GROUP_RECORDS {
            let mut live = self.live_mut();
            let schema = Arc::clone(&live.schema);
            for (sequence, late, increment) in increments() {
                live.ring
                    .count(&self.keys, &schema, late, sequence, increment);
                self.weigh(&mut live.heavy, &schema, increment);
            }
            live.watermarks.merge(watermarks);
            live.applied = applied;
        } else {
            let mut arriving = self.count_apart(increments());
            let heavy = self.weigh_apart(arriving.values());
            let mut live = self.live_mut();
            live.heavy.unite(heavy);
            for store in live.ring.stores_mut() {
                store.arriving = arriving.remove(&store.id).map(Fold::new);
            }
            live.watermarks.merge(watermarks);
            live.applied = applied;
            give_way(live);
            self.fold();
        }
        let schema = self.schema();
        for part in written.chunks(STEP_RECORDS) {
            let mut recent = self.recent.write();
            for (_, _, increment) in part.iter().filter_map(increment) {
                recent.add(&self.keys, &schema, increment, now);
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

    /// Heavy keys of deltas that nobody sees yet: to unite them takes as long as there are few, however many keys came.
    fn weigh_apart<'d>(&self, deltas: impl Iterator<Item = &'d Delta>) -> Heavy {
        let mut heavy = {
            let live = self.live();
            Heavy::new(live.schema.namespaces.len(), live.ring.today())
        };
        for delta in deltas {
            delta.each_total(&mut |key, code, count| heavy.add(key, code, count));
        }
        heavy
    }

    /// Counts increments in deltas that nobody sees yet.
    fn count_apart<'i>(
        &self,
        increments: impl Iterator<Item = (u64, bool, &'i Increment)>,
    ) -> BTreeMap<StoreId, Delta> {
        let schema = self.schema();
        let mut deltas = BTreeMap::new();
        let targets: Vec<_> = {
            let live = self.live();
            increments
                .filter_map(|(sequence, late, increment)| {
                    let target = live.ring.target(late, sequence, increment)?;
                    Some((target, increment))
                })
                .collect()
        };
        for (target, increment) in targets {
            deltas
                .entry(target)
                .or_insert_with(|| Delta::new(self.options.shards))
                .add(&self.keys, &schema, increment);
        }
        deltas
    }

    /// Folds what arrived into the stores' deltas; queries that wait read between the steps.
    fn fold(&self) {
        loop {
            let mut live = self.live_mut();
            let arriving = live.ring.stores_mut().find_map(|store| {
                let fold = store.arriving.take()?;
                Some((fold, store))
            });
            let Some((mut fold, store)) = arriving else {
                return;
            };
            let ended = if fold.step(&mut store.active, STEP_COUNTERS) {
                store.arriving = Some(fold);
                None
            } else {
                Some(fold)
            };
            give_way(live);
            // An empty delta still holds its memory, which takes a moment to give back.
            drop(ended);
        }
    }
}

fn increment((sequence, record): &(u64, Record)) -> Option<(u64, bool, &Increment)> {
    match record {
        Record::Increment(increment) => Some((*sequence, false, increment)),
        Record::Late(increment) => Some((*sequence, true, increment)),
        _ => None,
    }
}
