//! Counts the actions of one user for every combination of range, action, view and candidate.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range as Span;

use tallyring_realtime::{Charge, View};
use tallyring_records::{Action, FieldError, ShortText, add_capped};

use super::question::{Distinct, Question};
use crate::problem::Result;

/// Counts what users did, one user after the other.
pub(super) struct Counter<'q> {
    question: &'q Question<'q>,
    /// The range of each asked range, Unix seconds.
    spans: Vec<Span<i64>>,
    /// Views in their stored form and their indices, in order.
    views: Vec<(Cow<'q, str>, usize)>,
    /// The index of the entity, the stored key, and the index among all candidates, in order.
    candidates: Vec<(usize, ShortText, usize)>,
    /// The counts of the present user: a cell for every combination.
    cells: Vec<u64>,
    /// Insertions of the present user, each by its cell and day.
    seen: HashSet<(usize, i64, u64)>,
    /// Memory of `seen`.
    charge: Charge,
    /// Actions that were asked for where distinct insertions are wanted, and those of them that have no insertion.
    asked: u64,
    untagged: u64,
    /// True once an action counted that is known by its hour alone.
    pub is_approximate: bool,
}

/// Memory of an insertion that was seen, in its table.
const SEEN_BYTES: usize = 48;

impl<'q> Counter<'q> {
    pub(super) fn new(question: &'q Question<'q>, view: &View<'_>) -> Self {
        let spans = question.spans();
        let mut views: Vec<_> = question
            .views
            .iter()
            .enumerate()
            .map(|(index, name)| (view.stored(name), index))
            .collect();
        views.sort_unstable();
        let mut candidates = Vec::with_capacity(question.candidates());
        for (entity, (_, keys)) in question.entities.iter().enumerate() {
            for key in keys {
                let stored = ShortText::of(view.stored(key).as_bytes());
                let stored = stored.expect("BUG: a stored form is short");
                candidates.push((entity, stored, candidates.len()));
            }
        }
        candidates.sort_unstable();
        Self {
            cells: vec![0; question.plane() * spans.len()],
            question,
            spans,
            views,
            candidates,
            seen: HashSet::new(),
            charge: view.reading().charge(),
            asked: 0,
            untagged: 0,
            is_approximate: false,
        }
    }

    /// Begins with the next user.
    pub(super) fn begin(&mut self) {
        self.cells.fill(0);
        self.seen = HashSet::new();
        self.charge.shrink_to(0);
    }

    /// Counts an action of the present user that happened at `at` (Unix seconds) and counts `n`. Fails when memory is
    /// short.
    pub(super) fn count(
        &mut self,
        at: i64,
        action: &Action<'_>,
        n: u64,
    ) -> tallyring_realtime::Result<()> {
        let (kind, of_view, pairs) = action.parts();
        let mut actions = self.question.actions.iter();
        let Some(kind) = actions.position(|name| name.as_bytes() == kind) else {
            return Ok(());
        };
        let Some(of_view) = self.view(of_view) else {
            return Ok(());
        };
        let row = (kind * self.question.view_levels() + of_view) * self.candidates.len();
        let mut is_asked = false;
        for pair in pairs {
            if let Some(candidate) = self.candidate(pair) {
                is_asked = true;
                self.count_in(row + candidate, at, action, n)?;
            }
        }
        if is_asked && self.question.distinct.is_some() && !action.by_hour {
            add_capped(&mut self.asked, n);
            if action.tag.is_none() {
                add_capped(&mut self.untagged, n);
            }
        }
        Ok(())
    }

    /// The counts of the present user.
    ///
    /// # Errors
    /// When distinct insertions are wanted of actions without insertions.
    pub(super) fn cells(&self) -> Result<&[u64]> {
        let (asked, untagged) = (self.asked, self.untagged);
        if untagged == 0 {
            return Ok(&self.cells);
        }
        let detail = format!(
            "needs actions with an `insertion`; {untagged} of the {asked} actions that were read for it have none: \
             send `insertion` with events, or leave `distinct` out"
        );
        Err(FieldError::refused("distinct", "insertion", detail).into())
    }

    /// The level of counts of a view; none where the view does not count.
    fn view(&self, stored: &[u8]) -> Option<usize> {
        match (self.views.is_empty(), stored.is_empty()) {
            (true, _) => return Some(0),
            (false, true) => return None,
            (false, false) => {}
        }
        let order = |(view, _): &(Cow<'_, str>, usize)| view.as_bytes().cmp(stored);
        let found = self.views.binary_search_by(order).ok()?;
        let (_, index) = self.views[found];
        Some(if self.question.by_view { index } else { 0 })
    }

    /// The candidate that an entity and its key are, such as `ad=42`.
    fn candidate(&self, pair: &[u8]) -> Option<usize> {
        let key_of = |name: &str| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
        let mut entities = self.question.entities.iter().enumerate();
        let (entity, key) = entities.find_map(|(index, (name, _))| Some((index, key_of(name)?)))?;
        let wanted = (entity, ShortText::of(key)?);
        let found = self
            .candidates
            .binary_search_by_key(&wanted, |&(entity, key, _)| (entity, key));
        found.ok().map(|found| self.candidates[found].2)
    }

    /// Counts an action in a cell of every range that it lies in.
    fn count_in(
        &mut self,
        cell: usize,
        at: i64,
        action: &Action<'_>,
        n: u64,
    ) -> tallyring_realtime::Result<()> {
        let plane = self.question.plane();
        for (number, span) in self.spans.iter().enumerate() {
            if at >= span.end || at + action.seconds() <= span.start {
                continue;
            }
            self.is_approximate |= action.by_hour;
            let cell = number * plane + cell;
            let Some(distinct) = self.question.distinct else {
                add_capped(&mut self.cells[cell], n);
                continue;
            };
            if action.by_hour {
                continue;
            }
            let Some(tag) = action.tag else {
                continue;
            };
            let day = match distinct {
                Distinct::PerDay => self.question.ranges[number].day_of(at),
                Distinct::PerRange => 0,
            };
            self.charge.grow(SEEN_BYTES)?;
            if self.seen.insert((cell, day, tag)) {
                self.cells[cell] += 1;
            }
        }
        Ok(())
    }
}
