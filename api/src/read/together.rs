//! `GET /v1/compare`: several keys side by side, from one view.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{State, View};

use super::answer::{Answer, Body, Head};
use super::answering::{answer_all, overflow};
use super::csv::with_state;
use super::limits::ResponseLimits;
use super::parameters::RangeParameters;
use super::period::Period;
use super::question::{Question, Shape, check_key, counted};
use super::reply::Respond;
use super::request::{RANGE_PARAMETERS, ReadRequest};
use crate::access::Length;
use crate::chart::{LINES_MAX, LinesChart, Picture, lines};
use crate::problem::{Problem, Result};
use crate::table::Table;

/// How many keys one answer has.
const KEYS: RangeInclusive<usize> = 2..=LINES_MAX;

/// Counts of several keys by bucket.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ComparedKeys {
    #[serde(flatten)]
    head: Head,
    /// True where a total reached 2^53−1, up to which is counted: it may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<bool>,
    /// In the order of the request
    keys: Vec<KeyTotal>,
    counts: Vec<Row>,
}

/// A key and its total over the range.
#[derive(Serialize, utoipa::ToSchema)]
struct KeyTotal {
    namespace: String,
    key: String,
    total: u64,
}

/// One bucket.
#[derive(Serialize, utoipa::ToSchema)]
struct Row {
    #[schema(value_type = String)]
    start: Arc<str>,
    /// One of each key
    counts: Vec<u64>,
    /// Once the store has final days
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    state: Option<State>,
}

/// Counts of several keys
///
/// Two to eight keys side by side, every bucket of one range, zeros too, oldest first, all from one view. Also as
/// `/compare.csv`, with a column for each key, and `/compare.svg`, with a line for each, or by `Accept`.
#[utoipa::path(get, path = "/v1/compare", tag = "read",
    params(
        ("key" = Vec<String>, Query, description = "A namespace and a key of it, such as `l/abc`; two to eight times",
            example = json!(["l/abc", "l/abd"])),
        RangeParameters,
    ),
    responses((status = 200, description = "The counts", body = ComparedKeys, example = json!({
        "unit": "day", "timezone": "UTC",
        "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3,
        "keys": [{"namespace": "l", "key": "abc", "total": 5}, {"namespace": "l", "key": "abd", "total": 7}],
        "counts": [
            {"start": "2012-03-15T00:00:00+00:00", "counts": [0, 4]},
            {"start": "2012-03-16T00:00:00+00:00", "counts": [5, 3]},
        ],
    }))),
)]
pub(crate) async fn compare(request: ReadRequest<()>) -> Result<Response> {
    let (mut query, format) = request.query()?;
    let keys = query.take_each("key");
    if !KEYS.contains(&keys.len()) {
        let (least, most) = (KEYS.start(), KEYS.end());
        let detail = format!(
            "must be given {least} to {most} times, as in key=l/abc&key=l/abd; it is given {} times",
            keys.len()
        );
        return Err(Problem::malformed("key", &keys.join("&"), detail));
    }
    if let Some(twice) = (1..keys.len()).find(|&index| keys[..index].contains(&keys[index])) {
        return Err(Problem::malformed(
            "key",
            &keys[twice],
            "is given twice; give each key once",
        ));
    }
    let period = Period::parse(&mut query, request.now)?;
    query.finish(&format!("key, {RANGE_PARAMETERS}"))?;
    period.bounded()?;
    let schema = request.state.store().schema();
    let mut questions = Vec::with_capacity(keys.len());
    for text in &keys {
        let (name, key) = text.split_once('/').ok_or_else(|| {
            let detail = "must be a namespace and a key with a slash between, such as l/abc";
            Problem::malformed("key", text, detail)
        })?;
        let namespace = counted(&schema, name)?;
        request.caller.check_namespace(name)?;
        check_key(key)?;
        let (key, period) = (Some(key.to_owned()), period.clone());
        let of = (name, namespace);
        questions.push(Question::of(of, key, Shape::Counts, period, None)?);
    }
    request.caller.pay_for(questions.len());
    let reply = request.reply(format);
    reply
        .answer(&request.state, Length::Short, move |reader, limits| {
            read(reader, questions, limits)
        })
        .await
}

fn read(
    reader: &View<'_>,
    questions: Vec<Question>,
    limits: &mut ResponseLimits,
) -> Result<ComparedKeys> {
    let settled = questions.iter().map(|of| of.settled_until(reader));
    let settled = settled.min().expect("BUG: two keys at least are compared");
    let period = questions[0].period.clone();
    let buckets = period.bounded()?;
    let declared: Vec<&str> = questions.iter().map(Question::declared).collect();
    let states = reader.states(&declared, settled, period.as_of);
    let states = period.states(states.of_each());
    let answers = answer_all(reader, questions, limits).map_err(|(_, problem)| problem)?;
    let aligned = answers.iter().all(|answer| answer.head.aligned);
    let generation = answers[0].head.generation;
    let head = Head::of(reader, buckets, aligned, states, generation);
    let states = head.bucket_states();
    let by_key: Vec<(&Answer, &[u64])> = answers
        .iter()
        .map(|answer| match &answer.body {
            Body::Counts { counts } => (answer, counts.counts()),
            _ => unreachable!("BUG: every bucket was asked for"),
        })
        .collect();
    let row = |(index, start): (usize, &Arc<str>)| Row {
        start: Arc::clone(start),
        counts: by_key.iter().map(|(_, counts)| counts[index]).collect(),
        state: states.get(index).copied(),
    };
    let labels = buckets.labels();
    let labels = labels.iter().take(buckets.count()).enumerate();
    let counts = labels.map(row).collect();
    let most = answers.iter().map(|answer| answer.total).max();
    Ok(ComparedKeys {
        head,
        overflow: most.and_then(overflow),
        counts,
        keys: answers
            .into_iter()
            .map(|answer| KeyTotal {
                namespace: answer.namespace,
                key: answer.key.unwrap_or_default(),
                total: answer.total,
            })
            .collect(),
    })
}

impl KeyTotal {
    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.key)
    }
}

impl Respond for ComparedKeys {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        ("compare", self.head.identity(), &self.keys, &self.counts)
    }

    /// A column for each key.
    fn rows(&self) -> String {
        let names: Vec<String> = self.keys.iter().map(KeyTotal::name).collect();
        let columns = ["start"]
            .into_iter()
            .chain(names.iter().map(String::as_str));
        let columns = with_state(&columns.collect::<Vec<_>>(), self.head.told_state());
        let mut table = Table::of_counts(&columns, self.overflow.is_some());
        for row in &self.counts {
            let texts: Vec<String> = row.counts.iter().map(u64::to_string).collect();
            let mut cells = vec![&*row.start];
            cells.extend(texts.iter().map(String::as_str));
            cells.extend(row.state.map(State::as_str));
            table.counted(&cells, row.counts.iter().copied().max().unwrap_or(0));
        }
        table.end()
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let counts_of = |index| self.counts.iter().map(|row| row.counts[index]).collect();
        let named = self.keys.iter().enumerate();
        let named = named.map(|(index, key)| (key.name(), counts_of(index)));
        let starts = self.counts.iter().map(|row| row.start.to_string());
        Some(lines(&LinesChart {
            title: "Comparison".to_owned(),
            unit: self.head.unit,
            zone: self.head.timezone.to_string(),
            starts: starts.collect(),
            lines: named.collect(),
            provisional_from: self.head.provisional_from(),
            not_final: self.head.not_final(picture.hatches),
            aligned: self.head.aligned,
            picture,
        }))
    }
}
