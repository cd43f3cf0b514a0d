//! How large counters can be at most, by the day they are of: what spares a commit from reading them.
//!
//! Invariant: no counter of a day is above the bound of its place. Days share a place with those eleven years before and
//! after.

use tallyring_archive::RunEntry;

const DAYS: usize = 4096;
const DAY_SECONDS: i64 = 86_400;

/// Bounds by day.
pub(super) struct Bounds(Box<[u64; DAYS]>);

impl Bounds {
    pub fn new() -> Self {
        Self(Box::new([0; DAYS]))
    }

    /// The sum of all counters of the day of `at`, Unix seconds, or more.
    pub fn of(&self, at: i64) -> u64 {
        self.0[place(at.div_euclid(DAY_SECONDS))]
    }

    /// Counts an increment.
    pub fn add(&mut self, at: i64, n: u64) {
        let bound = &mut self.0[place(at.div_euclid(DAY_SECONDS))];
        *bound = bound.saturating_add(n);
    }

    /// Counts what a run holds in each of its days.
    pub fn add_run(&mut self, run: &RunEntry) {
        let sums = run.meta.sums.iter();
        // Breakdowns are parts of totals, and minutes and ids are none.
        let totals = sums.filter(|(section, _)| !section.contains('.'));
        let sum: u128 = totals.map(|(_, &sum)| sum).sum();
        let sum = u64::try_from(sum).unwrap_or(u64::MAX);
        let day = |at: i64| at.div_euclid(DAY_SECONDS);
        let days = day(run.meta.first)..=day(run.meta.last);
        for day in days.take(DAYS) {
            let bound = &mut self.0[place(day)];
            *bound = bound.saturating_add(sum);
        }
    }
}

fn place(day: i64) -> usize {
    usize::try_from(day.rem_euclid(DAYS as i64)).expect("BUG: a remainder is not negative")
}
