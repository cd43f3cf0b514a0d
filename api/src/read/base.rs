//! Which base buckets a read needs: the namespace's own, or minutes where those do not fit.
//!
//! A read takes the coarsest grain that answers it exactly. Where minutes are kept and its buckets
//! do not meet at the grain's edges (minutes, days of half-hour zones), it takes the minutes, and of
//! what was counted without them the base bucket, which counts where it starts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use tallyring_realtime::{Series, Store};
use tallyring_records::{FieldError, Grain, MINUTES, Namespace, TIME_MIN, TimeCode};

use super::request::span;
use crate::calendar::{Buckets, Selection, Unit, rfc3339_utc};
use crate::problem::Problem;

/// The base buckets of one read.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    grain: Grain,
    minutes: bool,
}

impl Base {
    /// What a read of `namespace` needs for `selection`.
    pub fn of(namespace: &Namespace, selection: &Selection) -> Self {
        let grain = namespace.grain;
        let fits = match selection {
            Selection::Bounded(buckets) => buckets.aligned(grain.seconds()),
            // How far it reaches is not known yet.
            Selection::All(all) => all.unit() != Unit::Minute && all.zone().name() == "UTC",
        };
        Self {
            grain,
            minutes: namespace.minutes && !fits,
        }
    }

    /// The namespace's own, for breakdowns: no minutes are kept of their values.
    pub fn own(namespace: &Namespace) -> Self {
        Self {
            grain: namespace.grain,
            minutes: false,
        }
    }

    /// What to read a series of totals by.
    pub fn subtotal(self) -> Option<String> {
        self.minutes.then(|| MINUTES.to_owned())
    }

    /// The instants to read (Unix seconds): whole base buckets where they are split into minutes.
    pub fn span(self, selection: &Selection) -> (i64, i64) {
        let (from, to) = span(selection);
        if !self.minutes {
            return (from, to);
        }
        let width = self.grain.seconds();
        let from = (from - from.rem_euclid(width)).max(TIME_MIN);
        (from, to + (-to).rem_euclid(width))
    }

    /// Totals by base bucket, or by minute.
    pub fn counts(self, series: &Series) -> Cow<'_, BTreeMap<TimeCode, u64>> {
        if self.minutes {
            Cow::Owned(series.by_minute())
        } else {
            Cow::Borrowed(&series.totals)
        }
    }

    /// Minutes that have expired are refused rather than answered as zeros; `minutes_from` is the view's.
    ///
    /// # Errors
    /// 422 when the first of the minutes asked for is older.
    pub fn check_kept(self, buckets: &Buckets, minutes_from: Option<i64>) -> Result<(), Problem> {
        let kept = minutes_from.unwrap_or(TIME_MIN);
        if !self.minutes || buckets.unit() != Unit::Minute || kept <= buckets.start() {
            return Ok(());
        }
        let detail = format!(
            "minutes before {} are no longer kept; ask for unit=hour, or for later ones",
            rfc3339_utc(kept)
        );
        Err(FieldError::refused("from", &rfc3339_utc(buckets.start()), detail).into())
    }

    /// True when everything that was counted lies in the bucket that it belongs to.
    pub fn aligned(self, counts: &BTreeMap<TimeCode, u64>, buckets: &Buckets) -> bool {
        if self.minutes {
            let last_second = |code: &TimeCode| code.start() + code.grain().seconds() - 1;
            return counts
                .keys()
                .all(|code| buckets.index_of(code.start()) == buckets.index_of(last_second(code)));
        }
        // What was counted before a finer grain was declared is as coarse as it was.
        let counted = counts.keys().map(|code| code.grain().seconds());
        buckets.aligned(counted.fold(self.grain.seconds(), i64::max))
    }
}

/// True when days that hours were folded into lie across the edges of the buckets: they count where they start, or
/// outside.
pub fn are_cut(store: &Store, buckets: &Buckets, generation: u64) -> bool {
    let folded = store.hours_from(generation);
    folded.is_some_and(|hours_from| buckets.start() < hours_from)
        && !buckets.aligned(Grain::Day.seconds())
}
