//! Counts of keys that people deleted, and gave back.

use std::collections::BTreeMap;

use tallyring_archive::DeleteEntry;
use tallyring_realtime::Reconcile;
use tallyring_records::{Day, Delete};

use crate::again;
use crate::sent::{DAY, HOURS, Sent};
use crate::world::{Book, SHARDS, World};

fn sums(served: Book) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for ((ad, ..), n) in served {
        *sums.entry(ad).or_insert(0) += n;
    }
    sums.retain(|_, n| *n > 0);
    sums
}

fn of(sums: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let owned = sums.iter().map(|(ad, n)| ((*ad).to_owned(), *n));
    owned.collect()
}

/// Two clicks on one ad, and three on another, of a day that is over.
fn clicked() -> World {
    let mut world = World::new(1);
    world.send(vec![
        Sent::click("e1", "a0", "phone"),
        Sent::click("e2", "a0", "bot").at(DAY + HOURS),
        Sent::click("e3", "a1", "phone").times(3),
    ]);
    world.at_days(3);
    world
}

#[test]
fn deleted_counts_leave_with_the_next_reconcile_and_come_back_with_another() {
    let mut world = clicked();
    world.delete("a0", false);
    assert_eq!(
        sums(world.served()),
        of(&[("a0", 2), ("a1", 3)]),
        "no count changes at once"
    );
    let first = world.reconcile();
    let click = &first.types["click"];
    assert_eq!(
        (click.before, click.after),
        (5, 5),
        "these are sums of events"
    );
    assert!(first.is_new && first.verdicts.is_none() && first.plus.is_empty());
    world.check("deleted");
    assert_eq!(sums(world.served()), of(&[("a1", 3)]));
    assert!(!world.judge().is_new, "nothing is taken away twice");
    world.rebuild();
    world.check("merged");
    world.delete("a0", true);
    let second = world.reconcile();
    assert!(second.is_new && second.minus.is_empty());
    world.check("given back");
    assert_eq!(sums(world.served()), of(&[("a0", 2), ("a1", 3)]));
    again::check(&world, "both versions");
}

/// An order is about the records before it.
#[test]
fn what_comes_after_an_order_counts_until_the_next_one() {
    let mut world = clicked();
    world.delete("a0", false);
    world.send(vec![Sent::click("e4", "a0", "phone").times(4)]);
    world.reconcile();
    world.check("deleted");
    assert_eq!(sums(world.served()), of(&[("a0", 4), ("a1", 3)]));
    world.delete("a0", false);
    world.reconcile();
    world.check("deleted again");
    assert_eq!(sums(world.served()), of(&[("a1", 3)]));
    world.delete("a0", true);
    world.delete("a0", false);
    world.delete("a0", true);
    world.reconcile();
    world.check("the newest order holds");
    assert_eq!(sums(world.served()), of(&[("a0", 6), ("a1", 3)]));
    again::check(&world, "all versions");
}

/// A version of the day that read the order ends its waiting, and so does a newer order. An order that changes nothing
/// waits for none.
#[test]
fn an_order_waits_for_the_version_that_obeys_it() {
    let mut world = clicked();
    world.delete("a2", false);
    world.delete("a0", true);
    assert!(!world.waits(), "these change nothing");
    world.delete("a0", false);
    assert!(world.waits());
    world.delete("a0", true);
    assert!(!world.waits(), "the newest one holds");
    world.delete("a0", false);
    world.judge();
    assert!(world.waits(), "nothing is published");
    assert_eq!(world.reconcile().version, 1);
    world.delete("a0", false);
    assert!(!world.waits(), "it is deleted already");
    for (ad, version) in [("a0", 2), ("a2", 3)] {
        world.delete(ad, true);
        assert!(world.waits(), "{ad}");
        let given_back = world.reconcile();
        assert_eq!((given_back.version, given_back.is_new), (version, true));
    }
    world.check("given back");
}

/// An id whose first event is of a deleted key is known as before.
#[test]
fn a_void_and_a_duplicate_of_a_deleted_key_change_nothing_more() {
    let mut world = clicked();
    world.delete("a0", false);
    world.void("e1");
    world.send(vec![Sent::click("e2", "a0", "bot").times(9)]);
    world.reconcile();
    world.check("deleted and voided");
    assert_eq!(sums(world.served()), of(&[("a1", 3)]));
    world.delete("a0", true);
    world.reconcile();
    world.check("given back without what was voided");
    assert_eq!(sums(world.served()), of(&[("a0", 1), ("a1", 3)]));
}

/// A manifest names orders that came while it was written; the records of a reconcile end before.
#[test]
fn no_version_obeys_an_order_that_came_after_its_records() {
    let mut world = clicked();
    let judged = world.judge();
    let mut manifest = (*world.store().manifest()).clone();
    let day = Day::of(DAY);
    manifest.intake.deletes.push(DeleteEntry {
        at: manifest.intake.ids.flushed,
        arrived_ms: 0,
        order: Delete {
            namespace: "ad_click".into(),
            key: "a0".into(),
            from: day,
            to: day,
            undo: false,
            reason: "a crawler".into(),
            actor: "installation".into(),
        },
    });
    let reconcile = Reconcile {
        day,
        load: "fedcba9876543210",
        rules: None,
        by: None,
        shards: SHARDS,
        level: 3,
        memory_bytes: 1 << 20,
    };
    let run = reconcile.run(&world.disk.blobs(), &manifest, &|_, _| {});
    let found = run.expect("judged").proof.expect("a proof");
    assert_eq!(found.content, judged.proof.expect("a proof").content);
    // The order itself comes into force with the records before it.
    world.delete("a0", false);
    assert!(world.judge().is_new);
}
