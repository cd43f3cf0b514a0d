//! Where buckets begin and how long they are: a table of zones and dates known to be hard.

use super::*;

/// The buckets from the one that holds `first` to the one that holds `last`: labels and hours' length.
fn check(unit: Unit, name: &str, first: &str, last: &str, expected: &[(&str, f64)]) {
    let buckets = Buckets::covering(unit, zone(name), at(first), at(last)).expect("a valid range");
    let found: Vec<(String, f64)> = buckets
        .iter()
        .map(|bucket| {
            (
                buckets.zone().label(bucket.start),
                (bucket.end - bucket.start) as f64 / 3600.0,
            )
        })
        .collect();
    let expected: Vec<(String, f64)> = expected
        .iter()
        .map(|&(label, hours)| (label.to_owned(), hours))
        .collect();
    assert_eq!(found, expected, "{unit} in {name}");
}

#[test]
fn days_in_new_york_have_23_and_25_hours_when_clocks_change() {
    let days = [
        ("2012-03-10T00:00:00-05:00", 24.0),
        ("2012-03-11T00:00:00-05:00", 23.0),
        ("2012-03-12T00:00:00-04:00", 24.0),
    ];
    check(
        Unit::Day,
        "America/New_York",
        "2012-03-10T12:00:00Z",
        "2012-03-12T12:00:00Z",
        &days,
    );
    let days = [
        ("2012-11-04T00:00:00-04:00", 25.0),
        ("2012-11-05T00:00:00-05:00", 24.0),
    ];
    check(
        Unit::Day,
        "America/New_York",
        "2012-11-04T12:00:00Z",
        "2012-11-05T12:00:00Z",
        &days,
    );
}

#[test]
fn an_hour_that_is_read_twice_is_two_buckets_and_one_that_is_skipped_is_none() {
    let autumn = [
        ("2012-11-04T00:00:00-04:00", 1.0),
        ("2012-11-04T01:00:00-04:00", 1.0),
        ("2012-11-04T01:00:00-05:00", 1.0),
        ("2012-11-04T02:00:00-05:00", 1.0),
    ];
    check(
        Unit::Hour,
        "America/New_York",
        "2012-11-04T04:10:00Z",
        "2012-11-04T07:10:00Z",
        &autumn,
    );
    let spring = [
        ("2012-03-11T01:00:00-05:00", 1.0),
        ("2012-03-11T03:00:00-04:00", 1.0),
    ];
    check(
        Unit::Hour,
        "America/New_York",
        "2012-03-11T06:10:00Z",
        "2012-03-11T07:10:00Z",
        &spring,
    );
}

#[test]
fn hours_begin_at_the_local_full_hour_in_kolkata_and_kathmandu() {
    let kolkata = [
        ("2012-03-16T23:00:00+05:30", 1.0),
        ("2012-03-17T00:00:00+05:30", 1.0),
    ];
    check(
        Unit::Hour,
        "Asia/Kolkata",
        "2012-03-16T18:29:59Z",
        "2012-03-16T18:30:00Z",
        &kolkata,
    );
    let kathmandu = [("2012-03-17T00:00:00+05:45", 1.0)];
    check(
        Unit::Hour,
        "Asia/Kathmandu",
        "2012-03-16T18:15:00Z",
        "2012-03-16T19:14:59Z",
        &kathmandu,
    );
}

#[test]
fn lord_howe_shifts_by_half_an_hour_and_keeps_its_full_hours() {
    let days = [
        ("2012-10-07T00:00:00+10:30", 23.5),
        ("2012-10-08T00:00:00+11:00", 24.0),
    ];
    check(
        Unit::Day,
        "Australia/Lord_Howe",
        "2012-10-06T14:00:00Z",
        "2012-10-07T14:00:00Z",
        &days,
    );
    let spring = [
        ("2012-10-07T00:00:00+10:30", 1.0),
        ("2012-10-07T01:00:00+10:30", 1.5),
        ("2012-10-07T03:00:00+11:00", 1.0),
    ];
    check(
        Unit::Hour,
        "Australia/Lord_Howe",
        "2012-10-06T14:00:00Z",
        "2012-10-06T16:00:00Z",
        &spring,
    );
    let autumn = [
        ("2012-04-01T01:00:00+11:00", 1.5),
        ("2012-04-01T02:00:00+10:30", 1.0),
    ];
    check(
        Unit::Hour,
        "Australia/Lord_Howe",
        "2012-03-31T15:10:00Z",
        "2012-03-31T15:40:00Z",
        &autumn,
    );
    check(
        Unit::Day,
        "Australia/Lord_Howe",
        "2012-04-01T00:00:00Z",
        "2012-04-01T00:00:00Z",
        &[("2012-04-01T00:00:00+11:00", 24.5)],
    );
    // The shift itself, at 02:00, begins no bucket.
    let shift = at("2012-10-06T15:30:00Z");
    let hour = Bucket::holding(Unit::Hour, &zone("Australia/Lord_Howe"), shift);
    assert_eq!((hour.start, hour.end), (shift - HOUR, shift + HOUR / 2));
}

#[test]
fn chatham_is_three_quarters_off_the_hour_in_summer_and_winter() {
    let days = [
        ("2012-03-31T00:00:00+13:45", 24.0),
        ("2012-04-01T00:00:00+13:45", 25.0),
        ("2012-04-02T00:00:00+12:45", 24.0),
    ];
    check(
        Unit::Day,
        "Pacific/Chatham",
        "2012-03-30T12:00:00Z",
        "2012-04-01T12:00:00Z",
        &days,
    );
}

#[test]
fn a_day_begins_at_the_jump_where_clocks_skip_midnight_and_is_25_hours_where_they_repeat_it() {
    let spring = [
        ("2012-10-20T00:00:00-03:00", 24.0),
        ("2012-10-21T01:00:00-02:00", 23.0),
        ("2012-10-22T00:00:00-02:00", 24.0),
    ];
    check(
        Unit::Day,
        "America/Sao_Paulo",
        "2012-10-20T12:00:00Z",
        "2012-10-22T12:00:00Z",
        &spring,
    );
    let autumn = [
        ("2012-02-25T00:00:00-02:00", 25.0),
        ("2012-02-26T00:00:00-03:00", 24.0),
    ];
    check(
        Unit::Day,
        "America/Sao_Paulo",
        "2012-02-25T12:00:00Z",
        "2012-02-26T12:00:00Z",
        &autumn,
    );
}

#[test]
fn an_hour_that_reads_yesterday_again_belongs_to_the_day_that_had_begun() {
    // In St. John's clocks went back at 00:01, to 23:01 of the day before.
    let days = [
        ("2010-11-06T00:00:00-02:30", 24.0),
        ("2010-11-07T00:00:00-02:30", 25.0),
        ("2010-11-08T00:00:00-03:30", 24.0),
    ];
    check(
        Unit::Day,
        "America/St_Johns",
        "2010-11-06T12:00:00Z",
        "2010-11-08T12:00:00Z",
        &days,
    );
    let day = Bucket::holding(
        Unit::Day,
        &zone("America/St_Johns"),
        at("2010-11-07T02:45:00Z"),
    );
    assert_eq!(
        zone("America/St_Johns").label(day.start),
        "2010-11-07T00:00:00-02:30"
    );
    let hours = [
        ("2010-11-07T00:00:00-02:30", 1.0),
        ("2010-11-07T00:00:00-03:30", 1.0),
    ];
    check(
        Unit::Hour,
        "America/St_Johns",
        "2010-11-07T02:45:00Z",
        "2010-11-07T03:45:00Z",
        &hours,
    );
}

#[test]
fn a_date_that_its_zone_skipped_has_no_bucket() {
    let days = [
        ("2011-12-29T00:00:00-10:00", 24.0),
        ("2011-12-31T00:00:00+14:00", 24.0),
    ];
    check(
        Unit::Day,
        "Pacific/Apia",
        "2011-12-29T12:00:00Z",
        "2011-12-30T12:00:00Z",
        &days,
    );
    let mut days = request(Unit::Day, zone("Pacific/Apia"), "2011-12-31T12:00:00Z");
    days.units = Some(3);
    let buckets = bounded(days);
    assert_eq!(
        buckets.zone().label(buckets.start()),
        "2011-12-29T00:00:00-10:00"
    );
    let week = [("2011-12-25T00:00:00-10:00", 144.0)];
    check(
        Unit::Week,
        "Pacific/Apia",
        "2011-12-30T12:00:00Z",
        "2011-12-30T12:00:00Z",
        &week,
    );
}

#[test]
fn a_skipped_date_before_2000_has_no_bucket_either() {
    // The first date of this week-long answer is one that Kwajalein had; 1993-08-21 it had not.
    let day = Bucket::holding(
        Unit::Day,
        &zone("Pacific/Kwajalein"),
        at("1993-08-21T11:59:59Z"),
    );
    assert_eq!(
        zone("Pacific/Kwajalein").label(day.start),
        "1993-08-20T00:00:00-12:00"
    );
    assert_eq!(
        zone("Pacific/Kwajalein").label(day.end),
        "1993-08-22T00:00:00+12:00"
    );
}

#[test]
fn half_hour_shifts_at_midnight_keep_days_on_full_hours() {
    let pyongyang = [
        ("2018-05-04T00:00:00+08:30", 23.5),
        ("2018-05-05T00:00:00+09:00", 24.0),
    ];
    check(
        Unit::Day,
        "Asia/Pyongyang",
        "2018-05-04T00:00:00Z",
        "2018-05-05T00:00:00Z",
        &pyongyang,
    );
    let hours = [
        ("2018-05-04T23:00:00+08:30", 0.5),
        ("2018-05-05T00:00:00+09:00", 1.0),
    ];
    check(
        Unit::Hour,
        "Asia/Pyongyang",
        "2018-05-04T14:45:00Z",
        "2018-05-04T15:00:00Z",
        &hours,
    );
    let back = [
        ("2015-08-14T23:00:00+09:00", 1.5),
        ("2015-08-15T00:00:00+08:30", 1.0),
    ];
    check(
        Unit::Hour,
        "Asia/Pyongyang",
        "2015-08-14T15:10:00Z",
        "2015-08-14T15:30:00Z",
        &back,
    );
}

#[test]
fn a_week_starts_on_sunday_and_an_mweek_on_monday() {
    // 2012-03-11 was a Sunday on which New York lost an hour.
    let week = [("2012-03-11T00:00:00-05:00", 167.0)];
    check(
        Unit::Week,
        "America/New_York",
        "2012-03-11T05:00:00Z",
        "2012-03-18T03:59:59Z",
        &week,
    );
    let mweek = [
        ("2012-03-05T00:00:00-05:00", 167.0),
        ("2012-03-12T00:00:00-04:00", 168.0),
    ];
    check(
        Unit::Mweek,
        "America/New_York",
        "2012-03-11T05:00:00Z",
        "2012-03-18T03:59:59Z",
        &mweek,
    );
}

#[test]
fn months_quarters_and_years_follow_the_local_calendar() {
    let months = [
        ("2012-01-01T00:00:00+00:00", 744.0),
        ("2012-02-01T00:00:00+00:00", 696.0),
        ("2012-03-01T00:00:00+00:00", 744.0),
    ];
    check(
        Unit::Month,
        "UTC",
        "2012-01-31T23:59:59Z",
        "2012-03-01T00:00:00Z",
        &months,
    );
    let quarters = [
        ("2011-10-01T00:00:00+09:00", 92.0 * 24.0),
        ("2012-01-01T00:00:00+09:00", 91.0 * 24.0),
    ];
    check(
        Unit::Quarter,
        "Asia/Tokyo",
        "2011-12-31T14:59:59Z",
        "2011-12-31T15:00:00Z",
        &quarters,
    );
    let years = [
        ("2011-01-01T00:00:00-10:00", 364.0 * 24.0),
        ("2012-01-01T00:00:00+14:00", 366.0 * 24.0),
    ];
    check(
        Unit::Year,
        "Pacific/Apia",
        "2011-12-31T09:59:59Z",
        "2011-12-31T10:00:00Z",
        &years,
    );
}

#[test]
fn minutes_are_utc_minutes() {
    let minutes = [
        ("2012-03-16T23:59:00+05:45", 1.0 / 60.0),
        ("2012-03-17T00:00:00+05:45", 1.0 / 60.0),
    ];
    check(
        Unit::Minute,
        "Asia/Kathmandu",
        "2012-03-16T18:14:59Z",
        "2012-03-16T18:15:00Z",
        &minutes,
    );
}
