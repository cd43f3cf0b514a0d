//! Holds of the users of a store, and how they become actions.

use std::sync::Arc;

use tallyring_records::{EventType, Increment, UserKey};

use super::Store;
use crate::holds::{Held, Holds, Made, NotHeld, ReservationId, Stale, Terms};
use crate::view::View;

impl Store {
    /// The holds of all users.
    pub fn holds(&self) -> &Holds {
        self.intake().holds()
    }

    /// The live holds of a user that a view over all strands does not have as actions. Fails where the view is too old.
    pub fn held(&self, view: &View<'_>, user: &str) -> Result<Vec<Held>, Stale> {
        let who = (self.user_key(user), view.applied_of(self.live()));
        let seen = view.position();
        self.holds().of_user(who, seen.offsets(), self.elapsed_ms())
    }

    /// Holds what `pick` returns for a user, for `hold_ms` milliseconds. `pick` is called with the user's live holds:
    /// they and the actions in `view` are together all that counts, and nobody else holds anything for the user
    /// meanwhile. Nothing is held where `pick` returns none. `pick` is not called where the hold that `terms` name is
    /// live. Fails where the view is too old, and where there is no room.
    pub fn reserve(
        &self,
        view: &View<'_>,
        user: &str,
        hold_ms: i64,
        terms: Terms<'_>,
        pick: impl FnOnce(&[Held]) -> Option<Arc<str>>,
    ) -> Result<Made, NotHeld> {
        let now_ms = self.elapsed_ms();
        let times = (now_ms, now_ms.saturating_add(hold_ms));
        let who = (self.user_key(user), view.applied_of(self.live()));
        self.holds().reserve(who, times, terms, pick)
    }

    /// The name of the hold that a client of this identity asks for by a text of its own. Equal texts for one user give
    /// equal names, after a restart, too.
    pub fn reservation_id(&self, identity: &str, user: &str, text: &str) -> ReservationId {
        let user = self.user_key(user);
        let parts = [user.as_bytes(), identity.as_bytes(), b"\0", text.as_bytes()];
        ReservationId::given(self.live().keys(), user, &parts.concat())
    }

    /// Ends a hold that an event of a batch confirmed ([`Batch::confirming`](crate::Batch::confirming)), once the batch
    /// is counted. Returns false where no event did.
    pub fn end_confirmed(&self, id: ReservationId) -> bool {
        self.holds().end_confirmed(id)
    }

    /// Ends a hold without an event. Returns false where there is no such hold.
    pub fn release(&self, id: ReservationId) -> bool {
        self.holds().release(id, self.elapsed_ms())
    }

    /// Removes some of the holds that have expired.
    pub fn tidy_holds(&self) {
        self.holds().tidy(self.elapsed_ms());
    }

    /// Text of an action that an event of this type would be, as [`What`](tallyring_records::What) reads it.
    pub fn what(&self, kind: &EventType, event: &Increment) -> Arc<str> {
        let mut what = Vec::new();
        kind.write_action(self.live().keys(), event, &mut what);
        String::from_utf8_lossy(&what).into()
    }

    fn user_key(&self, user: &str) -> UserKey {
        UserKey::of(self.live().keys(), user)
    }

    /// Time that nobody can set: a clock that is put right ends no hold early.
    fn elapsed_ms(&self) -> i64 {
        self.world().clock.elapsed_ms()
    }
}
