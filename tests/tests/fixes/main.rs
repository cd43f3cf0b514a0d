//! Fixes of days, read in every way and compared with a map, while they are deltas, merged, rolled back and
//! counted again, and final days. Bad ones are refused.

mod final_datasets;
mod final_expiry;
mod finals;
mod kept;

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::{Corrects, Origin, RunEntry, Sign, Staged, names};
use tallyring_realtime::{Fix, Recount};
use tallyring_records::{Grain, MINUTES, TimeCode, UserKey, line, shard_of};

use kept::{Book, DAY, DAYS, HOURS, Kept, LOAD, Place, SHARDS, day, lines_of, schema};

const SEEDS: u64 = 24;
const STEPS: usize = 25;

#[test]
fn every_read_equals_a_map_whatever_is_corrected_merged_and_rolled_back() {
    let mut waited = 0;
    for seed in 1..=SEEDS {
        let mut kept = Kept::new(seed);
        for step in 0..STEPS {
            let what = kept.chance.below(13);
            match what {
                0..2 => kept.count(),
                2 => kept.store.ledger().flush().expect("flushed"),
                3..6 => kept.rebuild(),
                6..9 => kept.fix(),
                9..11 => kept.roll_back(),
                11 => kept.give_back(),
                _ => kept.restart(),
            }
            kept.check(&format!("seed {seed}, step {step}, {what}"));
            let manifest = kept.store.manifest();
            let mut pending = manifest.archive.pending();
            waited += u64::from(pending.any(|run| run.sign() == Sign::Minus));
        }
    }
    assert!(waited > SEEDS, "fixes were deltas {waited} times");
}

#[test]
fn a_recount_keeps_fixes_and_the_next_merge_applies_them_once() {
    for seed in 1..=8 {
        let mut kept = Kept::new(seed);
        for _ in 0..3 {
            kept.fix();
            kept.count();
            kept.rebuild();
        }
        let mut kept = kept.stop_and(|blobs| {
            let plan = Recount::plan(blobs, None, &schema(), SHARDS).expect("a plan");
            assert!(plan.is_whole);
            plan.manifest.commit(blobs).expect("committed");
        });
        kept.check("a recount has begun");
        kept.rebuild();
        kept.check("a recount has ended");
        let manifest = kept.store.manifest();
        let active = manifest.archive.active_generation().expect("a generation");
        let mut fixes = manifest
            .archive
            .runs
            .iter()
            .filter(|run| run.origin.is_fix());
        assert!(fixes.all(|run| active.merged.contains(&run.name)), "merged");
        kept.fix();
        kept.check("corrected after a recount");
    }
}

#[test]
fn all_shards_of_a_fix_wait_until_no_open_delta_store_has_counts_of_the_day() {
    let mut kept = Kept::new(1);
    let place = |shard, hour: i64| {
        let keys = (0..).map(|number| format!("key{number}"));
        let is_there =
            |key: &String| shard_of(line::total_key("l", key).as_bytes(), SHARDS) == shard;
        let key = keys.into_iter().find(is_there).expect("a key");
        (key, DAY + hour * HOURS, "US".to_owned())
    };
    let (merged, late) = (place(0, 5), place(1, 21));
    // The first one is exported, so the late store takes the second one.
    kept.click(&merged);
    kept.rebuild();
    kept.click(&late);
    let minus = Book::from([(merged.clone(), 1), (late.clone(), 1)]);
    kept.publish(&Book::new(), &minus).expect("published");
    kept.book.retain(|place, _| !minus.contains_key(place));
    let manifest = kept.store.manifest();
    assert_eq!(kept.rebuild_from(&manifest), [""; 0]);
    assert_eq!(waiting_minus(&kept), 2);
    kept.check("it waits");
    while waiting_minus(&kept) > 0 {
        kept.rebuild();
    }
    kept.check("it is merged");
}

fn waiting_minus(kept: &Kept) -> usize {
    let manifest = kept.store.manifest();
    let pending = manifest.archive.pending();
    pending.filter(|run| run.sign() == Sign::Minus).count()
}

#[test]
fn a_merged_fix_stays_merged_whatever_the_day_counts_later() {
    let mut kept = Kept::new(1);
    let place = |key: &str| (key.to_owned(), DAY + 60, "US".to_owned());
    kept.click(&place("late"));
    kept.rebuild();
    // The late store that is open now takes the click after the fix, too.
    kept.store.ledger().flush().expect("flushed");
    let minus = Book::from([(place("late"), 1)]);
    kept.publish(&Book::new(), &minus).expect("published");
    kept.book.remove(&place("late"));
    kept.rebuild();
    assert_eq!(waiting_minus(&kept), 0);
    kept.click(&place("later"));
    kept.store.ledger().flush().expect("flushed");
    let manifest = kept.store.manifest();
    assert_eq!(kept.rebuild_from(&manifest), [""; 0]);
    assert_eq!(waiting_minus(&kept), 0);
    kept.check("it is merged");
}

#[test]
fn a_later_fix_of_the_day_waits_for_the_one_before() {
    let mut kept = Kept::new(1);
    let place = |key: &str| (key.to_owned(), DAY + 60, "US".to_owned());
    kept.rebuild();
    kept.click(&place("late"));
    kept.rebuild();
    // The fix waits for the late store that takes this one.
    kept.click(&place("later"));
    let (added, taken) = (place("added"), place("later"));
    let (plus, minus) = (Book::from([(added.clone(), 1)]), Book::from([(taken, 1)]));
    kept.publish(&plus, &minus).expect("published");
    let manifest = kept.store.manifest();
    let stores = manifest.intake.stores.iter();
    let late = stores.filter(|store| store.id.day().is_none());
    let before = Corrects {
        from: 0,
        until: late
            .map(|store| store.opened.sequence)
            .min()
            .expect("a late store"),
    };
    kept.publish_for(before, &Book::new(), &plus)
        .expect("published");
    kept.book.remove(&place("later"));
    let manifest = kept.store.manifest();
    assert_eq!(kept.rebuild_from(&manifest), [""; 0]);
    kept.check("both wait");
    assert_eq!(waiting_minus(&kept), 2);
    while waiting_minus(&kept) > 0 {
        kept.rebuild();
    }
    kept.check("both are merged");
}

#[test]
fn a_month_that_lost_all_its_counts_has_no_file_and_may_count_again() {
    let mut kept = Kept::new(3);
    let minus = std::mem::take(&mut kept.book);
    kept.publish(&Book::new(), &minus).expect("published");
    for _ in 0..2 {
        kept.rebuild();
        kept.check("it is merged");
        let manifest = kept.store.manifest();
        let active = manifest.archive.active_generation().expect("a generation");
        assert!(active.files.is_empty());
    }
    kept.count();
    kept.rebuild();
    kept.check("it counts again");
}

/// A fix that takes away more than was counted, published by no means of the store.
fn publish_wrong_fix(kept: Kept, place: &Place) -> Kept {
    let wrong = kept.write(&lines_of(&Book::from([(place.clone(), 1_000)])));
    let mut manifest = (*kept.store.manifest()).clone();
    manifest.number += 1;
    let corrects = Some(kept.all_records());
    kept.stop_and(|blobs| {
        for run in &wrong {
            let origin = Origin::Fix {
                day: day(),
                version: 1,
                sign: Sign::Minus,
            };
            let named = RunEntry {
                corrects,
                ..run.renamed(origin)
            };
            blobs.copy(&run.name, &named.name).expect("copied");
            manifest.archive.runs.push(named);
        }
        manifest.commit(blobs).expect("committed");
    })
}

#[test]
fn a_wrong_fix_stops_no_other_merge_and_a_later_one_gives_back_what_it_took() {
    let (mut kept, place, _) = counted();
    kept.store.ledger().flush().expect("flushed");
    kept = publish_wrong_fix(kept, &place);
    let february = ("late".to_owned(), DAY - 20 * DAYS, "US".to_owned());
    kept.click(&february);
    kept.book.remove(&february);
    let manifest = kept.store.ledger().cut().expect("cut");
    let refused = kept.rebuild_from(&manifest).join("");
    assert!(
        refused.contains("would fall below zero: more than was counted is taken away by runs/fix-2012-03-16.v1.minus."),
        "{refused}"
    );
    let manifest = kept.store.manifest();
    let active = manifest.archive.active_generation().expect("a generation");
    let months: BTreeSet<String> = (active.files.iter())
        .map(|file| file.meta.partition.to_string())
        .collect();
    assert_eq!(Vec::from_iter(months), ["2012-02", "2012-03"]);
    let waiting = kept.store.status().waiting_fixes;
    assert_eq!(Vec::from_iter(waiting), ["2012-03-16 v1"]);
    let back = Book::from([(place, 1_000)]);
    kept.publish(&back, &Book::new()).expect("published");
    kept.check("it is given back");
    kept.fix();
    kept.check("corrected");
    kept.rebuild();
    kept.check("merged");
    assert!(kept.store.status().waiting_fixes.is_empty());
}

#[test]
fn detail_that_a_wrong_fix_needs_stays_until_it_is_given_back() {
    let (mut kept, place, _) = counted();
    kept.rebuild();
    kept.store.ledger().flush().expect("flushed");
    kept = publish_wrong_fix(kept, &place);
    kept.keep.minutes = Some(40);
    kept.keep.hours = Some(40);
    let minutes_from = |kept: &Kept| {
        let manifest = kept.store.manifest();
        let active = manifest.archive.active_generation().expect("a generation");
        let horizon = active.horizon();
        assert_eq!(horizon.minutes_from, horizon.hours_from);
        horizon.minutes_from
    };
    kept.clock.set((DAY + 80 * DAYS) * 1_000);
    kept.store.intake().tick().expect("another day");
    // Something to merge, in a month of its own.
    kept.click(&("june".to_owned(), DAY + 79 * DAYS, "US".to_owned()));
    let manifest = kept.store.ledger().cut().expect("cut");
    let refused = kept.rebuild_from(&manifest).join("");
    assert!(
        refused.contains("runs/fix-2012-03-16.v1.minus."),
        "{refused}"
    );
    assert_eq!(minutes_from(&kept), DAY - 15 * DAYS, "the first of March");
    let back = Book::from([(place, 1_000)]);
    kept.publish(&back, &Book::new()).expect("published");
    kept.rebuild();
    assert_eq!(minutes_from(&kept), DAY + 16 * DAYS, "the first of April");
    assert!(kept.store.status().waiting_fixes.is_empty());
}

#[test]
fn a_day_is_not_corrected_while_generations_keep_different_detail_of_it() {
    let (mut kept, place, _) = counted();
    kept.rebuild();
    kept.keep.minutes = Some(40);
    kept.clock.set((DAY + 80 * DAYS) * 1_000);
    kept.store.intake().tick().expect("another day");
    let mut lines = lines_of(&Book::from([(place, 1)]));
    lines.retain(|key, _| !key.starts_with(&format!("{MINUTES}.")));
    let publish = |kept: &Kept| {
        let fix = Fix {
            day: day(),
            version: 1,
            corrects: kept.all_records(),
            plus: Vec::new(),
            minus: kept.write(&lines),
        };
        kept.store.ledger().publish_fix(&fix)
    };
    let has_minutes = |kept: &Kept| -> BTreeSet<bool> {
        let manifest = kept.store.manifest();
        let generations = manifest.archive.generations.iter();
        let from = generations.map(|kept| kept.horizon().minutes_from);
        from.map(|from| from <= DAY).collect()
    };
    assert_eq!(Vec::from_iter(has_minutes(&kept)), [true]);
    while has_minutes(&kept).contains(&true) {
        // Something to merge, in a month of its own.
        kept.click(&("june".to_owned(), DAY + 79 * DAYS, "US".to_owned()));
        kept.rebuild();
        if has_minutes(&kept).len() > 1 {
            let error = publish(&kept).expect_err("some have minutes").to_string();
            let said = "an older one that is kept has them";
            assert!(error.contains(said), "{error}");
        }
    }
    publish(&kept).expect("published");
    kept.rebuild();
}

#[test]
fn a_ranking_stays_exact_where_a_heavy_key_lost_its_counts() {
    let mut kept = Kept::new(1);
    kept.book.clear();
    let place = |key: String| (key, DAY + 60, "US".to_owned());
    let light = (0..9_000).map(|number| (place(format!("n{number:04}")), 5));
    let heavy = (0..10).map(|number| (place(format!("heavy{number}")), 1_000 + number));
    let plus: Book = light.chain(heavy).collect();
    let before = std::mem::take(&mut kept.book);
    assert!(before.is_empty());
    kept.publish(&plus, &Book::new()).expect("published");
    kept.rebuild();
    let minus = Book::from([
        (place("heavy9".into()), 1_008),
        (place("heavy8".into()), 1_008),
    ]);
    let view = |kept: &Kept, limit| {
        let view = kept.store.view();
        let top = view.top("l", DAY..DAY + HOURS, true, (limit, true), None);
        let top = top.expect("ranked");
        let keys = top.keys.into_iter().map(|top| (top.key, top.count));
        keys.filter(|(key, _)| key.starts_with("heavy"))
            .collect::<Vec<_>>()
    };
    assert_eq!(view(&kept, 1), [("heavy9".to_owned(), 1_009)]);
    kept.publish(&Book::new(), &minus).expect("published");
    for merged in [false, true] {
        if merged {
            kept.rebuild();
        }
        let top = view(&kept, 9);
        assert_eq!(top[0], ("heavy7".to_owned(), 1_007), "merged: {merged}");
        assert_eq!(top.len(), 8, "merged: {merged}: {top:?}");
    }
}

/// A store, and a place with its count there.
fn counted() -> (Kept, Place, u64) {
    let kept = Kept::new(3);
    let (place, count) = kept.book.first_key_value().expect("counted");
    let (place, count) = (place.clone(), *count);
    (kept, place, count)
}

/// Tries to take lines away.
fn check_refused(kept: &Kept, lines: &BTreeMap<String, String>, said: &str) {
    let before = kept.store.manifest();
    let fix = Fix {
        day: day(),
        version: 1,
        corrects: kept.all_records(),
        plus: Vec::new(),
        minus: kept.write(lines),
    };
    let error = kept.store.ledger().publish_fix(&fix).expect_err(said);
    let error = error.to_string();
    assert!(error.contains(said), "{said}: {error}");
    assert!(
        error.starts_with("the fix cannot be published: "),
        "{error}"
    );
    assert_eq!(kept.store.manifest().archive, before.archive, "{said}");
    kept.check(said);
    for run in fix.minus {
        kept.disk.blobs().remove(&run.name).expect("removed");
    }
}

#[test]
fn more_than_was_counted_is_not_taken_away() {
    let (kept, place, count) = counted();
    let (key, at, country) = place.clone();
    let total: u64 = (kept.sums(|of| of.0 == key, DAYS)).into_values().sum();
    for (place, count) in [
        (place.clone(), total + 1),
        (("nobody".to_owned(), at, country), 1),
        ((key, at, "XX".to_owned()), count),
    ] {
        let lines = lines_of(&Book::from([(place, count)]));
        check_refused(&kept, &lines, "would fall below zero");
    }
    for (subtotal, said) in [
        ("c", "the values of `c` would sum to more than the total"),
        (
            MINUTES,
            "the values of `_m` would sum to more than the total",
        ),
    ] {
        let mut lines = lines_of(&Book::from([(place.clone(), count)]));
        lines.retain(|key, _| !key.starts_with(&format!("{subtotal}.")));
        check_refused(&kept, &lines, said);
    }
}

#[test]
fn the_counts_of_a_dataset_are_not_taken_away() {
    let (mut kept, place, count) = counted();
    let loaded = lines_of(&Book::from([(place.clone(), 7)]));
    let staged = Staged {
        load: LOAD.to_owned(),
        store_id: kept.store.manifest().store_id.clone(),
        rows: 1,
        is_final: false,
        runs: kept.write(&loaded),
    };
    staged.write(&kept.disk.blobs()).expect("staged");
    let ledger = kept.store.ledger();
    ledger.adopt("history", LOAD, false).expect("adopted");
    kept.rebuild();
    *kept.book.entry(place.clone()).or_default() += 7;
    kept.check("the dataset is loaded");
    let lines = lines_of(&Book::from([(place.clone(), count + 1)]));
    check_refused(&kept, &lines, "would fall below zero");
    let minus = Book::from([(place.clone(), count)]);
    kept.publish(&Book::new(), &minus).expect("published");
    kept.book.insert(place, 7);
    kept.check("corrected");
    kept.rebuild();
    kept.check("merged");
}

#[test]
fn users_breakdowns_by_minute_and_other_days_are_not_corrected() {
    let (kept, place, _) = counted();
    let key = &place.0;
    let hour = TimeCode::containing(place.1, Grain::Hour);
    let minute = TimeCode::containing(place.1, Grain::Minute);
    let users = (format!("_u.l|{key}.{hour}"), "AgEHDAMIAQhLu0wK");
    let by_minute = (format!("_m*c.l|{key}.{minute}"), "US:1");
    for ((line, payload), said) in [
        (users, "sketches of users are not corrected yet"),
        (by_minute, "breakdowns by minute are not corrected yet"),
    ] {
        let mut lines = lines_of(&Book::from([(place.clone(), 1)]));
        lines.insert(line, payload.to_owned());
        check_refused(&kept, &lines, said);
    }
    let mut lines = lines_of(&Book::from([(place.clone(), 1)]));
    let user = UserKey::from_bytes([7; 12]);
    let line = format!("{}{}", user.prefix(), day().code());
    lines.insert(line, "78301.click..ad=42:1".to_owned());
    check_refused(
        &kept,
        &lines,
        "would have done less than nothing on 2012-03-16",
    );
    let next_day = (key.clone(), DAY + DAYS, "US".to_owned());
    let lines = lines_of(&Book::from([(next_day, 1)]));
    check_refused(&kept, &lines, "has counts of other days than 2012-03-16");
    check_refused(&kept, &BTreeMap::new(), "it has no run");
}

#[test]
fn a_fix_of_other_records_or_of_a_day_that_is_too_young_is_refused() {
    let (kept, place, _) = counted();
    let one = Book::from([(place, 1)]);
    let later = Corrects {
        from: 0,
        until: 1 << 40,
    };
    let nothing = Corrects { from: 1, until: 1 };
    for corrects in [later, nothing] {
        let fix = Fix {
            day: day(),
            version: 1,
            corrects,
            plus: kept.write(&lines_of(&one)),
            minus: Vec::new(),
        };
        let error = kept.store.ledger().publish_fix(&fix).expect_err("refused");
        let error = error.to_string();
        assert!(error.contains("are not records of the log"), "{error}");
    }
    kept.clock.set((DAY + 25 * HOURS) * 1_000);
    let error = kept.publish(&one, &Book::new()).expect_err("refused");
    let said = "breakdowns by minute of 2012-03-16 are still kept";
    assert!(error.to_string().contains(said), "{error}");
    let runs = kept.disk.blobs().list(names::RUNS).expect("listed");
    assert!(runs.is_empty(), "{runs:?}");
    kept.check("at the end");
}
