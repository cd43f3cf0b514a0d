//! The time axis: which buckets are labelled, and how times are written.
//!
//! A label names the first bucket of a period (of 6 hours, of a week, of a quarter…). The finest period
//! whose labels fit beside each other is taken. Only local readings matter here: of the two hours that
//! read the same after clocks went back, the first is labelled.

use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::text;
use super::theme::Role;
use crate::calendar::Unit;

/// Pixels between two labels, at least.
const GAP: f64 = 14.0;

/// Labels are only tried up to so many; more never fit in a picture's width.
const LABELS_MAX: usize = 64;

const MINUTES_A_DAY: i64 = 1_440;

/// Days from the Monday before 1970-01-01, a Thursday, to it; and from the Sunday.
const SINCE_MONDAY: i64 = 3;
const SINCE_SUNDAY: i64 = 4;

/// Local starts of buckets, in order.
pub(super) struct Timeline {
    unit: Unit,
    moments: Vec<Moment>,
}

/// A local reading.
#[derive(Clone, Copy)]
struct Moment {
    at: DateTime,
    /// Days since 1970-01-01.
    day: i64,
    /// Minutes since midnight; for units from a day on 0, though a day may begin later.
    minute: i64,
}

/// The length of a period.
#[derive(Clone, Copy)]
enum Period {
    /// Minutes that divide a day.
    Minutes(i64),
    Days(i64),
    /// Months that divide a year, or years of twelve.
    Months(i64),
}

/// Lengths of periods, shortest first.
const MINUTES: [i64; 11] = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720];
const DAYS: [i64; 4] = [1, 2, 7, 14];
const MONTHS: [i64; 12] = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1_200, 6_000];

/// A labelled bucket.
#[derive(Debug)]
pub(super) struct Tick {
    /// Its number in the series.
    pub index: usize,
    /// The text below the tick.
    pub label: String,
}

impl Timeline {
    /// Reads the starts (RFC 3339 with the local offset); `None` if one is no such time.
    pub(super) fn read<'a>(unit: Unit, starts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let moments = starts
            .map(|start| Moment::read(unit, start))
            .collect::<Option<Vec<Moment>>>()?;
        Some(Self { unit, moments })
    }

    /// The labels for buckets whose middles are where `middle` says, all inside `left` to `right`
    /// (pixels), without overlap.
    pub(super) fn ticks(&self, middle: impl Fn(usize) -> f64, left: f64, right: f64) -> Vec<Tick> {
        let days = DAYS.map(Period::Days).into_iter();
        let longer = days.chain(MONTHS.map(Period::Months));
        let periods = MINUTES.map(Period::Minutes).into_iter().chain(longer);
        let periods = periods.filter(|period| period.is_at_least(self.unit));
        for (rank, period) in periods.enumerate() {
            let Some(mut ticks) = self.begins(period, rank == 0) else {
                continue;
            };
            let extent = |tick: &Tick| {
                let half = text::width(&tick.label, Role::Label.text_px()) / 2.0;
                (middle(tick.index) - half, middle(tick.index) + half)
            };
            ticks.retain(|tick| extent(tick).0 >= left && extent(tick).1 <= right);
            let fits = ticks
                .windows(2)
                .all(|pair| extent(&pair[0]).1 + GAP <= extent(&pair[1]).0);
            if fits {
                return ticks;
            }
        }
        Vec::new()
    }

    /// When a bucket begins, for a sentence: `Mar 10, 2012`, `Mar 10, 2012, 14:00`, `Q1 2012`.
    pub(super) fn describe(&self, index: usize) -> String {
        let moment = self.moments[index];
        match self.unit {
            Unit::Minute | Unit::Hour => format!("{}, {}", moment.date_of_year(), moment.time()),
            Unit::Day | Unit::Week | Unit::Mweek => moment.date_of_year(),
            Unit::Month => moment.month_of_year(),
            Unit::Quarter => moment.quarter(),
            Unit::Year => moment.year().to_string(),
        }
    }

    /// From when to when it reaches, by the starts of its first and last bucket: what both share is said once.
    pub(super) fn range(&self) -> String {
        let Some(last) = self.moments.len().checked_sub(1) else {
            return String::new();
        };
        if last == 0 {
            return self.describe(0);
        }
        range(self.unit, &self.moments[0], &self.moments[last])
    }

    /// The first buckets of each period, unless there are too many to label. Every bucket of the
    /// shortest period is one.
    fn begins(&self, period: Period, is_shortest: bool) -> Option<Vec<Tick>> {
        let key = |moment: &Moment| period.number(self.unit, moment);
        let mut firsts = Vec::new();
        for (index, moment) in self.moments.iter().enumerate() {
            // Whether the first bucket begins a longer period is read from itself.
            let is_first = match index.checked_sub(1) {
                Some(before) => key(&self.moments[before]) < key(moment),
                None => is_shortest || period.begins_at(self.unit, moment),
            };
            if is_first {
                firsts.push(index);
            }
            if firsts.len() > LABELS_MAX {
                return None;
            }
        }
        let mut year_before = None;
        let ticks = firsts.into_iter().map(|index| {
            let year = self.moments[index].year();
            let is_new_year = year_before
                .replace(year)
                .is_some_and(|before| before != year);
            let label = self.label(period, index, is_new_year);
            Tick { index, label }
        });
        Some(ticks.collect())
    }

    fn label(&self, period: Period, index: usize, is_new_year: bool) -> String {
        let moment = self.moments[index];
        match period {
            Period::Minutes(_) => {
                let is_new_day = match index.checked_sub(1) {
                    Some(before) => self.moments[before].day != moment.day,
                    None => moment.minute == 0,
                };
                if is_new_day {
                    moment.date()
                } else {
                    moment.time()
                }
            }
            Period::Days(_) if is_new_year => moment.date_of_year(),
            Period::Days(_) => moment.date(),
            Period::Months(months) if months % 12 == 0 => moment.year().to_string(),
            Period::Months(_) if self.unit == Unit::Quarter => moment.quarter(),
            Period::Months(_) => moment.month_of_year(),
        }
    }
}

impl Period {
    /// Whether a bucket of `unit` is never longer.
    fn is_at_least(self, unit: Unit) -> bool {
        let (minutes, days, months) = match unit {
            Unit::Minute => (1, 1, 1),
            Unit::Hour => (60, 1, 1),
            Unit::Day => (i64::MAX, 1, 1),
            Unit::Week | Unit::Mweek => (i64::MAX, 7, 1),
            Unit::Month => (i64::MAX, i64::MAX, 1),
            Unit::Quarter => (i64::MAX, i64::MAX, 3),
            Unit::Year => (i64::MAX, i64::MAX, 12),
        };
        match self {
            Period::Minutes(length) => length >= minutes,
            Period::Days(length) => length >= days,
            Period::Months(length) => length >= months,
        }
    }

    /// The number of the period that holds `moment`.
    fn number(self, unit: Unit, moment: &Moment) -> i64 {
        match self {
            Period::Minutes(length) => {
                (moment.day * MINUTES_A_DAY + moment.minute).div_euclid(length)
            }
            Period::Days(length) => since_week(unit, moment.day).div_euclid(length),
            Period::Months(length) => moment.month().div_euclid(length),
        }
    }

    /// Whether a period begins at `moment`.
    fn begins_at(self, unit: Unit, moment: &Moment) -> bool {
        match self {
            Period::Minutes(length) => moment.minute % length == 0,
            Period::Days(length) => {
                moment.minute == 0 && since_week(unit, moment.day).rem_euclid(length) == 0
            }
            Period::Months(length) => {
                moment.minute == 0 && moment.at.day() == 1 && moment.month() % length == 0
            }
        }
    }
}

/// The dates from one label to another (RFC 3339 with the local offset), or its times where `unit` is shorter than a
/// day: `Oct 23 – Nov 21, 2026`, `Nov 21, 2026, 18:00 – 19:59`. Labels that are no such times as they are.
pub fn dates(unit: Unit, from: &str, last: &str) -> String {
    let unit = match unit {
        Unit::Minute | Unit::Hour => unit,
        _ => Unit::Day,
    };
    match (Moment::read(unit, from), Moment::read(unit, last)) {
        (Some(from), Some(last)) if unit == Unit::Day && from.day == last.day => {
            from.date_of_year()
        }
        (Some(from), Some(last)) => range(unit, &from, &last),
        _ => format!("{from} – {last}"),
    }
}

fn range(unit: Unit, from: &Moment, last: &Moment) -> String {
    let is_same_year = from.year() == last.year();
    match unit {
        Unit::Minute | Unit::Hour if from.day == last.day => {
            format!("{}, {} – {}", from.date_of_year(), from.time(), last.time())
        }
        Unit::Minute | Unit::Hour => {
            let day = if is_same_year {
                from.date()
            } else {
                from.date_of_year()
            };
            format!(
                "{day}, {} – {}, {}",
                from.time(),
                last.date_of_year(),
                last.time()
            )
        }
        Unit::Day | Unit::Week | Unit::Mweek if is_same_year => {
            format!("{} – {}", from.date(), last.date_of_year())
        }
        Unit::Day | Unit::Week | Unit::Mweek => {
            format!("{} – {}", from.date_of_year(), last.date_of_year())
        }
        Unit::Month if is_same_year => {
            format!("{} – {}", from.month_name(), last.month_of_year())
        }
        Unit::Month => format!("{} – {}", from.month_of_year(), last.month_of_year()),
        Unit::Quarter => format!("{} – {}", from.quarter(), last.quarter()),
        Unit::Year => format!("{} – {}", from.year(), last.year()),
    }
}

/// Days since a first day of a week before 1970.
fn since_week(unit: Unit, day: i64) -> i64 {
    day + if unit == Unit::Week {
        SINCE_SUNDAY
    } else {
        SINCE_MONDAY
    }
}

impl Moment {
    fn read(unit: Unit, start: &str) -> Option<Self> {
        // A civil time is read from what stands before the offset; `Z` has none to ignore.
        let at: DateTime = start.trim_end_matches('Z').parse().ok()?;
        let seconds = Offset::UTC.to_timestamp(at).ok()?.as_second();
        let minute = match unit {
            Unit::Minute | Unit::Hour => seconds.rem_euclid(86_400) / 60,
            _ => 0,
        };
        Some(Self {
            at,
            day: seconds.div_euclid(86_400),
            minute,
        })
    }

    fn year(&self) -> i16 {
        self.at.year()
    }

    /// Months since year 0.
    fn month(&self) -> i64 {
        i64::from(self.year()) * 12 + i64::from(self.at.month()) - 1
    }

    fn time(&self) -> String {
        format!("{:02}:{:02}", self.at.hour(), self.at.minute())
    }

    fn month_name(&self) -> String {
        self.at.strftime("%b").to_string()
    }

    fn date(&self) -> String {
        format!("{} {}", self.month_name(), self.at.day())
    }

    fn date_of_year(&self) -> String {
        format!("{}, {}", self.date(), self.year())
    }

    fn month_of_year(&self) -> String {
        format!("{} {}", self.month_name(), self.year())
    }

    fn quarter(&self) -> String {
        format!("Q{} {}", (self.at.month() - 1) / 3 + 1, self.year())
    }
}
