//! Holds in the log, where a store keeps them there: a restart then finds those that are live.
//!
//! A record says that a hold was made, and another one that it ended. Nothing in the log says that a hold expired: its
//! record has the end. Live holds are written again with each flush, behind the offset from which a restart reads.

use std::sync::Arc;

use tallyring_records::{LoggedHold, Record};

use super::id::ID_BITS;
use super::{Hold, Holds, ReservationId, Shard, shard_of};

/// One moment on two clocks, milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// On the clock that nobody can set, by which holds expire.
    pub elapsed_ms: i64,
    /// Unix time, which the log has.
    pub unix_ms: i64,
}

impl Holds {
    /// The number of groups whose holds are written together ([`Holds::records`]).
    pub(crate) const GROUPS: usize = super::SHARDS;

    /// The record of a live hold.
    pub(crate) fn record(&self, id: ReservationId, now: Moment) -> Option<Record> {
        self.shard(id.shard()).record(id, now)
    }

    /// Records of the live holds of one of [`GROUPS`](Self::GROUPS) groups.
    pub(crate) fn records(&self, group: usize, now: Moment) -> Vec<Record> {
        let shard = self.shard(group);
        let records = shard.holds.keys().filter_map(|&id| shard.record(id, now));
        records.collect()
    }

    /// Does again what a record of the log says. Holds that have no room are left out.
    pub(crate) fn replay(&self, record: &Record, now: Moment) {
        match record {
            Record::Hold(logged) => self.restore(logged, now),
            Record::HoldEnded { id } => {
                let id = ReservationId(*id);
                drop(self.remove(&mut self.shard(id.shard()), id));
            }
            Record::HoldShown(shown) => self.replay_shown(shown),
            Record::Erase { users } => users.iter().for_each(|user| self.end_all(*user)),
            _ => {}
        }
    }

    fn restore(&self, logged: &LoggedHold, now: Moment) {
        let left_ms = logged.until_ms.saturating_sub(now.unix_ms);
        let left_ms = left_ms.min(Self::MS_MAX);
        let id = ReservationId(logged.id);
        let is_of_user = logged.id >> ID_BITS == 0 && id.shard() == shard_of(logged.user);
        if left_ms <= 0 || !is_of_user {
            return;
        }
        let hold = Hold {
            user: logged.user,
            what: Arc::from(logged.what.as_str()),
            expires_ms: now.elapsed_ms.saturating_add(left_ms),
            visible: None,
            _room: None,
        };
        let mut shard = self.shard(id.shard());
        // Each flush has written it again.
        drop(self.remove(&mut shard, id));
        let _ = self.insert(&mut shard, id, hold);
    }
}

impl ReservationId {
    /// The record of the end of the hold.
    pub(crate) fn ended(self) -> Record {
        Record::HoldEnded { id: self.0 }
    }
}

impl Shard {
    fn record(&self, id: ReservationId, now: Moment) -> Option<Record> {
        let hold = self.holds.get(&id)?;
        hold.is_live(now.elapsed_ms).then(|| {
            let left_ms = hold.expires_ms - now.elapsed_ms;
            Record::Hold(LoggedHold {
                id: id.0,
                user: hold.user,
                what: hold.what.to_string(),
                until_ms: now.unix_ms.saturating_add(left_ms),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use tallyring_records::{Offset, UserKey};

    use super::*;
    use crate::holds::{Made, ShownAction, Terms};

    const WHAT: &str = "impression..ad=1";
    const SEEN: Offset = Offset {
        epoch: 1,
        sequence: 5,
    };

    fn holds() -> Holds {
        Holds::new(Holds::BYTES_MAX, |bytes| bytes.fill(7))
    }

    fn user(number: u8) -> UserKey {
        UserKey::from_bytes([number; 12])
    }

    fn at(elapsed_ms: i64, unix_ms: i64) -> Moment {
        Moment {
            elapsed_ms,
            unix_ms,
        }
    }

    fn reserve(holds: &Holds, number: u8, until_ms: i64) -> ReservationId {
        let who = (user(number), SEEN);
        let made = holds.reserve(who, (0, until_ms), Terms::default(), |_| Some(WHAT.into()));
        match made.expect("no confirmation") {
            Made::New(id) => id,
            other => panic!("no new hold: {other:?}"),
        }
    }

    #[test]
    fn a_restart_knows_live_holds_and_for_how_long() {
        let before = holds();
        let [live, short, released, confirmed] =
            [60_000, 1_000, 60_000, 60_000].map(|until_ms| reserve(&before, 3, until_ms));
        let made = [live, short, released, confirmed].map(|id| before.record(id, at(0, 500_000)));
        assert!(before.release(released, 0));
        let shown = ShownAction {
            id: confirmed,
            user: user(3),
            what: WHAT.into(),
        };
        before.confirm(&shown, SEEN, 0);
        assert_eq!(
            before.record(confirmed, at(0, 500_000)),
            None,
            "no longer a hold"
        );
        let again = before.records(shard_of(user(3)), at(400, 500_400));
        assert_eq!(again.len(), 2);
        let ended = [released, confirmed].map(|id| Record::HoldEnded { id: id.0 });

        let after = holds();
        let start = at(7, 502_000);
        for record in made.iter().flatten().chain(&ended).chain(&again) {
            after.replay(record, start);
        }
        let held = after.of_user((user(3), SEEN), &[], 7).expect("a new view");
        let left: Vec<i64> = held.iter().map(|held| held.left_ms).collect();
        assert_eq!(left, [58_000]);
        assert_eq!(after.live(), 1);
        assert!(after.release(live, 7));
        assert_eq!((after.live(), after.bytes()), (0, 0));
    }

    #[test]
    fn a_clock_that_was_put_back_and_a_wrong_record_hold_nothing_for_long() {
        let holds = holds();
        let id = reserve(&holds, 3, 60_000);
        let record = holds.record(id, at(0, 10_000_000)).expect("a live hold");
        assert!(holds.release(id, 0));
        holds.replay(&record, at(0, 0));
        let held = holds.of_user((user(3), SEEN), &[], 0).expect("a new view");
        assert_eq!(held[0].left_ms, Holds::MS_MAX);
        for id in [id.0 + 1, id.0 | 1 << ID_BITS] {
            let wrong = Record::Hold(LoggedHold {
                id,
                user: user(3),
                what: WHAT.into(),
                until_ms: 60_000,
            });
            holds.replay(&wrong, at(0, 0));
        }
        assert_eq!(holds.live(), 1);
        let users = vec![user(3)];
        holds.replay(&Record::Erase { users }, at(0, 0));
        assert_eq!((holds.live(), holds.bytes()), (0, 0));
    }
}
