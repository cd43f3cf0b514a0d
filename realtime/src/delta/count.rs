//! Counts increments in a delta, many at once.
//!
//! Nearly all of the time goes to waiting for memory: each lookup falls somewhere into large tables. So a few dozen
//! increments take each step together. The lookups of one step do not depend on each other, and a processor waits for a
//! dozen of them about as long as for one. A table only yields a number, so all numbers of a step are found before the
//! first bucket or counter is read.

use std::ops::Range;
use std::sync::PoisonError;

use rayon::prelude::*;
use tallyring_records::{
    Day, Increment, LongKeys, MISSING, Namespace, Schema, StoredTexts, TimeCode, User, UserKey,
    dimensions, insertion_tag, minute_of_hour, shard_of,
};

use super::actions::Done;
use super::lookups::Lookups;
use super::memory::{Delta, NONE, Shard};
use crate::sync::Mutex;

/// Increments that take each step together, so that the state between the steps stays in the cache.
const TOGETHER: usize = 64;

impl Delta {
    /// Counts increments on every key that they name, and on every subtotal that those keys declare.
    ///
    /// Counts stay below 2^53 because the caller checks them before it logs an increment.
    pub(crate) fn add(&mut self, keys: &LongKeys, schema: &Schema, increments: &[&Increment]) {
        let of = self.shard_count();
        let (shards, lookups, whats) = self.parts_mut();
        let mut part = Part {
            shards,
            first: 0,
            of,
            lookups,
            number_what: &mut |what| whats.intern(what),
        };
        part.add(keys, schema, increments);
    }

    /// Counts increments as [`Delta::add`] does, with the shards divided among the threads of the current pool. It is
    /// for very many increments, because each thread looks at all of them.
    pub(crate) fn add_by_all(
        &mut self,
        keys: &LongKeys,
        schema: &Schema,
        increments: &[&Increment],
    ) {
        let of = self.shard_count();
        let each = of.div_ceil(u16::try_from(rayon::current_num_threads()).unwrap_or(of));
        let (shards, lookups, whats) = self.parts_mut();
        let shared = Mutex::new(std::mem::take(whats));
        let parts = shards
            .par_chunks_mut(each.into())
            .zip((0..of).into_par_iter().step_by(each.into()));
        let noted = parts.map(|(shards, first)| {
            let mut lookups = Lookups::default();
            let mut part = Part {
                shards,
                first,
                of,
                lookups: &mut lookups,
                number_what: &mut |what| {
                    let whats = shared.lock();
                    whats.unwrap_or_else(PoisonError::into_inner).intern(what)
                },
            };
            part.add(keys, schema, increments);
            lookups
        });
        for noted in noted.collect::<Vec<_>>() {
            lookups.take(&noted, 0..noted.len());
        }
        *whats = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    }
}

/// Adjacent shards of a delta.
struct Part<'d> {
    shards: &'d mut [Shard],
    /// Number of the first of these shards.
    first: u16,
    /// Number of shards of the delta.
    of: u16,
    /// Takes the texts behind hashes.
    lookups: &'d mut Lookups,
    /// Tells the number of what a user did.
    number_what: &'d mut dyn FnMut(&[u8]) -> u32,
}

impl Part<'_> {
    fn add(&mut self, keys: &LongKeys, schema: &Schema, increments: &[&Increment]) {
        let mut stored = StoredTexts::new(keys);
        let mut steps = Steps::default();
        // Chunks have about [`TOGETHER`] increments for these shards.
        for increments in increments.chunks(TOGETHER * usize::from(self.of) / self.shards.len()) {
            steps.texts.clear();
            steps.name_totals(self, &mut stored, schema, increments);
            steps.number_keys(self.shards);
            steps.count_totals(self.shards);
            steps.name_values(self, &mut stored);
            steps.number_values(self.shards);
            steps.find_buckets(self.shards);
            steps.count_values(self.shards);
            self.note_actions(keys, schema, increments);
        }
    }

    /// Adds what users did to the lists of these users.
    fn note_actions(&mut self, keys: &LongKeys, schema: &Schema, increments: &[&Increment]) {
        if !schema.keeps_actions() {
            return;
        }
        let mut what = Vec::new();
        for increment in increments {
            let Some(event) = &increment.event else {
                continue;
            };
            let kind = schema.event_type(&event.kind).filter(|kind| kind.actions);
            let (Some(kind), Some(user)) = (kind, &increment.user) else {
                continue;
            };
            let user = UserKey::of(keys, user);
            let Some(shard) = self.index(user.crc().shard(self.of)) else {
                continue;
            };
            what.clear();
            kind.write_action(keys, increment, &mut what);
            let day = Day::of(increment.at);
            let insertion = increment
                .details
                .as_ref()
                .and_then(|details| details.insertion.as_deref());
            let done = Done {
                second: (increment.at - day.start()) as u32,
                by_hour: false,
                what: (self.number_what)(&what),
                tag: insertion.map(|insertion| insertion_tag(keys, insertion)),
            };
            self.shards[usize::from(shard)]
                .actions
                .add((user, day), done, increment.n);
        }
    }

    /// Index of a shard among these; none for a shard of another part.
    fn index(&self, shard: u16) -> Option<u16> {
        let index = shard.checked_sub(self.first)?;
        (usize::from(index) < self.shards.len()).then_some(index)
    }
}

/// State between the steps.
#[derive(Default)]
struct Steps<'i> {
    /// Keys and values, one behind the other.
    texts: Vec<u8>,
    totals: Vec<Total<'i>>,
    values: Vec<Value>,
}

/// One key of an increment.
struct Total<'i> {
    increment: &'i Increment,
    namespace: &'i Namespace,
    /// Index of the key's shard.
    shard: u16,
    /// The total key, `u|jehiah`.
    text: Range<usize>,
    code: TimeCode,
    /// Number of the key.
    key: u32,
    /// Likely number of the bucket.
    bucket: u32,
}

/// The contribution of an increment to a value of a subtotal.
struct Value {
    shard: u16,
    key: u32,
    code: TimeCode,
    n: u64,
    /// The minute of the hour to count in, too.
    minute: Option<u8>,
    /// 1 + the number of the subtotal.
    subtotal: u16,
    text: Range<usize>,
    /// Number of the value.
    value: u32,
    /// Number of the bucket; the likely number until the increment is counted there.
    bucket: u32,
    /// Likely number of the counter.
    counter: u32,
}

impl<'i> Steps<'i> {
    fn name_totals(
        &mut self,
        part: &mut Part<'_>,
        stored: &mut StoredTexts<'_, 'i>,
        schema: &'i Schema,
        increments: &[&'i Increment],
    ) {
        self.totals.clear();
        for &increment in increments {
            for (name, raw) in &increment.keys {
                let Some(namespace) = schema.counted(name) else {
                    continue;
                };
                let begin = self.texts.len();
                self.texts.extend_from_slice(name.as_bytes());
                self.texts.push(b'|');
                let key = stored.of(raw, &mut |hash, raw| part.lookups.note(hash, raw));
                self.texts.extend_from_slice(key.as_bytes());
                let text = begin..self.texts.len();
                let Some(shard) = part.index(shard_of(&self.texts[text.clone()], part.of)) else {
                    self.texts.truncate(begin);
                    continue;
                };
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

    fn number_keys(&mut self, shards: &mut [Shard]) {
        for total in &mut self.totals {
            let text = &self.texts[total.text.clone()];
            total.key = shards[usize::from(total.shard)].key_number(text);
        }
    }

    fn count_totals(&mut self, shards: &mut [Shard]) {
        for total in &mut self.totals {
            let shard = &shards[usize::from(total.shard)];
            total.bucket = shard.likely_bucket((total.key, 0, total.code));
        }
        for total in &self.totals {
            let shard = &mut shards[usize::from(total.shard)];
            let bucket = shard.bucket((total.key, 0, total.code), total.bucket);
            shard.buckets[bucket as usize].count += total.increment.n;
            let minute = total.minute();
            if let Some(minute) = minute {
                shard.count_minute(bucket, minute, total.increment.n);
            }
            // Users by minute go with the values by minute.
            let minute = minute.filter(|_| !total.namespace.subtotals.is_empty());
            if let Some(user) = &total.increment.user
                && total.namespace.uniques
            {
                shard.add_user(bucket, minute, User::new(user));
            }
        }
    }

    fn name_values(&mut self, part: &mut Part<'_>, stored: &mut StoredTexts<'_, 'i>) {
        self.values.clear();
        let mut note = |hash: &str, raw: &str| part.lookups.note(hash, raw);
        for total in &self.totals {
            let shard = &mut part.shards[usize::from(total.shard)];
            let minute = total.minute();
            let minute = minute.filter(|_| shard.breakdowns.keeps(total.code));
            for subtotal in &total.namespace.subtotals {
                let begin = self.texts.len();
                for (number, dimension) in dimensions(subtotal).enumerate() {
                    if number > 0 {
                        self.texts.push(b'*');
                    }
                    let raw = total.increment.value(dimension).unwrap_or(MISSING);
                    let stored = stored.of(raw, &mut note);
                    self.texts.extend_from_slice(stored.as_bytes());
                }
                self.values.push(Value {
                    shard: total.shard,
                    key: total.key,
                    code: total.code,
                    n: total.increment.n,
                    minute,
                    subtotal: shard.subtotal_number(subtotal.as_bytes()),
                    text: begin..self.texts.len(),
                    value: 0,
                    bucket: NONE,
                    counter: NONE,
                });
            }
        }
    }

    fn number_values(&mut self, shards: &mut [Shard]) {
        for value in &mut self.values {
            let text = &self.texts[value.text.clone()];
            value.value = shards[usize::from(value.shard)].values.intern(text);
        }
    }

    fn find_buckets(&mut self, shards: &mut [Shard]) {
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

    fn count_values(&mut self, shards: &mut [Shard]) {
        for value in &mut self.values {
            let shard = &shards[usize::from(value.shard)];
            value.counter = shard.likely_counter((value.bucket, value.value));
        }
        for value in &self.values {
            let shard = &mut shards[usize::from(value.shard)];
            let counter = shard.counter((value.bucket, value.value), value.counter);
            shard.counters[counter as usize].count += value.n;
            if let Some(minute) = value.minute {
                shard.count_value_minute(counter, value.code, minute, value.n);
            }
        }
    }
}

impl Total<'_> {
    /// The minute of the hour to count in, where the namespace keeps minutes.
    fn minute(&self) -> Option<u8> {
        let keeps = self.namespace.minutes;
        keeps.then(|| minute_of_hour(self.increment.at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use rayon::ThreadPoolBuilder;
    use tallyring_records::Grain;

    use super::super::memory::Form;
    use super::*;

    fn schema() -> Schema {
        let namespace = |name: &str, grain| Namespace {
            name: name.into(),
            title: String::new(),
            grain,
            subtotals: vec!["c".into(), "c*r".into()],
            minutes: true,
            uniques: true,
        };
        Schema {
            namespaces: vec![namespace("l", Grain::Hour), namespace("d", Grain::Day)],
            events: Vec::new(),
            ratios: Vec::new(),
            filters: Vec::new(),
            lists: Vec::new(),
            titles: BTreeMap::new(),
            settings: BTreeMap::new(),
        }
    }

    /// All content of a delta: its counters in order, and the texts behind their hashes.
    fn content(delta: &Delta, raws: &[&str], keys: &LongKeys) -> String {
        let mut points = Vec::new();
        delta.points(&mut |key, value, code, count| points.push((key, value, code, count)));
        points.sort();
        let mut content = format!("{points:?}");
        for raw in raws {
            let stored = keys.stored(raw);
            let text = delta.lookups().get(stored.as_bytes());
            for minutes in [false, true] {
                delta.users(
                    format!("l|{stored}").as_bytes(),
                    minutes,
                    &mut |code, users| {
                        content.push_str(&format!("\n{stored} {code} {}", users.estimate()));
                    },
                );
            }
            content.push_str(&format!("\n{stored} {text:?}"));
        }
        content
    }

    proptest! {
        #[test]
        fn prop_threads_that_divide_the_shards_count_as_one_does(
            clicks in proptest::collection::vec((0..5_usize, 0..5_usize, 0..40_i64, 1..9_u64, 0..4_u8), 0..300),
            shards in 1..20_u16,
            threads in 1..6_usize,
        ) {
            let raws = ["a", "b", "c", "a long key with spaces", "http://referrer.example/of/a/page?long"];
            let increments = clicks.iter().map(|&(key, value, hour, n, user)| Increment {
                by: vec![("c".into(), "US".into()), ("r".into(), raws[value].into())],
                user: (user > 0).then(|| format!("u{user}")),
                ..Increment::new(1_331_923_200 + hour * 1_800, n, [("l", raws[key]), ("d", raws[value])])
            });
            let increments: Vec<_> = increments.collect();
            let increments: Vec<_> = increments.iter().collect();
            let (keys, schema) = (LongKeys::new([7; 32]), schema());
            let form = Form { shards, breakdowns: true };
            let mut by_one = Delta::new(form);
            by_one.add(&keys, &schema, &increments);
            let mut by_all = Delta::new(form);
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| by_all.add_by_all(&keys, &schema, &increments));
            prop_assert_eq!(content(&by_all, &raws, &keys), content(&by_one, &raws, &keys));
            prop_assert_eq!(by_all.lookups().len(), by_one.lookups().len());
            prop_assert_eq!(by_all.counters(), by_one.counters());
        }
    }
}
