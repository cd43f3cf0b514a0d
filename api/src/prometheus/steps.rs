//! The instants at which an expression is evaluated, and the stretch of time that each counts.
//!
//! Counts belong to base buckets, and a base bucket counts where it starts. So stretches that meet share nothing and
//! lose nothing, whatever their edges.

use std::ops::Range;

use jiff::Span;
use tallyring_records::{COUNT_MAX, TIME_MAX, TIME_MIN};

use super::expression::{Measure, Selector};
use crate::calendar::{Bucket, Buckets, Unit, Zone, rfc3339_utc};
use crate::problem::{Problem, Result};

/// Instants of one query.
const INSTANTS_MAX: i64 = 11_001;
const DAY_SECONDS: i64 = 86_400;
const DAY_MS: i64 = DAY_SECONDS * 1_000;
const HOUR_SECONDS: i64 = 3_600;

/// The instants of a query.
pub(super) struct Steps {
    /// Unix milliseconds, ascending.
    pub instants: Vec<i64>,
    /// The zone whose days are counted, where one is named.
    zone: Option<Zone>,
    /// The clock's time, Unix seconds.
    now: i64,
}

/// The stretches that one selector counts at all instants, as cells without a gap between them.
pub(super) struct Windows {
    /// None where nothing is counted.
    pub cells: Option<Buckets>,
    /// For each instant the cells that it counts; none where its stretch has not begun.
    stretches: Vec<Option<Range<usize>>>,
}

/// The times of a `query_range`, Unix milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub start: i64,
    pub end: i64,
    pub step: i64,
}

impl Steps {
    /// One instant, Unix milliseconds.
    pub(super) fn one(instant: i64, zone: Option<Zone>, now: i64) -> Self {
        Self {
            instants: vec![instant],
            zone,
            now,
        }
    }

    /// The instants from `start` to `end`. Steps of whole days in a zone are its days: each instant is the midnight
    /// where a day begins. Fails with 400 for too many.
    pub(super) fn range(
        Times { start, end, step }: Times,
        zone: Option<Zone>,
        now: i64,
    ) -> Result<Self> {
        let steps = (end - start) / step;
        if steps >= INSTANTS_MAX {
            let detail = format!(
                "must be longer: from `start` to `end` it takes {} points, and a series has at most {INSTANTS_MAX}",
                steps + 1
            );
            return Err(Problem::malformed("step", "", detail));
        }
        let grid = |number| start + number * step;
        let instants = match &zone {
            Some(zone) if step % DAY_MS == 0 => {
                let first = nearest_midnight(zone, start.div_euclid(1_000));
                let day = |number| zone.days_after(first, number * (step / DAY_MS)) * 1_000;
                let mut days: Vec<i64> = (0..=steps).map(day).collect();
                // A date that the zone skipped begins where the next one does.
                days.dedup();
                days
            }
            _ => (0..=steps).map(grid).collect(),
        };
        Ok(Self {
            instants,
            zone,
            now,
        })
    }

    /// The stretches that a selector counts.
    pub(super) fn windows(&self, selector: &Selector) -> Windows {
        let stretches: Vec<Option<Range<i64>>> = self
            .instants
            .iter()
            .map(|instant| self.stretch(*instant, selector))
            .collect();
        let known = stretches.iter().flatten();
        let mut edges: Vec<i64> = known.flat_map(|of| [of.start, of.end]).collect();
        edges.sort_unstable();
        edges.dedup();
        let place = |edge| edges.partition_point(|of| *of < edge);
        let stretches = stretches.into_iter().map(|stretch| {
            let stretch = stretch?;
            Some(place(stretch.start)..place(stretch.end))
        });
        Windows {
            stretches: stretches.collect(),
            cells: (edges.len() > 1).then(|| Buckets::between(edges)),
        }
    }

    /// The stretch (Unix seconds) that a selector counts at an instant: none before the year 2000, and none that has
    /// not begun.
    fn stretch(&self, instant: i64, selector: &Selector) -> Option<Range<i64>> {
        // A bucket that starts within a second that has begun does not lie before the instant's fraction of it.
        let instant = -(-instant).div_euclid(1_000);
        let end = self.earlier(instant, selector.offset);
        let start = match selector.measure {
            Measure::Value => TIME_MIN,
            Measure::Increase(range) | Measure::Rate(range) => self.beginning(end, range),
        };
        if end <= TIME_MIN || start >= self.now.max(TIME_MIN + 1) {
            return None;
        }
        // The hour that runs counts as far as it has come: its end takes nothing in that is not there yet. An instant
        // minutes back counts what came before it.
        let minute_ends = end - end.rem_euclid(60) + 60;
        let is_running = self.instants.len() == 1 && minute_ends > self.now;
        let hour_ends = end + (-end).rem_euclid(HOUR_SECONDS);
        let end = if is_running { hour_ends } else { end };
        let start = start.clamp(TIME_MIN, TIME_MAX);
        Some(start..end.clamp(start, TIME_MAX))
    }

    /// The instant so many seconds before another one: whole days are days of the zone.
    fn earlier(&self, instant: i64, seconds: i64) -> i64 {
        match &self.zone {
            Some(zone) if seconds % DAY_SECONDS == 0 && seconds != 0 => {
                let days = seconds / DAY_SECONDS;
                match day_of(zone, instant).start == instant {
                    true => zone.days_after(instant, -days),
                    false => zone.earlier(instant, Span::new().days(days)),
                }
            }
            _ => instant - seconds,
        }
    }

    /// Where a range that ends at an instant begins. Whole days in a zone are the day that is not over before the
    /// instant, as far as it has come, and the days before.
    fn beginning(&self, end: i64, range: i64) -> i64 {
        match &self.zone {
            Some(zone) if range % DAY_SECONDS == 0 => {
                let last = day_of(zone, end - 1).start;
                zone.days_after(last, 1 - range / DAY_SECONDS)
            }
            _ => end - range,
        }
    }
}

impl Windows {
    /// The stretches themselves (Unix seconds), where they have begun.
    pub(super) fn stretches(&self) -> impl ExactSizeIterator<Item = Option<Range<i64>>> {
        self.stretches.iter().map(|stretch| {
            let cells = stretch.as_ref()?;
            let edges = self.cells.as_ref().map(Buckets::edges);
            // Without cells all of them are empty.
            Some(edges.map_or(TIME_MIN..TIME_MIN, |edges| {
                edges[cells.start]..edges[cells.end]
            }))
        })
    }

    /// The value at each instant, of counts by cell.
    pub(super) fn values(&self, counts: &[u64], measure: Measure) -> Vec<Option<f64>> {
        let mut sums = Vec::with_capacity(counts.len() + 1);
        sums.push(0_u128);
        for count in counts {
            sums.push(sums[sums.len() - 1] + u128::from(*count));
        }
        let stretches = self.stretches.iter();
        let value = |cells: &Range<usize>| {
            let count = match counts.is_empty() {
                true => 0,
                false => sums[cells.end] - sums[cells.start],
            };
            told(u64::try_from(count).unwrap_or(u64::MAX), measure)
        };
        stretches
            .map(|stretch| stretch.as_ref().map(value))
            .collect()
    }
}

/// The value that a count is told as.
pub(super) fn told(count: u64, measure: Measure) -> f64 {
    // Up to here every integer is exact.
    let count = count.min(COUNT_MAX) as f64;
    match measure {
        Measure::Value | Measure::Increase(_) => count,
        Measure::Rate(seconds) => count / seconds as f64,
    }
}

/// The day of a zone that holds an instant.
fn day_of(zone: &Zone, instant: i64) -> Bucket {
    Bucket::holding(Unit::Day, zone, instant)
}

/// The midnight that is nearest to an instant: a client that takes days of one length is beside it by an hour where the
/// clocks changed.
fn nearest_midnight(zone: &Zone, instant: i64) -> i64 {
    let day = day_of(zone, instant);
    match instant - day.start <= day.end - instant {
        true => day.start,
        false => day.end,
    }
}

/// Fails with 400 for an instant (Unix milliseconds) before 1970 or after 2999. Clients test a server with one of 1970,
/// when nothing counts yet.
pub(super) fn check_instant(name: &str, instant: i64) -> Result<()> {
    let seconds = instant.div_euclid(1_000);
    if (0..TIME_MAX).contains(&seconds) {
        return Ok(());
    }
    let detail = "must lie in the years 1970 to 2999";
    Err(Problem::malformed(name, &rfc3339_utc(seconds), detail))
}
