//! Upper bounds of counters by hour, which spare a commit from reading the counters.
//!
//! Invariant: no counter that starts in an hour is above the bound of its entry. An hour shares its entry with the
//! hours eleven months before and after.

use tallyring_archive::{RunEntry, Sign};

const HOURS: usize = 8192;
const HOUR_SECONDS: i64 = 3_600;

/// Upper bounds by hour.
pub(super) struct Bounds(Box<[u64; HOURS]>);

impl Bounds {
    pub(super) fn new() -> Self {
        Self(Box::new([0; HOURS]))
    }

    /// An upper bound of the sum of all counters in the hour of `at`, Unix seconds.
    pub(super) fn of(&self, at: i64) -> u64 {
        self.0[index(hour(at))]
    }

    /// Counts an increment.
    pub(super) fn add(&mut self, at: i64, n: u64) {
        let bound = &mut self.0[index(hour(at))];
        *bound = bound.saturating_add(n);
    }

    /// Counts the sum of a run in each of the run's hours. Counts that are taken away lower no bound.
    pub(super) fn add_run(&mut self, run: &RunEntry) {
        if run.sign() == Sign::Minus {
            return;
        }
        let sums = run.meta.sums.iter();
        // Breakdowns are parts of totals; minutes and ids are not counts.
        let totals = sums.filter(|(section, _)| !section.contains('.'));
        let sum: u128 = totals.map(|(_, &sum)| sum).sum();
        let sum = u64::try_from(sum).unwrap_or(u64::MAX);
        let hours = hour(run.meta.first)..=hour(run.meta.last);
        for hour in hours.take(HOURS) {
            let bound = &mut self.0[index(hour)];
            *bound = bound.saturating_add(sum);
        }
    }
}

fn hour(at: i64) -> i64 {
    at.div_euclid(HOUR_SECONDS)
}

fn index(hour: i64) -> usize {
    usize::try_from(hour.rem_euclid(HOURS as i64)).expect("BUG: a remainder is not negative")
}
