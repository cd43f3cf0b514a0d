//! The last minute by the second, in bounded memory: the number that ticks.
//!
//! Keys of namespaces that keep minutes are counted by the second of the event, for the newest 60 seconds. Nothing goes
//! to disk. At most [`ENTRIES_MAX`] pairs of key and second are held (about 40 MB). Counts of further keys in a second
//! are dropped, and answers for that second say that they may be incomplete. Answers of the first minute after a start
//! say the same.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};
use tallyring_records::{Increment, LongKeys, Schema, add_capped, line};

use super::Live;

/// Seconds that a caller may ask for, at most.
pub const RECENT_SECONDS_MAX: usize = 60;

/// Room for every second that a caller may ask for, and for seconds by which another clock runs ahead.
const SLOTS: i64 = 64;
/// Seconds by which another clock may run ahead of ours.
const AHEAD_MAX: i64 = SLOTS - RECENT_SECONDS_MAX as i64;
const ENTRIES_MAX: usize = 1 << 20;

/// Counts of the last minute.
pub(super) struct Recent {
    slots: Vec<Slot>,
    /// Sum of the counts that came in each second, for all times and keys: the second, and the sum.
    arrived: Vec<(i64, u64)>,
    hasher: DefaultHashBuilder,
    entries: usize,
    /// First second that was counted from its beginning.
    since: i64,
    /// Namespaces that keep minutes only since a declaration of the last minute: the first second that is counted.
    declared: HashMap<String, i64>,
    /// Time of the clock at the last increment, Unix seconds.
    last_now: i64,
}

#[derive(Default)]
struct Slot {
    second: i64,
    /// Counts by 64 randomly keyed bits of the total key.
    counts: HashMap<u64, u64>,
    overflowed: bool,
}

/// Counts of one key by second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seconds {
    /// Counts of each second, oldest first; the last one is the current second.
    pub counts: Vec<u64>,
    /// False when counts may be missing.
    pub complete: bool,
}

impl Recent {
    /// Begins with nothing counted at `now` (Unix seconds).
    pub(super) fn new(now: i64) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            arrived: (0..SLOTS).map(|_| (i64::MIN, 0)).collect(),
            hasher: DefaultHashBuilder::default(),
            entries: 0,
            since: now.saturating_add(1),
            declared: HashMap::new(),
            last_now: now,
        }
    }

    /// Follows a declaration: the seconds of a namespace that had no minutes are counted from here on. Others keep
    /// theirs.
    pub(super) fn declare(&mut self, before: &Schema, after: &Schema) {
        let minutes = after.namespaces.iter().filter(|of| of.minutes);
        let (now, known) = (self.last_now, &self.declared);
        let declared = minutes.filter_map(|of| {
            let had_minutes = before.namespace(&of.name).is_some_and(|of| of.minutes);
            let since = match had_minutes {
                true => *known.get(&of.name)?,
                false => now.saturating_add(1),
            };
            // Every second that may be asked for is counted.
            let is_recent = since > now.saturating_sub(SLOTS);
            is_recent.then(|| (of.name.clone(), since))
        });
        self.declared = declared.collect();
    }

    /// Counts an increment that came at `now` (Unix seconds).
    pub(super) fn add(
        &mut self,
        keys: &LongKeys,
        schema: &Schema,
        increment: &Increment,
        now: i64,
    ) {
        self.arrive(increment.n, now);
        if self.last_now > now.saturating_add(AHEAD_MAX) {
            // The clock was ahead, and increments with true times were too old then.
            self.since = now.saturating_add(1);
        }
        self.last_now = now;
        let first = now.saturating_sub(RECENT_SECONDS_MAX as i64);
        if increment.at > now.saturating_add(AHEAD_MAX) || increment.at < first {
            return;
        }
        for (name, raw) in &increment.keys {
            if schema
                .namespace(name)
                .is_some_and(|namespace| namespace.minutes)
            {
                let key = self
                    .hasher
                    .hash_one(line::total_key(name, &keys.stored(raw)));
                self.count(key, increment.at, increment.n, now);
            }
        }
    }

    fn arrive(&mut self, n: u64, now: i64) {
        let index = usize::try_from(now.rem_euclid(SLOTS)).expect("BUG: a remainder");
        let (second, sum) = &mut self.arrived[index];
        if *second != now {
            (*second, *sum) = (now, 0);
        }
        add_capped(sum, n);
    }

    fn arrivals(&self, now: i64) -> [u64; RECENT_SECONDS_MAX] {
        let mut arrivals = [0; RECENT_SECONDS_MAX];
        let first = now.saturating_sub(arrivals.len() as i64);
        for (second, arrival) in (first..now).zip(&mut arrivals) {
            let index = usize::try_from(second.rem_euclid(SLOTS)).expect("BUG: a remainder");
            let (counted, sum) = self.arrived[index];
            *arrival = if counted == second { sum } else { 0 };
        }
        arrivals
    }

    fn count(&mut self, key: u64, second: i64, n: u64, now: i64) {
        let index = usize::try_from(second.rem_euclid(SLOTS)).expect("BUG: a remainder");
        let slot = &mut self.slots[index];
        // The clock was ahead: the earlier counts of this second are gone.
        let is_to_come = slot.second > now.saturating_add(AHEAD_MAX);
        if is_to_come {
            self.since = now.saturating_add(1);
        } else if slot.second > second {
            return;
        }
        if slot.second != second {
            self.entries -= slot.counts.len();
            *slot = Slot {
                second,
                ..Slot::default()
            };
        }
        if let Some(count) = slot.counts.get_mut(&key) {
            add_capped(count, n);
        } else if self.entries < ENTRIES_MAX {
            self.entries += 1;
            slot.counts.insert(key, n);
        } else {
            slot.overflowed = true;
        }
    }

    fn read_of(&self, namespace: &str, total_key: &str, seconds: usize, now: i64) -> Seconds {
        let mut found = self.read(total_key, seconds, now);
        let first = now.saturating_sub(i64::try_from(seconds).unwrap_or(SLOTS)) + 1;
        let since = self.declared.get(namespace);
        found.complete &= since.is_none_or(|since| *since <= first);
        found
    }

    fn read(&self, total_key: &str, seconds: usize, now: i64) -> Seconds {
        let key = self.hasher.hash_one(total_key);
        let first = now.saturating_sub(i64::try_from(seconds).unwrap_or(SLOTS)) + 1;
        let mut found = Seconds {
            counts: Vec::with_capacity(seconds),
            complete: self.since <= first,
        };
        for second in first..=now {
            let index = usize::try_from(second.rem_euclid(SLOTS)).expect("BUG: a remainder");
            let slot = &self.slots[index];
            let is_kept = slot.second == second;
            let count = slot.counts.get(&key).filter(|_| is_kept);
            // Where the clock was ahead, a later second took the slot.
            let is_known = slot.second < second || is_kept && !slot.overflowed;
            found.complete &= count.is_some() || is_known;
            found.counts.push(count.copied().unwrap_or(0));
        }
        found
    }
}

impl Live {
    /// Sum of the increments that came in each of the last 60 whole seconds before `now` (Unix seconds), oldest first.
    /// Each increment counts once, whatever its keys.
    pub fn arrivals(&self, now: i64) -> [u64; RECENT_SECONDS_MAX] {
        let recent = self.recent.read();
        recent.arrivals(now)
    }

    /// Counts of a key in the last `seconds` seconds up to `now` (Unix seconds), at most [`RECENT_SECONDS_MAX`]. The
    /// namespace keeps minutes.
    pub fn last_seconds(&self, namespace: &str, key: &str, seconds: usize, now: i64) -> Seconds {
        let total_key = line::total_key(namespace, &self.keys.stored(key));
        let seconds = seconds.min(RECENT_SECONDS_MAX);
        let recent = self.recent.read();
        recent.read_of(namespace, &total_key, seconds, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_slide_and_old_ones_make_room() {
        let mut recent = Recent::new(1_000);
        for (second, n) in [(1_001, 2), (1_001, 3), (1_002, 1), (1_060, 7)] {
            recent.count(recent.hasher.hash_one("a"), second, n, second);
        }
        let read = |recent: &Recent, seconds, now| recent.read("a", seconds, now);
        assert_eq!(read(&recent, 2, 1_002).counts, [5, 1]);
        assert!(read(&recent, 2, 1_002).complete);
        assert!(
            !read(&recent, 3, 1_002).complete,
            "the server began in the second 1,000"
        );
        let minute = read(&recent, 60, 1_060);
        assert_eq!((minute.counts[0], minute.counts[59]), (5, 7));
        assert_eq!(minute.counts.iter().sum::<u64>(), 13);
        // 64 seconds later the slot is used again, and an increment for its first second is too old.
        recent.count(recent.hasher.hash_one("b"), 1_065, 1, 1_065);
        recent.count(recent.hasher.hash_one("a"), 1_001, 1, 1_065);
        assert_eq!(recent.read("b", 1, 1_065).counts, [1]);
        assert_eq!(recent.entries, 3);
    }

    #[test]
    fn a_clock_that_runs_a_little_ahead_is_counted_when_its_second_comes() {
        let (mut recent, keys) = (Recent::new(1_000), LongKeys::new([7; 32]));
        let mut schema = Schema::default_clicks();
        schema.namespaces[0].minutes = true;
        let name = schema.namespaces[0].name.clone();
        for (at, n) in [(1_003, 5), (1_004, 2), (1_000 + AHEAD_MAX + 1, 9)] {
            let increment = Increment::new(at, n, [(&*name, "a".to_owned())]);
            recent.add(&keys, &schema, &increment, 1_000);
        }
        let key = line::total_key(&name, "a");
        assert_eq!(recent.read(&key, 3, 1_003).counts, [0, 0, 5]);
        assert_eq!(recent.read(&key, 3, 1_005).counts, [5, 2, 0]);
    }

    #[test]
    fn a_declaration_forgets_no_second_of_other_namespaces() {
        let (mut recent, keys) = (Recent::new(1_000), LongKeys::new([7; 32]));
        let mut before = Schema::default_clicks();
        before.namespaces[0].minutes = true;
        let mut after = before.clone();
        after.namespaces[1].minutes = true;
        let names = [0, 1].map(|index| &*after.namespaces[index].name);
        let count = |recent: &mut Recent, schema: &Schema, at: i64| {
            let increment = Increment::new(at, 1, names.map(|name| (name, "a")));
            recent.add(&keys, schema, &increment, at);
        };
        let read = |recent: &Recent, name: &str, seconds, now| {
            let found = recent.read_of(name, &line::total_key(name, "a"), seconds, now);
            (found.counts.iter().sum::<u64>(), found.complete)
        };
        count(&mut recent, &before, 1_001);
        recent.declare(&before, &after);
        count(&mut recent, &after, 1_002);
        assert_eq!(read(&recent, names[0], 2, 1_002), (2, true));
        assert_eq!(read(&recent, names[1], 2, 1_002), (1, false));
        assert_eq!(read(&recent, names[1], 1, 1_002), (1, true));
        // Another declaration keeps what is known of both.
        recent.declare(&after, &after);
        assert_eq!(read(&recent, names[1], 2, 1_002), (1, false));
        count(&mut recent, &after, 1_070);
        assert_eq!(read(&recent, names[1], 60, 1_070), (1, true));
        recent.declare(&after, &after);
        assert!(recent.declared.is_empty());
    }

    #[test]
    fn a_clock_that_was_ahead_leaves_no_zero_that_is_not_true() {
        let mut recent = Recent::new(1_000);
        let key = recent.hasher.hash_one("a");
        for second in 1_300..1_364 {
            recent.count(key, second, 1, second);
        }
        assert!(
            !recent.read("a", 60, 1_100).complete,
            "earlier counts are gone"
        );
        recent.count(key, 1_100, 5, 1_100);
        assert!(
            !recent.read("a", 1, 1_100).complete,
            "only a part of the second was counted"
        );
        recent.count(key, 1_101, 7, 1_101);
        let read = recent.read("a", 1, 1_101);
        assert_eq!((read.counts, read.complete), (vec![7], false));
        for second in 1_102..1_165 {
            recent.count(key, second, 2, second);
        }
        let read = recent.read("a", 60, 1_164);
        assert_eq!((read.counts, read.complete), (vec![2; 60], false));
        recent.count(key, 1_165, 3, 1_165);
        assert!(recent.read("a", 1, 1_165).complete);
    }

    #[test]
    fn arrivals_are_those_of_whole_seconds() {
        let mut recent = Recent::new(1_000);
        for (now, n) in [(1_000, 1), (1_000, 2), (1_059, 4), (1_060, 8)] {
            recent.arrive(n, now);
        }
        let minute = recent.arrivals(1_060);
        assert_eq!((minute[0], minute[59]), (3, 4));
        assert_eq!(minute.iter().sum::<u64>(), 7);
        assert_eq!(recent.arrivals(1_061).iter().sum::<u64>(), 12);
        assert_eq!(recent.arrivals(2_000).iter().sum::<u64>(), 0);
    }

    #[test]
    fn memory_is_bounded_and_missing_counts_are_reported() {
        let mut recent = Recent::new(0);
        for key in 0..ENTRIES_MAX as u64 + 10 {
            recent.count(key, 1_001, 1, 1_001);
        }
        assert_eq!(recent.entries, ENTRIES_MAX);
        assert!(!recent.read("new", 1, 1_001).complete);
        recent.count(0, 1_002, 1, 1_002);
        assert_eq!(recent.entries, ENTRIES_MAX);
        recent.count(0, 1_065, 1, 1_065);
        assert_eq!(recent.entries, 1, "the full second made room");
    }
}
