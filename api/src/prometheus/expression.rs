//! The expressions that are understood: a part of PromQL.

use super::matcher::Matcher;

/// The one metric, which counts.
pub(super) const METRIC: &str = "tallyring_count";

/// So many keys are read in a moment.
const FEW_KEYS: usize = 10;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Number(f64),
    Select(Selector),
    /// `sum`, by these labels.
    Sum {
        by: Vec<String>,
        of: Box<Expression>,
    },
    /// The series with the highest values at each instant.
    Top {
        count: usize,
        of: Box<Expression>,
    },
    Binary {
        operator: Operator,
        left: Box<Expression>,
        right: Box<Expression>,
    },
}

/// Counts of the metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Selector {
    pub matchers: Vec<Matcher>,
    pub measure: Measure,
    /// How much earlier than each instant it is read, seconds; below zero it is later.
    pub offset: i64,
}

/// The number that is told of the counts, over a range of so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// All that was counted until then.
    Value,
    Increase(i64),
    /// A second.
    Rate(i64),
}

/// An operator between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Compare(Comparison),
}

/// A comparison, which keeps the series for which it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Above,
    Below,
    AtLeast,
    AtMost,
}

impl Expression {
    /// Every selector.
    pub(super) fn selectors(&self) -> Vec<&Selector> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Select(selector) => vec![selector],
            Self::Sum { of, .. } | Self::Top { of, .. } => of.selectors(),
            Self::Binary { left, right, .. } => [left.selectors(), right.selectors()].concat(),
        }
    }
}

impl Selector {
    /// True where a matcher names keys, of which there are few.
    pub(super) fn names_few_keys(&self) -> bool {
        let mut of_key = self
            .matchers
            .iter()
            .filter(|matcher| matcher.label == "key");
        of_key.any(|matcher| matcher.texts().is_some_and(|texts| texts.len() <= FEW_KEYS))
    }
}

impl Operator {
    /// The value that it makes of two numbers; none where a comparison does not hold.
    pub(super) fn of(self, left: f64, right: f64) -> Option<f64> {
        match self {
            Self::Add => Some(left + right),
            Self::Subtract => Some(left - right),
            Self::Multiply => Some(left * right),
            Self::Divide => Some(left / right),
            Self::Compare(comparison) => comparison.holds(left, right).then_some(left),
        }
    }
}

impl Comparison {
    #[expect(clippy::float_cmp, reason = "PromQL compares exactly")]
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Above => left > right,
            Self::Below => left < right,
            Self::AtLeast => left >= right,
            Self::AtMost => left <= right,
        }
    }
}
