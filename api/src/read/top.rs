//! `GET /v1/{namespace}/top`: the heaviest keys of a range.

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{State, TopKey, View};
use tallyring_records::sum_capped;

use super::answer::Head;
use super::answering::{overflow, resolve, title_of};
use super::csv;
use super::limits::ResponseLimits;
use super::parameters::{LimitParameter, RangeParameters};
use super::period::span;
use super::question::{Aspect, Question};
use super::reply::Respond;
use super::request::ReadRequest;
use crate::access::Length;
use crate::chart::{Picture, RankingChart, ranking};
use crate::problem::Result;
use crate::table::Table;

/// The heaviest keys of a range.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Top {
    namespace: String,
    #[serde(flatten)]
    head: Head,
    /// True where a key that is not listed may have more than the last one
    approximate: bool,
    /// The most that such a key may have
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bound: Option<u64>,
    total: u64,
    /// True where the total reached 2^53−1, up to which is counted: it, and what it is made of, may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<bool>,
    keys: Vec<Key>,
    /// Sum of the keys that are not listed
    other: u64,
    /// The name of the namespace in a picture.
    #[serde(skip)]
    title: String,
}

/// A key and its count.
#[derive(Serialize, utoipa::ToSchema)]
struct Key {
    key: String,
    count: u64,
}

/// Heaviest keys
///
/// Keys of the namespace ranked by their counts in the range, which are exact; ties by the key. Up to 1,000
/// keys of whole hours are ranked from lists. Those for yesterday, today and tomorrow are in fixed memory: where
/// `approximate` is true, a key that is not listed may have up to `bound`: at most 1/448 of the counts (with more than
/// 27 namespaces, more). Also as `/top.csv` and `/top.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/top", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        RangeParameters,
        LimitParameter,
    ),
    responses((status = 200, description = "The ranking", body = Top, example = json!({
        "namespace": "l", "unit": "day", "timezone": "UTC",
        "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "approximate": false,
        "total": 17, "keys": [{"key": "abc", "count": 5}], "other": 12,
    }))),
)]
pub(crate) async fn top(request: ReadRequest<String>) -> Result<Response> {
    let query = request.query()?;
    let (question, reply) = request.question((&request.path, None), Aspect::Top, query)?;
    reply
        .answer(&request.state, Length::Long, move |reader, limits| {
            read(reader, question, limits)
        })
        .await
}

fn read(reader: &View<'_>, question: Question, limits: &mut ResponseLimits) -> Result<Top> {
    let states = question.states(reader);
    let (base, limit) = (question.base, question.limit);
    let generation = question.period.as_of.unwrap_or(reader.generation());
    let (from, to) = span(&question.period.selection);
    let namespace = question.namespace;
    let source = question.period.source(reader, &[(&namespace, None)])?;
    let (reader, as_of) = (source.view(), source.as_of());
    let (by_minute, wanted) = (base.by_minute(), (limit, false));
    let ranking = reader.top(&namespace, from..to, by_minute, wanted, as_of)?;
    let counted = ranking.counted;
    let span = counted.map(|counted| (counted.first, counted.last));
    let buckets = resolve(question.period.selection, span)?;
    let cut = (counted, ranking.is_cut);
    let aligned = base.check_ranking(cut, ranking.minutes_from, &buckets)?;
    limits.take_values(ranking.keys.iter().map(|top| top.key.as_str()))?;
    let listed = sum_capped(ranking.keys.iter().map(|top| top.count));
    let keys = ranking.keys.into_iter();
    Ok(Top {
        title: title_of(reader, &namespace),
        head: Head::of(reader, &buckets, aligned, states, generation),
        namespace,
        approximate: ranking.bound.is_some(),
        bound: ranking.bound,
        total: ranking.total,
        overflow: overflow(ranking.total),
        other: ranking.total.saturating_sub(listed),
        keys: keys
            .map(|TopKey { key, count }| Key { key, count })
            .collect(),
    })
}

impl Respond for Top {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let counted = (self.bound, self.total, &self.keys, self.other);
        (&self.namespace, &self.title, self.head.identity(), counted)
    }

    fn rows(&self) -> String {
        let state = self.head.told_state();
        let columns = csv::with_state(&["key", "count", "kind"], state);
        let mut table = Table::of_counts(&columns, self.overflow.is_some());
        let keys = self.keys.iter().map(|key| (key.key.as_str(), key.count));
        csv::ranking(
            &mut table,
            (&[], state.map(State::as_str)),
            keys,
            self.other,
        );
        table.end()
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let keys = self.keys.iter();
        Some(ranking(&RankingChart {
            title: format!("{}: top keys", self.title),
            by: String::new(),
            subtitle: self.head.dates(),
            values: keys.map(|key| (key.key.clone(), key.count)).collect(),
            other: self.other,
            aligned: self.head.aligned,
            picture,
        }))
    }
}
