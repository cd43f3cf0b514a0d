//! Events that have lost what rules look at, or tell it otherwise.

use std::collections::BTreeMap;

use tallyring_archive::Run;
use tallyring_realtime::Reconciled;
use tallyring_records::{Form, line};

use crate::sent::{DAY, Sent, rule, twice_by};
use crate::world::World;

/// The lines of users in the books of a result.
fn sketches(world: &World, reconciled: &Reconciled) -> Vec<String> {
    let mut sketches = Vec::new();
    for run in Run::open_all(&world.disk.blobs(), &reconciled.books).expect("open") {
        let mut cursor = run.cursor();
        while cursor.advance().expect("read") {
            let (key, payload) = cursor.line().expect("read").expect("a line");
            if line::kind_of(key) == Some(line::Kind::Users) {
                let [key, payload] = [key, payload].map(String::from_utf8_lossy);
                sketches.push(format!("{key},{payload}"));
            }
        }
    }
    sketches
}

/// Clicks of people, and repeats of them that come three days later; then the segment of the first ones has pseudonyms,
/// and that of the others has names.
#[test]
fn pseudonyms_in_old_segments_change_no_verdict_and_no_sketch() {
    let mut world = World::new(1);
    world.options.journal_days = 60;
    world.restart_with(vec![twice_by("user")]);
    let click = |id: String| Sent::click(&id, "a", "phone");
    let first = (0..60).map(|id| click(format!("e{id}")).of(&format!("user {id}")));
    world.send(first.collect());
    world.at_days(2);
    assert_eq!(world.hide_users(), 0);
    world.at_days(3);
    let repeats = (0..60).map(|id| {
        let click = click(format!("r{id}")).of(&format!("user {id}"));
        click.at(DAY + 70)
    });
    world.send(repeats.collect());
    world.at_days(5);
    assert_eq!(world.hide_users(), 0);
    let users = sketches(&world, &world.judge());
    let version = world.reconcile();
    let click = &version.types["click"];
    assert_eq!((click.gross, click.after), (120, 60));
    world.at_days(10);
    assert!(world.hide_users() > 0);
    let again = world.judge();
    assert!(!again.is_new, "{:?}", again.types);
    assert_eq!(sketches(&world, &again), users);
    assert!(!users.is_empty());
    world.at_days(14);
    assert!(world.hide_users() > 0);
    let again = world.judge();
    assert!(!again.is_new, "{:?}", again.types);
    assert_eq!(sketches(&world, &again), users);
}

/// A rule takes another form under its name, and the events that it caught lack what it looks at now.
#[test]
fn a_rule_that_became_another_keeps_nothing_that_it_cannot_judge() {
    let mut world = World::new(1);
    world.restart_with(vec![rule("twice", "by.device", "bot")]);
    world.send(vec![Sent::click("b1", "a", "bot")]);
    world.restart_with(vec![twice_by("insertion")]);
    world.at_days(3);
    let click = &world.reconcile().types["click"];
    let causes = BTreeMap::from([("restored:twice".to_owned(), 1)]);
    assert_eq!((&click.causes, click.undecided), (&causes, 1));
}

/// Old segments lose addresses. A rule with memory by address then judges nothing anew, and keeps what it caught.
#[test]
fn a_rule_by_address_keeps_its_verdicts_once_the_log_has_lost_the_addresses() {
    let mut world = World::new(1);
    world.options.journal_days = 60;
    world.restart_with(vec![twice_by("ip")]);
    let clicks = (0..60).map(|id| {
        let click = Sent::click(&format!("e{id}"), "a", "phone");
        click.from(&format!("203.0.113.{}", id / 2))
    });
    world.send(clicks.collect());
    world.at_days(5);
    let version = world.reconcile();
    let click = &version.types["click"];
    assert_eq!((click.gross, click.after, click.undecided), (60, 30, 0));
    world.at_days(14);
    assert!(world.hide_users() > 0);
    let again = world.judge();
    assert!(!again.is_new, "{:?}", again.types);
    let click = &again.types["click"];
    assert_eq!(
        (click.after, click.undecided),
        (30, 30),
        "none is judged anew"
    );
    // Another rule of that name has judged none of them.
    let mut other = twice_by("ip");
    if let Form::Repeat { within_seconds, .. } = &mut other.form {
        *within_seconds += 1;
    }
    world.restart_with(vec![other]);
    let click = &world.judge().types["click"];
    let causes = BTreeMap::from([("restored:twice".to_owned(), 30)]);
    assert_eq!((&click.causes, click.undecided), (&causes, 60));
}
