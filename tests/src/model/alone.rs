//! Increments that are sent alone in their batches, so that the answer tells what the model cannot: whether an id that
//! may be forgotten was still known, and whether a rule with memory caught an event. Live, such a rule judges in the
//! order of arrival, with a memory that may forget, so its verdict is believed where something came that explains it.
//! A reconcile says which events such a rule must catch.

use std::collections::BTreeSet;

use tallyring_realtime::Accepted;
use tallyring_records::{Day, Increment, StoreId, TIME_MIN};

use super::history::History;
use super::naive::Counted;
use super::{Driver, clicks};

/// Taps that are sent at once, at most.
const TAPS_MAX: u64 = 12;

impl Driver {
    /// Sends some taps, swipes or presses of the last hour.
    pub(super) fn tap(&mut self) -> Result<(), String> {
        let now = self.now_ms.div_euclid(1_000);
        let taps = self.draw_taps(now - 3_600);
        self.send_alone(taps)
    }

    /// Sends some taps, swipes or presses of one hour of a day that has passed, or of those around its ends.
    pub(super) fn tap_on(&mut self, day: Day) -> Result<(), String> {
        // Often around one of its ends, where a rule looks at the day beside.
        let from = match self.chance.below(4) {
            0 => day.start() - 1_800,
            1 => day.next().start() - 1_800,
            _ => day.start() + self.chance.between(0, 82_800),
        };
        let mut taps = self.draw_taps(from);
        taps.retain(|tap| self.is_late(tap.at));
        self.send_alone(taps)
    }

    /// Taps, swipes, or presses with taps, of the hour from then on, in any order of their times; none where the fate
    /// of one may be uncertain.
    fn draw_taps(&mut self, from: i64) -> Vec<Increment> {
        if self.is_risky() {
            return Vec::new();
        }
        let mut ids: Vec<String> = self.naive.ids.keys().cloned().collect();
        ids.retain(|id| !self.is_stale(id));
        let mut taken = BTreeSet::new();
        let kinds = *self.chance.pick(&clicks::TOGETHER);
        let taps = (0..3 + self.chance.below(TAPS_MAX - 2)).map(|_| {
            // Another one of the group may fail, and then the id is new.
            let id = clicks::id(&mut self.chance, &ids).filter(|id| taken.insert(id.clone()));
            let at = (from + self.chance.between(0, 3_600)).max(TIME_MIN);
            let kind = *self.chance.pick(kinds);
            clicks::tap(&mut self.chance, kind, at, id)
        });
        taps.collect()
    }

    /// Whether an event of an old day with an open store is late, its type says and not the model.
    fn is_late(&self, at: i64) -> bool {
        matches!(self.naive.target(at), StoreId::Late(_))
    }

    /// Sends an increment of a day that has passed, with an id of before if one is given.
    pub(super) fn commit_of(&mut self, day: Day, id: Option<String>) -> Result<(), String> {
        let schema = clicks::schema(self.schema);
        let at = day.start() + self.chance.between(0, 86_399);
        let increment = match self.chance.percent(30) {
            true => {
                let kind = *self.chance.pick(&clicks::TAPS);
                clicks::tap(&mut self.chance, kind, at, id)
            }
            false => Increment {
                at,
                n: 1 + self.chance.below(5),
                id,
                ..clicks::plain(&mut self.chance, schema, day.start())
            },
        };
        if increment.event.is_some() && !self.is_late(increment.at) {
            return Ok(());
        }
        self.send_alone(vec![increment])
    }
}

impl Counted {
    /// Takes over the verdict of a rule with memory on an increment that came alone, behind this history.
    pub(super) fn follow_memory(&mut self, accepted: &Accepted, history: &History) {
        if let [(_, increment)] = self.increments.as_mut_slice()
            && accepted.filtered == 1
            && self.filtered.is_empty()
            && let Some(rule) = history.may_catch(increment, self.schema)
        {
            let by_rule = increment.filtered_by(rule);
            self.filtered.push(std::mem::replace(increment, by_rule));
            self.late = 0;
        }
    }
}
