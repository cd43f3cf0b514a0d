//! The delta: counters of one delta store that no run has yet, by shard.
//!
//! Keys and values are interned. A bucket is one key, subtotal and time code, and holds its counters as a list. A
//! bucket takes 32 bytes and a counter 24, and each takes 5 more in a hash table, whatever the length of the texts.
//! Their minutes are lists beside them (`realtime/src/delta/minutes.rs`). Nothing is allocated for a counter that
//! exists.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use tallyring_records::{Grain, Interner, TimeCode, User, UserKey, Users, minute_digits, shard_of};

use super::actions::Actions;
use super::erased::Erased;
use super::lookups::Lookups;
use super::minutes::{Breakdowns, Forgotten, MinuteLists};

/// The form that all deltas of a store have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Shards of each delta.
    pub shards: u16,
    /// True when values are counted by the minute where totals are, and users too.
    pub breakdowns: bool,
}

/// Counters of one delta store in memory.
#[derive(Clone)]
pub(crate) struct Delta {
    shards: Vec<Shard>,
    /// The text behind each hash that keys and values use.
    lookups: Lookups,
    /// Users whose actions are not shown.
    pub(super) erased: Erased,
    /// Texts of what users did, as [`tallyring_records::What`] reads them.
    whats: Interner,
}

/// Counters of the keys of one shard.
#[derive(Clone, Default)]
pub(super) struct Shard {
    pub(super) keys: Interner,
    /// First bucket of each key, by key number.
    pub(super) first_bucket: Vec<u32>,
    pub(super) values: Interner,
    /// Names of subtotals. The field `subtotal` of a bucket is 1 + the number here, 0 for totals.
    pub(super) subtotals: Interner,
    pub(super) buckets: Vec<Bucket>,
    bucket_table: HashTable<u32>,
    pub(super) counters: Vec<Counter>,
    counter_table: HashTable<u32>,
    /// Minutes of totals.
    pub(super) minutes: MinuteLists,
    /// Minutes of values, and users by minute.
    pub(super) breakdowns: Breakdowns,
    users: Vec<Users>,
    users_bytes: usize,
    /// Actions of the users of this shard.
    pub(super) actions: Actions,
    /// Number of buckets of totals.
    totals: usize,
    hasher: DefaultHashBuilder,
}

/// One key, subtotal and base bucket.
#[derive(Clone, Copy)]
pub(super) struct Bucket {
    pub(super) key: u32,
    pub(super) minutes: u32,
    pub(super) subtotal: u16,
    pub(super) grain: Grain,
    /// Sum of the bucket's counters, or the count of a total.
    pub(super) count: u64,
    /// The first counter of a subtotal, or the first minute of a total.
    pub(super) first: u32,
    pub(super) next: u32,
    /// Index of a total's users in `users` of the shard; [`NONE`] without users.
    pub(super) users: u32,
}

/// One value in the bucket of a subtotal.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    pub(super) count: u64,
    pub(super) bucket: u32,
    pub(super) value: u32,
    pub(super) next: u32,
    /// The first minute.
    pub(super) minute: u32,
}

/// Key, subtotal and time code of a bucket.
pub(super) type BucketIdentity = (u32, u16, TimeCode);

/// Bucket and value of a counter.
pub(super) type CounterIdentity = (u32, u32);

/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;

const _: () = assert!(size_of::<Bucket>() == 32 && size_of::<Counter>() == 24);

impl Bucket {
    fn identity(&self) -> BucketIdentity {
        (self.key, self.subtotal, self.code())
    }

    pub(super) fn code(&self) -> TimeCode {
        TimeCode::from_minutes(self.minutes, self.grain)
    }
}

impl Counter {
    fn identity(&self) -> CounterIdentity {
        (self.bucket, self.value)
    }
}

impl Delta {
    /// Creates an empty delta.
    pub(crate) fn new(form: Form) -> Self {
        Self {
            shards: (0..form.shards)
                .map(|_| Shard::new(form.breakdowns))
                .collect(),
            lookups: Lookups::default(),
            erased: Erased::default(),
            whats: Interner::default(),
        }
    }

    /// Forgets the breakdowns by minute of hours before `instant` (Unix seconds), and returns them: to free them takes
    /// a moment.
    pub(crate) fn forget_breakdowns(&mut self, instant: i64) -> Vec<Forgotten> {
        let shards = self.shards.iter_mut();
        let forgotten = shards.map(|shard| shard.breakdowns.forget_before(instant));
        forgotten.filter(|hours| !hours.is_empty()).collect()
    }

    /// Shows no action of these users that was counted before.
    pub(crate) fn erase(&self, users: &[UserKey]) {
        self.erased.add(users);
    }

    /// Forgets the actions that are not shown, before the delta takes counts.
    pub(super) fn forget_erased(&mut self) {
        let users = self.erased.users();
        if !users.is_empty() {
            let shards = self.shard_count();
            for user in &*users {
                let shard = usize::from(user.crc().shard(shards));
                self.shards[shard].actions.forget(user);
            }
            self.erased = Erased::default();
        }
    }

    /// The texts behind the hashes that keys and values use.
    pub(crate) fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    /// True when the delta counts nothing: nothing was ever counted, or all of it was folded into another delta.
    pub(crate) fn is_empty(&self) -> bool {
        let mut shards = self.shards.iter();
        shards.all(|shard| {
            shard.actions.len() == 0 && shard.buckets.iter().all(|bucket| bucket.count == 0)
        })
    }

    /// Number of counters: totals and values of subtotals, their minutes, and actions.
    pub(crate) fn counters(&self) -> u64 {
        let counters = |shard: &Shard| {
            let minutes = shard.minutes.len() + shard.breakdowns.len();
            (shard.totals + shard.counters.len() + minutes + shard.actions.len()) as u64
        };
        self.shards.iter().map(counters).sum()
    }

    /// Memory of the delta, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let shards = self.shards.iter().map(Shard::bytes).sum::<usize>();
        shards + self.lookups.bytes() + self.whats.bytes()
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(super) fn lookups_mut(&mut self) -> &mut Lookups {
        &mut self.lookups
    }

    /// The texts of what users did, by the numbers that lists of actions use.
    pub(super) fn whats(&self) -> &Interner {
        &self.whats
    }

    /// Shards, lookups, and texts of what users did.
    pub(super) fn parts_mut(&mut self) -> (&mut [Shard], &mut Lookups, &mut Interner) {
        (&mut self.shards, &mut self.lookups, &mut self.whats)
    }

    /// Number of shards.
    pub(crate) fn shard_count(&self) -> u16 {
        u16::try_from(self.shards.len()).expect("BUG: shards are numbered in 16 bits")
    }

    pub(super) fn shard(&self, total_key: &[u8]) -> &Shard {
        &self.shards[usize::from(shard_of(total_key, self.shard_count()))]
    }
}

impl Shard {
    fn new(breakdowns: bool) -> Self {
        Self {
            breakdowns: Breakdowns::new(breakdowns),
            ..Self::default()
        }
    }

    pub(super) fn key_number(&mut self, key: &[u8]) -> u32 {
        let key = self.keys.intern(key);
        if key as usize == self.first_bucket.len() {
            self.first_bucket.push(NONE);
        }
        key
    }

    /// Adds a user to the users of a total, and to those of a minute of it.
    pub(super) fn add_user(&mut self, total: u32, minute: Option<u8>, user: User) {
        self.change_users(total, |users| users.add(user));
        if let Some(minute) = minute {
            self.change_users_of_minute(total, minute, |users| users.add(user));
        }
    }

    /// Adds a set of users to the users of a total.
    pub(super) fn unite_users(&mut self, total: u32, more: Users) {
        self.change_users(total, |users| unite(users, more));
    }

    /// Adds a set of users to those of a minute of a total that has users.
    pub(super) fn unite_users_of_minute(&mut self, total: u32, minute: u8, more: Users) {
        self.change_users_of_minute(total, minute, |users| unite(users, more));
    }

    fn change_users_of_minute(&mut self, total: u32, minute: u8, change: impl FnOnce(&mut Users)) {
        let bucket = &self.buckets[total as usize];
        let of = (bucket.users, minute);
        self.breakdowns.change_users(bucket.code(), of, change);
    }

    fn change_users(&mut self, total: u32, change: impl FnOnce(&mut Users)) {
        let bucket = &mut self.buckets[total as usize];
        if bucket.users == NONE {
            bucket.users =
                u32::try_from(self.users.len()).expect("BUG: a delta is flushed before 2^32 sets");
            self.users.push(Users::default());
        }
        let users = &mut self.users[bucket.users as usize];
        let before = users.bytes();
        change(users);
        self.users_bytes = (self.users_bytes + users.bytes()).saturating_sub(before);
    }

    /// Takes the users out of a bucket, but for those of its minutes.
    pub(super) fn take_users(&mut self, number: usize) -> Option<Users> {
        let bucket = &mut self.buckets[number];
        let index = std::mem::replace(&mut bucket.users, NONE);
        self.users.get_mut(index as usize).map(std::mem::take)
    }

    /// The value of the field `subtotal` in buckets of this subtotal.
    pub(super) fn subtotal_number(&mut self, subtotal: &[u8]) -> u16 {
        let number = self.subtotals.intern(subtotal) + 1;
        u16::try_from(number).expect("BUG: a schema has few subtotals")
    }

    /// The likely bucket, so that it can come from memory before [`Shard::bucket`] reads it.
    pub(super) fn likely_bucket(&self, wanted: BucketIdentity) -> u32 {
        let mut found = self.bucket_table.iter_hash(self.hasher.hash_one(wanted));
        found.next().copied().unwrap_or(NONE)
    }

    /// The bucket of key, subtotal and time code, created if it is new. `likely` is tried first.
    pub(super) fn bucket(&mut self, wanted: BucketIdentity, likely: u32) -> u32 {
        let Self {
            buckets,
            bucket_table,
            hasher,
            first_bucket,
            totals,
            ..
        } = self;
        if buckets
            .get(likely as usize)
            .is_some_and(|bucket| bucket.identity() == wanted)
        {
            return likely;
        }
        let hash = hasher.hash_one(wanted);
        if let Some(&number) = bucket_table.find(hash, |&number| {
            buckets[number as usize].identity() == wanted
        }) {
            return number;
        }
        let number =
            u32::try_from(buckets.len()).expect("BUG: a delta is flushed before 2^32 buckets");
        let (key, subtotal, code) = wanted;
        let first = &mut first_bucket[key as usize];
        buckets.push(Bucket {
            key,
            minutes: code.minutes(),
            subtotal,
            grain: code.grain(),
            count: 0,
            first: NONE,
            next: *first,
            users: NONE,
        });
        *first = number;
        *totals += usize::from(subtotal == 0);
        bucket_table.insert_unique(hash, number, |&number| {
            hasher.hash_one(buckets[number as usize].identity())
        });
        number
    }

    /// The likely counter, as in [`Shard::likely_bucket`].
    pub(super) fn likely_counter(&self, wanted: CounterIdentity) -> u32 {
        let mut found = self.counter_table.iter_hash(self.hasher.hash_one(wanted));
        found.next().copied().unwrap_or(NONE)
    }

    /// The counter of bucket and value, created if it is new. `likely` is tried first.
    pub(super) fn counter(&mut self, wanted: CounterIdentity, likely: u32) -> u32 {
        let Self {
            buckets,
            counters,
            counter_table,
            hasher,
            ..
        } = self;
        if counters
            .get(likely as usize)
            .is_some_and(|counter| counter.identity() == wanted)
        {
            return likely;
        }
        let hash = hasher.hash_one(wanted);
        if let Some(&number) = counter_table.find(hash, |&number| {
            counters[number as usize].identity() == wanted
        }) {
            return number;
        }
        let number =
            u32::try_from(counters.len()).expect("BUG: a delta is flushed before 2^32 counters");
        let (bucket, value) = wanted;
        let first = &mut buckets[bucket as usize].first;
        counters.push(Counter {
            count: 0,
            bucket,
            value,
            next: *first,
            minute: NONE,
        });
        *first = number;
        counter_table.insert_unique(hash, number, |&number| {
            hasher.hash_one(counters[number as usize].identity())
        });
        number
    }

    /// Counts `n` in a minute of a total.
    #[inline]
    pub(super) fn count_minute(&mut self, total: u32, minute: u8, n: u64) {
        let bucket = &mut self.buckets[total as usize];
        bucket.first = self.minutes.add(bucket.first, minute, n);
    }

    /// Counts `n` in a minute of a value. `base` is the base bucket of the counter.
    #[inline]
    pub(super) fn count_value_minute(&mut self, counter: u32, base: TimeCode, minute: u8, n: u64) {
        let counter = &mut self.counters[counter as usize];
        counter.minute = self.breakdowns.add(base, counter.minute, minute, n);
    }

    /// Calls `visit` with every minute of a total, as the value of a line, and its count.
    pub(super) fn minutes_of(&self, total: &Bucket, visit: &mut dyn FnMut(&[u8], u64)) {
        for (minute, count) in self.minutes.of(total.first) {
            visit(&minute_digits(minute), count);
        }
    }

    /// The minutes of a total that have users, and their users.
    pub(super) fn users_by_minute<'s>(
        &'s self,
        total: &Bucket,
    ) -> impl Iterator<Item = (u8, &'s Users)> {
        let (code, users) = (total.code(), total.users);
        let has_users = users != NONE;
        let minutes = has_users.then(|| self.minutes.of(total.first));
        let minutes = minutes.into_iter().flatten();
        minutes.filter_map(move |(minute, _)| {
            let users = self.breakdowns.users(code, (users, minute))?;
            Some((minute, users))
        })
    }

    /// True when a value of the subtotal was counted by the minute.
    pub(super) fn counts_values_by_minute(&self, bucket: &Bucket) -> bool {
        self.counters_of(bucket)
            .any(|counter| counter.minute != NONE)
    }

    pub(super) fn buckets_of(&self, total_key: &[u8]) -> impl Iterator<Item = &Bucket> {
        self.buckets_of_number(self.keys.find(total_key).unwrap_or(NONE))
    }

    /// Buckets of the key with this number that count something.
    pub(super) fn buckets_of_number(&self, key: u32) -> impl Iterator<Item = &Bucket> {
        let first = self.first_bucket.get(key as usize).copied().unwrap_or(NONE);
        std::iter::successors(self.buckets.get(first as usize), |bucket| {
            self.buckets.get(bucket.next as usize)
        })
        .filter(|bucket| bucket.count > 0)
    }

    pub(super) fn users_of(&self, bucket: &Bucket) -> Option<&Users> {
        self.users.get(bucket.users as usize)
    }

    /// The counters of a subtotal; a total has none.
    pub(super) fn counters_of(&self, bucket: &Bucket) -> impl Iterator<Item = &Counter> {
        let first = if bucket.subtotal > 0 {
            bucket.first
        } else {
            NONE
        };
        std::iter::successors(self.counters.get(first as usize), |counter| {
            self.counters.get(counter.next as usize)
        })
    }

    fn bytes(&self) -> usize {
        self.keys.bytes()
            + self.values.bytes()
            + 4 * self.first_bucket.capacity()
            + size_of::<Bucket>() * self.buckets.capacity()
            + size_of::<Counter>() * self.counters.capacity()
            + 5 * (self.bucket_table.capacity() + self.counter_table.capacity()) * 8 / 7
            + self.minutes.bytes()
            + self.breakdowns.bytes()
            + self.actions.bytes()
            + self.users_bytes
            + size_of::<Users>() * self.users.capacity()
    }
}

/// Adds users to a set.
fn unite(users: &mut Users, more: Users) {
    if users.is_empty() {
        *users = more;
    } else {
        users.union(&more);
    }
}
