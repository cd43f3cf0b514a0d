//! The days of every zone against another implementation with a time zone database of its own
//! (chrono-tz), from 2000 to 2037. All other units begin where a day or an hour does.

use std::collections::BTreeMap;

use chrono::{MappedLocalTime, NaiveDate, NaiveTime, Offset, TimeDelta, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::super::{Buckets, Unit, Zone};

/// Days after which the two databases may know different rules: the other one was published then.
const SAME_RULES_UNTIL: &str = "2025-07-01";

#[test]
fn days_begin_where_another_implementation_says_in_every_zone_until_2037() {
    let mut differing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut zones, mut days) = (0, 0_u64);
    for other in TZ_VARIANTS {
        let Ok(zone) = Zone::named(other.name()) else {
            continue;
        };
        zones += 1;
        for year in 2000..=2037 {
            for (date, start) in days_of(&zone, year) {
                days += 1;
                if first_instant_of(&other, date) != start {
                    differing
                        .entry(other.name())
                        .or_default()
                        .push(date.to_string());
                }
            }
        }
    }
    assert!(
        zones > 550 && days > 7_000_000,
        "only {zones} zones and {days} days were compared"
    );
    let early = |dates: &Vec<String>| dates.iter().any(|date| date.as_str() < SAME_RULES_UNTIL);
    let wrong: Vec<_> = differing.iter().filter(|(_, dates)| early(dates)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // Rules that changed since are few: more would be a mistake of ours.
    assert!(differing.len() < 15, "{:?}", differing.keys());
}

/// Our days of a year: the date that each is labelled with, and its start.
fn days_of(zone: &Zone, year: i32) -> Vec<(NaiveDate, i64)> {
    let noon = |year: i32, month, day| {
        NaiveDate::from_ymd_opt(year, month, day)
            .unwrap()
            .and_hms_opt(12, 0, 0)
            .unwrap()
            .and_utc()
            .timestamp()
    };
    // The year's last day holds the next one's first noon in the east. Time begins within the first day of 2000.
    let first = if year == 2000 { 2 } else { 1 };
    let buckets = Buckets::covering(
        Unit::Day,
        zone.clone(),
        noon(year, 1, first),
        noon(year, 12, 31),
    )
    .unwrap();
    let date = |start| zone.label(start)[..10].parse().unwrap();
    buckets
        .iter()
        .map(|bucket| (date(bucket.start), bucket.start))
        .collect()
}

/// The other implementation's first instant that carries the date or a later one.
fn first_instant_of(zone: &Tz, date: NaiveDate) -> i64 {
    match zone.from_local_datetime(&date.and_time(NaiveTime::MIN)) {
        MappedLocalTime::Single(instant) | MappedLocalTime::Ambiguous(instant, _) => {
            instant.timestamp()
        }
        // Clocks jump over midnight: the jump lies within a day and a half.
        MappedLocalTime::None => {
            let middle = date.and_time(NaiveTime::MIN).and_utc().timestamp();
            let (mut before, mut after) = (middle - 129_600, middle + 129_600);
            while after - before > 1 {
                let probe = before.midpoint(after);
                if local_date(zone, probe) < date {
                    before = probe
                } else {
                    after = probe
                }
            }
            after
        }
    }
}

fn local_date(zone: &Tz, instant: i64) -> NaiveDate {
    let utc = chrono::DateTime::from_timestamp(instant, 0)
        .unwrap()
        .naive_utc();
    let offset = zone.offset_from_utc_datetime(&utc).fix().local_minus_utc();
    (utc + TimeDelta::seconds(offset.into())).date()
}
