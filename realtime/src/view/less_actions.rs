//! The end of a read of what a user did: what runs with the sign minus have is taken away from all that others have.
//!
//! A day of which nothing is taken away costs a look into an empty map.

use std::collections::BTreeMap;
use std::mem;

use tallyring_records::{Action, ActionSums, Day};

use crate::budget::Charge;
use crate::error::Result;

/// Actions of one user on days of which something is taken away. All that is taken away is noted before anything else.
pub(super) struct Taken {
    days: BTreeMap<Day, OfDay>,
    charge: Charge,
}

#[derive(Default)]
struct OfDay {
    did: ActionSums,
    less: ActionSums,
}

impl Taken {
    /// `charge` pays for what is noted.
    pub(super) fn new(charge: Charge) -> Self {
        Self {
            days: BTreeMap::new(),
            charge,
        }
    }

    /// Notes what is taken away. Fails when the budget has no room.
    pub(super) fn less(&mut self, day: Day, action: Action<'_>, n: u64) -> Result<()> {
        let of_day = self.days.entry(day).or_default();
        match of_day.less.add(action, n) {
            true => self.charge.grow(bytes_of(&action)),
            false => Ok(()),
        }
    }

    /// Notes what the user did, and returns true, where something of the day is taken away. Fails when the budget has
    /// no room.
    pub(super) fn more(&mut self, day: Day, action: Action<'_>, n: u64) -> Result<bool> {
        let Some(of_day) = self.days.get_mut(&day) else {
            return Ok(false);
        };
        if of_day.did.add(action, n) {
            self.charge.grow(bytes_of(&action))?;
        }
        Ok(true)
    }

    /// The actions that are left of the noted days, which are forgotten. None where more is taken away than the user
    /// did.
    pub(super) fn settle(&mut self) -> Option<Vec<(Day, ActionSums)>> {
        let days = mem::take(&mut self.days).into_iter();
        let left = days.map(|(day, OfDay { mut did, less })| {
            let is_enough = did.take_away(&less);
            is_enough.then_some((day, did))
        });
        left.collect()
    }

    /// Gives back the memory of days that were settled.
    pub(super) fn begin_again(&mut self) {
        self.charge.shrink_to(0);
    }
}

/// Memory of an action, once as it is noted and once for what may be made of its hour.
fn bytes_of(action: &Action<'_>) -> usize {
    2 * (ActionSums::BYTES_EACH + action.what.len())
}
