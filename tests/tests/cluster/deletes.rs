//! Orders about the counts of keys: each node has those of the log, whichever node writes it.

use tallyring_realtime::{Follower, Store};
use tallyring_records::{Day, Delete, INSTALLATION};

use super::stand::{Stand, follow, take_over};

fn order(key: &str, undo: bool) -> Delete {
    let day = Day::of(1_331_856_000);
    Delete {
        namespace: "l".into(),
        key: key.into(),
        from: day,
        to: day,
        undo,
        reason: "a crawler".into(),
        actor: INSTALLATION.into(),
    }
}

fn known(store: &Store) -> Vec<Delete> {
    let known = store.intake().deletes().into_iter();
    known.map(|entry| entry.order).collect()
}

#[test]
fn nodes_have_the_orders_of_the_log_and_of_its_manifests_and_keep_them() {
    let mut stand = Stand::new();
    let writer = stand.writer(1);
    let (_, mut follower) = stand.follower(2);
    let mut all = vec![order("a", false), order("b", false), order("a", true)];
    for order in &all {
        writer.intake().delete(order.clone()).expect("in the log");
    }
    follow(&mut follower);
    assert_eq!(
        writer.intake().deletes(),
        follower.store().intake().deletes()
    );
    assert_eq!(known(follower.store()), all);
    // From the log alone, and from a manifest.
    for node in [3, 4] {
        let (_, later) = stand.follower(node);
        assert_eq!(known(later.store()), all);
        writer.ledger().flush().expect("flushed");
        assert_eq!(writer.manifest().intake.deletes, writer.intake().deletes());
    }
    // A node that follows takes no order.
    let refused = follower.store().intake().delete(order("c", false));
    assert!(refused.is_err());
    assert_eq!(known(follower.store()), all);
    let taken = take_over(follower, stand.owner());
    all.push(order("c", false));
    taken
        .intake()
        .delete(order("c", false))
        .expect("in the log");
    let mut before = Follower::step_down(writer).expect("it wrote");
    follow(&mut before);
    assert_eq!(known(before.store()), all);
    assert_eq!(known(&taken), all);
}
