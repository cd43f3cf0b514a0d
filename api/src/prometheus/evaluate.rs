//! Expressions over series: sums, rankings and operators.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::expression::{Expression, Operator};
use super::select::{Labels, Reads, Series, Wanted};
use crate::problem::{Problem, Result};

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// One number for all instants.
    Scalar(f64),
    Series(Vec<Series>),
}

impl Reads<'_> {
    /// The value of an expression. Fails as its reads do, and with 400 for operands that do not go together.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Result<Value> {
        self.evaluate_for(expression, Wanted::default())
    }

    fn evaluate_for(&mut self, expression: &Expression, wanted: Wanted<'_>) -> Result<Value> {
        match expression {
            Expression::Number(number) => Ok(Value::Scalar(*number)),
            Expression::Select(selector) => Ok(Value::Series(self.select(selector, wanted)?)),
            Expression::Sum { by, of } => {
                let by_them = Wanted {
                    by: Some(by),
                    ..wanted
                };
                let series = match **of {
                    Expression::Select(ref selector) => self.select(selector, by_them)?,
                    _ => {
                        let series = series("sum", self.evaluate(of)?)?;
                        check_grouping(by, &series)?;
                        series
                    }
                };
                Ok(Value::Series(summed(by, series)))
            }
            Expression::Top { count, of } => {
                let is_near = match &**of {
                    Expression::Select(_) => true,
                    Expression::Sum { of, .. } => matches!(**of, Expression::Select(_)),
                    _ => false,
                };
                let top = is_near.then_some(*count);
                let wanted = Wanted { by: None, top };
                let series = series("topk", self.evaluate_for(of, wanted)?)?;
                Ok(Value::Series(heaviest(*count, series)))
            }
            Expression::Binary {
                operator,
                left,
                right,
            } => {
                let left = self.evaluate(left)?;
                let right = self.evaluate(right)?;
                combined(*operator, left, right)
            }
        }
    }
}

/// The series that `function` is about. Fails with 400 for a number.
fn series(function: &str, value: Value) -> Result<Vec<Series>> {
    match value {
        Value::Series(series) => Ok(series),
        Value::Scalar(number) => {
            let detail =
                "must be of series, such as increase(tallyring_count{namespace=\"l\"}[1h])";
            Err(Problem::malformed(function, &number.to_string(), detail))
        }
    }
}

/// Fails with 400 where no series has a label that a sum is by, because an operator or a ranking within was read
/// without it.
fn check_grouping(by: &[String], series: &[Series]) -> Result<()> {
    let is_missing = |label: &&String| {
        let own = ["namespace", "key", "timezone", "__name__"];
        !own.contains(&label.as_str()) && !series.iter().any(|of| of.labels.contains_key(*label))
    };
    match by.iter().find(is_missing).filter(|_| !series.is_empty()) {
        None => Ok(()),
        Some(label) => {
            let detail = "must be a label of what is summed: put the sum around the selector, as in \
                          sum by (c) (increase(…[1h]))";
            Err(Problem::malformed("by", label, detail))
        }
    }
}

/// Sums by labels.
fn summed(by: &[String], series: Vec<Series>) -> Vec<Series> {
    let mut groups: BTreeMap<Labels, Vec<Option<f64>>> = BTreeMap::new();
    for Series { mut labels, values } in series {
        labels.retain(|label, _| by.contains(label));
        match groups.get_mut(&labels) {
            None => {
                groups.insert(labels, values);
            }
            Some(sums) => {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = match (*sum, value) {
                        (Some(sum), Some(value)) => Some(sum + value),
                        (one, other) => one.or(other),
                    };
                }
            }
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|(labels, values)| Series { labels, values })
        .collect()
}

/// The series with the highest values at each instant; of equal values those that come first by their labels.
fn heaviest(count: usize, mut series: Vec<Series>) -> Vec<Series> {
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    let instants = series.first().map_or(0, |first| first.values.len());
    for instant in 0..instants {
        let mut ranked: Vec<usize> = (0..series.len())
            .filter(|of| series[*of].values[instant].is_some())
            .collect();
        ranked.sort_by(|a, b| by_value(&series[*a], &series[*b], instant));
        for left_out in ranked.into_iter().skip(count) {
            series[left_out].values[instant] = None;
        }
    }
    series.retain(|of| of.values.iter().any(Option::is_some));
    if instants == 1 {
        series.sort_by(|a, b| by_value(a, b, 0));
    }
    series
}

/// Higher values first.
fn by_value(a: &Series, b: &Series, instant: usize) -> Ordering {
    let of = |series: &Series| series.values[instant].unwrap_or(f64::NEG_INFINITY);
    of(b).total_cmp(&of(a))
}

/// An operator over two values: numbers with every series, and series with those of the same labels.
fn combined(operator: Operator, left: Value, right: Value) -> Result<Value> {
    Ok(match (left, right) {
        (Value::Scalar(left), Value::Scalar(right)) => match operator {
            Operator::Compare(_) => {
                let detail = "must have a series on one side: two numbers are not compared";
                return Err(Problem::malformed("query", "", detail));
            }
            _ => Value::Scalar(operator.of(left, right).unwrap_or(f64::NAN)),
        },
        (Value::Series(series), Value::Scalar(right)) => {
            Value::Series(mapped(operator, series, |left| operator.of(left, right)))
        }
        (Value::Scalar(left), Value::Series(series)) => {
            Value::Series(mapped(operator, series, |right| {
                // A comparison keeps the value of the series.
                operator.of(left, right).map(|value| match operator {
                    Operator::Compare(_) => right,
                    _ => value,
                })
            }))
        }
        (Value::Series(left), Value::Series(right)) => {
            Value::Series(joined(operator, left, right)?)
        }
    })
}

fn mapped(
    operator: Operator,
    series: Vec<Series>,
    value: impl Fn(f64) -> Option<f64>,
) -> Vec<Series> {
    let each = |Series { labels, values }: Series| Series {
        labels: unnamed(operator, labels),
        values: values.into_iter().map(|of| of.and_then(&value)).collect(),
    };
    series.into_iter().map(each).collect()
}

/// Series of equal labels with each other; those without a counterpart are left out.
fn joined(operator: Operator, left: Vec<Series>, right: Vec<Series>) -> Result<Vec<Series>> {
    let bare = |series: &Series| {
        let mut labels = series.labels.clone();
        labels.remove("__name__");
        labels
    };
    let mut others: BTreeMap<Labels, Vec<Option<f64>>> = BTreeMap::new();
    for series in right {
        if others.insert(bare(&series), series.values).is_some() {
            let detail = "must have one series of each set of labels on the right side";
            return Err(Problem::malformed("query", "", detail));
        }
    }
    let pair = |series: Series| {
        let other = others.get(&bare(&series))?;
        let values = series.values.iter().zip(other);
        let values = values.map(|(left, right)| operator.of((*left)?, (*right)?));
        Some(Series {
            values: values.collect(),
            labels: unnamed(operator, series.labels),
        })
    };
    Ok(left.into_iter().filter_map(pair).collect())
}

/// The labels of a result, which is the metric itself only where it was compared.
fn unnamed(operator: Operator, mut labels: Labels) -> Labels {
    if !matches!(operator, Operator::Compare(_)) {
        labels.remove("__name__");
    }
    labels
}
