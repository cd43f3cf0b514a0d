//! `GET /v1/{namespace}/by`: all keys of a namespace together, by the values of a subtotal.

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::View;
use tallyring_records::sum_capped;

use super::answer::Head;
use super::answering::{overflow, resolve};
use super::csv;
use super::limits::ResponseLimits;
use super::parameters::{LimitParameter, RangeParameters};
use super::period::span;
use super::question::{Aspect, Question, Shape};
use super::reply::Respond;
use super::request::ReadRequest;
use super::rollup::{self, Breakdown};
use super::value::Value;
use super::whole::title_of;
use crate::access::Length;
use crate::chart::{Picture, RankingChart, ranking};
use crate::etag::NotModified;
use crate::problem::{Problem, Result};
use crate::refusals::ReadErrors;
use crate::table::Table;

/// All keys of a namespace by the values of a subtotal.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct NamespaceValues {
    namespace: String,
    #[serde(flatten)]
    head: Head,
    subtotal: String,
    /// The name by which people know the subtotal
    subtotal_title: String,
    total: u64,
    /// True where the total reached 2^53−1, up to which is counted: it, and what it is made of, may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<bool>,
    values: Vec<Value>,
    /// Sum of the values that are not listed
    other: u64,
    /// The name of the namespace in a picture.
    #[serde(skip)]
    title: String,
}

/// Breakdown of a namespace
///
/// All keys together by the values of a subtotal over the range, exact, largest first, ties by value; what had none
/// counts under `-`. Files keep sums of values by day, small ones by base bucket: whole days in UTC are read from them,
/// other ranges may read all lines. Also as `/by.csv` and `/by.svg`.
#[utoipa::path(get, path = "/v1/{namespace}/by", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        ("subtotal" = String, Query, description = "A declared subtotal of the namespace", example = "c"),
        RangeParameters,
        LimitParameter,
    ),
    responses(
        (status = 200, description = "The ranking", body = NamespaceValues, example = json!({
            "namespace": "l", "unit": "day", "timezone": "UTC",
            "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
            "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "subtotal": "c", "subtotal_title": "country",
            "total": 17, "values": [{"value": "US", "count": 12}, {"value": "-", "count": 5}], "other": 0,
        })),
        ReadErrors,
        NotModified,
    ),
)]
pub(crate) async fn by_of_all(request: ReadRequest<String>) -> Result<Response> {
    let (mut parameters, format) = request.query()?;
    let subtotal = parameters.take("subtotal")?.ok_or_else(|| {
        let detail = "must be given: a subtotal that the namespace declares";
        Problem::malformed("subtotal", "", detail)
    })?;
    let view = Aspect::Values(subtotal.into_owned());
    let (question, reply) = request.question((&request.path, None), view, (parameters, format))?;
    reply
        .answer(&request.state, Length::Long, move |reader, limits| {
            read(reader, question, limits)
        })
        .await
}

fn read(
    reader: &View<'_>,
    question: Question,
    limits: &mut ResponseLimits,
) -> Result<NamespaceValues> {
    let states = question.states(reader);
    let (base, limit) = (question.base, question.limit);
    let generation = question.period.as_of.unwrap_or(reader.generation());
    let selection = &question.period.selection;
    let ((first, end), (from, to)) = (base.span(selection), span(selection));
    let (namespace, Shape::By { subtotal, .. }) = (question.namespace, question.shape) else {
        unreachable!("BUG: the question is about values")
    };
    let source = question.period.source(reader, &[&namespace])?;
    let (reader, as_of) = (source.view(), source.as_of());
    let series = reader.values((&namespace, &subtotal), first..end, from..to, as_of)?;
    let buckets = resolve(question.period.selection, series.totals.span())?;
    let total = sum_capped(rollup::totals(&series.totals, &buckets));
    let aligned = base.aligned(&series.totals, &buckets);
    let (values, other) = Breakdown::new(reader, &series).of_range(limit)?;
    limits.take_values(values.iter().map(|value| value.value.as_str()))?;
    Ok(NamespaceValues {
        title: title_of(reader, &namespace),
        head: Head::of(reader, &buckets, aligned, states, generation),
        namespace,
        subtotal_title: reader.schema().title_of(&subtotal),
        subtotal,
        total,
        overflow: overflow(total),
        values,
        other,
    })
}

impl Respond for NamespaceValues {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let asked = (
            &self.namespace,
            &self.title,
            &self.subtotal,
            &self.subtotal_title,
        );
        (
            asked,
            self.head.identity(),
            (self.total, &self.values, self.other),
        )
    }

    fn rows(&self) -> String {
        let mut table = Table::of_counts(&["value", "count", "kind"], self.overflow.is_some());
        let values = self.values.iter();
        let values = values.map(|value| (value.value.as_str(), value.count));
        csv::ranking(&mut table, &[], values, self.other);
        table.end()
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let values = self.values.iter();
        Some(ranking(&RankingChart {
            title: format!("{}: all keys", self.title),
            by: self.subtotal_title.clone(),
            subtitle: self.head.dates(),
            values: values.map(|value| (value.shown(), value.count)).collect(),
            other: self.other,
            aligned: self.head.aligned,
            picture,
        }))
    }
}
