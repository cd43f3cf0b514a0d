//! Answers: what a read found, in the shapes of the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tallyring_realtime::{Answer as View, Series, Store};
use tallyring_records::{COUNT_MAX, FieldError, sum_capped};

use super::base::are_cut;
use super::bucket_counts::{BucketCounts, Count};
use super::format::Format;
use super::request::{ReadRequest, Shape};
use super::respond::{self, Respond};
use super::value::Value;
use super::{csv, rollup, svg};
use crate::calendar::{Buckets, Selection, Unit, rfc3339_utc};
use crate::chart;
use crate::problem::Problem;

/// Buckets in one response, at most, however many queries it answers.
const BUCKETS_TOTAL_MAX: usize = 100_000;
/// So many buckets that are not listed take as much work and memory as one that is.
const UNLISTED_AS_ONE: usize = 10;
/// Values of breakdowns in one response, at most, of all its buckets and queries.
const VALUES_TOTAL_MAX: usize = 100_000;

/// The answer to a read of one key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Answer {
    pub namespace: String,
    pub key: String,
    #[serde(flatten)]
    pub head: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subtotal: Option<String>,
    /// Of a breakdown: what people call the subtotal
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subtotal_title: Option<String>,
    pub total: u64,
    /// True where the total reached 2^53−1, up to which is counted: it, and what it is made of, may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub overflow: Option<bool>,
    #[serde(flatten)]
    #[schema(value_type = BodyFields)]
    pub body: Body,
    /// Counts of the period before by bucket, for a picture that compares; else empty.
    #[serde(skip)]
    pub before: Vec<u64>,
}

/// What every read says about its range.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Head {
    #[schema(value_type = String)]
    pub unit: Unit,
    #[schema(value_type = String)]
    pub timezone: Arc<str>,
    /// Start of the first bucket
    #[schema(value_type = String)]
    pub from: Arc<str>,
    /// End of the last one, which is the first instant after the range
    #[schema(value_type = String)]
    pub to: Arc<str>,
    /// False where base buckets are too coarse for the zone's boundaries: each counts where it starts
    pub aligned: bool,
    /// No count is expected for earlier times any more
    pub settled_until: String,
    /// Earlier counts are reconciled; null as long as nothing is
    pub final_until: Option<String>,
    /// The archive's generation in this view, 0 before the first
    pub generation: u64,
    /// What it is about.
    #[serde(skip)]
    buckets: Buckets,
    /// Until when no event is expected any more, Unix seconds.
    #[serde(skip)]
    settled: i64,
}

impl Head {
    /// About these buckets; `settled` until when no event is expected any more, Unix seconds.
    pub fn of(
        store: &Store,
        buckets: &Buckets,
        aligned: bool,
        settled: i64,
        generation: u64,
    ) -> Self {
        Self {
            unit: buckets.unit(),
            timezone: buckets.zone().shared_name(),
            from: buckets.label(0),
            to: buckets.label(buckets.count()),
            aligned: aligned && !are_cut(store, buckets, generation),
            settled_until: rfc3339_utc(settled),
            final_until: None,
            generation,
            buckets: buckets.clone(),
            settled,
        }
    }

    /// The dates of its range, or its times where buckets are shorter than days; for people.
    pub fn dates(&self) -> String {
        let last = self.buckets.zone().label(self.buckets.end() - 1);
        chart::dates(self.buckets.unit(), &self.from, &last)
    }

    /// First instant behind its range, Unix seconds.
    pub fn ends(&self) -> i64 {
        self.buckets.end()
    }

    /// Index of the first bucket that may still change; none when all are settled.
    pub fn provisional_from(&self) -> Option<usize> {
        let mut buckets = self.buckets.iter();
        buckets.position(|bucket| bucket.end > self.settled)
    }

    /// What of it is part of an answer's validator: which buckets are settled, not when they are, nor in which
    /// generation it is.
    pub fn identity(&self) -> impl Serialize {
        (
            self.provisional_from(),
            self.unit,
            &self.timezone,
            &self.from,
            &self.to,
            self.aligned,
            &self.final_until,
        )
    }
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
    Counts {
        #[serde(skip_serializing_if = "BucketCounts::is_added")]
        counts: BucketCounts,
    },
    Rolled {
        values: Vec<Value>,
        other: u64,
    },
    Buckets {
        buckets: Vec<Bucket>,
    },
    Summary {},
}

/// One bucket's ranking.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Bucket {
    #[schema(value_type = String)]
    pub start: Arc<str>,
    pub total: u64,
    pub values: Vec<Value>,
    pub other: u64,
}

impl Answer {
    /// The count of every bucket; empty for anything but a series.
    pub fn into_counts(self) -> Vec<u64> {
        match self.body {
            Body::Counts { counts } => counts.into_counts(),
            Body::Rolled { .. } | Body::Buckets { .. } | Body::Summary {} => Vec::new(),
        }
    }

    /// Adds it to `text`, as JSON; serde alone would leave the counts out.
    ///
    /// # Errors
    /// Never.
    pub fn write_json(&self, text: &mut Vec<u8>) -> Result<(), Problem> {
        match &self.body {
            Body::Counts { counts } => counts.write_json_behind(self, text),
            Body::Rolled { .. } | Body::Buckets { .. } | Body::Summary {} => {
                respond::write_json(self, text)
            }
        }
    }
}

impl Respond for Answer {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let subtotal = (&self.subtotal, &self.subtotal_title);
        let asked = (&self.namespace, &self.key, subtotal);
        // Where the buckets of counts begin follows from the range.
        let (counts, rest) = match &self.body {
            Body::Counts { counts } => (Some(counts), None),
            rest => (None, Some(rest)),
        };
        let counted = (self.total, counts, rest);
        (asked, self.head.identity(), counted, &self.before)
    }

    fn render(&self, format: Format) -> Result<Vec<u8>, Problem> {
        match format {
            Format::Json => respond::written(|text| self.write_json(text)),
            Format::Csv => Ok(csv::render(self).into_bytes()),
            Format::Svg(picture) => svg::render(self, picture)
                .map(String::into_bytes)
                .ok_or_else(|| {
                    let detail =
                        "is not drawn for rankings by bucket; ask for .csv, JSON or rollup=true";
                    Problem::unknown("format", "svg", detail)
                }),
        }
    }
}

/// Answers a read of counts that takes little work and nothing from the disk, so that it can be answered where
/// nothing may wait; else gives the request back.
///
/// # Errors
/// A generation that is not kept.
pub fn answer_at_once(
    store: &Store,
    request: ReadRequest,
) -> Result<Result<Answer, ReadRequest>, Problem> {
    const BUCKETS_AT_ONCE: usize = 1_000;
    let is_small = match (&request.period.selection, &request.shape) {
        // The values of a breakdown may have to be looked up.
        (_, Shape::By { .. }) | (Selection::All(_), _) => false,
        (Selection::Bounded(buckets), _) => buckets.count() <= BUCKETS_AT_ONCE,
    };
    if !is_small {
        return Ok(Err(request));
    }
    let settled = request.settled_until(store);
    let Some(view) = store.read_cached(&[request.read()], request.period.as_of)? else {
        return Ok(Err(request));
    };
    let found = Found::each(view, [settled]).next();
    let found = found.expect("BUG: one read gives one series");
    answer(store, request, &found, &mut ResponseLimits::default()).map(Ok)
}

/// Answers several reads from one view, those of a kept generation from it. Blocks on files.
///
/// # Errors
/// A generation that is not kept, more buckets than are answered, or damage; with the index of the
/// read it is about.
pub fn answer_all(
    store: &Store,
    requests: Vec<ReadRequest>,
) -> Result<Vec<Answer>, (usize, Problem)> {
    let found = read_all(store, &requests)?;
    let mut answers = Vec::with_capacity(requests.len());
    let mut limits = ResponseLimits::default();
    for (index, (request, found)) in requests.into_iter().zip(&found).enumerate() {
        let answer = answer(store, request, found, &mut limits);
        answers.push(answer.map_err(|problem| (index, problem))?);
    }
    Ok(answers)
}

/// What one response lists so far, of all its queries.
#[derive(Default)]
pub struct ResponseLimits {
    buckets: usize,
    values: usize,
}

impl ResponseLimits {
    /// Takes the buckets of one more query; where none of them is listed, ten count as one.
    ///
    /// # Errors
    /// 422 when a response lists no more.
    pub fn take_buckets(&mut self, buckets: usize, shape: &Shape) -> Result<(), Problem> {
        self.buckets += match shape.lists_buckets() {
            true => buckets,
            false => buckets.div_ceil(UNLISTED_AS_ONE),
        };
        if self.buckets <= BUCKETS_TOTAL_MAX {
            return Ok(());
        }
        let detail = format!(
            "the queries together have more than {BUCKETS_TOTAL_MAX} buckets, of which {UNLISTED_AS_ONE} count as one where none is listed; ask in parts"
        );
        Err(FieldError::refused("queries", &self.buckets.to_string(), detail).into())
    }

    /// Takes the values of one more ranking.
    fn take_values(&mut self, values: usize) -> Result<(), Problem> {
        self.values += values;
        if self.values <= VALUES_TOTAL_MAX {
            return Ok(());
        }
        let detail = format!(
            "the rankings together list more than {VALUES_TOTAL_MAX} values; give a smaller limit, or ask in parts"
        );
        Err(FieldError::refused("limit", &self.values.to_string(), detail).into())
    }
}

/// What a read finds, and in which view.
struct Found {
    series: Series,
    generation: u64,
    minutes_from: Option<i64>,
    /// Until when no event was expected any more before the view was taken, Unix seconds.
    settled: i64,
}

impl Found {
    /// Each series of a view; `settled` in the same order.
    fn each(view: View, settled: impl IntoIterator<Item = i64>) -> impl Iterator<Item = Self> {
        let series = view.series.into_iter().zip(settled);
        series.map(move |(series, settled)| Self {
            series,
            generation: view.generation,
            minutes_from: view.minutes_from,
            settled,
        })
    }
}

fn read_all(store: &Store, requests: &[ReadRequest]) -> Result<Vec<Found>, (usize, Problem)> {
    let mut views: BTreeMap<Option<u64>, Vec<usize>> = BTreeMap::new();
    for (index, request) in requests.iter().enumerate() {
        views.entry(request.period.as_of).or_default().push(index);
    }
    let mut found = BTreeMap::new();
    for (as_of, indexes) in views {
        let reads: Vec<_> = indexes
            .iter()
            .map(|&index| requests[index].read())
            .collect();
        let settled = indexes
            .iter()
            .map(|&index| requests[index].settled_until(store))
            .collect::<Vec<_>>();
        let view = store
            .read(&reads, as_of)
            .map_err(|error| (indexes[0], error.into()))?;
        found.extend(indexes.into_iter().zip(Found::each(view, settled)));
    }
    Ok(found.into_values().collect())
}

fn answer(
    store: &Store,
    request: ReadRequest,
    found: &Found,
    limits: &mut ResponseLimits,
) -> Result<Answer, Problem> {
    let series = &found.series;
    let (base, selection) = (request.base, request.period.selection);
    let counted = base.counts(series);
    let buckets = resolve(selection, counted.span())?;
    base.check_kept(&buckets, found.minutes_from, &counted)?;
    limits.take_buckets(buckets.count(), &request.shape)?;
    let totals = rollup::totals(&counted, &buckets);
    let aligned = base.aligned(&counted, &buckets);
    let head = Head::of(store, &buckets, aligned, found.settled, found.generation);
    let total = sum_capped(totals.iter().copied());
    let (subtotal, body) = match request.shape {
        Shape::Summary => (None, Body::Summary {}),
        Shape::Counts => (
            None,
            Body::Counts {
                counts: BucketCounts::new(buckets, totals),
            },
        ),
        Shape::By {
            subtotal,
            limit,
            rolled: true,
        } => {
            let (values, other) =
                rollup::ranking(store, series, &rollup::values(series, &buckets), limit)?;
            limits.take_values(values.len())?;
            (Some(subtotal), Body::Rolled { values, other })
        }
        Shape::By {
            subtotal,
            limit,
            rolled: false,
        } => (
            Some(subtotal),
            Body::Buckets {
                buckets: by_bucket(store, series, (&buckets, &totals), limit, limits)?,
            },
        ),
    };
    Ok(Answer {
        namespace: request.namespace,
        key: request.key,
        head,
        subtotal_title: subtotal
            .as_ref()
            .map(|subtotal| store.schema().title_of(subtotal)),
        subtotal,
        overflow: overflow(total),
        total,
        body,
        before: Vec::new(),
    })
}

/// Whether a total is said to reach what is counted at most.
pub fn overflow(total: u64) -> Option<bool> {
    (total == COUNT_MAX).then_some(true)
}

/// The buckets of a selection, which for "all" depend on the first and the last counted instant.
///
/// # Errors
/// More buckets than an answer lists.
pub fn resolve(selection: Selection, counted: Option<(i64, i64)>) -> Result<Buckets, Problem> {
    match selection {
        Selection::Bounded(buckets) => Ok(buckets),
        Selection::All(all) => Ok(all.covering(counted)?),
    }
}

fn by_bucket(
    store: &Store,
    series: &Series,
    (buckets, totals): (&Buckets, &[u64]),
    limit: usize,
    limits: &mut ResponseLimits,
) -> Result<Vec<Bucket>, Problem> {
    let values = rollup::values_by_bucket(series, buckets);
    let mut answered = Vec::with_capacity(totals.len());
    for ((start, &total), values) in buckets.labels().iter().zip(totals).zip(&values) {
        let (values, other) = rollup::ranking(store, series, values, limit)?;
        limits.take_values(values.len())?;
        answered.push(Bucket {
            start: Arc::clone(start),
            total,
            values,
            other,
        });
    }
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_that_are_not_listed_take_a_tenth_of_the_limit() {
        let by = |rolled| Shape::By {
            subtotal: "c".into(),
            limit: 1,
            rolled,
        };
        for (shape, queries) in [
            (Shape::Counts, 10),
            (by(false), 10),
            (Shape::Summary, 100),
            (by(true), 100),
        ] {
            let mut limits = ResponseLimits::default();
            for _ in 0..queries {
                limits.take_buckets(10_000, &shape).unwrap();
            }
            assert!(limits.take_buckets(1, &shape).is_err(), "{shape:?}");
        }
    }
}
