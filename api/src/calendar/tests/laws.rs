//! Laws over every zone of the database, compared with a scan of the local clock minute by minute.

use std::sync::LazyLock;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;

/// Every zone of the database.
static ZONES: LazyLock<Vec<String>> = LazyLock::new(|| {
    jiff::tz::db()
        .available()
        .map(|name| name.to_string())
        .collect()
});

/// A zone and an instant from 2000 to 2099; half of them at or near a change of its offset.
fn zone_and_instant() -> impl Strategy<Value = (Zone, i64)> {
    let instants = TIME_MIN..at("2099-01-01T00:00:00Z");
    let zones = proptest::sample::select(ZONES.as_slice());
    let away = prop_oneof![-1..=1i64, -2 * DAY..2 * DAY];
    (zones, instants, any::<bool>(), away).prop_map(|(name, instant, near, away)| {
        let timezone = TimeZone::get(&name).expect("a listed zone");
        let random = Timestamp::from_second(instant).expect("this century");
        let change = timezone.following(random).next().filter(|_| near);
        let instant = change.map_or(instant, |change| change.timestamp().as_second() + away);
        (zone(&name), instant.max(TIME_MIN))
    })
}

fn units() -> impl Strategy<Value = Unit> {
    proptest::sample::select(Unit::ALL.as_slice())
}

/// The edges in `range` according to the local clock, read minute by minute: for hours and minutes where
/// it reads a full one, else where the latest date read so far enters another period.
fn scan(unit: Unit, name: &str, range: std::ops::Range<i64>) -> Vec<i64> {
    let timezone = TimeZone::get(name).expect("a zone of the database");
    let mut latest = None;
    range
        .step_by(60)
        .filter(|&instant| {
            let local =
                timezone.to_datetime(Timestamp::from_second(instant).expect("this century"));
            if matches!(unit, Unit::Minute | Unit::Hour) {
                return unit == Unit::Minute || local.minute() == 0;
            }
            let known = latest.unwrap_or(Date::MIN);
            let period = unit.first_date(local.date()).max(known);
            latest.replace(period).is_some_and(|before| before < period)
        })
        .collect()
}

proptest! {
    #[test]
    fn prop_buckets_are_contiguous_ascend_and_hold_both_ends(
        (zone, from) in zone_and_instant(), unit in units(), length in 0..9_000i64, part in 0..3600i64,
    ) {
        let to = from + match unit {
            Unit::Minute => length * 60 + part % 60,
            _ => length * HOUR + part,
        };
        let buckets = Buckets::covering(unit, zone.clone(), from, to).expect("a range within the bounds");
        let all: Vec<Bucket> = buckets.iter().collect();
        prop_assert_eq!(all.len(), buckets.count());
        prop_assert!(all.iter().all(|bucket| bucket.start < bucket.end));
        prop_assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
        prop_assert!(all[0].start <= from && from < all[0].end);
        let last = all[all.len() - 1];
        prop_assert!(last.start <= to && to < last.end);
        prop_assert_eq!((buckets.start(), buckets.end()), (all[0].start, last.end));
        prop_assert_eq!(Bucket::holding(unit, &zone, to), last);

        // Counted back from `to`, the same number of buckets are the same ones.
        let units = Some(all.len() as i64);
        let request = Request { unit, zone, units, from: None, to: Some(to), now: 0 };
        prop_assert_eq!(bounded(request).iter().collect::<Vec<_>>(), all.clone());

        for instant in [from, to, last.start, last.start - 1, last.end - 1, last.end, all[0].start - 1] {
            let linear = all.iter().position(|b| b.start <= instant && instant < b.end);
            prop_assert_eq!(buckets.index_of(instant), linear);
        }
    }

    #[test]
    fn prop_a_date_is_the_bucket_of_its_day((zone, instant) in zone_and_instant()) {
        let bucket = Bucket::holding(Unit::Day, &zone, instant);
        let day = zone.day(zone.date_at(bucket.start)).expect("a day with instants");
        prop_assert_eq!((*day.start(), *day.end()), (bucket.start, bucket.end - 1));
    }

    #[test]
    fn prop_edges_are_those_of_the_local_clock_read_minute_by_minute(
        (zone, instant) in zone_and_instant(), unit in units(),
    ) {
        // The scan warms up for three days, so that it knows the latest date read.
        let minute = instant - instant % 60;
        let (first, last) = (minute - 2 * DAY, minute + 3 * DAY);
        let expected: Vec<i64> = scan(unit, zone.name(), first - 3 * DAY..last + 60)
            .into_iter()
            .filter(|&edge| edge > first)
            .collect();
        let mut found = Vec::new();
        let mut bucket = Bucket::holding(unit, &zone, first);
        while bucket.end <= last {
            found.push(bucket.end);
            bucket = Bucket::holding(unit, &zone, bucket.end);
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn prop_aligned_means_that_no_base_bucket_lies_across_an_edge(
        (zone, to) in zone_and_instant(), unit in units(), units in 1..50i64,
        grain in proptest::sample::select([60i64, 900, 3600].as_slice()),
    ) {
        let request = Request { unit, zone: zone.clone(), units: Some(units), from: None, to: Some(to), now: 0 };
        let buckets = match request.resolve() {
            Ok(Selection::Bounded(buckets)) => buckets,
            refused => {
                // Only a range that reaches back before 2000 is refused.
                let least = Buckets::covering(unit, zone, TIME_MIN, to).expect("a range within the bounds");
                prop_assert!(least.count() < units as usize, "{refused:?}");
                return Ok(());
            }
        };
        let counted = |bucket: &Bucket| bucket.start >= TIME_MIN;
        let exact = buckets.iter().filter(counted).all(|b| b.start % grain == 0) && buckets.end() % grain == 0;
        prop_assert_eq!(buckets.aligned(grain), exact);
    }
}
