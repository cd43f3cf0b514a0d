//! All that rules filter of the events of a final day, by the class of each rule.

use std::collections::BTreeMap;

use serde::Serialize;
use tallyring_archive::FilteredSums;
use tallyring_records::{Class, capped};

/// All that the rules of one class filter, as it came or later.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct OfClass {
    /// Sum of `n`
    pub n: u64,
    /// Part of each rule that filters something
    pub rules: BTreeMap<String, u64>,
}

/// The sums of an event type by the name of the class; a class that filters nothing is 0.
pub(crate) fn by_class(types: &FilteredSums, kind: &str) -> BTreeMap<&'static str, OfClass> {
    let classes = types.get(kind);
    let of_class = |class: Class| {
        let rules = classes.and_then(|classes| classes.get(&class));
        let rules = rules.into_iter().flatten();
        let n = rules
            .clone()
            .fold(0_u128, |sum, (_, n)| sum.saturating_add(*n));
        OfClass {
            n: capped(n),
            rules: rules.map(|(rule, n)| (rule.clone(), capped(*n))).collect(),
        }
    };
    let classes = Class::ALL.into_iter();
    classes
        .map(|class| (class.name(), of_class(class)))
        .collect()
}

/// Adds the sums of another day. Sums beyond any that is shown stay there.
pub(crate) fn add(all: &mut FilteredSums, day: &FilteredSums) {
    for (kind, classes) in day {
        for (class, rules) in classes {
            for (rule, n) in rules {
                let classes = all.entry(kind.clone()).or_default();
                let rules = classes.entry(*class).or_default();
                let sum = rules.entry(rule.clone()).or_default();
                *sum = sum.saturating_add(*n);
            }
        }
    }
}
