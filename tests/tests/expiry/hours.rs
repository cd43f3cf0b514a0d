//! Hours fold into days a month at a time, when all of it is older than they are kept; sums, values and users stay.

use tallyring_records::{Counts, Grain, MINUTES};

use crate::months::{APRIL, DAY, MARCH, MAY, Months};

const HOUR_DAYS: u32 = 45;
const CLICKS_A_DAY: u64 = 72;

/// The counts of a key by base bucket, the sum of its named values too.
fn totals(months: &Months) -> Counts {
    let (series, _) = months.read("h", "c", None);
    let points = series.points.iter();
    let named: Counts = points.map(|point| (point.code, point.count)).collect();
    assert_eq!(named, series.totals, "every click has its value");
    series.totals
}

/// Days that are counted as days, and the hours of others.
fn grains(months: &Months) -> (usize, usize) {
    let totals = totals(months);
    let of = |grain: Grain| totals.codes().filter(|code| code.grain() == grain).count();
    (of(Grain::Day), of(Grain::Hour))
}

#[test]
fn a_month_of_hours_folds_into_days_when_all_of_it_is_old() {
    let months = Months::new(Some(HOUR_DAYS));
    for day in [0, 1, 30] {
        months.day(MARCH + day * DAY);
    }
    months.day(APRIL);
    assert_eq!(grains(&months), (0, 96));
    let with_hours = months.store.manifest().archive.active;
    // The last day of March is 45 days old on the 15th of May.
    months.day(MAY + 13 * DAY);
    assert_eq!(grains(&months), (0, 5 * 24));
    months.day(MAY + 14 * DAY);
    assert_eq!(grains(&months), (3, 3 * 24));
    months.check_files();
    for (code, count) in totals(&months).iter() {
        let expected = if code.grain() == Grain::Day {
            CLICKS_A_DAY
        } else {
            3
        };
        assert_eq!(count, expected, "{code}");
        assert_eq!(code.grain() == Grain::Day, code.start() < APRIL, "{code}");
    }
    assert_eq!(months.store.status().hours_from, Some(APRIL));
    let users = months.users();
    assert_eq!(users.len(), 3 + 3 * 24, "a sketch for every bucket");
    assert!(users.values().all(|&estimate| estimate == 1));
    // Minutes of a folded hour are gone with it.
    let (series, _) = months.read("m", MINUTES, None);
    assert_eq!(series.totals.sum(), 6 * CLICKS_A_DAY);

    // Rolled back the hours are there, and the next rebuild folds them again.
    months
        .store
        .ledger()
        .activate(with_hours)
        .expect("roll back");
    assert_eq!(grains(&months), (0, 6 * 24));
    months.day(MAY + 15 * DAY);
    assert_eq!(grains(&months), (3, 4 * 24));
    months.check_files();
}

#[test]
fn a_late_click_for_a_folded_day_joins_it() {
    let months = Months::new(Some(HOUR_DAYS));
    months.day(MARCH);
    months.day(MAY + 20 * DAY);
    assert_eq!(grains(&months), (1, 24));
    months.click(MARCH + 4_000);
    let sum = |months: &Months| totals(months).sum();
    assert_eq!(sum(&months), 2 * CLICKS_A_DAY + 3);
    months.rebuild();
    assert_eq!(grains(&months), (1, 24));
    assert_eq!(sum(&months), 2 * CLICKS_A_DAY + 3);
    months.check_files();
}

#[test]
fn folded_months_are_shared_and_no_source_keeps_their_hours() {
    let months = Months::new(Some(HOUR_DAYS));
    months.day(MARCH);
    months.day(MARCH + DAY);
    for day in 20..24 {
        months.day(MAY + day * DAY);
    }
    assert_eq!(grains(&months), (2, 4 * 24));
    let manifest = months.store.manifest();
    let of_march = |generation: usize| -> Vec<&str> {
        let files = manifest.archive.generations[generation].files.iter();
        let march = files.filter(|file| file.meta.last < APRIL);
        march.map(|file| file.name.as_str()).collect()
    };
    assert!(!of_march(0).is_empty());
    assert_eq!(of_march(0), of_march(2), "March is not written again");
    let sources = manifest
        .archive
        .runs
        .iter()
        .filter(|run| run.meta.last < APRIL);
    let archived: Vec<&str> = manifest.archive.generations[0]
        .files
        .iter()
        .map(|file| file.hash.as_str())
        .collect();
    for source in sources {
        assert!(archived.contains(&source.hash.as_str()), "{}", source.name);
    }
    months.check_files();
}
