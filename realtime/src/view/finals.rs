//! How final the days of a view are.
//!
//! A day is final once a manifest names its books. Something that is counted of the day later, or a fix or a load that
//! meets the day, makes it a corrected one, until the next final version. The group commit and the replay of a start
//! note such counts; the manifest of the next flush names the day (`touched`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use tallyring_archive::{ArchiveEntry, FinalEntry, Manifest};
use tallyring_records::{Day, Increment, StoreId};

use super::snapshot::Snapshot;
use super::{Live, View};

/// How far the counts of a time are from what never changes. A lower one is farther.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Events are expected.
    Live,
    /// No event is expected any more.
    Settled,
    /// The delta store of the UTC day is closed, so the day can be made final.
    Provisional,
    /// The UTC day is final, and something of it was counted since.
    Corrected,
    /// The UTC day is final and counts as its books say.
    Final,
}

impl State {
    /// Its name in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Settled => "settled",
            Self::Provisional => "provisional",
            Self::Corrected => "corrected",
            Self::Final => "final",
        }
    }
}

/// Final days of a view. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct FinalDays {
    /// Records of the log before this one were judged, for the newest final version of each day.
    days: Arc<BTreeMap<Day, u64>>,
    /// The record behind the last one that counted something of a final day after it was judged.
    counted: Arc<BTreeMap<Day, u64>>,
    /// A day that is being made final: it is noted what counts of it.
    watched: Option<Day>,
    /// Instant (Unix seconds) behind the gapless series of final days that the first one begins.
    until: Option<i64>,
    /// Days of loaded counts among the final ones, by section (`l|`).
    loaded: Arc<BTreeMap<String, Vec<(Day, Day)>>>,
}

impl FinalDays {
    /// The final days of a manifest.
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self::default().after(manifest)
    }

    /// The final days of a manifest, with what is known to be counted since.
    pub(super) fn after(&self, manifest: &Manifest) -> Self {
        let archive = &manifest.archive;
        if archive.finals.is_empty() {
            return Self::default();
        }
        // Versions ascend, so the newest one of a day stays.
        let newest = archive.finals.iter().map(|version| (version.day, version));
        let newest: BTreeMap<Day, &FinalEntry> = newest.collect();
        let mut counted = BTreeMap::new();
        for (&day, version) in &newest {
            let known = self.counted.get(&day).copied().unwrap_or(0);
            let named = if version.touched { version.upto + 1 } else { 0 };
            if known.max(named) > version.upto {
                counted.insert(day, known.max(named));
            }
        }
        let days: BTreeMap<Day, u64> = newest.iter().map(|(&day, of)| (day, of.upto)).collect();
        Self {
            until: end_of_series(&days, &|_| true),
            loaded: Arc::new(loaded(archive, &days)),
            days: Arc::new(days),
            counted: Arc::new(counted),
            watched: None,
        }
    }

    /// Notes counted days ([`Counted`]).
    pub(super) fn note(&mut self, counted: &Counted) {
        for (&day, &end) in &counted.0 {
            let is_final = self.days.get(&day).is_some_and(|upto| end > *upto);
            let known = self.counted.get(&day).copied().unwrap_or(0);
            if (is_final || self.watched == Some(day)) && known < end {
                Arc::make_mut(&mut self.counted).insert(day, end);
            }
        }
    }

    /// True when something of the day was counted that no record before `upto` counts.
    pub(crate) fn is_touched(&self, day: Day, upto: u64) -> bool {
        self.counted.get(&day).is_some_and(|end| *end > upto)
    }

    /// Names the touched days in the newest version of each.
    pub(crate) fn touch(&self, finals: &mut [FinalEntry]) {
        for index in 0..finals.len() {
            let is_newest = finals
                .get(index + 1)
                .is_none_or(|next| next.day != finals[index].day);
            let version = &mut finals[index];
            version.touched |= is_newest && self.is_touched(version.day, version.upto);
        }
    }
}

/// The end of the series of days without a gap that the first one begins, among the days that `counts` takes.
fn end_of_series(days: &BTreeMap<Day, u64>, counts: &dyn Fn(Day) -> bool) -> Option<i64> {
    let mut days = days.keys().copied().skip_while(|day| !counts(*day));
    let mut last = days.next()?;
    for day in days {
        if day != last.next() || !counts(day) {
            break;
        }
        last = day;
    }
    Some(last.next().start())
}

/// Days that counted datasets may have counts of, as far as there are final days.
fn loaded(archive: &ArchiveEntry, days: &BTreeMap<Day, u64>) -> BTreeMap<String, Vec<(Day, Day)>> {
    let mut loaded: BTreeMap<String, Vec<(Day, Day)>> = BTreeMap::new();
    let active = archive.active_generation();
    let datasets = archive.datasets.iter();
    let datasets = datasets
        .filter(|dataset| dataset.wanted || active.is_some_and(|active| dataset.is_in(active)));
    for run in datasets.flat_map(|dataset| &dataset.runs) {
        let (first, last) = (Day::of(run.meta.first), Day::of(run.meta.last));
        if days.range(first..=last).next().is_none() {
            continue;
        }
        for section in run.meta.sums.keys() {
            loaded
                .entry(section.clone())
                .or_default()
                .push((first, last));
        }
    }
    loaded
}

/// Days that increments count, each with the record behind the last one.
#[derive(Debug, Default)]
pub(crate) struct Counted(BTreeMap<Day, u64>);

impl Counted {
    /// The days of increments, each with its sequence number, in the order of the log.
    pub(super) fn of<'i>(increments: impl Iterator<Item = (u64, &'i Increment)>) -> Self {
        let mut counted = BTreeMap::new();
        // Most increments are of the day of the one before.
        let mut last: Option<(Day, u64)> = None;
        for (sequence, increment) in increments {
            let day = Day::of(increment.at);
            if let Some((before, end)) = last.filter(|(before, _)| *before != day) {
                counted.insert(before, end);
            }
            last = Some((day, sequence + 1));
        }
        counted.extend(last);
        Self(counted)
    }
}

impl Live {
    /// Notes from now on what counts of a day that is to be made final. Returns the record behind the last one that is
    /// counted already.
    pub(crate) fn watch(&self, day: Day) -> u64 {
        let mut newest = self.newest.write();
        let snapshot = newest.snapshot_mut();
        snapshot.finals.watched = Some(day);
        snapshot.applied().sequence
    }

    /// Ends [`Live::watch`] of a day that is not made final after all.
    pub(crate) fn unwatch(&self) {
        self.newest.write().snapshot_mut().finals.watched = None;
    }
}

/// The states of times in a view, for counts of some namespaces.
#[derive(Debug, Clone)]
pub struct States {
    finals: FinalDays,
    /// False where a kept generation is read, which may lack what made days final.
    is_newest: bool,
    /// True where the books of final days are read.
    are_books: bool,
    /// No event is expected for earlier times any more, Unix seconds.
    settled: i64,
    /// The first day that is not closed.
    open_from: Day,
    /// Days that loaded counts may be of.
    loaded: Vec<(Day, Day)>,
}

impl View<'_> {
    /// The states of times for counts of these namespaces, for which no event is expected before `settled` (Unix
    /// seconds) any more; in the view, or in the kept generation `as_of`.
    pub fn states(&self, namespaces: &[&str], settled: i64, as_of: Option<u64>) -> States {
        let finals = self.snapshot.finals.clone();
        let mut loaded = Vec::new();
        if !finals.loaded.is_empty() {
            let sections = namespaces.iter().map(|name| format!("{name}|"));
            let sections = sections.filter_map(|section| finals.loaded.get(&section));
            loaded.extend(sections.flatten().copied());
        }
        States {
            is_newest: as_of.is_none(),
            are_books: false,
            settled,
            open_from: open_from(&self.snapshot),
            loaded,
            finals,
        }
    }
}

/// The first day whose delta store is not closed; later days are not, either.
fn open_from(snapshot: &Snapshot) -> Day {
    let ring = &snapshot.ring;
    let open = ring.stores().filter(|store| store.cut.is_none());
    let open = open.filter_map(|store| match store.id {
        StoreId::Day(day) => Some(day),
        _ => None,
    });
    open.min().unwrap_or(ring.today()).min(ring.today())
}

impl States {
    /// The states of the books of final days, which are final whatever is counted.
    pub fn of_books(self) -> Self {
        Self {
            are_books: true,
            ..self
        }
    }

    /// Until when no event is expected any more, Unix seconds.
    pub fn settled_until(&self) -> i64 {
        self.settled
    }

    /// True where some day may be final, so that the states of single buckets are worth being told.
    pub fn has_finals(&self) -> bool {
        self.is_newest && !self.finals.days.is_empty()
    }

    /// The end (Unix seconds) of the last day of the series of final days without a gap that the first final day
    /// begins. Days that loaded counts may be of are not final. None while no day is final.
    pub fn final_until(&self) -> Option<i64> {
        let until = self.finals.until.filter(|_| self.is_newest);
        match self.loaded.is_empty() {
            true => until,
            false => {
                until.and_then(|_| end_of_series(&self.finals.days, &|day| !self.is_loaded(day)))
            }
        }
    }

    /// The least state of the UTC days that a range (Unix seconds) covers, which is not empty.
    pub fn of(&self, range: &Range<i64>) -> State {
        if self.are_books {
            return State::Final;
        }
        let first = Day::of(range.start);
        let mut day = Day::of(range.end.saturating_sub(1));
        let mut least = State::Final;
        loop {
            match self.of_final(day) {
                Some(state) => least = least.min(state),
                // Earlier days that are not final are in a higher state, if they are in another.
                None => {
                    let end = range.end.min(day.next().start());
                    return match end > self.settled {
                        true => State::Live,
                        false if day >= self.open_from => State::Settled,
                        false => State::Provisional,
                    };
                }
            }
            if day <= first {
                return least;
            }
            day = day.previous();
        }
    }

    /// The state of a final day; none of another day.
    fn of_final(&self, day: Day) -> Option<State> {
        let upto = *self.finals.days.get(&day).filter(|_| self.is_newest)?;
        match (self.is_loaded(day), self.finals.is_touched(day, upto)) {
            (true, _) => None,
            (false, true) => Some(State::Corrected),
            (false, false) => Some(State::Final),
        }
    }

    fn is_loaded(&self, day: Day) -> bool {
        self.loaded
            .iter()
            .any(|&(first, last)| (first..=last).contains(&day))
    }
}
