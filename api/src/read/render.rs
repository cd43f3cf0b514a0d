//! The answer to a read of one key as JSON, CSV and SVG.

use serde::Serialize;

use super::answer::{Answer, Body};
use super::csv;
use super::format::Format;
use super::reply::Respond;
use super::text::written;
use crate::chart::{Picture, RankingChart, badge, human, ranking, series};
use crate::problem::Problem;

impl Respond for Answer {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let subtotal = (&self.subtotal, &self.subtotal_title);
        let asked = (&self.namespace, &self.key, subtotal);
        // Where the buckets of counts begin follows from the range.
        let (counts, rest) = match &self.body {
            Body::Counts { counts } => (Some(counts), None),
            rest => (None, Some(rest)),
        };
        let counted = (self.total, counts, rest);
        (asked, self.head.identity(), counted, &self.before)
    }

    fn render(&self, format: Format) -> Result<Vec<u8>, Problem> {
        match format {
            Format::Json => written(|text| self.write_json(text)),
            Format::Csv => Ok(csv::render(self).into_bytes()),
            Format::Svg(picture) => picture_of(self, picture)
                .map(String::into_bytes)
                .ok_or_else(|| {
                    let detail =
                        "must be csv or json for rankings by bucket, or give `rollup=true`";
                    Problem::unknown("format", "svg", detail)
                }),
        }
    }
}

/// The picture of a series or a ranking; a badge for a total. None for rankings by bucket.
fn picture_of(answer: &Answer, picture: Picture) -> Option<String> {
    let head = &answer.head;
    let title = format!("{}/{}", answer.namespace, answer.key);
    match &answer.body {
        Body::Summary {} => {
            let range = format!("{}, {}", head.dates(), head.timezone);
            Some(badge(&title, &human(answer.total), &range, picture.theme))
        }
        Body::Counts { counts } => {
            let before = answer.before.as_ref();
            Some(series(&head.chart(title, counts.iter(), before, picture)))
        }
        Body::Rolled { values, other } => Some(ranking(&RankingChart {
            title,
            by: answer.subtotal_title.clone().unwrap_or_default(),
            subtitle: head.dates(),
            values: values
                .iter()
                .map(|value| (value.shown(), value.count))
                .collect(),
            other: *other,
            aligned: head.aligned,
            picture,
        })),
        Body::Buckets { .. } => None,
    }
}
