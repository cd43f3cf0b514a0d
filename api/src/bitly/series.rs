//! Which units a request asks for, and counts by unit, newest first.

use std::collections::BTreeMap;

use tallyring_realtime::Series;
use tallyring_records::add_capped;

use super::answer::Fault;
use crate::calendar::{Bucket, Request, Selection, Unit, Zone};

/// The units of a request.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// How long each unit is.
    pub unit: Unit,
    /// How many, or [`ALL`].
    pub units: i64,
    /// Whose calendar they follow.
    pub zone: Zone,
    /// The last unit holds it (Unix seconds).
    pub reference: i64,
    /// Which units those are.
    pub selection: Selection,
    /// Says that the units are not those that the request names.
    pub note: Option<&'static str>,
}

/// The note of an answer by hour to a request for minutes.
const HOURS_FOR_MINUTES: &str =
    "Minutes are not kept here, or not for so long: the counts are those of whole hours.";

/// `units` for all of time, or all minutes that are kept, which lists the units that are not zero.
pub(super) const ALL: i64 = -1;

impl Window {
    /// The `units` units up to the one that holds `reference.1`, or now. All of time without a
    /// reference includes what was counted ahead of the clock. `reference.0` is the parameter's name. Fails for `units`
    /// of 0, below −1 or above the calendar's bound, and for a reference outside 2000 to 2999.
    pub(super) fn new(
        unit: Unit,
        units: i64,
        zone: Zone,
        reference: (&str, Option<i64>),
        now: i64,
    ) -> Result<Self, Fault> {
        let request = Request {
            unit,
            zone: zone.clone(),
            units: Some(units),
            from: None,
            to: reference.1,
            now,
        };
        let selection = request
            .resolve()
            .map_err(|error| match error.field.as_str() {
                "to" => Fault::invalid(reference.0),
                field => Fault::invalid(field),
            })?;
        Ok(Self {
            unit,
            units,
            zone,
            reference: reference.1.unwrap_or(now),
            selection,
            note: None,
        })
    }

    /// Reads this window, or the hours that hold its minutes where `read` finds none because they are not kept. Gives
    /// the window that was read, too.
    pub(super) fn or_in_hours<T, E>(
        self,
        read: impl Fn(&Self) -> Result<Option<T>, E>,
    ) -> Result<(Self, Option<T>), E> {
        let found = read(&self)?;
        match self.in_hours().filter(|_| found.is_none()) {
            Some(hours) => read(&hours).map(|found| (hours, found)),
            None => Ok((self, found)),
        }
    }

    /// The hours that hold these minutes, with a note that says so; none where the units are no minutes.
    fn in_hours(&self) -> Option<Self> {
        if self.unit != Unit::Minute {
            return None;
        }
        let (from, units) = match &self.selection {
            Selection::Bounded(minutes) => (Some(minutes.start()), None),
            Selection::All(_) => (None, Some(ALL)),
        };
        // Hours are counted from the hour of UTC on.
        let zone = match self.zone.offset_secs(self.reference) % 3_600 {
            0 => self.zone.clone(),
            _ => Zone::utc(),
        };
        let request = Request {
            unit: Unit::Hour,
            zone: zone.clone(),
            units,
            from,
            to: Some(self.reference),
            now: self.reference,
        };
        let selection = request.resolve().ok()?;
        let units = match &selection {
            Selection::Bounded(hours) if self.units != ALL => hours.iter().len() as i64,
            _ => ALL,
        };
        Some(Self {
            unit: Unit::Hour,
            units,
            zone,
            reference: self.reference,
            selection,
            note: Some(HOURS_FOR_MINUTES),
        })
    }

    /// Start and count of each unit, newest first; of [`ALL`] those that are not zero. A base bucket counts where its
    /// start lies.
    pub(super) fn rows(&self, series: &Series) -> Vec<(i64, u64)> {
        let counted = self.counted(series);
        match &self.selection {
            Selection::All(_) => counted.into_iter().rev().collect(),
            Selection::Bounded(buckets) => {
                let count = |start| counted.get(&start).copied().unwrap_or(0);
                let newest_first = buckets.iter().rev();
                newest_first
                    .map(|bucket| (bucket.start, count(bucket.start)))
                    .filter(|&(_, count)| count > 0 || self.units != ALL)
                    .collect()
            }
        }
    }

    /// Counts of the units that are not zero, by their starts.
    fn counted(&self, series: &Series) -> BTreeMap<i64, u64> {
        let mut counted = BTreeMap::new();
        let mut bucket: Option<Bucket> = None;
        for (code, count) in series.totals.iter() {
            let instant = code.start();
            // Codes ascend, but a folded day's stands before those of its hours.
            let held = bucket.filter(|held| (held.start..held.end).contains(&instant));
            let held = held.unwrap_or_else(|| Bucket::holding(self.unit, &self.zone, instant));
            add_capped(counted.entry(held.start).or_insert(0), count);
            bucket = Some(held);
        }
        counted
    }
}

/// Sum of a series, at most 2^53−1.
pub(super) fn total(series: &Series) -> u64 {
    series.totals.sum()
}
