//! What decides how an increment counts that is accepted now.

use std::sync::Arc;

use tallyring_records::{Day, Increment, Schema, StoreId};

use super::Store;
use super::lateness::Watermarks;

/// As of one group commit: nothing of it changes while the writer's lock is held, so it is asked for once, and the lock of what
/// queries see is not taken for every increment.
pub(super) struct Rules {
    /// The declaration in force.
    pub schema: Arc<Schema>,
    /// The ring's.
    pub today: Day,
    watermarks: Watermarks,
    /// Those whose stores are open.
    days: Vec<Day>,
    /// The late store that is open.
    late: StoreId,
}

impl Rules {
    /// Whether an increment goes to the late store; and notes of an event whether it is a correction. `now` is in Unix
    /// seconds.
    pub fn judge(&self, increment: &mut Increment, now: i64) -> bool {
        if let Some(event) = &mut increment.event
            && let Some(declared) = self.schema.event_type(&event.kind)
        {
            event.correction = increment.at < self.watermarks.settled_until(declared, now);
        }
        !self.days.contains(&Day::of(increment.at))
    }

    /// The store that takes an increment.
    pub fn target(&self, late: bool, increment: &Increment) -> StoreId {
        if late {
            self.late
        } else {
            StoreId::Day(Day::of(increment.at))
        }
    }
}

impl Store {
    /// Those of now; the caller holds the writer's lock.
    pub(super) fn rules(&self) -> Rules {
        let view = self.view();
        Rules {
            schema: self.schema(),
            today: view.ring.today(),
            watermarks: view.watermarks.clone(),
            days: view.ring.open_days().collect(),
            late: view.ring.open_late(),
        }
    }
}
