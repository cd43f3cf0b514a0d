//! Nodes with their threads.

use tallyring_realtime::{Batch, Service};
use tallyring_records::Increment;

use super::stand::{START, Stand, compare};

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
