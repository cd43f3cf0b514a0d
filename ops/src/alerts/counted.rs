//! Counts by the buckets of a calendar.

use tallyring_api::calendar::Buckets;
use tallyring_realtime::{Read, Result, View};
use tallyring_records::{Grain, TimeCode, add_capped};

use crate::config::Of;

/// The counts of some buckets, each with what begins in it.
pub(super) struct Counted {
    pub counts: Vec<u64>,
    /// Start of the first base bucket that counts something, Unix seconds.
    pub first: Option<i64>,
    /// True where days that were loaded or folded whole lie across the edges of the buckets.
    pub is_cut: bool,
}

/// Days that were loaded or folded whole and do not fit into the buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coarse {
    /// They count where they begin.
    Counted,
    /// They do not count, and counting begins behind them.
    LeftOut,
}

impl Counted {
    /// Reads the counts of a key or of a namespace in a view. Fails as its reads do.
    pub(super) fn read(
        view: &View<'_>,
        of: &Of,
        buckets: &Buckets,
        coarse: Coarse,
    ) -> Result<Self> {
        let (from, to) = (buckets.start(), buckets.end());
        let namespace = of.namespace.clone();
        let series = match of.key.clone() {
            Some(key) => {
                let read = Read {
                    namespace,
                    key,
                    subtotal: None,
                    from,
                    to,
                    rolled: None,
                };
                view.read(&read, None)?
            }
            None => view.totals(&namespace, from..to, false, None)?,
        };
        Ok(Self::of(series.totals.iter(), buckets, coarse))
    }

    /// Adds up base buckets, ascending.
    fn of(
        counts: impl Iterator<Item = (TimeCode, u64)>,
        buckets: &Buckets,
        coarse: Coarse,
    ) -> Self {
        let mut counted = Self {
            counts: vec![0; buckets.count()],
            first: None,
            is_cut: false,
        };
        let days_fit = buckets.aligned(Grain::Day.seconds());
        for (code, count) in counts.filter(|(_, count)| *count > 0) {
            if code.grain() == Grain::Day && !days_fit {
                counted.is_cut = true;
                if coarse == Coarse::LeftOut {
                    counted.first = None;
                    continue;
                }
            }
            if let Some(at) = buckets.index_of(code.start()) {
                add_capped(&mut counted.counts[at], count);
                counted.first = counted.first.or(Some(code.start()));
            }
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use tallyring_api::calendar::{Unit, Zone};

    use super::*;

    #[test]
    fn days_that_do_not_fit_are_left_out_and_counting_begins_behind_them() {
        const DAY: i64 = 86_400;
        // 2012-03-16T00:00:00Z
        let begin = 1_331_856_000;
        let code = |at, grain| TimeCode::containing(begin + at, grain);
        let counts = [
            (code(0, Grain::Hour), 1),
            (code(DAY, Grain::Day), 240),
            (code(2 * DAY + 3_600, Grain::Hour), 7),
        ];
        let read = |unit, zone: &str, coarse| {
            let zone = Zone::named(zone).unwrap();
            let buckets = Buckets::covering(unit, zone, begin, begin + 3 * DAY).unwrap();
            let counted = Counted::of(counts.into_iter(), &buckets, coarse);
            let sum = counted.counts.iter().sum::<u64>();
            let first = counted.first.map(|first| first - begin);
            (sum, first, counted.is_cut)
        };
        let behind = (8, Some(2 * DAY + 3_600), true);
        assert_eq!(read(Unit::Hour, "UTC", Coarse::LeftOut), behind);
        assert_eq!(read(Unit::Day, "America/New_York", Coarse::LeftOut), behind);
        let cut = (248, Some(0), true);
        assert_eq!(read(Unit::Day, "America/New_York", Coarse::Counted), cut);
        let whole = (248, Some(0), false);
        assert_eq!(read(Unit::Day, "UTC", Coarse::LeftOut), whole);
    }
}
