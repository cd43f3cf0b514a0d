//! Verdicts on settled buckets.
//!
//! A bucket is expected to count what the same hours of the same weekday counted in the four weeks before: the median
//! of those that lie after the first count. An alert begins beyond its bound, and ends only inside half the way back,
//! so a count that moves about the bound tells once.

use tallyring_api::calendar::{Bucket, Buckets};
use tallyring_realtime::{Result, View};

use super::counted::{Coarse, Counted};
use crate::config::{Alert, Kind};

/// Weeks that are compared with.
const WEEKS: i64 = 4;
/// Fewer of them tell nothing.
const WEEKS_MIN: usize = 2;
const WEEK_S: i64 = 7 * 86_400;
/// Buckets that were missed for longer are not judged any more.
const CATCH_UP_S: i64 = 2 * 86_400;

/// The verdict on a settled bucket, and its numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judged {
    pub bucket: Bucket,
    pub verdict: Verdict,
    /// The count that was judged: that of the bucket, and for a silence of its hours.
    pub count: u64,
    /// None where there is not enough history.
    pub expected: Option<u64>,
    /// The alert begins beyond it; none where nothing can be said.
    pub bound: Option<f64>,
}

/// Where a count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The alert begins.
    Beyond,
    /// The alert stays as it is, also where nothing can be said.
    Between,
    /// The alert ends.
    Inside,
}

/// Judges the buckets of an alert that settled since `judged_until`, oldest first. Buckets before `settled` (both Unix
/// seconds) are settled. Reads nothing where there is no new one. Fails as reads of the view do.
pub(super) fn judge(
    view: &View<'_>,
    alert: &Alert,
    judged_until: Option<i64>,
    settled: i64,
) -> Result<Vec<Judged>> {
    let (unit, zone) = (alert.unit, &alert.zone);
    let end = Bucket::holding(unit, zone, settled).start;
    let last = Bucket::holding(unit, zone, end - 1).start;
    let first = match judged_until {
        Some(until) if until >= end => return Ok(Vec::new()),
        Some(until) => until.max(last - CATCH_UP_S),
        None => last,
    };
    // Twice the weeks: what came before the compared ones shows that they are covered.
    let Ok(buckets) = Buckets::covering(unit, zone.clone(), first - 2 * WEEKS * WEEK_S, last)
    else {
        return Ok(Vec::new());
    };
    let counts = Counted::read(view, &alert.of, &buckets, Coarse::LeftOut)?;
    let begin = buckets.index_of(first).unwrap_or(0);
    let judged = (begin..buckets.count()).map(|at| counts.judged(alert, &buckets, at));
    Ok(judged.collect())
}

impl Counted {
    fn judged(&self, alert: &Alert, buckets: &Buckets, at: usize) -> Judged {
        let edges = buckets.edges();
        let bucket = Bucket {
            start: edges[at],
            end: edges[at + 1],
        };
        let width = match alert.kind {
            Kind::Silence(hours) => hours as usize,
            _ => 1,
        };
        let count = self.sum(at, width).unwrap_or(0);
        // Far from the edges, where clocks may have changed.
        let middle = bucket.start + (bucket.end - bucket.start) / 2;
        let history = (1..=WEEKS).filter_map(|weeks| {
            let before = buckets.index_of(buckets.zone().weeks_earlier(middle, weeks))?;
            let begins = edges[(before + 1).checked_sub(width)?];
            let is_covered = self.first.is_some_and(|first| first <= begins);
            self.sum(before, width).filter(|_| is_covered)
        });
        let history: Vec<u64> = history.collect();
        let expected = (history.len() >= WEEKS_MIN).then(|| median(history));
        // The bucket with the first count may have begun without anybody to count.
        let is_new = self.first.is_none_or(|first| first >= bucket.start);
        let (verdict, bound) = verdict(alert, count, expected, is_new);
        Judged {
            bucket,
            verdict,
            count,
            expected,
            bound,
        }
    }

    /// The sum of so many buckets up to the one at `last`.
    fn sum(&self, last: usize, width: usize) -> Option<u64> {
        let begin = (last + 1).checked_sub(width)?;
        Some(tallyring_records::sum_capped(
            self.counts[begin..=last].iter().copied(),
        ))
    }
}

/// The middle of some counts; of two in the middle, half the way between.
fn median(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    let half = counts.len() / 2;
    match counts.len() % 2 {
        1 => counts[half],
        _ => counts[half - 1].midpoint(counts[half]),
    }
}

/// Where a count is, and the bound. Counts that are new miss nothing.
fn verdict(
    alert: &Alert,
    count: u64,
    expected: Option<u64>,
    is_new: bool,
) -> (Verdict, Option<f64>) {
    let usual = expected.unwrap_or(0) as f64;
    // An alert begins beyond `begins` and ends at `ends` or inside.
    let (begins, ends, is_more) = match alert.kind {
        Kind::Above(bound) => (bound as f64, (bound - bound / 10) as f64, true),
        Kind::Below(bound) => (bound as f64, bound.saturating_add(bound / 10) as f64, false),
        Kind::Spike(factor) => {
            let bound = (usual * factor).max(alert.least as f64);
            (bound, f64::midpoint(usual, bound), true)
        }
        Kind::Drop(factor) => (usual * factor, f64::midpoint(usual, usual * factor), false),
        Kind::Silence(_) => (1.0, usual / 2.0, false),
    };
    // An alert that cannot begin can end all the same.
    let may_begin = match alert.kind {
        Kind::Above(_) => true,
        Kind::Below(_) => !is_new,
        Kind::Spike(_) => expected.is_some(),
        Kind::Drop(_) | Kind::Silence(_) => expected.is_some_and(|of| of >= alert.least),
    };
    let count = count as f64;
    let (is_beyond, is_inside) = match is_more {
        true => (count > begins, count <= ends),
        // Where nothing is expected any more, nothing is no end.
        false => (count < begins, count >= ends && count > 0.0),
    };
    let verdict = match (is_beyond, is_inside) {
        (true, _) if may_begin => Verdict::Beyond,
        (false, true) => Verdict::Inside,
        _ => Verdict::Between,
    };
    (verdict, may_begin.then_some(begins))
}

#[cfg(test)]
mod tests {
    use super::super::tests::alert;
    use super::*;

    #[test]
    fn an_alert_begins_beyond_the_bound_and_ends_inside_half_the_way_back() {
        use Verdict::{Between, Beyond, Inside};
        let spike = "kind = \"spike\"\nfactor = 3.0";
        let drop = "kind = \"drop\"\nfactor = 0.5";
        let silence = "kind = \"silence\"\nhours = 3";
        let above = "kind = \"threshold\"\nabove = 100";
        let below = "kind = \"threshold\"\nbelow = 100";
        for (kind, expected, counts) in [
            (
                spike,
                Some(40),
                &[(121, Beyond), (120, Between), (81, Between), (80, Inside)][..],
            ),
            (
                spike,
                Some(0),
                &[(11, Beyond), (10, Between), (6, Between), (5, Inside)],
            ),
            (
                drop,
                Some(40),
                &[(19, Beyond), (20, Between), (29, Between), (30, Inside)],
            ),
            (drop, Some(9), &[(0, Between), (6, Between), (7, Inside)]),
            (drop, Some(0), &[(0, Between), (1, Inside)]),
            (
                silence,
                Some(40),
                &[(0, Beyond), (1, Between), (19, Between), (20, Inside)],
            ),
            (silence, Some(1), &[(0, Beyond), (1, Inside)]),
            (silence, Some(0), &[(0, Between), (1, Inside)]),
            (
                above,
                None,
                &[(101, Beyond), (100, Between), (91, Between), (90, Inside)],
            ),
            (
                below,
                None,
                &[(99, Beyond), (100, Between), (109, Between), (110, Inside)],
            ),
            (spike, None, &[(1_000, Between), (6, Between), (5, Inside)]),
            (drop, None, &[(0, Between), (1, Inside)]),
            (silence, None, &[(0, Between), (1, Inside)]),
        ] {
            let alert = alert(kind);
            for (count, wanted) in counts {
                let (found, _) = verdict(&alert, *count, expected, false);
                assert_eq!(found, *wanted, "{kind}: {count} of {expected:?}");
            }
        }
    }

    #[test]
    fn nothing_is_missed_before_something_was_counted() {
        let below = alert("kind = \"threshold\"\nbelow = 100");
        assert_eq!(verdict(&below, 0, None, true), (Verdict::Between, None));
    }

    #[test]
    fn the_middle_of_two_is_between_them() {
        assert_eq!(median(vec![9, 1]), 5);
        assert_eq!(median(vec![9, 1, 2]), 2);
        assert_eq!(median(vec![u64::MAX, u64::MAX, 0, 0]), u64::MAX / 2);
    }
}
