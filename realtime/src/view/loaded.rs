//! Days of which loaded history may have counts, and whether those are part of final numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_archive::{ArchiveEntry, RunEntry};
use tallyring_records::{Day, line};

use crate::error::Beside;

/// Spans of loaded counts of one section (`l|`). A clone shares them, because each answer has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Loaded(Arc<Vec<Span>>);

/// Days that a run of a dataset may have counts of, or a dataset that is lost.
#[derive(Debug, Clone)]
pub(super) struct Span {
    first: Day,
    last: Day,
    /// Name of the dataset.
    pub dataset: Arc<str>,
    /// Why its counts are no part of final numbers; none where they are.
    pub beside: Option<Beside>,
    /// The run; none where the dataset is lost.
    pub run: Option<Arc<RunEntry>>,
}

impl Loaded {
    /// Loaded counts by section, of the datasets that count or will with the next generation, and of those that are
    /// lost.
    pub(super) fn of(archive: &ArchiveEntry) -> BTreeMap<String, Self> {
        let mut loaded: BTreeMap<String, Self> = BTreeMap::new();
        let active = archive.active_generation();
        let datasets = archive.datasets.iter();
        for dataset in datasets.filter(|dataset| dataset.matters(active)) {
            let name: Arc<str> = dataset.name.as_str().into();
            let beside = match dataset.is_final {
                true if dataset.is_in_finals(active) => None,
                true => Some(Beside::Waits),
                false if dataset.wanted => Some(Beside::NotFinal),
                false => Some(Beside::Dropped),
            };
            for run in &dataset.runs {
                let (first, last) = run.meta.days().into_inner();
                let run = Arc::new(run.clone());
                for section in run.meta.sums.keys() {
                    let of_section = loaded.entry(section.clone()).or_default();
                    Arc::make_mut(&mut of_section.0).push(Span {
                        first,
                        last,
                        dataset: Arc::clone(&name),
                        beside,
                        run: Some(Arc::clone(&run)),
                    });
                }
            }
        }
        for lost in &archive.lost_datasets {
            let name: Arc<str> = lost.name.as_str().into();
            for (namespace, spans) in &lost.days {
                let section = line::total_key(namespace, "");
                let spans = spans.iter().map(|&(first, last)| Span {
                    first,
                    last,
                    dataset: Arc::clone(&name),
                    beside: Some(Beside::Lost),
                    run: None,
                });
                let of_section = loaded.entry(section).or_default();
                Arc::make_mut(&mut of_section.0).extend(spans);
            }
        }
        loaded
    }

    /// The spans of both.
    pub(super) fn and(mut self, other: Self) -> Self {
        if other.0.is_empty() {
            return self;
        }
        Arc::make_mut(&mut self.0).extend(other.0.iter().cloned());
        self
    }

    /// Spans that meet these days.
    pub(super) fn meeting(&self, from: Day, last: Day) -> impl Iterator<Item = &Span> {
        let spans = self.0.iter();
        spans.filter(move |span| span.first <= last && from <= span.last)
    }

    /// True where final datasets may have counts of the day.
    pub(super) fn is_in_finals(&self, day: Day) -> bool {
        self.meeting(day, day).any(|span| span.beside.is_none())
    }

    /// True where something may have counts of the day that are no part of its final numbers.
    pub(super) fn is_beside(&self, day: Day) -> bool {
        self.meeting(day, day).any(|span| span.beside.is_some())
    }

    /// True where final datasets count, of any day.
    pub(super) fn has_in_finals(&self) -> bool {
        self.0.iter().any(|span| span.beside.is_none())
    }

    /// True where something is no part of final numbers, of any day.
    pub(super) fn has_beside(&self) -> bool {
        self.0.iter().any(|span| span.beside.is_some())
    }
}
