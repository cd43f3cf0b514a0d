//! Base buckets into the units of a zone, and values into a ranking.

use std::cmp::Reverse;

use tallyring_realtime::{Charge, Reader, Series};
use tallyring_records::{Counts, add_capped, sum_capped};

use super::value::Value;
use crate::calendar::Buckets;
use crate::problem::Problem;

/// Total of each bucket. A base bucket counts where its start lies.
pub fn totals(counts: &Counts, buckets: &Buckets) -> Vec<u64> {
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

/// Counts of values by their number, of the whole range or of each bucket.
pub struct Values {
    /// Bucket, value and count; buckets ascend, each value comes once in one.
    counts: Vec<(u32, u32, u64)>,
    _charge: Charge,
}

impl Values {
    /// Those of the whole range, which is one bucket: what a read has summed.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn of_range(reader: &Reader<'_>, series: &Series) -> Result<Self, Problem> {
        let charge = charge(reader, series.sums.len())?;
        let sums = (0..).zip(&series.sums);
        Ok(Self {
            counts: sums.map(|(value, &count)| (0, value, count)).collect(),
            _charge: charge,
        })
    }

    /// Those of each bucket.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn by_bucket(
        reader: &Reader<'_>,
        series: &Series,
        buckets: &Buckets,
    ) -> Result<Self, Problem> {
        let charge = charge(reader, series.points.len())?;
        let mut counts: Vec<(u32, u32, u64)> = Vec::with_capacity(series.points.len());
        counts.extend(series.points.iter().filter_map(|point| {
            let index = buckets.index_of(point.code.start())?;
            let index = u32::try_from(index).expect("BUG: buckets are bounded");
            Some((index, point.value, point.count))
        }));
        counts.sort_unstable_by_key(|&(bucket, value, _)| (bucket, value));
        counts.dedup_by(|next, kept| {
            let is_same = (next.0, next.1) == (kept.0, kept.1);
            if is_same {
                add_capped(&mut kept.2, next.2);
            }
            is_same
        });
        Ok(Self {
            counts,
            _charge: charge,
        })
    }

    /// As [`Values::ranking_of`], of the whole range.
    ///
    /// # Errors
    /// When a lookup cannot be read.
    pub fn ranking(
        &mut self,
        reader: &Reader<'_>,
        series: &Series,
        limit: usize,
    ) -> Result<(Vec<Value>, u64), Problem> {
        self.ranking_of(0, reader, series, limit)
    }

    /// The `limit` largest of a bucket, largest first, ties by value; and the sum of the others. Only values that
    /// may be listed are expanded.
    ///
    /// # Errors
    /// When a lookup cannot be read.
    pub fn ranking_of(
        &mut self,
        bucket: usize,
        reader: &Reader<'_>,
        series: &Series,
        limit: usize,
    ) -> Result<(Vec<Value>, u64), Problem> {
        let begin = self.counts.partition_point(|of| (of.0 as usize) < bucket);
        let end = self.counts.partition_point(|of| of.0 as usize <= bucket);
        let ranked = &mut self.counts[begin..end];
        let mut candidates = ranked.len().min(limit);
        if (1..ranked.len()).contains(&limit) {
            let (_, last, _) = ranked.select_nth_unstable_by_key(limit - 1, |of| Reverse(of.2));
            // Everything that ties with the last listed one may be listed.
            let least = last.2;
            for index in limit..ranked.len() {
                if ranked[index].2 == least {
                    ranked.swap(candidates, index);
                    candidates += 1;
                }
            }
        }
        let (candidates, others) = ranked.split_at(candidates);
        let mut listed = Vec::with_capacity(candidates.len());
        for &(_, value, count) in candidates.iter().filter(|of| of.2 > 0) {
            let parts = reader.expand(series, &series.values[value as usize])?;
            listed.push(Value::new(parts, count));
        }
        listed.sort_unstable_by(|a, b| {
            let by_count = b.count.cmp(&a.count);
            by_count.then_with(|| a.value.cmp(&b.value))
        });
        let beyond = listed.split_off(limit.min(listed.len()));
        let beyond = beyond.iter().map(|value| value.count);
        let other = sum_capped(beyond.chain(others.iter().map(|of| of.2)));
        Ok((listed, other))
    }
}

fn charge(reader: &Reader<'_>, counts: usize) -> Result<Charge, Problem> {
    let bytes = counts * size_of::<(u32, u32, u64)>();
    Ok(reader.reading().charge_of(bytes)?)
}
