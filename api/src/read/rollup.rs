//! Base buckets into the units of a zone, and values into a ranking.

use std::collections::BTreeMap;

use tallyring_realtime::{Series, Store};
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

/// Counts by number of value, for the whole range or for one bucket.
#[derive(Clone, Default)]
pub struct Values(BTreeMap<u32, u64>);

/// Values of the whole range.
pub fn values(series: &Series, buckets: &Buckets) -> Values {
    let mut values = Values::default();
    for point in &series.points {
        if buckets.index_of(point.code.start()).is_some() {
            add_capped(values.0.entry(point.value).or_insert(0), point.count);
        }
    }
    values
}

/// Values of each bucket.
pub fn values_by_bucket(series: &Series, buckets: &Buckets) -> Vec<Values> {
    let mut all = vec![Values::default(); buckets.count()];
    for point in &series.points {
        if let Some(index) = buckets.index_of(point.code.start()) {
            add_capped(all[index].0.entry(point.value).or_insert(0), point.count);
        }
    }
    all
}

/// The `limit` largest, largest first, ties by value; and the sum of the others. Only values that
/// may be listed are expanded.
///
/// # Errors
/// When a lookup cannot be read.
pub fn ranking(
    store: &Store,
    series: &Series,
    values: &Values,
    limit: usize,
) -> Result<(Vec<Value>, u64), Problem> {
    let mut ranked: Vec<(u32, u64)> = values
        .0
        .iter()
        .map(|(&value, &count)| (value, count))
        .collect();
    ranked.sort_unstable_by_key(|&(_, count)| std::cmp::Reverse(count));
    // Everything that ties with the last listed one may be listed.
    let least = limit
        .checked_sub(1)
        .and_then(|last| ranked.get(last))
        .map_or(0, |&(_, count)| count);
    let candidates = if limit == 0 {
        0
    } else {
        ranked.partition_point(|&(_, count)| count >= least)
    };
    let mut listed = Vec::with_capacity(candidates);
    for &(value, count) in &ranked[..candidates] {
        let parts = store.expand(series, &series.values[value as usize])?;
        listed.push(Value::new(parts, count));
    }
    listed.sort_unstable_by(|a, b| {
        let by_count = b.count.cmp(&a.count);
        by_count.then_with(|| a.value.cmp(&b.value))
    });
    let beyond = listed.split_off(limit.min(listed.len()));
    let other = sum_capped(
        beyond
            .into_iter()
            .map(|value| value.count)
            .chain(ranked[candidates..].iter().map(|&(_, count)| count)),
    );
    Ok((listed, other))
}
