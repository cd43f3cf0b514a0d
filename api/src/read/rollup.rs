//! Base buckets into the units of a zone, and values into a ranking.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tallyring_realtime::{Charge, Series, ValuePoint, View};
use tallyring_records::{Counts, add_capped, sum_capped};

use super::value::Value;
use crate::calendar::Buckets;
use crate::problem::Result;

/// Total of each bucket. A base bucket counts where its start lies.
pub(crate) fn totals(counts: &Counts, buckets: &Buckets) -> Vec<u64> {
    let mut totals = vec![0; buckets.count()];
    let (edges, mut index) = (buckets.edges(), 0);
    for (code, count) in counts.iter() {
        let start = code.start();
        // Both ascend.
        while index < totals.len() && edges[index + 1] <= start {
            index += 1;
        }
        let Some(total) = totals.get_mut(index) else {
            break;
        };
        if edges[index] <= start {
            add_capped(total, count);
        }
    }
    totals
}

/// Total of each bucket over these values. A base bucket counts where its start lies.
pub(super) fn totals_of(points: &[ValuePoint], buckets: &Buckets) -> Vec<u64> {
    let mut totals = vec![0; buckets.count()];
    for point in points {
        if let Some(index) = buckets.index_of(point.code.start()) {
            add_capped(&mut totals[index], point.count);
        }
    }
    totals
}

/// The values of one series in the buckets of some requests, ranked.
///
/// Requests that read the same series have it in common: what is grouped by buckets is kept for the next request with
/// these buckets, and the text of a value is looked up once.
pub(super) struct Breakdown<'r> {
    reader: &'r View<'r>,
    series: &'r Series,
    /// The newest grouping, and of which buckets.
    grouped: Option<(Buckets, Grouped)>,
    /// Values whose text was asked for, by number.
    texts: HashMap<u32, Value>,
    /// By number of a value: its place among those texts.
    places: Vec<u32>,
    charge: Charge,
}

/// Bucket, value and count, buckets ascending; each value comes once in one.
struct Grouped {
    counts: Vec<(u32, u32, u64)>,
    _charge: Charge,
}

/// Memory of a text that was asked for, besides the text itself, which stands there twice where it is crossed.
const TEXT_BYTES: usize = 192;

impl<'r> Breakdown<'r> {
    /// The breakdown of a series.
    pub(super) fn new(reader: &'r View<'r>, series: &'r Series) -> Self {
        Self {
            reader,
            series,
            grouped: None,
            texts: HashMap::new(),
            places: Vec::new(),
            charge: reader.reading().charge(),
        }
    }

    /// The `limit` largest values of the range over which the series was summed, largest first, ties by value; and the
    /// sum of the others. Only values that may be listed are expanded. Fails when a lookup cannot be read, or there is
    /// no room.
    pub(super) fn of_range(&mut self, limit: usize) -> Result<(Vec<Value>, u64)> {
        let sums = (0..)
            .zip(&self.series.sums)
            .map(|(value, &count)| (0, value, count));
        let _charge = charge(self.reader, self.series.sums.len())?;
        self.ranking(sums.collect(), limit)
    }

    /// Ranks the values of each bucket. `answer` is given each ranking, and may fail.
    pub(super) fn by_bucket(
        &mut self,
        buckets: &Buckets,
        limit: usize,
        mut answer: impl FnMut(usize, Vec<Value>, u64) -> Result<()>,
    ) -> Result<()> {
        let grouped = self
            .grouped
            .take()
            .filter(|(of, _)| of.edges() == buckets.edges());
        let grouped = match grouped {
            Some((_, grouped)) => grouped,
            None => self.group(buckets)?,
        };
        let mut counts = grouped.counts.chunk_by(|a, b| a.0 == b.0).peekable();
        for index in 0..buckets.count() {
            self.reader.reading().check()?;
            let own = counts.next_if(|counts| counts[0].0 as usize == index);
            let (values, other) = self.ranking(own.unwrap_or_default().to_vec(), limit)?;
            answer(index, values, other)?;
        }
        self.grouped = Some((buckets.clone(), grouped));
        Ok(())
    }

    fn group(&self, buckets: &Buckets) -> Result<Grouped> {
        let points = &self.series.points;
        let charge = charge(self.reader, points.len())?;
        let mut counts: Vec<(u32, u32, u64)> = Vec::with_capacity(points.len());
        counts.extend(points.iter().filter_map(|point| {
            let index = buckets.index_of(point.code.start())?;
            let index = u32::try_from(index).expect("BUG: buckets are bounded");
            Some((index, point.value, point.count))
        }));
        self.reader.reading().check()?;
        counts.sort_unstable_by_key(|&(bucket, value, _)| (bucket, value));
        counts.dedup_by(|next, kept| {
            let is_same = (next.0, next.1) == (kept.0, kept.1);
            if is_same {
                add_capped(&mut kept.2, next.2);
            }
            is_same
        });
        Ok(Grouped {
            counts,
            _charge: charge,
        })
    }

    /// Ranks the values of one bucket.
    fn ranking(
        &mut self,
        mut counts: Vec<(u32, u32, u64)>,
        limit: usize,
    ) -> Result<(Vec<Value>, u64)> {
        counts.retain(|of| of.2 > 0);
        if (1..counts.len()).contains(&limit) {
            let (_, last, _) = counts.select_nth_unstable_by_key(limit - 1, |of| Reverse(of.2));
            let least = last.2;
            // Values that tie with the last listed one stand behind those above it, and may be listed, too.
            let above = partition(&mut counts, |of| of.2 > least);
            let ties = above + partition(&mut counts[above..], |of| of.2 == least);
            if ties > limit {
                let tied = &mut counts[above..ties];
                self.place(tied)?;
                let place = |of: &(u32, u32, u64)| self.places[of.1 as usize];
                tied.select_nth_unstable_by_key(limit - above - 1, place);
            }
        }
        let (listed, others) = counts.split_at(limit.min(counts.len()));
        let mut values = Vec::with_capacity(listed.len());
        for &(_, value, count) in listed {
            let text = self.text(value)?.clone();
            values.push(Value { count, ..text });
        }
        values.sort_unstable_by(|a, b| {
            let by_count = b.count.cmp(&a.count);
            by_count.then_with(|| a.value.cmp(&b.value))
        });
        Ok((values, sum_capped(others.iter().map(|of| of.2))))
    }

    /// Notes the places of these values in the order of texts.
    fn place(&mut self, counts: &[(u32, u32, u64)]) -> Result<()> {
        let known = self.texts.len();
        for &(_, value, _) in counts {
            self.text(value)?;
        }
        if self.places.is_empty() || self.texts.len() > known {
            let room = self.series.values.len();
            self.charge
                .grow((room + 2 * self.texts.len()) * size_of::<u32>())?;
            let mut order: Vec<u32> = self.texts.keys().copied().collect();
            order.sort_unstable_by(|a, b| self.texts[a].value.cmp(&self.texts[b].value));
            self.places.resize(room, u32::MAX);
            for (place, value) in (0..).zip(order) {
                self.places[value as usize] = place;
            }
        }
        Ok(())
    }

    /// A value with its text.
    fn text(&mut self, value: u32) -> Result<&Value> {
        match self.texts.entry(value) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let stored = &self.series.values[value as usize];
                let found = Value::new(self.reader.expand(self.series, stored)?, 0);
                self.charge.grow(TEXT_BYTES + 2 * found.value.len())?;
                Ok(new.insert(found))
            }
        }
    }
}

/// Brings those for which `is_first` holds to the front; how many they are.
fn partition<T>(all: &mut [T], is_first: impl Fn(&T) -> bool) -> usize {
    let mut first = 0;
    for index in 0..all.len() {
        if is_first(&all[index]) {
            all.swap(first, index);
            first += 1;
        }
    }
    first
}

/// A charge for counts that are grouped or ranked, and for a copy of them.
fn charge(reader: &View<'_>, counts: usize) -> Result<Charge> {
    let bytes = 2 * counts * size_of::<(u32, u32, u64)>();
    Ok(reader.reading().charge_of(bytes)?)
}
