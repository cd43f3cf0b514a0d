//! Base buckets in 32 bits: the start in minutes since 2000, and the grain in the two lowest bits.
//!
//! Invariant: buckets sort as their time codes do, by start and then from the widest on, because totals of a key stand
//! in that order in a run. The minutes until 2999 leave these two bits free.

use tallyring_records::{Grain, TimeCode};

/// A base bucket. A key may have buckets of several grains: days of a history beside hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket(u32);

impl Bucket {
    /// The bucket with this time code.
    pub(super) fn of(code: TimeCode) -> Self {
        let grain = match code.grain() {
            Grain::Day => 0,
            Grain::Hour => 1,
            Grain::Quarter => 2,
            Grain::Minute => 3,
        };
        Self(code.minutes() << 2 | grain)
    }

    /// The bucket of a number that [`Bucket::number`] returned.
    pub(super) fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// A number that sorts as the bucket does.
    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// Its time code.
    pub(super) fn code(self) -> TimeCode {
        TimeCode::from_minutes(self.0 >> 2, Grain::ALL[(self.0 & 3) as usize])
    }

    /// The days from 2000-01-01 to its day.
    pub(super) fn day(self) -> usize {
        ((self.0 >> 2) / 1_440) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tallyring_records::{TIME_MAX, TIME_MIN};

    proptest! {
        #[test]
        fn prop_buckets_are_their_codes_and_sort_alike(
            (a, b) in (TIME_MIN..TIME_MAX, TIME_MIN..TIME_MAX),
            (of_a, of_b) in (0..4_usize, 0..4_usize),
        ) {
            let a = TimeCode::containing(a, Grain::ALL[of_a]);
            for b in [b, a.start()] {
                let b = TimeCode::containing(b, Grain::ALL[of_b]);
                prop_assert_eq!(Bucket::of(a).code(), a);
                prop_assert_eq!(Bucket::of(a).cmp(&Bucket::of(b)), a.cmp(&b));
                prop_assert_eq!(Bucket::from_number(Bucket::of(b).number()), Bucket::of(b));
            }
        }
    }
}
