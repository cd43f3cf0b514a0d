//! Answers: what a read found, in the shapes of the contract.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use tallyring_realtime::{Charge, Read, Reading, Series, View};
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
/// Counts of values that one request reads, at most, before its last breakdown: about a second of work.
const COUNTS_TOTAL_MAX: usize = 5_000_000;
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
        reader: &View<'_>,
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
            aligned: aligned && !are_cut(reader, buckets, generation),
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
    reader: &View<'_>,
    request: ReadRequest,
    limits: &mut ResponseLimits,
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
    let Some(series) = reader.read_cached(&request.read(), request.period.as_of)? else {
        return Ok(Err(request));
    };
    let mut breakdown = rollup::Breakdown::new(reader, &series);
    answer(reader, request, (&series, &mut breakdown), limits).map(Ok)
}

/// Answers several reads from one view, those of a kept generation from it. Reads of the same counts are read once. Blocks on
/// files.
///
/// # Errors
/// A generation that is not kept, more buckets than are answered, or damage; with the index of the
/// read it is about.
pub fn answer_all(
    reader: &View<'_>,
    requests: Vec<ReadRequest>,
    limits: &mut ResponseLimits,
) -> Result<Vec<Answer>, (usize, Problem)> {
    let mut reads: Vec<(Read, Vec<usize>)> = Vec::new();
    let mut known: HashMap<(Read, Option<u64>), usize> = HashMap::new();
    for (index, request) in requests.iter().enumerate() {
        let place = known.entry((request.read(), request.period.as_of));
        let place = *place.or_insert_with_key(|(read, _)| {
            reads.push((read.clone(), Vec::new()));
            reads.len() - 1
        });
        reads[place].1.push(index);
    }
    drop(known);
    let mut requests: Vec<Option<ReadRequest>> = requests.into_iter().map(Some).collect();
    let mut answers: Vec<Option<Answer>> = requests.iter().map(|_| None).collect();
    let mut counts = 0;
    for (read, indexes) in reads {
        let as_of = requests[indexes[0]].as_ref().and_then(|of| of.period.as_of);
        let series = reader.read(&read, as_of);
        let series = series.map_err(|error| (indexes[0], error.into()))?;
        let mut breakdown = rollup::Breakdown::new(reader, &series);
        for &index in &indexes {
            let request = requests[index].take();
            let request = request.expect("BUG: each request has one read");
            let answer = answer(reader, request, (&series, &mut breakdown), limits);
            answers[index] = Some(answer.map_err(|problem| (index, problem))?);
        }
        counts += series.points.len() + series.sums.len();
        if counts > COUNTS_TOTAL_MAX && answers.iter().any(Option::is_none) {
            return Err((indexes[0], too_many_counts()));
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

fn too_many_counts() -> Problem {
    let detail = format!(
        "the breakdowns together read more than {COUNTS_TOTAL_MAX} counts of values; ask for shorter ranges, or in parts"
    );
    FieldError::refused("queries", "", detail).into()
}

/// What one response lists so far, of all its queries, and the memory that takes.
pub struct ResponseLimits {
    buckets: usize,
    values: usize,
    charge: Charge,
}

/// Memory of a bucket that is listed, in the answer and in any text of it; and of one that is not.
const LISTED_BYTES: usize = 224;
const UNLISTED_BYTES: usize = 24;
/// Memory of a value that is listed, besides its text; and how often the text stands in the answer and in any text of it.
const VALUE_BYTES: usize = 256;
const VALUE_TEXTS: usize = 5;

impl ResponseLimits {
    /// Nothing so far, for this request.
    pub fn new(reading: &Reading) -> Self {
        Self {
            buckets: 0,
            values: 0,
            charge: reading.charge(),
        }
    }

    /// What the response holds, to be given back with it.
    pub fn into_charge(self) -> Charge {
        self.charge
    }

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
            let bytes = match shape.lists_buckets() {
                true => LISTED_BYTES,
                false => UNLISTED_BYTES,
            };
            return Ok(self.charge.grow(buckets * bytes)?);
        }
        let detail = format!(
            "the queries together have more than {BUCKETS_TOTAL_MAX} buckets, of which {UNLISTED_AS_ONE} count as one where none is listed; ask in parts"
        );
        Err(FieldError::refused("queries", &self.buckets.to_string(), detail).into())
    }

    /// Takes the values of one more ranking.
    ///
    /// # Errors
    /// 422 when a response lists no more.
    pub fn take_values<'v>(
        &mut self,
        values: impl ExactSizeIterator<Item = &'v str>,
    ) -> Result<(), Problem> {
        self.values += values.len();
        if self.values <= VALUES_TOTAL_MAX {
            let bytes = |value: &str| VALUE_BYTES + VALUE_TEXTS * value.len();
            return Ok(self.charge.grow(values.map(bytes).sum())?);
        }
        let detail = format!(
            "the rankings together list more than {VALUES_TOTAL_MAX} values; give a smaller limit, or ask in parts"
        );
        Err(FieldError::refused("limit", &self.values.to_string(), detail).into())
    }
}

fn answer(
    reader: &View<'_>,
    request: ReadRequest,
    (series, breakdown): (&Series, &mut rollup::Breakdown<'_>),
    limits: &mut ResponseLimits,
) -> Result<Answer, Problem> {
    let settled = request.settled_until(reader);
    let as_of = request.period.as_of;
    let generation = as_of.unwrap_or(reader.generation());
    let (base, selection) = (request.base, request.period.selection);
    let counted = base.counts(series);
    let buckets = resolve(selection, counted.span())?;
    base.check_kept(&buckets, reader.minutes_from(as_of), &counted)?;
    limits.take_buckets(buckets.count(), &request.shape)?;
    let totals = rollup::totals(&counted, &buckets);
    let aligned = base.aligned(&counted, &buckets);
    let head = Head::of(reader, &buckets, aligned, settled, generation);
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
            let (values, other) = breakdown.of_range(limit)?;
            limits.take_values(values.iter().map(|value| value.value.as_str()))?;
            (Some(subtotal), Body::Rolled { values, other })
        }
        Shape::By {
            subtotal,
            limit,
            rolled: false,
        } => (
            Some(subtotal),
            Body::Buckets {
                buckets: by_bucket(breakdown, (&buckets, &totals), limit, limits)?,
            },
        ),
    };
    Ok(Answer {
        namespace: request.namespace,
        key: request.key,
        head,
        subtotal_title: subtotal
            .as_ref()
            .map(|subtotal| reader.schema().title_of(subtotal)),
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
    breakdown: &mut rollup::Breakdown<'_>,
    (buckets, totals): (&Buckets, &[u64]),
    limit: usize,
    limits: &mut ResponseLimits,
) -> Result<Vec<Bucket>, Problem> {
    let mut answered = Vec::with_capacity(totals.len());
    breakdown.by_bucket(buckets, limit, |index, values, other| {
        limits.take_values(values.iter().map(|value| value.value.as_str()))?;
        answered.push(Bucket {
            start: Arc::clone(&buckets.labels()[index]),
            total: totals[index],
            values,
            other,
        });
        Ok(())
    })?;
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use tallyring_realtime::ReadBudget;

    use super::*;

    fn limits() -> ResponseLimits {
        ResponseLimits::new(&Reading::new(&ReadBudget::new(1 << 30)))
    }

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
            let mut limits = limits();
            for _ in 0..queries {
                limits.take_buckets(10_000, &shape).unwrap();
            }
            assert!(limits.take_buckets(1, &shape).is_err(), "{shape:?}");
        }
    }
}
