//! Ids of other days: an event that repeats one is a duplicate for as long as the log, its journal or `ids_days` know
//! it.

use std::collections::BTreeMap;

use tallyring_realtime::{Error, IdHistory, Reconcile, Reconciled};
use tallyring_records::{Day, LoggedFinal};

use crate::again::{self, try_again};
use crate::sent::{DAY, DAYS, HOURS, Sent};
use crate::world::{SHARDS, World};

/// Scratch files leave so much of the disk free.
const SCRATCH_FREE_BYTES_MIN: u64 = 64 << 20;

/// The click `e1` comes on the first day, and again on day `again`. All of the log is in many segments.
fn sent_twice(world: &mut World, again: i64) {
    for day in 0..=again {
        world.at_days(day);
        let at = world.now();
        if day == 0 || day == again {
            world.send(vec![Sent::click("e1", "a", "phone").at(at)]);
        }
        world.fill_segments();
    }
}

fn judge(world: &World, day: i64) -> Reconciled {
    let judged = world.try_judge_of(Day::of(DAY + day * DAYS));
    let judged = judged.expect("judged");
    assert!(judged.unexplained.is_none(), "{:?}", judged.unexplained);
    judged
}

/// The causes that a reconcile tells which knows the first click.
fn duplicate() -> BTreeMap<String, i128> {
    BTreeMap::from([("duplicate_other_day".to_owned(), -1)])
}

fn history(world: &World) -> IdHistory {
    let history = world.store().intake().id_history(None, "e1");
    history.expect("the log")
}

/// Since when ids were known, Unix milliseconds.
fn ids_from_ms(judged: &Reconciled) -> Option<i64> {
    judged.proof.as_ref().expect("a proof").ids_from_ms
}

#[test]
fn ids_are_known_for_as_long_as_the_journal() {
    let mut world = World::new(1);
    world.options.journal_days = 60;
    world.restart_with(Vec::new());
    let first_ms = world.now() * 1_000;
    sent_twice(&mut world, 4);
    world.at_days(16);
    assert!(world.hide_users() > 0, "old segments are a journal");
    let judged = judge(&world, 4);
    assert_eq!(judged.types["click"].causes, duplicate());
    assert_eq!(ids_from_ms(&judged), Some(first_ms));
    let counts = history(&world).counts;
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert_eq!(world.void("e1").now.len(), 2, "on both days");
    assert_eq!(judge(&world, 0).types["click"].causes["voided"], -1);
    assert_eq!(
        judge(&world, 4).types["click"].causes,
        duplicate(),
        "what repeats a voided click is a duplicate"
    );
}

/// An older build forgot them after `oplog_days`, whatever the log kept. Ids that the day does not have take no disk.
#[test]
fn ids_that_runs_forgot_come_from_the_log() {
    let mut world = World::new(1);
    world.options.journal_days = 60;
    world.restart_with(Vec::new());
    sent_twice(&mut world, 4);
    world.at_days(5);
    let at = world.now();
    let others = |number| Sent::click(&format!("o{number}"), "a", "phone").at(at);
    world.send((0..300).map(others).collect());
    world.fill_segments();
    world.at_days(11);
    let at = world.now();
    world.send(vec![Sent::click("e2", "a", "phone").at(at)]);
    world.at_days(12);
    let known = judge(&world, 4);
    assert_eq!(known.types["click"].causes, duplicate());
    let mut manifest = (*world.store().manifest()).clone();
    let runs = &mut manifest.intake.ids.runs;
    let before = runs.len();
    runs.retain(|run| run.newest_ms >= (DAY + 6 * DAYS) * 1_000);
    assert!((1..before).contains(&runs.len()), "some are left");
    world.disk.set_free_bytes(SCRATCH_FREE_BYTES_MIN);
    for runs_left in [true, false] {
        if !runs_left {
            manifest.intake.ids.runs.clear();
        }
        let reconcile = Reconcile {
            day: known.day,
            load: "fedcba9876543210",
            rules: None,
            by: None,
            shards: SHARDS,
            level: 1,
            memory_bytes: 1 << 12,
        };
        let judged = reconcile.run(&world.disk.blobs(), &manifest, &|_, _| {});
        let judged = judged.expect("judged");
        assert_eq!(judged.types, known.types);
        assert_eq!(judged.proof, known.proof);
    }
}

#[test]
fn ids_of_a_damaged_run_come_from_the_log() {
    for is_cut in [true, false] {
        let mut world = World::new(1);
        world.options.journal_days = 60;
        world.restart_with(Vec::new());
        sent_twice(&mut world, 4);
        world.at_days(12);
        let known = judge(&world, 4);
        assert_eq!(known.types["click"].causes, duplicate());
        assert!(!history(&world).is_partial);
        let runs = world.store().manifest().intake.ids.runs.clone();
        damage(&world, &runs[0].run.name, is_cut);
        world.restart_with(Vec::new());
        assert_eq!(world.store().manifest().intake.ids.runs, runs, "no replay");
        assert!(history(&world).is_partial);
        let judged = judge(&world, 4);
        assert_eq!(judged.types, known.types);
        assert_eq!(judged.proof, known.proof);
    }
}

/// The records of some of its ids have left the log.
#[test]
fn a_version_tells_since_when_ids_are_known_where_a_run_is_lost() {
    let mut world = World::new(1);
    world.options.ids_days = 30;
    world.restart_with(Vec::new());
    sent_twice(&mut world, 9);
    let removed = world.store().ledger().expire_log().expect("expired");
    assert!(removed > 0, "segments of the first day");
    world.at_days(12);
    assert_eq!(judge(&world, 9).types["click"].causes, duplicate());
    let runs = world.store().manifest().intake.ids.runs.clone();
    damage(&world, &runs[0].run.name, true);
    let judged = judge(&world, 9);
    assert_eq!(judged.types["click"].causes, BTreeMap::new());
    let begun_ms = world.store().intake().log_begun_ms();
    // To the minute.
    let from_ms = ids_from_ms(&judged).expect("ids are known");
    assert!(from_ms > begun_ms - 60_000, "{from_ms} {begun_ms}");
    let published = world.store().ledger().publish_final(&judged.into_final());
    published.expect("published");
    again::check(&world, "by the log alone");
}

/// Cuts a file off, or flips a bit of its first block.
fn damage(world: &World, name: &str, is_cut: bool) {
    match is_cut {
        true => world.disk.truncate(name, 9),
        false => world.disk.flip_bit(name, 100),
    }
}

/// Its verdict of before stands.
#[test]
fn a_duplicate_stays_one_once_its_first_record_is_forgotten() {
    let mut world = World::new(1);
    // No run has both records.
    world.options.id_hours = 72;
    world.restart_with(Vec::new());
    sent_twice(&mut world, 6);
    world.at_days(9);
    let first = judge(&world, 6);
    assert_eq!(first.types["click"].causes, duplicate());
    let published = world.store().ledger().publish_final(&first.into_final());
    published.expect("published");
    again::check(&world, "the log has the first record");
    world.pass(3 * DAYS);
    let removed = world.store().ledger().expire_log().expect("expired");
    assert!(removed > 0, "segments of the first day");
    assert!(!judge(&world, 6).is_new);
    let version = &world.store().manifest().archive.finals[0];
    let logged = version.logged().expect("a record");
    let refused = try_again(&world, &logged, SHARDS).expect_err("refused");
    let refused = refused.to_string();
    assert!(refused.contains("may have left the log since"), "{refused}");
}

#[test]
fn ids_are_known_after_their_records_left_the_log_where_that_is_wanted() {
    for ids_days in [0, 30] {
        let mut world = World::new(1);
        world.options.ids_days = ids_days;
        world.restart_with(Vec::new());
        let minute_ms = world.now() * 1_000;
        sent_twice(&mut world, 9);
        let removed = world.store().ledger().expire_log().expect("expired");
        assert!(removed > 0, "segments of the first day");
        world.at_days(12);
        let judged = judge(&world, 9);
        let (causes, from_ms) = (&judged.types["click"].causes, ids_from_ms(&judged));
        let told = history(&world);
        assert_eq!(told.counts.len(), 1, "the log has one: {told:?}");
        if ids_days == 0 {
            assert_eq!((causes, told.left_ms), (&BTreeMap::new(), None));
            assert!(from_ms.is_some_and(|from_ms| from_ms > minute_ms));
            continue;
        }
        assert_eq!((causes, told.left_ms), (&duplicate(), Some(minute_ms)));
        assert_eq!(from_ms, Some(minute_ms));
        assert_eq!(world.void("e1").now.len(), 1, "the first is not known");
        let published = world.store().ledger().publish_final(&judged.into_final());
        published.expect("published");
        again::check(&world, "runs know the first record");
        world.at_days(13 + i64::from(ids_days));
        assert_eq!(
            history(&world).left_ms,
            Some(minute_ms),
            "runs are of a month"
        );
        // The segment ends that began in the month.
        world.fill_segments();
        world.at_days(13 + i64::from(ids_days) + 31);
        let removed = world.store().ledger().expire_log().expect("expired");
        assert!(removed > 0, "segments of the month");
        world.send(vec![Sent::click("e2", "a", "phone").at(world.now())]);
        world.store().ledger().flush().expect("flushed");
        assert_eq!(history(&world).left_ms, None, "it is forgotten");
    }
}

/// The ids that a version did not know are none of its ids when it is made again. The version is that of a store in
/// which the first click had another id.
#[test]
fn a_version_that_is_made_again_knows_the_ids_that_it_knew() {
    let send = |id: &str| {
        let mut world = World::new(1);
        world.send(vec![Sent::click(id, "a", "phone").at(DAY - HOURS)]);
        world.pass(26 * HOURS);
        world.store().ledger().flush().expect("flushed");
        world.send(vec![Sent::click("e1", "a", "phone")]);
        world.at_days(3);
        world
    };
    let mut other = send("e0");
    assert_eq!(other.reconcile().types["click"].after, 1);
    again::check(&other, "all ids are known");
    let logged = other.store().manifest().archive.finals[0].logged();
    let logged = logged.expect("a record");
    let world = send("e1");
    let made = |ids_from: u64| -> Result<Reconciled, Error> {
        let logged = LoggedFinal {
            ids_from,
            ..logged.clone()
        };
        try_again(&world, &logged, SHARDS)
    };
    let known = judge(&world, 0).proof.expect("a proof").ids_from;
    assert_eq!(made(known + 1).expect("the same").types, logged.types);
    let refused = made(known).expect_err("refused").to_string();
    assert!(refused.contains("other counts or verdicts"), "{refused}");
}
