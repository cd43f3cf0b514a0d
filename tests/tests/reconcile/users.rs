//! Distinct users of final days: those of the books, and of nothing else where the counts are those of the books.

use std::collections::{BTreeMap, BTreeSet};

use tallyring_archive::KeepDays;
use tallyring_realtime::Read;
use tallyring_records::{TIME_MAX, TIME_MIN};

use crate::sent::{DAY, DAYS, HOURS, Sent, bots};
use crate::world::{Book, World};

/// Estimates of an ad's users by the hour since the day began; as of a kept generation where one is named.
fn users_as_of(world: &World, ad: &str, as_of: Option<u64>) -> BTreeMap<i64, u64> {
    let read = Read {
        namespace: "ad_click".into(),
        key: ad.into(),
        subtotal: None,
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    let hour = |start: i64| usize::try_from((start - DAY).div_euclid(HOURS)).ok();
    let view = world.store().view();
    let users = view.users(read, as_of).expect("a view");
    let united = users.unite(&(DAY..DAY + 40 * DAYS), hour).expect("users");
    let found = united.iter();
    found
        .map(|(&hour, users)| (hour as i64, users.estimate()))
        .collect()
}

fn users(world: &World, ad: &str) -> BTreeMap<i64, u64> {
    users_as_of(world, ad, None)
}

/// Checks that the one user of each ad stands in each hour that a reconciled day counts, and in no other.
pub(crate) fn check(world: &World, expected: &Book, when: &str) {
    for ad in ["a0", "a1", "a2"] {
        let hours = expected.keys().filter(|(of, ..)| of == ad);
        let hours: BTreeSet<i64> = hours.map(|(_, start, _)| (start - DAY) / HOURS).collect();
        let expected: BTreeMap<i64, u64> = hours.into_iter().map(|hour| (hour, 1)).collect();
        let mut found = users(world, ad);
        found.retain(|hour, _| *hour < 24);
        assert_eq!(found, expected, "{when}: {ad}");
    }
}

/// Two people and two bots come in the first hour, and a bot in the third.
fn with_bots() -> World {
    let mut world = World::new(1);
    let click = |id: &str, device: &str, user: &str| Sent::click(id, "a", device).of(user);
    world.send(vec![
        click("e1", "phone", "ann"),
        click("e2", "phone", "bob"),
        click("b1", "bot", "crawler 1"),
        click("b2", "bot", "crawler 2"),
        click("b3", "bot", "crawler 1").at(DAY + 2 * HOURS),
    ]);
    world.at_days(3);
    assert_eq!(users(&world, "a"), BTreeMap::from([(0, 4), (2, 1)]));
    world
}

#[test]
fn users_of_events_that_a_reconcile_took_away_are_served_no_more() {
    let mut world = with_bots();
    let counted = world.store().manifest().archive.active;
    world.restart_with(vec![bots()]);
    world.reconcile();
    let people = BTreeMap::from([(0, 2)]);
    assert_eq!(users(&world, "a"), people, "an hour of bots has nobody");
    let as_counted = users_as_of(&world, "a", Some(counted));
    assert_eq!(as_counted, BTreeMap::from([(0, 4), (2, 1)]));
    world.rebuild();
    assert_eq!(users(&world, "a"), people, "merged");
    // The rule goes, and all of them come back.
    world.restart_with(Vec::new());
    world.reconcile();
    assert_eq!(users(&world, "a"), BTreeMap::from([(0, 4), (2, 1)]));
}

/// Sends late clicks of two people after a version that took bots away, and checks who is served at every stage.
fn check_late_users(world: &mut World, all: &BTreeMap<i64, u64>) {
    world.send(vec![
        Sent::click("e3", "a", "phone").of("cem"),
        Sent::click("e4", "b", "phone").of("dan"),
    ]);
    for when in ["in memory", "flushed", "exported", "merged", "merged again"] {
        let found = users(world, "a");
        assert_eq!(&found, all, "{when}: an hour of bots stays empty");
        assert_eq!(users(world, "b"), BTreeMap::from([(0, 1)]), "{when}");
        match when {
            "in memory" => world.store().ledger().flush().expect("flushed"),
            "flushed" => world.restart_with(vec![bots()]),
            _ => world.rebuild(),
        }
    }
    world.reconcile();
    assert_eq!(users(world, "a"), BTreeMap::from([(0, 3)]));
    assert_eq!(users(world, "b"), BTreeMap::from([(0, 1)]));
}

#[test]
fn users_who_come_after_a_version_are_served_without_those_that_it_took_away() {
    let mut world = with_bots();
    world.restart_with(vec![bots()]);
    // Something late that the version judges stands in another store than what comes after.
    world.send(vec![Sent::click("e0", "a", "bot").of("crawler 3")]);
    world.reconcile();
    check_late_users(&mut world, &BTreeMap::from([(0, 3)]));
}

/// Usually nothing late came before the version.
#[test]
fn users_who_come_after_a_version_are_told_apart_where_nothing_late_came_before() {
    let mut world = with_bots();
    world.restart_with(vec![bots()]);
    world.reconcile();
    check_late_users(&mut world, &BTreeMap::from([(0, 3)]));
}

/// Late stores that wait for a rebuild are few. Where no further one is closed, nothing tells the users who came after
/// a version from those whom it took away, and such an hour has all who were counted, until the next version.
#[test]
fn users_who_come_after_a_version_are_served_with_all_that_were_counted_where_late_stores_are_many()
{
    let mut world = with_bots();
    world.restart_with(vec![bots()]);
    for number in 0..20 {
        let other = Sent::click(&format!("o{number}"), "o", "phone").of("ann");
        world.send(vec![other.at(DAY - DAYS)]);
        world.store().ledger().begin_reconcile().expect("begun");
    }
    let late = world.store().manifest().intake.stores.len();
    assert!((17..22).contains(&late), "{late} stores");
    world.reconcile();
    check_late_users(&mut world, &BTreeMap::from([(0, 5)]));
}

/// A version whose verdicts are those of the way in takes nobody away, so later users count at once.
#[test]
fn users_who_come_after_a_version_without_a_difference_are_served() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone").of("ann")]);
    world.at_days(3);
    world.reconcile();
    world.send(vec![Sent::click("e2", "a", "phone").of("bob")]);
    assert_eq!(users(&world, "a"), BTreeMap::from([(0, 2)]));
}

/// Folded counts of a day stand at its beginning, and so do the users of its books, which have the hours.
#[test]
fn users_of_a_final_day_whose_hours_are_folded_stand_where_its_counts_do() {
    let mut world = World::new(1);
    let click = |id: &str, hour: i64, user: &str| {
        let click = Sent::click(id, "a", "phone");
        click.of(user).at(DAY + hour * HOURS)
    };
    world.send(vec![
        click("e1", 3, "ann"),
        click("e2", 5, "ann"),
        click("e3", 5, "bob"),
        Sent::click("b1", "a", "bot").of("crawler"),
    ]);
    world.at_days(3);
    world.restart_with(vec![bots()]);
    world.reconcile();
    assert_eq!(users(&world, "a"), BTreeMap::from([(3, 1), (5, 2)]));
    world.keep = KeepDays {
        hours: Some(20),
        ..KeepDays::default()
    };
    world.at_days(45);
    assert_eq!(users(&world, "a"), BTreeMap::from([(0, 2)]));
}
