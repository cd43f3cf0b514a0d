//! Charts for tests, and the pictures to look at.

use jiff::civil::{DateTime, date};
use jiff::{Span, ToSpan};

use super::super::{
    HeatChart, LinesChart, Measure, Picture, RankingChart, SeriesChart, Theme, WaterfallChart,
    badge, heat, human, lines, ranking, series, waterfall,
};
use crate::calendar::Unit;

/// The span of a bucket.
fn span(unit: Unit) -> Span {
    match unit {
        Unit::Minute => 1.minute(),
        Unit::Hour => 1.hour(),
        Unit::Day => 1.day(),
        Unit::Week | Unit::Mweek => 1.week(),
        Unit::Month => 1.month(),
        Unit::Quarter => 3.months(),
        Unit::Year => 1.year(),
    }
}

/// A plausible count with a daily and a weekly rhythm.
pub(super) fn plausible(index: usize) -> u64 {
    let rhythm = [3, 2, 1, 1, 2, 4, 7, 9, 11, 12, 12, 11];
    let noise = index.wrapping_mul(2_654_435_761) % 97;
    rhythm[index % 12] * 900 + noise as u64 * 31
}

/// A series of buckets from `first` on.
pub(super) fn chart(unit: Unit, first: DateTime, counts: Vec<u64>) -> SeriesChart {
    let points = counts.into_iter().enumerate().map(|(index, count)| {
        let start = first + span(unit) * (index as i64);
        (format!("{start}-05:00"), count)
    });
    SeriesChart {
        title: "l/A6qOVH".to_owned(),
        subtitle: String::new(),
        unit,
        zone: "America/New_York".to_owned(),
        measure: Measure::Counts,
        points: points.collect(),
        gaps: Vec::new(),
        provisional_from: None,
        not_final: Vec::new(),
        aligned: true,
        before: Vec::new(),
        before_name: "the period before",
        is_before_covered: true,
        picture: Picture::default(),
    }
}

/// A series of buckets from March 10th, 2012 on.
pub(super) fn march(unit: Unit, counts: Vec<u64>) -> SeriesChart {
    chart(unit, date(2012, 3, 10).at(0, 0, 0, 0), counts)
}

/// A ranking with all it may have.
pub(super) fn countries() -> RankingChart {
    let values = [
        ("US", 41_234),
        ("DE", 9_870),
        ("-", 4_411),
        ("JP", 977),
        ("IS", 1),
    ];
    RankingChart {
        title: "l/A6qOVH".to_owned(),
        by: "country".to_owned(),
        aligned: true,
        subtitle: "Mar 10 – Mar 16, 2012".to_owned(),
        values: values
            .map(|(name, count)| (name.to_owned(), count))
            .to_vec(),
        other: 12_000,
        picture: Picture::default(),
    }
}

/// A waterfall with all it may have.
fn fall() -> WaterfallChart {
    let named = |(name, number): (&str, i64)| (name.to_owned(), number);
    WaterfallChart {
        title: "2012-03-16: click, version 2".to_owned(),
        subtitle: "104,500 came · 97,350 final · 1,900 undecided, decision rate 98.2%".to_owned(),
        first: named(("all that came", 104_500)),
        differences: [
            ("duplicates of the day", -1_250),
            ("duplicates of other days", -3),
            ("filtered as it came", -5_247),
            ("rule crawlers_and_scrapers", -1_150),
            ("brought back from office", 502),
            ("voided by hand", -2),
        ]
        .map(named)
        .to_vec(),
        last: named(("final", 97_350)),
        picture: Picture::default(),
    }
}

/// Small shares, of which the last may still change.
fn shares() -> SeriesChart {
    let mut shares = march(
        Unit::Day,
        vec![
            5_230_000, 4_999_999, 0, 6_100_000, 7_120_000, 5_511_000, 640_000,
        ],
    );
    shares.title = "ctr of ad/42: click / impression".to_owned();
    shares.subtitle = "0.534% in all: 1,234 of 231,086".to_owned();
    shares.measure = Measure::Shares;
    shares.provisional_from = Some(6);
    shares
}

/// Every picture of the gallery, with its name.
pub(super) fn gallery() -> Vec<(&'static str, String)> {
    let mut week = march(Unit::Day, vec![1_204, 980, 0, 2_318, 1_730, 1_502, 640]);
    week.provisional_from = Some(6);
    let mut hours = march(Unit::Hour, (0..48).map(plausible).collect());
    hours.aligned = false;
    hours.subtitle = "clicks".to_owned();
    hours.provisional_from = Some(46);
    let gaps = |index: usize| {
        if (40..90).contains(&index) {
            0
        } else {
            plausible(index)
        }
    };
    let mut days = march(Unit::Day, (0..200).map(gaps).collect());
    days.provisional_from = Some(180);
    let months = march(
        Unit::Month,
        (0..36).map(|index| plausible(index) * 4_321).collect(),
    );
    let minutes = march(
        Unit::Minute,
        (0..10_000).map(|index| plausible(index / 60)).collect(),
    );
    let weeks = march(Unit::Mweek, (0..53).map(plausible).collect());
    let mut long = countries();
    let address = "https://news.example.org/2012/03/a-rather-long-headline?a=1&b=<2>";
    long.by = "referrer".to_owned();
    long.values = (0..60)
        .map(|index| (format!("{address}{index}"), 9_000 / (index + 1)))
        .collect();
    let empty = RankingChart {
        values: Vec::new(),
        other: 0,
        ..countries()
    };
    let mut pictures = vec![
        ("week", series(&week)),
        ("shares", series(&shares())),
        ("hours", series(&hours)),
        ("days", series(&days)),
        ("months", series(&months)),
        ("weeks", series(&weeks)),
        ("minutes", series(&minutes)),
        ("one", series(&march(Unit::Year, vec![7]))),
        ("nothing", series(&march(Unit::Day, vec![0; 7]))),
        ("none", series(&march(Unit::Day, Vec::new()))),
        ("countries", ranking(&countries())),
        ("referrers", ranking(&long)),
        ("ranking_of_nothing", ranking(&empty)),
        (
            "badge",
            badge(
                "clicks",
                &human(12_345),
                "Mar 10 – 16, 2012, UTC",
                Theme::Auto,
            ),
        ),
    ];
    pictures.extend(hatched(&week, &days));
    pictures.extend(falls());
    pictures.extend(compared());
    pictures
}

/// Several keys over so many buckets.
pub(super) fn keys(names: &[&str], buckets: usize) -> LinesChart {
    let points = march(Unit::Day, vec![0; buckets]).points;
    let counts =
        |key: usize| (0..buckets).map(move |index| plausible(index * (key + 1)) / (key as u64 + 1));
    let named = names.iter().enumerate();
    LinesChart {
        title: "Comparison".to_owned(),
        unit: Unit::Day,
        zone: "America/New_York".to_owned(),
        starts: points.into_iter().map(|(start, _)| start).collect(),
        lines: named
            .map(|(key, name)| ((*name).to_owned(), counts(key).collect()))
            .collect(),
        provisional_from: None,
        not_final: Vec::new(),
        aligned: true,
        picture: Picture::default(),
    }
}

/// A week in which the busiest hour has `most`.
pub(super) fn hours(most: u64) -> HeatChart {
    let points = march(Unit::Hour, vec![0; 168]).points;
    let mut week = [[0; 24]; 7];
    for (day, hours) in week.iter_mut().enumerate() {
        for (hour, count) in hours.iter_mut().enumerate() {
            *count = most * (day * hour) as u64 / (6 * 23);
        }
    }
    HeatChart {
        title: "l/A6qOVH".to_owned(),
        zone: "America/New_York".to_owned(),
        starts: points.into_iter().map(|(start, _)| start).collect(),
        week,
        aligned: true,
        picture: Picture::default(),
    }
}

/// Several keys in one picture, and hours of the week.
fn compared() -> [(&'static str, String); 8] {
    let mut two = keys(&["l/A6qOVH", "l/GmGXpx"], 30);
    two.provisional_from = Some(29);
    two.not_final = (0..30).map(|day| day > 20).collect();
    let page = "l/https://news.example.org/2012/03/a-rather-long-headline?a=1&b=<2>";
    let names = [
        "u/ann", page, "u/bo", "u/cy", "u/di", "u/ed", "u/flo", "u/gus",
    ];
    let eight = keys(&names, 200);
    let mut narrow = eight.clone();
    narrow.picture.width = 280;
    narrow.aligned = false;
    let one = keys(&["l/abc", "l/abd"], 1);
    let mut week = hours(plausible(7));
    week.aligned = false;
    let mut phone = week.clone();
    phone.picture.width = 280;
    [
        ("week_of_hours", heat(&week)),
        ("week_of_hours_narrow", heat(&phone)),
        ("week_of_few", heat(&hours(2))),
        ("week_of_nothing", heat(&hours(0))),
        ("two_keys", lines(&two)),
        ("eight_keys", lines(&eight)),
        ("eight_keys_narrow", lines(&narrow)),
        ("keys_of_a_day", lines(&one)),
    ]
}

/// Series that are not wholly final.
fn hatched(week: &SeriesChart, days: &SeriesChart) -> [(&'static str, String); 3] {
    let mut bars = week.clone();
    bars.not_final = (0..7).map(|day| day > 2).collect();
    bars.before = vec![1_100, 900, 1_200, 2_100, 1_600, 1_400, 1_300];
    let mut narrow = bars.clone();
    narrow.picture.width = 280;
    let mut line = days.clone();
    line.not_final = (0..200).map(|day| day == 100 || day > 150).collect();
    [
        ("hatched", series(&bars)),
        ("hatched_narrow", series(&narrow)),
        ("hatched_days", series(&line)),
    ]
}

/// Waterfalls of several widths and lengths.
fn falls() -> [(&'static str, String); 4] {
    let mut narrow = fall();
    narrow.picture.width = 280;
    let mut long = fall();
    let rule = |index: i64| (format!("rule with the number {index}"), -index);
    long.differences = (1..60).map(rule).collect();
    let nothing = WaterfallChart {
        first: ("all that came".into(), 0),
        differences: Vec::new(),
        last: ("final".into(), 0),
        ..fall()
    };
    [
        ("waterfall", waterfall(&fall())),
        ("waterfall_narrow", waterfall(&narrow)),
        ("waterfall_of_nothing", waterfall(&nothing)),
        ("waterfall_of_many", waterfall(&long)),
    ]
}
