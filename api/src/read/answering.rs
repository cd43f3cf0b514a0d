//! Answers to questions about one key, or about all keys of a namespace together, from one view.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;
use tallyring_realtime::{Read, Series, States, View};
use tallyring_records::{COUNT_MAX, FieldError, filtered_of, sum_capped};

use super::answer::{Answer, Body, Bucket, Head};
use super::basis::{Basis, Source};
use super::before::{Before, is_covered};
use super::bucket_counts::BucketCounts;
use super::limits::ResponseLimits;
use super::only::Only;
use super::question::{Question, Shape};
use super::rollup::{self, Breakdown};
use crate::calendar::{Buckets, Selection};
use crate::problem::{Problem, Result};

/// Counts of values that one request reads, at most, before its last breakdown: about a second of work.
const COUNTS_TOTAL_MAX: usize = 5_000_000;

/// Answers a question that takes little work and nothing from the disk, so that a thread that serves connections can
/// answer it; gives any other question back. Fails for a generation that is not kept.
pub(super) fn answer_at_once(
    reader: &View<'_>,
    question: Question,
    limits: &mut ResponseLimits,
) -> Result<Result<Answer, Question>> {
    const BUCKETS_AT_ONCE: usize = 1_000;
    let is_small = match (&question.period.selection, &question.shape) {
        // The values of a breakdown may have to be looked up.
        (_, Shape::By { .. }) | (Selection::All(_), _) => false,
        _ if question.only.is_some() => false,
        (Selection::Bounded(buckets), _) => buckets.count() <= BUCKETS_AT_ONCE,
    };
    if !is_small {
        return Ok(Err(question));
    }
    // Books may have to be opened.
    if question.period.basis != Basis::Counted {
        return Ok(Err(question));
    }
    let Some(series) = reader.read_cached(&question.read(), question.period.as_of)? else {
        return Ok(Err(question));
    };
    let mut breakdown = Breakdown::new(reader, &series);
    let states = question.states(reader);
    let source = question.period.source(reader, &[question.reads()])?;
    answer(
        &source,
        (question, states),
        (&series, &mut breakdown),
        limits,
    )
    .map(Ok)
}

/// Answers several questions as [`answer_all`] does, each together with the earlier period that it is compared with.
pub(super) fn answer_compared(
    reader: &View<'_>,
    mut questions: Vec<Question>,
    limits: &mut ResponseLimits,
) -> Result<Vec<Answer>, (usize, Problem)> {
    let asked = questions.len();
    let mut compared = Vec::new();
    for index in 0..asked {
        if let Some((kind, before)) = questions[index].before.take() {
            let covered = is_covered(reader, &before).map_err(|problem| (index, problem))?;
            compared.push((index, kind, covered));
            questions.push(*before);
        }
    }
    let of = |index: usize| index.checked_sub(asked).map_or(index, |of| compared[of].0);
    let answers = answer_all(reader, questions, limits);
    let mut answers = answers.map_err(|(index, problem)| (of(index), problem))?;
    let earlier = answers.split_off(asked);
    for ((index, kind, covered), before) in compared.into_iter().zip(earlier) {
        answers[index].before = Some(Before {
            kind,
            from: Arc::clone(&before.head.from),
            to: Arc::clone(&before.head.to),
            covered,
            counts: before.into_counts(),
        });
    }
    Ok(answers)
}

/// Answers several questions from one view, those about a kept generation from that generation. Counts that several
/// questions need are read once. Blocks on files. Fails for a generation that is not kept, more buckets than an answer
/// lists, or damage, with the index of the question.
pub(super) fn answer_all(
    reader: &View<'_>,
    questions: Vec<Question>,
    limits: &mut ResponseLimits,
) -> Result<Vec<Answer>, (usize, Problem)> {
    type Asked = (Read, Option<u64>, Basis, Option<Only>);
    let mut reads: HashMap<Asked, Vec<usize>> = HashMap::new();
    for (index, question) in questions.iter().enumerate() {
        let period = &question.period;
        let only = question.only.clone();
        let read = reads.entry((question.read(), period.as_of, period.basis, only));
        read.or_default().push(index);
    }
    let mut reads: Vec<(Read, Vec<usize>)> = reads
        .into_iter()
        .map(|((read, ..), indexes)| (read, indexes))
        .collect();
    reads.sort_unstable_by_key(|(_, indexes)| indexes[0]);
    let mut questions: Vec<Option<Question>> = questions.into_iter().map(Some).collect();
    let mut answers: Vec<Option<Answer>> = questions.iter().map(|_| None).collect();
    let mut counts = 0;
    for (read, indexes) in reads {
        let first = questions[indexes[0]].as_ref();
        let first = first.expect("BUG: each question has one read");
        let source = first.period.source(reader, &[first.reads()]);
        let source = source.map_err(|problem| (indexes[0], problem))?;
        let series = series(source.view(), &read, source.as_of());
        let mut series = series.map_err(|error| (indexes[0], error.into()))?;
        let values = series.points.len() + series.sums.len();
        if let Some(only) = &first.only {
            only.keep(source.view(), &mut series);
        }
        let mut breakdown = Breakdown::new(source.view(), &series);
        for &index in &indexes {
            let question = questions[index].take();
            let question = question.expect("BUG: each question has one read");
            let states = question.states(reader);
            let asked = (question, states);
            let answer = answer(&source, asked, (&series, &mut breakdown), limits);
            answers[index] = Some(answer.map_err(|problem| (index, problem))?);
        }
        counts += values;
        if counts > COUNTS_TOTAL_MAX && answers.iter().any(Option::is_none) {
            return Err((indexes[0], too_many_counts()));
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

/// The counts that a question needs: of its key, or of all keys where none is named.
fn series(view: &View<'_>, read: &Read, as_of: Option<u64>) -> tallyring_realtime::Result<Series> {
    if !read.key.is_empty() {
        return view.read(read, as_of);
    }
    let span = read.from..read.to;
    if let (Some(subtotal), Some(range)) = (&read.subtotal, &read.rolled) {
        return view.values((&read.namespace, subtotal), span, range.clone(), as_of);
    }
    view.totals(&read.namespace, span, read.subtotal.is_some(), as_of)
}

fn too_many_counts() -> Problem {
    let detail = format!(
        "must read at most {COUNTS_TOTAL_MAX} counts of values in all breakdowns together; ask for shorter ranges, or \
         in parts"
    );
    FieldError::refused("queries", "", detail).into()
}

fn answer(
    source: &Source<'_, '_>,
    (question, states): (Question, States),
    (series, breakdown): (&Series, &mut Breakdown<'_>),
    limits: &mut ResponseLimits,
) -> Result<Answer> {
    let (reader, as_of) = (source.view(), source.as_of());
    let generation = question.period.as_of.unwrap_or(reader.generation());
    let title = picture_title(reader, &question);
    let (base, limit, selection) = (question.base, question.limit, question.period.selection);
    let counted = match question.key {
        Some(_) => base.counts(series),
        None => Cow::Borrowed(&series.totals),
    };
    let buckets = resolve(selection, counted.span())?;
    let kept_from = base.kept_from(reader, as_of, question.period.now);
    base.check_kept(&buckets, kept_from, &counted)?;
    limits.take_buckets(buckets.count(), &question.shape)?;
    let totals = match question.only {
        Some(_) => rollup::totals_of(&series.points, &buckets),
        None => rollup::totals(&counted, &buckets),
    };
    // A range that was summed when it was read has no points.
    let summed = series.sums.iter().filter(|_| question.only.is_some());
    let aligned = base.aligned(&counted, &buckets) && !series.is_cut;
    let head = Head::of(reader, &buckets, aligned, states, generation);
    let total = sum_capped(totals.iter().chain(summed).copied());
    let (subtotal, body) = match question.shape {
        Shape::Summary => (None, Body::Summary {}),
        Shape::Counts => (
            None,
            Body::Counts {
                counts: BucketCounts::new(buckets, totals, head.bucket_states()),
            },
        ),
        Shape::By {
            subtotal,
            rolled: true,
        } => {
            let (values, other) = breakdown.of_range(limit)?;
            limits.take_values(values.iter().map(|value| value.value.as_str()))?;
            (Some(subtotal), Body::Rolled { values, other })
        }
        Shape::By {
            subtotal,
            rolled: false,
        } => (
            Some(subtotal),
            Body::Buckets {
                buckets: by_bucket(breakdown, (&buckets, &totals, &head), limit, limits)?,
            },
        ),
    };
    Ok(Answer {
        title,
        only: question.only.map(Only::into_values),
        namespace: question.namespace,
        key: question.key,
        head,
        subtotal_title: subtotal
            .as_ref()
            .map(|subtotal| reader.schema().title_of(subtotal)),
        subtotal,
        overflow: overflow(total),
        total,
        body,
        before: None,
        filtered: None,
    })
}

/// The title of a picture, where it is not that of a key.
fn picture_title(reader: &View<'_>, question: &Question) -> Option<String> {
    let namespace = &question.namespace;
    let Some(key) = &question.key else {
        return Some(format!("{}: all keys", title_of(reader, namespace)));
    };
    let only = question.only.as_ref()?;
    let values = only.words(reader.schema());
    Some(format!("{namespace}/{key}, {values}"))
}

/// The name by which people know a namespace.
pub(super) fn title_of(reader: &View<'_>, name: &str) -> String {
    let schema = reader.schema();
    let declared = filtered_of(name);
    let namespace = schema.namespace(declared.unwrap_or(name));
    let title = namespace.map_or(name, |namespace| namespace.title_or_name());
    match declared {
        Some(_) => format!("{title}, filtered"),
        None => title.to_owned(),
    }
}

/// Whether a total is said to reach what is counted at most.
pub(super) fn overflow(total: u64) -> Option<bool> {
    (total == COUNT_MAX).then_some(true)
}

/// The buckets of a selection, which for "all" depend on the first and the last counted instant. Fails for more buckets
/// than an answer lists.
pub(super) fn resolve(selection: Selection, counted: Option<(i64, i64)>) -> Result<Buckets> {
    match selection {
        Selection::Bounded(buckets) => Ok(buckets),
        Selection::All(all) => Ok(all.covering(counted)?),
    }
}

fn by_bucket(
    breakdown: &mut Breakdown<'_>,
    (buckets, totals, head): (&Buckets, &[u64], &Head),
    limit: usize,
    limits: &mut ResponseLimits,
) -> Result<Vec<Bucket>> {
    let mut answered = Vec::with_capacity(totals.len());
    let states = head.bucket_states();
    breakdown.by_bucket(buckets, limit, |index, values, other| {
        limits.take_values(values.iter().map(|value| value.value.as_str()))?;
        answered.push(Bucket {
            start: Arc::clone(&buckets.labels()[index]),
            state: states.get(index).copied(),
            total: totals[index],
            values,
            other,
        });
        Ok(())
    })?;
    Ok(answered)
}
