//! `GET /v1/{namespace}/counts`: all keys of a namespace together, by bucket.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::View;
use tallyring_records::{Namespace, sum_capped};

use super::answer::{Head, ResponseLimits, overflow, resolve};
use super::asked::Asked;
use super::base::{Base, Made};
use super::bucket_counts::{BucketCounts, Count};
use super::format::Format;
use super::request::{Period, Shape, declared, reading};
use super::respond::{Respond, written};
use super::rollup;
use crate::access::{Caller, Length};
use crate::chart::{Measure, Picture, SeriesChart, series};
use crate::openapi::{AskErrors, Known, RangeParameters};
use crate::problem::Problem;
use crate::segments::Segments;
use crate::state::ApiState;

const KNOWN: &str = "unit, units, from, to, timezone, hour_offset and as_of; pictures also take width, theme and compare";

/// Counts of all keys of a namespace.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Whole {
    namespace: String,
    #[serde(flatten)]
    head: Head,
    total: u64,
    /// True where the total reached 2^53−1, up to which is counted: it, and what it is made of, may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<bool>,
    #[serde(skip_serializing_if = "BucketCounts::is_added")]
    #[schema(value_type = Vec<Count>, required)]
    counts: BucketCounts,
    /// What a picture is called.
    #[serde(skip)]
    title: String,
    /// Counts of the period before, for a picture that compares.
    #[serde(skip)]
    before: Vec<u64>,
}

/// Counts of a namespace by bucket
///
/// All keys together, from all their totals: exact, and as slow as `top`. Also as `/counts.csv` and
/// `/counts.svg`, which takes what the picture of a key's counts takes.
#[utoipa::path(get, path = "/v1/{namespace}/counts", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        RangeParameters,
    ),
    responses(
        (status = 200, description = "The counts", body = Whole, example = json!({
            "namespace": "l", "unit": "day", "timezone": "UTC",
            "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true,
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 17,
            "counts": [
                {"start": "2012-03-15T00:00:00+00:00", "count": 5},
                {"start": "2012-03-16T00:00:00+00:00", "count": 12},
            ],
        })),
        AskErrors,
        Known,
    ),
)]
pub async fn counts_of_all(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(namespace): Segments<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut asked = Asked::of(&uri, &headers, &caller, state.now())?;
    let namespace = declared(&state.store().schema(), &namespace)?.clone();
    let period = asked.period()?;
    let compared = asked.compared(&period)?;
    let form = asked.finish(KNOWN)?;
    reading(&state, Length::Long, move |reader| {
        let mut limits = ResponseLimits::new(reader.reading());
        let mut whole = read(reader, &namespace, period, &mut limits)?;
        if let Some(period) = compared {
            let before = read(reader, &namespace, period, &mut limits)?;
            whole.before = before.counts.into_counts();
        }
        form.respond(reader, &whole, limits.into_charge())
    })
    .await
}

fn read(
    reader: &View<'_>,
    namespace: &Namespace,
    period: Period,
    limits: &mut ResponseLimits,
) -> Result<Whole, Problem> {
    let base = Base::of(namespace, &period.selection, Made::Totals)?;
    let Period {
        selection,
        as_of,
        now,
    } = period;
    let (from, to) = base.span(&selection);
    let settled = reader.settled_until(&namespace.name, as_of, now);
    let found = reader.totals(&namespace.name, from..to, base.by_minute(), as_of)?;
    let buckets = resolve(selection, found.totals.span())?;
    base.check_kept(&buckets, found.minutes_from, &found.totals)?;
    limits.take_buckets(buckets.count(), &Shape::Counts)?;
    let totals = rollup::totals(&found.totals, &buckets);
    let aligned = base.aligned(&found.totals, &buckets);
    let total = sum_capped(totals.iter().copied());
    Ok(Whole {
        namespace: namespace.name.clone(),
        total,
        overflow: overflow(total),
        title: format!("{}: all keys", namespace.title_or_name()),
        head: Head::of(reader, &buckets, aligned, settled, found.generation),
        counts: BucketCounts::new(buckets, totals),
        before: Vec::new(),
    })
}

impl Respond for Whole {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let counted = (self.total, &self.counts, &self.before);
        (&self.namespace, &self.title, self.head.identity(), counted)
    }

    fn render(&self, format: Format) -> Result<Vec<u8>, Problem> {
        match format {
            Format::Json => written(|text| self.counts.write_json_behind(self, text)),
            Format::Csv => Ok(rows(self).into_bytes()),
            Format::Svg(look) => Ok(picture(self, look).into_bytes()),
        }
    }
}

fn rows(answer: &Whole) -> String {
    let mut out = String::from("start,count\n");
    for (start, count) in answer.counts.iter() {
        crate::csv::row(&mut out, &[start, &count.to_string()]);
    }
    out
}

fn picture(answer: &Whole, picture: Picture) -> String {
    let points = answer.counts.iter();
    series(&SeriesChart {
        title: answer.title.clone(),
        subtitle: String::new(),
        unit: answer.head.unit,
        zone: answer.head.timezone.to_string(),
        measure: Measure::Counts,
        points: points
            .map(|(start, count)| (start.to_string(), count))
            .collect(),
        gaps: Vec::new(),
        provisional_from: answer.head.provisional_from(),
        aligned: answer.head.aligned,
        before: answer.before.clone(),
        picture,
    })
}
