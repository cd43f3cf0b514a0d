//! Actions of users on final days: those of the events that count, and no others.

use std::collections::BTreeMap;

use tallyring_archive::{Origin, Run, RunEntry, RunSpec, RunWriter, Sign};
use tallyring_records::{What, is_actions};

use crate::sent::{DAY, DAYS, HOURS, Sent, bots};
use crate::world::{Book, World};

/// Counts by ad and hour.
type ByHour = BTreeMap<(String, i64), u64>;

fn hour_of(at: i64) -> i64 {
    at - at.rem_euclid(HOURS)
}

/// The actions of one user on the day, of whatever ad.
fn of_user(world: &World, user: &str) -> ByHour {
    let view = world.store().view();
    let users = [user.to_owned()];
    let read = view.actions(&users, &(DAY..DAY + DAYS), false);
    let read = read.expect("read").expect("files answer");
    let mut found = ByHour::new();
    for did in &read.users[0] {
        let what = std::str::from_utf8(read.whats.get(did.what)).expect("text");
        let what = What::parse(what).expect("an action");
        let ad = what.entity("ad").expect("an ad").to_owned();
        *found.entry((ad, hour_of(did.at))).or_insert(0) += did.n;
    }
    found
}

/// The actions of all users on the day.
fn of_all(world: &World) -> ByHour {
    let mut found = ByHour::new();
    let view = world.store().view();
    let read = view.all_actions(&(DAY..DAY + DAYS), &mut |_, at, action, n| {
        let what = std::str::from_utf8(action.what).expect("text");
        let what = What::parse(what).expect("an action");
        let ad = what.entity("ad").expect("an ad").to_owned();
        *found.entry((ad, hour_of(at))).or_insert(0) += n;
    });
    read.expect("read");
    found
}

/// Checks that users did what a reconciled day counts: the one user of each ad, and all together.
pub(crate) fn check(world: &World, expected: &Book, when: &str) {
    let mut by_hour = ByHour::new();
    for ((ad, start, _), n) in expected {
        *by_hour.entry((ad.clone(), *start)).or_insert(0) += n;
    }
    assert_eq!(of_all(world), by_hour, "{when}");
    for ad in ["a0", "a1", "a2"] {
        let mut own = by_hour.clone();
        own.retain(|(of, _), _| of == ad);
        assert_eq!(of_user(world, &format!("user of {ad}")), own, "{when}");
    }
}

/// So many actions of a day that they are counted by the hour leave, and then come back.
#[test]
fn a_bot_with_very_many_actions_leaves_with_all_of_them_and_comes_back() {
    const ACTIONS: usize = 70_000;
    let mut world = World::new(1);
    let robot = |second: usize| {
        let click = Sent::click("", "a0", "bot").at(DAY + second as i64 % HOURS);
        Sent { id: None, ..click }
    };
    for part in 0..ACTIONS / 1_000 {
        let sent = (0..1_000).map(|number| robot(part + number));
        world.send(sent.collect());
    }
    world.send(vec![Sent::click("e1", "a0", "phone")]);
    let counted = |n| BTreeMap::from([(("a0".to_owned(), DAY), n)]);
    let all = ACTIONS as u64 + 1;
    assert_eq!(of_all(&world), counted(all));
    world.at_days(3);
    world.restart_with(vec![bots()]);
    world.reconcile();
    for when in ["a delta", "merged"] {
        assert_eq!(of_all(&world), counted(1), "{when}");
        assert_eq!(of_user(&world, "user of a0"), counted(1), "{when}");
        world.rebuild();
    }
    world.restart_with(Vec::new());
    world.reconcile();
    for when in ["a delta", "merged"] {
        assert_eq!(of_all(&world), counted(all), "{when}");
        world.rebuild();
    }
}

/// Users of whom the runs of fixes take actions away.
fn users_in_minus(world: &World) -> usize {
    let manifest = world.store().manifest();
    let minus = manifest.archive.runs.iter();
    let minus = minus.filter(|run| run.sign() == Sign::Minus);
    let mut users = 0;
    for run in Run::open_all(&world.disk.blobs(), minus).expect("open") {
        let mut cursor = run.cursor();
        while cursor.advance().expect("read") {
            let (key, _) = cursor.line().expect("read").expect("a line");
            users += usize::from(is_actions(key));
        }
    }
    users
}

#[test]
fn an_erased_person_leaves_the_runs_that_take_actions_away_and_others_stay() {
    let mut world = World::new(1);
    let robots = ["1", "2", "3"].map(|user| Sent::click(user, "a0", "bot").of(user));
    world.send(robots.into());
    world.at_days(3);
    world.restart_with(vec![bots()]);
    world.reconcile();
    world.rebuild();
    assert_eq!(users_in_minus(&world), 3);
    for (user, left) in [("1", 2), ("2", 1), ("3", 0)] {
        let erased = world.store().intake().erase(&[user.to_owned()]);
        erased.expect("erased");
        world.rebuild();
        assert_eq!(users_in_minus(&world), left, "without {user}");
        assert_eq!(of_all(&world), ByHour::new());
    }
}

/// The counts of a run; none where it has actions alone.
fn without_actions(world: &World, entry: &RunEntry) -> Option<RunEntry> {
    let blobs = world.disk.blobs();
    let spec = RunSpec {
        origin: Origin::Sorted("fedcba9876543210".into()),
        ..RunSpec::again(entry, 1)
    };
    let mut writer = RunWriter::create(&blobs, spec).expect("begun");
    let mut cursor = Run::open_named(&blobs, entry).expect("open").cursor();
    while cursor.advance().expect("read") {
        let (key, payload) = cursor.line().expect("read").expect("a line");
        if !is_actions(key) {
            writer.push(key, payload).expect("pushed");
        }
    }
    writer.finish().expect("written")
}

/// An older build made the day final: its fix moved counts, and no actions.
#[test]
fn the_next_version_corrects_the_actions_that_an_older_build_left() {
    let mut world = World::new(1);
    world.send(vec![
        Sent::click("e1", "a0", "phone"),
        Sent::click("b1", "a0", "bot"),
    ]);
    world.at_days(3);
    world.restart_with(vec![bots()]);
    let mut closed = world.judge().into_final();
    let fix = closed.fix.as_mut().expect("a fix");
    for runs in [&mut fix.plus, &mut fix.minus] {
        let others = runs.iter().filter_map(|run| without_actions(&world, run));
        *runs = others.collect();
    }
    let ledger = world.store().ledger();
    ledger.publish_final(&closed).expect("published");
    let counted = |n| BTreeMap::from([(("a0".to_owned(), DAY), n)]);
    assert_eq!(of_all(&world), counted(2), "an action too many");
    let second = world.reconcile();
    assert_eq!((second.version, second.is_new), (2, true));
    let click = &second.types["click"];
    assert_eq!((click.before, click.after), (1, 1), "no count changes");
    world.check("corrected");
    world.rebuild();
    world.check("corrected and merged");
    assert!(!world.judge().is_new);
    world.restart_with(Vec::new());
    world.reconcile();
    world.check("the bot is back");
}
