//! Erased users: whose actions of before do not count any more, although files may still hold them.
//!
//! An erasure is a record of the log. A run tells up to which record erasures were applied to it
//! ([`RunEntry::erased_until`]): lines of a user who was erased later are hidden in it. Every merge leaves hidden lines
//! out. Invariant: a user stays listed until no run and no segment of the log holds an action of before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallyring_records::UserKey;

use crate::run::RunEntry;

/// Erased users, and the sequence number of the record that erased each of them last.
///
/// ```
/// use tallyring_archive::Erasures;
/// use tallyring_records::UserKey;
///
/// let ann = UserKey::from_bytes([7; 12]);
/// let mut erasures = Erasures::default();
/// erasures.add(&[ann], 41);
/// assert_eq!((erasures.erased_at(&ann), erasures.until()), (Some(41), 42));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Erasures(BTreeMap<UserKey, u64>);

/// Users whose lines are hidden in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hidden(Vec<UserKey>);

/// Users that are listed at most. A user leaves the list some days after the erasure.
pub const ERASURES_MAX: usize = 100_000;

impl Erasures {
    /// True when no user is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of listed users.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Lists users whom the record with the sequence number `at` erased.
    pub fn add(&mut self, users: &[UserKey], at: u64) {
        for user in users {
            let newest = self.0.entry(*user).or_insert(at);
            *newest = at.max(*newest);
        }
    }

    /// The sequence number of the record that erased the user last.
    pub fn erased_at(&self, user: &UserKey) -> Option<u64> {
        self.0.get(user).copied()
    }

    /// The sequence number behind the newest record that erased a user; 0 when there is none.
    pub fn until(&self) -> u64 {
        self.0.values().max().map_or(0, |newest| newest + 1)
    }

    /// The users whose lines are hidden in a run.
    pub fn hidden_in(&self, run: &RunEntry) -> Hidden {
        let is_hidden = |(user, &at): (&UserKey, &u64)| (at >= run.erased_until).then_some(*user);
        match self.0.is_empty() || !run.meta.has_actions() {
            true => Hidden::default(),
            false => Hidden(self.0.iter().filter_map(is_hidden).collect()),
        }
    }

    /// Users who were erased at the record with this sequence number or later.
    pub fn from(&self, at: u64) -> Vec<UserKey> {
        let later = self.0.iter().filter(|(_, erased)| **erased >= at);
        later.map(|(user, _)| *user).collect()
    }

    /// Keeps the users for whom `keeps` is true, by the sequence number of their erasure.
    pub fn retain(&mut self, keeps: impl Fn(&UserKey, u64) -> bool) {
        self.0.retain(|user, at| keeps(user, *at));
    }
}

impl Hidden {
    /// True when no line is hidden.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The users, ascending.
    pub fn users(&self) -> &[UserKey] {
        &self.0
    }

    /// True when the line with this key is hidden.
    pub fn has(&self, key: &[u8]) -> bool {
        !self.0.is_empty() && UserKey::of_line(key).is_some_and(|user| self.has_user(&user))
    }

    /// True when the lines of the user are hidden.
    pub fn has_user(&self, user: &UserKey) -> bool {
        self.0.binary_search(user).is_ok()
    }
}
