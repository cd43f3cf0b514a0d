//! The delta: counters of one delta store that no run has yet, by shard.
//!
//! Keys and values are interned. A bucket is one key, subtotal and time code, and holds its counters as a list. A
//! bucket takes 32 bytes and a counter 24, and each takes 5 more in a hash table, whatever the length of the texts.
//! Nothing is allocated for a counter that exists.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use tallyring_records::{Grain, Interner, TimeCode, User, Users, shard_of};

use super::lookups::Lookups;

/// Counters of one delta store in memory.
#[derive(Clone)]
pub(crate) struct Delta {
    shards: Vec<Shard>,
    /// The text behind each hash that keys and values use.
    lookups: Lookups,
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
    users: Vec<Users>,
    users_bytes: usize,
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
    pub(super) first_counter: u32,
    pub(super) next: u32,
    /// Index of a total's users in `users` of the shard; [`NONE`] without users.
    users: u32,
}

/// One value in the bucket of a subtotal.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    pub(super) count: u64,
    pub(super) bucket: u32,
    pub(super) value: u32,
    pub(super) next: u32,
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
    /// Creates an empty delta of `shards` shards.
    pub(crate) fn new(shards: u16) -> Self {
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            lookups: Lookups::default(),
        }
    }

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

    /// Calls `visit` with every base bucket, stored value and count of one subtotal of `total_key`.
    pub(crate) fn subtotals(
        &self,
        total_key: &[u8],
        subtotal: &str,
        visit: &mut dyn FnMut(TimeCode, &[u8], u64),
    ) {
        let shard = self.shard(total_key);
        let Some(number) = shard.subtotals.find(subtotal.as_bytes()) else {
            return;
        };
        for bucket in shard
            .buckets_of(total_key)
            .filter(|bucket| u32::from(bucket.subtotal) == number + 1)
        {
            for counter in shard.counters_of(bucket) {
                visit(
                    bucket.code(),
                    shard.values.get(counter.value),
                    counter.count,
                );
            }
        }
    }

    /// Calls `visit` with every base bucket of `total_key` that has users, and with these users.
    pub(crate) fn users(&self, total_key: &[u8], visit: &mut dyn FnMut(TimeCode, &Users)) {
        let shard = self.shard(total_key);
        for bucket in shard.buckets_of(total_key) {
            if let Some(users) = shard.users_of(bucket) {
                visit(bucket.code(), users);
            }
        }
    }

    /// Calls `visit` with every counter: record key, value of a subtotal, base bucket, count.
    pub(crate) fn points(&self, visit: &mut dyn FnMut(String, Option<String>, TimeCode, u64)) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for shard in &self.shards {
            for bucket in shard.buckets.iter().filter(|bucket| bucket.count > 0) {
                let key = text(shard.keys.get(bucket.key));
                let Some(number) = bucket.subtotal.checked_sub(1) else {
                    visit(key, None, bucket.code(), bucket.count);
                    continue;
                };
                let subtotal = text(shard.subtotals.get(number.into()));
                for counter in shard.counters_of(bucket) {
                    let value = text(shard.values.get(counter.value));
                    visit(
                        format!("{subtotal}.{key}"),
                        Some(value),
                        bucket.code(),
                        counter.count,
                    );
                }
            }
        }
    }

    /// The texts behind the hashes that keys and values use.
    pub(crate) fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    /// True when the delta counts nothing: nothing was ever counted, or all of it was folded into another delta.
    pub(crate) fn is_empty(&self) -> bool {
        let mut buckets = self.shards.iter().flat_map(|shard| &shard.buckets);
        buckets.all(|bucket| bucket.count == 0)
    }

    /// Number of counters: totals and values of subtotals.
    pub(crate) fn counters(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| (shard.counters.len() + shard.totals) as u64)
            .sum()
    }

    /// Memory of the delta, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(Shard::bytes).sum::<usize>() + self.lookups.bytes()
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(super) fn shards_mut(&mut self) -> &mut [Shard] {
        &mut self.shards
    }

    pub(super) fn lookups_mut(&mut self) -> &mut Lookups {
        &mut self.lookups
    }

    /// Shards and lookups.
    pub(super) fn parts_mut(&mut self) -> (&mut [Shard], &mut Lookups) {
        (&mut self.shards, &mut self.lookups)
    }

    pub(super) fn shard_count(&self) -> u16 {
        u16::try_from(self.shards.len()).expect("BUG: shards are numbered in 16 bits")
    }

    fn shard(&self, total_key: &[u8]) -> &Shard {
        &self.shards[usize::from(shard_of(total_key, self.shard_count()))]
    }
}

impl Shard {
    pub(super) fn key_number(&mut self, key: &[u8]) -> u32 {
        let key = self.keys.intern(key);
        if key as usize == self.first_bucket.len() {
            self.first_bucket.push(NONE);
        }
        key
    }

    pub(super) fn add_user(&mut self, total: u32, user: User) {
        self.change_users(total, |users| users.add(user));
    }

    /// Adds a set of users to the users of a total.
    pub(super) fn unite_users(&mut self, total: u32, more: Users) {
        self.change_users(total, |users| {
            if users.is_empty() {
                *users = more;
            } else {
                users.union(&more);
            }
        });
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

    /// Takes the users out of a bucket.
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
            first_counter: NONE,
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
        let first = &mut buckets[bucket as usize].first_counter;
        counters.push(Counter {
            count: 0,
            bucket,
            value,
            next: *first,
        });
        *first = number;
        counter_table.insert_unique(hash, number, |&number| {
            hasher.hash_one(counters[number as usize].identity())
        });
        number
    }

    fn buckets_of(&self, total_key: &[u8]) -> impl Iterator<Item = &Bucket> {
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

    pub(super) fn counters_of(&self, bucket: &Bucket) -> impl Iterator<Item = &Counter> {
        let first = self.counters.get(bucket.first_counter as usize);
        std::iter::successors(first, |counter| self.counters.get(counter.next as usize))
    }

    fn bytes(&self) -> usize {
        self.keys.bytes()
            + self.values.bytes()
            + 4 * self.first_bucket.capacity()
            + size_of::<Bucket>() * self.buckets.capacity()
            + size_of::<Counter>() * self.counters.capacity()
            + 5 * (self.bucket_table.capacity() + self.counter_table.capacity()) * 8 / 7
            + self.users_bytes
            + size_of::<Users>() * self.users.capacity()
    }
}
