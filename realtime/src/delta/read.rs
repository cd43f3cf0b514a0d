//! Reads of a delta: the counters of one key, and all points.

use std::ops::Range;

use tallyring_records::{
    ACTIONS, Action, Day, KeyCrc, MINUTES, TimeCode, UserKey, Users, by_minute, of_by_minute,
};

use super::memory::Delta;
use super::minutes::minute_in;

impl Delta {
    /// Calls `visit` with every base bucket of the total `total_key` and its count.
    pub(crate) fn totals(&self, total_key: &[u8], visit: &mut dyn FnMut(TimeCode, u64)) {
        let shard = self.shard(total_key);
        for bucket in shard
            .buckets_of(total_key)
            .filter(|bucket| bucket.subtotal == 0)
        {
            visit(bucket.code(), bucket.count);
        }
    }

    /// Calls `visit` with every base bucket, stored value and count of one subtotal of `total_key`; for a subtotal by
    /// minute with every minute in place of base buckets.
    pub(crate) fn subtotals(
        &self,
        total_key: &[u8],
        subtotal: &str,
        visit: &mut dyn FnMut(TimeCode, &[u8], u64),
    ) {
        let shard = self.shard(total_key);
        let buckets = shard.buckets_of(total_key);
        if subtotal == MINUTES {
            for bucket in buckets.filter(|bucket| bucket.subtotal == 0) {
                shard.minutes_of(bucket, &mut |value, count| {
                    visit(bucket.code(), value, count)
                });
            }
            return;
        }
        let of = of_by_minute(subtotal);
        let Some(number) = shard.subtotals.find(of.unwrap_or(subtotal).as_bytes()) else {
            return;
        };
        for bucket in buckets.filter(|bucket| u32::from(bucket.subtotal) == number + 1) {
            let code = bucket.code();
            for counter in shard.counters_of(bucket) {
                let value = shard.values.get(counter.value);
                if of.is_none() {
                    visit(code, value, counter.count);
                    continue;
                }
                for (minute, count) in shard.breakdowns.of(code, counter.minute) {
                    visit(minute_in(code, minute), value, count);
                }
            }
        }
    }

    /// Calls `visit` with every base bucket of `total_key` that has users, and with these users; or with every minute
    /// and its users.
    pub(crate) fn users(
        &self,
        total_key: &[u8],
        minutes: bool,
        visit: &mut dyn FnMut(TimeCode, &Users),
    ) {
        let shard = self.shard(total_key);
        for bucket in shard.buckets_of(total_key) {
            let code = bucket.code();
            if minutes {
                for (minute, users) in shard.users_by_minute(bucket) {
                    visit(minute_in(code, minute), users);
                }
            } else if let Some(users) = shard.users_of(bucket) {
                visit(code, users);
            }
        }
    }

    /// Calls `visit` with every action of a user on these UTC days, and its count. `crc` is that of the user. Returns
    /// false, and leaves out the rest, where a day has more than `most` actions.
    pub(crate) fn actions(
        &self,
        (user, crc): (UserKey, KeyCrc),
        days: Range<Day>,
        most: usize,
        visit: &mut dyn FnMut(Day, Action<'_>, u64),
    ) -> bool {
        let shard = &self.shards()[usize::from(crc.shard(self.shard_count()))];
        if shard.actions.len() == 0 || self.erased.has(&user) {
            return true;
        }
        let mut days = (days.start.number()..days.end.number()).map(Day::from_number);
        days.all(|day| {
            let visit = &mut |action: Action<'_>, n| visit(day, action, n);
            let whats = self.whats();
            shard.actions.visit_most((user, day), most, whats, visit)
        })
    }

    /// Calls `visit` with every counter: record key, value of a subtotal, base bucket, count.
    pub(crate) fn points(&self, visit: &mut dyn FnMut(String, Option<String>, TimeCode, u64)) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let erased = self.erased.users();
        for shard in self.shards() {
            for list in shard.actions.lists(&erased) {
                shard
                    .actions
                    .visit(list.place(), self.whats(), &mut |action, count| {
                        let mut value = Vec::new();
                        action.write_value(&mut value);
                        let key = format!("{ACTIONS}.{}", list.user().total_key());
                        visit(key, Some(text(&value)), list.day().code(), count);
                    });
            }
            for bucket in shard.buckets.iter().filter(|bucket| bucket.count > 0) {
                let (key, code) = (text(shard.keys.get(bucket.key)), bucket.code());
                let named = |subtotal: &str| format!("{subtotal}.{key}");
                let Some(number) = bucket.subtotal.checked_sub(1) else {
                    shard.minutes_of(bucket, &mut |value, count| {
                        visit(named(MINUTES), Some(text(value)), code, count);
                    });
                    visit(key, None, code, bucket.count);
                    continue;
                };
                let subtotal = text(shard.subtotals.get(number.into()));
                for counter in shard.counters_of(bucket) {
                    let value = text(shard.values.get(counter.value));
                    for (minute, count) in shard.breakdowns.of(code, counter.minute) {
                        let (key, code) = (named(&by_minute(&subtotal)), minute_in(code, minute));
                        visit(key, Some(value.clone()), code, count);
                    }
                    visit(named(&subtotal), Some(value), code, counter.count);
                }
            }
        }
    }
}
