//! `GET /v1/{namespace}/top`: the heaviest keys of a range.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{TopKey, View};
use tallyring_records::{Namespace, sum_capped};

use super::answer::{Head, ResponseLimits, overflow, resolve};
use super::asked::Asked;
use super::base::{Base, Made};
use super::csv;
use super::format::Format;
use super::request::{Period, declared, limit, limit_default, reading, span};
use super::respond::{Respond, json};
use crate::access::{Caller, Length};
use crate::chart::{Picture, RankingChart, ranking};
use crate::openapi::{AskErrors, Known, LimitParameter, RangeParameters};
use crate::problem::Problem;
use crate::segments::Segments;
use crate::state::ApiState;

const KNOWN: &str = "unit, units, from, to, timezone, hour_offset, as_of and limit; pictures also take width and theme";

/// The heaviest keys of a range.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Top {
    namespace: String,
    #[serde(flatten)]
    head: Head,
    /// True where a key that is not listed may have more than the last one
    approximate: bool,
    /// What such a key may have at most
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
    /// What a picture calls the namespace.
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
/// Keys of the namespace ranked by their counts in the range, which are exact; ties as they are stored. Of whole hours
/// of yesterday, today and tomorrow up to 100 keys are ranked from fixed memory: where `approximate` is true, a key that
/// is not listed may have up to `bound`: at most 1/448 of the counts (with more than 27 namespaces, more). Also as
/// `/top.csv` and `/top.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/top", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        RangeParameters,
        LimitParameter,
    ),
    responses(
        (status = 200, description = "The ranking", body = Top, example = json!({
            "namespace": "l", "unit": "day", "timezone": "UTC",
            "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true,
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "approximate": false,
            "total": 17, "keys": [{"key": "abc", "count": 5}], "other": 12,
        })),
        AskErrors,
        Known,
    ),
)]
pub async fn top(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(namespace): Segments<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut asked = Asked::of(&uri, &headers, &caller, state.now())?;
    let namespace = declared(&state.store().schema(), &namespace)?.clone();
    let limit = limit(&mut asked.query, limit_default(asked.format))?;
    let period = asked.period()?;
    let form = asked.finish(KNOWN)?;
    reading(&state, Length::Long, move |reader| {
        let mut limits = ResponseLimits::new(reader.reading());
        let top = read(reader, namespace, period, limit, &mut limits)?;
        form.respond(reader, &top, limits.into_charge())
    })
    .await
}

fn read(
    reader: &View<'_>,
    namespace: Namespace,
    period: Period,
    limit: usize,
    limits: &mut ResponseLimits,
) -> Result<Top, Problem> {
    let base = Base::of(&namespace, &period.selection, Made::Totals)?;
    let Period {
        selection,
        as_of,
        now,
    } = period;
    let (from, to) = span(&selection);
    let settled = reader.settled_until(&namespace.name, as_of, now);
    let ranking = reader.top(&namespace.name, from..to, base.by_minute(), limit, as_of)?;
    let counted = ranking.counted;
    let counted = counted.map(|counted| (counted.first, counted.last));
    let buckets = resolve(selection, counted)?;
    let aligned = base.check_ranking(&ranking, &buckets)?;
    limits.take_values(ranking.keys.iter().map(|top| top.key.as_str()))?;
    let listed = sum_capped(ranking.keys.iter().map(|top| top.count));
    let keys = ranking.keys.into_iter();
    Ok(Top {
        title: namespace.title_or_name().to_owned(),
        head: Head::of(reader, &buckets, aligned, settled, ranking.generation),
        namespace: namespace.name,
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

    fn render(&self, format: Format) -> Result<Vec<u8>, Problem> {
        match format {
            Format::Json => json(self),
            Format::Csv => Ok(rows(self).into_bytes()),
            Format::Svg(look) => Ok(picture(self, look).into_bytes()),
        }
    }
}

fn picture(answer: &Top, picture: Picture) -> String {
    let keys = answer.keys.iter();
    ranking(&RankingChart {
        title: format!("{}: top keys", answer.title),
        by: String::new(),
        subtitle: answer.head.dates(),
        values: keys.map(|key| (key.key.clone(), key.count)).collect(),
        other: answer.other,
        aligned: answer.head.aligned,
        picture,
    })
}

fn rows(answer: &Top) -> String {
    let mut out = String::from("key,count,kind\n");
    let keys = answer.keys.iter().map(|key| (key.key.as_str(), key.count));
    csv::ranking(&mut out, &[], keys, answer.other);
    out
}
