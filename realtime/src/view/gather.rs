//! One running read of one key: first from memory, then run by run.
//!
//! Invariants:
//!
//! * A read charges all the memory that it holds to its request before it allocates it (`realtime/src/budget.rs`).
//! * Counts that are taken away are summed apart, and subtracted once at the end (`less.rs`): only then a count below
//!   zero is damage. A read without such runs does nothing for them.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use hashbrown::HashMap;
use tallyring_archive::{BlockCache, Run};
use tallyring_records::line::{self, entries, hours};
use tallyring_records::{
    COUNT_MAX, Counts, Day, Grain, KeyCrc, TimeCode, is_hash, missing_value, of_by_minute,
    sum_capped,
};

use super::View;
use super::parts::File;
use super::read::{Series, ValuePoint};
use crate::budget::{Charge, Reading, reserve};
use crate::delta::{Delta, DeltaStore};
use crate::error::{Error, Result};

/// A way to visit the lines of a run with a prefix: from the disk and the cache, or from the cache alone.
pub(super) type Visit = fn(
    &Run,
    &BlockCache,
    (&[u8], &[u8]),
    &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> tallyring_archive::Result<()>;

/// Size of an hour in a line, about: `c41l:5 `.
const HOUR_BYTES: usize = 7;
/// Part of a line that is usually read: a month.
const READ_BYTES: usize = 400 * HOUR_BYTES;

/// Bytes of values that are read at a stretch: some 100 µs.
const UNCHECKED_BYTES_MAX: usize = 16 << 10;

/// Memory of a base bucket in a map of base buckets.
pub(super) const NAMED_BYTES: usize = 32;
/// Memory of a value in the list and in the table of numbers, besides its text: both grow by doubling.
const VALUE_BYTES: usize = 128;
/// Memory of a lookup in its table, besides its texts.
const LOOKUP_BYTES: usize = 96;

pub(super) struct Gather<'r> {
    range: Range<i64>,
    subtotal: Option<&'r str>,
    /// The instants over which values are summed; none keeps the values of each base bucket.
    pub(super) rolled: Option<Range<i64>>,
    pub(super) total_key: String,
    /// Checksum of `total_key`, which tells the shard of the key.
    crc: KeyCrc,
    subtotal_prefix: Option<String>,
    pub runs: Vec<File<'r>>,
    /// Runs whose counts are taken away.
    pub(super) minus: Vec<File<'r>>,
    /// Totals in any order.
    pub(super) totals: Vec<(TimeCode, u64)>,
    totals_charge: Charge,
    pub series: Series,
    points_charge: Charge,
    pub(super) numbers: HashMap<Box<[u8]>, u32>,
    /// The part of each base bucket, or of each minute, that values account for.
    pub(super) named: BTreeMap<TimeCode, u64>,
    /// The bucket of the last value, and what its values account for besides `named`: most values follow one of the
    /// same bucket.
    open: Option<(TimeCode, u64)>,
    /// Charge for everything but the totals and the points.
    pub(super) other_charge: Charge,
    reading: &'r Reading,
    /// Set once the budget refused room for a total or a point.
    refused: Option<Error>,
}

impl<'r> Gather<'r> {
    /// Begins a read of a key in its stored form, in `range` (Unix seconds).
    pub(super) fn new(
        reading: &'r Reading,
        namespace: &str,
        stored: &str,
        subtotal: Option<&'r str>,
        range: Range<i64>,
    ) -> Self {
        let total_key = line::total_key(namespace, stored);
        Self {
            range,
            subtotal,
            rolled: None,
            crc: KeyCrc::of(total_key.as_bytes()),
            total_key,
            subtotal_prefix: subtotal
                .map(|subtotal| line::subtotal_prefix(subtotal, namespace, stored)),
            runs: Vec::new(),
            minus: Vec::new(),
            totals: Vec::new(),
            totals_charge: reading.charge(),
            series: Series::default(),
            points_charge: reading.charge(),
            numbers: HashMap::new(),
            named: BTreeMap::new(),
            open: None,
            other_charge: reading.charge(),
            reading,
            refused: None,
        }
    }

    /// Asks the question again, with nothing counted.
    pub(super) fn anew(&self) -> Self {
        let (namespace, stored) = (self.total_key.split_once('|')).expect("BUG: a total key");
        let range = self.range.clone();
        Self::new(self.reading, namespace, stored, self.subtotal, range).rolled(self.rolled.clone())
    }

    /// Sums values over `rolled` instead of keeping them for each base bucket.
    pub(super) fn rolled(mut self, rolled: Option<Range<i64>>) -> Self {
        self.rolled = rolled;
        self
    }

    /// Takes the counts in memory, and notes the runs to read; of a kept generation there are runs alone. Fails when
    /// the budget has no room for the counts, or the generation is not kept.
    pub(super) fn begin(&mut self, view: &'r View<'_>, as_of: Option<u64>) -> Result<()> {
        if let Some(number) = as_of {
            self.note(view.kept(number)?, []);
            return Ok(());
        }
        self.begin_deltas(view)?;
        let range = self.range.clone();
        self.note(view.plus(), view.minus_in(&range));
        Ok(())
    }

    /// Takes the counts in memory, and notes the flushed runs to read. Fails when the budget has no room for the
    /// counts.
    pub(super) fn begin_deltas(&mut self, view: &'r View<'_>) -> Result<()> {
        let range = self.range.clone();
        for delta in view.deltas_in(&range) {
            self.delta(delta)?;
        }
        self.note(view.flushed_in(&range), []);
        Ok(())
    }

    fn delta(&mut self, delta: &Delta) -> Result<()> {
        let key = self.total_key.clone();
        delta.totals(key.as_bytes(), &mut |code, count| {
            self.total(code, count);
        });
        if let Some(subtotal) = self.subtotal {
            delta.subtotals(key.as_bytes(), subtotal, &mut |code, value, count| {
                if self.range.contains(&code.start()) && self.refused.is_none() {
                    self.point(code, value, Some(delta), count);
                }
            });
        }
        self.refused.take().map_or(Ok(()), Err)
    }

    fn total(&mut self, code: TimeCode, count: u64) {
        if !self.range.contains(&code.start()) {
            let end = code.start() + code.grain().seconds();
            let begins_before = code.start() < self.range.start;
            self.series.is_cut |= begins_before && self.range.start < end;
            return;
        }
        match reserve(&mut self.totals, 1, &mut self.totals_charge) {
            Ok(()) => self.totals.push((code, count)),
            Err(refused) => self.refused = Some(refused),
        }
    }

    /// Notes the runs that may hold counts in the range: those whose counts are added, and those whose counts are taken
    /// away.
    pub(super) fn note(
        &mut self,
        plus: impl IntoIterator<Item = File<'r>>,
        minus: impl IntoIterator<Item = File<'r>>,
    ) {
        let is_concerned = |file: &File<'_>| may_hold(file.run, &self.range, self.crc);
        self.runs.extend(plus.into_iter().filter(is_concerned));
        self.minus.extend(minus.into_iter().filter(is_concerned));
    }

    pub(super) fn run(&mut self, file: File<'_>, visit: Visit) -> Result<()> {
        let File { run, cache, .. } = file;
        self.reading.check()?;
        let wanted = self.range.clone();
        let total_key = self.total_key.clone();
        let key = total_key.as_bytes();
        // The code of a day sorts before the codes of its hours.
        let first = Day::of(wanted.start).code();
        visit(run, cache, (key, key), &mut |found, payload| {
            if found != key {
                return ControlFlow::Break(());
            }
            let payload = line::hours_from(payload, first);
            let more = payload.len().min(READ_BYTES) / HOUR_BYTES;
            if let Err(refused) = reserve(&mut self.totals, more, &mut self.totals_charge) {
                self.refused = Some(refused);
            }
            for hour in hours(payload) {
                let Some((code, count)) = hour else { continue };
                if code.start() >= wanted.end || self.refused.is_some() {
                    break;
                }
                self.total(code, count);
            }
            match self.refused {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        })?;
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        match self.subtotal_prefix.clone() {
            Some(prefix) => self.values(file, visit, &prefix),
            None => Ok(()),
        }
    }

    /// Counts the values in a run, whose lines begin with `prefix`.
    fn values(&mut self, file: File<'_>, visit: Visit, prefix: &str) -> Result<()> {
        let wanted = self.range.clone();
        let mut from = prefix.as_bytes().to_vec();
        self.first_code().write_to(&mut from);
        let mut unchecked = 0;
        visit(
            file.run,
            file.cache,
            (prefix.as_bytes(), &from),
            &mut |found, payload| {
                let Some(code) = found.strip_prefix(prefix.as_bytes()) else {
                    return ControlFlow::Break(());
                };
                let Ok(code) = TimeCode::parse(code) else {
                    return ControlFlow::Continue(());
                };
                if code.start() >= wanted.end {
                    return ControlFlow::Break(());
                }
                unchecked += payload.len();
                if unchecked > UNCHECKED_BYTES_MAX && self.refused.is_none() {
                    unchecked = 0;
                    self.refused = self.reading.check().err();
                }
                if wanted.contains(&code.start()) {
                    for (value, count) in entries(payload).flatten() {
                        self.point(code, value, None, count);
                    }
                }
                if self.refused.is_some() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        )?;
        match self.refused.take() {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }

    /// Counts a value. `delta` may hold the lookups of the value.
    fn point(&mut self, code: TimeCode, value: &[u8], delta: Option<&Delta>, count: u64) {
        if self.refused.is_none()
            && let Err(refused) = self.try_point(code, value, delta, count)
        {
            self.refused = Some(refused);
        }
    }

    fn try_point(
        &mut self,
        code: TimeCode,
        value: &[u8],
        delta: Option<&Delta>,
        count: u64,
    ) -> Result<()> {
        match &mut self.open {
            Some((open, sum)) if *open == code => *sum = sum.saturating_add(count),
            _ => {
                self.close_bucket()?;
                self.open = Some((code, count));
            }
        }
        let is_outside = |rolled: &Range<i64>| !rolled.contains(&code.start());
        if self.rolled.as_ref().is_some_and(is_outside) {
            return Ok(());
        }
        let value = self.number(value, delta)?;
        if self.rolled.is_some() {
            let sum = &mut self.series.sums[value as usize];
            *sum = sum.saturating_add(count);
            return Ok(());
        }
        let points = &mut self.series.points;
        reserve(points, 1, &mut self.points_charge)?;
        points.push(ValuePoint { code, value, count });
        Ok(())
    }

    /// Adds what the values of the last bucket account for to `named`.
    pub(super) fn close_bucket(&mut self) -> Result<()> {
        if let Some((code, sum)) = self.open.take() {
            if !self.named.contains_key(&code) {
                self.other_charge.grow(NAMED_BYTES)?;
            }
            let named = self.named.entry(code).or_insert(0);
            *named = named.saturating_add(sum);
        }
        Ok(())
    }

    /// The number of a value; a new value gets the next number.
    fn number(&mut self, value: &[u8], delta: Option<&Delta>) -> Result<u32> {
        if let Some(&number) = self.numbers.get(value) {
            return Ok(number);
        }
        let stored = value;
        let value = &*String::from_utf8_lossy(value);
        // The text is stored twice, in the list and in the table.
        self.other_charge.grow(VALUE_BYTES + 2 * value.len())?;
        let series = &mut self.series;
        if let Some(delta) = delta {
            for part in value.split('*').filter(|part| is_hash(part)) {
                if let Some(raw) = delta.lookups().get(part.as_bytes()) {
                    self.other_charge
                        .grow(LOOKUP_BYTES + part.len() + raw.len())?;
                    series.lookups.insert(part.into(), raw.into());
                }
            }
        }
        let number = u32::try_from(series.values.len()).expect("BUG: fewer than 2^32 values");
        series.values.push(value.into());
        if self.rolled.is_some() {
            series.sums.push(0);
        }
        self.numbers.insert(stored.into(), number);
        Ok(number)
    }

    /// Sums all totals, including those of the noted runs. Fails when a block is damaged.
    pub(super) fn sum(mut self) -> Result<u64> {
        for file in std::mem::take(&mut self.runs) {
            self.run(file, Run::visit_prefix)?;
        }
        self.take_away(Run::visit_prefix)?;
        Ok(sum_capped(self.totals.iter().map(|(_, count)| *count)))
    }

    /// The code to begin with among the lines of the subtotal: that of a folded day sorts before the codes of its
    /// hours, and that of an hour before those of its minutes.
    fn first_code(&self) -> TimeCode {
        match self.is_by_minute() {
            true => TimeCode::containing(self.range.start, Grain::Hour),
            false => Day::of(self.range.start).code(),
        }
    }

    /// True where the values of each minute are read.
    fn is_by_minute(&self) -> bool {
        self.subtotal
            .is_some_and(|name| of_by_minute(name).is_some())
    }

    /// Adds the counts that have no value, so that the values of every bucket sum to its total. For a subtotal by
    /// minute, the totals are then those of the minutes, and by hour the counts that no minute of the subtotal has.
    /// Fails when the budget had no room for all counts.
    pub(super) fn finish(mut self) -> Result<Series> {
        self.series.totals = std::mem::take(&mut self.totals).into();
        self.close_bucket()?;
        if self.is_by_minute() {
            self.totals_charge
                .grow((self.named.len() + self.series.totals.iter().count()) * NAMED_BYTES)?;
            let mut minutes = std::mem::take(&mut self.named);
            minutes
                .values_mut()
                .for_each(|count| *count = COUNT_MAX.min(*count));
            let rest = rest_by_hour(&self.series.totals, &minutes);
            self.series.totals = minutes.into_iter().chain(rest).collect();
        } else if let Some(subtotal) = self.subtotal {
            let missing = missing_value(subtotal);
            let named = &self.named;
            let remainders: Vec<(TimeCode, u64)> = self
                .series
                .totals
                .iter()
                .map(|(code, total)| {
                    (
                        code,
                        total.saturating_sub(named.get(&code).copied().unwrap_or(0)),
                    )
                })
                .filter(|&(_, remainder)| remainder > 0)
                .collect();
            for (code, remainder) in remainders {
                self.point(code, missing.as_bytes(), None, remainder);
            }
        }
        for sum in &mut self.series.sums {
            *sum = COUNT_MAX.min(*sum);
        }
        self.series.charges = vec![self.totals_charge, self.points_charge, self.other_charge];
        match self.refused {
            Some(refused) => Err(refused),
            None => Ok(self.series),
        }
    }
}

/// Counts by hour that none of the `minutes` has.
fn rest_by_hour(totals: &Counts, minutes: &BTreeMap<TimeCode, u64>) -> BTreeMap<TimeCode, u64> {
    let hour = |code: TimeCode| TimeCode::containing(code.start(), Grain::Hour);
    let mut rest: BTreeMap<TimeCode, u64> = BTreeMap::new();
    for (code, count) in totals.iter() {
        let sum = rest.entry(hour(code)).or_insert(0);
        *sum = sum.saturating_add(count);
    }
    for (minute, count) in minutes {
        if let Some(rest) = rest.get_mut(&hour(*minute)) {
            *rest = rest.saturating_sub(*count);
        }
    }
    rest.retain(|_, count| *count > 0);
    rest
}

/// True when the run may hold counts of the key in the range.
pub(super) fn may_hold(run: &Run, range: &Range<i64>, key: KeyCrc) -> bool {
    let meta = run.meta();
    meta.overlaps(range.start, range.end) && key.shard(meta.shards) == meta.shard
}

/// True when the delta store may hold counts in the range.
pub(super) fn concerns(range: &Range<i64>, store: &DeltaStore) -> bool {
    match store.id.day() {
        None => true,
        Some(day) => day.start() < range.end && range.start < day.next().start(),
    }
}

const _: () = assert!(
    Grain::Day as u8 == 0,
    "the code of a day sorts before the codes of its hours"
);
