//! How final the days of a view are.
//!
//! A day is final once a manifest names its books. Something that is counted of the day later, or a fix or a load that
//! meets the day, makes it a corrected one, until the next final version. The group commit and the replay of a start
//! note such counts; the manifest of the next flush names the day (`touched`).
//!
//! Counts of datasets are outside of this: a day that may have some is final only where each such dataset is final,
//! too. A day before the store began needs no version then, because the log has nothing of it.
//!
//! In a view of several strands, a day is final where it is final in each, and corrected where something of it was
//! counted since in one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use tallyring_archive::{FinalEntry, Manifest, RunEntry};
use tallyring_records::{Day, Increment, StoreId, line};

use super::loaded::Loaded;
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
    /// Loaded counts by section (`l|`).
    loaded: Arc<BTreeMap<String, Loaded>>,
    /// Days before the store began.
    early: Early,
}

/// Days before the store began, of which the log has counts only where somebody sent events of them.
#[derive(Debug, Clone, Default)]
struct Early {
    /// The day on which the store began, where that is known.
    begun: Option<Day>,
    /// Days that runs of the log may count, where it is not known which days they do: first and last ones.
    in_runs: Arc<Vec<(Day, Day)>>,
    /// Days that the log counted: all that it ever did, where that is known, or those since the start.
    counted: Arc<BTreeSet<Day>>,
    /// True where all such days are known.
    knows_all: bool,
}

impl FinalDays {
    /// The final days of a manifest.
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self::default().after(manifest)
    }

    /// The final days of a manifest, with what is known to be counted since.
    pub(super) fn after(&self, manifest: &Manifest) -> Self {
        let archive = &manifest.archive;
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
            loaded: Arc::new(Loaded::of(archive)),
            early: self.early.after(manifest),
            days: Arc::new(days),
            counted: Arc::new(counted),
            watched: None,
        }
    }

    /// Notes counted days ([`Counted`]).
    pub(super) fn note(&mut self, counted: &Counted) {
        for (&day, &end) in &counted.0 {
            self.early.note(day);
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

    /// Loaded counts of a namespace.
    pub(super) fn loaded_of(&self, namespace: &str) -> &Loaded {
        static NONE: LazyLock<Loaded> = LazyLock::new(Loaded::default);
        let section = line::total_key(namespace, "");
        self.loaded.get(&section).unwrap_or(&NONE)
    }

    /// True where the store began after the day, and the log and the versions have nothing of it.
    fn is_before_store(&self, day: Day) -> bool {
        let early = &self.early;
        early.is_before(day) && !early.may_have(day) && !self.days.contains_key(&day)
    }

    /// All days before the store began of which the log counted something, where that is known.
    pub(crate) fn early_days(&self) -> Option<BTreeSet<Day>> {
        let early = &self.early;
        early.knows_all.then(|| early.counted.as_ref().clone())
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

/// Adds the days of a run, unless the shard before has the same.
fn add_days(days: &mut Vec<(Day, Day)>, run: &RunEntry) {
    let of_run = run.meta.days().into_inner();
    if days.last() != Some(&of_run) {
        days.push(of_run);
    }
}

fn has(days: &[(Day, Day)], day: Day) -> bool {
    let mut days = days.iter();
    days.any(|&(first, last)| (first..=last).contains(&day))
}

impl Early {
    fn after(&self, manifest: &Manifest) -> Self {
        let begun = manifest.intake.begun;
        let mut in_runs = Vec::new();
        let known = manifest.intake.early.as_ref();
        let stores = manifest.intake.stores.iter();
        let runs = stores.flat_map(|store| &store.runs);
        // A fix has counts of its day alone.
        let runs = runs.chain(&manifest.archive.runs);
        for run in runs.filter(|run| known.is_none() || run.origin.is_fix()) {
            if begun.is_some_and(|begun| Day::of(run.meta.first) < begun) {
                add_days(&mut in_runs, run);
            }
        }
        let mut counted = Arc::clone(&self.counted);
        if let Some(known) = known.filter(|known| !known.is_subset(&counted)) {
            Arc::make_mut(&mut counted).extend(known);
        }
        Self {
            begun,
            in_runs: Arc::new(in_runs),
            counted,
            knows_all: known.is_some(),
        }
    }

    fn note(&mut self, day: Day) {
        if self.is_before(day) && !self.counted.contains(&day) {
            Arc::make_mut(&mut self.counted).insert(day);
        }
    }

    /// True where the store began after the day.
    fn is_before(&self, day: Day) -> bool {
        self.begun.is_some_and(|begun| day < begun)
    }

    /// False where the log has nothing of an early day.
    fn may_have(&self, day: Day) -> bool {
        has(&self.in_runs, day) || self.counted.contains(&day)
    }
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
    /// Final days of each strand.
    finals: Vec<FinalDays>,
    /// False where a kept generation is read, which may lack what made days final.
    is_newest: bool,
    /// True where the books of final days are read.
    are_books: bool,
    /// No event is expected for earlier times any more, Unix seconds.
    settled: i64,
    /// The first day that is not closed.
    open_from: Day,
    /// Days that loaded counts may be of, for each namespace.
    loaded: Vec<Loaded>,
    /// True where a number needs the counts of each of the namespaces.
    needs_each: bool,
}

impl View<'_> {
    /// The states of times for counts of these namespaces, for which no event is expected before `settled` (Unix
    /// seconds) any more; in the view, or in the kept generation `as_of`.
    pub fn states(&self, namespaces: &[&str], settled: i64, as_of: Option<u64>) -> States {
        let finals = self.parts().map(|part| part.snapshot.finals.clone());
        let loaded = namespaces.iter().map(|name| self.loaded_of(name));
        let open_from = self.parts().map(|part| open_from(&part.snapshot));
        States {
            is_newest: as_of.is_none(),
            are_books: false,
            settled,
            open_from: open_from.min().expect("BUG: a view has a part"),
            loaded: loaded.collect(),
            needs_each: false,
            finals: finals.collect(),
        }
    }

    /// Loaded counts of a namespace.
    pub(super) fn loaded_of(&self, namespace: &str) -> Loaded {
        let finals = self.parts().map(|part| &part.snapshot.finals);
        let of_parts = finals.map(|finals| finals.loaded_of(namespace).clone());
        of_parts.reduce(Loaded::and).unwrap_or_default()
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

    /// The states of numbers that need the counts of each of the namespaces, as a ratio does: loaded counts make a day
    /// final only where each has some. Otherwise a namespace without loaded counts is no part of the number.
    pub fn of_each(self) -> Self {
        Self {
            needs_each: true,
            ..self
        }
    }

    /// Until when no event is expected any more, Unix seconds.
    pub fn settled_until(&self) -> i64 {
        self.settled
    }

    /// True where some day may be final, so that the states of single buckets are worth being told.
    pub fn has_finals(&self) -> bool {
        let is_loaded = self.loaded.iter().any(Loaded::has_in_finals);
        let mut finals = self.finals.iter();
        self.is_newest && (is_loaded || finals.all(|finals| !finals.days.is_empty()))
    }

    /// True where the store began after the day, and nothing is known of the day: no count, and no final version.
    pub fn is_before_store(&self, day: Day) -> bool {
        let mut finals = self.finals.iter();
        finals.all(|finals| finals.is_before_store(day))
            && !self.is_loaded(day)
            && !self.loaded.iter().any(|of| of.is_in_finals(day))
    }

    /// The end (Unix seconds) of the last day of the series of days with a final version, without a gap, that the first
    /// such day begins. Days that may have counts of a dataset that is not final are not final. None while no day has a
    /// final version.
    pub fn final_until(&self) -> Option<i64> {
        let (first, others) = self.finals.split_first().filter(|_| self.is_newest)?;
        let until = first.until?;
        match self.loaded.iter().any(Loaded::has_beside) || !others.is_empty() {
            false => Some(until),
            true => end_of_series(&first.days, &|day| {
                let mut others = others.iter();
                !self.is_loaded(day) && others.all(|other| other.days.contains_key(&day))
            }),
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
        if !self.is_newest || self.is_loaded(day) {
            return None;
        }
        let states = self.finals.iter().map(|finals| {
            let is_touched = match finals.days.get(&day) {
                Some(upto) => finals.is_touched(day, *upto),
                None if finals.early.is_before(day) && self.is_final_by_load(day) => {
                    finals.early.may_have(day)
                }
                None => return None,
            };
            Some(match is_touched {
                true => State::Corrected,
                false => State::Final,
            })
        });
        // None is less than any state.
        states.min().flatten()
    }

    /// True where a dataset may have counts of the day that is not final, or is lost.
    fn is_loaded(&self, day: Day) -> bool {
        self.loaded.iter().any(|of| of.is_beside(day))
    }

    /// True where final datasets may have counts of the day.
    fn is_final_by_load(&self, day: Day) -> bool {
        let mut loaded = self.loaded.iter().map(|of| of.is_in_finals(day));
        match self.needs_each {
            true => loaded.all(|is_final| is_final),
            false => loaded.any(|is_final| is_final),
        }
    }
}
