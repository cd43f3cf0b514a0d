//! Increments that are sent alone in their batches, so that the answer tells what the model cannot: whether an id that
//! may be forgotten was still known, and whether a rule with memory caught an event. Live, such a rule judges in the
//! order of arrival, with a memory that may forget; what it must catch, a reconcile says.

use std::collections::BTreeSet;

use tallyring_realtime::Accepted;
use tallyring_records::{Day, Increment, StoreId, TIME_MIN};

use super::naive::Counted;
use super::{Driver, clicks};

/// Taps that are sent at once, at most.
const TAPS_MAX: u64 = 8;

impl Driver {
    /// Sends some events of the last hour that a rule with memory judges, in any order of their times.
    pub(super) fn tap(&mut self) -> Result<(), String> {
        if self.is_risky() {
            return Ok(());
        }
        let now = self.now_ms.div_euclid(1_000);
        let taps = 2 + self.chance.below(TAPS_MAX - 1);
        let mut ids: Vec<String> = self.naive.ids.keys().cloned().collect();
        ids.retain(|id| !self.is_stale(id));
        let mut taken = BTreeSet::new();
        let taps = (0..taps).map(|_| {
            let at = (now - self.chance.between(0, 3_600)).max(TIME_MIN);
            // Another one of the group may fail, and then the id is new.
            let id = clicks::id(&mut self.chance, &ids).filter(|id| taken.insert(id.clone()));
            clicks::tap(&mut self.chance, at, id)
        });
        let taps = taps.collect();
        self.send_alone(taps)
    }

    /// Sends an increment of a day that has passed, with an id of before if one is given.
    pub(super) fn commit_of(&mut self, day: Day, id: Option<String>) -> Result<(), String> {
        let schema = clicks::schema(self.schema);
        let at = day.start() + self.chance.between(0, 86_399);
        let increment = match self.chance.percent(30) {
            true => clicks::tap(&mut self.chance, at, id),
            false => Increment {
                at,
                n: 1 + self.chance.below(5),
                id,
                ..clicks::plain(&mut self.chance, schema, day.start())
            },
        };
        // Whether an event of an old day with an open store is late, its type says and not the model.
        let is_late = matches!(self.naive.target(increment.at), StoreId::Late(_));
        if increment.event.is_some() && !is_late {
            return Ok(());
        }
        self.send_alone(vec![increment])
    }
}

impl Counted {
    /// Takes over the verdict of the rule with memory on an increment that came alone.
    pub(super) fn follow_memory(&mut self, accepted: &Accepted) {
        if let [(_, increment)] = self.increments.as_mut_slice()
            && clicks::tapped(increment).is_some()
            && accepted.filtered == 1
            && self.filtered.is_empty()
        {
            let by_rule = increment.filtered_by(clicks::TWICE);
            self.filtered.push(std::mem::replace(increment, by_rule));
            self.late = 0;
        }
    }
}
