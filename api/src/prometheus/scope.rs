//! A selector in one namespace: which subtotal tells what it asks, and the labels of what is read.

use std::collections::BTreeSet;

use tallyring_realtime::{Series as Counted, View};
use tallyring_records::{Namespace, dimensions};

use super::expression::{METRIC, Measure, Selector};
use super::matcher::Matcher;
use super::select::{Labels, refused};
use super::steps::Windows;
use crate::calendar::{Buckets, Selection};
use crate::problem::Result;
use crate::read::base::{Base, BaseData};

/// A selector and one namespace.
pub(super) struct Scope<'s> {
    pub selector: &'s Selector,
    pub windows: &'s Windows,
    pub namespace: &'s Namespace,
    /// Dimensions that series are told apart by.
    pub grouped: Vec<&'s str>,
    /// The declared subtotal that tells all dimensions that are asked; none where none is.
    pub source: Option<&'s str>,
}

impl Scope<'_> {
    pub(super) fn base(&self, cells: &Buckets) -> Result<Base> {
        let data = self.source.map_or(BaseData::Totals, BaseData::Values);
        Base::of(self.namespace, &Selection::Bounded(cells.clone()), data)
    }

    /// The labels of a series, with those that all series of the namespace have.
    pub(super) fn labels(&self, mut labels: Labels) -> Labels {
        if self.selector.measure == Measure::Value {
            labels.insert("__name__".to_owned(), METRIC.to_owned());
        }
        labels.insert("namespace".to_owned(), self.namespace.name.clone());
        labels
    }

    /// The group that is there even where nothing is counted: that of the values which matchers name by `=`.
    pub(super) fn seed(&self, cells: usize) -> Option<(Labels, Vec<u64>)> {
        let named = |dimension: &&str| {
            let mut matchers = self.matchers_of(dimension);
            let value = matchers.find_map(Matcher::equal)?;
            Some(((*dimension).to_owned(), value.to_owned()))
        };
        let labels: Option<Labels> = self.grouped.iter().map(named).collect();
        Some((labels?, vec![0; cells]))
    }

    /// True where each value of the source is a group of its own.
    pub(super) fn tells_values(&self) -> bool {
        let mut of_source = dimensions(self.source.unwrap_or_default());
        of_source.all(|dimension| {
            let is_free = self.matchers_of(dimension).next().is_none();
            is_free && self.grouped.contains(&dimension)
        })
    }

    fn matchers_of(&self, dimension: &str) -> impl Iterator<Item = &Matcher> {
        let matchers = self.selector.matchers.iter();
        matchers.filter(move |matcher| matcher.label == dimension)
    }

    /// The labels of a stored value; none where matchers leave it out.
    pub(super) fn labels_of(
        &self,
        view: &View<'_>,
        counted: &Counted,
        stored: &str,
    ) -> Result<Option<Labels>> {
        let source = self.source.unwrap_or_default();
        // A comparison of stored forms spares the look-up of most texts.
        let is_other = |(dimension, stored): (&str, &str)| {
            let mut equal = self.matchers_of(dimension).filter_map(Matcher::equal);
            equal.any(|value| view.stored(value) != stored)
        };
        if dimensions(source).zip(stored.split('*')).any(is_other) {
            return Ok(None);
        }
        let texts = view.expand(counted, stored)?;
        let mut labels = Labels::new();
        for (dimension, text) in dimensions(source).zip(texts) {
            if self
                .matchers_of(dimension)
                .any(|matcher| !matcher.lets(&text))
            {
                return Ok(None);
            }
            if self.grouped.contains(&dimension) {
                labels.insert(dimension.to_owned(), text);
            }
        }
        Ok(Some(labels))
    }
}

/// The least of the declared subtotals that tells all of these dimensions; none where none is asked. Fails with 422
/// that says what to declare.
pub(super) fn source<'n>(
    namespace: &'n Namespace,
    needed: &BTreeSet<&str>,
) -> Result<Option<&'n str>> {
    if needed.is_empty() {
        return Ok(None);
    }
    let tells = |subtotal: &&String| {
        needed
            .iter()
            .all(|of| dimensions(subtotal).any(|has| has == *of))
    };
    let declared = namespace.subtotals.iter().filter(tells);
    let found = declared.min_by_key(|subtotal| dimensions(subtotal).count());
    if let Some(found) = found {
        return Ok(Some(found));
    }
    let labels: Vec<&str> = needed.iter().copied().collect();
    let detail = match labels.len() {
        2 => format!(
            "needs the labels {} together, which no subtotal of {} keeps: declare \"{}\" beside its others",
            labels.join(" and "),
            namespace.name,
            labels.join("*")
        ),
        _ => format!(
            "needs the labels {} together, and a subtotal has two at most: name fewer",
            labels.join(", ")
        ),
    };
    Err(refused("query", detail))
}
