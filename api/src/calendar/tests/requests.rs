//! Answers and refusals of requests, and what callers ask of the buckets.

use jiff::civil::{Date, date};

use super::*;

#[test]
fn the_contracts_example_is_seven_days_to_now_in_new_york() {
    let buckets = bounded(request(
        Unit::Day,
        zone("America/New_York"),
        "2012-03-16T18:35:00Z",
    ));
    let labels: Vec<String> = buckets
        .iter()
        .map(|b| buckets.zone().label(b.start))
        .collect();
    assert_eq!(labels.len(), 7);
    assert_eq!(labels[0], "2012-03-10T00:00:00-05:00");
    assert_eq!(labels[6], "2012-03-16T00:00:00-04:00");
    assert_eq!(
        buckets.zone().label(buckets.end()),
        "2012-03-17T00:00:00-04:00"
    );
    assert!(buckets.aligned(HOUR));
    assert_eq!(
        rfc3339_utc(at("2012-03-16T18:30:00Z")),
        "2012-03-16T18:30:00Z"
    );
}

#[test]
fn a_zone_is_aligned_where_its_offset_is_a_multiple_of_the_grain() {
    let aligned = |name: &str, unit: Unit, grain: i64| {
        bounded(request(unit, zone(name), "2012-03-16T18:35:00Z")).aligned(grain)
    };
    assert!(aligned("UTC", Unit::Hour, HOUR));
    for (name, grain) in [
        ("Asia/Kolkata", 900),
        ("Asia/Kathmandu", 900),
        ("Pacific/Chatham", 900),
    ] {
        assert!(!aligned(name, Unit::Day, HOUR), "{name}");
        assert!(aligned(name, Unit::Day, grain), "{name}");
        assert!(aligned(name, Unit::Hour, 60), "{name}");
    }
    assert!(!aligned("UTC", Unit::Minute, HOUR));
    assert!(aligned("UTC", Unit::Minute, 60));
}

#[test]
fn an_hour_offset_is_a_zone_without_daylight_saving() {
    let zone = Zone::from_request(None, Some(5.5)).expect("an offset in use");
    assert_eq!(zone.name(), "+05:30");
    assert_eq!(
        zone.label(at("2012-03-16T18:30:00Z")),
        "2012-03-17T00:00:00+05:30"
    );
    assert_eq!(zone.offset_secs(0), 19_800);
    for (hours, name) in [
        (-12.0, "-12:00"),
        (14.0, "+14:00"),
        (0.0, "+00:00"),
        (-0.25, "-00:15"),
    ] {
        assert_eq!(
            Zone::from_hour_offset(hours)
                .expect("within the bounds")
                .name(),
            name
        );
    }
    for hours in [-12.25, 14.25, 5.3, f64::NAN, f64::INFINITY, 1e300] {
        let error = Zone::from_hour_offset(hours).expect_err("outside the bounds");
        assert_eq!(
            (error.fault, &*error.field),
            (Fault::Refused, "hour_offset"),
            "{hours}"
        );
        // A long one is shortened.
        let value = error.value.expect("the offset");
        assert!(hours.to_string().starts_with(value.trim_end_matches('…')));
    }
}

#[test]
fn a_zone_is_found_in_any_case_and_an_unknown_one_is_named() {
    assert_eq!(zone("america/new_york").name(), "America/New_York");
    assert_eq!(zone("US/Eastern").name(), "US/Eastern");
    assert_eq!(
        Zone::from_request(None, None).expect("the default").name(),
        "UTC"
    );
    for name in [
        "Mars/Olympus",
        "",
        "Etc/Unknown",
        "../../../etc/passwd",
        "/etc/localtime",
        "EST5EDT,M3",
    ] {
        let error = Zone::named(name).expect_err("no such zone");
        assert_eq!(
            (error.fault, &*error.field, error.value.as_deref()),
            (Fault::Malformed, "timezone", Some(name))
        );
        assert!(error.detail.contains("America/New_York"), "{error}");
    }
    let error = Zone::from_request(Some("UTC"), Some(1.0)).expect_err("both");
    assert!(error.detail.contains("excludes `hour_offset`"), "{error}");
}

#[test]
fn a_day_has_the_instants_of_its_date() {
    let hours = |name: &str, date: Date| {
        let day = zone(name).day(date)?;
        assert_eq!(zone(name).date_at(*day.start()), date, "{name}");
        assert_eq!(zone(name).date_at(*day.end()), date, "{name}");
        Some((day.end() + 1 - day.start()) as f64 / 3_600.0)
    };
    let spring = date(2026, 3, 8);
    assert_eq!(hours("UTC", spring), Some(24.0));
    assert_eq!(hours("America/New_York", spring), Some(23.0));
    assert_eq!(hours("America/New_York", date(2026, 11, 1)), Some(25.0));
    assert_eq!(hours("Asia/Kolkata", spring), Some(24.0));
    // The clocks fell back half an hour.
    assert_eq!(hours("Australia/Lord_Howe", date(2026, 4, 5)), Some(24.5));
    // The island left out a day as it went over the date line.
    assert_eq!(hours("Pacific/Apia", date(2011, 12, 29)), Some(24.0));
    assert_eq!(hours("Pacific/Apia", date(2011, 12, 30)), None);
    assert_eq!(hours("Pacific/Apia", date(2011, 12, 31)), Some(24.0));
    assert_eq!(hours("Etc/GMT+12", date(9998, 12, 31)), Some(24.0));
}

#[test]
fn units_are_read_as_they_are_written() {
    for unit in Unit::ALL {
        assert_eq!(unit.to_string().parse(), Ok(unit));
    }
    let error = "fortnight".parse::<Unit>().expect_err("no unit");
    assert_eq!(
        error.to_string(),
        "unit `fortnight`: must be one of minute, hour, day, week, mweek, month, quarter, year"
    );
}

#[test]
fn units_and_from_exclude_each_other() {
    let mut both = request(Unit::Day, Zone::utc(), "2012-03-16T00:00:00Z");
    (both.units, both.from) = (Some(7), Some(at("2012-03-01T00:00:00Z")));
    let error = refused(both);
    assert_eq!(
        (error.fault, &*error.field, error.value.as_deref()),
        (Fault::Malformed, "units", Some("7"))
    );
    assert!(error.detail.contains("so does `from`"), "{error}");
}

#[test]
fn units_are_at_least_one_and_at_most_ten_thousand() {
    for unit in Unit::ALL {
        let ask = |units: i64| {
            let mut request = request(unit, zone("America/New_York"), "2999-03-16T00:00:00Z");
            request.units = Some(units);
            request
        };
        for units in [0, -2, i64::MIN, 10_001, i64::MAX] {
            let error = refused(ask(units));
            assert_eq!(
                (error.fault, &*error.field),
                (Fault::Refused, "units"),
                "{units}"
            );
            assert_eq!(error.value, Some(units.to_string()));
            assert!(error.detail.contains("10000"), "{error}");
        }
        assert_eq!(bounded(ask(1)).count(), 1);
        if !matches!(unit, Unit::Year | Unit::Quarter) {
            assert_eq!(bounded(ask(10_000)).count(), 10_000);
        }
    }
}

#[test]
fn units_that_reach_back_before_2000_are_refused_as_such_a_from_is() {
    let ask = |name: &str, units: i64| {
        let mut request = request(Unit::Year, zone(name), "2026-03-16T00:00:00Z");
        request.units = Some(units);
        request
    };
    let begins = |buckets: Buckets| buckets.zone().label(buckets.start());
    assert_eq!(begins(bounded(ask("UTC", 27))), "2000-01-01T00:00:00+00:00");
    let error = refused(ask("UTC", 28));
    assert_eq!(
        (error.fault, &*error.field, error.value.as_deref()),
        (Fault::Refused, "units", Some("28"))
    );
    assert!(error.detail.contains("before 2000-01-01"), "{error}");
    // The bucket that holds the first instant of 2000 may begin before it.
    let before = begins(bounded(ask("America/New_York", 28)));
    assert_eq!(before, "1999-01-01T00:00:00-05:00");
    assert_eq!(refused(ask("America/New_York", 29)).field, "units");
}

#[test]
fn a_range_of_ten_thousand_buckets_is_answered_and_one_more_is_refused() {
    let from = at("2012-03-16T18:00:00Z");
    let hours = |count: i64| {
        let mut request = request(Unit::Hour, Zone::utc(), "2012-03-16T00:00:00Z");
        (request.from, request.to) = (Some(from), Some(from + count * HOUR - 1));
        request
    };
    assert_eq!(bounded(hours(10_000)).count(), 10_000);
    let error = refused(hours(10_001));
    assert_eq!((error.fault, &*error.field), (Fault::Refused, "from"));
    assert_eq!(error.value.as_deref(), Some("2012-03-16T18:00:00Z"));
    assert!(
        error.detail.contains("more than 10000 hour buckets"),
        "{error}"
    );
    // The bound holds without walking the thousand years.
    let mut minutes = request(Unit::Minute, Zone::utc(), "2999-12-31T23:59:59Z");
    minutes.from = Some(TIME_MIN);
    assert_eq!(refused(minutes).field, "from");
}

#[test]
fn from_and_to_lie_between_2000_and_2999_and_in_order() {
    let now = "2012-03-16T00:00:00Z";
    let ask = |from: Option<i64>, to: Option<i64>| {
        let mut request = request(Unit::Month, Zone::utc(), now);
        (request.from, request.to) = (from, to);
        request
    };
    for (from, to, field) in [
        (Some(TIME_MIN - 1), None, "from"),
        (Some(i64::MIN), None, "from"),
        (Some(at(now) + 1), None, "from"),
        (Some(at(now)), Some(at(now) - 1), "from"),
        (Some(i64::MAX), Some(TIME_MAX - 1), "from"),
        (None, Some(TIME_MAX), "to"),
        (None, Some(i64::MAX), "to"),
        (None, Some(TIME_MIN - 1), "to"),
    ] {
        let error = refused(ask(from, to));
        assert_eq!(
            (error.fault, &*error.field),
            (Fault::Refused, field),
            "{error}"
        );
    }
    assert_eq!(
        refused(ask(None, Some(TIME_MAX))).value.as_deref(),
        Some("3000-01-01T00:00:00Z")
    );
    assert_eq!(
        refused(ask(None, Some(i64::MAX))).value,
        Some(i64::MAX.to_string())
    );
    assert_eq!(bounded(ask(Some(at(now)), Some(at(now)))).count(), 1);
    assert_eq!(bounded(ask(Some(TIME_MIN), None)).count(), 147);
    assert_eq!(bounded(ask(None, Some(TIME_MAX - 1))).end(), TIME_MAX);
}

#[test]
fn all_of_time_ends_with_the_later_of_now_and_the_last_count_unless_the_request_says() {
    let ask = |to: Option<&str>, counted: Option<(&str, &str)>| {
        let mut request = request(Unit::Day, Zone::utc(), "2012-03-16T18:00:00Z");
        (request.units, request.to) = (Some(-1), to.map(at));
        let Ok(Selection::All(all)) = request.resolve() else {
            panic!("all of time")
        };
        let buckets = all.covering(counted.map(|(first, last)| (at(first), at(last))));
        buckets.map(|buckets| (rfc3339_utc(buckets.start()), rfc3339_utc(buckets.end())))
    };
    let days =
        |start: &str, end: &str| Ok((format!("{start}T00:00:00Z"), format!("{end}T00:00:00Z")));
    let past = Some(("2012-03-01T05:00:00Z", "2012-03-02T05:00:00Z"));
    let future = Some(("2012-03-01T05:00:00Z", "2012-03-17T05:00:00Z"));
    assert_eq!(ask(None, None), days("2012-03-16", "2012-03-17"));
    assert_eq!(ask(None, past), days("2012-03-01", "2012-03-17"));
    assert_eq!(ask(None, future), days("2012-03-01", "2012-03-18"));
    assert_eq!(
        ask(Some("2012-03-05T00:00:00Z"), past),
        days("2012-03-01", "2012-03-06")
    );
    assert_eq!(
        ask(Some("2012-02-05T00:00:00Z"), past),
        days("2012-02-05", "2012-02-06")
    );
    let long = Some(("2000-01-01T00:00:00Z", "2099-01-01T00:00:00Z"));
    assert_eq!(ask(None, long).expect_err("36,000 days").field, "units");
}

#[test]
fn a_base_bucket_counts_where_its_start_lies() {
    let mut request = request(Unit::Day, zone("Asia/Kolkata"), "2012-03-17T12:00:00Z");
    request.units = Some(2);
    let buckets = bounded(request);
    // The days begin at 18:30 UTC: the hour from 18:00 counts for the day that ends.
    assert_eq!(buckets.index_of(at("2012-03-15T18:00:00Z")), None);
    assert_eq!(buckets.index_of(at("2012-03-16T18:00:00Z")), Some(0));
    assert_eq!(buckets.index_of(at("2012-03-16T19:00:00Z")), Some(1));
    assert_eq!(buckets.index_of(at("2012-03-17T18:00:00Z")), Some(1));
    assert_eq!(buckets.index_of(at("2012-03-17T19:00:00Z")), None);
}
