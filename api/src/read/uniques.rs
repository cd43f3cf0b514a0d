//! `GET /v1/{namespace}/{key}/uniques`: how many users, estimated.

use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{State, UsersView, View};
use tallyring_records::{USERS_RELATIVE_ERROR, Users};

use super::answer::Head;
use super::answering::resolve;
use super::csv::with_state;
use super::key::KeySegments;
use super::limits::ResponseLimits;
use super::parameters::RangeParameters;
use super::question::{Aspect, Question};
use super::reply::Respond;
use super::request::ReadRequest;
use crate::access::Length;
use crate::calendar::Buckets;
use crate::chart::{Measure, Picture, SeriesChart, grouped, series};
use crate::problem::Result;
use crate::table::Table;

/// Buckets whose users are held at a time, up to 4 KiB each: one answer may have ten thousand.
const BUCKETS_AT_ONCE: usize = 200;
/// Memory of the users of a bucket, at most.
const USERS_BYTES: usize = 5 << 10;

/// Unique users by bucket and over the range.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Uniques {
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
    /// Once the store has final days
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    state: Option<State>,
}

/// Unique users of a key
///
/// Estimates by bucket and over the whole range, in which each user counts once. Nearly exact up to 384 users. Also as
/// `/uniques.csv` and `/uniques.svg`. `unit=minute` reaches back a few hours where the namespace keeps minutes and
/// has a subtotal.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/uniques", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace that keeps uniques", example = "ad_click"),
        ("key" = String, Path, description = "Percent-encoded, 1 to 2,048 bytes", example = "42"),
        RangeParameters,
    ),
    responses((status = 200, description = "The estimates", body = Uniques, example = json!({
        "namespace": "ad_click", "key": "42", "unit": "day", "timezone": "UTC",
        "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3,
        "estimate": 4, "relative_error": 0.01625,
        "counts": [
            {"start": "2012-03-15T00:00:00+00:00", "estimate": 0, "relative_error": 0.01625},
            {"start": "2012-03-16T00:00:00+00:00", "estimate": 4, "relative_error": 0.01625},
        ],
    }))),
)]
pub(crate) async fn uniques(mut request: ReadRequest<KeySegments>) -> Result<Response> {
    let (namespace, key) = request.take_path();
    let query = request.query()?;
    let (question, reply) = request.question((&namespace, Some(key)), Aspect::Users, query)?;
    reply
        .answer(&request.state, Length::Short, move |reader, limits| {
            read(reader, question, limits)
        })
        .await
}

fn read(reader: &View<'_>, question: Question, limits: &mut ResponseLimits) -> Result<Uniques> {
    let states = question.states(reader);
    let base = question.base;
    let generation = question.period.as_of.unwrap_or(reader.generation());
    let source = question.period.source(reader, &[question.reads()])?;
    let (reader, as_of) = (source.view(), source.as_of());
    let mut wanted = question.read();
    let namespace = reader.schema().namespace(&question.namespace);
    wanted.subtotal = namespace.and_then(|namespace| base.subtotal_of_users(namespace));
    let view = reader.users(wanted, as_of)?;
    let counted = base.counts(&view.series);
    let kept_from = base.kept_from(reader, as_of, question.period.now);
    let buckets = resolve(question.period.selection, counted.span())?;
    base.check_kept(&buckets, kept_from, &counted)?;
    limits.take_buckets(buckets.count(), &question.shape)?;
    let (whole, mut counts) = estimates(reader, &view, &buckets)?;
    let aligned = base.aligned(&counted, &buckets) && !view.series.is_cut;
    let head = Head::of(reader, &buckets, aligned, states, generation);
    for (count, state) in counts.iter_mut().zip(head.bucket_states()) {
        count.state = Some(state);
    }
    Ok(Uniques {
        whole: Estimate::of(Some(&whole)),
        counts,
        head,
        namespace: question.namespace,
        key: question.key.unwrap_or_default(),
    })
}

/// The users of all buckets, and the estimate of each, some at a time.
fn estimates(
    reader: &View<'_>,
    view: &UsersView<'_>,
    buckets: &Buckets,
) -> Result<(Users, Vec<UniquesCount>)> {
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
            state: None,
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

    fn rows(&self) -> String {
        let columns = with_state(&["start", "estimate"], self.head.told_state());
        let mut table = Table::new(&columns);
        for count in &self.counts {
            let estimate = count.users.estimate.to_string();
            let mut cells = vec![&*count.start, &estimate];
            cells.extend(count.state.map(State::as_str));
            table.row(&cells);
        }
        table.end()
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let Uniques { namespace, key, .. } = self;
        let counts = self.counts.iter();
        let points = counts.map(|count| (&count.start, count.users.estimate));
        let title = format!("users of {namespace}/{key}");
        Some(series(&SeriesChart {
            subtitle: format!(
                "{} in all, estimated ±{:.1}%",
                grouped(self.whole.estimate),
                100.0 * USERS_RELATIVE_ERROR
            ),
            measure: Measure::Distinct,
            ..self.head.chart(title, points, None, picture)
        }))
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
