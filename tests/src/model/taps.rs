//! Taps, swipes and presses: events that a rule with memory judges, by the simplest rules.
//!
//! A tap is caught that comes soon after one of its key that was kept. A swipe is caught that is one too many of its
//! key in a time, and perhaps those before it. A press is caught that comes without a tap of its key before. Where an
//! event may be there or not, several verdicts are right.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use tallyring_records::{Day, Filter, Form, Increment, Role};

use super::clicks;
use super::history::Counts;

/// Events by rule and key, as a rule gets them when a day is judged.
pub(super) struct Taps<'h> {
    day: Day,
    /// The schema.
    number: usize,
    of_key: BTreeMap<(&'static str, &'h str), (&'static Filter, Vec<Tap>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Tap {
    /// Unix seconds.
    at: i64,
    /// The index of its record.
    index: usize,
    is_there: Counts,
    /// True where others need it, and the rule judges those.
    is_needed: bool,
}

impl<'h> Taps<'h> {
    pub(super) fn new(day: Day, number: usize) -> Self {
        Self {
            day,
            number,
            of_key: BTreeMap::new(),
        }
    }

    /// True for an event by which one of the day may be judged.
    pub(super) fn take(&self, increment: &Increment) -> bool {
        let mut rules = clicks::with_memory(increment, self.number);
        rules.any(|(rule, ..)| times_of(rule, self.day).contains(&increment.at))
    }

    /// Notes an event for each rule with memory that looks at it.
    pub(super) fn add(&mut self, index: usize, increment: &'h Increment, is_there: Counts) {
        for (rule, key, role) in clicks::with_memory(increment, self.number) {
            let of_key = self.of_key.entry((rule.name.as_str(), key));
            let (_, taps) = of_key.or_insert_with(|| (rule, Vec::new()));
            taps.push(Tap {
                at: increment.at,
                index,
                is_there,
                is_needed: role == Role::Needed,
            });
        }
    }

    /// Whether its rule catches a record, by the index of the record.
    pub(super) fn caught(self) -> HashMap<usize, (&'static Filter, Counts)> {
        let mut found = HashMap::new();
        for (rule, mut taps) in self.of_key.into_values() {
            taps.retain(|tap| tap.is_there != Counts::No);
            taps.sort_unstable();
            let caught = match rule.form {
                Form::Rate { more_than, all, .. } => {
                    rates(&taps, more_than as usize, (within(rule), all))
                }
                Form::Needs { .. } => lone(&taps, within(rule)),
                _ => repeats(&taps, within(rule)),
            };
            let judged = taps.iter().zip(caught).filter(|(tap, _)| !tap.is_needed);
            found.extend(judged.map(|(tap, caught)| (tap.index, (rule, caught))));
        }
        found
    }
}

/// True where a rule may catch an event as it comes, at `at`, behind the events of its key that can explain it (Unix
/// seconds), the newest arrival first. The rule may have forgotten any of them. One that catches for lack of them does
/// so only where it has begun before it looks back to: while no clock goes back, it has seen all that is not before.
pub(super) fn may_catch(rule: &Filter, mut before: impl Iterator<Item = i64>, at: i64) -> bool {
    let within = within(rule);
    match rule.form {
        // It knows the last arrivals, at most so many.
        Form::Rate { more_than, .. } => {
            let first = before.nth(more_than as usize - 1);
            first.is_some_and(|first| first > at - within)
        }
        // It knows the last one in time.
        Form::Needs { .. } => before.max().is_none_or(|last| (at - last).abs() >= within),
        _ => before.any(|before| (at - before).abs() < within),
    }
}

/// Seconds that a rule with memory looks back.
fn within(rule: &Filter) -> i64 {
    match rule.form {
        Form::Repeat { within_seconds, .. }
        | Form::Rate { within_seconds, .. }
        | Form::Needs { within_seconds, .. } => within_seconds.into(),
        _ => 0,
    }
}

/// Times of the events by which a rule judges a day, Unix seconds. A chain of repeats is followed for a day.
fn times_of(rule: &Filter, day: Day) -> Range<i64> {
    let within = within(rule);
    match rule.form {
        Form::Rate { all: true, .. } => day.start() - within..day.next().start() + within,
        Form::Rate { .. } | Form::Needs { .. } => day.start() - within..day.next().start(),
        _ => day.previous().start() - within..day.next().start(),
    }
}

/// Which taps repeat a kept one, seconds `within` after it. Where some may not be there, any of several may be the last
/// one that was kept.
fn repeats(taps: &[Tap], within: i64) -> Vec<Counts> {
    let mut kept = BTreeSet::from([None]);
    let judged = taps.iter().map(|tap| {
        let repeats = |kept: &Option<i64>| kept.is_some_and(|kept| tap.at < kept + within);
        let is_caught = match kept.iter().filter(|kept| repeats(kept)).count() {
            0 => Counts::No,
            all if all == kept.len() => Counts::Yes,
            _ => Counts::Perhaps,
        };
        let next = kept.iter();
        let next = next.map(|kept| if repeats(kept) { *kept } else { Some(tap.at) });
        let mut next: BTreeSet<Option<i64>> = next.collect();
        if tap.is_there == Counts::Perhaps {
            next.append(&mut kept);
        }
        kept = next;
        is_caught
    });
    judged.collect()
}

/// Which swipes are there although `more_than` came in the seconds `within` before; with `all` those before, too.
fn rates(swipes: &[Tap], more_than: usize, (within, all): (i64, bool)) -> Vec<Counts> {
    let excess = swipes.iter().enumerate().map(|(place, swipe)| {
        let before = swipes[..place].iter();
        let before = before.filter(|before| before.at > swipe.at - within);
        let sure = before
            .clone()
            .filter(|before| before.is_there == Counts::Yes);
        match (sure.count() >= more_than, before.count() >= more_than) {
            (true, _) => Counts::Yes,
            (false, true) => Counts::Perhaps,
            (false, false) => Counts::No,
        }
    });
    let excess: Vec<Counts> = excess.collect();
    if !all {
        return excess;
    }
    let judged = swipes.iter().enumerate().map(|(place, swipe)| {
        let after = swipes.iter().zip(&excess).skip(place + 1);
        let after = after.filter(|(after, _)| after.at < swipe.at + within);
        // Where an event may not be there, what it would take with it is not sure.
        let taken = after.map(|(after, excess)| (*excess).min(after.is_there));
        taken.chain([excess[place]]).max().unwrap_or(Counts::No)
    });
    judged.collect()
}

/// Which presses are there although nothing that they need came in the seconds `within` before.
fn lone(presses: &[Tap], within: i64) -> Vec<Counts> {
    let judged = presses.iter().enumerate().map(|(place, press)| {
        let before = presses[..place].iter();
        let needed = before.filter(|before| before.is_needed && before.at > press.at - within);
        match needed.map(|needed| needed.is_there).max() {
            None => Counts::Yes,
            Some(Counts::Yes) => Counts::No,
            Some(_) => Counts::Perhaps,
        }
    });
    judged.collect()
}
