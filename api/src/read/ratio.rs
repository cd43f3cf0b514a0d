//! `GET /v1/ratios/{ratio}/{entity}/{key}`: two counts divided, both from one view.

use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{State, View};
use tallyring_records::{EventType, Namespace, Schema, sum_capped};

use super::answer::Head;
use super::answering::{overflow, resolve};
use super::csv::with_state;
use super::format::Format;
use super::limits::ResponseLimits;
use super::parameters::RangeParameters;
use super::period::Period;
use super::question::{Question, Shape, check_key, declared};
use super::reply::Respond;
use super::request::{RANGE_PARAMETERS, ReadRequest};
use super::rollup;
use crate::access::Length;
use crate::chart::{Measure, Picture, SHARE_OF_ONE, SeriesChart, exact, series};
use crate::problem::{Problem, Result};
use crate::table::Table;

/// A ratio by bucket and over the range.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct RatioAnswer {
    name: String,
    entity: String,
    key: String,
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    whole: Quotient,
    /// True where a count reached 2^53−1, up to which is counted: it may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<bool>,
    counts: Vec<RatioCount>,
    /// The event types that are divided and that divide, for the words of a picture.
    #[serde(skip)]
    types: [String; 2],
}

/// Two counts and what they divide to.
#[derive(Serialize, utoipa::ToSchema)]
struct Quotient {
    numerator: u64,
    denominator: u64,
    /// null where the denominator is 0
    ratio: Option<f64>,
}

/// One bucket's ratio.
#[derive(Serialize, utoipa::ToSchema)]
struct RatioCount {
    #[schema(value_type = String)]
    start: Arc<str>,
    #[serde(flatten)]
    quotient: Quotient,
    /// Once the store has final days
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    state: Option<State>,
}

/// Ratio of two event types
///
/// Numerator, denominator and ratio of an entity's key for every bucket, from the counts of one view. Also as `.csv`
/// and `.svg` behind the key, or by `Accept`: of a key that itself ends so, the dot is sent as `%2E`.
#[utoipa::path(get, path = "/v1/ratios/{ratio}/{entity}/{key}", tag = "read",
    params(
        ("ratio" = String, Path, description = "A declared ratio", example = "ctr"),
        ("entity" = String, Path, description = "An entity that both event types have", example = "ad"),
        ("key" = String, Path, description = "Percent-encoded, 1 to 2,048 bytes", example = "42"),
        RangeParameters,
    ),
    responses((status = 200, description = "The ratios", body = RatioAnswer, example = json!({
        "name": "ctr", "entity": "ad", "key": "42", "unit": "day", "timezone": "UTC",
        "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3,
        "numerator": 1, "denominator": 8, "ratio": 0.125,
        "counts": [
            {"start": "2012-03-15T00:00:00+00:00", "numerator": 0, "denominator": 0, "ratio": null},
            {"start": "2012-03-16T00:00:00+00:00", "numerator": 1, "denominator": 8, "ratio": 0.125},
        ],
    }))),
)]
pub(crate) async fn ratio(mut request: ReadRequest<(String, String, String)>) -> Result<Response> {
    let (name, entity, key) = request.take_path();
    let (mut query, format) = request.query()?;
    // A dot that was sent as %2E belongs to the key.
    let path = request.uri.path();
    let is_file = Format::without_suffix(path) != path;
    let key = match is_file {
        true => Format::without_suffix(&key).to_owned(),
        false => key,
    };
    let schema = request.state.store().schema();
    let types = types(&schema, &name)?;
    let namespaces = namespaces(&schema, &name, types, &entity)?;
    for namespace in &namespaces {
        request.caller.check_namespace(&namespace.name)?;
    }
    check_key(&key)?;
    let period = Period::parse(&mut query, request.now)?;
    query.finish(RANGE_PARAMETERS)?;
    let question = |namespace: &Namespace| {
        let (key, period) = (Some(key.clone()), period.clone());
        Question::of(
            (&namespace.name, namespace),
            key,
            Shape::Counts,
            period,
            None,
        )
    };
    let ratio = Ratio {
        questions: [question(namespaces[0])?, question(namespaces[1])?],
        name,
        entity,
        key,
        types: types.map(|kind| kind.name.clone()),
    };
    request
        .reply(format)
        .answer(&request.state, Length::Short, move |reader, limits| {
            read(reader, ratio, limits)
        })
        .await
}

/// A ratio of one key: the questions about its numerator and about its denominator, of one period.
struct Ratio {
    name: String,
    entity: String,
    key: String,
    questions: [Question; 2],
    types: [String; 2],
}

/// The event types that a ratio divides, and divides by.
fn types<'s>(schema: &'s Schema, name: &str) -> Result<[&'s EventType; 2]> {
    let ratio = schema.ratio(name).ok_or_else(|| {
        let known: Vec<&str> = schema.ratios.iter().map(|ratio| &*ratio.name).collect();
        let detail = format!("must be one of the declared ratios {}", known.join(", "));
        Problem::unknown("ratio", name, detail)
    })?;
    let types = [&ratio.numerator, &ratio.denominator].map(|name| schema.event_type(name));
    let [Some(numerator), Some(denominator)] = types else {
        unreachable!("BUG: a schema's ratios name declared event types")
    };
    Ok([numerator, denominator])
}

fn namespaces<'s>(
    schema: &'s Schema,
    name: &str,
    [numerator, denominator]: [&EventType; 2],
    entity: &str,
) -> Result<[&'s Namespace; 2]> {
    let known = numerator.entities.iter().map(String::as_str);
    let known: Vec<&str> = known
        .filter(|known| denominator.entities.iter().any(|other| other == known))
        .collect();
    if !known.contains(&entity) {
        let detail = format!(
            "must be one of the entities of {name}, {}",
            known.join(", ")
        );
        return Err(Problem::unknown("entity", entity, detail));
    }
    let namespace = |kind: &EventType| declared(schema, &kind.namespace_of(entity));
    Ok([namespace(numerator)?, namespace(denominator)?])
}

fn read(reader: &View<'_>, ratio: Ratio, limits: &mut ResponseLimits) -> Result<RatioAnswer> {
    let [numerator, denominator] = &ratio.questions;
    let settled = ratio
        .questions
        .each_ref()
        .map(|of| of.settled_until(reader));
    let settled = settled[0].min(settled[1]);
    let namespaces = ratio.questions.each_ref().map(|of| &*of.namespace);
    let period = numerator.period.clone();
    let generation = period.as_of.unwrap_or(reader.generation());
    let states = reader.states(&namespaces, settled, period.as_of);
    let states = period.states(states.of_each());
    let source = period.source(reader, &[numerator.reads(), denominator.reads()])?;
    let (reader, as_of) = (source.view(), source.as_of());
    let series = [
        reader.read(&numerator.read(), as_of)?,
        reader.read(&denominator.read(), as_of)?,
    ];
    let counted = [0, 1].map(|side| ratio.questions[side].base.counts(&series[side]));
    let starts = || {
        let codes = counted.iter().flat_map(|counted| counted.codes());
        codes.map(|code| code.start())
    };
    let buckets = resolve(period.selection.clone(), starts().min().zip(starts().max()))?;
    limits.take_buckets(buckets.count(), &Shape::Counts)?;
    let mut aligned = true;
    for ((question, counted), series) in ratio.questions.iter().zip(&counted).zip(&series) {
        let minutes_from = reader.minutes_from(as_of);
        question.base.check_kept(&buckets, minutes_from, counted)?;
        aligned &= question.base.aligned(counted, &buckets) && !series.is_cut;
    }
    let totals = [0, 1].map(|side| rollup::totals(&counted[side], &buckets));
    let rows = buckets
        .labels()
        .iter()
        .zip(totals[0].iter().zip(&totals[1]));
    let sums = totals
        .each_ref()
        .map(|totals| sum_capped(totals.iter().copied()));
    let head = Head::of(reader, &buckets, aligned, states, generation);
    let states = head.bucket_states();
    Ok(RatioAnswer {
        counts: rows
            .enumerate()
            .map(|(index, (start, (&numerator, &denominator)))| RatioCount {
                start: Arc::clone(start),
                quotient: Quotient::new(numerator, denominator),
                state: states.get(index).copied(),
            })
            .collect(),
        head,
        whole: Quotient::new(sums[0], sums[1]),
        overflow: overflow(sums[0].max(sums[1])),
        name: ratio.name,
        entity: ratio.entity,
        key: ratio.key,
        types: ratio.types,
    })
}

impl Respond for RatioAnswer {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let of = (&self.name, &self.entity, &self.key);
        ("ratio", of, &self.types, self.head.identity(), &self.counts)
    }

    fn rows(&self) -> String {
        let columns = ["start", "numerator", "denominator", "ratio"];
        let columns = with_state(&columns, self.head.told_state());
        let mut table = Table::of_counts(&columns, self.overflow.is_some());
        for RatioCount {
            start,
            quotient,
            state,
        } in &self.counts
        {
            let ratio = quotient.ratio.map(|ratio| ratio.to_string());
            let counts = [quotient.numerator, quotient.denominator];
            let texts = counts.map(|count| count.to_string());
            let ratio = ratio.unwrap_or_default();
            let mut cells = vec![&**start, &texts[0], &texts[1], &ratio];
            cells.extend(state.map(State::as_str));
            table.counted(&cells, counts[0].max(counts[1]));
        }
        table.end()
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let RatioAnswer {
            name,
            entity,
            key,
            types: [numerator, denominator],
            ..
        } = self;
        let shares: Vec<Option<u64>> = self
            .counts
            .iter()
            .map(|count| count.quotient.share())
            .collect();
        let in_all = match self.whole.share() {
            Some(share) => format!("{} in all", Measure::Shares.exact(share)),
            None => "no ratio in all".to_owned(),
        };
        let starts = self.counts.iter().map(|count| &count.start);
        let points = starts.zip(shares.iter().map(|share| share.unwrap_or(0)));
        let title = format!("{name} of {entity}/{key}: {numerator} / {denominator}");
        Some(series(&SeriesChart {
            subtitle: format!(
                "{in_all}: {} of {}",
                exact(self.whole.numerator),
                exact(self.whole.denominator)
            ),
            measure: Measure::Shares,
            gaps: (0..shares.len())
                .filter(|&bucket| shares[bucket].is_none())
                .collect(),
            ..self.head.chart(title, points, None, picture)
        }))
    }
}

impl Quotient {
    fn new(numerator: u64, denominator: u64) -> Self {
        Self {
            numerator,
            denominator,
            ratio: (denominator > 0).then(|| numerator as f64 / denominator as f64),
        }
    }

    /// The ratio in billionths, rounded, where there is one. Pictures draw whole numbers.
    fn share(&self) -> Option<u64> {
        let one = u128::from(SHARE_OF_ONE);
        let scaled = u128::from(self.numerator) * one + u128::from(self.denominator / 2);
        let rounded = scaled.checked_div(self.denominator.into())?;
        Some(u64::try_from(rounded).unwrap_or(u64::MAX))
    }
}
