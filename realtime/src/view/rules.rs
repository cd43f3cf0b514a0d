//! The rules by which one group commit counts.

use std::sync::Arc;

use tallyring_records::{Day, Increment, Schema, StoreId};

use super::Live;
use super::lateness::Watermarks;

/// Snapshot of the rules for one group commit: nothing of it changes meanwhile, so the lock of the newest view is taken once
/// and not for every increment.
pub(crate) struct Rules {
    /// The declaration in force.
    pub schema: Arc<Schema>,
    /// The ring's today.
    pub today: Day,
    watermarks: Watermarks,
    /// The days whose stores are open.
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

impl Live {
    /// The rules of now. The caller lets nothing change them while it counts by them.
    pub(crate) fn rules(&self) -> Rules {
        let view = self.snapshot();
        Rules {
            schema: Arc::clone(&self.schema),
            today: view.ring.today(),
            watermarks: view.watermarks.clone(),
            days: view.ring.open_days().collect(),
            late: view.ring.open_late(),
        }
    }
}
