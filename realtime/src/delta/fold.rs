//! Folds one delta into another, a few counters at a time.
//!
//! Invariant: between steps the two deltas together count every increment exactly once, and each of them has the text
//! behind every hash that it uses. A fold that is given up begins again later: moved counts are no longer in the
//! source.

use super::memory::{Delta, NONE, Shard};

/// How far one delta has been moved into another.
#[derive(Default)]
pub(super) struct Fold {
    /// Number of moved lookups; all lookups move before the first bucket.
    lookups: usize,
    shard: usize,
    bucket: usize,
    /// Number of moved lists of actions; all of a shard's buckets move before the first list.
    list: u32,
    map: ShardMap,
    /// Numbers in the target of what users did, by number in the source; [`NONE`] where not asked for yet.
    whats: Vec<u32>,
}

/// Numbers in the target shard, by number in the source shard; [`NONE`] where not asked for yet.
#[derive(Default)]
struct ShardMap {
    keys: Vec<u32>,
    values: Vec<u32>,
    /// As buckets have them: 1 + number.
    subtotals: Vec<u32>,
    buckets: Vec<Moving>,
    /// Counts of values on their way.
    counters: Vec<MovingCounter>,
    /// Minutes of a list on their way. They move oldest first, because a list takes what is newer at its beginning.
    minutes: Vec<(u8, u64)>,
}

/// A bucket on its way.
struct Moving {
    /// Number of the bucket in the source.
    number: usize,
    /// Key of the bucket in the target.
    key: u32,
    subtotal: u16,
    /// Bucket in the target that takes the counts.
    target: u32,
}

/// A count of a value on its way.
struct MovingCounter {
    /// Index of the bucket among those on their way.
    bucket: usize,
    /// Number of the value in the target.
    value: u32,
    count: u64,
    /// First minute in the source.
    minute: u32,
}

/// Counters that are moved together, so that they wait for memory together ([`super::count`]).
const TOGETHER: usize = 128;
/// Buckets that are looked at together; most of them may have been moved before.
const SCANNED_MAX: usize = 16 * TOGETHER;

impl Fold {
    /// Moves about `counters` lookups and counters of `from` into `to`, which has as many shards. Returns false once
    /// nothing is left. Both deltas are those of the steps before.
    pub(super) fn step(&mut self, from: &mut Delta, to: &mut Delta, counters: usize) -> bool {
        let mut moved = 0;
        while moved < counters {
            let left = from.lookups().len() - self.lookups;
            if left > 0 {
                let taken = self.lookups..self.lookups + left.min(counters - moved);
                (moved, self.lookups) = (moved + taken.len(), taken.end);
                to.lookups_mut().take(from.lookups(), taken);
                continue;
            }
            let (shards, _, from_whats) = from.parts_mut();
            let Some(shard) = shards.get_mut(self.shard) else {
                return false;
            };
            let (to, _, to_whats) = to.parts_mut();
            let to = &mut to[self.shard];
            if self.bucket == 0 {
                self.map = ShardMap::of(shard);
            }
            if self.bucket == shard.buckets.len() {
                self.whats.resize(from_whats.len(), NONE);
                let mut number = |what| {
                    number_in_target(&mut self.whats, what, |what| {
                        to_whats.intern(from_whats.get(what))
                    })
                };
                let into = &mut to.actions;
                if let Some(actions) = shard.actions.move_list(self.list, into, &mut number) {
                    self.list += 1;
                    moved += 1 + actions;
                    continue;
                }
                self.shard += 1;
                (self.bucket, self.list) = (0, 0);
                // Beginning a shard is work, even if the shard is empty.
                moved += 1;
                continue;
            }
            let wanted = (counters - moved).min(TOGETHER);
            let (buckets, counters) = self.map.take(shard, self.bucket, to, wanted);
            self.bucket += buckets;
            moved += counters;
        }
        true
    }
}

impl ShardMap {
    fn of(shard: &Shard) -> Self {
        Self {
            keys: vec![NONE; shard.keys.len()],
            values: vec![NONE; shard.values.len()],
            subtotals: vec![NONE; shard.subtotals.len()],
            ..Self::default()
        }
    }

    /// Moves buckets from number `first` on, with about `wanted` counters. Returns the numbers of moved buckets and of
    /// moved buckets, counters and minutes together.
    fn take(
        &mut self,
        from: &mut Shard,
        first: usize,
        to: &mut Shard,
        wanted: usize,
    ) -> (usize, usize) {
        self.buckets.clear();
        self.counters.clear();
        let mut end = first;
        for number in first..from.buckets.len() {
            if self.buckets.len() + self.counters.len() >= wanted || number - first >= SCANNED_MAX {
                break;
            }
            end = number + 1;
            if from.buckets[number].count > 0 {
                self.stage(from, number, to);
            }
        }
        for moving in &mut self.buckets {
            let bucket = &from.buckets[moving.number];
            let wanted = (moving.key, moving.subtotal, bucket.code());
            moving.target = to.bucket(wanted, NONE);
            to.buckets[moving.target as usize].count += bucket.count;
        }
        let mut minutes = 0;
        for moving in &self.counters {
            let bucket = &self.buckets[moving.bucket];
            let into = to.counter((bucket.target, moving.value), NONE);
            to.counters[into as usize].count += moving.count;
            let code = from.buckets[bucket.number].code();
            let newest_first = from.breakdowns.of(code, moving.minute);
            self.minutes.extend(newest_first);
            minutes += self.minutes.len();
            while let Some((minute, count)) = self.minutes.pop() {
                to.count_value_minute(into, code, minute, count);
            }
        }
        for moving in &self.buckets {
            let bucket = from.buckets[moving.number];
            if let Some(users) = from.take_users(moving.number) {
                to.unite_users(moving.target, users);
            }
            if moving.subtotal == 0 {
                self.minutes.extend(from.minutes.of(bucket.first));
                minutes += self.minutes.len();
                while let Some((minute, count)) = self.minutes.pop() {
                    to.count_minute(moving.target, minute, count);
                    if let Some(users) = from
                        .breakdowns
                        .take_users(bucket.code(), (bucket.users, minute))
                    {
                        to.unite_users_of_minute(moving.target, minute, users);
                    }
                }
            }
            // Reads ignore a bucket without a count.
            let bucket = &mut from.buckets[moving.number];
            (bucket.count, bucket.first) = (0, NONE);
        }
        let buckets = end - first;
        (buckets, buckets + self.counters.len() + minutes)
    }

    /// Notes a bucket to move, and finds the numbers of its texts in the target.
    fn stage(&mut self, from: &Shard, number: usize, to: &mut Shard) {
        let bucket = &from.buckets[number];
        let key = number_in_target(&mut self.keys, bucket.key, |number| {
            to.key_number(from.keys.get(number))
        });
        let subtotal = bucket.subtotal.checked_sub(1).map_or(0, |number| {
            number_in_target(&mut self.subtotals, number.into(), |number| {
                to.subtotal_number(from.subtotals.get(number)).into()
            })
        });
        let staged = self.buckets.len();
        for counter in from.counters_of(bucket) {
            let values = &mut to.values;
            let value = number_in_target(&mut self.values, counter.value, |number| {
                values.intern(from.values.get(number))
            });
            self.counters.push(MovingCounter {
                bucket: staged,
                value,
                count: counter.count,
                minute: counter.minute,
            });
        }
        self.buckets.push(Moving {
            number,
            key,
            subtotal: u16::try_from(subtotal).expect("BUG: a subtotal's number has 16 bits"),
            target: NONE,
        });
    }
}

fn number_in_target(map: &mut [u32], number: u32, find: impl FnOnce(u32) -> u32) -> u32 {
    let target = &mut map[number as usize];
    if *target == NONE {
        *target = find(number);
    }
    *target
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tallyring_records::{
        Event, EventType, Grain, Increment, LongKeys, Namespace, Schema, TimeCode, is_hash,
    };

    use super::super::memory::Form;
    use super::*;

    const FORM: Form = Form {
        shards: 3,
        breakdowns: true,
    };

    type Points = BTreeMap<(String, Option<String>, TimeCode), u64>;

    fn schema() -> Schema {
        let namespace = |name: &str| Namespace {
            name: name.into(),
            title: String::new(),
            grain: Grain::Hour,
            subtotals: vec!["c".into(), "c*r".into()],
            minutes: true,
            uniques: true,
        };
        Schema {
            namespaces: vec![namespace("l"), namespace("l_tap")],
            events: vec![EventType {
                name: "tap".into(),
                entities: vec!["l".into()],
                lateness_seconds: 0,
                actions: true,
            }],
            ratios: Vec::new(),
            filters: Vec::new(),
            lists: Vec::new(),
            titles: BTreeMap::new(),
            settings: BTreeMap::new(),
        }
    }

    fn points(deltas: &[&Delta]) -> Points {
        let mut points = Points::new();
        for delta in deltas {
            delta.points(&mut |key, value, code, count| {
                *points.entry((key, value, code)).or_default() += count;
            });
        }
        points
    }

    fn estimates(deltas: &[&Delta], keys: &LongKeys, raw: &str) -> BTreeMap<TimeCode, u64> {
        let mut all: BTreeMap<TimeCode, tallyring_records::Users> = BTreeMap::new();
        let key = format!("l|{}", keys.stored(raw));
        for delta in deltas {
            for minutes in [false, true] {
                delta.users(key.as_bytes(), minutes, &mut |code, users| {
                    all.entry(code).or_default().union(users);
                });
            }
        }
        all.into_iter()
            .map(|(code, users)| (code, users.estimate()))
            .collect()
    }

    fn click() -> impl Strategy<Value = Increment> {
        let key = prop_oneof![Just("a"), Just("b"), Just("a long key with spaces")];
        let value = prop_oneof![Just("US"), Just("-"), Just("http://referrer.example/")];
        (key, value, 0..4_i64, 1..9_u64, 0..5_u8).prop_map(|(key, value, time, n, user)| {
            Increment {
                by: vec![("c".into(), value.into())],
                user: (user > 0).then(|| format!("u{user}")),
                event: (user > 1).then(|| {
                    Box::new(Event {
                        kind: "tap".into(),
                        view: None,
                        correction: false,
                    })
                }),
                ..Increment::new(
                    1_331_923_200 + time * 1_800,
                    n,
                    [("l", key), ("l_tap", key)],
                )
            }
        })
    }

    proptest! {
        #[test]
        fn prop_nothing_is_missed_or_counted_twice_at_any_step(
            first in proptest::collection::vec(click(), 0..20),
            second in proptest::collection::vec(click(), 0..20),
            width in 1..8_usize,
            given_up in 0..30_u32,
        ) {
            let (keys, schema) = (LongKeys::new([7; 32]), schema());
            let count = |clicks: &[&[Increment]]| {
                let mut delta = Delta::new(FORM);
                for clicks in clicks {
                    delta.add(&keys, &schema, &clicks.iter().collect::<Vec<_>>());
                }
                delta
            };
            let both = count(&[&first, &second]);
            let mut to = count(&[&first]);
            let mut from = count(&[&second]);
            let mut fold = Fold::default();
            let mut steps = 0;
            loop {
                let now = [&to, &from];
                prop_assert_eq!(points(&now), points(&[&both]));
                // A delta that counts nothing is dropped.
                prop_assert_eq!(from.is_empty(), points(&[&from]).is_empty());
                for delta in now {
                    for (key, value, _) in points(&[delta]).into_keys() {
                        let values = value.iter().flat_map(|value| value.split('*'));
                        for hash in key.split('|').skip(1).chain(values).filter(|text| is_hash(text)) {
                            let raw = delta.lookups().get(hash.as_bytes());
                            prop_assert!(raw.is_some(), "{} of {}", hash, key);
                        }
                    }
                }
                for key in ["a", "a long key with spaces"] {
                    prop_assert_eq!(estimates(&now, &keys, key), estimates(&[&both], &keys, key));
                }
                if !fold.step(&mut from, &mut to, width) {
                    break;
                }
                if steps == given_up {
                    fold = Fold::default();
                }
                steps += 1;
                prop_assert!(steps < 10_000);
            }
            prop_assert_eq!(points(&[&to]), points(&[&both]));
            prop_assert_eq!(to.counters(), both.counters());
            let hash = keys.stored("a long key with spaces");
            prop_assert_eq!(to.lookups().get(hash.as_bytes()), both.lookups().get(hash.as_bytes()));
        }
    }
}
