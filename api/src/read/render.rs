//! The answer to a read of counts as JSON, CSV and SVG.

use serde::Serialize;

use super::answer::{Answer, Body};
use super::csv;
use super::reply::Respond;
use super::text::written;
use crate::chart::{Picture, RankingChart, badge, human, ranking, series};
use crate::problem::Result;

impl Respond for Answer {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let subtotal = (&self.subtotal, &self.subtotal_title);
        let only = (&self.only, &self.title);
        let asked = (&self.namespace, &self.key, only, subtotal);
        // Where the buckets of counts begin follows from the range.
        let (counts, rest) = match &self.body {
            Body::Counts { counts } => (Some(counts), None),
            rest => (None, Some(rest)),
        };
        let counted = (self.total, counts, rest);
        let beside = (&self.before, &self.filtered);
        (asked, self.head.identity(), counted, beside)
    }

    fn json(&self) -> Result<Vec<u8>> {
        written(|text| self.write_json(text))
    }

    fn rows(&self) -> String {
        csv::render(self)
    }

    /// A badge for a total.
    fn picture(&self, picture: Picture) -> Option<String> {
        let head = &self.head;
        let title = match (&self.title, &self.key) {
            (None, Some(key)) => format!("{}/{key}", self.namespace),
            (title, _) => title.clone().unwrap_or_default(),
        };
        match &self.body {
            Body::Summary {} => {
                let range = format!("{}, {}", head.dates(), head.timezone);
                Some(badge(&title, &human(self.total), &range, picture.theme))
            }
            Body::Counts { counts } => {
                let before = self.before.as_ref();
                Some(series(&head.chart(title, counts.iter(), before, picture)))
            }
            Body::Rolled { values, other } => Some(ranking(&RankingChart {
                title,
                by: self.subtotal_title.clone().unwrap_or_default(),
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
}
