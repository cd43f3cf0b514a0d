//! Minutes expire a month at a time, when all of it is older than they are kept: the hours stay, and a
//! generation says from when on it has minutes.

use tallyring_records::{Grain, MINUTES, is_breakdown_section};

use crate::months::{APRIL, DAY, MARCH, MAY, Months};

#[test]
fn a_month_of_minutes_goes_when_all_of_it_is_old_and_its_hours_stay() {
    let world = Months::new(None);
    for day in 0..3 {
        world.day(MARCH + (28 + day) * DAY);
    }
    world.day(APRIL);
    assert_eq!(world.grains(), (4, 0, 4 * 72));
    // March's last day is 30 days old only on the 30th of April.
    world.day(APRIL + 28 * DAY);
    assert_eq!(world.grains(), (5, 0, 5 * 72));
    let with_minutes = world.store.manifest().archive.active;
    // A generation settles only the counts it was made with.
    let made = APRIL + 29 * DAY;
    let settled = |as_of| world.store.view().settled_until("m", as_of, made + 600);
    assert_eq!(
        (settled(None), settled(Some(with_minutes))),
        (made + 300, made)
    );
    world.day(APRIL + 29 * DAY);
    assert_eq!(world.grains(), (3, 3, 6 * 72));
    world.check_files();
    let (_, from) = world.read("m", MINUTES, None);
    assert_eq!(from, Some(APRIL));
    let (before, from) = world.read("m", MINUTES, Some(with_minutes));
    assert!(
        from < Some(APRIL)
            && before
                .by_minute()
                .codes()
                .all(|code| code.grain() == Grain::Minute)
    );
    for (name, subtotal) in [("m", "c"), ("h", "c")] {
        let (series, _) = world.read(name, subtotal, None);
        assert_eq!(series.totals.sum(), 6 * 72, "{name}");
        let value = world
            .store
            .view()
            .expand(&series, &series.values[0])
            .expect("a text");
        assert_eq!(
            value,
            ["a long value with spaces"],
            "a lookup is still needed"
        );
    }
    // Rolled back, they are there, and the next rebuild leaves them out again.
    world
        .store
        .ledger()
        .activate(with_minutes)
        .expect("roll back");
    assert_eq!(world.grains(), (6, 0, 6 * 72));
    world.day(MAY);
    assert_eq!(world.grains(), (4, 3, 7 * 72));
    world.check_files();
}

#[test]
fn files_without_old_minutes_are_shared_and_sources_lose_them_in_the_end() {
    sources_lose_old_minutes(None);
}

#[test]
fn sources_of_other_shards_lose_old_minutes_too() {
    for shards in [1, 2, 8] {
        sources_lose_old_minutes(Some(shards));
    }
}

/// Perhaps with files of so many shards from the second day on.
fn sources_lose_old_minutes(shards: Option<u16>) {
    let world = Months::new(None);
    world.day(MARCH);
    if let Some(shards) = shards {
        world.shard(shards);
    }
    world.day(MARCH + DAY);
    for day in 0..4 {
        world.day(MAY + (1 + day) * DAY);
    }
    assert_eq!(world.grains(), (4, 2, 6 * 72));
    let manifest = world.store.manifest();
    let of_march = |generation: usize| -> Vec<&str> {
        let files = manifest.archive.generations[generation].files.iter();
        let march = files.filter(|file| file.meta.last < APRIL);
        march.map(|file| file.name.as_str()).collect()
    };
    assert!(!of_march(0).is_empty());
    assert_eq!(of_march(0), of_march(2), "March is not written again");
    let minutes = manifest.archive.runs.iter().filter(|run| {
        run.meta.last < APRIL
            && run
                .meta
                .sums
                .keys()
                .any(|section| section.starts_with("_m."))
    });
    assert_eq!(minutes.count(), 0, "no source of March holds minutes");
    if let Some(shards) = shards {
        let mut march = manifest
            .archive
            .runs
            .iter()
            .filter(|run| run.meta.last < APRIL);
        assert!(march.all(|run| run.meta.shards == shards), "sharded anew");
    }
    world.check_files();
}

#[test]
fn breakdowns_by_minute_last_over_midnight_and_go_with_the_next_merge() {
    let world = Months::new(None);
    for day in 0..3 {
        world.day_with(MARCH + day * DAY, &|store| {
            store.ledger().flush().expect("flushed");
        });
        // Ten minutes after midnight the hours from 21:00 on are kept, and the archive has them.
        let all = (1 + u64::try_from(day).expect("a day")) * 72;
        assert_eq!(world.broken_down(), (9, all - 9));
        let manifest = world.store.manifest();
        let sources = manifest.archive.runs.iter();
        let files = &manifest.archive.active_generation().expect("one").files;
        for (runs, kept) in [
            (files.iter().collect::<Vec<_>>(), 9),
            (sources.collect(), all / 8),
        ] {
            let sums = runs.iter().flat_map(|run| &run.meta.sums);
            let of_minutes = sums.filter(|(section, _)| is_breakdown_section(section));
            let sum: u128 = of_minutes.map(|(_, sum)| sum).sum();
            assert_eq!(sum, u128::from(kept));
        }
        world.check_files();
    }
}

#[test]
fn a_late_count_for_an_expired_month_is_in_its_hour() {
    let world = Months::new(None);
    world.day(MARCH);
    world.day(MAY + DAY);
    assert_eq!(world.grains(), (1, 1, 2 * 72));
    world.click(MARCH + 4_000);
    world.rebuild();
    let (series, _) = world.read("m", MINUTES, None);
    assert_eq!(series.totals.sum(), 2 * 72 + 3);
    world.rebuild();
    world.check_files();
}
