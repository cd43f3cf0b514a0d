//! Users whose actions a delta holds but no longer shows.
//!
//! Views may hold the delta, and what a view holds does not change. So an erasure only notes the users, for old views
//! too; whoever may change the delta next forgets their actions first. Invariant: a delta that takes counts has no
//! noted user, so nothing that comes after an erasure is hidden.

use std::sync::Arc;

use tallyring_records::UserKey;

use crate::sync::RwLock;

/// Noted users, ascending.
pub(super) struct Erased(RwLock<Arc<[UserKey]>>);

impl Erased {
    /// Notes users.
    pub(super) fn add(&self, users: &[UserKey]) {
        let mut noted = self.0.write();
        let mut all = noted.to_vec();
        for user in users {
            if let Err(place) = all.binary_search(user) {
                all.insert(place, *user);
            }
        }
        *noted = all.into();
    }

    /// The noted users.
    pub(super) fn users(&self) -> Arc<[UserKey]> {
        Arc::clone(&self.0.read())
    }

    /// True when the user is noted.
    pub(super) fn has(&self, user: &UserKey) -> bool {
        self.0.read().binary_search(user).is_ok()
    }
}

impl Default for Erased {
    fn default() -> Self {
        Self(RwLock::new(Arc::default()))
    }
}

impl Clone for Erased {
    fn clone(&self) -> Self {
        Self(RwLock::new(self.users()))
    }
}
