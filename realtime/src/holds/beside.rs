//! Holds of a store of several strands: which strand decides about them, and events of other strands that end them.
//!
//! All holds of a user are in one strand, and the node that writes that strand decides about them by a view over all
//! strands. An event that confirms a hold counts in the strand of its id. Where that is another one, the hold is ended
//! once the event counts there, by a message to the strand of the hold. Its log alone says that the hold ended, and up
//! to where the other strand is counted by whoever has the event ([`ShownHold`]).
//!
//! Invariants:
//! * A decision or an answer by a view sees each hold, or the event that ended it: a view that has not counted the
//!   other strand so far is too old ([`Stale`](super::Stale)), also after a restart and on another node, in whichever
//!   order the logs were read. It may see both for a moment, and until the hold expires where the message was lost.
//! * Only the strand of the hold says that it was confirmed. So of several events that name one hold, and of an event
//!   and the end of the hold's time, the first in its log wins.

use std::collections::BTreeMap;

use tallyring_records::{Increment, LongKeys, Offset, Record, Schema, ShownHold, UserKey};

use super::{Holds, ReservationId, SHARDS, Shard, shard_of};

/// An action of a user that an event tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownAction {
    /// The hold that the event names.
    pub id: ReservationId,
    /// The user.
    pub user: UserKey,
    /// Text of the action, as [`What`](tallyring_records::What) reads it.
    pub what: String,
}

/// How far one strand is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    /// The number of the strand.
    pub strand: u32,
    /// Everything before this is counted.
    pub before: Offset,
}

/// By strand, how far a view must have counted it that holds are decided by.
pub(super) type Needed = BTreeMap<u32, Offset>;

impl ShownAction {
    /// The action that an increment is, where a hold can be of one: an event of one action of a user. The event names
    /// the hold `id`.
    pub(crate) fn of(
        id: ReservationId,
        increment: &Increment,
        (schema, keys): (&Schema, &LongKeys),
    ) -> Option<Self> {
        let user = increment.user.as_deref().filter(|_| increment.n == 1)?;
        let kind = schema.event_type(&increment.event.as_ref()?.kind)?;
        let mut what = Vec::new();
        kind.write_action(keys, increment, &mut what);
        Some(Self {
            id,
            user: UserKey::of(keys, user),
            what: String::from_utf8(what).ok()?,
        })
    }
}

impl ReservationId {
    /// The record of the end of the hold, by an event in another strand.
    pub(crate) fn ended_beside(self, Until { strand, before }: Until) -> Record {
        let id = self.0;
        Record::HoldShown(ShownHold { id, strand, before })
    }

    /// The strand of the hold among `count`.
    pub fn strand(self, count: usize) -> usize {
        self.shard() % count
    }
}

/// The strand among `count` that decides about the holds of a user.
pub(crate) fn strand_of_user(user: UserKey, count: usize) -> usize {
    shard_of(user) % count
}

impl Holds {
    /// Confirms a hold by an event that counts in another strand. It must be what was held, but may name further
    /// entities.
    pub(crate) fn confirm_beside(&self, shown: &ShownAction, until: Until, now_ms: i64) {
        let mut shard = self.shard(shown.id.shard());
        self.forget(&mut shard, now_ms);
        let hold = shard.holds.get_mut(&shown.id);
        if let Some(hold) = hold.filter(|hold| hold.is_ended_by(shown, now_ms)) {
            // All views that anything is decided by have the event.
            hold.visible = Some(Offset::default());
            shard.need(until);
        }
    }

    /// How far a view must have counted each strand that the holds of a user are decided by.
    pub(crate) fn needed(&self, user: UserKey) -> Vec<Until> {
        let shard = self.shard(shard_of(user));
        let needed = shard.needed.iter();
        let until = |(&strand, &before): (&u32, &Offset)| Until { strand, before };
        needed.map(until).collect()
    }

    /// Records that say what views of all users need, by names of no hold. One frame of the log has room for them.
    pub(crate) fn needed_records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for number in 0..SHARDS {
            let name = ReservationId(number as u128);
            for (&strand, &before) in &self.shard(number).needed {
                records.push(name.ended_beside(Until { strand, before }));
            }
        }
        records
    }

    /// Does again what the log says of a hold that an event in another strand ended.
    pub(super) fn replay_shown(&self, shown: &ShownHold) {
        let id = ReservationId(shown.id);
        let mut shard = self.shard(id.shard());
        shard.need(Until {
            strand: shown.strand,
            before: shown.before,
        });
        drop(self.remove(&mut shard, id));
    }
}

impl Shard {
    fn need(&mut self, until: Until) {
        let needed = self.needed.entry(until.strand).or_default();
        *needed = until.before.max(*needed);
    }

    /// True for a view that has counted the strands up to `seen`, from which nothing is missing.
    pub(super) fn is_enough(&self, seen: &[Offset]) -> bool {
        let mut needed = self.needed.iter();
        needed.all(|(strand, before)| {
            let seen = usize::try_from(*strand).ok().and_then(|at| seen.get(at));
            seen.is_some_and(|seen| seen >= before)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Held, Made, Moment, NotHeld, Stale, Terms};
    use super::*;

    const STRANDS: usize = 3;
    const USERS: u8 = 3;
    const LIMIT: usize = 2;
    const WHAT: &str = "impression..ad=1";

    #[derive(Debug, Clone)]
    enum Step {
        /// For a user, for so long.
        Reserve(u8, i64),
        /// An event in another strand names the hold of this number; its strand may not be told.
        Show(usize, usize, bool),
        Release(usize),
        Flush,
        /// Another node decides from here on. It has counted parts of the other strands, in percent.
        TakeOver([usize; STRANDS]),
        /// The node that decides counts some more of a strand.
        Count(usize, usize),
        Pass(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let beside = 1..STRANDS;
        prop_oneof![
            6 => (0..USERS, 1..60_i64).prop_map(|(user, hold)| Step::Reserve(user, hold)),
            4 => (0..30_usize, beside.clone(), prop::bool::weighted(0.8))
                .prop_map(|(number, strand, is_told)| Step::Show(number, strand, is_told)),
            1 => (0..30_usize).prop_map(Step::Release),
            1 => Just(Step::Flush),
            2 => prop::array::uniform3(0..=100_usize).prop_map(Step::TakeOver),
            2 => (beside, 0..4_usize).prop_map(|(strand, more)| Step::Count(strand, more)),
            2 => (0..20_i64).prop_map(Step::Pass),
        ]
    }

    /// The strand of the holds, which is the first one; and a plain list of what should be.
    struct Life {
        holds: Holds,
        log: Vec<Record>,
        /// A restart reads the log from here on.
        flushed: usize,
        /// The users of the events of each other strand, and how many of them the deciding node has counted.
        events: [Vec<u8>; STRANDS],
        seen: [usize; STRANDS],
        now_ms: i64,
        made: Vec<(ReservationId, u8)>,
        live: BTreeMap<ReservationId, (u8, i64)>,
        /// Users of events that were told that they confirmed a hold.
        confirmed: Vec<u8>,
    }

    impl Life {
        fn new() -> Self {
            Self {
                holds: Holds::new(Holds::BYTES_MAX, |bytes| bytes.fill(7)),
                log: Vec::new(),
                flushed: 0,
                events: Default::default(),
                seen: [0; STRANDS],
                now_ms: 0,
                made: Vec::new(),
                live: BTreeMap::new(),
                confirmed: Vec::new(),
            }
        }

        fn now(&self) -> Moment {
            Moment {
                elapsed_ms: self.now_ms,
                unix_ms: self.now_ms,
            }
        }

        fn offsets(seen: &[usize; STRANDS]) -> [Offset; STRANDS] {
            seen.map(|seen| Offset {
                epoch: 1,
                sequence: seen as u64,
            })
        }

        /// The number of events in each strand.
        fn ends(&self) -> [usize; STRANDS] {
            [0, 1, 2].map(|strand| self.events[strand].len())
        }

        /// The events of a user that the deciding node has counted.
        fn done(&self, user: u8) -> usize {
            let seen = self.events.iter().zip(self.seen);
            let seen = seen.flat_map(|(events, seen)| &events[..seen]);
            seen.filter(|of| **of == user).count()
        }

        /// The live holds of a user by a view that has counted the strands so far.
        fn held(&self, user: u8, seen: &[usize; STRANDS]) -> Result<usize, Stale> {
            let who = (key(user), Offset::default());
            let held = self.holds.of_user(who, &Self::offsets(seen), self.now_ms);
            held.map(|held| held.len())
        }

        fn live_of(&self, user: u8) -> usize {
            self.live.values().filter(|(of, _)| *of == user).count()
        }

        fn reserve(&mut self, user: u8, hold_ms: i64) {
            let number = self.made.len().to_be_bytes();
            let id = ReservationId::given(&self.holds.keys, key(user), &number);
            let until_ms = self.now_ms + hold_ms;
            let mut is_behind = false;
            loop {
                let (done, seen) = (self.done(user), Self::offsets(&self.seen));
                let pick = |held: &[Held]| (done + held.len() < LIMIT).then(|| WHAT.into());
                let terms = Terms {
                    id: Some(id),
                    seen: &seen,
                    ..Terms::default()
                };
                let who = (key(user), Offset::default());
                match self
                    .holds
                    .reserve(who, (self.now_ms, until_ms), terms, pick)
                {
                    Ok(Made::New(id)) => {
                        let record = self.holds.record(id, self.now());
                        self.log.extend(record);
                        self.made.push((id, user));
                        self.live.insert(id, (user, until_ms));
                        break;
                    }
                    Ok(Made::Nothing) => {
                        assert!(done + self.live_of(user) >= LIMIT, "one was free");
                        break;
                    }
                    Err(NotHeld::Stale) => {
                        assert!(!is_behind, "it has counted everything");
                        is_behind = true;
                        self.seen = self.ends();
                    }
                    other => panic!("{other:?}"),
                }
            }
        }

        fn show(&mut self, number: usize, strand: usize, is_told: bool) {
            let Some(&(id, user)) = self.made.get(number) else {
                return;
            };
            self.events[strand].push(user);
            if !is_told {
                return;
            }
            let ends = self.ends();
            let until = Until {
                strand: strand as u32,
                before: Self::offsets(&ends)[strand],
            };
            let (user_key, what) = (key(user), WHAT.into());
            let shown = ShownAction {
                id,
                user: user_key,
                what,
            };
            let is_held = self.holds.is_held(&shown, self.now_ms);
            self.log.extend(is_held.then(|| id.ended_beside(until)));
            self.holds.confirm_beside(&shown, until, self.now_ms);
            let is_confirmed = self.holds.end_confirmed(id);
            assert_eq!(is_confirmed, self.live.remove(&id).is_some());
            self.confirmed.extend(is_confirmed.then_some(user));
        }

        fn release(&mut self, number: usize) {
            let Some(&(id, _)) = self.made.get(number) else {
                return;
            };
            let is_released = self.holds.release(id, self.now_ms);
            self.log.extend(is_released.then(|| id.ended()));
            assert_eq!(is_released, self.live.remove(&id).is_some());
        }

        fn flush(&mut self) {
            self.flushed = self.log.len();
            for group in 0..Holds::GROUPS {
                self.log.extend(self.holds.records(group, self.now()));
            }
            self.log.extend(self.holds.needed_records());
        }

        fn take_over(&mut self, percent: [usize; STRANDS]) {
            self.holds = Holds::new(Holds::BYTES_MAX, |bytes| bytes.fill(7));
            let log = self.log[self.flushed..].iter();
            log.for_each(|record| self.holds.replay(record, self.now()));
            self.seen = [0, 1, 2].map(|at| self.events[at].len() * percent[at] / 100);
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Reserve(user, hold_ms) => self.reserve(user, hold_ms),
                Step::Show(number, strand, is_told) => self.show(number, strand, is_told),
                Step::Release(number) => self.release(number),
                Step::Flush => self.flush(),
                Step::TakeOver(percent) => self.take_over(percent),
                Step::Count(strand, more) => {
                    let seen = self.seen[strand] + more;
                    self.seen[strand] = seen.min(self.events[strand].len());
                }
                Step::Pass(passed_ms) => {
                    self.now_ms += passed_ms;
                    self.live.retain(|_, (_, until_ms)| *until_ms > self.now_ms);
                }
            }
        }
    }

    fn key(user: u8) -> UserKey {
        UserKey::from_bytes([0, user, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    proptest! {
        /// A cap is never exceeded by what is reserved or confirmed, whichever node decides and however far it has
        /// counted other strands, and the holds are those of a plain list.
        #[test]
        fn prop_caps_hold_over_strands(steps in prop::collection::vec(step(), 0..80)) {
            let mut life = Life::new();
            for step in steps {
                life.step(step);
                for user in 0..USERS {
                    prop_assert_eq!(life.held(user, &life.ends()), Ok(life.live_of(user)));
                    let confirmed = life.confirmed.iter().filter(|of| **of == user).count();
                    if life.held(user, &life.seen).is_ok() {
                        prop_assert!(life.done(user) >= confirmed, "neither hold nor event");
                    }
                    prop_assert!(confirmed + life.live_of(user) <= LIMIT);
                }
            }
        }
    }

    #[test]
    fn a_node_that_lacks_the_event_decides_nothing_until_it_has_it() {
        let mut life = Life::new();
        (0..LIMIT).for_each(|_| life.reserve(0, 60));
        (0..LIMIT).for_each(|number| life.show(number, 2, true));
        assert_eq!(life.confirmed.len(), LIMIT);
        life.flush();
        life.take_over([0; STRANDS]);
        let (who, seen) = ((key(0), Offset::default()), [Offset::default(); STRANDS]);
        let terms = |seen| Terms {
            seen,
            ..Terms::default()
        };
        let reserve = |seen| {
            life.holds
                .reserve(who, (0, 9), terms(seen), |_| Some(WHAT.into()))
        };
        let one_less = Life::offsets(&[9, 9, LIMIT - 1]);
        for lacks in [&seen[..], &[], &one_less] {
            assert_eq!(reserve(lacks), Err(NotHeld::Stale), "{lacks:?}");
        }
        let needed = life.holds.needed(key(0));
        assert_eq!(needed.len(), 1);
        assert_eq!(
            (needed[0].strand, needed[0].before.sequence),
            (2, LIMIT as u64)
        );
        assert!(matches!(
            reserve(&Life::offsets(&[0, 0, LIMIT])),
            Ok(Made::New(_))
        ));
    }
}
