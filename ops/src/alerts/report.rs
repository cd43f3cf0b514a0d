//! The counts of a week or a month, which receivers get once its last day has settled.

use jiff::civil::Date;
use serde_json::json;
use tallyring_api::Table;
use tallyring_api::calendar::{Bucket, Buckets, Unit};
use tallyring_api::chart::{Measure, Picture, SeriesChart, series};
use tallyring_realtime::{Result, View};
use tallyring_records::{grouped, sum_capped};

use super::counted::{Coarse, Counted};
use super::message::{Attached, Message};
use crate::config::Report;
use crate::escape::visible;

/// Counts before the earlier period show that it is covered, seconds.
const COVERS_S: i64 = 31 * 86_400;

/// A period that is over.
pub(super) struct Told {
    /// Its end, Unix seconds.
    pub until: i64,
    /// None for what nobody asked for: a report begins with the period that ends next.
    pub message: Option<Message>,
}

/// The report that is due where periods up to `told_until` were told, and all before `settled` has settled (both Unix
/// seconds); none where none is. After several periods that were missed, the last one is told. Fails as reads of the
/// view do.
pub(super) fn due(
    view: &View<'_>,
    (name, report): (&str, &Report),
    told_until: Option<i64>,
    settled: i64,
) -> Result<Option<Told>> {
    let (unit, zone) = (report.every, &report.zone);
    let until = Bucket::holding(unit, zone, settled).start;
    let message = match told_until {
        Some(told) if told >= until => return Ok(None),
        None => None,
        Some(_) => Period::read(view, report, until)?.map(|period| period.message(name, report)),
    };
    Ok(Some(Told { until, message }))
}

/// The days of a period.
struct Period {
    bucket: Bucket,
    /// Starts of the days in the zone, and their counts.
    days: Vec<(String, u64)>,
    /// Counts of the days of the period before; none where counting only began within it.
    before: Option<Vec<u64>>,
    is_aligned: bool,
}

impl Period {
    /// The period that ends at `until`, Unix seconds; none before the year 2000.
    fn read(view: &View<'_>, report: &Report, until: i64) -> Result<Option<Self>> {
        let zone = &report.zone;
        let bucket = Bucket::holding(report.every, zone, until - 1);
        let before = Bucket::holding(report.every, zone, bucket.start - 1);
        let from = before.start - COVERS_S;
        let Ok(days) = Buckets::covering(Unit::Day, zone.clone(), from, until - 1) else {
            return Ok(None);
        };
        let counted = Counted::read(view, &report.of, &days, Coarse::Counted)?;
        let counts = |of: Bucket| {
            let days = days.iter().zip(&counted.counts);
            days.filter(move |(day, _)| (of.start..of.end).contains(&day.start))
        };
        let namespace = view.schema().namespace(&report.of.namespace);
        let is_covered = counted.first.is_some_and(|first| first <= before.start);
        Ok(Some(Self {
            bucket,
            days: counts(bucket)
                .map(|(day, count)| (zone.label(day.start), *count))
                .collect(),
            before: is_covered.then(|| counts(before).map(|(_, count)| *count).collect()),
            is_aligned: !counted.is_cut
                && namespace.is_none_or(|of| days.aligned(of.grain.seconds())),
        }))
    }

    fn message(&self, name: &str, report: &Report) -> Message {
        let total = sum_capped(self.days.iter().map(|(_, count)| *count));
        let before = (self.before.as_ref()).map(|counts| sum_capped(counts.iter().copied()));
        let period = match report.every {
            Unit::Month => "month",
            _ => "week",
        };
        let first = date(&self.days[0].0);
        let change = match before {
            Some(before) if before > 0 => {
                let change = 100.0 * (total as f64 / before as f64 - 1.0);
                format!(" ({change:+.1} %)")
            }
            _ => String::new(),
        };
        let (of, id) = (
            report.of.to_string(),
            format!("{name}-{}-report", self.bucket.start),
        );
        let counted = grouped(total);
        let shown = visible(&of);
        let mut text = format!("{shown}: {counted} in the {period} from {first}{change}");
        let subject = text.clone();
        if let Some(before) = before {
            text.push_str(&format!("\nthe {period} before: {}", grouped(before)));
        }
        text.push_str(&self.table(report));
        let file = |ending: &str| format!("{name}-{first}.{ending}");
        Message {
            kind: format!("report.{period}"),
            at: self.bucket.end,
            subject,
            text,
            data: json!({
                "id": id,
                "report": name,
                "of": of,
                "every": period,
                "timezone": report.zone.name(),
                "from": report.zone.label(self.bucket.start),
                "to": report.zone.label(self.bucket.end),
                "total": total,
                "before": before,
                "counts": self.days.iter().map(|(start, count)| json!({ "start": start, "count": count }))
                    .collect::<Vec<_>>(),
            }),
            attachments: vec![
                Attached {
                    name: file("svg"),
                    kind: "image/svg+xml".to_owned(),
                    content: self.picture(&of, report),
                },
                Attached {
                    name: file("csv"),
                    kind: "text/csv; charset=utf-8".to_owned(),
                    content: self.rows(),
                },
            ],
            id,
        }
    }

    /// The days for people.
    fn table(&self, report: &Report) -> String {
        let rows = self.days.iter().map(|(start, count)| {
            let day = date(start).parse::<Date>();
            let weekday = day.map_or(String::new(), |day| day.strftime("%a").to_string());
            format!("\n{} {weekday} {:>20}", date(start), grouped(*count))
        });
        let rows: String = rows.collect();
        format!("\n{rows}\n\nDays are those of {}.\n", report.zone.name())
    }

    fn picture(&self, of: &str, report: &Report) -> String {
        series(&SeriesChart {
            title: of.to_owned(),
            subtitle: String::new(),
            unit: Unit::Day,
            zone: report.zone.name().to_owned(),
            measure: Measure::Counts,
            points: self.days.clone(),
            gaps: Vec::new(),
            provisional_from: None,
            not_final: Vec::new(),
            aligned: self.is_aligned,
            before: self.before.clone().unwrap_or_default(),
            before_name: match report.every {
                Unit::Month => "the month before",
                _ => "the week before",
            },
            is_before_covered: self.before.is_some(),
            picture: Picture::default(),
        })
    }

    fn rows(&self) -> String {
        let mut table = Table::new(&["start", "count"]);
        for (start, count) in &self.days {
            table.row(&[start, &count.to_string()]);
        }
        table.end()
    }
}

/// The date of an RFC 3339 time.
fn date(time: &str) -> &str {
    time.split_once('T').map_or(time, |(date, _)| date)
}
