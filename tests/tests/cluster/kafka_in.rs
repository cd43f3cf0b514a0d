//! The node that writes consumes topics, and one that takes the log over goes on where the log says.

use std::sync::Arc;
use std::time::Duration;

use tallyring_api::{Admin, ConsumedTopic, Consumer, MessageFormat};
use tallyring_realtime::{Batch, Refusal, Service, SourceMessage};
use tallyring_records::Increment;
use tallyring_tests::model::Chance;
use tallyring_tests::sim_source::SimBrokers;
use tallyring_tests::{answers, api};
use tokio::runtime::Runtime;

use super::stand::{START, Stand};

/// A node with a consumer of the topic `clicks`.
struct Node {
    service: Arc<Service>,
    admin: Arc<Admin>,
    consumer: Consumer,
}

impl Node {
    fn new(stand: &Stand, node: usize, brokers: &SimBrokers, runtime: &Runtime) -> Self {
        let (_, follower) = stand.follower(node);
        let service = Arc::new(Service::follow(follower).expect("threads"));
        let _guard = runtime.enter();
        let state = api::state(Arc::clone(&service));
        let admin = Arc::clone(&state.admin);
        let topic = ConsumedTopic {
            name: "clicks".into(),
            format: MessageFormat::Json,
            reset: false,
        };
        let source = brokers.source(Some(Chance::new(node as u64)));
        let ends = (runtime.handle().clone(), Arc::default());
        let consumer = Consumer::new(state, Box::new(source), vec![topic], ends);
        Self {
            service,
            admin,
            consumer,
        }
    }

    /// Consumes until no message waits. Returns whether any was counted here.
    fn drain(&mut self) -> bool {
        let mut any = false;
        while self.consumer.turn(Duration::ZERO).expect("brokers") {
            any = true;
        }
        any
    }

    fn total(&self) -> u64 {
        answers::total(self.service.store(), "l", "a")
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn message(partition: u32, body: impl Into<Vec<u8>>) -> SourceMessage {
    SourceMessage {
        topic: "clicks".into(),
        partition,
        at_ms: Some(START * 1_000),
        body: body.into(),
        ..SourceMessage::default()
    }
}

#[test]
fn only_the_node_that_writes_consumes_and_the_next_one_goes_on_where_the_log_says() {
    let mut stand = Stand::new();
    let brokers = SimBrokers::default();
    brokers.make("clicks", 2);
    let mut sent = 0;
    let mut send = || {
        for number in 0..30_u32 {
            brokers.send(message(number % 2, r#"{"keys":{"l":"a"}}"#));
            sent += 1;
        }
        sent
    };
    let runtime = runtime();
    let mut nodes = [1, 2].map(|node| Node::new(&stand, node, &brokers, &runtime));
    for round in 0..6 {
        let [writes, follows] = match round % 2 {
            0 => [0, 1],
            _ => [1, 0],
        };
        let all = send();
        // The one that wrote before does not know yet that it is deposed.
        let taken = nodes[writes].service.take_over(stand.owner());
        taken.expect("taken over");
        if round % 3 == 2 {
            nodes[writes]
                .service
                .store()
                .ledger()
                .flush()
                .expect("flushed");
        }
        let _ = nodes[follows].consumer.turn(Duration::ZERO);
        nodes[writes].drain();
        assert_eq!(nodes[writes].total(), all, "round {round}");
        stand.pass_until(|| (nodes[follows].total() == all).then_some(()));
        assert!(!nodes[follows].drain(), "it follows");
        let known = nodes
            .each_ref()
            .map(|node| node.service.store().intake().consumed());
        assert_eq!(known[0], known[1], "round {round}");
    }
}

/// An item for the key `a`, and many for others.
fn many() -> Vec<Increment> {
    let others = (0..1_000).map(|number| format!("{number:060}"));
    let keys = others.chain(["a".to_owned()]);
    let increments = keys.map(|key| Increment::new(START, 1, [("l", &*key)]));
    increments.collect()
}

#[test]
fn a_message_that_is_too_large_for_the_log_is_skipped_and_all_others_count() {
    let mut stand = Stand::new();
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let runtime = runtime();
    let mut node = Node::new(&stand, 1, &brokers, &runtime);
    node.service.take_over(stand.owner()).expect("taken over");
    stand.topic.limit_messages(32 << 10);
    let large: Vec<String> = (many().iter())
        .map(|of| format!(r#"{{"keys":{{"l":"{}"}}}}"#, &*of.keys[0].1))
        .collect();
    for number in 0..9 {
        let body = match number {
            4 => large.join("\n"),
            _ => r#"{"keys":{"l":"a"}}"#.to_owned(),
        };
        brokers.send(message(0, body));
    }
    node.drain();
    assert_eq!(node.total(), 8);
    let standing = node.admin.consuming.topics()["clicks"].clone();
    let skipped = standing.last_skipped.expect("one was skipped");
    assert!(skipped.starts_with("partition 0, offset 4: "), "{skipped}");
    assert_eq!((standing.error, standing.partitions[0].next), (None, 9));

    let batch = |increments| Batch {
        increments,
        ..Batch::default()
    };
    let small = Increment::new(START, 1, [("l", "a")]);
    let intake = node.service.store().intake();
    let both = intake.commit(vec![batch(vec![small]), batch(many())]);
    let is_to_come_again = |of: &Result<_, Refusal>| matches!(of, Err(Refusal::Unavailable(_)));
    assert!(both.iter().all(is_to_come_again), "{both:?}");
    let alone = intake.commit(vec![batch(many())]).remove(0);
    assert!(
        matches!(alone, Err(Refusal::TooLargeForLog { .. })),
        "{alone:?}"
    );
    assert_eq!(node.total(), 8);
}
