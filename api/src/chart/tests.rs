//! The pictures are the specification: a few whole ones, and laws that hold for every one.

mod gallery;

use std::time::Instant;

use jiff::civil::date;
use proptest::prelude::*;

use super::theme::Role;
use super::{
    HeatChart, LinesChart, Measure, Picture, RankingChart, SVG_BYTES_MAX, SeriesChart, Theme,
    WIDTH_MIN, badge, heat, lines, ranking, series, text,
};
use crate::calendar::{Unit, Zone};
use gallery::{chart, countries, gallery, march, plausible};

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
    assert!(svg.len() <= SVG_BYTES_MAX, "{} bytes", svg.len());
    for node in document.descendants().filter(|node| node.is_element()) {
        let name = node.tag_name().name();
        assert!(!["script", "image", "use", "foreignObject", "a"].contains(&name));
        for attribute in node.attributes() {
            let name = attribute.name();
            let is_hatch = name == "id" && attribute.value().starts_with("tallyring-hatch-");
            assert!(
                (name != "id" || is_hatch) && name != "href" && !name.starts_with("on"),
                "{name}"
            );
        }
    }
    document
}

/// A text, measured.
#[derive(Debug)]
struct Label {
    shown: String,
    x: (f64, f64),
    y: (f64, f64),
    is_time: bool,
}

fn labels(document: &roxmltree::Document<'_>) -> Vec<Label> {
    let roles = [
        Role::Title,
        Role::Muted,
        Role::Label,
        Role::Value,
        Role::Empty,
    ];
    let texts = document
        .descendants()
        .filter(|node| node.is_element() && node.tag_name().name() == "text");
    let label = |node: roxmltree::Node<'_, '_>| {
        let shown = node.text().unwrap_or("").to_owned();
        let class = node.attribute("class");
        let role = roles
            .into_iter()
            .find(|role| Some(role.class()) == class)
            .expect("a text role");
        let number = |name| -> f64 {
            let value = node.attribute(name).expect("a coordinate");
            value.parse().expect("a number")
        };
        let anchor = node.attribute("text-anchor");
        let width = text::width(&shown, role.text_px());
        let left = match anchor {
            Some("middle") => number("x") - width / 2.0,
            Some("end") => number("x") - width,
            _ => number("x"),
        };
        Label {
            x: (left, left + width),
            y: (number("y") - 0.74 * role.text_px(), number("y")),
            is_time: role == Role::Label && anchor == Some("middle"),
            shown,
        }
    };
    texts.map(label).collect()
}

/// No two texts overlap, and all are inside.
fn check_labels(svg: &str) {
    let document = check(svg);
    let view = document
        .root_element()
        .attribute("viewBox")
        .expect("a size");
    let width: f64 = view
        .split(' ')
        .nth(2)
        .expect("a width")
        .parse()
        .expect("a number");
    let labels = labels(&document);
    for (index, label) in labels.iter().enumerate() {
        let is_inside = label.x.0 >= 0.0 && label.x.1 <= width && label.y.0 >= 0.0;
        assert!(is_inside, "{label:?}");
        for other in &labels[..index] {
            let is_apart = label.x.1 <= other.x.0
                || other.x.1 <= label.x.0
                || label.y.1 <= other.y.0
                || other.y.1 <= label.y.0;
            assert!(is_apart, "{label:?} overlaps {other:?}");
        }
    }
}

/// Labels below the plot.
fn time_labels(chart: &SeriesChart) -> Vec<String> {
    let svg = series(chart);
    let labels = labels(&check(&svg)).into_iter();
    labels
        .filter(|label| label.is_time)
        .map(|label| label.shown)
        .collect()
}

#[test]
fn pictures_are_as_they_were_looked_at() {
    for (name, svg) in gallery() {
        if matches!(
            name,
            "week"
                | "hatched"
                | "shares"
                | "days"
                | "nothing"
                | "countries"
                | "waterfall"
                | "badge"
        ) {
            insta::assert_snapshot!(name, svg);
        }
    }
}

#[test]
fn every_picture_keeps_the_laws() {
    for (name, svg) in gallery() {
        check(&svg);
        assert!(svg.contains("@media (prefers-color-scheme:dark)"));
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
fn a_theme_that_is_asked_for_is_the_only_one() {
    let drawn = |theme| {
        let mut chart = march(Unit::Day, vec![3, 1]);
        chart.picture.theme = theme;
        series(&chart)
    };
    let (light, dark) = (drawn(Theme::Light), drawn(Theme::Dark));
    assert!(!light.contains("@media") && !dark.contains("@media"));
    assert!(light.contains("#ffffff") && !light.contains("#0f172a #"));
    assert!(dark.contains("#5b9bf8") && !dark.contains("#2563eb"));
}

#[test]
fn what_is_not_final_is_hatched_and_said() {
    let mut chart = march(Unit::Day, vec![30, 10, 7]);
    chart.not_final = vec![false; 3];
    assert!(!series(&chart).contains("hatch"), "all are final");
    chart.not_final = vec![false, true, true];
    chart.provisional_from = Some(2);
    let svg = series(&chart);
    check_labels(&svg);
    let hatching = "fill=\"url(#tallyring-hatch-auto)\"";
    assert_eq!(svg.matches(hatching).count(), 3, "a legend and two bars");
    assert_eq!(svg.matches("<rect class=\"b\"").count(), 1);
    for said in [
        "not final yet: from Mar 11, 2012</desc>",
        "Mar 10, 2012: 30</title>",
        "Mar 11, 2012: 10, not final yet</title>",
        "Mar 12, 2012: 7, not settled yet</title>",
        ">not final yet</text>",
    ] {
        assert!(svg.contains(said), "{said}: {svg}");
    }
    chart.not_final = vec![true, false, false];
    let svg = series(&chart);
    assert!(
        svg.contains("not final yet: 1 of 3, the first Mar 10, 2012</desc>"),
        "{svg}"
    );
    // A line is hatched under its stretches that are not final.
    let mut chart = march(Unit::Day, vec![5; 100]);
    chart.not_final = (0..100).map(|day| day == 3 || day >= 97).collect();
    chart.picture.theme = Theme::Dark;
    let svg = series(&chart);
    let areas = svg.matches("<polygon fill=\"url(#tallyring-hatch-dark)\"");
    assert_eq!(areas.count(), 2, "{svg}");
    chart.measure = Measure::Distinct;
    chart.points.iter_mut().for_each(|point| point.1 = 0);
    check(&series(&chart));
}

#[test]
fn the_period_before_is_drawn_and_said() {
    let mut chart = march(Unit::Day, vec![30, 10]);
    chart.before = vec![20, 12];
    let svg = series(&chart);
    assert!(svg.contains("before 32 (+25.0%)"), "{svg}");
    assert!(svg.contains("Mar 10, 2012: 30, before 20"), "{svg}");
    let drawn = svg.matches("<rect class=\"bw\"").count();
    assert_eq!(drawn, 3, "a legend and two bars");
    chart.is_before_covered = false;
    let svg = series(&chart);
    assert!(
        svg.contains("before 32 · peak"),
        "no change against a period in which counting began: {svg}"
    );
    chart.is_before_covered = true;
    chart.before = vec![1, 0];
    let svg = series(&chart);
    assert!(svg.contains("before 1 (+3,900%)"), "{svg}");
    chart.before = vec![20, 12];
    chart.provisional_from = Some(1);
    let svg = series(&chart);
    assert!(
        svg.contains("total 40 · settled 30, before 20 (+50.0%)"),
        "what is compared is settled, and so are the sums beside it: {svg}"
    );
    chart.provisional_from = Some(0);
    let svg = series(&chart);
    assert!(svg.contains("total 40 · peak"), "nothing to compare: {svg}");
}

#[test]
fn a_narrow_picture_says_as_much_as_a_wide_one() {
    for length in [7, 70] {
        let mut chart = march(Unit::Day, (0..length).map(plausible).collect());
        chart.before = (0..length).map(|index| plausible(index + 5)).collect();
        chart.provisional_from = Some(length - 1);
        let shown = |width: u32, chart: &mut SeriesChart| -> Vec<String> {
            chart.picture.width = width;
            let svg = series(chart);
            check_labels(&svg);
            labels(&check(&svg))
                .into_iter()
                .map(|label| label.shown)
                .collect()
        };
        let is_said = |text: &String| text.contains('·');
        let wide = shown(1_600, &mut chart);
        let wide_words: Vec<String> = wide.into_iter().filter(is_said).collect();
        let wide_words = wide_words.join("\n");
        for width in [WIDTH_MIN, 280, 340, 519] {
            let narrow = shown(width, &mut chart);
            for legend in ["before", "not settled yet"] {
                assert!(
                    narrow.iter().any(|text| text == legend),
                    "{width}: {narrow:?}"
                );
            }
            // Numbers, dates and the zone are whole.
            let whole = wide_words.split([' ', '\n']).filter(|word| *word != "·");
            let said = narrow.join(" ");
            for word in whole {
                assert!(said.contains(word), "{width}: {word}: {said}");
            }
            assert!(!said.contains('…'), "{width}: {said}");
            let has = |word: &str| narrow.iter().any(|text| text.contains(word));
            assert!(
                has("total ") && has("settled ") && has("peak "),
                "{width}: {narrow:?}"
            );
        }
        let wide = shown(800, &mut chart);
        assert!(
            wide.iter().any(|text| text == "the period before"),
            "{wide:?}"
        );
    }
}

#[test]
fn time_labels_suit_the_unit() {
    let cases = [
        (
            Unit::Minute,
            60,
            "Jan 1 00:05 00:10 00:15 00:20 00:25 00:30 00:35 00:40 00:45 00:50 00:55",
        ),
        (
            Unit::Hour,
            24,
            "Jan 1 02:00 04:00 06:00 08:00 10:00 12:00 14:00 16:00 18:00 20:00 22:00",
        ),
        (
            Unit::Hour,
            72,
            "Jan 1 06:00 12:00 18:00 Jan 2 06:00 12:00 18:00 Jan 3 06:00 12:00 18:00",
        ),
        (Unit::Day, 4, "Jan 1 Jan 2 Jan 3 Jan 4"),
        (
            Unit::Day,
            60,
            "Jan 2 Jan 9 Jan 16 Jan 23 Jan 30 Feb 6 Feb 13 Feb 20 Feb 27",
        ),
        (
            Unit::Day,
            400,
            "Jan 2012 Mar 2012 May 2012 Jul 2012 Sep 2012 Nov 2012 Jan 2013",
        ),
        (
            Unit::Mweek,
            20,
            "Jan 8 Jan 22 Feb 5 Feb 19 Mar 4 Mar 18 Apr 1 Apr 15 Apr 29 May 13",
        ),
        (
            Unit::Mweek,
            60,
            "Jan 2012 Mar 2012 May 2012 Jul 2012 Sep 2012 Nov 2012 Jan 2013",
        ),
        (
            Unit::Month,
            12,
            "Jan 2012 Mar 2012 May 2012 Jul 2012 Sep 2012 Nov 2012",
        ),
        (
            Unit::Quarter,
            9,
            "Q1 2012 Q2 2012 Q3 2012 Q4 2012 Q1 2013 Q2 2013 Q3 2013 Q4 2013 Q1 2014",
        ),
        (
            Unit::Year,
            30,
            "2012 2014 2016 2018 2020 2022 2024 2026 2028 2030 2032 2034 2036 2038 2040",
        ),
    ];
    let first = date(2012, 1, 1).at(0, 0, 0, 0);
    for (unit, length, expected) in cases {
        let found = time_labels(&chart(unit, first, vec![1; length])).join(" ");
        assert_eq!(found, expected, "{length} {unit}s");
    }
}

#[test]
fn ranges_say_once_what_both_ends_share() {
    let ends = |unit, length| {
        let svg = series(&chart(
            unit,
            date(2012, 3, 10).at(22, 0, 0, 0),
            vec![1; length],
        ));
        let labels = labels(&check(&svg));
        let footer = labels
            .iter()
            .find(|label| label.shown.contains("America/New_York"));
        footer
            .unwrap()
            .shown
            .split(" · ")
            .nth(1)
            .unwrap()
            .to_owned()
    };
    for (unit, length, expected) in [
        (Unit::Hour, 2, "Mar 10, 2012, 22:00 – 23:00"),
        (Unit::Hour, 3, "Mar 10, 22:00 – Mar 11, 2012, 00:00"),
        (Unit::Day, 1, "Mar 10, 2012"),
        (Unit::Day, 30, "Mar 10 – Apr 8, 2012"),
        (Unit::Day, 365, "Mar 10, 2012 – Mar 9, 2013"),
        (Unit::Month, 3, "Mar – May 2012"),
        (Unit::Month, 12, "Mar 2012 – Feb 2013"),
        (Unit::Quarter, 2, "Q1 2012 – Q2 2012"),
        (Unit::Year, 3, "2012 – 2014"),
    ] {
        assert_eq!(ends(unit, length), expected);
    }
}

#[test]
fn a_title_that_is_too_long_leaves_its_key_to_the_line_below() {
    let mut chart = countries();
    (chart.title, chart.by) = ("ad_impression/42".to_owned(), "country × device".to_owned());
    chart.aligned = false;
    chart.picture.width = 340;
    let svg = ranking(&chart);
    check_labels(&svg);
    let shown: Vec<String> = labels(&check(&svg))
        .into_iter()
        .map(|label| label.shown)
        .collect();
    let header = [
        "by country × device",
        "ad_impression/42 · Mar 10 – Mar 16, 2012",
        "total 68,493 · boundaries rounded",
    ];
    assert_eq!(shown[..3], header);
    assert!(
        svg.contains("<title>ad_impression/42 by country × device</title>"),
        "{svg}"
    );
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
    // Three milliseconds on an idle machine, without much optimisation; the rest is room for a busy one.
    assert!(elapsed.as_millis() < 200, "{elapsed:?}");
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
    let title = "<".repeat(5_000);
    let subtitle = "\"".repeat(5_000);
    let name = "&".repeat(2_048);
    check_labels(&ranking(&RankingChart {
        title: title.clone(),
        by: String::new(),
        aligned: false,
        subtitle: subtitle.clone(),
        values: (0..100)
            .map(|index| (format!("{name}{index}"), 1))
            .collect(),
        other: u64::MAX,
        picture: Picture::default(),
    }));
    check_labels(&series(&SeriesChart {
        title,
        subtitle,
        zone: name,
        gaps: Vec::new(),
        provisional_from: Some(0),
        aligned: false,
        ..march(Unit::Hour, vec![u64::MAX; 60])
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
        not_final in prop::collection::vec(any::<bool>(), 0..60),
        before in prop::collection::vec(any::<u64>(), 0..60),
        width in prop::sample::select(vec![WIDTH_MIN, 360, 519, 800, 1_600]),
        theme in prop::sample::select(vec![Theme::Auto, Theme::Light, Theme::Dark]),
        measure in prop::sample::select(vec![Measure::Counts, Measure::Distinct, Measure::Shares]),
    ) {
        let picture = Picture { width, theme, hatches: false };
        check(&badge(&title, &subtitle, &start, theme));
        let mut points = march(Unit::Hour, names.iter().map(|&(_, count)| count).collect()).points;
        if aligned && !points.is_empty() {
            points[0].0 = start.clone();
        }
        let chart = SeriesChart {
            title: title.clone(),
            subtitle: subtitle.clone(),
            unit: Unit::Hour,
            zone: start.clone(),
            measure,
            points,
            gaps: Vec::new(),
            provisional_from,
            not_final,
            aligned,
            before,
            before_name: "the period before",
            is_before_covered: true,
            picture,
        };
        check_labels(&series(&chart));
        let counts = |count: u64| chart.points.iter().map(|_| count).collect();
        check_labels(&lines(&LinesChart {
            title: title.clone(),
            unit: Unit::Hour,
            zone: start.clone(),
            starts: chart.points.iter().map(|(start, _)| start.clone()).collect(),
            lines: names.iter().take(10).map(|(name, count)| (name.clone(), counts(*count))).collect(),
            provisional_from,
            not_final: chart.hatched().to_vec(),
            aligned,
            picture,
        }));
        let starts: Vec<String> = chart.points.iter().map(|(start, _)| start.clone()).collect();
        let mut week = [[other; 24]; 7];
        week.iter_mut().flatten().zip(&names).for_each(|(cell, (_, count))| *cell = *count);
        let zone = start.clone();
        check_labels(&heat(&HeatChart { title: title.clone(), zone, starts, week, aligned, picture }));
        check_labels(&ranking(&RankingChart { title, by: start, subtitle, values: names, other, aligned, picture }));
    }
}
