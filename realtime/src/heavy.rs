//! The heaviest keys of each namespace and hour, in fixed memory. The estimate of a key is never below its count.
//!
//! The algorithm is Space-Saving by halves: an hour holds up to twice [`KEPT_MAX`] keys. Once it is full, the lighter
//! half is dropped, and the largest estimate among the dropped keys becomes the hour's `floor`.
//!
//! Invariants: a held key was counted at most `count + missed` times. A key that is not held was counted at most
//! `floor` times. `floor` ≤ sum / kept: whenever the floor rises by d, the lead of each kept key over the floor shrinks
//! by d, and leads are made of counts.
//!
//! Three days of hours are held. All of it together takes at most [`BYTES_MAX`], whatever the number of keys.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use tallyring_records::{Day, HASH_CHARS, TimeCode};

/// Keys of an hour that stay when the lighter half is dropped, at most.
const KEPT_MAX: usize = 448;
const KEPT_MIN: usize = 16;
/// Memory of all hours, bytes.
const BYTES_MAX: usize = 64 << 20;
/// Number of hours of yesterday, today and tomorrow.
const HOURS: usize = 72;
const HOUR: i64 = 3_600;
/// Memory of one kept key: its entry in a table that is at most seven eighths full, doubled for the half that is
/// dropped.
const BYTES_EACH: usize = (size_of::<(StoredKey, Estimate)>() + 1) * 2 * 8 / 7;

/// A key in its stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StoredKey {
    bytes: [u8; HASH_CHARS],
    length: u8,
}

impl StoredKey {
    /// Returns none when `stored` is longer than a stored key may be.
    fn new(stored: &[u8]) -> Option<Self> {
        let mut bytes = [0; HASH_CHARS];
        bytes.get_mut(..stored.len())?.copy_from_slice(stored);
        let length = u8::try_from(stored.len()).ok()?;
        Some(Self { bytes, length })
    }

    /// The stored form.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The heavy keys of every namespace.
pub(crate) struct Heavy {
    kept: usize,
    /// Yesterday's label of the ring: the first of the three days.
    first: Day,
    /// Earlier hours may lack counts: the ring lagged behind the clock, and these hours were not held when the counts
    /// came.
    unheld_until: i64,
    /// Hours by their start. A view shares the hours that it ranks.
    namespaces: HashMap<String, BTreeMap<i64, Arc<Hour>>>,
}

/// The keys of one hour.
#[derive(Clone, Default)]
struct Hour {
    sum: u64,
    floor: u64,
    held: HashMap<StoredKey, Estimate>,
}

/// The estimate of one key.
#[derive(Clone, Copy)]
struct Estimate {
    count: u64,
    /// Counts that the key may have had before it was held, at most.
    missed: u64,
}

impl Estimate {
    fn at_most(self) -> u64 {
        self.count.saturating_add(self.missed)
    }
}

/// The hours of one namespace, shared with [`Heavy`].
pub(crate) struct RankedHours(Vec<(i64, Arc<Hour>)>);

/// The estimates of a range's keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The most that a key outside of `keys` may have been counted.
    pub floor: u64,
    /// Keys with the most that each may have been counted, heaviest first.
    pub keys: Vec<(StoredKey, u64)>,
}

impl Heavy {
    /// Creates an empty table for so many namespaces around `today`.
    pub(crate) fn new(namespaces: usize, today: Day) -> Self {
        Self {
            kept: kept(namespaces),
            first: today.previous(),
            unheld_until: i64::MIN,
            namespaces: HashMap::new(),
        }
    }

    /// Makes room for so many namespaces: an hour that is counted in from here on holds fewer keys where there are more
    /// namespaces. Other hours stay as they are until they leave the three days, so memory may be twice its limit until
    /// then. With fewer namespaces nothing changes: a key that was dropped is not known.
    pub(crate) fn make_room(&mut self, namespaces: usize) {
        self.kept = self.kept.min(kept(namespaces));
    }

    /// Moves the three days to those around `today`.
    pub(crate) fn turn(&mut self, today: Day) {
        self.first = today.previous();
        let span = self.span();
        for hours in self.namespaces.values_mut() {
            hours.retain(|hour, _| span.contains(hour));
        }
    }

    /// The times that are held, Unix seconds.
    pub(crate) fn span(&self) -> Range<i64> {
        self.first.start()..self.first.next().next().next().start()
    }

    /// Counts a total, given by its record key (`u|jehiah`) and base bucket.
    pub(crate) fn add(&mut self, total_key: &[u8], code: TimeCode, count: u64) {
        let hour = code.start() - code.start().rem_euclid(HOUR);
        let Some(bar) = total_key.iter().position(|&byte| byte == b'|') else {
            return;
        };
        let (Ok(namespace), Some(key)) = (
            std::str::from_utf8(&total_key[..bar]),
            StoredKey::new(&total_key[bar + 1..]),
        ) else {
            return;
        };
        let span = self.span();
        if span.contains(&hour) {
            let kept = self.kept;
            self.hour(namespace, hour).add(key, count, kept);
        } else if hour >= span.end {
            self.unheld_until = self.unheld_until.max(hour + HOUR);
        }
    }

    fn hour(&mut self, namespace: &str, hour: i64) -> &mut Hour {
        let hours = self.namespaces.entry_ref(namespace).or_default();
        Arc::make_mut(hours.entry(hour).or_default())
    }

    /// Adds the counts of another table.
    pub(crate) fn unite(&mut self, other: Self) {
        let kept = self.kept;
        self.unheld_until = self.unheld_until.max(other.unheld_until);
        for (namespace, hours) in other.namespaces {
            for (start, hour) in hours {
                if self.span().contains(&start) {
                    let hour = Arc::unwrap_or_clone(hour);
                    self.hour(&namespace, start).unite(hour, kept);
                }
            }
        }
    }

    /// The hours of which all counts are held, Unix seconds.
    pub(crate) fn held(&self) -> Range<i64> {
        let span = self.span();
        span.start.max(self.unheld_until)..span.end
    }

    /// The whole hours of a range as they are now, in constant time for each hour. Returns none when the range has
    /// parts of an hour, or hours that are not held.
    pub(crate) fn hours(&self, namespace: &str, range: &Range<i64>) -> Option<RankedHours> {
        let whole = range.start.rem_euclid(HOUR) == 0 && range.end.rem_euclid(HOUR) == 0;
        let held = self.held();
        if !whole || range.start < held.start || range.end > held.end {
            return None;
        }
        let hours = self.namespaces.get(namespace).into_iter();
        let hours = hours.flat_map(|hours| hours.range(range.clone()));
        Some(RankedHours(
            hours
                .map(|(start, hour)| (*start, Arc::clone(hour)))
                .collect(),
        ))
    }
}

/// Keys that an hour of so many namespaces keeps.
fn kept(namespaces: usize) -> usize {
    let room = BYTES_MAX / (BYTES_EACH * HOURS * namespaces.max(1));
    room.clamp(KEPT_MIN, KEPT_MAX)
}

impl RankedHours {
    /// Memory that [`RankedHours::standing`] takes at most, bytes: a table of all keys, and a list.
    pub(crate) fn bytes_to_rank(&self) -> usize {
        let keys: usize = self.0.iter().map(|(_, hour)| hour.held.len()).sum();
        keys * 2 * BYTES_EACH
    }

    /// The start of each hour (Unix seconds) and the sum of its counts.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (i64, u64)> {
        self.0.iter().map(|(start, hour)| (*start, hour.sum))
    }

    /// Ranks the keys of the hours.
    pub(crate) fn standing(&self) -> Standing {
        let mut all = Hour::default();
        self.0.iter().for_each(|(_, hour)| all.join(hour));
        let held = all.held.iter();
        let mut keys: Vec<(StoredKey, u64)> =
            held.map(|(&key, held)| (key, held.at_most())).collect();
        keys.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        Standing {
            floor: all.floor,
            keys,
        }
    }
}

impl Hour {
    fn add(&mut self, key: StoredKey, count: u64, kept: usize) {
        self.sum = self.sum.saturating_add(count);
        if let Some(held) = self.held.get_mut(&key) {
            held.count = held.count.saturating_add(count);
            return;
        }
        let missed = self.floor;
        self.held.insert(key, Estimate { count, missed });
        if self.held.len() >= 2 * kept {
            self.halve(kept);
        }
    }

    /// Drops all but the `kept` heaviest keys.
    fn halve(&mut self, kept: usize) {
        let mut weights: Vec<u64> = self.held.values().map(|held| held.at_most()).collect();
        let lightest = weights.len().saturating_sub(kept);
        if lightest == 0 {
            return;
        }
        let (_, &mut floor, heaviest) = weights.select_nth_unstable(lightest - 1);
        self.floor = floor;
        // Keys that weigh exactly `floor` stay only while there is room for them.
        let mut level = heaviest.iter().filter(|&&weight| weight == floor).count();
        let mut stays = |held: &Estimate| match held.at_most().cmp(&floor) {
            Ordering::Greater => true,
            Ordering::Equal if level > 0 => {
                level -= 1;
                true
            }
            _ => false,
        };
        // The kept keys go to a new table: a table from which entries were taken could grow beyond its bound.
        let mut heavier = HashMap::with_capacity(2 * kept);
        heavier.extend(self.held.drain().filter(|(_, held)| stays(held)));
        self.held = heavier;
    }

    /// Adds another hour's counts without a bound on the number of keys.
    fn join(&mut self, other: &Self) {
        for held in self.held.values_mut() {
            held.missed = held.missed.saturating_add(other.floor);
        }
        for (&key, theirs) in &other.held {
            let missed = self.floor.saturating_add(theirs.missed);
            let Estimate { count, .. } = *theirs;
            match self.held.get_mut(&key) {
                Some(held) => {
                    held.count = held.count.saturating_add(count);
                    held.missed = (held.missed - other.floor).saturating_add(theirs.missed);
                }
                None => {
                    self.held.insert(key, Estimate { count, missed });
                }
            }
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.floor = self.floor.saturating_add(other.floor);
    }

    fn unite(&mut self, other: Self, kept: usize) {
        self.join(&other);
        if self.held.len() >= 2 * kept {
            self.halve(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tallyring_records::Grain;

    fn code(at: i64) -> TimeCode {
        TimeCode::containing(at, Grain::Hour)
    }

    fn rank(heavy: &Heavy, namespace: &str, range: Range<i64>) -> Option<Standing> {
        Some(heavy.hours(namespace, &range)?.standing())
    }

    fn key(text: &str) -> StoredKey {
        StoredKey::new(text.as_bytes()).unwrap()
    }

    /// The most that a key may have been counted, held or not.
    fn at_most(hour: &Hour, text: &str) -> u64 {
        let held = hour.held.get(&key(text));
        held.map_or(hour.floor, |held| held.at_most())
    }

    #[test]
    fn estimates_are_never_below_the_counts_and_nothing_for_a_key_never_seen() {
        let mut hour = Hour::default();
        hour.add(key("ad-42"), 1_000, KEPT_MAX);
        hour.add(key("ad-7"), 5, KEPT_MAX);
        assert!(at_most(&hour, "ad-42") >= 1_000 && at_most(&hour, "ad-7") >= 5);
        assert_eq!(at_most(&hour, "ad-unseen"), 0);
    }

    #[test]
    fn equally_heavy_keys_fill_the_kept_half() {
        let today = Day::of(1_331_923_200);
        let mut heavy = Heavy::new(1, today);
        for number in 0..2 * heavy.kept {
            heavy.add(format!("l|k{number}").as_bytes(), code(today.start()), 1);
        }
        let hour = &heavy.namespaces["l"][&today.start()];
        assert_eq!((hour.held.len(), hour.floor), (heavy.kept, 1));
    }

    #[test]
    fn memory_is_bounded_whatever_the_keys_and_hours() {
        let today = Day::of(1_331_923_200);
        for namespaces in [1, 11, 256] {
            let heavy = Heavy::new(namespaces, today);
            assert!(
                heavy.kept * BYTES_EACH * HOURS * namespaces <= BYTES_MAX,
                "{namespaces}"
            );
        }
        let mut heavy = Heavy::new(1, today);
        for number in 0..100_000_u32 {
            heavy.add(format!("l|k{number}").as_bytes(), code(today.start()), 1);
        }
        for day in [today.previous(), today, today.next(), today.next().next()] {
            heavy.add(b"l|a", code(day.start()), 1);
        }
        let hours = &heavy.namespaces["l"];
        assert_eq!(hours.len(), 3, "the day after tomorrow is not held");
        let hour = &hours[&today.start()];
        assert!(hour.held.len() < 2 * KEPT_MAX && hour.held.capacity() <= 2 * KEPT_MAX);
        assert!(hour.floor <= hour.sum / KEPT_MAX as u64);
        heavy.turn(today.next());
        assert_eq!(heavy.namespaces["l"].len(), 2);
        let early = today.next().next().start();
        assert_eq!(
            rank(&heavy, "l", early..early + HOUR),
            None,
            "it lacks a count"
        );
        assert!(rank(&heavy, "l", early + HOUR..early + 2 * HOUR).is_some());
    }

    proptest! {
        #[test]
        fn prop_no_estimate_is_below_its_count_and_no_floor_above_its_bound(
            counts in proptest::collection::vec((0..60_u32, 1..50_u64, 0..2_i64), 1..400),
            kept in 2..20_usize,
            cut in 0..400_usize,
        ) {
            let today = Day::of(1_331_923_200);
            let (start, end) = (today.start(), today.start() + 2 * HOUR);
            let mut exact: BTreeMap<u32, u64> = BTreeMap::new();
            let mut parts = [0, 1].map(|_| Heavy { kept, ..Heavy::new(1, today) });
            for (index, &(number, count, hour)) in counts.iter().enumerate() {
                // Light keys come late, where they push each other out.
                let number = number * number / 60;
                *exact.entry(number).or_default() += count;
                let part = &mut parts[usize::from(index >= cut)];
                part.add(format!("l|k{number}").as_bytes(), code(start + hour * HOUR), count);
            }
            let [mut heavy, more] = parts;
            heavy.unite(more);
            let standing = rank(&heavy, "l", start..end).unwrap();
            let sum: u64 = heavy.hours("l", &(start..end)).unwrap().sums().map(|(_, sum)| sum).sum();
            prop_assert_eq!(sum, exact.values().sum::<u64>());
            // The range is two hours, each united from two parts.
            prop_assert!(standing.floor <= sum / kept as u64);
            for (number, count) in exact {
                let text = format!("k{number}");
                let held = standing.keys.iter().find(|(held, _)| held.as_bytes() == text.as_bytes());
                prop_assert!(held.map_or(standing.floor, |held| held.1) >= count, "{}", text);
            }
            prop_assert!(rank(&heavy, "l", start + 60..end).is_none());
            prop_assert!(rank(&heavy, "l", start - 2 * 86_400..end).is_none());
            prop_assert_eq!(rank(&heavy, "u", start..end).unwrap().keys, []);
        }
    }
}
