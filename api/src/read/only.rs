//! `where.c=DE`: counts of some values of subtotals alone.
//!
//! They are read from a declared subtotal that has all dimensions which the request names, so they are as exact as its
//! breakdown. Counts from before that subtotal was declared stand under `-` in it.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_realtime::{Series, View};
use tallyring_records::{FieldError, Namespace, Schema, dimensions};

use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

/// Begins the names of these parameters.
const PREFIX: &str = "where.";

/// The values that counts must have, and the subtotal that tells them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Only {
    /// The value that is asked, by dimension; at least one.
    values: BTreeMap<String, String>,
    /// A declared subtotal that has all of these dimensions.
    pub source: String,
    /// Which dimension of the source is listed; none lists all.
    listed: Option<usize>,
}

impl Only {
    /// Takes the values out of `query`, for counts of a namespace, given with its name, that are broken down by the
    /// subtotal `by` or not at all; none where no value is asked. Fails with 400 for a value that is empty or given
    /// twice; 404 for a dimension that no subtotal has; 422 where no subtotal has all of them together.
    pub(super) fn take(
        query: &mut QueryString,
        (name, namespace): (&str, &Namespace),
        by: Option<&str>,
    ) -> Result<Option<Self>> {
        let mut values = BTreeMap::new();
        for (dimension, value) in query.take_prefixed(PREFIX) {
            let parameter = format!("{PREFIX}{dimension}");
            if !namespace.has_dimension(&dimension) {
                let known: BTreeSet<&str> = all_dimensions(namespace).collect();
                let known = Vec::from_iter(known).join(", ");
                let detail = format!("must be a dimension of {name}: one of {known}");
                return Err(Problem::unknown(&parameter, &value, detail));
            }
            if value.is_empty() {
                let detail = "must be a value; `-` stands for counts without one";
                return Err(Problem::malformed(&parameter, "", detail));
            }
            if values.contains_key(&*dimension) {
                let detail = "is given twice; give it once";
                return Err(Problem::malformed(&parameter, &value, detail));
            }
            values.insert(dimension.to_string(), value.to_string());
        }
        if values.is_empty() {
            return Ok(None);
        }
        let source = source((name, namespace), &values, by)?.to_owned();
        let is_part = |of: &&str| dimensions(of).count() == 1 && *of != source;
        let listed = by.filter(is_part);
        let listed = listed.and_then(|by| dimensions(&source).position(|of| of == by));
        Ok(Some(Self {
            values,
            source,
            listed,
        }))
    }

    /// The values by dimension, as an answer tells them.
    pub(super) fn into_values(self) -> BTreeMap<String, String> {
        self.values
    }

    /// The values in words.
    pub(super) fn words(&self, schema: &Schema) -> String {
        let values = self.values.iter();
        let words = values.map(|(name, value)| format!("{} {value}", schema.title_of(name)));
        Vec::from_iter(words).join(", ")
    }

    /// Leaves what has these values in a series of the source, and of the values the dimension that is listed. Totals
    /// stay as they are.
    pub(super) fn keep(&self, view: &View<'_>, series: &mut Series) {
        let wanted = dimensions(&self.source).map(|of| self.values.get(of));
        let wanted = wanted.map(|value| value.map(|value| view.stored(value)));
        let wanted = Vec::from_iter(wanted);
        let is_kept = series.values.iter().map(|value| {
            let mut parts = value.split('*').zip(&wanted);
            parts.all(|(part, wanted)| wanted.as_ref().is_none_or(|wanted| wanted == part))
        });
        let is_kept = Vec::from_iter(is_kept);
        series.points.retain(|of| is_kept[of.value as usize]);
        for (sum, is_kept) in series.sums.iter_mut().zip(is_kept) {
            if !is_kept {
                *sum = 0;
            }
        }
        if let Some(index) = self.listed {
            for value in &mut series.values {
                *value = value.split('*').nth(index).unwrap_or_default().into();
            }
        }
    }
}

/// The declared subtotal to read: the breakdown itself, or else the one with the fewest dimensions. Fails with 422 that
/// says what to declare.
fn source<'n>(
    (name, namespace): (&str, &'n Namespace),
    values: &BTreeMap<String, String>,
    by: Option<&str>,
) -> Result<&'n str> {
    let mut needed: Vec<&str> = values.keys().map(String::as_str).collect();
    for of in by.into_iter().flat_map(dimensions) {
        if !needed.contains(&of) {
            needed.push(of);
        }
    }
    let has_all = |subtotal: &&String| {
        let mut needed = needed.iter();
        needed.all(|needed| dimensions(subtotal).any(|of| of == *needed))
    };
    let declared = namespace.subtotals.iter().filter(has_all);
    let found = declared.min_by_key(|of| (Some(of.as_str()) != by, dimensions(of).count()));
    if let Some(found) = found {
        return Ok(found);
    }
    let (dimension, value) = values.first_key_value().expect("BUG: a value is asked");
    let together = needed.join(" and ");
    let detail = if needed.len() > 2 {
        format!(
            "must be fewer: a subtotal has two dimensions at most, and this read needs {together}"
        )
    } else {
        let declared = namespace.subtotals.iter().map(String::as_str);
        let crossed = needed.join("*");
        let declaration = declared.chain([crossed.as_str()]);
        let declaration = declaration.map(|of| format!("\"{of}\""));
        let declaration = Vec::from_iter(declaration).join(", ");
        format!(
            "no subtotal of {name} keeps {together} together; declare one: subtotals = [{declaration}]"
        )
    };
    Err(FieldError::refused(format!("{PREFIX}{dimension}"), value, detail).into())
}

fn all_dimensions(namespace: &Namespace) -> impl Iterator<Item = &str> {
    let subtotals = namespace.subtotals.iter();
    subtotals.flat_map(|subtotal| dimensions(subtotal))
}
