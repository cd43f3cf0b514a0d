//! `filtered=true`: what rules kept from being counted, beside what was counted.

use serde::Serialize;
use tallyring_records::{FieldError, RULE, Schema, add_capped, filtered_namespace};

use super::answer::{Answer, Body};
use super::question::{Question, Shape};
use super::value::Value;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

/// Rules that an answer names, at most: more than a declaration has, because rules of before count, too.
const RULES_MAX: usize = 1_000;

/// Columns of tables, of what was filtered and of what came.
pub(super) const FILTERED_COLUMNS: [&str; 2] = ["filtered", "gross"];

/// Events that rules filtered in the range of an answer.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(super) struct Filtered {
    /// Sum of the filtered events
    pub total: u64,
    /// All that came: counted and filtered
    pub gross: u64,
    /// Filtered of each bucket, oldest first; left out where the answer has no buckets
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u64>,
    /// Filtered by each rule, largest first; left out for all keys together
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleCount>,
}

/// Events that one rule filtered.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(super) struct RuleCount {
    /// Its name
    pub rule: String,
    pub count: u64,
}

impl Filtered {
    /// From the answers to the questions about filtered events: as they were counted, and by rule where that is asked.
    pub(super) fn of(counted: u64, filtered: Answer, by_rule: Option<Answer>) -> Self {
        let rules = match by_rule.map(|answer| answer.body) {
            Some(Body::Rolled { values, .. }) => values,
            _ => Vec::new(),
        };
        let rules = rules
            .into_iter()
            .map(|Value { value, count, .. }| RuleCount { rule: value, count });
        let mut gross = filtered.total;
        add_capped(&mut gross, counted);
        Self {
            total: filtered.total,
            gross,
            counts: filtered.into_counts(),
            rules: rules.collect(),
        }
    }

    /// Filtered events of a bucket with this count, and all that came.
    pub(super) fn of_bucket(&self, index: usize, counted: u64) -> [u64; 2] {
        let filtered = self.counts.get(index).copied().unwrap_or(0);
        let mut gross = filtered;
        add_capped(&mut gross, counted);
        [filtered, gross]
    }
}

/// The questions about what was filtered.
#[derive(Debug, Clone)]
pub(crate) struct FilteredQuestions {
    /// The question itself, asked of filtered events.
    pub counts: Question,
    /// By rule, over the range; none for all keys together.
    pub by_rule: Option<Question>,
}

impl FilteredQuestions {
    /// Takes `filtered` out of `query`; none where it is not asked. Fails with 400 for a word that is neither true nor
    /// false, and in a namespace of filtered events; 422 for minutes and values of subtotals, because filtered events
    /// have none.
    pub(super) fn take(
        schema: &Schema,
        of: &Question,
        query: &mut QueryString,
    ) -> Result<Option<Self>> {
        let is_asked = query.take_as("filtered", "true or false")?;
        if !is_asked.unwrap_or(false) {
            return Ok(None);
        }
        let name = filtered_namespace(&of.namespace);
        let Some(namespace) = schema.counted(&name) else {
            let detail = "must be left out here: the namespace has nothing but filtered events";
            return Err(Problem::malformed("filtered", "true", detail));
        };
        if of.only.is_some() {
            let detail = "must be left out beside `where`: filtered events are kept by rule alone";
            return Err(FieldError::refused("filtered", "true", detail).into());
        }
        if of.base.by_minute() {
            let detail =
                "must be left out here: filtered events have no minutes, and the buckets need them";
            return Err(FieldError::refused("filtered", "true", detail).into());
        }
        let ask = |shape: Shape| {
            let (key, period) = (of.key.clone(), of.period.clone());
            Question::of((&name, namespace), key, shape, period, None)
        };
        let by_rule = || -> Result<Question> {
            let subtotal = RULE.to_owned();
            let by_rule = ask(Shape::By {
                subtotal,
                rolled: true,
            })?;
            Ok(Question {
                limit: RULES_MAX,
                ..by_rule
            })
        };
        Ok(Some(Self {
            counts: ask(of.shape.clone())?,
            by_rule: of.key.is_some().then(by_rule).transpose()?,
        }))
    }
}
