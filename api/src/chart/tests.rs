//! The pictures are the specification: a few whole ones, and laws that hold for every one.

use std::time::Instant;

use jiff::civil::date;
use jiff::{Span, ToSpan};
use proptest::prelude::*;

use super::theme::Role;
use super::{
    HEIGHT, RankingChart, SVG_BYTES_MAX, SeriesChart, WIDTH, badge, human, ranking, series, text,
};
use crate::calendar::{Unit, Zone};

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
fn plausible(index: usize) -> u64 {
    let rhythm = [3, 2, 1, 1, 2, 4, 7, 9, 11, 12, 12, 11];
    let noise = index.wrapping_mul(2_654_435_761) % 97;
    rhythm[index % 12] * 900 + noise as u64 * 31
}

fn chart(unit: Unit, first: jiff::civil::DateTime, counts: Vec<u64>) -> SeriesChart {
    let points = counts.into_iter().enumerate().map(|(index, count)| {
        let start = first + span(unit) * (index as i64);
        (format!("{start}-05:00"), count)
    });
    SeriesChart {
        title: "l/A6qOVH".to_owned(),
        subtitle: String::new(),
        unit,
        zone: "America/New_York".to_owned(),
        points: points.collect(),
        provisional_from: None,
        aligned: true,
    }
}

fn march(unit: Unit, counts: Vec<u64>) -> SeriesChart {
    chart(unit, date(2012, 3, 10).at(0, 0, 0, 0), counts)
}

fn countries() -> RankingChart {
    let values = [
        ("US", 41_234),
        ("DE", 9_870),
        ("-", 4_411),
        ("JP", 977),
        ("IS", 1),
    ];
    RankingChart {
        title: "l/A6qOVH by country".to_owned(),
        subtitle: "Mar 10 – Mar 16, 2012".to_owned(),
        values: values
            .map(|(name, count)| (name.to_owned(), count))
            .to_vec(),
        other: 12_000,
    }
}

/// Every picture of the gallery, with its name.
fn gallery() -> Vec<(&'static str, String)> {
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
    long.title = "l/A6qOVH by referrer".to_owned();
    long.values = (0..60)
        .map(|index| (format!("{address}{index}"), 9_000 / (index + 1)))
        .collect();
    let empty = RankingChart {
        values: Vec::new(),
        other: 0,
        ..countries()
    };
    vec![
        ("week", series(&week)),
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
        ("badge", badge("clicks", &human(12_345))),
    ]
}

/// A document that was read back, after the laws that every picture keeps were checked.
fn check(svg: &str) -> roxmltree::Document<'_> {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let root = document.root_element();
    assert_eq!(root.attribute("role"), Some("img"));
    let name = |node: roxmltree::Node<'_, '_>| node.tag_name().name().to_owned();
    let elements: Vec<String> = root
        .children()
        .filter(|node| node.is_element())
        .map(name)
        .collect();
    assert_eq!(elements[..3], ["title", "desc", "style"]);
    assert!(svg.contains("@media (prefers-color-scheme:dark)"));
    assert!(svg.len() <= SVG_BYTES_MAX, "{} bytes", svg.len());
    for node in document.descendants().filter(|node| node.is_element()) {
        let name = node.tag_name().name();
        assert!(!["script", "image", "use", "foreignObject", "a"].contains(&name));
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(
                name != "id" && name != "href" && !name.starts_with("on"),
                "{name}"
            );
        }
    }
    document
}

/// Where each text lies: left, right and its line.
fn extents(document: &roxmltree::Document<'_>) -> Vec<(f64, f64, String, String)> {
    let roles = [
        Role::Title,
        Role::Muted,
        Role::Label,
        Role::Value,
        Role::Empty,
    ];
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name("text") || node.tag_name().name() == "text");
    texts
        .map(|node| {
            let shown = node.text().unwrap_or("").to_owned();
            let class = node.attribute("class");
            let role = roles.iter().find(|role| Some(role.look().class) == class);
            let width = text::width(&shown, role.expect("a text role").text_px());
            let x: f64 = node.attribute("x").expect("x").parse().expect("a number");
            let left = match node.attribute("text-anchor") {
                Some("middle") => x - width / 2.0,
                Some("end") => x - width,
                _ => x,
            };
            let y = node.attribute("y").expect("y").to_owned();
            (left, left + width, y, shown)
        })
        .collect()
}

/// No two texts of a line overlap, and all are inside.
fn check_labels(svg: &str) {
    let mut extents = extents(&check(svg));
    extents.sort_by(|a, b| a.2.cmp(&b.2).then(a.0.total_cmp(&b.0)));
    for (left, right, _, shown) in &extents {
        assert!(
            *left >= 0.0 && *right <= f64::from(WIDTH),
            "{shown}: {left} to {right}"
        );
    }
    for pair in extents.windows(2) {
        let is_apart = pair[0].2 != pair[1].2 || pair[0].1 <= pair[1].0;
        assert!(is_apart, "{:?} overlaps {:?}", pair[0], pair[1]);
    }
}

/// Labels below the plot.
fn time_labels(chart: &SeriesChart) -> Vec<String> {
    let svg = series(chart);
    let document = check(&svg);
    let mut lines = extents(&document);
    let line = format!("{}", f64::from(HEIGHT) - 46.0);
    lines.retain(|(_, _, y, _)| *y == line);
    lines.into_iter().map(|(_, _, _, shown)| shown).collect()
}

#[test]
fn pictures_are_as_they_were_looked_at() {
    for (name, svg) in gallery() {
        if matches!(name, "week" | "days" | "nothing" | "countries" | "badge") {
            insta::assert_snapshot!(name, svg);
        }
    }
}

#[test]
fn every_picture_keeps_the_laws() {
    for (name, svg) in gallery() {
        std::fs::write(format!("/tmp/gallery/{name}.svg"), &svg).unwrap(); // TEMPORARY
        check(&svg);
        if name != "badge" {
            check_labels(&svg);
        }
    }
    assert_eq!(gallery(), gallery());
}

#[test]
fn labels_never_overlap_whatever_unit_and_length() {
    let firsts = [
        date(2012, 3, 10).at(0, 0, 0, 0),
        date(1999, 12, 31).at(23, 59, 0, 0),
        date(2024, 2, 29).at(12, 30, 0, 0),
    ];
    for unit in Unit::ALL {
        for first in firsts {
            for length in (1..70).chain([91, 100, 168, 365, 400, 731, 1_000, 1_440]) {
                let chart = chart(unit, first, (0..length).map(plausible).collect());
                check_labels(&series(&chart));
                let labels = time_labels(&chart);
                let least = if length < 12 { 1 } else { 2 };
                assert!(
                    labels.len() >= least,
                    "{length} {unit}s from {first}: {labels:?}"
                );
            }
        }
    }
}

#[test]
fn time_labels_suit_the_unit() {
    let labels = |unit, length| time_labels(&march(unit, vec![1; length])).join(" | ");
    assert_eq!(labels(Unit::Day, 4), "Mar 10 | Mar 11 | Mar 12 | Mar 13");
    insta::assert_snapshot!(labels(Unit::Hour, 24), @"");
    insta::assert_snapshot!(labels(Unit::Hour, 72), @"");
    insta::assert_snapshot!(labels(Unit::Minute, 60), @"");
    insta::assert_snapshot!(labels(Unit::Day, 60), @"");
    insta::assert_snapshot!(labels(Unit::Day, 400), @"");
    insta::assert_snapshot!(labels(Unit::Mweek, 20), @"");
    insta::assert_snapshot!(labels(Unit::Month, 12), @"");
    insta::assert_snapshot!(labels(Unit::Quarter, 9), @"");
    insta::assert_snapshot!(labels(Unit::Year, 30), @"");
}

#[test]
fn starts_of_the_calendar_are_read() {
    let zone = Zone::named("America/New_York").expect("a zone");
    for start in [1_331_355_600, 1_331_442_000] {
        let points = vec![(zone.label(start), 3)];
        let chart = SeriesChart {
            points,
            ..march(Unit::Day, Vec::new())
        };
        assert_eq!(time_labels(&chart).len(), 1);
    }
}

#[test]
fn ten_thousand_points_are_quick_and_short() {
    let chart = march(
        Unit::Minute,
        (0..10_000).map(|index| index * index).collect(),
    );
    let started = Instant::now();
    let svg = series(&chart);
    let elapsed = started.elapsed();
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
    // A few milliseconds in release; the bound leaves room for a busy machine without optimisation.
    assert!(elapsed.as_millis() < 1_000, "{elapsed:?}");
}

#[test]
fn long_series_keep_the_largest_count_of_each_column() {
    let mut counts = vec![1; 10_000];
    counts[7_777] = 1_000;
    let svg = series(&march(Unit::Minute, counts));
    // The top of the plot: 1,000 is the top of the axis.
    assert!(svg.contains(",72 "), "the peak is missing");
}

#[test]
fn the_longest_names_stay_within_the_bound() {
    let values = (0..100)
        .map(|index| (format!("{}{index}", "&".repeat(2_048)), 1))
        .collect();
    let title = "<".repeat(5_000);
    let subtitle = "\"".repeat(5_000);
    check_labels(&ranking(&RankingChart {
        title,
        subtitle,
        values,
        other: u64::MAX,
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any text, of any counts, gives well-formed XML without overlaps.
    #[test]
    fn prop_hostile_text_stays_text(
        title in any::<String>(),
        subtitle in "[\\x00-\\x20<>&\"'\\]\u{202e}\u{fffe}\u{7f}-\u{9f}a]{0,90}",
        start in any::<String>(),
        names in prop::collection::vec((any::<String>(), any::<u64>()), 0..50),
        other in any::<u64>(),
        provisional_from in prop::option::of(0_usize..80),
        aligned in any::<bool>(),
    ) {
        check(&badge(&title, &subtitle));
        let mut points = march(Unit::Hour, names.iter().map(|&(_, count)| count).collect()).points;
        if aligned && !points.is_empty() {
            points[0].0 = start.clone();
        }
        let chart = SeriesChart {
            title: title.clone(),
            subtitle: subtitle.clone(),
            unit: Unit::Hour,
            zone: start,
            points,
            provisional_from,
            aligned,
        };
        check_labels(&series(&chart));
        check_labels(&ranking(&RankingChart { title, subtitle, values: names, other }));
    }
}
