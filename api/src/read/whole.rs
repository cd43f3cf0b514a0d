//! `GET /v1/{namespace}/counts`: all keys of a namespace together, by bucket.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::Store;
use tallyring_records::Namespace;

use super::answer::{Count, Head, counts, resolve};
use super::format::Format;
use super::request::{as_of, blocking, declared, period_before, selection, span};
use super::respond::{Respond, json, respond};
use super::rollup;
use crate::access::Caller;
use crate::calendar::{Selection, Unit};
use crate::chart::{Picture, SeriesChart, series};
use crate::openapi::{RangeParameters, ReadErrors};
use crate::problem::Problem;
use crate::query_string::QueryString;
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
    counts: Vec<Count>,
    /// First instant behind the range, Unix seconds.
    #[serde(skip)]
    ends: i64,
    /// What a picture is called.
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    provisional_from: Option<usize>,
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
        ReadErrors,
    ),
)]
pub async fn counts_of_all(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(namespace): Segments<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (_, format) = Format::of(uri.path(), &headers);
    let mut query = QueryString::parse(uri.query())?;
    let format = format.drawn(&mut query)?;
    let namespace = declared(&state.store().schema(), &namespace)?;
    let (as_of, now) = (as_of(&mut query)?, state.now());
    let chosen = selection(&mut query, now)?;
    let compared = match format {
        Format::Svg(_) => period_before(&chosen, now, &mut query)?,
        Format::Json | Format::Csv => None,
    };
    query.finish(KNOWN)?;
    blocking(&state, move |store| {
        let mut whole = read(store, &namespace, chosen, as_of, now)?;
        if let Some(selection) = compared {
            let before = read(store, &namespace, selection, as_of, now)?;
            whole.before = before.counts.into_iter().map(|row| row.count).collect();
        }
        respond(store, &whole, format, &headers, caller.has_key())
    })
    .await
}

fn read(
    store: &Store,
    namespace: &Namespace,
    selection: Selection,
    as_of: Option<u64>,
    now: i64,
) -> Result<Whole, Problem> {
    let (from, to) = span(&selection);
    let found = store.totals(&namespace.name, from..to, as_of)?;
    let starts = found.totals.keys().map(|code| code.start());
    let counted = starts.clone().min().zip(starts.max());
    let buckets = resolve(selection, counted)?;
    let totals = rollup::totals(&found.totals, &buckets);
    let grains = found.totals.keys().map(|code| code.grain().seconds());
    let grain = grains.fold(namespace.grain.seconds(), i64::max);
    let settled = store.settled_until(&namespace.name, now);
    Ok(Whole {
        namespace: namespace.name.clone(),
        head: Head::of(
            store,
            &buckets,
            buckets.aligned(grain),
            settled,
            found.generation,
        ),
        counts: counts(&buckets, &totals),
        total: rollup::sum(totals),
        title: format!("{}: all keys", namespace.title_or_name()),
        ends: buckets.end(),
        provisional_from: buckets.iter().position(|bucket| bucket.end > settled),
        before: Vec::new(),
    })
}

impl Respond for Whole {
    fn ends(&self) -> i64 {
        self.ends
    }

    fn identity(&self) -> impl Serialize {
        let counted = (self.total, &self.counts, &self.before);
        (&self.namespace, &self.title, self.head.identity(), counted)
    }

    fn render(&self, format: Format) -> Result<String, Problem> {
        match format {
            Format::Json => json(self),
            Format::Csv => Ok(rows(self)),
            Format::Svg(look) => Ok(picture(self, look)),
        }
    }
}

fn rows(answer: &Whole) -> String {
    let mut out = String::from("start,count\n");
    for row in &answer.counts {
        crate::csv::row(&mut out, &[&row.start, &row.count.to_string()]);
    }
    out
}

fn picture(answer: &Whole, picture: Picture) -> String {
    let points = answer.counts.iter();
    series(&SeriesChart {
        title: answer.title.clone(),
        subtitle: String::new(),
        unit: answer.head.unit.parse().unwrap_or(Unit::Day),
        zone: answer.head.timezone.clone(),
        points: points
            .map(|row| (row.start.to_string(), row.count))
            .collect(),
        provisional_from: answer.provisional_from,
        aligned: answer.head.aligned,
        summed: true,
        before: answer.before.clone(),
        picture,
    })
}
