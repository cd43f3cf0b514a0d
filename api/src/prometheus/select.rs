//! Counts that a selector asks for, all from one view.
//!
//! A series has the labels `namespace` and `key`, and those dimensions that a matcher or the sum around it names: a
//! dimension that nothing names is summed up. So a read takes the coarsest counts that answer it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tallyring_realtime::{Charge, KeyText, View};
use tallyring_records::{FieldError, KEY_BYTES_MAX, Namespace, dimensions};

use super::evaluate::Value;
use super::expression::{METRIC, Selector};
use super::keys::{Found, KeyPlan};
use super::matcher::Matcher;
use super::scope::{Scope, source};
use super::steps::{Steps, Windows};
use crate::access::Caller;
use crate::calendar::Buckets;
use crate::problem::{Problem, Result};
use crate::read::base::are_cut;

/// Labels and their values.
pub(super) type Labels = BTreeMap<String, String>;

/// Series of one answer, and keys of one selector.
pub(super) const SERIES_MAX: usize = 1_000;
/// Numbers that one query has in memory: points of series, and counts that they are made of.
const NUMBERS_MAX: usize = 1_000_000;
/// Memory of a number, in the answer and its text.
const NUMBER_BYTES: usize = 64;
/// Values, or combinations of them, that one read tells apart.
const VALUES_MAX: usize = 10_000;
/// Memory of the labels of a group of values, about.
const GROUP_BYTES: usize = 512;
/// Labels that every series has, or that every selector takes.
pub(super) const OWN_LABELS: [&str; 4] = ["__name__", "namespace", "key", "timezone"];

/// A series: a value at each instant, where it has one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub labels: Labels,
    pub values: Vec<Option<f64>>,
}

/// The part of a selector's series that is needed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted<'e> {
    /// The labels of the sum around it; none outside of a sum.
    pub by: Option<&'e [String]>,
    /// The highest values at each instant are enough.
    pub top: Option<usize>,
}

/// The reads of one query.
pub(super) struct Reads<'r> {
    pub view: &'r View<'r>,
    pub caller: &'r Caller,
    pub steps: &'r Steps,
    pub notes: Notes,
    /// Memory of the answer.
    pub charge: Charge,
    /// Numbers that are in memory.
    numbers: usize,
    /// Keys and rankings that were read.
    pub reads: usize,
    /// Passes over all keys, of all selectors.
    pub passes: usize,
}

/// Remarks on an answer.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The answer may lack something.
    pub warnings: BTreeSet<String>,
    /// Something of it is coarser than was asked.
    pub infos: BTreeSet<String>,
}

impl<'r> Reads<'r> {
    /// Nothing yet, of this view.
    pub(super) fn new(view: &'r View<'r>, caller: &'r Caller, steps: &'r Steps) -> Self {
        Self {
            view,
            caller,
            steps,
            notes: Notes::default(),
            charge: view.reading().charge(),
            numbers: 0,
            reads: 0,
            passes: 0,
        }
    }

    /// The series of a selector. Fails with 400 for a label that is none, 422 for too much at once.
    pub(super) fn select(
        &mut self,
        selector: &Selector,
        wanted: Wanted<'_>,
    ) -> Result<Vec<Series>> {
        let (view, windows) = (self.view, self.steps.windows(selector));
        check_names(&selector.matchers)?;
        let visible = self.visible(&selector.matchers);
        let by = wanted.by.unwrap_or_default();
        self.check_labels(&selector.matchers, by)?;
        if visible.is_empty() {
            self.note_unknown(&selector.matchers);
        }
        let top = match by.iter().any(|label| label == "namespace") || wanted.by.is_none() {
            true => wanted.top,
            // Keys of equal names in several namespaces add up.
            false => wanted.top.filter(|_| visible.len() == 1),
        };
        let mut series = Vec::new();
        for namespace in visible {
            let namespace = view.schema().namespace(&namespace);
            let namespace = namespace.expect("BUG: it is visible");
            let wanted = Wanted { top, ..wanted };
            series.extend(self.of_namespace((selector, &windows), namespace, wanted)?);
        }
        Ok(series)
    }

    /// Names of the namespaces that the caller may read and the matchers let through.
    pub(super) fn visible(&self, matchers: &[Matcher]) -> Vec<String> {
        let namespaces = self.view.schema().namespaces.iter();
        let lets = |namespace: &&Namespace| {
            let is_let = |matcher: &Matcher| match matcher.label.as_str() {
                "namespace" => matcher.lets(&namespace.name),
                label if OWN_LABELS.contains(&label) => true,
                label => namespace.has_dimension(label) || matcher.lets(""),
            };
            self.caller.check_namespace(&namespace.name).is_ok() && matchers.iter().all(is_let)
        };
        namespaces
            .filter(lets)
            .map(|namespace| namespace.name.clone())
            .collect()
    }

    /// Every dimension of the namespaces that the caller may read.
    pub(super) fn dimensions(&self) -> BTreeSet<String> {
        let schema = self.view.schema();
        let namespaces = self.visible(&[]).into_iter();
        let namespaces = namespaces.filter_map(|name| schema.namespace(&name));
        let subtotals = namespaces.flat_map(|namespace| &namespace.subtotals);
        let dimensions = subtotals.flat_map(|subtotal| dimensions(subtotal));
        dimensions.map(str::to_owned).collect()
    }

    fn check_labels(&self, matchers: &[Matcher], by: &[String]) -> Result<()> {
        let known = self.dimensions();
        let asked = matchers.iter().map(|matcher| &matcher.label).chain(by);
        let mut unknown =
            asked.filter(|label| !OWN_LABELS.contains(&label.as_str()) && !known.contains(*label));
        let Some(label) = unknown.next() else {
            return Ok(());
        };
        let known = Vec::from_iter(known).join(", ");
        let detail = format!("must be a label of counts: namespace, key, timezone, {known}");
        Err(Problem::malformed("label", label, detail))
    }

    /// A namespace that is not there gives an empty answer, as it does elsewhere, but not without a word.
    fn note_unknown(&mut self, matchers: &[Matcher]) {
        let named = matchers
            .iter()
            .filter(|matcher| matcher.label == "namespace");
        let named: Vec<&str> = named.filter_map(Matcher::equal).collect();
        let known = self.visible(&[]).join(", ");
        if let [name, ..] = named[..] {
            let warning =
                format!("no namespace `{name}` has these labels here; namespaces are {known}");
            self.notes.warnings.insert(warning);
        }
    }

    fn of_namespace(
        &mut self,
        (selector, windows): (&Selector, &Windows),
        namespace: &Namespace,
        wanted: Wanted<'_>,
    ) -> Result<Vec<Series>> {
        let is_own = |label: &str| OWN_LABELS.contains(&label);
        let matched = selector.matchers.iter();
        let matched: Vec<&str> = matched
            .filter(|matcher| wanted.by.is_none() || !matcher.lets_all())
            .map(|matcher| matcher.label.as_str())
            .filter(|label| !is_own(label) && namespace.has_dimension(label))
            .collect();
        let mut grouped: Vec<&str> = match wanted.by {
            Some(by) => {
                let by = by.iter().map(String::as_str);
                by.filter(|label| !is_own(label) && namespace.has_dimension(label))
                    .collect()
            }
            None => matched.clone(),
        };
        grouped.sort_unstable();
        grouped.dedup();
        let needed: BTreeSet<&str> = grouped.iter().chain(&matched).copied().collect();
        let scope = Scope {
            selector,
            windows,
            namespace,
            grouped,
            source: source(namespace, &needed)?,
        };
        let is_by_key = wanted
            .by
            .is_none_or(|by| by.iter().any(|label| label == "key"));
        let plan = KeyPlan::of(&selector.matchers, is_by_key)?;
        if let (KeyPlan::Listed(KeyText::Any), None, Some(top)) = (&plan, scope.source, wanted.top)
        {
            return self.ranked(&scope, top);
        }
        let keys = match plan {
            KeyPlan::Together => return self.together(&scope, wanted.top),
            KeyPlan::Named(keys) => keys,
            KeyPlan::Listed(text) => {
                let Some(span) = span_of(windows) else {
                    return Ok(Vec::new());
                };
                let found = self.keys((namespace, &text), span, &selector.matchers, SERIES_MAX)?;
                complete(namespace, found)?
            }
        };
        let mut series = Vec::new();
        for key in keys
            .iter()
            .filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()))
        {
            series.extend(self.of_key(&scope, key)?);
        }
        Ok(series)
    }

    /// Takes the memory of so many numbers. Fails with 422 for too many in one query.
    pub(super) fn take(&mut self, numbers: usize) -> Result<()> {
        self.numbers += numbers;
        if self.numbers > NUMBERS_MAX {
            let detail = format!(
                "needs more than {NUMBERS_MAX} numbers, points times series: give a longer step, a shorter range, or \
                 fewer keys and values"
            );
            return Err(refused("query", detail));
        }
        Ok(self.charge.grow(numbers * NUMBER_BYTES)?)
    }

    /// Takes the memory of one more group of values, beside those that are known. Fails with 422 for too many.
    pub(super) fn take_group(&mut self, known: usize, numbers: usize) -> Result<()> {
        if known >= VALUES_MAX {
            let detail = format!(
                "needs more than {VALUES_MAX} values told apart: take `topk` of the sum by one label, or fewer labels"
            );
            return Err(refused("query", detail));
        }
        self.view.reading().check()?;
        self.charge.grow(GROUP_BYTES)?;
        self.take(numbers)
    }

    pub(super) fn note_alignment(&mut self, scope: &Scope<'_>, aligned: bool, cells: &Buckets) {
        if aligned && !are_cut(self.view, cells, self.view.generation()) {
            return;
        }
        let info = format!(
            "a point or a range divides base buckets of {}: each counts where it starts",
            scope.namespace.name
        );
        self.notes.infos.insert(info);
    }
}

/// Fails with 400 for a metric that is not there.
fn check_names(matchers: &[Matcher]) -> Result<()> {
    let mut names = matchers
        .iter()
        .filter(|matcher| matcher.label == "__name__");
    match names.find(|matcher| !matcher.lets(METRIC)) {
        None => Ok(()),
        Some(name) => {
            let detail = format!("must be {METRIC}, the one that this server answers for");
            Err(Problem::malformed("metric", &name.value, detail))
        }
    }
}

/// The stretch that all others lie in.
fn span_of(windows: &Windows) -> Option<Range<i64>> {
    let cells = windows.cells.as_ref()?;
    Some(cells.start()..cells.end())
}

/// The keys that were found. Fails with 422 where there are more.
fn complete(namespace: &Namespace, found: Found) -> Result<Vec<String>> {
    if found.is_complete {
        return Ok(found.keys);
    }
    let detail = format!(
        "must say which keys of {}: there are more than {SERIES_MAX}, or they are not found within a second; name some, \
         take `topk`, or `sum` without the label",
        namespace.name
    );
    Err(refused("key", detail))
}

/// Fails with 422 for more series than an answer has.
pub(super) fn check_series(value: &Value) -> Result<()> {
    let Value::Series(series) = value else {
        return Ok(());
    };
    if series.len() <= SERIES_MAX {
        return Ok(());
    }
    let detail = format!(
        "has {} series, and an answer {SERIES_MAX} at most: name fewer labels, or take `topk`",
        series.len()
    );
    Err(refused("query", detail))
}

/// 422 for a query that is understood, but asks for too much.
pub(super) fn refused(field: &str, detail: String) -> Problem {
    FieldError::refused(field, "", detail).into()
}
