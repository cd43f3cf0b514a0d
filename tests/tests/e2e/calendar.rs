//! The buckets that an answer must list, by jiff alone.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit, ZonedDateTime};

/// The buckets of one unit in one zone.
pub(crate) struct Buckets {
    /// `hour` or `day`.
    pub unit: &'static str,
    /// IANA name.
    pub zone: &'static str,
    /// Starts, and the end of the last one: Unix seconds.
    edges: Vec<i64>,
    /// The instants as answers write them.
    labels: Vec<String>,
}

impl Buckets {
    /// The days of `zone` that begin on `first` to `last`.
    pub(crate) fn days(zone: &'static str, first: Date, last: Date) -> Self {
        let time_zone = TimeZone::get(zone).expect("a zone");
        let start = |date: Date| date.to_zoned_datetime(time_zone.clone()).expect("a day");
        let after = last.tomorrow().expect("a date");
        let days = first.series(jiff::Span::new().days(1));
        let edges = days.take_while(|date| *date <= after).map(start);
        Self::new("day", zone, edges.collect())
    }

    /// The hours of the same days.
    pub(crate) fn hours(zone: &'static str, first: Date, last: Date) -> Self {
        let days = Self::days(zone, first, last);
        let time_zone = TimeZone::get(zone).expect("a zone");
        let local = |at| ZonedDateTime::new(timestamp(at), time_zone.clone());
        // Whole hours stay whole over the changes of daylight saving in every zone that is used.
        let edges = (days.start()..=days.end()).step_by(3_600).map(local);
        Self::new("hour", zone, edges.collect())
    }

    fn new(unit: &'static str, zone: &'static str, edges: Vec<ZonedDateTime>) -> Self {
        for edge in &edges {
            let rounded = edge.round(Unit::Hour).expect("an hour");
            assert_eq!(*edge, rounded, "begins at a full hour");
        }
        Self {
            unit,
            zone,
            labels: edges.iter().map(label).collect(),
            edges: edges
                .iter()
                .map(|edge| edge.timestamp().as_second())
                .collect(),
        }
    }

    fn start(&self) -> i64 {
        self.edges[0]
    }

    fn end(&self) -> i64 {
        *self.edges.last().expect("edges")
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.edges.len() - 1
    }

    /// The bucket that holds this instant, which lies in the range.
    pub(crate) fn holding(&self, at: i64) -> usize {
        assert!((self.start()..self.end()).contains(&at), "{at} is outside");
        self.edges.partition_point(|&edge| edge <= at) - 1
    }

    /// How answers write the start of a bucket, or with [`Self::count`] the end of the last one.
    pub(crate) fn label(&self, index: usize) -> &str {
        &self.labels[index]
    }

    /// Whether UTC's hours divide into these buckets.
    pub(crate) fn aligned(&self) -> bool {
        self.edges.iter().all(|edge| edge % 3_600 == 0)
    }

    /// The parameters that ask for them: from the first to the last instant.
    pub(crate) fn query(&self) -> String {
        let (from, to) = (self.start(), self.end() - 1);
        format!(
            "unit={}&timezone={}&from={from}&to={to}",
            self.unit, self.zone
        )
    }
}

fn label(edge: &ZonedDateTime) -> String {
    edge.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

fn timestamp(at: i64) -> Timestamp {
    Timestamp::from_second(at).expect("an instant")
}
