//! Answers as pictures.

use super::answer::{Answer, Body};
use crate::chart::{Measure, Picture, RankingChart, SeriesChart, badge, human, ranking, series};

/// The picture of a series or a ranking; a badge for a total. None for rankings by bucket.
pub fn render(answer: &Answer, picture: Picture) -> Option<String> {
    let head = &answer.head;
    let title = format!("{}/{}", answer.namespace, answer.key);
    match &answer.body {
        Body::Summary {} => {
            let range = format!("{}, {}", head.dates(), head.timezone);
            Some(badge(&title, &human(answer.total), &range, picture.theme))
        }
        Body::Counts { counts } => Some(series(&SeriesChart {
            title,
            subtitle: String::new(),
            unit: head.unit,
            zone: head.timezone.to_string(),
            measure: Measure::Counts,
            points: counts
                .iter()
                .map(|(start, count)| (start.to_string(), count))
                .collect(),
            gaps: Vec::new(),
            provisional_from: head.provisional_from(),
            aligned: head.aligned,
            before: answer.before.clone(),
            picture,
        })),
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
