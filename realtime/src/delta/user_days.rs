//! The actions of all users in a delta, user by user, as runs have them.

use std::ops::Range;

use tallyring_records::{Action, Day, Interner, UserText};

use super::actions::{Actions, List};
use super::memory::Delta;
use crate::budget::Charge;
use crate::error::Result;

/// The actions of a user on one UTC day.
pub(crate) struct UserDay<'d> {
    /// The text of the user's key.
    pub user: UserText,
    actions: &'d Actions,
    list: &'d List,
    whats: &'d Interner,
}

impl UserDay<'_> {
    /// The UTC day.
    pub(crate) fn day(&self) -> Day {
        self.list.day()
    }

    /// Calls `visit` with every action, and its count.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(Action<'_>, u64)) {
        self.actions.visit(self.list.place(), self.whats, visit);
    }
}

impl Delta {
    /// The UTC days from the first to the last on which a user did something; none without actions. Looks at every
    /// list of actions.
    pub(crate) fn action_days(&self) -> Option<Range<Day>> {
        let lists = || {
            self.shards()
                .iter()
                .flat_map(|shard| shard.actions.lists(&[]))
        };
        let first = lists().map(List::day).min()?;
        let last = lists().map(List::day).max()?;
        Some(first..last.next())
    }

    /// The actions on these UTC days in part `part` of `parts`, sorted by user. The number of shards is a multiple of
    /// `parts`. `charge` pays for the result. Fails when the budget has no room for it.
    pub(crate) fn user_days(
        &self,
        days: &Range<Day>,
        (part, parts): (u16, u16),
        charge: &mut Charge,
    ) -> Result<Vec<UserDay<'_>>> {
        let erased = self.erased.users();
        let of_part = || {
            let shards = self.shards().iter();
            let shards = shards.skip(part.into()).step_by(parts.into());
            shards.flat_map(|shard| {
                let lists = shard.actions.lists(&erased);
                let lists = lists.filter(|list| days.contains(&list.day()));
                lists.map(|list| (&shard.actions, list))
            })
        };
        // Counted before, because a growing list would need more memory.
        let count = of_part().count();
        charge.grow(count * size_of::<UserDay<'_>>())?;
        let mut sorted = Vec::with_capacity(count);
        sorted.extend(of_part().map(|(actions, list)| UserDay {
            user: list.user().text(),
            actions,
            list,
            whats: self.whats(),
        }));
        sorted.sort_unstable_by_key(|of| of.user);
        Ok(sorted)
    }
}
