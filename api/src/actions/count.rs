//! Counts the actions of one user for every combination of range, action, view and candidate.

use std::collections::{HashMap, HashSet};
use std::ops::Range as Span;

use tallyring_realtime::{Charge, Did, View};
use tallyring_records::{What, add_capped};

use super::question::{Distinct, Question};
use crate::problem::Problem;

/// The counts of one user: a cell for every combination.
pub(super) type Cells = Vec<u64>;

/// Finds cells by what was done.
pub(super) struct Counter<'q> {
    question: &'q Question,
    /// The range of each asked range, Unix seconds.
    spans: Vec<Span<i64>>,
    /// Index of each action, view and candidate, all in their stored form.
    actions: HashMap<&'q str, usize>,
    views: HashMap<String, usize>,
    /// By entity and stored key.
    candidates: HashMap<(&'q str, String), usize>,
    /// Cells of one range that a number of what was done counts in; none where not asked for yet.
    cells_of: Vec<Option<Vec<usize>>>,
    /// True once an action counted that is known by its hour alone.
    pub is_approximate: bool,
}

/// Memory of an insertion that was seen, in its table.
const SEEN_BYTES: usize = 48;

impl<'q> Counter<'q> {
    pub(super) fn new(question: &'q Question, view: &View<'_>) -> Self {
        let stored = |text: &str| view.stored(text).into_owned();
        let mut candidates = HashMap::new();
        for (entity, keys) in &question.entities {
            for key in keys {
                let index = candidates.len();
                candidates
                    .entry((entity.as_str(), stored(key)))
                    .or_insert(index);
            }
        }
        let index = |(index, name): (usize, &'q String)| (name.as_str(), index);
        let views = question.views.iter().enumerate();
        Self {
            question,
            spans: question.spans(),
            actions: question.actions.iter().enumerate().map(index).collect(),
            views: views.map(|(index, view)| (stored(view), index)).collect(),
            candidates,
            cells_of: Vec::new(),
            is_approximate: false,
        }
    }

    /// Counts the actions of one user; `what` tells what a number stands for.
    ///
    /// # Errors
    /// When distinct insertions are wanted of actions without insertions, or memory is short.
    pub(super) fn count<'w>(
        &mut self,
        did: &[Did],
        what: impl Fn(u32) -> &'w [u8],
        charge: &mut Charge,
    ) -> Result<Cells, Problem> {
        let plane = self.question.plane();
        let mut cells = vec![0; plane * self.spans.len()];
        let mut seen = HashSet::new();
        let mut untagged = 0_u64;
        for did in did {
            let number = did.what as usize;
            if self.cells_of.len() <= number {
                self.cells_of.resize(number + 1, None);
            }
            if self.cells_of[number].is_none() {
                self.cells_of[number] = Some(self.find(what(did.what)));
            }
            let of_what = self.cells_of[number].as_deref().unwrap_or_default();
            if of_what.is_empty() {
                continue;
            }
            for (number, span) in self.spans.iter().enumerate() {
                if did.at >= span.end || did.until() <= span.start {
                    continue;
                }
                self.is_approximate |= did.by_hour;
                for cell in of_what.iter().map(|cell| number * plane + cell) {
                    let Some(distinct) = self.question.distinct else {
                        add_capped(&mut cells[cell], did.n);
                        continue;
                    };
                    if did.by_hour {
                        continue;
                    }
                    let Some(tag) = did.tag else {
                        untagged += 1;
                        continue;
                    };
                    let day = match distinct {
                        Distinct::PerDay => self.question.ranges[number].day_of(did.at),
                        Distinct::PerRange => 0,
                    };
                    charge.grow(SEEN_BYTES)?;
                    if seen.insert((cell, day, tag)) {
                        cells[cell] += 1;
                    }
                }
            }
        }
        if untagged > 0 {
            let detail = format!(
                "needs actions with an `insertion`; {untagged} of the actions that were asked for have none: send \
                 `insertion` with events, or leave `distinct` out"
            );
            return Err(
                tallyring_records::FieldError::refused("distinct", "insertion", detail).into(),
            );
        }
        Ok(cells)
    }

    /// The cells of one range that an action counts in.
    fn find(&self, what: &[u8]) -> Vec<usize> {
        let what = std::str::from_utf8(what).ok().and_then(What::parse);
        let Some(what) = what else {
            return Vec::new();
        };
        let Some(&action) = self.actions.get(what.kind) else {
            return Vec::new();
        };
        let view = match (what.view, self.views.is_empty()) {
            (_, true) => Some(0),
            (Some(view), false) => self.views.get(view).copied(),
            (None, false) => None,
        };
        let Some(view) = view else {
            return Vec::new();
        };
        let view = if self.question.by_view { view } else { 0 };
        let row = (action * self.question.view_levels() + view) * self.candidates.len();
        let candidate = |(entity, key): (&'_ str, &'_ str)| {
            let mut known = self.question.entities.iter();
            let (entity, _) = known.find(|(name, _)| name == entity)?;
            self.candidates
                .get(&(entity.as_str(), key.to_owned()))
                .map(|index| row + index)
        };
        what.entities().filter_map(candidate).collect()
    }
}
