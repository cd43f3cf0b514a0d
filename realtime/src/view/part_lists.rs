//! Lists that a run has for a part of it. Lists of days bound a key in few days, and the list of the whole run bounds
//! it in many: the rests of many days add up.

use std::ops::Range;

use hashbrown::HashMap;
use tallyring_archive::{Run, Summary, TopList};
use tallyring_records::Day;

/// The lists of a run that bound what a key counts in a part of it.
pub(super) struct PartLists<'s> {
    /// Lists of spans that cover the part.
    spans: Vec<TopList<'s>>,
    /// Whether the spans count nothing else.
    pub is_exact: bool,
    /// The list of the whole run, where it may bound a key more tightly than the spans together.
    whole: Option<TopList<'s>>,
}

/// A key in the lists of one run.
pub(super) struct Named {
    /// Its counts in the spans that name it.
    pub count: u64,
    /// Sum of the rests of the spans that name it.
    pub rest: u128,
    /// The most that it counts in the whole run.
    pub most: u128,
}

impl<'s> PartLists<'s> {
    /// The lists of a run for its part of the range (Unix seconds).
    pub(super) fn of(summary: &'s Summary, run: &Run, range: &Range<i64>) -> Self {
        let (meta, top) = (run.meta(), summary.top());
        let is_whole = range.start <= meta.first && meta.last < range.end;
        if is_whole || !summary.has_days() {
            return Self {
                spans: vec![top],
                is_exact: is_whole,
                whole: None,
            };
        }
        let (first, last) = (
            Day::of(meta.first.max(range.start)),
            Day::of(meta.last.min(range.end - 1)),
        );
        let days = std::iter::successors(Some(first), |day| Some(day.next()));
        let days = days.take_while(|day| *day <= last);
        Self {
            spans: days.filter_map(|day| summary.top_of(day)).collect(),
            is_exact: range.start <= first.start() && last.next().start() <= range.end,
            whole: Some(top),
        }
    }

    /// Sum of the rests of the spans.
    pub(super) fn rest_of_spans(&self) -> u128 {
        self.spans.iter().map(|list| u128::from(list.rest)).sum()
    }

    /// The most that a key counts that the whole run's list does not name.
    pub(super) fn rest_of_whole(&self) -> u128 {
        self.whole.map_or(u128::MAX, |list| list.rest.into())
    }

    /// The keys that a list names.
    pub(super) fn named(&self) -> HashMap<&[u8], Named> {
        let mut named: HashMap<&[u8], Named> = HashMap::new();
        let unnamed = || Named {
            count: 0,
            rest: 0,
            most: self.rest_of_whole(),
        };
        for list in &self.spans {
            for (key, count) in list.keys() {
                let named = named.entry(key).or_insert_with(unnamed);
                named.count = named.count.saturating_add(count);
                named.rest += u128::from(list.rest);
            }
        }
        for (key, count) in self.whole.iter().flat_map(TopList::keys) {
            named.entry(key).or_insert_with(unnamed).most = count.into();
        }
        named
    }
}
