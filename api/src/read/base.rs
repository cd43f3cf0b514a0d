//! Which base buckets a read needs: the namespace's own, or minutes where those do not fit.
//!
//! One rule for every read, of one key, of all keys, ratios and bitly's. A read takes the coarsest grain that answers
//! it exactly. Where minutes are kept and its buckets do not meet at the grain's edges (minutes, days of half-hour
//! zones), it takes the minutes, and of what was counted without them the base bucket, which counts where it starts:
//! then the answer is not aligned. Values and users have minutes for the last hours only, and are read from them where
//! minutes are asked for. A read by the minute of what has none is refused: every minute but the first of a bucket
//! would be a zero that is not true.

use std::borrow::Cow;

use tallyring_realtime::{CountedSpan, Series, View};
use tallyring_records::{
    Counts, FieldError, Grain, MINUTES, Namespace, TIME_MIN, TimeCode, by_minute,
};

use super::period::span;
use crate::calendar::{Buckets, Selection, Unit, rfc3339_utc};
use crate::problem::{Problem, Result};

/// The base buckets of one read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    grain: Grain,
    detail: Detail,
}

/// The form in which a read needs its base buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// As they are.
    Buckets,
    /// The totals of minutes.
    Minutes,
    /// The values or users of minutes.
    Breakdowns,
}

/// The base data that a read is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BaseData<'n> {
    /// Totals, which have minutes where the namespace keeps them.
    Totals,
    /// Values of a subtotal.
    Values(&'n str),
    /// Sketches of users.
    Users,
}

impl Base {
    /// The base buckets that a read of `namespace` needs for `selection`. Fails with 422 for minutes where there are
    /// none.
    pub(crate) fn of(
        namespace: &Namespace,
        selection: &Selection,
        data: BaseData<'_>,
    ) -> Result<Self> {
        let grain = namespace.grain;
        let (unit, fits) = match selection {
            Selection::Bounded(buckets) => (buckets.unit(), buckets.aligned(grain.seconds())),
            // How far it reaches is not known yet.
            Selection::All(all) => (
                all.unit(),
                all.unit() != Unit::Minute && all.zone().name() == "UTC",
            ),
        };
        let has_minutes =
            namespace.minutes && (data != BaseData::Users || !namespace.subtotals.is_empty());
        if unit == Unit::Minute && !has_minutes {
            return Err(no_minutes(namespace, data));
        }
        let detail = match data {
            BaseData::Totals if has_minutes && !fits => Detail::Minutes,
            BaseData::Values(_) | BaseData::Users if unit == Unit::Minute => Detail::Breakdowns,
            _ => Detail::Buckets,
        };
        Ok(Self { grain, detail })
    }

    /// True when it reads minutes.
    pub(crate) fn by_minute(self) -> bool {
        self.detail != Detail::Buckets
    }

    /// The subtotal to read a series of totals by.
    pub(crate) fn subtotal(self) -> Option<String> {
        (self.detail == Detail::Minutes).then(|| MINUTES.to_owned())
    }

    /// The subtotal to read the values of a declared subtotal by.
    pub(crate) fn subtotal_of(self, declared: &str) -> String {
        match self.detail {
            Detail::Breakdowns => by_minute(declared),
            Detail::Buckets | Detail::Minutes => declared.to_owned(),
        }
    }

    /// The subtotal that tells whether users are kept by the minute: they are where its values are.
    pub(crate) fn subtotal_of_users(self, namespace: &Namespace) -> Option<String> {
        let first = namespace.subtotals.first();
        let first = first.filter(|_| self.detail == Detail::Breakdowns);
        first.map(|declared| by_minute(declared))
    }

    /// The instants to read (Unix seconds): whole base buckets where they are split into minutes, and where the
    /// namespace may have been counted by the hour before: what began earlier does not count, but is seen not to fit.
    pub(crate) fn span(self, selection: &Selection) -> (i64, i64) {
        let (from, to) = span(selection);
        if !self.by_minute() && self.grain == Grain::Hour {
            return (from, to);
        }
        let width = Grain::Hour.seconds();
        let from = (from - from.rem_euclid(width)).max(TIME_MIN);
        (from, to + (-to).rem_euclid(width))
    }

    /// Totals by base bucket, or by minute.
    pub(crate) fn counts(self, series: &Series) -> Cow<'_, Counts> {
        match self.detail {
            Detail::Minutes => Cow::Owned(series.by_minute()),
            Detail::Buckets | Detail::Breakdowns => Cow::Borrowed(&series.totals),
        }
    }

    /// From when on the view, or the kept generation `as_of`, has the minutes that the read needs (Unix seconds); none
    /// where all are kept. `now` is the clock's time.
    pub(crate) fn kept_from(self, view: &View<'_>, as_of: Option<u64>, now: i64) -> Option<i64> {
        match self.detail {
            Detail::Breakdowns => view.breakdowns_from(now).or(Some(i64::MAX)),
            Detail::Buckets | Detail::Minutes => view.minutes_from(as_of),
        }
    }

    /// Minutes that are not there are refused rather than answered as zeros: those before `kept_from`
    /// ([`Base::kept_from`]), and those of a base bucket among `counts` that was counted without. Fails with 422, where
    /// the read is by the minute.
    pub(crate) fn check_kept(
        self,
        buckets: &Buckets,
        kept_from: Option<i64>,
        counts: &Counts,
    ) -> Result<()> {
        self.check_expired(buckets, kept_from)?;
        if buckets.unit() != Unit::Minute {
            return Ok(());
        }
        let is_without = |code: &TimeCode| {
            code.grain() != Grain::Minute && overlaps(*code, (buckets.start(), buckets.end()))
        };
        let Some(last) = counts.codes().rfind(is_without) else {
            return Ok(());
        };
        let (start, end) = (last.start(), last.start() + last.grain().seconds());
        let of_what = match self.detail {
            Detail::Breakdowns => "some of what",
            Detail::Buckets | Detail::Minutes => "what",
        };
        let what = format!("{of_what} {} holds", rfc3339_utc(start));
        Err(self.without_minutes(
            &what,
            &format!(", or for times from {} on", rfc3339_utc(end)),
        ))
    }

    fn check_expired(self, buckets: &Buckets, kept_from: Option<i64>) -> Result<()> {
        let kept = kept_from.unwrap_or(TIME_MIN);
        if !self.by_minute() || buckets.unit() != Unit::Minute || kept <= buckets.start() {
            return Ok(());
        }
        if kept == i64::MAX {
            let detail = "must be longer than a minute: breakdowns and users are not kept by the minute, as \
                          minutes.breakdowns_hours is 0; ask for unit=hour or longer";
            return Err(FieldError::refused("unit", Unit::Minute.as_str(), detail).into());
        }
        let detail = format!(
            "lies before {}, from when on {} kept; ask for unit=hour, or for a later range",
            rfc3339_utc(kept),
            match self.detail {
                Detail::Breakdowns => "breakdowns and users by minute are",
                Detail::Buckets | Detail::Minutes => "minutes are",
            }
        );
        Err(FieldError::refused("from", &rfc3339_utc(buckets.start()), detail).into())
    }

    /// True when everything that was counted lies in the bucket that it belongs to.
    pub(crate) fn aligned(self, counts: &Counts, buckets: &Buckets) -> bool {
        if self.by_minute() {
            let last_second = |code: TimeCode| code.start() + code.grain().seconds() - 1;
            return counts
                .codes()
                .all(|code| buckets.index_of(code.start()) == buckets.index_of(last_second(code)));
        }
        // Counts from before a finer grain was declared are as coarse as they were.
        let grains = counts.codes().map(TimeCode::grain);
        let coarsest = grains.fold(self.grain, Ord::min);
        buckets.aligned(coarsest.seconds())
    }

    /// Whether a ranking of `buckets` is aligned, where base buckets of this span count, and `is_cut` says whether one
    /// of them lies across an edge. Fails with 422, where the read is by the minute.
    pub(crate) fn check_ranking(
        self,
        (counted, is_cut): (Option<CountedSpan>, bool),
        minutes_from: Option<i64>,
        buckets: &Buckets,
    ) -> Result<bool> {
        self.check_expired(buckets, minutes_from)?;
        if !self.by_minute() {
            let counted = counted.map_or(0, |counted| counted.grain_seconds);
            return Ok(!is_cut && buckets.aligned(counted.max(self.grain.seconds())));
        }
        if is_cut && buckets.unit() == Unit::Minute {
            return Err(self.without_minutes("some of what was counted there", ""));
        }
        Ok(!is_cut)
    }

    /// 422 for minutes of what was counted without.
    fn without_minutes(self, what: &str, later: &str) -> Problem {
        let minutes = match self.detail {
            Detail::Breakdowns => "breakdowns by minute",
            Detail::Buckets | Detail::Minutes => "minutes",
        };
        let detail = format!(
            "must be longer than a minute: {what} was counted without {minutes}; ask for unit=hour{later}"
        );
        FieldError::refused("unit", Unit::Minute.as_str(), detail).into()
    }
}

/// True where a base bucket has a part in common with the range (Unix seconds).
pub(crate) fn overlaps(code: TimeCode, (from, to): (i64, i64)) -> bool {
    code.start() < to && from < code.start() + code.grain().seconds()
}

/// 422 for minutes that nobody keeps.
fn no_minutes(namespace: &Namespace, data: BaseData<'_>) -> Problem {
    let Namespace { name, grain, .. } = namespace;
    let unit = match grain {
        Grain::Quarter => "quarter of an hour",
        _ => "hour",
    };
    let detail = match data {
        BaseData::Users if namespace.minutes => format!(
            "must be longer than a minute: users are told apart by the {unit}; ask for unit=hour or longer, or declare a \
             subtotal of {name}, with which users are told apart by the minute, too"
        ),
        _ => format!(
            "must be longer than a minute: {name} is counted by the {unit} and keeps no minutes; ask for unit=hour or \
             longer, or declare {name} with minutes = true"
        ),
    };
    FieldError::refused("unit", Unit::Minute.as_str(), detail).into()
}

/// True when days that hours were folded into lie across the edges of the buckets: they count where they start, or
/// outside.
pub(crate) fn are_cut(view: &View<'_>, buckets: &Buckets, generation: u64) -> bool {
    let folded = view.hours_from(generation);
    folded.is_some_and(|hours_from| buckets.start() < hours_from)
        && !buckets.aligned(Grain::Day.seconds())
}
