//! Days that should be final, and days that never become so, are told of.

use tallyring_archive::{Blobs, Manifest};
use tallyring_realtime::{Error, closed_without_final, not_final, told_from};
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

/// A store in which days become final after 72 hours, with a click on each of its first days and old segments.
fn with_finals() -> World {
    let mut world = World::new(1);
    world.options.final_after_hours = Some(72);
    world.restart_with(Vec::new());
    for day in 0..3 {
        let click = Sent::click(&format!("e{day}"), "a", "phone").at(DAY + day * DAYS + 60);
        world.send(vec![click]);
        world.fill_segments();
        world.at_days(day + 1);
    }
    world
}

/// Lets segments go as the night does. Returns how many went.
fn expire(world: &World) -> usize {
    let ledger = world.store().ledger();
    ledger.flush().expect("flushed");
    ledger.expire_log().expect("expired")
}

fn make_final(world: &World, day: Day) {
    let judged = world.try_judge_of(day).expect("judged").into_final();
    let ledger = world.store().ledger();
    ledger.publish_final(&judged).expect("published");
}

#[test]
fn the_log_has_a_day_that_is_not_final_for_a_week_after_it_should_be() {
    let mut world = with_finals();
    let [first, second] = [Day::of(DAY), Day::of(DAY + DAYS)];
    // The first day has 72 hours and a week after its end.
    world.at_days(10);
    assert_eq!(expire(&world), 0, "older than a week, and held");
    let mut without = with_finals();
    without.options.final_after_hours = None;
    without.restart_with(Vec::new());
    without.at_days(10);
    assert!(expire(&without) > 0, "nothing is to become final");
    make_final(&world, first);
    assert_eq!(expire(&world), 0, "the day before the second is its first");
    make_final(&world, second);
    assert!(expire(&world) > 0);
    assert!(world.try_judge_of(first).is_err(), "it left the log");
}

#[test]
fn a_day_that_never_becomes_final_is_given_up() {
    let mut world = with_finals();
    world.at_days(12);
    assert!(expire(&world) > 0);
    let told = world.store().manifest();
    let closed = closed_without_final(&world.disk.blobs(), &told, DAY + DAYS).expect("a log");
    assert_eq!(closed, [Day::of(DAY)]);
}

#[test]
fn a_day_that_is_not_final_gives_way_where_the_log_lacks_room() {
    let mut world = with_finals();
    world.at_days(10);
    assert_eq!(expire(&world), 0);
    let bytes = world.store().status().oplog_bytes;
    world.options.oplog_bytes_max = bytes + 3 * world.options.segment_bytes;
    world.restart_with(Vec::new());
    let forecast = world.store().status().log_forecast;
    assert_eq!(forecast.held_go_in_days, Some(0), "{forecast:?}");
    assert!(expire(&world) > 0);
}

/// A journal keeps users as they were sent for as long as their days are to become final.
#[test]
fn users_of_days_that_are_not_final_have_no_pseudonyms() {
    let mut world = with_finals();
    world.options.journal_days = 60;
    world.restart_with(Vec::new());
    world.at_days(10);
    assert_eq!(world.hide_users(), 0);
    world.at_days(12);
    assert!(world.hide_users() > 0);
}

fn told(world: &World, day: Day) -> bool {
    let (blobs, manifest) = (world.disk.blobs(), world.store().manifest());
    let closed = closed_without_final(&blobs, &manifest, world.now()).expect("a log");
    let from = told_from(&blobs, &manifest, &world.options, world.now()).expect("a log");
    closed.contains(&day) && from.is_some_and(|from| day >= from)
}

/// Days, after the first one, on which the loss of the first day is told: the second day is final, and clicks come each
/// day.
fn days_that_tell(change: impl Fn(&mut World, i64)) -> Vec<i64> {
    let mut world = with_finals();
    world.at_days(4);
    make_final(&world, Day::of(DAY + DAYS));
    let mut telling = Vec::new();
    for day in 4..80 {
        world.fill_segments();
        world.at_days(day + 1);
        change(&mut world, day + 1);
        expire(&world);
        if told(&world, Day::of(DAY)) {
            telling.push(day + 1);
        }
    }
    telling
}

/// However long the log is kept, and where it lacks room for so much.
#[test]
fn the_loss_of_a_day_is_told_for_a_week() {
    let keep = |days: u32, journal: u32| {
        move |world: &mut World, day: i64| {
            if day == 5 {
                world.options.oplog_days = days;
                world.options.journal_days = journal;
                world.restart_with(Vec::new());
            }
        }
    };
    let lacks_room = |world: &mut World, day: i64| {
        if day == 5 {
            world.options.journal_days = 60;
            // So large that a day fits between the mark at which old segments go and the limit. The log is then shorter
            // by more than a day at once, and the loss is told for as much less.
            world.options.segment_bytes = 1 << 15;
            world.options.oplog_bytes_max = 8 * world.store().status().oplog_bytes;
            world.restart_with(Vec::new());
        }
    };
    for (kept, telling, left, least) in [
        ("for a week", days_that_tell(keep(7, 0)), 10..=13, 7),
        ("for 20 days", days_that_tell(keep(20, 0)), 18..=21, 7),
        ("as a journal", days_that_tell(keep(7, 60)), 58..=61, 7),
        ("without room", days_that_tell(lacks_room), 14..=50, 6),
    ] {
        let first = telling.first().expect(kept);
        assert!(left.contains(first), "{kept}: {telling:?}");
        assert!((least..=10).contains(&telling.len()), "{kept}: {telling:?}");
        let days: Vec<i64> = (*first..).take(telling.len()).collect();
        assert_eq!(telling, days, "{kept}");
    }
}

/// Days that left the log before days became final here are no loss.
#[test]
fn days_that_were_long_overdue_before_the_first_version_are_not_told_of() {
    let tells = |days: i64| {
        let mut world = with_finals();
        world.at_days(days);
        assert!(!told(&world, Day::of(DAY)), "no day ever became final");
        make_final(&world, Day::of(DAY + 2 * DAYS));
        world.at_days(12);
        assert!(expire(&world) > 0);
        told(&world, Day::of(DAY))
    };
    assert!(tells(5));
    assert!(!tells(7));
}
