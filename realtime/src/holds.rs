//! Holds: what users are about to do, so that servers that ask at once share what a cap leaves. They are in memory, and
//! in the log where the store keeps them there.
//!
//! A hold counts from the moment at which it is made until an event confirms it, a client releases it, or it expires.
//! [`Holds`] owns its locks, one for each shard of the users, and takes no other lock while it holds one.
//!
//! Invariants:
//! * A caller that makes a hold sees each action of the user once: as a hold, or in the view that the caller read. So
//!   the view may be taken and read without the lock. The commit of an event that confirms a hold notes on the hold
//!   from which offset on views have the event, before any view has it. A shard notes that offset when the hold is
//!   removed, and refuses a caller whose view is older ([`NotHeld::Stale`]).
//! * Each hold stands in all three collections of its shard, or in none.
//! * A name that a client gave stands for one hold until this would have expired, so a late retry holds nothing more.
//!   A restart forgets which of these holds have ended.
//! * Memory is bounded: a hold that finds no room is refused. Expired holds are removed a few at a time whenever holds
//!   are made, confirmed or released, in the user's shard and in another shard by turns.

mod beside;
mod id;
mod log;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use tallyring_records::{LongKeys, Offset, UserKey, What};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::{Mutex, MutexGuard};

use beside::Needed;

pub(crate) use beside::strand_of_user;
pub use beside::{ShownAction, Until};
pub use id::ReservationId;
pub(crate) use log::Moment;

/// The holds of one store.
pub struct Holds {
    shards: Vec<Mutex<Shard>>,
    /// Makes ids of numbers, which nobody can guess.
    keys: LongKeys,
    next: AtomicU64,
    /// The shard whose expired holds are removed next.
    turn: AtomicUsize,
    live: AtomicUsize,
    bytes: AtomicUsize,
    /// Memory that all holds may take together, bytes.
    bytes_max: usize,
    expired: AtomicU64,
}

/// A live hold, as one who counts sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub id: ReservationId,
    /// Text of what is held, as [`What`](tallyring_records::What) reads it.
    pub what: Arc<str>,
    /// Milliseconds until it expires.
    pub left_ms: i64,
}

/// The terms on which something is held.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'t> {
    /// The name of the hold, for a caller that may ask again; a new one unless given.
    pub id: Option<ReservationId>,
    /// Bytes that the holds of this client may take together.
    pub room: Option<&'t Arc<Semaphore>>,
    /// How far the view has counted each strand of the store; nothing for a store that is not divided.
    pub seen: &'t [Offset],
}

/// The outcome of a wish to hold something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// Nothing was picked.
    Nothing,
    /// The hold is new.
    New(ReservationId),
    /// The hold of this name was made before, and is live.
    Before {
        /// The hold.
        hold: Held,
        /// The other live holds of the user.
        others: Vec<Held>,
    },
}

/// The view lacks an action that was a hold when the view was taken. A newer view has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale;

/// Why nothing can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHeld {
    /// See [`Stale`].
    Stale,
    /// The user has [`OF_USER_MAX`](Holds::OF_USER_MAX) live holds.
    TooMany,
    /// All holds together take as much memory as they may.
    Full,
    /// An event has confirmed the hold of this name, or it was released.
    Ended,
    /// The holds of the client take what one client may have ([`Terms::room`]).
    NoRoom,
}

/// Holds of a part of the users.
#[derive(Default)]
struct Shard {
    holds: HashMap<ReservationId, Hold>,
    of_users: BTreeSet<(UserKey, ReservationId)>,
    by_expiry: BTreeSet<(i64, ReservationId)>,
    /// Holds of names that clients gave which ended before they expired, and when they would have.
    ended: HashMap<ReservationId, i64>,
    ended_by_expiry: BTreeSet<(i64, ReservationId)>,
    /// Where the log stood when a hold was confirmed last, of each part of the shard's users.
    confirmed: [Offset; PARTS],
    /// How far views must have counted other strands, whose events ended holds.
    needed: Needed,
}

struct Hold {
    user: UserKey,
    what: Arc<str>,
    /// On the clock that nobody can set, milliseconds.
    expires_ms: i64,
    /// Views of everything before this have the event that confirmed it; none until an event does.
    visible: Option<Offset>,
    /// The bytes of the client, which are free again when the hold is removed. A hold of before a start has none.
    _room: Option<OwnedSemaphorePermit>,
}

const SHARDS: usize = 256;
/// Parts of a shard that know apart when a hold was confirmed: few readers then meet the confirmation of another user.
const PARTS: usize = 16;
/// Memory of a hold in its collections, at most about, besides its text.
const HOLD_BYTES: usize = 256;
/// Memory of the name of a hold that ended, in its collections, at most about.
const ENDED_BYTES: usize = 96;
/// Expired holds that are removed from a shard at once.
const STEP: usize = 16;

impl Holds {
    /// Memory that the holds of a process may take together, bytes. Its strands divide it.
    pub const BYTES_MAX: usize = 64 << 20;
    /// For how long anything is held at most, milliseconds.
    pub const MS_MAX: i64 = 600_000;
    /// Live holds of one user, at most.
    pub const OF_USER_MAX: usize = 1_000;

    /// Begins without holds, which may take `bytes_max` bytes. `random` fills a buffer with random bytes.
    pub(crate) fn new(bytes_max: usize, random: fn(&mut [u8])) -> Self {
        let mut key = [0; 32];
        random(&mut key);
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            keys: LongKeys::new(key),
            next: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            bytes_max,
            expired: AtomicU64::new(0),
        }
    }

    /// Number of holds in memory. Expired ones that were not removed yet are among them.
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// Memory of the holds, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Number of holds that expired and were removed since the start.
    pub fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    /// The live holds of a user whose actions a view of everything before `seen` lacks. It has counted the strands of
    /// the store up to `strands`, as [`Terms::seen`] says. Fails where the view lacks an action that is no hold any
    /// more.
    pub(crate) fn of_user(
        &self,
        (user, seen): (UserKey, Offset),
        strands: &[Offset],
        now_ms: i64,
    ) -> Result<Vec<Held>, Stale> {
        let shard = self.shard(shard_of(user));
        shard.of_user((user, seen), strands, now_ms)
    }

    /// Makes a hold of a user that read a view of everything before `seen`. `pick` is called with the user's live holds
    /// while nobody else can change them; it returns what to hold, or none. It is not called where the hold of this
    /// name is live.
    pub(crate) fn reserve(
        &self,
        (user, seen): (UserKey, Offset),
        (now_ms, expires_ms): (i64, i64),
        terms: Terms<'_>,
        pick: impl FnOnce(&[Held]) -> Option<Arc<str>>,
    ) -> Result<Made, NotHeld> {
        let is_full = self.bytes() + HOLD_BYTES >= self.bytes_max;
        self.remove_expired(now_ms, if is_full { SHARDS } else { 1 });
        let mut shard = self.shard(shard_of(user));
        self.forget(&mut shard, now_ms);
        if let Some(id) = terms.id {
            self.forget_ended(&mut shard, id, now_ms)?;
        }
        let held = shard.of_user((user, seen), terms.seen, now_ms);
        let mut held = held.map_err(|Stale| NotHeld::Stale)?;
        let before = held.iter().position(|held| Some(held.id) == terms.id);
        if let Some(before) = before {
            let hold = held.swap_remove(before);
            return Ok(Made::Before { hold, others: held });
        }
        if held.len() >= Self::OF_USER_MAX {
            return Err(NotHeld::TooMany);
        }
        let Some(what) = pick(&held) else {
            return Ok(Made::Nothing);
        };
        let room = terms.room.map(|room| take_room(room, &what)).transpose()?;
        let id = terms.id.unwrap_or_else(|| self.new_id(user));
        let hold = Hold {
            user,
            what,
            expires_ms,
            visible: None,
            _room: room,
        };
        self.insert(&mut shard, id, hold)?;
        Ok(Made::New(id))
    }

    /// Removes the hold of this name where it has expired. Fails where it ended before.
    fn forget_ended(
        &self,
        shard: &mut Shard,
        id: ReservationId,
        now_ms: i64,
    ) -> Result<(), NotHeld> {
        // One that is older may be there still: only some are removed at once.
        if shard
            .ended
            .get(&id)
            .is_some_and(|&until_ms| until_ms > now_ms)
        {
            return Err(NotHeld::Ended);
        }
        match shard.holds.get(&id) {
            Some(hold) if hold.visible.is_some() => Err(NotHeld::Ended),
            Some(hold) if hold.expires_ms <= now_ms => {
                drop(self.remove(shard, id));
                self.expired.fetch_add(1, Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Removes a hold before it expires, and remembers its name where a client gave it. Without room, the name is
    /// forgotten.
    fn end(&self, shard: &mut Shard, id: ReservationId) {
        let Some(hold) = self.remove(shard, id) else {
            return;
        };
        if !id.is_given() {
            return;
        }
        if self.bytes.fetch_add(ENDED_BYTES, Relaxed) + ENDED_BYTES > self.bytes_max {
            self.bytes.fetch_sub(ENDED_BYTES, Relaxed);
            return;
        }
        shard.ended.insert(id, hold.expires_ms);
        shard.ended_by_expiry.insert((hold.expires_ms, id));
    }

    /// Confirms a hold by an event that is about to become visible in views of everything before `visible`. From there
    /// on the event counts in the place of the hold. The event must be what was held, but may name further entities.
    pub(crate) fn confirm(&self, shown: &ShownAction, visible: Offset, now_ms: i64) {
        let mut shard = self.shard(shown.id.shard());
        self.forget(&mut shard, now_ms);
        let hold = shard.holds.get_mut(&shown.id);
        if let Some(hold) = hold.filter(|hold| hold.is_ended_by(shown, now_ms)) {
            hold.visible = Some(visible);
        }
    }

    /// True when [`confirm`](Self::confirm) would find the hold.
    pub(crate) fn is_held(&self, shown: &ShownAction, now_ms: i64) -> bool {
        let shard = self.shard(shown.id.shard());
        let hold = shard.holds.get(&shown.id);
        hold.is_some_and(|hold| hold.is_ended_by(shown, now_ms))
    }

    /// Ends a hold that an event confirmed. Returns false where there is no such hold.
    pub(crate) fn end_confirmed(&self, id: ReservationId) -> bool {
        let mut shard = self.shard(id.shard());
        let hold = shard.holds.get(&id);
        let is_confirmed = hold.is_some_and(|hold| hold.visible.is_some());
        if is_confirmed {
            self.end(&mut shard, id);
        }
        is_confirmed
    }

    /// Ends a hold without an event. Returns false where there is no such hold.
    pub(crate) fn release(&self, id: ReservationId, now_ms: i64) -> bool {
        let mut shard = self.shard(id.shard());
        self.forget(&mut shard, now_ms);
        let hold = shard.holds.get(&id);
        let is_live = hold.is_some_and(|hold| hold.is_live(now_ms));
        if is_live {
            self.end(&mut shard, id);
        }
        is_live
    }

    /// Ends all holds of a user.
    pub(crate) fn end_all(&self, user: UserKey) {
        let mut shard = self.shard(shard_of(user));
        let all: Vec<ReservationId> = shard.ids_of(user).collect();
        all.into_iter()
            .for_each(|id| drop(self.remove(&mut shard, id)));
    }

    /// Removes some expired holds of so many shards, which take turns.
    pub(crate) fn remove_expired(&self, now_ms: i64, shards: usize) {
        for _ in 0..shards {
            let index = self.turn.fetch_add(1, Relaxed) % SHARDS;
            self.forget(&mut self.shard(index), now_ms);
        }
    }

    /// Removes some expired holds of every shard.
    pub(crate) fn tidy(&self, now_ms: i64) {
        self.remove_expired(now_ms, SHARDS);
    }

    fn forget(&self, shard: &mut Shard, now_ms: i64) {
        for _ in 0..STEP {
            match shard.ended_by_expiry.first() {
                Some(&(expires_ms, id)) if expires_ms <= now_ms => {
                    shard.ended_by_expiry.pop_first();
                    // The name may stand for a later hold by now.
                    if shard.ended.get(&id) == Some(&expires_ms) {
                        shard.ended.remove(&id);
                    }
                    self.bytes.fetch_sub(ENDED_BYTES, Relaxed);
                }
                _ => break,
            }
        }
        for _ in 0..STEP {
            match shard.by_expiry.first() {
                Some(&(expires_ms, id)) if expires_ms <= now_ms => {
                    let expired = self
                        .remove(shard, id)
                        .is_some_and(|hold| hold.visible.is_none());
                    self.expired.fetch_add(u64::from(expired), Relaxed);
                }
                _ => return,
            }
        }
    }

    fn insert(&self, shard: &mut Shard, id: ReservationId, hold: Hold) -> Result<(), NotHeld> {
        let bytes = bytes_of(&hold.what);
        if self.bytes.fetch_add(bytes, Relaxed) + bytes > self.bytes_max {
            self.bytes.fetch_sub(bytes, Relaxed);
            return Err(NotHeld::Full);
        }
        self.live.fetch_add(1, Relaxed);
        shard.of_users.insert((hold.user, id));
        shard.by_expiry.insert((hold.expires_ms, id));
        shard.holds.insert(id, hold);
        Ok(())
    }

    fn remove(&self, shard: &mut Shard, id: ReservationId) -> Option<Hold> {
        let hold = shard.holds.remove(&id)?;
        shard.of_users.remove(&(hold.user, id));
        shard.by_expiry.remove(&(hold.expires_ms, id));
        if let Some(visible) = hold.visible {
            let confirmed = &mut shard.confirmed[part_of(hold.user)];
            *confirmed = visible.max(*confirmed);
        }
        self.live.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes_of(&hold.what), Relaxed);
        Some(hold)
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        // A caller that panicked with the lock had changed nothing yet: only its own code can panic.
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn new_id(&self, user: UserKey) -> ReservationId {
        let number = self.next.fetch_add(1, Relaxed);
        ReservationId::of(&self.keys, user, &number.to_be_bytes(), false)
    }
}

impl Shard {
    fn ids_of(&self, user: UserKey) -> impl Iterator<Item = ReservationId> {
        let (first, last) = (ReservationId(0), ReservationId(u128::MAX));
        let ids = self.of_users.range((user, first)..=(user, last));
        ids.map(|(_, id)| *id)
    }

    fn of_user(
        &self,
        (user, seen): (UserKey, Offset),
        strands: &[Offset],
        now_ms: i64,
    ) -> Result<Vec<Held>, Stale> {
        if self.confirmed[part_of(user)] > seen || !self.is_enough(strands) {
            return Err(Stale);
        }
        let holds = self.ids_of(user);
        let holds = holds.filter_map(|id| Some((id, self.holds.get(&id)?)));
        let is_unseen = |hold: &Hold| match hold.visible {
            // An event counts whenever its hold would have ended.
            Some(visible) => visible > seen,
            None => hold.expires_ms > now_ms,
        };
        let held = holds.filter(|(_, hold)| is_unseen(hold));
        let held = held.map(|(id, hold)| Held {
            id,
            what: Arc::clone(&hold.what),
            left_ms: hold.expires_ms - now_ms,
        });
        Ok(held.collect())
    }
}

impl Hold {
    /// True while neither an event nor the time has ended it.
    fn is_live(&self, now_ms: i64) -> bool {
        self.visible.is_none() && self.expires_ms > now_ms
    }

    fn is_ended_by(&self, shown: &ShownAction, now_ms: i64) -> bool {
        self.is_live(now_ms) && self.user == shown.user && is_what_was_held(&shown.what, &self.what)
    }
}

/// True where an action is the held one: of its type and view, with all of its entities.
fn is_what_was_held(shown: &str, held: &str) -> bool {
    let (Some(shown), Some(held)) = (What::parse(shown), What::parse(held)) else {
        return false;
    };
    (shown.kind, shown.view) == (held.kind, held.view)
        && held
            .entities()
            .all(|(name, key)| shown.entity(name) == Some(key))
}

/// The bytes of a hold, out of those of its client.
fn take_room(room: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, NotHeld> {
    let bytes = u32::try_from(bytes_of(what)).map_err(|_| NotHeld::NoRoom)?;
    let taken = Arc::clone(room).try_acquire_many_owned(bytes);
    taken.map_err(|_| NotHeld::NoRoom)
}

fn bytes_of(what: &str) -> usize {
    HOLD_BYTES + what.len()
}

fn shard_of(user: UserKey) -> usize {
    usize::from(user.as_bytes()[0]) % SHARDS
}

fn part_of(user: UserKey) -> usize {
    usize::from(user.as_bytes()[1]) % PARTS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn holds() -> Holds {
        Holds::new(Holds::BYTES_MAX, |bytes| bytes.fill(7))
    }

    fn user(number: u8) -> UserKey {
        // Users 0 to 2 share a shard, of which 0 and 1 share a part.
        UserKey::from_bytes([
            number / 3,
            number % 3 / 2,
            number,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ])
    }

    fn at(sequence: u64) -> Offset {
        Offset { epoch: 1, sequence }
    }

    /// The new hold.
    fn made(outcome: Result<Made, NotHeld>) -> Result<Option<ReservationId>, NotHeld> {
        outcome.map(|made| match made {
            Made::New(id) => Some(id),
            Made::Nothing => None,
            Made::Before { .. } => panic!("no name was given"),
        })
    }

    #[test]
    fn a_name_that_is_asked_for_again_gives_the_live_hold() {
        let holds = holds();
        let id = ReservationId::given(&holds.keys, user(0), b"name");
        let terms = Terms {
            id: Some(id),
            ..Terms::default()
        };
        let reserve = |number, now_ms| {
            let pick = |_: &[Held]| Some("impression..ad=1".into());
            let times = (now_ms, now_ms + 1_000);
            holds.reserve((user(number), at(5)), times, terms, pick)
        };
        assert_eq!(reserve(0, 0), Ok(Made::New(id)));
        let other = holds.reserve((user(0), at(5)), (0, 9_000), Terms::default(), |_| {
            Some("click..ad=1".into())
        });
        let other = made(other).expect("room").expect("a hold");
        let Ok(Made::Before { hold, others }) = reserve(0, 400) else {
            panic!("it is live");
        };
        assert_eq!((hold.id, hold.left_ms), (id, 600));
        assert_eq!(
            others.iter().map(|held| held.id).collect::<Vec<_>>(),
            [other]
        );
        assert_eq!(holds.live(), 2);
        assert_eq!(reserve(0, 1_000), Ok(Made::New(id)), "it had expired");
        holds.confirm(&shown(id, 0, "impression..ad=1"), at(9), 1_000);
        assert_eq!(
            reserve(0, 1_000),
            Err(NotHeld::Ended),
            "its event is on its way"
        );
        assert!(holds.end_confirmed(id));
        assert_eq!(holds.live(), 1);
        assert_eq!(
            reserve(0, 1_999),
            Err(NotHeld::Ended),
            "it was to end at 2,000"
        );
        let seen = holds.reserve((user(0), at(9)), (2_000, 3_000), terms, |_| {
            Some("click..ad=1".into())
        });
        assert_eq!(seen, Ok(Made::New(id)));
        assert!(holds.release(id, 2_500));
        assert_eq!(reserve(0, 2_500), Err(NotHeld::Ended));
        (0..10).for_each(|_| holds.tidy(9_000));
        assert_eq!((holds.live(), holds.bytes()), (0, 0));
    }

    #[test]
    fn a_name_is_free_once_its_hold_would_have_expired_however_many_ended() {
        let holds = holds();
        let name = |number: u8| ReservationId::given(&holds.keys, user(0), &[number]);
        let reserve = |number, now_ms| {
            let terms = Terms {
                id: Some(name(number)),
                ..Terms::default()
            };
            let times = (now_ms, now_ms + 1_000);
            holds.reserve((user(0), at(0)), times, terms, |_| {
                Some("click..ad=1".into())
            })
        };
        let all = 0..3 * STEP as u8;
        for number in all.clone() {
            assert_eq!(reserve(number, 0), Ok(Made::New(name(number))));
            assert!(holds.release(name(number), 0));
        }
        assert_eq!(reserve(0, 999), Err(NotHeld::Ended));
        for number in all.rev() {
            assert_eq!(reserve(number, 1_000), Ok(Made::New(name(number))));
            assert!(holds.release(name(number), 1_000));
            assert_eq!(reserve(number, 1_999), Err(NotHeld::Ended));
        }
        (0..10).for_each(|_| holds.tidy(2_000));
        assert_eq!((holds.live(), holds.bytes()), (0, 0));
    }

    #[test]
    fn the_holds_of_one_client_leave_room_for_others() {
        let holds = holds();
        let room = Arc::new(Semaphore::new(3 * bytes_of("impression..ad=1")));
        let reserve = |room| {
            let pick = |_: &[Held]| Some("impression..ad=1".into());
            let terms = Terms {
                room,
                ..Terms::default()
            };
            made(holds.reserve((user(0), at(0)), (0, 1_000), terms, pick))
        };
        let first = reserve(Some(&room)).expect("room").expect("a hold");
        assert!(reserve(Some(&room)).is_ok() && reserve(Some(&room)).is_ok());
        assert_eq!(reserve(Some(&room)), Err(NotHeld::NoRoom));
        assert!(reserve(None).is_ok());
        assert!(holds.release(first, 0));
        assert!(reserve(Some(&room)).is_ok());
        (0..10).for_each(|_| holds.tidy(1_000));
        assert_eq!(room.available_permits(), 3 * bytes_of("impression..ad=1"));
    }

    fn shown(id: ReservationId, number: u8, what: &str) -> ShownAction {
        let user = user(number);
        let what = what.into();
        ShownAction { id, user, what }
    }

    #[test]
    fn an_action_counts_as_a_hold_or_in_the_view_that_has_it() {
        let holds = holds();
        let reserve = |number, seen| {
            let pick = |_: &[Held]| Some("impression..ad=1".into());
            made(holds.reserve(
                (user(number), at(seen)),
                (0, 60_000),
                Terms::default(),
                pick,
            ))
        };
        let held = |number, seen| {
            let held = holds.of_user((user(number), at(seen)), &[], 0);
            held.map(|held| held.len())
        };
        let id = reserve(0, 5).expect("no confirmation").expect("a hold");
        holds.confirm(&shown(id, 0, "impression..ad=1.campaign=7"), at(9), 0);
        // The first of these views lacks the event, and the second has it.
        assert_eq!((held(0, 8), held(0, 9)), (Ok(1), Ok(0)));
        assert!(!holds.release(id, 0), "it is confirmed");
        assert!(holds.end_confirmed(id));
        assert!(!holds.end_confirmed(id));
        assert_eq!((held(0, 8), held(0, 9)), (Err(Stale), Ok(0)));
        assert_eq!(reserve(0, 8), Err(NotHeld::Stale));
        assert!(reserve(0, 9).is_ok());
        // The third user is of another part of the shard.
        assert!(reserve(2, 5).is_ok());
    }

    #[test]
    fn an_event_of_something_else_confirms_nothing() {
        let holds = holds();
        let pick = |_: &[Held]| Some("impression.home.ad=1".into());
        let made = made(holds.reserve((user(0), at(5)), (0, 60_000), Terms::default(), pick));
        let id = made.expect("no confirmation").expect("a hold");
        for (number, what, now_ms) in [
            (1, "impression.home.ad=1", 0),
            (0, "click.home.ad=1", 0),
            (0, "impression..ad=1", 0),
            (0, "impression.search.ad=1", 0),
            (0, "impression.home.ad=2", 0),
            (0, "impression.home.campaign=1", 0),
            (0, "no action", 0),
        ] {
            holds.confirm(&shown(id, number, what), at(9), now_ms);
            assert!(!holds.end_confirmed(id), "{number} {what} {now_ms}");
        }
        holds.confirm(&shown(id, 0, "impression.home.ad=1"), at(9), 59_999);
        assert!(holds.end_confirmed(id));
        holds.confirm(&shown(id, 0, "impression.home.ad=1"), at(9), 60_000);
        assert!(!holds.end_confirmed(id));
    }

    #[test]
    fn full_memory_takes_no_hold_until_holds_expire() {
        let holds = holds();
        let what: Arc<str> = format!("impression..ad={}", "x".repeat(1 << 20)).into();
        let reserve = |number: usize, now_ms: i64| {
            let pick = |_: &[Held]| Some(Arc::clone(&what));
            let user = user((number % 200) as u8);
            let times = (now_ms, now_ms + 1_000);
            holds.reserve((user, at(0)), times, Terms::default(), pick)
        };
        let made = (0..1_000).take_while(|&number| reserve(number, 0).is_ok());
        assert_eq!(made.count(), Holds::BYTES_MAX / bytes_of(&what));
        assert_eq!(reserve(0, 999), Err(NotHeld::Full));
        assert!(holds.bytes() <= Holds::BYTES_MAX);
        assert!(reserve(0, 1_000).is_ok());
        holds.tidy(2_000);
        assert_eq!((holds.live(), holds.bytes()), (0, 0));
    }

    #[test]
    fn a_user_has_so_many_holds_at_most() {
        let holds = holds();
        let reserve = |number| {
            let pick = |_: &[Held]| Some("impression..ad=1".into());
            holds.reserve((user(number), at(0)), (0, 1_000), Terms::default(), pick)
        };
        let made = (0..2_000).take_while(|_| reserve(1).is_ok());
        assert_eq!(made.count(), Holds::OF_USER_MAX);
        assert_eq!(reserve(1), Err(NotHeld::TooMany));
        assert!(reserve(0).is_ok());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Reserve(u8, i64),
        /// An event of a user that names a hold, by its number. The server may not come to end the hold.
        Confirm(usize, u8, bool),
        Release(usize),
        Pass(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..7_u8, 1..40_i64).prop_map(|(user, hold)| Step::Reserve(user, hold)),
            2 => (0..40_usize, 0..7_u8, any::<bool>())
                .prop_map(|(number, user, ends)| Step::Confirm(number, user, ends)),
            1 => (0..40_usize).prop_map(Step::Release),
            2 => (0..20_i64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn prop_holds_are_those_of_a_plain_list(steps in proptest::collection::vec(step(), 0..120)) {
            let holds = holds();
            // Users and ends of the live holds; all that were ever made.
            let mut model: BTreeMap<ReservationId, (u8, i64)> = BTreeMap::new();
            let mut unended = BTreeSet::new();
            let (mut made, mut now_ms) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Reserve(number, hold_ms) => {
                        let what: Arc<str> = "click..ad=1".into();
                        let mut seen = None;
                        let pick = |held: &[Held]| {
                            seen = Some(held.len());
                            (held.len() < 3).then(|| Arc::clone(&what))
                        };
                        let until_ms = now_ms + hold_ms;
                        let (who, times) = ((user(number), at(0)), (now_ms, until_ms));
                        let id = super::tests::made(holds.reserve(who, times, Terms::default(), pick));
                        let of_user = model.values().filter(|(of, _)| *of == number).count();
                        prop_assert_eq!(seen, Some(of_user));
                        let id = id.expect("room");
                        prop_assert_eq!(id.is_some(), of_user < 3);
                        if let Some(id) = id {
                            prop_assert!(!made.contains(&id));
                            made.push(id);
                            model.insert(id, (number, until_ms));
                        }
                    }
                    Step::Confirm(number, of, ends) => if let Some(&id) = made.get(number) {
                        let wanted = model.get(&id).is_some_and(|(user, _)| *user == of);
                        holds.confirm(&shown(id, of, "click..ad=1"), at(0), now_ms);
                        if wanted {
                            model.remove(&id);
                        }
                        if ends {
                            let is_unended = unended.remove(&id);
                            // One that expired meanwhile may be removed or not.
                            let ended = holds.end_confirmed(id);
                            prop_assert!(ended == wanted || is_unended);
                        } else if wanted {
                            unended.insert(id);
                        }
                    },
                    Step::Release(number) => if let Some(&id) = made.get(number) {
                        prop_assert_eq!(holds.release(id, now_ms), model.remove(&id).is_some());
                    },
                    Step::Pass(passed_ms) => {
                        now_ms += passed_ms;
                        model.retain(|_, (_, until_ms)| *until_ms > now_ms);
                    }
                }
                for number in 0..7 {
                    let held = holds.of_user((user(number), at(0)), &[], now_ms);
                    let held = held.expect("a new view");
                    let mut left: Vec<i64> = held.iter().map(|held| held.left_ms).collect();
                    let of_user = model.values().filter(|(of, _)| *of == number);
                    let mut wanted: Vec<i64> = of_user.map(|(_, until_ms)| until_ms - now_ms).collect();
                    left.sort_unstable();
                    wanted.sort_unstable();
                    prop_assert_eq!(left, wanted);
                }
            }
            // More than one step removes at once may have expired in a shard.
            (0..10).for_each(|_| holds.tidy(now_ms));
            prop_assert!(holds.live() >= model.len() && holds.live() <= model.len() + unended.len());
            now_ms += 100;
            (0..10).for_each(|_| holds.tidy(now_ms));
            prop_assert_eq!((holds.live(), holds.bytes()), (0, 0));
        }
    }
}
