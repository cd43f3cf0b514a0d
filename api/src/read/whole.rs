//! `GET /v1/{namespace}/counts`: all keys of a namespace together, by bucket.

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::View;
use tallyring_records::{filtered_of, sum_capped};

use super::answer::Head;
use super::answering::{overflow, resolve};
use super::before::{Before, is_covered};
use super::bucket_counts::{BucketCounts, Count};
use super::filtered::Filtered;
use super::limits::ResponseLimits;
use super::parameters::{CompareParameter, FilteredParameter, RangeParameters};
use super::question::{Aspect, Question};
use super::reply::Respond;
use super::request::ReadRequest;
use super::rollup;
use super::text::written;
use crate::access::Length;
use crate::chart::{Picture, series};
use crate::etag::NotModified;
use crate::problem::Result;
use crate::refusals::ReadErrors;
use crate::table::Table;

/// Counts of all keys of a namespace.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct NamespaceCounts {
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
    /// The title of a picture.
    #[serde(skip)]
    title: String,
    /// With `compare=before`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    before: Option<Before>,
    /// With `filtered=true`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    filtered: Option<Filtered>,
}

/// Counts of a namespace by bucket
///
/// All keys together, exact, from sums that files keep. Also as `/counts.csv` and
/// `/counts.svg`, which takes what the picture of a key's counts takes.
#[utoipa::path(get, path = "/v1/{namespace}/counts", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        RangeParameters,
        CompareParameter,
        FilteredParameter,
    ),
    responses(
        (status = 200, description = "The counts", body = NamespaceCounts, example = json!({
            "namespace": "l", "unit": "day", "timezone": "UTC",
            "from": "2012-03-15T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 17,
            "counts": [
                {"start": "2012-03-15T00:00:00+00:00", "count": 5},
                {"start": "2012-03-16T00:00:00+00:00", "count": 12},
            ],
        })),
        ReadErrors,
        NotModified,
    ),
)]
pub(crate) async fn counts_of_all(request: ReadRequest<String>) -> Result<Response> {
    let query = request.query()?;
    let (mut question, reply) = request.question((&request.path, None), Aspect::Counts, query)?;
    reply
        .answer(&request.state, Length::Long, move |reader, limits| {
            let before = question.before.take();
            let filtered = question.filtered.take();
            let mut answer = read(reader, question, limits)?;
            if let Some(asked) = filtered {
                let filtered = read(reader, asked.counts, limits)?;
                let counts = filtered.counts.into_counts();
                answer.filtered = Some(Filtered::of(filtered.total, answer.total, counts));
            }
            if let Some(before) = before {
                let covered = is_covered(reader, &before)?;
                let counts = read(reader, *before, limits)?.counts.into_counts();
                answer.before = Some(Before { covered, counts });
            }
            Ok(answer)
        })
        .await
}

fn read(
    reader: &View<'_>,
    question: Question,
    limits: &mut ResponseLimits,
) -> Result<NamespaceCounts> {
    let states = question.states(reader);
    let base = question.base;
    let generation = question.period.as_of.unwrap_or(reader.generation());
    let (from, to) = base.span(&question.period.selection);
    let namespace = question.namespace;
    let source = question.period.source(reader, &[&namespace])?;
    let (reader, as_of) = (source.view(), source.as_of());
    let found = reader.totals(&namespace, from..to, base.by_minute(), as_of)?;
    let buckets = resolve(question.period.selection, found.totals.span())?;
    base.check_kept(&buckets, found.minutes_from, &found.totals)?;
    limits.take_buckets(buckets.count(), &question.shape)?;
    let totals = rollup::totals(&found.totals, &buckets);
    let aligned = base.aligned(&found.totals, &buckets);
    let total = sum_capped(totals.iter().copied());
    let head = Head::of(reader, &buckets, aligned, states, generation);
    Ok(NamespaceCounts {
        total,
        overflow: overflow(total),
        title: format!("{}: all keys", title_of(reader, &namespace)),
        namespace,
        counts: BucketCounts::new(buckets, totals, head.bucket_states()),
        head,
        before: None,
        filtered: None,
    })
}

/// The name by which people know a namespace.
pub(crate) fn title_of(reader: &View<'_>, name: &str) -> String {
    let schema = reader.schema();
    let declared = filtered_of(name);
    let namespace = schema.namespace(declared.unwrap_or(name));
    let title = namespace.map_or(name, |namespace| namespace.title_or_name());
    match declared {
        Some(_) => format!("{title}, filtered"),
        None => title.to_owned(),
    }
}

impl Respond for NamespaceCounts {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let counted = (self.total, &self.counts, &self.before, &self.filtered);
        (&self.namespace, &self.title, self.head.identity(), counted)
    }

    fn json(&self) -> Result<Vec<u8>> {
        written(|text| self.counts.write_json_behind(self, text))
    }

    fn rows(&self) -> String {
        let filtered = self.filtered.as_ref();
        let columns = self.counts.columns(filtered);
        let mut table = Table::of_counts(&columns, self.overflow.is_some());
        self.counts.add_rows(filtered, &mut table);
        table.end()
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let NamespaceCounts { title, counts, .. } = self;
        let before = self.before.as_ref();
        let chart = self
            .head
            .chart(title.clone(), counts.iter(), before, picture);
        Some(series(&chart))
    }
}
