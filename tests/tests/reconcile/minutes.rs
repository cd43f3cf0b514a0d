//! Minutes of final days follow the rules, as all other counts do.

use std::collections::BTreeMap;

use tallyring_realtime::{BooksView, Read, View};
use tallyring_records::MINUTES;

use crate::sent::{DAY, DAYS, Sent, bots};
use crate::world::World;

/// Counts of an ad by the minute, from the beginning of the day on.
fn minutes(view: &View<'_>, as_of: Option<u64>) -> BTreeMap<i64, u64> {
    let read = Read {
        namespace: "ad_click".into(),
        key: "a".into(),
        subtotal: Some(MINUTES.into()),
        from: DAY,
        to: DAY + DAYS,
        rolled: None,
    };
    let series = view.read(&read, as_of).expect("read").by_minute();
    let minutes = series.iter();
    minutes
        .map(|(code, count)| ((code.start() - DAY) / 60, count))
        .collect()
}

/// Checks the minutes that are served, and those of the final books.
fn check(world: &World, expected: &[(i64, u64)], when: &str) {
    let expected: BTreeMap<i64, u64> = expected.iter().copied().collect();
    let view = world.store().view();
    assert_eq!(minutes(&view, None), expected, "{when}");
    let books = view.books(&[("ad_click", Some("a"))], &(DAY..DAY + DAYS), None);
    let books = books.expect("it is final");
    let found = minutes(books.view(), Some(BooksView::AS_OF));
    assert_eq!(found, expected, "{when}, the books");
}

#[test]
fn minutes_of_a_final_day_are_corrected_both_ways() {
    let mut world = World::new(1);
    let at = |minute: i64| DAY + 60 * minute + 7;
    let click = |id: &str, device: &str, minute| Sent::click(id, "a", device).at(at(minute));
    world.send(vec![
        click("e1", "phone", 0),
        click("b1", "bot", 0),
        click("b2", "bot", 61),
        click("e2", "phone", 90),
    ]);
    world.at_days(3);
    let all = [(0, 2), (61, 1), (90, 1)];
    world.reconcile();
    check(&world, &all, "as it came");
    world.restart_with(vec![bots()]);
    world.reconcile();
    check(&world, &[(0, 1), (90, 1)], "without bots");
    world.rebuild();
    check(&world, &[(0, 1), (90, 1)], "merged");
    world.restart_with(Vec::new());
    world.reconcile();
    check(&world, &all, "with bots");
}
