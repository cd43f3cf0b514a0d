//! Counts by key, and the comparison of a store's answer with them.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tallyring_archive::Partition;
use tallyring_realtime::{Read, Series, Store, View};
use tallyring_records::{
    COUNT_MAX, Day, Grain, MINUTES, TimeCode, minute_of, missing_value, of_by_minute,
};

use super::naive::Cell;

/// Counts by namespace and key.
#[derive(Debug, Clone, Default)]
pub(super) struct Book(BTreeMap<(String, String), Counts>);

/// Counts of one key.
#[derive(Debug, Clone, Default)]
struct Counts {
    totals: BTreeMap<i64, u64>,
    values: BTreeMap<String, BTreeMap<(i64, String), u64>>,
}

/// Why an answer is not accepted.
#[derive(Debug)]
pub(super) enum Wrong {
    /// There is none: an error instead.
    Unreadable(String),
    /// It is another one.
    Differs(String),
}

impl Wrong {
    /// In words.
    pub(super) fn text(self) -> String {
        match self {
            Self::Unreadable(text) | Self::Differs(text) => text,
        }
    }
}

/// Totals by bucket, ascending.
pub(super) type Totals = Vec<(i64, u64)>;
/// Counts of values by bucket and value, ascending.
pub(super) type Values<'v> = Vec<(i64, Cow<'v, str>, u64)>;

impl Counts {
    /// By minute; what was counted without stands where its bucket starts.
    fn by_minute(&self) -> BTreeMap<i64, u64> {
        let mut counts = self.totals.clone();
        for ((start, value), n) in self.values.get(MINUTES).into_iter().flatten() {
            let base = TimeCode::containing(*start, Grain::Quarter);
            let minute = minute_of(base, value.as_bytes()).expect("BUG: it is a minute");
            *counts.entry(*start).or_insert(0) -= n;
            *counts.entry(minute.start()).or_insert(0) += n;
        }
        counts.retain(|_, n| *n > 0);
        counts
    }
}

impl Book {
    /// True when nothing is counted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every namespace and key.
    pub(super) fn keys(&self) -> Vec<(String, String)> {
        self.0.keys().cloned().collect()
    }

    /// Every bucket of every key: namespace, key and start.
    pub(super) fn buckets(&self) -> Vec<(String, String, i64)> {
        let of_key = self.0.iter().flat_map(|((name, key), counts)| {
            let starts = counts.totals.keys();
            starts.map(|start| (name.clone(), key.clone(), *start))
        });
        of_key.collect()
    }

    /// Adds `n` counts of a bucket of another book, with as many of the values of each subtotal as have to go with
    /// them, or more. False, and nothing is added, where a value of several parts cannot be told apart.
    pub(super) fn take_from(
        &mut self,
        other: &Self,
        (name, key, start): &(String, String, i64),
        n: u64,
        more: &mut dyn FnMut(u64) -> u64,
    ) -> bool {
        let counts = &other.0[&(name.clone(), key.clone())];
        let left = counts.totals[start] - n;
        let mut taken = Counts {
            totals: BTreeMap::from([(*start, n)]),
            ..Counts::default()
        };
        for (subtotal, values) in &counts.values {
            if of_by_minute(subtotal).is_some() {
                continue;
            }
            let parts = subtotal.matches('*').count();
            let of_bucket = values.iter().filter(|((at, _), _)| at == start);
            let sum: u64 = of_bucket.clone().map(|(_, count)| count).sum();
            let least = sum.saturating_sub(left);
            let mut rest = least + more(n.min(sum) - least + 1);
            let of_bucket = of_bucket
                .filter(|((_, value), _)| parts == 0 || value.matches('*').count() == parts);
            for ((_, value), &count) in of_bucket {
                let count = count.min(rest);
                rest -= count;
                if count > 0 {
                    let own = taken.values.entry(subtotal.clone()).or_default();
                    own.insert((*start, value.clone()), count);
                }
            }
            if rest > 0 {
                return false;
            }
        }
        let own = self.0.entry((name.clone(), key.clone())).or_default();
        own.totals.extend(taken.totals);
        for (subtotal, values) in taken.values {
            own.values.entry(subtotal).or_default().extend(values);
        }
        true
    }

    /// Every counter: namespace, key, the value of a subtotal, and the bucket's start.
    pub(super) fn counters(&self) -> Vec<(Cell, u64)> {
        let mut counters = Vec::new();
        for ((name, key), counts) in &self.0 {
            let cell = |by, start: &i64| Cell {
                name: name.clone(),
                key: key.clone(),
                by,
                start: *start,
            };
            for (start, n) in &counts.totals {
                counters.push((cell(None, start), *n));
            }
            for (subtotal, values) in &counts.values {
                for ((start, value), n) in values {
                    let by = Some((subtotal.clone(), value.clone()));
                    counters.push((cell(by, start), *n));
                }
            }
        }
        counters
    }

    /// One counter.
    pub(super) fn count(&self, cell: &Cell) -> u64 {
        let Some(counts) = self.0.get(&(cell.name.clone(), cell.key.clone())) else {
            return 0;
        };
        let count = match &cell.by {
            None => counts.totals.get(&cell.start),
            Some((subtotal, value)) => {
                let values = counts.values.get(subtotal);
                values.and_then(|values| values.get(&(cell.start, value.clone())))
            }
        };
        count.copied().unwrap_or(0)
    }

    /// One total.
    pub(super) fn total(&self, name: &str, key: &str, start: i64) -> u64 {
        let counts = self.0.get(&(name.to_owned(), key.to_owned()));
        counts
            .and_then(|counts| counts.totals.get(&start))
            .copied()
            .unwrap_or(0)
    }

    /// The sums of a namespace's keys between two instants, largest first; by their minutes where they have some.
    pub(super) fn ranking(&self, name: &str, range: &Range<i64>) -> Vec<(&str, u64)> {
        let of_name = self.0.iter().filter(|((known, _), _)| known == name);
        let sum = |counts: &Counts| {
            let counts = counts.by_minute();
            let counts = counts.range(range.clone());
            counts.map(|(_, n)| n).sum::<u64>().min(COUNT_MAX)
        };
        let counted = of_name.map(|((_, key), counts)| (key.as_str(), sum(counts)));
        let mut ranking: Vec<(&str, u64)> = counted.filter(|&(_, sum)| sum > 0).collect();
        ranking.sort_by_key(|&(_, sum)| Reverse(sum));
        ranking
    }

    /// The sum of all keys of a namespace between two instants, by minute where they have some.
    pub(super) fn by_minute(&self, name: &str, range: &Range<i64>) -> BTreeMap<i64, u64> {
        let mut sums = BTreeMap::new();
        for (_, counts) in self.0.iter().filter(|((known, _), _)| known == name) {
            for (&start, &n) in counts.by_minute().range(range.clone()) {
                let sum: &mut u64 = sums.entry(start).or_insert(0);
                *sum = sum.saturating_add(n).min(COUNT_MAX);
            }
        }
        sums
    }

    /// Counts.
    pub(super) fn add(&mut self, cell: &Cell, n: u64) {
        *self.counter(cell) += n;
    }

    /// Counts less.
    pub(super) fn subtract(&mut self, cell: &Cell, n: u64) {
        less(Some(self.counter(cell)), n);
        self.forget_nothing_of(&(cell.name.clone(), cell.key.clone()));
    }

    fn counter(&mut self, cell: &Cell) -> &mut u64 {
        let key = (cell.name.clone(), cell.key.clone());
        let counts = self.0.entry(key).or_default();
        match &cell.by {
            None => counts.totals.entry(cell.start).or_insert(0),
            Some((subtotal, value)) => counts
                .values
                .entry(subtotal.clone())
                .or_default()
                .entry((cell.start, value.clone()))
                .or_insert(0),
        }
    }

    /// Counts everything of another book.
    pub(super) fn add_all(&mut self, other: &Self) {
        for (key, counts) in &other.0 {
            let own = self.0.entry(key.clone()).or_default();
            for (start, count) in &counts.totals {
                *own.totals.entry(*start).or_insert(0) += count;
            }
            for (subtotal, values) in &counts.values {
                let own = own.values.entry(subtotal.clone()).or_default();
                for (place, count) in values {
                    *own.entry(place.clone()).or_insert(0) += count;
                }
            }
        }
    }

    /// The part of each month.
    pub(super) fn by_month(self) -> BTreeMap<Partition, Self> {
        let month = |start| Partition::month_of(TimeCode::containing(start, Grain::Quarter));
        let mut months: BTreeMap<Partition, Self> = BTreeMap::new();
        for (key, counts) in self.0 {
            for (start, count) in counts.totals {
                let part = months.entry(month(start)).or_default();
                let own = part.0.entry(key.clone()).or_default();
                own.totals.insert(start, count);
            }
            for (subtotal, values) in counts.values {
                for ((start, value), count) in values {
                    let part = months.entry(month(start)).or_default();
                    let own = part.0.entry(key.clone()).or_default();
                    let own = own.values.entry(subtotal.clone()).or_default();
                    own.insert((start, value), count);
                }
            }
        }
        months
    }

    /// Takes everything of another book away, which was counted.
    pub(super) fn subtract_all(&mut self, other: &Self) {
        for (key, counts) in &other.0 {
            let own = self.0.entry(key.clone()).or_default();
            for (start, count) in &counts.totals {
                less(own.totals.get_mut(start), *count);
            }
            for (subtotal, values) in &counts.values {
                let mut own = own.values.get_mut(subtotal);
                for (place, count) in values {
                    less(own.as_mut().and_then(|own| own.get_mut(place)), *count);
                }
            }
            self.forget_nothing_of(key);
        }
    }

    /// Forgets the counters of a key that count nothing.
    fn forget_nothing_of(&mut self, key: &(String, String)) {
        let counts = self.0.get_mut(key).expect("BUG: it was looked up");
        counts.totals.retain(|_, count| *count > 0);
        for values in counts.values.values_mut() {
            values.retain(|_, count| *count > 0);
        }
        if counts.totals.is_empty() && counts.values.values().all(BTreeMap::is_empty) {
            self.0.remove(key);
        }
    }

    /// The answer that a read must give: counts without the subtotal stand under `-`.
    pub(super) fn expected(&self, read: &Read) -> (Totals, Values<'_>) {
        let Some(counts) = self.0.get(&(read.namespace.clone(), read.key.clone())) else {
            return (Totals::new(), Values::new());
        };
        let span = counts.totals.range(read.from..read.to);
        let totals: Totals = span.map(|(start, count)| (*start, *count)).collect();
        let mut values = Values::new();
        if let Some(subtotal) = &read.subtotal {
            let mut rest = totals.clone();
            for ((start, value), count) in counts.values.get(subtotal).into_iter().flatten() {
                if (read.from..read.to).contains(start) {
                    values.push((*start, Cow::Borrowed(value), *count));
                    let total = rest.binary_search_by_key(start, |(start, _)| *start);
                    rest[total.expect("BUG: a value has its total")].1 -= count;
                }
            }
            let missing: Cow<'_, str> = missing_value(subtotal).into();
            let rest = rest.into_iter().filter(|&(_, count)| count > 0);
            values.extend(rest.map(|(start, count)| (start, missing.clone(), count)));
        }
        (totals, summed(values))
    }

    /// Compares answers, all from one view, with what they must be, or with what they must be at least where another
    /// book says what they may be at most.
    ///
    /// # Errors
    /// The first read that differs, with all sides.
    pub(super) fn check(
        &self,
        most: Option<&Self>,
        reader: &View<'_>,
        reads: &[Read],
        as_of: Option<u64>,
    ) -> Result<(), Wrong> {
        for read in reads {
            let series = reader.read(read, as_of).map_err(|error| {
                Wrong::Unreadable(format!("a read as of {as_of:?} failed: {error}"))
            })?;
            let (expected, most) = (self.expected(read), most.map(|most| most.expected(read)));
            let texts = texts_of(reader, &series)?;
            let found = found(&series, &texts);
            let is_right = match &most {
                None => found == expected,
                Some(most) => is_within(&expected, &found) && is_within(&found, most),
            };
            if !is_right {
                let key: String = read.key.chars().take(40).collect();
                return Err(Wrong::Differs(format!(
                    "{}|{} by {:?} in {}..{} as of {as_of:?} (generation {}, manifest {}): \
                     found {found:?}, expected {expected:?}, at most {most:?}",
                    read.namespace,
                    key.escape_debug(),
                    read.subtotal,
                    read.from,
                    read.to,
                    as_of.unwrap_or(reader.generation()),
                    reader.manifest()
                )));
            }
        }
        Ok(())
    }
}

impl Book {
    /// Compares the values of a subtotal by minute, hour by hour, but for days of `fixed`. From `exact_from` on (Unix
    /// seconds) nothing may be missing that was counted by the minute. Earlier hours may have lost some of it, and say
    /// so by a rest.
    ///
    /// # Errors
    /// The first hour that differs.
    pub(super) fn check_by_minute(
        &self,
        store: &Store,
        read: &Read,
        exact_from: i64,
        fixed: &BTreeSet<Day>,
    ) -> Result<(), Wrong> {
        let reader = store.view();
        let series = reader
            .read(read, None)
            .map_err(|error| Wrong::Unreadable(format!("a read by minute failed: {error}")))?;
        let texts = texts_of(&reader, &series)?;
        let (_, found) = found(&series, &texts);
        let key = (read.namespace.clone(), read.key.clone());
        let subtotal = read.subtotal.as_deref().unwrap_or_default();
        let counts = self.0.get(&key).cloned().unwrap_or_default();
        let counted = counts.values.get(subtotal).cloned().unwrap_or_default();
        let mut hours: BTreeMap<i64, u64> = BTreeMap::new();
        for (&start, &n) in &counts.totals {
            *hours.entry(hour(start)).or_insert(0) += n;
        }
        for (&start, &total) in &hours {
            if fixed.contains(&Day::of(start)) {
                continue;
            }
            let within = start..start + 3_600;
            let expected: BTreeMap<(i64, &str), u64> = counted
                .iter()
                .filter(|((at, _), _)| within.contains(at))
                .map(|((at, value), &n)| ((*at, value.as_str()), n))
                .collect();
            let found: BTreeMap<(i64, &str), u64> = found
                .iter()
                .filter(|(at, ..)| within.contains(at))
                .map(|(at, value, n)| ((*at, &**value), *n))
                .collect();
            let of_hour = series.totals.iter();
            let of_hour = of_hour.filter(|(code, _)| within.contains(&code.start()));
            let (minutes, rest): (Vec<_>, Vec<_>) =
                of_hour.partition(|(code, _)| code.grain() == Grain::Minute);
            let sum = |counts: &[(TimeCode, u64)]| counts.iter().map(|(_, n)| n).sum::<u64>();
            let expected_rest = total - expected.values().sum::<u64>();
            let is_right = match total.checked_sub(sum(&minutes)) {
                // Counts of an answer stop at the largest one, and an hour may hold four quarters.
                Some(left) if sum(&rest) == left.min(COUNT_MAX) => match left == expected_rest {
                    true => found == expected,
                    false => left > expected_rest && start < exact_from,
                },
                _ => false,
            };
            let is_right = is_right && sum(&minutes) == found.values().sum::<u64>();
            if !is_right {
                return Err(Wrong::Differs(format!(
                    "{key:?} by {subtotal} in the hour of {start} (exact from {exact_from}): found {found:?} and the \
                     rest {rest:?} of {total}, expected {expected:?}"
                )));
            }
        }
        Ok(())
    }
}

/// Takes so many away from a counter, which has as many.
fn less(counter: Option<&mut u64>, n: u64) {
    let left = counter.as_ref().map_or(0, |counter| **counter);
    let left = left.checked_sub(n).expect("BUG: it was counted");
    if let Some(counter) = counter {
        *counter = left;
    }
}

/// Start of the hour that holds an instant.
fn hour(at: i64) -> i64 {
    at - at.rem_euclid(3_600)
}

/// The texts of the values of an answer, by their numbers.
pub(super) fn texts_of(reader: &View<'_>, series: &Series) -> Result<Vec<String>, Wrong> {
    let text = |stored: &str| match reader.expand(series, stored) {
        Ok(parts) => Ok(parts.join("*")),
        Err(error) => Err(Wrong::Unreadable(format!(
            "`{stored}` cannot be expanded: {error}"
        ))),
    };
    series.values.iter().map(|stored| text(stored)).collect()
}

/// An answer whose values have these texts.
fn found<'t>(series: &Series, texts: &'t [String]) -> (Totals, Values<'t>) {
    let totals = series.totals.iter();
    let totals = totals.map(|(code, count)| (code.start(), count)).collect();
    let values = series.points.iter().map(|point| {
        let text = &*texts[point.value as usize];
        (point.code.start(), Cow::Borrowed(text), point.count)
    });
    (totals, summed(values.collect()))
}

/// True where nothing of an answer counts more than in another.
fn is_within((totals, values): &(Totals, Values<'_>), most: &(Totals, Values<'_>)) -> bool {
    let is_less =
        |(start, n): &(i64, u64)| most.0.iter().any(|(at, most)| at == start && n <= most);
    let is_less_by = |(start, value, n): &(i64, Cow<'_, str>, u64)| {
        let mut of_most = most.1.iter();
        of_most.any(|(at, of, most)| at == start && of == value && n <= most)
    };
    totals.iter().all(is_less) && values.iter().all(is_less_by)
}

/// Sorts them, and adds up the counts of one bucket and value.
fn summed(mut values: Values<'_>) -> Values<'_> {
    values.sort_unstable();
    values.dedup_by(|next, sum| {
        let is_same = next.0 == sum.0 && next.1 == sum.1;
        if is_same {
            sum.2 += next.2;
        }
        is_same
    });
    values
}
