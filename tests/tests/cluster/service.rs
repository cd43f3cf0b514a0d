//! Nodes with their threads.

use std::sync::Arc;

use tallyring_realtime::{Batch, Clock, Part, Service, StrandPlace};
use tallyring_records::{Increment, Schema};
use tallyring_tests::model::schema;
use tallyring_tests::sim_topic::SimTopic;

use super::stand::{START, Stand, address, compare};

fn click(id: &str) -> Batch {
    let increment = Increment {
        id: Some(id.into()),
        ..Increment::new(START, 1, [("l", "a")])
    };
    Batch {
        increments: vec![increment],
        ..Batch::default()
    }
}

#[test]
fn nodes_in_service_follow_each_other_and_the_one_that_is_deposed_follows_again() {
    let mut stand = Stand::new();
    let [one, two] = [1, 2].map(|node| {
        let (_, follower) = stand.follower(node);
        Service::follow(follower).expect("threads")
    });
    let ids = ["a", "b", "c"].map(str::to_owned);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        one.submit(click("a")).await.expect_err("it only follows");
        one.take_over(stand.owner()).expect("taken over");
        assert_eq!(one.submit(click("a")).await.expect("counted").accepted, 1);
        two.store()
            .live()
            .wait_for(one.store().live().applied())
            .await;
        compare(one.store(), two.store(), START, &ids);
        two.take_over(stand.owner()).expect("taken over");
        // It learns of the take-over before it answers.
        one.submit(click("b")).await.expect_err("it was deposed");
        for id in ["a", "b", "c"] {
            let accepted = two.submit(click(id)).await.expect("counted");
            assert_eq!(accepted.duplicates, u64::from(id == "a"), "{id}");
        }
        one.store()
            .live()
            .wait_for(two.store().live().applied())
            .await;
        compare(two.store(), one.store(), START, &ids);
        // Planned: the writer goes first, and the other one takes its place.
        two.step_down();
        two.submit(click("d")).await.expect_err("nobody writes");
        one.take_over(stand.owner()).expect("taken over");
        assert_eq!(one.submit(click("c")).await.expect("known").duplicates, 1);
        two.store()
            .live()
            .wait_for(one.store().live().applied())
            .await;
        compare(one.store(), two.store(), START, &ids);
    });
    for service in [one, two] {
        assert!(!service.has_failed());
        service.stop().expect("stopped");
    }
}

#[test]
fn a_store_with_one_writer_is_no_node() {
    let mut stand = Stand::new();
    let writer = stand.writer(1);
    let service = Service::start(writer).expect("threads");
    let error = service.take_over(stand.owner()).expect_err("no node");
    assert!(error.to_string().contains("one writer"), "{error}");
}

/// Nodes that hear each other, by their numbers.
type Joined = Vec<(usize, Service)>;

/// The only node that writes, where all others know it.
fn known_writer(joined: &Joined) -> Option<usize> {
    let writes = |(_, service): &&(usize, Service)| service.store().part() == Part::Writes;
    let mut writers = joined.iter().filter(writes);
    let (writer, _) = writers.next()?;
    let known = Part::Follows {
        writer: Some(address(*writer).into()),
    };
    let mut others = joined.iter().filter(|(node, _)| node != writer);
    let is_known = others.all(|(_, service)| service.store().part() == known);
    (writers.next().is_none() && is_known).then_some(*writer)
}

/// Sends clicks with these ids to the node that writes, as often as it takes, until each was counted or known.
fn send(stand: &Stand, joined: &Joined, ids: &[&str]) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for id in ids {
        stand.pass_until(|| {
            let writer = known_writer(joined)?;
            let (_, service) = joined.iter().find(|(node, _)| *node == writer)?;
            runtime.block_on(service.submit(click(id))).ok()
        });
    }
}

#[test]
fn a_node_that_only_follows_takes_over_from_nobody() {
    let mut stand = Stand::new();
    let nodes = SimTopic::default();
    stand.only_follow = true;
    let first = stand.join(1, address(1), &nodes);
    stand.only_follow = false;
    let joined: Joined = vec![(1, first), (2, stand.join(2, address(2), &nodes))];
    assert_eq!(stand.pass_until(|| known_writer(&joined)), 2);
    send(&stand, &joined, &["a", "b"]);
    let [(_, first), (_, second)] = joined.try_into().ok().expect("two nodes");
    second.stop().expect("stopped");
    // It hears nobody but itself for ten minutes.
    let end_ms = stand.clock.elapsed_ms() + 600_000;
    stand.pass_until(|| {
        assert_ne!(first.store().part(), Part::Writes);
        stand.clock.pass(1_000);
        (stand.clock.elapsed_ms() > end_ms).then_some(())
    });
    let told = first.store().intake().nodes();
    assert!(
        told.iter()
            .all(|node| node.is_own && !node.may_write && node.rebuilds),
        "{told:?}"
    );
    let third = stand.join(3, address(3), &nodes);
    let joined: Joined = vec![(1, first), (3, third)];
    assert_eq!(stand.pass_until(|| known_writer(&joined)), 3);
    send(&stand, &joined, &["b", "c"]);
}

#[test]
fn nodes_hear_whether_the_one_that_writes_has_an_order_for_them() {
    let stand = Stand::new();
    let nodes = SimTopic::default();
    let joined: Joined = (1..=2)
        .map(|node| (node, stand.join(node, address(node), &nodes)))
        .collect();
    let writer = stand.pass_until(|| known_writer(&joined));
    let of = |is_writer| {
        let mut found = joined
            .iter()
            .filter(|(node, _)| (*node == writer) == is_writer);
        found.next().expect("two nodes").1.store().intake()
    };
    for waits in [true, false] {
        of(true).note_order(waits);
        stand.pass_until(|| {
            let nodes = of(false).nodes();
            let heard = nodes.iter().find(|node| node.writes.is_some())?;
            (heard.has_order == waits).then_some(())
        });
    }
}

#[test]
fn nodes_find_a_writer_and_another_one_where_it_is_cut_off_or_leaves() {
    let stand = Stand::new();
    let nodes = SimTopic::default();
    let mut joined: Joined = (1..=3)
        .map(|node| (node, stand.join(node, address(node), &nodes)))
        .collect();
    send(&stand, &joined, &["a", "b"]);
    // It hears nobody and reaches no broker, and believes that it writes.
    let cut_off = stand.pass_until(|| known_writer(&joined));
    let of_cut_off = [stand.topic.node(cut_off), nodes.node(cut_off)];
    of_cut_off.iter().for_each(|topic| topic.cut_off(true));
    let at = joined.iter().position(|(node, _)| *node == cut_off);
    let silent = joined.remove(at.expect("it is among them"));
    send(&stand, &joined, &["b", "c"]);
    of_cut_off.iter().for_each(|topic| topic.cut_off(false));
    joined.push(silent);
    send(&stand, &joined, &["c", "d"]);

    let leaving = stand.pass_until(|| known_writer(&joined));
    let at = joined.iter().position(|(node, _)| *node == leaving);
    let (_, service) = joined.remove(at.expect("it is among them"));
    assert!(!service.has_failed());
    service.stop().expect("stopped");
    send(&stand, &joined, &["d", "e"]);

    let applied = |service: &Service| service.store().live().applied();
    let (one, two) = (&joined[0].1, &joined[1].1);
    stand.pass_until(|| (applied(one) == applied(two)).then_some(()));
    compare(one.store(), two.store(), START, &[]);
    for id in ["a", "b", "c", "d", "e"] {
        let history = one.store().intake().id_history(None, id);
        let history = history.expect("a history");
        let counts = history.older + history.counts.len();
        assert_eq!(counts, 1, "{id}: {history:?}");
    }
    for (node, service) in joined {
        assert!(!service.has_failed(), "node {node}");
        service.stop().expect("stopped");
    }
}

#[test]
fn a_node_that_begins_to_write_declares_what_it_intends_by_then() {
    let stand = Stand::new();
    let nodes = SimTopic::default();
    let mut joined: Joined = (1..=2)
        .map(|node| (node, stand.join(node, address(node), &nodes)))
        .collect();
    let before = schema(0).clone();
    let mut newer = before.clone();
    newer.namespaces[0].title = "newer".into();
    // Each node intends what its configuration says, which was read again since it joined.
    for (_, service) in &joined {
        let intake = service.store().intake();
        intake.intend(Some(before.clone()));
        intake.intend(Some(newer.clone()));
    }
    let writer = stand.pass_until(|| known_writer(&joined));
    let at = joined.iter().position(|(node, _)| *node == writer);
    let (_, service) = joined.remove(at.expect("it is among them"));
    let in_force = |service: &Service, schema: &Schema| {
        stand.pass_until(|| (*service.store().schema() == *schema).then_some(()));
    };
    in_force(&service, &newer);
    let other = &joined[0].1;
    in_force(other, &newer);
    other.store().intake().intend(Some(before.clone()));
    service.stop().expect("stopped");
    in_force(other, &before);
}

/// The nodes of each strand, which have one clock.
fn join_all(strands: &[(Stand, SimTopic)], joined: &mut [Joined], node: usize) {
    let places = StrandPlace::all(strands.len());
    for (((stand, nodes), joined), place) in strands.iter().zip(joined).zip(places) {
        joined.push((node, stand.join_strand(node, address(node), nodes, place)));
    }
}

#[test]
fn a_node_that_comes_gets_its_strand_from_the_writer_and_gives_it_back_as_it_goes() {
    let (first, mut second) = (Stand::new(), Stand::new());
    second.clock = Arc::clone(&first.clock);
    let strands = [first, second].map(|stand| (stand, SimTopic::default()));
    let mut joined = [Vec::new(), Vec::new()];
    let stand = &strands[0].0;
    let writers = |joined: &[Joined; 2]| {
        let writers = joined.iter().map(known_writer);
        writers.collect::<Option<Vec<_>>>()
    };
    let become_writers = |joined: &[Joined; 2], expected: &[usize]| {
        stand.pass_until(|| (writers(joined)? == expected).then_some(()));
    };
    let count = |joined: &[Joined; 2], ids: &[&str]| {
        for ((stand, _), joined) in strands.iter().zip(joined) {
            send(stand, joined, ids);
        }
    };
    join_all(&strands, &mut joined, 1);
    become_writers(&joined, &[1, 1]);
    count(&joined, &["a", "b"]);
    join_all(&strands, &mut joined, 2);
    become_writers(&joined, &[1, 2]);
    count(&joined, &["b", "c"]);
    for joined in &mut joined {
        let (node, service) = joined.remove(0);
        assert!(node == 1 && !service.has_failed());
        service.stop().expect("stopped");
    }
    become_writers(&joined, &[2, 2]);
    count(&joined, &["c", "d"]);
    for (_, service) in joined.into_iter().flatten() {
        for id in ["a", "b", "c", "d"] {
            let history = service.store().intake().id_history(None, id);
            let history = history.expect("a history");
            assert_eq!(history.older + history.counts.len(), 1, "{id}: {history:?}");
        }
        service.stop().expect("stopped");
    }
}
