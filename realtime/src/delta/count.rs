//! Counts increments in a delta, many at once.
//!
//! Nearly all of the time goes to waiting for memory: each lookup falls somewhere into large tables. So a few dozen
//! increments take each step together. The lookups of one step do not depend on each other, and a processor waits for a
//! dozen of them about as long as for one. A table tells only a number: those of a step are all found before the first
//! bucket or counter is looked at.

use std::ops::Range;

use tallyring_records::{
    Increment, LongKeys, MINUTES, MISSING, Namespace, Schema, StoredTexts, TimeCode, User,
    dimensions, minute_value, shard_of,
};

use super::memory::{Delta, NONE};

/// Increments that take each step together: what is between the steps stays in the cache.
const TOGETHER: usize = 64;

impl Delta {
    /// Counts increments on every key they name and every subtotal those declare.
    ///
    /// Counts stay below 2^53 because the caller checks before it logs.
    pub fn add(&mut self, keys: &LongKeys, schema: &Schema, increments: &[&Increment]) {
        let mut stored = StoredTexts::new(keys);
        let mut steps = Steps::default();
        for increments in increments.chunks(TOGETHER) {
            steps.texts.clear();
            steps.name_totals(self, &mut stored, schema, increments);
            steps.number_keys(self);
            steps.count_totals(self);
            steps.name_values(self, &mut stored);
            steps.number_values(self);
            steps.find_buckets(self);
            steps.count_values(self);
        }
    }
}

/// What is between the steps.
#[derive(Default)]
struct Steps<'i> {
    /// Keys and values, one behind the other.
    texts: Vec<u8>,
    totals: Vec<Total<'i>>,
    values: Vec<Value>,
}

/// An increment of one key.
struct Total<'i> {
    increment: &'i Increment,
    namespace: &'i Namespace,
    shard: u16,
    /// `u|jehiah`.
    text: Range<usize>,
    code: TimeCode,
    /// Number of the key.
    key: u32,
    /// Number of the bucket, probably.
    bucket: u32,
}

/// What it adds to a value of a subtotal.
struct Value {
    shard: u16,
    key: u32,
    code: TimeCode,
    n: u64,
    /// 1 + number of the subtotal.
    subtotal: u16,
    text: Range<usize>,
    /// Number of the value.
    value: u32,
    /// Number of the bucket; until it is counted there, probably.
    bucket: u32,
    /// Number of the counter, probably.
    counter: u32,
}

impl<'i> Steps<'i> {
    fn name_totals(
        &mut self,
        delta: &mut Delta,
        stored: &mut StoredTexts<'_, 'i>,
        schema: &'i Schema,
        increments: &[&'i Increment],
    ) {
        self.totals.clear();
        let count = delta.shards().len();
        let count = u16::try_from(count).expect("BUG: shards are numbered in 16 bits");
        let lookups = delta.lookups_mut();
        let mut note = |hash: &str, raw: &str| lookups.note(hash, raw);
        for &increment in increments {
            for (name, raw) in &increment.keys {
                let Some(namespace) = schema.namespace(name) else {
                    continue;
                };
                let begin = self.texts.len();
                self.texts.extend_from_slice(name.as_bytes());
                self.texts.push(b'|');
                self.texts
                    .extend_from_slice(stored.of(raw, &mut note).as_bytes());
                let text = begin..self.texts.len();
                let shard = shard_of(&self.texts[text.clone()], count);
                self.totals.push(Total {
                    increment,
                    namespace,
                    shard,
                    text,
                    code: TimeCode::containing(increment.at, namespace.grain),
                    key: 0,
                    bucket: NONE,
                });
            }
        }
    }

    fn number_keys(&mut self, delta: &mut Delta) {
        let shards = delta.shards_mut();
        for total in &mut self.totals {
            let text = &self.texts[total.text.clone()];
            total.key = shards[usize::from(total.shard)].key_number(text);
        }
    }

    fn count_totals(&mut self, delta: &mut Delta) {
        let shards = delta.shards_mut();
        for total in &mut self.totals {
            let shard = &shards[usize::from(total.shard)];
            total.bucket = shard.likely_bucket((total.key, 0, total.code));
        }
        for total in &self.totals {
            let shard = &mut shards[usize::from(total.shard)];
            let bucket = shard.bucket((total.key, 0, total.code), total.bucket);
            shard.buckets[bucket as usize].count += total.increment.n;
            if let Some(user) = &total.increment.user
                && total.namespace.uniques
            {
                shard.add_user(bucket, User::new(user));
            }
        }
    }

    fn name_values(&mut self, delta: &mut Delta, stored: &mut StoredTexts<'_, 'i>) {
        self.values.clear();
        let (shards, lookups) = delta.parts_mut();
        let mut note = |hash: &str, raw: &str| lookups.note(hash, raw);
        for total in &self.totals {
            let shard = &mut shards[usize::from(total.shard)];
            let mut push = |subtotal: u16, text: Range<usize>| {
                self.values.push(Value {
                    shard: total.shard,
                    key: total.key,
                    code: total.code,
                    n: total.increment.n,
                    subtotal,
                    text,
                    value: 0,
                    bucket: NONE,
                    counter: NONE,
                });
            };
            for subtotal in &total.namespace.subtotals {
                let begin = self.texts.len();
                for (index, dimension) in dimensions(subtotal).enumerate() {
                    if index > 0 {
                        self.texts.push(b'*');
                    }
                    let raw = total.increment.value(dimension).unwrap_or(MISSING);
                    let stored = stored.of(raw, &mut note);
                    self.texts.extend_from_slice(stored.as_bytes());
                }
                push(
                    shard.subtotal_number(subtotal.as_bytes()),
                    begin..self.texts.len(),
                );
            }
            if total.namespace.minutes {
                let begin = self.texts.len();
                self.texts.extend(minute_value(total.increment.at));
                push(
                    shard.subtotal_number(MINUTES.as_bytes()),
                    begin..self.texts.len(),
                );
            }
        }
    }

    fn number_values(&mut self, delta: &mut Delta) {
        let shards = delta.shards_mut();
        for value in &mut self.values {
            let text = &self.texts[value.text.clone()];
            value.value = shards[usize::from(value.shard)].values.intern(text);
        }
    }

    fn find_buckets(&mut self, delta: &mut Delta) {
        let shards = delta.shards_mut();
        for value in &mut self.values {
            let shard = &shards[usize::from(value.shard)];
            value.bucket = shard.likely_bucket((value.key, value.subtotal, value.code));
        }
        for value in &mut self.values {
            let shard = &mut shards[usize::from(value.shard)];
            value.bucket = shard.bucket((value.key, value.subtotal, value.code), value.bucket);
            shard.buckets[value.bucket as usize].count += value.n;
        }
    }

    fn count_values(&mut self, delta: &mut Delta) {
        let shards = delta.shards_mut();
        for value in &mut self.values {
            let shard = &shards[usize::from(value.shard)];
            value.counter = shard.likely_counter((value.bucket, value.value));
        }
        for value in &self.values {
            let shard = &mut shards[usize::from(value.shard)];
            let counter = shard.counter((value.bucket, value.value), value.counter);
            shard.counters[counter as usize].count += value.n;
        }
    }
}
