//! Final versions are made again from the log by what their records say.

use tallyring_archive::{Disk, FinalEntry, SchemaEntry, clear_at_start, names};
use tallyring_realtime::{Error, Reconcile, Reconciled, Recount, check_final_load, store_list};
use tallyring_records::{Form, List, ListKind, LoggedFinal};

use crate::sent::{HOURS, Sent, bots, schema};
use crate::world::{SHARDS, World};

const LOAD: &str = "fedcba9876543210";
const SEEDS: u64 = 12;

/// Makes every version again, in files of another form, and compares it with what was published.
pub(crate) fn check(world: &World, when: &str) {
    let store = world.store();
    store.ledger().flush().expect("flushed");
    for version in &store.manifest().archive.finals {
        let logged = version.logged().expect("the log has a record");
        assert!(version.proof.as_ref().is_some_and(|proof| proof.is_logged));
        let again = try_again(world, &logged, 3);
        let again = again.unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(
            (again.upto, &again.types),
            (version.upto, &version.types),
            "{when}"
        );
        let told = (version.filtered.clone(), version.repeated.clone());
        let again = (Some(again.filtered), Some(again.repeated));
        assert_eq!(again, told, "{when}");
    }
}

pub(crate) fn try_again(
    world: &World,
    logged: &LoggedFinal,
    shards: u16,
) -> Result<Reconciled, Error> {
    let reconcile = Reconcile {
        day: logged.day,
        load: LOAD,
        rules: None,
        by: None,
        shards,
        level: 3,
        memory_bytes: 1 << 20,
    };
    let (blobs, manifest) = (world.store().world().blobs(), world.store().manifest());
    reconcile.again(&blobs, &manifest, logged, &|_, _| {})
}

/// Loses all files of these directories, and plans a recount.
fn lose(world: &mut World, directories: &[&str]) {
    drop(world.store.take());
    world.disk = world.disk.kill();
    for directory in directories {
        for file in world.disk.list(directory).expect("listed") {
            let name = format!("{directory}/{file}");
            world.disk.remove(&name).expect("removed");
        }
    }
    let blobs = world.disk.blobs();
    let plan = Recount::plan(&blobs, None, &schema(Vec::new()), SHARDS).expect("a plan");
    plan.manifest.commit(&blobs).expect("committed");
    clear_at_start(&blobs, &plan.manifest, false).expect("cleared");
    world.open_again();
}

/// Publishes what is awaited. Returns how many versions that are.
fn make_awaited(world: &World, when: &str) -> usize {
    let ledger = world.store().ledger();
    ledger.flush().expect("flushed");
    let awaited = world.store().manifest().archive.awaited.clone();
    for logged in &awaited {
        let again =
            try_again(world, logged, SHARDS).unwrap_or_else(|error| panic!("{when}: {error}"));
        let published = ledger.publish_again(&again.into_final());
        published.unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    assert!(
        world.store().manifest().archive.awaited.is_empty(),
        "{when}"
    );
    awaited.len()
}

/// All that is known of the versions, but for their files.
fn versions(world: &World) -> Vec<(LoggedFinal, bool)> {
    let finals = &world.store().manifest().archive.finals;
    let known = |version: &FinalEntry| (version.logged().expect("a proof"), version.touched);
    finals.iter().map(known).collect()
}

#[test]
fn a_recount_makes_all_versions_again_that_are_lost() {
    let mut made = 0;
    for seed in 1..=SEEDS {
        let mut world = World::new(seed);
        for _ in 0..world.chance.between(3, 12) {
            world.step();
        }
        world.at_days(world.days().max(2) + 1);
        for _ in 0..3 {
            world.reconcile();
            if world.chance.percent(50) {
                world.rebuild();
            }
            world.change();
        }
        world.reconcile();
        let before: Vec<LoggedFinal> = versions(&world).into_iter().map(|(of, _)| of).collect();
        for lost in [
            &[names::FINALS][..],
            &[names::RUNS, names::ARCHIVE],
            &[names::RUNS, names::ARCHIVE, names::FINALS, names::MANIFESTS],
        ] {
            let when = format!("seed {seed}, without {lost:?}");
            lose(&mut world, lost);
            made += make_awaited(&world, &when);
            let after: Vec<LoggedFinal> = versions(&world).into_iter().map(|(of, _)| of).collect();
            assert_eq!(after, before, "{when}");
            world.check(&when);
            assert!(!world.judge().is_new, "{when}");
            world.rebuild();
            world.check(&format!("{when}, merged"));
            check(&world, &when);
        }
    }
    assert!(made > 60, "{made} versions");
}

/// Events that came after the newest version are late for it, whatever was lost.
#[test]
fn a_version_that_is_made_again_is_corrected_by_what_came_since() {
    let mut world = World::new(1);
    world.send(vec![
        Sent::click("e1", "a", "phone"),
        Sent::click("b1", "a", "bot"),
    ]);
    world.at_days(3);
    world.reconcile();
    world.restart_with(vec![bots()]);
    world.reconcile();
    world.send(vec![Sent::click("e2", "a", "phone")]);
    world.store().ledger().flush().expect("flushed");
    let before = versions(&world);
    assert_eq!(
        before
            .iter()
            .map(|(_, touched)| *touched)
            .collect::<Vec<bool>>(),
        [false, true]
    );
    lose(&mut world, &[names::FINALS, names::MANIFESTS]);
    assert_eq!(make_awaited(&world, "lost"), 2);
    assert_eq!(versions(&world).last(), before.last());
    world.check("corrected");
}

/// True where a dataset that has counts of the day of the first version may become part of its final numbers.
fn takes_final_dataset(world: &World) -> bool {
    let manifest = world.store().manifest();
    let books = &manifest.archive.finals[0].books;
    check_final_load(&world.disk.blobs(), &manifest, "other", books).is_ok()
}

/// The log tells of every final dataset, so a version without one never had one.
#[test]
fn a_final_day_takes_no_dataset_whatever_was_lost() {
    let mut world = World::new(1);
    world.send(vec![
        Sent::click("e1", "a", "phone"),
        Sent::click("b1", "a", "bot"),
    ]);
    world.at_days(3);
    world.reconcile();
    assert!(!takes_final_dataset(&world), "it is final");
    for lost in [
        &[names::FINALS][..],
        &[names::RUNS, names::FINALS, names::MANIFESTS],
    ] {
        lose(&mut world, lost);
        assert_eq!(make_awaited(&world, "lost"), 1, "{lost:?}");
        assert!(!takes_final_dataset(&world), "{lost:?}");
    }
}

/// A list changes more often than anything else that judges.
#[test]
fn a_version_is_made_again_by_the_lists_of_then() {
    let mut world = World::new(1);
    let mut rule = bots();
    rule.form = Form::List {
        list: "networks".into(),
    };
    let mut listed = schema(vec![rule]);
    let content = b"203.0.113.0/24\n192.0.2.0/24\n";
    listed.lists.push(List {
        name: "networks".into(),
        kind: ListKind::Ip,
        sha256: store_list(&world.disk.blobs(), content).expect("stored"),
    });
    world.store().declare(listed).expect("usable");
    world.send(vec![
        Sent::click("e1", "a", "phone").from("203.0.113.9"),
        Sent::click("e2", "a", "phone")
            .from("198.51.100.7")
            .times(5),
    ]);
    world.at_days(3);
    assert_eq!(world.reconcile().types["click"].after, 5);
    let other = b"198.51.100.0/24\n192.0.2.0/24\n";
    let put = world.store().intake().put_list("networks", other);
    put.expect("usable");
    assert_eq!(world.reconcile().types["click"].after, 1);
    let before = versions(&world);
    for lost in [
        &[names::FINALS][..],
        &[names::RUNS, names::FINALS, names::MANIFESTS],
    ] {
        lose(&mut world, lost);
        assert_eq!(make_awaited(&world, "lost"), 2);
        assert_eq!(versions(&world), before);
    }
}

/// A manifest names what was declared while it was written; the records of a reconcile end before.
#[test]
fn no_version_is_judged_by_rules_that_came_after_its_records() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("b1", "a", "bot")]);
    world.at_days(3);
    let judged = world.judge();
    let mut manifest = (*world.store().manifest()).clone();
    let mut since = manifest.intake.ids.flushed;
    since.sequence += 1;
    let later = SchemaEntry::new(since, schema(vec![bots()]));
    manifest.intake.schemas.push(later);
    let reconcile = Reconcile {
        day: judged.day,
        load: LOAD,
        rules: None,
        by: None,
        shards: SHARDS,
        level: 3,
        memory_bytes: 1 << 20,
    };
    let run = reconcile.run(&world.disk.blobs(), &manifest, &|_, _| {});
    assert_eq!(run.expect("judged").rules, judged.rules);
}

/// A day with an awaited version is not reconciled, and nothing but that version takes its number.
#[test]
fn no_version_comes_before_one_that_is_awaited() {
    let mut world = World::new(1);
    world.send(vec![
        Sent::click("e1", "a", "phone"),
        Sent::click("b1", "a", "bot"),
    ]);
    world.at_days(3);
    world.reconcile();
    world.restart_with(vec![bots()]);
    let second = world.judge().into_final();
    let published = world.store().ledger().publish_final(&second);
    published.expect("published");
    lose(&mut world, &[names::FINALS]);
    world.pass(HOURS);
    let refused = world.try_judge().expect_err("refused").to_string();
    assert!(
        refused.contains("version 1 of 2012-03-16 is being made again"),
        "{refused}"
    );
    let manifest = world.store().manifest();
    let awaited = &manifest.archive.awaited;
    assert_eq!(manifest.archive.next_fix(awaited[0].day), 3);
    let ledger = world.store().ledger();
    let first = try_again(&world, &awaited[0], SHARDS)
        .expect("made")
        .into_final();
    let refused = ledger
        .publish_final(&first)
        .expect_err("refused")
        .to_string();
    assert!(
        refused.contains("version 1 of 2012-03-16 is to be made again"),
        "{refused}"
    );
    let mut other = first.clone();
    other.entry.upto += 1;
    let refused = ledger
        .publish_again(&other)
        .expect_err("refused")
        .to_string();
    assert!(
        refused.contains("does not give version 1 of 2012-03-16 again"),
        "{refused}"
    );
    ledger.publish_again(&first).expect("published");
    let wrong = LoggedFinal {
        content: "00".repeat(32),
        ..awaited[1].clone()
    };
    let refused = try_again(&world, &wrong, SHARDS)
        .expect_err("refused")
        .to_string();
    assert!(
        refused.contains("version 2 of 2012-03-16 cannot be made again"),
        "{refused}"
    );
    assert_eq!(make_awaited(&world, "the second"), 1);
    world.check("both are there");
}
