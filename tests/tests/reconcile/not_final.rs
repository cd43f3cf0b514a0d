//! Days that should be final, and days that never become so, are told of.

use tallyring_archive::{Blobs, Manifest};
use tallyring_realtime::{Error, closed_without_final, not_final};
use tallyring_records::Day;

use crate::sent::{DAY, DAYS, Sent};
use crate::world::World;

/// A day that fails for long must not be forgotten once a later one is final.
#[test]
fn a_day_before_the_first_final_one_is_still_told_of() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    world.at_days(1);
    world.send(vec![Sent::click("e2", "a", "phone").at(DAY + DAYS + 60)]);
    world.at_days(4);
    let (first, second) = (Day::of(DAY), Day::of(DAY + DAYS));
    let judged = world.try_judge_of(second).expect("judged");
    let ledger = world.store().ledger();
    ledger
        .publish_final(&judged.into_final())
        .expect("published");
    let manifest = world.store().manifest();
    let open = not_final(&world.disk.blobs(), &manifest, DAY + 2 * DAYS);
    assert_eq!(open.expect("a log"), [first]);
}

/// Nothing can make such a day final any more, so it is told apart from those that wait.
#[test]
fn a_day_that_left_the_log_without_being_final_is_told_of() {
    let mut world = World::new(1);
    world.send(vec![Sent::click("e1", "a", "phone")]);
    world.at_days(3);
    let told = |world: &World, of: fn(&Blobs, &Manifest, i64) -> Result<Vec<Day>, Error>| {
        let manifest = world.store().manifest();
        of(&world.disk.blobs(), &manifest, DAY + 2 * DAYS).expect("a log")
    };
    let days = [Day::of(DAY), Day::of(DAY + DAYS)];
    assert_eq!(told(&world, not_final), days);
    assert_eq!(told(&world, closed_without_final), []);
    world.fill_segments();
    world.at_days(20);
    let ledger = world.store().ledger();
    ledger.expire_log().expect("a new segment");
    ledger.flush().expect("flushed");
    ledger.expire_log().expect("expired");
    assert_eq!(told(&world, not_final), []);
    assert_eq!(told(&world, closed_without_final), days);
}

/// The times of segments do not tell of it: the oldest one that is left was begun before the lost records are said to
/// be.
#[test]
fn days_that_left_the_log_after_the_clock_was_set_back_are_told_of() {
    let mut world = World::new(1);
    world.at_days(6);
    let ahead = Sent::click("e1", "a", "phone").at(DAY + 5 * DAYS + 60);
    world.send(vec![ahead]);
    world.fill_segments();
    for _ in 0..4 {
        world.pass(-DAYS);
    }
    world.fill_segments();
    world.at_days(14);
    let ledger = world.store().ledger();
    assert!(ledger.expire_log().expect("expired") > 0);
    let day = |number: i64| Day::of(DAY + number * DAYS);
    let manifest = world.store().manifest();
    let left = manifest.intake.left_log.iter().copied();
    assert_eq!(left.collect::<Vec<_>>(), [day(5), day(6)]);
    let error = world.try_judge_of(day(5)).expect_err("it left the log");
    let text = error.to_string();
    assert!(text.contains("because the clock had been ahead"), "{text}");
    let until = DAY + 9 * DAYS;
    let waits = not_final(&world.disk.blobs(), &manifest, until).expect("a log");
    assert!(waits.ends_with(&[day(7), day(8)]), "{waits:?}");
    assert!(
        !waits.contains(&day(5)) && !waits.contains(&day(6)),
        "{waits:?}"
    );
    let closed = closed_without_final(&world.disk.blobs(), &manifest, until).expect("a log");
    assert!(
        closed.contains(&day(5)) && closed.contains(&day(6)),
        "{closed:?}"
    );
}
