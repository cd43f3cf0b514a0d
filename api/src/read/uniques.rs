//! `GET /v1/{namespace}/{key}/uniques`: how many users, estimated.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{Read, UsersView, View};
use tallyring_records::{Namespace, USERS_RELATIVE_ERROR, Users};

use super::answer::{Head, ResponseLimits, resolve};
use super::asked::Asked;
use super::base::{Base, Made};
use super::format::Format;
use super::request::{Period, Shape, check_key, declared, reading};
use super::respond::{Respond, json};
use crate::access::{Caller, Length};
use crate::calendar::Buckets;
use crate::chart::{Measure, Picture, SeriesChart, grouped, series};
use crate::problem::Problem;
use crate::segments::Segments;
use crate::state::ApiState;

const KNOWN: &str =
    "unit, units, from, to, timezone, hour_offset and as_of; pictures also take width and theme";

/// Buckets whose users are held at a time, up to 4 KiB each: one answer may have ten thousand.
const BUCKETS_AT_ONCE: usize = 200;
/// Memory of the users of a bucket, at most.
const USERS_BYTES: usize = 5 << 10;

/// Unique users by bucket and over the range.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Uniques {
    namespace: String,
    key: String,
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    whole: Estimate,
    counts: Vec<UniquesCount>,
}

/// An estimate of a number of users.
#[derive(Serialize, utoipa::ToSchema)]
struct Estimate {
    estimate: u64,
    /// Standard error of the estimate, relative to it
    relative_error: f64,
}

/// Users of one bucket.
#[derive(Serialize, utoipa::ToSchema)]
struct UniquesCount {
    #[schema(value_type = String)]
    start: Arc<str>,
    #[serde(flatten)]
    users: Estimate,
}

/// Unique users of a key
///
/// Estimates by bucket and over the whole range, in which each user counts once. Nearly exact up to 384 users. Also as
/// `/uniques.csv` and `/uniques.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/uniques", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace that keeps uniques", example = "ad_click"),
        ("key" = String, Path, description = "Percent-encoded, 1 to 2,048 bytes", example = "42"),
        crate::openapi::RangeParameters,
    ),
    responses(
        (status = 200, description = "The estimates", body = Uniques, example = json!({
            "namespace": "ad_click", "key": "42", "unit": "day", "timezone": "UTC",
            "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true,
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3,
            "estimate": 4, "relative_error": 0.01625,
            "counts": [
                {"start": "2012-03-15T00:00:00+00:00", "estimate": 0, "relative_error": 0.01625},
                {"start": "2012-03-16T00:00:00+00:00", "estimate": 4, "relative_error": 0.01625},
            ],
        })),
        crate::openapi::AskErrors,
        crate::openapi::Known,
    ),
)]
pub async fn uniques(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((namespace, key)): Segments<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut asked = Asked::of(&uri, &headers, &caller, state.now())?;
    let namespace = declared(&state.store().schema(), &namespace)?.clone();
    if !namespace.uniques {
        let detail = "keeps no users; declare it with uniques = true";
        return Err(Problem::unknown("namespace", &namespace.name, detail));
    }
    check_key(&key)?;
    let period = asked.period()?;
    let form = asked.finish(KNOWN)?;
    reading(&state, Length::Short, move |reader| {
        let mut limits = ResponseLimits::new(reader.reading());
        let answer = read(reader, (namespace, key), period, &mut limits)?;
        form.respond(reader, &answer, limits.into_charge())
    })
    .await
}

fn read(
    reader: &View<'_>,
    (namespace, key): (Namespace, String),
    period: Period,
    limits: &mut ResponseLimits,
) -> Result<Uniques, Problem> {
    let base = Base::of(&namespace, &period.selection, Made::Users)?;
    let Period {
        selection,
        as_of,
        now,
    } = period;
    let (from, to) = base.span(&selection);
    let read = Read {
        namespace: namespace.name.clone(),
        key: key.clone(),
        subtotal: None,
        from,
        to,
        rolled: None,
    };
    let settled = reader.settled_until(&namespace.name, as_of, now);
    let view = reader.users(read, as_of)?;
    let counted = base.counts(&view.series);
    let buckets = resolve(selection, counted.span())?;
    limits.take_buckets(buckets.count(), &Shape::Counts)?;
    let (whole, counts) = estimates(reader, &view, &buckets)?;
    let generation = as_of.unwrap_or(reader.generation());
    let aligned = base.aligned(&counted, &buckets);
    Ok(Uniques {
        whole: Estimate::of(Some(&whole)),
        counts,
        head: Head::of(reader, &buckets, aligned, settled, generation),
        namespace: namespace.name,
        key,
    })
}

/// The users of all buckets, and the estimate of each, some at a time.
fn estimates(
    reader: &View<'_>,
    view: &UsersView<'_>,
    buckets: &Buckets,
) -> Result<(Users, Vec<UniquesCount>), Problem> {
    let mut whole = Users::default();
    let mut counts = Vec::with_capacity(buckets.count());
    let _charge = reader
        .reading()
        .charge_of(BUCKETS_AT_ONCE.min(buckets.count()) * USERS_BYTES)?;
    let (edges, starts) = (buckets.edges(), &buckets.labels()[..buckets.count()]);
    for starts in starts.chunks(BUCKETS_AT_ONCE) {
        let first = counts.len();
        let range = edges[first]..edges[first + starts.len()];
        let found = view.unite(&range, |start| buckets.index_of(start))?;
        found.values().for_each(|users| whole.union(users));
        counts.extend((first..).zip(starts).map(|(index, start)| UniquesCount {
            start: Arc::clone(start),
            users: Estimate::of(found.get(&index)),
        }));
    }
    Ok((whole, counts))
}

impl Respond for Uniques {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let estimated = (&self.whole, &self.counts);
        let of = (&self.namespace, &self.key);
        ("uniques", of, self.head.identity(), estimated)
    }

    fn render(&self, format: Format) -> Result<Vec<u8>, Problem> {
        match format {
            Format::Json => json(self),
            Format::Csv => Ok(rows(self).into_bytes()),
            Format::Svg(look) => Ok(picture(self, look).into_bytes()),
        }
    }
}

impl Estimate {
    fn of(users: Option<&Users>) -> Self {
        Self {
            estimate: users.map_or(0, Users::estimate),
            relative_error: USERS_RELATIVE_ERROR,
        }
    }
}

fn rows(answer: &Uniques) -> String {
    let mut out = String::from("start,estimate\n");
    for count in &answer.counts {
        crate::csv::row(&mut out, &[&count.start, &count.users.estimate.to_string()]);
    }
    out
}

fn picture(answer: &Uniques, picture: Picture) -> String {
    let Uniques { namespace, key, .. } = answer;
    let points = answer.counts.iter();
    series(&SeriesChart {
        title: format!("users of {namespace}/{key}"),
        subtitle: format!(
            "{} in all, estimated ±{:.1}%",
            grouped(answer.whole.estimate),
            100.0 * USERS_RELATIVE_ERROR
        ),
        unit: answer.head.unit,
        zone: answer.head.timezone.to_string(),
        measure: Measure::Distinct,
        points: points
            .map(|count| (count.start.to_string(), count.users.estimate))
            .collect(),
        gaps: Vec::new(),
        provisional_from: answer.head.provisional_from(),
        aligned: answer.head.aligned,
        before: Vec::new(),
        picture,
    })
}
