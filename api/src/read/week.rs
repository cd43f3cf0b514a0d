//! `GET /v1/{namespace}/{key}/week`: at which hours of the week a key is counted.

use std::sync::Arc;

use axum::response::Response;
use jiff::civil::Date;
use serde::Serialize;
use tallyring_realtime::State;
use tallyring_records::{FieldError, sum_capped};

use super::answer::{Body, Head};
use super::answering::answer_all;
use super::csv::with_state;
use super::key::KeySegments;
use super::parameters::{KeyPath, RangeParameters};
use super::period::Period;
use super::question::{Question, Shape, check_key, counted};
use super::reply::Respond;
use super::request::{RANGE_PARAMETERS, ReadRequest};
use crate::access::Length;
use crate::calendar::{Buckets, Selection, Unit};
use crate::chart::{self, HeatChart, Picture, WEEKDAYS, heat};
use crate::problem::Result;
use crate::table::Table;

/// Days of the range unless asked otherwise: four whole weeks.
const DAYS_DEFAULT: &str = "28";

/// Counts of a key by weekday and hour.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct WeekAnswer {
    namespace: String,
    key: String,
    #[serde(flatten)]
    head: Head,
    total: u64,
    /// True where the total reached 2^53−1, up to which is counted: it may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<bool>,
    /// Monday first
    weekdays: Vec<Weekday>,
    /// Start of each hour of the range.
    #[serde(skip)]
    starts: Vec<Arc<str>>,
}

/// One weekday.
#[derive(Serialize, utoipa::ToSchema)]
struct Weekday {
    #[schema(example = "Mon")]
    weekday: &'static str,
    /// Sums over the range of each local hour, 0 to 23
    #[schema(min_items = 24, max_items = 24)]
    hours: Vec<u64>,
}

/// Counts of a key by weekday and hour
///
/// Sums over the range for each local hour of the week; the last 28 days unless asked otherwise. `unit`, `units`,
/// `from` and `to` choose the range as for counts; its hours are at most 10,000. Also as `/week.csv` and `/week.svg`,
/// or by `Accept`.
#[utoipa::path(get, path = "/v1/{namespace}/{key}/week", tag = "read",
    params(KeyPath, RangeParameters),
    responses((status = 200, description = "The sums", body = WeekAnswer, example = json!({
        "namespace": "l", "key": "abc", "unit": "hour", "timezone": "UTC",
        "from": "2012-02-18T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "total": 5,
        "weekdays": [{"weekday": "Mon", "hours": [0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}],
    }))),
)]
pub(crate) async fn week(mut request: ReadRequest<KeySegments>) -> Result<Response> {
    let (namespace, key) = request.take_path();
    let (mut query, format) = request.query()?;
    if !query.gives("from") {
        query.or("units", DAYS_DEFAULT);
    }
    let mut period = Period::parse(&mut query, request.now)?;
    query.finish(RANGE_PARAMETERS)?;
    let buckets = period.bounded()?;
    let (zone, last) = (buckets.zone().clone(), buckets.end() - 1);
    let hours = Buckets::covering(Unit::Hour, zone, buckets.start(), last).map_err(|_| {
        let detail =
            "must select at most 10,000 hours, which are 416 days; give fewer, or a later `from`";
        FieldError::refused("units", &buckets.count().to_string(), detail)
    })?;
    period.selection = Selection::Bounded(hours.clone());
    let schema = request.state.store().schema();
    let of = (&*namespace, counted(&schema, &namespace)?);
    check_key(&key)?;
    let question = Question::of(of, Some(key), Shape::Counts, period, None)?;
    let reply = request.reply(format);
    reply
        .answer(&request.state, Length::Short, move |reader, limits| {
            let answers = answer_all(reader, vec![question], limits);
            let mut answers = answers.map_err(|(_, problem)| problem)?;
            let answer = answers.pop().expect("BUG: one question gives one answer");
            let Body::Counts { counts } = &answer.body else {
                unreachable!("BUG: every hour was asked for")
            };
            let starts = hours.labels().iter().take(hours.count()).cloned();
            let starts: Vec<Arc<str>> = starts.collect();
            let week = week_of(&starts, counts.counts());
            let weekdays = WEEKDAYS.into_iter().zip(week);
            Ok(WeekAnswer {
                namespace: answer.namespace,
                key: answer.key.unwrap_or_default(),
                head: answer.head,
                total: answer.total,
                overflow: answer.overflow,
                weekdays: weekdays
                    .map(|(weekday, hours)| Weekday {
                        weekday,
                        hours: hours.to_vec(),
                    })
                    .collect(),
                starts,
            })
        })
        .await
}

/// Sums by the weekday and the hour that the starts of hours say.
fn week_of(starts: &[Arc<str>], counts: &[u64]) -> chart::Week {
    let mut week = chart::Week::default();
    for (start, &count) in starts.iter().zip(counts) {
        let date = start.get(..10).and_then(|date| date.parse::<Date>().ok());
        let hour = start
            .get(11..13)
            .and_then(|hour| hour.parse::<usize>().ok());
        let (Some(date), Some(hour @ 0..24)) = (date, hour) else {
            unreachable!("BUG: the start of an hour is RFC 3339")
        };
        let day = date.weekday().to_monday_zero_offset();
        let cell = &mut week[usize::from(day.unsigned_abs())][hour];
        *cell = sum_capped([*cell, count]);
    }
    week
}

impl Respond for WeekAnswer {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let asked = (&self.namespace, &self.key);
        (
            "week",
            asked,
            self.head.identity(),
            self.total,
            &self.weekdays,
        )
    }

    fn rows(&self) -> String {
        let state = self.head.told_state();
        let columns = with_state(&["weekday", "hour", "count"], state);
        let mut table = Table::of_counts(&columns, self.overflow.is_some());
        for Weekday { weekday, hours } in &self.weekdays {
            for (hour, &count) in hours.iter().enumerate() {
                let texts = [hour.to_string(), count.to_string()];
                let mut cells = vec![*weekday, &texts[0], &texts[1]];
                cells.extend(state.map(State::as_str));
                table.counted(&cells, count);
            }
        }
        table.end()
    }

    fn picture(&self, picture: Picture) -> Option<String> {
        let mut week = chart::Week::default();
        for (cells, day) in week.iter_mut().zip(&self.weekdays) {
            cells.copy_from_slice(&day.hours);
        }
        Some(heat(&HeatChart {
            title: format!("{}/{}", self.namespace, self.key),
            zone: self.head.timezone.to_string(),
            starts: self.starts.iter().map(|start| start.to_string()).collect(),
            week,
            aligned: self.head.aligned,
            picture,
        }))
    }
}
