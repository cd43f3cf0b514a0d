//! The rules by which one group commit counts.

use std::sync::Arc;

use tallyring_records::{Day, Increment, Schema, StoreId};

use super::Live;
use super::lateness::Watermarks;

/// Snapshot of the rules for one group commit. Nothing in it changes meanwhile, so the lock of the newest view is taken
/// once for the group and not for every increment.
pub(crate) struct Rules {
    /// The schema in force.
    pub schema: Arc<Schema>,
    /// The ring's label today.
    pub today: Day,
    watermarks: Watermarks,
    /// Days whose delta stores are open, and these stores.
    days: Vec<(Day, StoreId)>,
    /// The open late store.
    late: StoreId,
}

impl Rules {
    /// Returns whether an increment goes to the late store, and marks an event that is a correction. `now` is in Unix
    /// seconds.
    pub(crate) fn judge(&self, increment: &mut Increment, now: i64) -> bool {
        if let Some(event) = &mut increment.event
            && let Some(declared) = self.schema.event_type(&event.kind)
        {
            event.correction = increment.at < self.watermarks.settled_until(declared, now);
        }
        self.store_of(increment).is_none()
    }

    fn store_of(&self, increment: &Increment) -> Option<StoreId> {
        let day = Day::of(increment.at);
        let mut open = self.days.iter();
        open.find(|(open, _)| *open == day).map(|(_, store)| *store)
    }

    /// The delta store that takes an increment.
    pub(crate) fn target(&self, late: bool, increment: &Increment) -> StoreId {
        match late {
            true => self.late,
            false => self.store_of(increment).unwrap_or(self.late),
        }
    }
}

impl Live {
    /// The rules in force. The caller lets nothing change them while it counts by them.
    pub(crate) fn rules(&self) -> Rules {
        let view = self.snapshot();
        Rules {
            schema: Arc::clone(&view.schema),
            today: view.ring.today(),
            watermarks: view.watermarks.clone(),
            days: view.ring.open_days().collect(),
            late: view.ring.open_late(),
        }
    }
}
