//! The end of a read that takes counts away: what runs with the sign minus count is subtracted from all that was added.

use std::collections::BTreeMap;
use std::mem;

use tallyring_archive::Run;
use tallyring_records::{TimeCode, line};

use super::gather::{Gather, NAMED_BYTES, Visit};
use super::parts::File;
use crate::error::Result;

impl Gather<'_> {
    /// Takes away what runs with the sign minus count; what becomes zero vanishes. Fails when a block is damaged, the
    /// budget has no room, or a count would fall below zero.
    pub(super) fn take_away(&mut self, visit: Visit) -> Result<()> {
        let runs = mem::take(&mut self.minus);
        if runs.is_empty() {
            return Ok(());
        }
        let mut minus = self.anew();
        for file in &runs {
            minus.run(*file, visit)?;
        }
        minus.close_bucket()?;
        self.close_bucket()?;
        let is_enough =
            self.totals_less(&minus)? && self.values_less(&minus)? && self.named_less(&minus);
        match is_enough {
            true => Ok(()),
            false => Err(below_zero(self.total_key.as_bytes(), &runs)),
        }
    }

    /// Reads all that is noted, and takes away what is to be taken away. False where a bucket then has values that sum
    /// to more than its total. Fails as [`Gather::take_away`] does.
    pub(super) fn settle(&mut self) -> Result<bool> {
        for file in mem::take(&mut self.runs) {
            self.run(file, Run::visit_prefix)?;
        }
        self.take_away(Run::visit_prefix)?;
        self.close_bucket()?;
        let mut totals: BTreeMap<TimeCode, u128> = BTreeMap::new();
        for (code, count) in &self.totals {
            *totals.entry(*code).or_insert(0) += u128::from(*count);
        }
        let mut named = self.named.iter();
        Ok(named.all(|(code, named)| {
            totals
                .get(code)
                .is_some_and(|total| u128::from(*named) <= *total)
        }))
    }

    fn totals_less(&mut self, minus: &Self) -> Result<bool> {
        self.other_charge.grow(minus.totals.len() * NAMED_BYTES)?;
        let mut less: BTreeMap<TimeCode, u128> = BTreeMap::new();
        for (code, count) in &minus.totals {
            *less.entry(*code).or_insert(0) += u128::from(*count);
        }
        for (code, count) in &mut self.totals {
            drain(&mut less, code, count);
        }
        self.totals.retain(|(_, count)| *count > 0);
        Ok(less.values().all(|left| *left == 0))
    }

    fn values_less(&mut self, minus: &Self) -> Result<bool> {
        let series = &mut self.series;
        self.other_charge
            .grow(minus.series.points.len() * NAMED_BYTES)?;
        let mut own: Vec<Option<u32>> = vec![None; minus.series.values.len()];
        for (value, number) in &minus.numbers {
            own[*number as usize] = self.numbers.get(value).copied();
        }
        for (&own, &less) in own.iter().zip(&minus.series.sums) {
            let sum = own.map(|own| &mut series.sums[own as usize]);
            let left = sum.and_then(|sum| Some((sum.checked_sub(less)?, sum)));
            match left {
                Some((left, sum)) => *sum = left,
                None if less == 0 => {}
                None => return Ok(false),
            }
        }
        let mut less: BTreeMap<(TimeCode, u32), u128> = BTreeMap::new();
        for point in &minus.series.points {
            let Some(own) = own[point.value as usize] else {
                return Ok(false);
            };
            *less.entry((point.code, own)).or_insert(0) += u128::from(point.count);
        }
        for point in &mut series.points {
            drain(&mut less, &(point.code, point.value), &mut point.count);
        }
        series.points.retain(|point| point.count > 0);
        if self.rolled.is_some() {
            self.forget_empty_values();
        }
        Ok(less.values().all(|left| *left == 0))
    }

    /// Forgets values whose sums are zero: an answer lists every value that a series has.
    fn forget_empty_values(&mut self) {
        let series = &mut self.series;
        let mut kept = 0;
        let places: Vec<Option<u32>> = (series.sums.iter())
            .map(|sum| {
                let place = (*sum > 0).then_some(kept);
                kept += u32::from(*sum > 0);
                place
            })
            .collect();
        self.numbers.retain(|_, number| {
            let place = places[*number as usize];
            *number = place.unwrap_or(*number);
            place.is_some()
        });
        let mut place = places.iter();
        series
            .values
            .retain(|_| place.next().is_some_and(Option::is_some));
        series.sums.retain(|sum| *sum > 0);
    }

    fn named_less(&mut self, minus: &Self) -> bool {
        let is_enough = minus.named.iter().all(|(code, less)| {
            let named = self.named.get_mut(code);
            let left = named.and_then(|named| Some((named.checked_sub(*less)?, named)));
            left.map(|(left, named)| *named = left).is_some()
        });
        self.named.retain(|_, count| *count > 0);
        is_enough
    }
}

/// Takes as much as possible of what is to be taken away for `key` from one of its counts.
fn drain<K: Ord>(less: &mut BTreeMap<K, u128>, key: &K, count: &mut u64) {
    if let Some(left) = less.get_mut(key) {
        let taken = u64::try_from(*left).unwrap_or(u64::MAX).min(*count);
        *count -= taken;
        *left -= u128::from(taken);
    }
}

/// Takes counts by bucket away; buckets that become zero vanish. False where a bucket has less.
pub(super) fn buckets_less(
    sums: &mut BTreeMap<TimeCode, u64>,
    less: &BTreeMap<TimeCode, u64>,
) -> bool {
    let is_enough = less.iter().all(|(code, less)| {
        let sum = sums.get_mut(code);
        let left = sum.and_then(|sum| Some((sum.checked_sub(*less)?, sum)));
        left.map(|(left, sum)| *sum = left).is_some()
    });
    sums.retain(|_, count| *count > 0);
    is_enough
}

/// The error about a count that would fall below zero: these runs take away more than all others count.
pub(super) fn below_zero(key: &[u8], minus: &[File<'_>]) -> crate::error::Error {
    let names: Vec<&str> = minus.iter().map(|file| file.run.name()).collect();
    let what = format!(
        "a count of `{}` would fall below zero: more is taken away than the other files count",
        line::shown(key)
    );
    tallyring_archive::Error::malformed(&names.join(", "), what).into()
}
