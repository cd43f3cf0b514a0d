//! Answers: what a read found, in the shapes of the contract.

use std::collections::BTreeMap;

use serde::Serialize;
use tallyring_realtime::{Series, Store};
use tallyring_records::{FieldError, TimeCode};

use super::request::{ReadRequest, Shape};
use super::rollup::{self, Values};
use crate::calendar::{Buckets, Selection, rfc3339_utc};
use crate::problem::Problem;

/// Buckets in one response, at most, however many queries it answers.
const BUCKETS_TOTAL_MAX: usize = 100_000;

/// The answer to a read of one key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Answer {
    #[serde(flatten)]
    pub head: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subtotal: Option<String>,
    pub total: u64,
    #[serde(flatten)]
    #[schema(value_type = BodyFields)]
    pub body: Body,
    /// First instant behind the range, Unix seconds.
    #[serde(skip)]
    pub ends: i64,
    /// How many buckets the range has.
    #[serde(skip)]
    pub buckets: usize,
    /// Index of the first bucket that may still change; none when all are settled.
    #[serde(skip)]
    pub provisional_from: Option<usize>,
}

/// Fields of every read of a key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Head {
    pub namespace: String,
    pub key: String,
    pub unit: String,
    pub timezone: String,
    pub from: String,
    pub to: String,
    pub aligned: bool,
    pub settled_until: String,
    pub final_until: Option<String>,
    pub generation: u64,
}

/// What differs between the reads: `counts`, or `values` and `other`, or `buckets`, or nothing.
#[derive(utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "describes `Body`, whose shapes no schema can tell apart"
)]
struct BodyFields {
    counts: Option<Vec<Count>>,
    values: Option<Vec<Value>>,
    /// Sum of the values that are not listed.
    other: Option<u64>,
    buckets: Option<Vec<Bucket>>,
}

/// What differs between the reads.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Body {
    Counts { counts: Vec<Count> },
    Rolled { values: Vec<Value>, other: u64 },
    Buckets { buckets: Vec<Bucket> },
    Summary {},
}

/// One bucket's count.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Count {
    pub start: String,
    pub count: u64,
}

/// One value's count.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Value {
    pub value: String,
    pub count: u64,
}

/// One bucket's ranking.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Bucket {
    pub start: String,
    pub total: u64,
    pub values: Vec<Value>,
    pub other: u64,
}

/// Answers several reads from one view. Blocks on files.
///
/// # Errors
/// A generation that is not kept, more buckets than are answered, or damage; with the index of the
/// read it is about.
pub fn answer_all(
    store: &Store,
    requests: Vec<ReadRequest>,
    as_of: Option<u64>,
) -> Result<Vec<Answer>, (usize, Problem)> {
    let reads: Vec<_> = requests.iter().map(ReadRequest::read).collect();
    let view = store
        .read(&reads, as_of)
        .map_err(|error| (0, error.into()))?;
    let mut answers = Vec::with_capacity(requests.len());
    let mut buckets = 0;
    for (index, (request, series)) in requests.into_iter().zip(&view.series).enumerate() {
        let answer =
            answer(store, request, series, view.generation).map_err(|problem| (index, problem))?;
        buckets += answer.buckets;
        if buckets > BUCKETS_TOTAL_MAX {
            let detail = format!(
                "the queries together have more than {BUCKETS_TOTAL_MAX} buckets; ask in parts"
            );
            return Err((
                index,
                FieldError::refused("queries", &buckets.to_string(), detail).into(),
            ));
        }
        answers.push(answer);
    }
    Ok(answers)
}

fn answer(
    store: &Store,
    request: ReadRequest,
    series: &Series,
    generation: u64,
) -> Result<Answer, Problem> {
    let base = request.base();
    let counted = base.counts(series);
    let buckets = resolve(request.selection, &counted)?;
    let totals = rollup::totals(&counted, &buckets);
    let settled = store.settled_until(&request.namespace.name, request.now);
    let head = Head {
        namespace: request.namespace.name,
        key: request.key,
        unit: buckets.unit().to_string(),
        timezone: buckets.zone().name().to_owned(),
        from: buckets.zone().label(buckets.start()),
        to: buckets.zone().label(buckets.end()),
        aligned: base.aligned(&counted, &buckets),
        settled_until: rfc3339_utc(settled),
        final_until: None,
        generation,
    };
    let (subtotal, body) = match request.shape {
        Shape::Summary => (None, Body::Summary {}),
        Shape::Counts => (
            None,
            Body::Counts {
                counts: counts(&buckets, &totals),
            },
        ),
        Shape::By {
            subtotal,
            limit,
            rolled: true,
        } => {
            let (values, other) = ranked(store, series, &rollup::values(series, &buckets), limit)?;
            (Some(subtotal), Body::Rolled { values, other })
        }
        Shape::By {
            subtotal,
            limit,
            rolled: false,
        } => (
            Some(subtotal),
            Body::Buckets {
                buckets: by_bucket(store, series, &buckets, &totals, limit)?,
            },
        ),
    };
    let provisional_from = buckets.iter().position(|bucket| bucket.end > settled);
    Ok(Answer {
        head,
        subtotal,
        total: rollup::sum(totals),
        body,
        ends: buckets.end(),
        buckets: buckets.count(),
        provisional_from,
    })
}

/// The buckets of a selection, which for "all" depend on what was counted.
pub fn resolve(
    selection: Selection,
    counted: &BTreeMap<TimeCode, u64>,
) -> Result<Buckets, Problem> {
    match selection {
        Selection::Bounded(buckets) => Ok(buckets),
        Selection::All(all) => {
            let first = counted.first_key_value().map(|(code, _)| code.start());
            let last = counted.last_key_value().map(|(code, _)| code.start());
            Ok(all.covering(first.zip(last))?)
        }
    }
}

fn counts(buckets: &Buckets, totals: &[u64]) -> Vec<Count> {
    let labels = buckets
        .iter()
        .map(|bucket| buckets.zone().label(bucket.start));
    labels
        .zip(totals)
        .map(|(start, &count)| Count { start, count })
        .collect()
}

fn by_bucket(
    store: &Store,
    series: &Series,
    buckets: &Buckets,
    totals: &[u64],
    limit: usize,
) -> Result<Vec<Bucket>, Problem> {
    let values = rollup::values_by_bucket(series, buckets);
    let mut answered = Vec::with_capacity(totals.len());
    for ((bucket, &total), values) in buckets.iter().zip(totals).zip(&values) {
        let (values, other) = ranked(store, series, values, limit)?;
        answered.push(Bucket {
            start: buckets.zone().label(bucket.start),
            total,
            values,
            other,
        });
    }
    Ok(answered)
}

fn ranked(
    store: &Store,
    series: &Series,
    values: &Values,
    limit: usize,
) -> Result<(Vec<Value>, u64), Problem> {
    let (listed, other) = rollup::ranking(store, series, values, limit)?;
    Ok((
        listed
            .into_iter()
            .map(|(value, count)| Value { value, count })
            .collect(),
        other,
    ))
}
