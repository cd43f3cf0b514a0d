//! Counts by base bucket, as a read adds them up.
//!
//! Invariant: codes ascend, no code stands twice, and no count is above [`COUNT_MAX`].

use crate::increment::COUNT_MAX;
use crate::time_code::TimeCode;

/// One count for each base bucket that counted something.
///
/// ```
/// use tallyring_records::{Counts, Grain, TimeCode};
///
/// let hour = TimeCode::containing(1_331_923_247, Grain::Hour);
/// let counts = Counts::from(vec![(hour, 2), (hour, 3)]);
/// assert_eq!(counts.iter().collect::<Vec<_>>(), [(hour, 5)]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(Vec<(TimeCode, u64)>);

impl Counts {
    /// Buckets and counts, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (TimeCode, u64)> + Clone {
        self.0.iter().copied()
    }

    /// The buckets, ascending.
    pub fn codes(&self) -> impl DoubleEndedIterator<Item = TimeCode> + Clone {
        self.iter().map(|(code, _)| code)
    }

    /// Starts of the first and the last bucket, Unix seconds; `None` when there are no counts.
    pub fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        Some((first.0.start(), last.0.start()))
    }

    /// Sum of all counts, at most [`COUNT_MAX`].
    pub fn sum(&self) -> u64 {
        sum_capped(self.iter().map(|(_, count)| count))
    }

    /// True when there are no counts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes codes in any order, and adds up the counts of equal ones.
impl From<Vec<(TimeCode, u64)>> for Counts {
    fn from(mut counts: Vec<(TimeCode, u64)>) -> Self {
        // The buckets of one key in one run ascend already.
        let ascend = counts.is_sorted_by(|before, next| before.0 < next.0);
        if !ascend {
            counts.sort_by_key(|&(code, _)| code);
            counts.dedup_by(|next, kept| {
                let is_same = next.0 == kept.0;
                if is_same {
                    add_capped(&mut kept.1, next.1);
                }
                is_same
            });
        }
        for (_, count) in &mut counts {
            *count = COUNT_MAX.min(*count);
        }
        Self(counts)
    }
}

impl FromIterator<(TimeCode, u64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (TimeCode, u64)>>(counts: I) -> Self {
        counts.into_iter().collect::<Vec<_>>().into()
    }
}

/// Adds to a count, at most up to [`COUNT_MAX`]. The store refuses increments that would lift a counter above it.
pub fn add_capped(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count).min(COUNT_MAX);
}

/// Sum of counts, at most [`COUNT_MAX`].
///
/// ```
/// use tallyring_records::{COUNT_MAX, sum_capped};
///
/// assert_eq!(sum_capped([1, 2]), 3);
/// assert_eq!(sum_capped([COUNT_MAX, 1]), COUNT_MAX);
/// ```
pub fn sum_capped(counts: impl IntoIterator<Item = u64>) -> u64 {
    let sum = counts.into_iter().fold(0, u64::saturating_add);
    sum.min(COUNT_MAX)
}

/// A wide sum as a count, at most [`COUNT_MAX`].
///
/// ```
/// use tallyring_records::{COUNT_MAX, capped};
///
/// assert_eq!([capped(3), capped(u128::MAX)], [3, COUNT_MAX]);
/// ```
pub fn capped(sum: u128) -> u64 {
    u64::try_from(sum).map_or(COUNT_MAX, |sum| sum.min(COUNT_MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::time_code::{Grain, TIME_MIN};

    proptest! {
        #[test]
        fn prop_counts_are_those_of_a_map(
            given in proptest::collection::vec((0_i64..40, any::<bool>(), 0..=COUNT_MAX), 0..60),
        ) {
            let mut map: BTreeMap<TimeCode, u64> = BTreeMap::new();
            let code = |hour: i64, is_day: bool| {
                let grain = if is_day { Grain::Day } else { Grain::Hour };
                TimeCode::containing(TIME_MIN + hour * 3_600, grain)
            };
            for &(hour, is_day, count) in &given {
                let sum = map.entry(code(hour, is_day)).or_insert(0);
                *sum = sum.saturating_add(count).min(COUNT_MAX);
            }
            let counts: Counts =
                given.iter().map(|&(hour, is_day, count)| (code(hour, is_day), count)).collect();
            let pairs: Vec<_> = map.iter().map(|(&code, &count)| (code, count)).collect();
            prop_assert_eq!(counts.iter().collect::<Vec<_>>(), pairs);
            let starts = || map.keys().map(|code| code.start());
            prop_assert_eq!(counts.span(), starts().min().zip(starts().max()));
            let sum = map.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
            prop_assert_eq!(counts.sum(), sum.min(COUNT_MAX));
            prop_assert_eq!(counts.is_empty(), map.is_empty());
        }
    }
}
