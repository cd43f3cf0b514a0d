//! The question of a read: parsed once from its path and its parameters, checked once, and then answered.

use tallyring_realtime::{Read, States, View};
use tallyring_records::{FieldError, KEY_BYTES_MAX, Namespace, Schema, filtered_of};

use super::base::{Base, BaseData};
use super::before::Comparison;
use super::filtered::FilteredQuestions;
use super::format::Format;
use super::only::Only;
use super::period::{Period, span};
use crate::calendar::Unit;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

/// Values or keys that a ranking lists unless asked otherwise.
const LIMIT_DEFAULT: usize = 10;
/// Values or keys that a ranking lists at most.
pub(crate) const LIMIT_MAX: usize = 10_000;

/// A read of counts. Everything that can be refused without reading a count has been refused.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// Name of a declared namespace.
    pub namespace: String,
    /// The key to read; none for all keys of the namespace together.
    pub key: Option<String>,
    pub shape: Shape,
    /// Values or keys that a ranking lists, 1 to 10,000.
    pub limit: usize,
    pub period: Period,
    /// The values of subtotals that are counted; none counts all.
    pub only: Option<Only>,
    /// The base buckets that the read needs.
    pub base: Base,
    /// This question asked of an earlier period, with which the answer compares.
    pub before: Option<(Comparison, Box<Question>)>,
    /// The questions about what rules filtered, which the answer has beside what was counted.
    pub filtered: Option<Box<FilteredQuestions>>,
}

/// Content of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Every bucket.
    Counts,
    /// The whole range in one.
    Summary,
    /// The values of a subtotal, ranked over the range or, where not `rolled`, for each bucket.
    By { subtotal: String, rolled: bool },
}

/// Which read a route answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Aspect {
    Counts,
    Summary,
    /// The values of this subtotal.
    By(String),
    /// The values of this subtotal over all keys.
    Values(String),
    /// Distinct users.
    Users,
    /// The keys of a namespace, ranked.
    Top,
    /// The keys of a namespace, each with its count.
    Keys,
    /// As [`Aspect::Keys`], with the count of an earlier period.
    Rising,
}

impl Shape {
    /// The subtotal by which it is broken down.
    fn by(&self) -> Option<&str> {
        match self {
            Self::By { subtotal, .. } => Some(subtotal),
            Self::Counts | Self::Summary => None,
        }
    }

    /// True where the answer has an entry for each bucket.
    pub(crate) fn lists_buckets(&self) -> bool {
        match self {
            Self::Counts | Self::By { rolled: false, .. } => true,
            Self::Summary | Self::By { rolled: true, .. } => false,
        }
    }
}

impl Question {
    /// The namespace, and the key where one is read.
    pub(crate) fn reads(&self) -> (&str, Option<&str>) {
        (&self.namespace, self.key.as_deref())
    }

    /// Parses the question about a namespace, and about a key of it where there is one. Takes the parameters that the
    /// view has out of `query`. `now` is the clock's time in Unix seconds. Fails with 404 for a namespace or subtotal
    /// that is not declared; 400 and 422 that name the parameter.
    pub(crate) fn parse(
        (schema, now): (&Schema, i64),
        (namespace, key): (&str, Option<String>),
        view: Aspect,
        format: Format,
        query: &mut QueryString,
    ) -> Result<Self> {
        let name = namespace;
        let namespace = counted(schema, name)?;
        if view == Aspect::Users && !namespace.uniques {
            let detail = "must keep users, and is declared without `uniques = true`";
            return Err(Problem::unknown("namespace", name, detail));
        }
        if let Some(key) = &key {
            check_key(key)?;
        }
        let is_users = view == Aspect::Users;
        let is_rising = view == Aspect::Rising;
        let is_series = view == Aspect::Counts;
        let has_values =
            key.is_some() && matches!(view, Aspect::Counts | Aspect::Summary | Aspect::By(_));
        let can_filter = matches!(view, Aspect::Counts | Aspect::Summary);
        let mut limit = limit_default(format);
        let shape = match view {
            Aspect::Counts | Aspect::Users => Shape::Counts,
            Aspect::Summary => Shape::Summary,
            Aspect::Top | Aspect::Keys | Aspect::Rising => {
                limit = take_limit(query, limit)?;
                Shape::Summary
            }
            Aspect::Values(subtotal) => {
                check_subtotal((name, namespace), &subtotal)?;
                limit = take_limit(query, limit)?;
                let rolled = true;
                Shape::By { subtotal, rolled }
            }
            Aspect::By(subtotal) => {
                check_subtotal((name, namespace), &subtotal)?;
                limit = take_limit(query, limit)?;
                let rolled = query.take_as("rollup", "true or false")?.unwrap_or(true);
                Shape::By { subtotal, rolled }
            }
        };
        let period = Period::parse(query, now)?;
        let compared = match is_rising || is_series {
            true => period.compared(query)?,
            false => None,
        };
        let only = match has_values {
            true => Only::take(query, (name, namespace), shape.by())?,
            false => None,
        };
        let mut question = Self::of((name, namespace), key, shape, period, only.clone())?;
        question.limit = limit;
        question.check_minutes()?;
        if is_users {
            let selection = &question.period.selection;
            question.base = Base::of(namespace, selection, BaseData::Users)?;
        }
        if let Some((comparison, period)) = compared {
            let key = question.key.clone();
            let before = Self::of((name, namespace), key, Shape::Counts, period, only)?;
            question.before = Some((comparison, Box::new(before)));
        }
        if can_filter && !matches!(format, Format::Svg(_)) {
            let filtered = FilteredQuestions::take(schema, &question, query)?;
            question.filtered = filtered.map(Box::new);
        }
        Ok(question)
    }

    /// A question about counts of a namespace, given with its name; rankings list as many values as they do unless
    /// asked otherwise. Fails with 422 for minutes where the namespace keeps none.
    pub(crate) fn of(
        (name, namespace): (&str, &Namespace),
        key: Option<String>,
        shape: Shape,
        period: Period,
        only: Option<Only>,
    ) -> Result<Self> {
        let source = only.as_ref().map(|only| only.source.as_str());
        let data = match source.or(shape.by()) {
            Some(subtotal) => BaseData::Values(subtotal),
            None => BaseData::Totals,
        };
        Ok(Self {
            base: Base::of(namespace, &period.selection, data)?,
            namespace: name.to_owned(),
            key,
            shape,
            limit: LIMIT_DEFAULT,
            period,
            only,
            before: None,
            filtered: None,
        })
    }

    /// Fails with 422 for values of all keys by the minute.
    fn check_minutes(&self) -> Result<()> {
        let is_of_all = self.key.is_none() && matches!(self.shape, Shape::By { .. });
        if is_of_all && self.base.by_minute() {
            let detail = "must be longer than a minute: values of all keys together have no minutes; ask for unit=hour \
                          or longer";
            return Err(FieldError::refused("unit", Unit::Minute.as_str(), detail).into());
        }
        Ok(())
    }

    /// Until when no event is expected any more, Unix seconds.
    pub(crate) fn settled_until(&self, reader: &View<'_>) -> i64 {
        let Period { as_of, now, .. } = self.period;
        reader.settled_until(self.declared(), as_of, now)
    }

    /// The states of times, for what the namespace counts.
    pub(crate) fn states(&self, reader: &View<'_>) -> States {
        let settled = self.settled_until(reader);
        let states = reader.states(&[self.declared()], settled, self.period.as_of);
        self.period.states(states)
    }

    /// The declared namespace whose events, counted or filtered, it is about.
    pub(super) fn declared(&self) -> &str {
        filtered_of(&self.namespace).unwrap_or(&self.namespace)
    }

    /// The subtotal whose values it reads.
    fn source(&self) -> Option<&str> {
        let only = self.only.as_ref().map(|only| only.source.as_str());
        only.or(self.shape.by())
    }

    /// The columns that the store is to read of the key.
    pub(crate) fn read(&self) -> Read {
        let selection = &self.period.selection;
        let (from, to) = self.base.span(selection);
        let (subtotal, rolled) = match self.source() {
            Some(subtotal) => {
                let (from, to) = span(selection);
                let subtotal = self.base.subtotal_of(subtotal);
                let is_rolled = !self.shape.lists_buckets();
                (Some(subtotal), is_rolled.then_some(from..to))
            }
            None => (self.base.subtotal(), None),
        };
        Read {
            namespace: self.namespace.clone(),
            key: self.key.clone().unwrap_or_default(),
            subtotal,
            from,
            to,
            rolled,
        }
    }
}

/// Checks a key as a client sends it. Fails with 400 for an empty key, and for one of more than 2,048 bytes.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    let detail = format!("must have 1 to {KEY_BYTES_MAX} bytes");
    Err(Problem::malformed("key", key, detail))
}

/// How a namespace counts, which is declared, or has the filtered events of a declared one. Fails with 404 that lists
/// the declared ones.
pub(super) fn counted<'s>(schema: &'s Schema, namespace: &str) -> Result<&'s Namespace> {
    schema
        .counted(namespace)
        .map_or_else(|| declared(schema, namespace), Ok)
}

/// The declared namespace of this name. Fails with 404 that lists the declared ones.
pub(crate) fn declared<'s>(schema: &'s Schema, namespace: &str) -> Result<&'s Namespace> {
    schema.namespace(namespace).ok_or_else(|| {
        let detail = format!("must be one of the declared namespaces {}", schema.names());
        Problem::unknown("namespace", namespace, detail)
    })
}

fn check_subtotal((name, namespace): (&str, &Namespace), subtotal: &str) -> Result<()> {
    if namespace.subtotals.iter().any(|known| known == subtotal) {
        return Ok(());
    }
    let known = namespace.subtotals.join(", ");
    let detail = format!("must be one of the subtotals of {name}, {known}");
    Err(Problem::unknown("subtotal", subtotal, detail))
}

/// A file is taken whole, a page shows the top.
fn limit_default(format: Format) -> usize {
    match format {
        Format::Csv => LIMIT_MAX,
        Format::Json | Format::Svg(_) => LIMIT_DEFAULT,
    }
}

fn take_limit(query: &mut QueryString, default: usize) -> Result<usize> {
    let expected = format!("a whole number from 1 to {LIMIT_MAX}");
    let limit: usize = query.take_as("limit", &expected)?.unwrap_or(default);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("must be {expected}");
    Err(Problem::malformed("limit", &limit.to_string(), detail))
}
