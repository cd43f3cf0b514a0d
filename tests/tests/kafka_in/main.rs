//! Topics are consumed exactly once, whatever happens to the server, to its disk or to the topic.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod faults;
mod strands;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tallyring_api::{ApiState, ConsumedTopic, Consumer, MessageFormat};
use tallyring_realtime::{Options, Service, SourceMessage, Store};
use tallyring_records::{EventType, Grain, Namespace, Schema};
use tallyring_tests::model::{Chance, ManualClock, world};
use tallyring_tests::sim_disk::{SimDisk, random};
use tallyring_tests::sim_source::SimBrokers;
use tallyring_tests::{answers, api};
use tokio::runtime::Runtime;

/// 2012-03-16T20:00:00Z.
const START: i64 = 1_331_928_000;
const PARTITIONS: u64 = 3;

/// Clicks on links, and clicks on ads as events.
fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    let event = EventType {
        name: "click".to_owned(),
        entities: vec!["ad".to_owned()],
        lateness_seconds: 300,
        actions: false,
    };
    schema.namespaces.push(Namespace {
        name: event.namespace_of("ad"),
        title: "Ad click".to_owned(),
        grain: Grain::Hour,
        subtotals: Vec::new(),
        minutes: true,
        uniques: true,
    });
    schema.events.push(event);
    schema
}

fn topic(name: &str, format: MessageFormat) -> ConsumedTopic {
    ConsumedTopic {
        name: name.into(),
        format,
        reset: false,
    }
}

fn clicks() -> Vec<ConsumedTopic> {
    vec![topic("clicks", MessageFormat::Json)]
}

/// A server that is up.
struct Up {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    state: ApiState,
    runtime: Runtime,
}

impl Up {
    fn on(disk: SimDisk) -> Self {
        Self::with(disk, |store| store)
    }

    fn with(disk: SimDisk, change: impl FnOnce(Store) -> Store) -> Self {
        let (runtime, clock) = (runtime(), Arc::new(ManualClock::new(START * 1_000, true)));
        let state = state(&runtime, &disk, &clock, change);
        Self {
            disk,
            clock,
            state,
            runtime,
        }
    }

    fn consumer(
        &self,
        brokers: &SimBrokers,
        topics: Vec<ConsumedTopic>,
        chance: Option<Chance>,
    ) -> Consumer {
        let source = Box::new(brokers.source(chance));
        let ends = (self.runtime.handle().clone(), Arc::default());
        Consumer::new(self.state.clone(), source, topics, ends)
    }

    fn store(&self) -> &Store {
        self.state.strands.stores().first()
    }

    fn total(&self, namespace: &str, key: &str) -> u64 {
        answers::total(self.store(), namespace, key)
    }

    /// The disk as the next process finds it after a loss of power.
    fn crash(self, seed: u64) -> SimDisk {
        let disk = self.disk.crash(&mut random(seed));
        drop(self);
        disk
    }

    fn error(&self, topic: &str) -> String {
        let topics = self.state.admin.consuming.topics();
        topics[topic].error.clone().unwrap_or_default()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// The state of a server with a store on this disk.
fn state(
    runtime: &Runtime,
    disk: &SimDisk,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(Store) -> Store,
) -> ApiState {
    let options = Options {
        segment_bytes: 16 << 10,
        ..Options::default()
    };
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let (store, _) = Store::open(world, options, schema()).unwrap();
    let _guard = runtime.enter();
    api::state(Arc::new(Service::start(Arc::new(change(store))).unwrap()))
}

fn drain(consumer: &mut Consumer) {
    while consumer.turn(Duration::ZERO).unwrap() {}
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

fn increment(key: &str, n: u64) -> String {
    format!(r#"{{"keys":{{"l":"{key}","u":"all"}},"n":{n}}}"#)
}

/// Sends a message of one of the forms, and adds what it counts.
fn send(brokers: &SimBrokers, chance: &mut Chance, counts: &mut BTreeMap<String, u64>) {
    let (number, n) = (counts.len(), 1 + chance.below(9));
    let keys = [format!("a{number}"), format!("b{number}")];
    let [one, two] = [increment(&keys[0], n), increment(&keys[1], n + 1)];
    let (body, good) = match chance.below(8) {
        0 => ("no JSON".to_owned(), 0),
        1 => (increment("", n), 0),
        2 => (format!("[{one},{two}]"), 2),
        3 => (format!("{one}\n{{\n{two}\n"), 2),
        4 => (format!("{{\"keys\":{{\"nowhere\":\"a\"}}}}\n{one}"), 1),
        5 => (format!("{{\"keys\"\n{one}\nno JSON\n{two}"), 2),
        _ => (one, 1),
    };
    let partition = u32::try_from(chance.below(PARTITIONS)).unwrap();
    brokers.send(message(partition, body));
    if chance.percent(20) {
        brokers.mark(("clicks", partition));
    }
    let counted = keys.into_iter().zip([n, n + 1]).take(good);
    counts.extend(counted);
}

/// One life of a topic with many lives of the server.
fn play(seed: u64) {
    let mut chance = Chance::new(seed);
    let brokers = SimBrokers::default();
    brokers.make("clicks", PARTITIONS as usize);
    let mut counts = BTreeMap::new();
    let mut up = Up::on(SimDisk::default());
    let consumers = |up: &Up, chance: &mut Chance| -> Vec<Consumer> {
        let rewinds = |chance: &mut Chance| Some(Chance::new(chance.below(u64::MAX)));
        (0..2)
            .map(|_| up.consumer(&brokers, clicks(), rewinds(chance)))
            .collect()
    };
    let mut consuming = consumers(&up, &mut chance);
    for _ in 0..60 {
        match chance.below(12) {
            0..=4 => (0..chance.below(20)).for_each(|_| send(&brokers, &mut chance, &mut counts)),
            // One of them is always behind the other.
            5..=8 => {
                let at = usize::try_from(chance.below(2)).unwrap();
                let _ = consuming[at].turn(Duration::ZERO);
            }
            9 => up.store().ledger().flush().unwrap(),
            10 => {
                up.disk.stop_at_nth_call(1 + chance.below(12));
                let _ = consuming[0].turn(Duration::ZERO);
                consuming.clear();
                let disk = up.crash(chance.below(u64::MAX));
                up = Up::on(disk);
                consuming = consumers(&up, &mut chance);
            }
            _ => {
                brokers.set_down(true);
                let _ = consuming[0].turn(Duration::ZERO);
                brokers.set_down(false);
                // It would look at the brokers again some seconds later.
                consuming = consumers(&up, &mut chance);
            }
        }
    }
    consuming.clear();
    for again in 0..2 {
        drain(&mut up.consumer(&brokers, clicks(), None));
        for (key, n) in &counts {
            assert_eq!(up.total("l", key), *n, "seed {seed}, {again}: {key}");
        }
        let all: u64 = counts.values().sum();
        assert_eq!(up.total("u", "all"), all, "seed {seed}");
        let disk = up.crash(seed);
        up = Up::on(disk);
    }
}

#[test]
fn each_message_counts_once_whatever_dies_and_however_often_it_comes() {
    for seed in 0..40 {
        play(seed);
    }
}

#[test]
fn items_that_the_api_would_refuse_are_skipped_and_the_rest_counts() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let up = Up::on(SimDisk::default());
    let huge = " ".repeat(8 << 20) + &increment("huge", 1);
    for body in ["", "{", "[1]", "{\"keys\":{\"x\":\"a\"}}", &huge] {
        brokers.send(message(0, body));
    }
    let event = r#"{"specversion":"1.0","id":"a","source":"/s","type":"click","data":{}}"#;
    brokers.send(message(0, event));
    brokers.send(SourceMessage {
        headers: vec![("a".repeat(4 << 20), vec![0; 4 << 20])],
        ..message(0, increment("headers", 1))
    });
    brokers.send(message(0, increment("good", 1)));
    drain(&mut up.consumer(&brokers, clicks(), None));
    assert_eq!(
        (up.total("u", "all"), up.error("clicks")),
        (1, String::new())
    );
    let standing = up.state.admin.consuming.topics()["clicks"].clone();
    let skipped = standing.last_skipped.unwrap();
    assert!(skipped.starts_with("partition 0, offset 6: "), "{skipped}");
    assert_eq!(standing.partitions[0].next, 8);
}

#[test]
fn a_topic_that_was_made_again_waits_for_the_word_of_an_operator() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    brokers.send(message(0, increment("a", 1)));
    let up = Up::on(SimDisk::default());
    let mut consumer = up.consumer(&brokers, clicks(), None);
    drain(&mut consumer);
    brokers.make("clicks", 1);
    for _ in 0..3 {
        brokers.send(message(0, increment("a", 10)));
    }
    // Messages of it may come before anybody knows.
    assert!(consumer.turn(Duration::ZERO).is_err());
    drain(&mut consumer);
    assert_eq!(up.total("l", "a"), 1);
    assert!(
        up.error("clicks").contains("reset = true"),
        "{}",
        up.error("clicks")
    );
    let up = Up::on(up.crash(7));
    drain(&mut up.consumer(&brokers, clicks(), None));
    assert_eq!(up.total("l", "a"), 1);
    let mut reset = clicks();
    reset[0].reset = true;
    drain(&mut up.consumer(&brokers, reset, None));
    assert_eq!(
        (up.total("l", "a"), up.error("clicks")),
        (31, String::new())
    );
    // It is known from here on.
    brokers.send(message(0, increment("a", 100)));
    let up = Up::on(up.crash(8));
    drain(&mut up.consumer(&brokers, clicks(), None));
    assert_eq!(
        (up.total("l", "a"), up.error("clicks")),
        (131, String::new())
    );
}

#[test]
fn no_message_of_a_topic_that_is_read_no_more_waits() {
    let metrics = PrometheusBuilder::new().install_recorder().unwrap();
    let brokers = SimBrokers::default();
    brokers.make("left", 1);
    for _ in 0..1_500 {
        brokers.send(SourceMessage {
            topic: "left".into(),
            ..message(0, increment("a", 1))
        });
    }
    let up = Up::on(SimDisk::default());
    let topics = vec![topic("left", MessageFormat::Json)];
    let mut consumer = up.consumer(&brokers, topics, None);
    let lag = || {
        let metrics = metrics.render();
        let mut lines = metrics.lines().filter(|line| line.contains("_lag{"));
        let line = lines.find(|line| line.contains("topic=\"left\"")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert!(consumer.turn(Duration::ZERO).unwrap());
    assert_eq!(lag(), "500");
    brokers.make("left", 1);
    up.clock.pass(5_000);
    drain(&mut consumer);
    assert_eq!(lag(), "0");
}

fn numbered(producer: &str, sequence: u64) -> String {
    format!(
        r#"{{"producer":"{producer}","epoch":1,"sequence":{sequence},"keys":{{"l":"a","u":"{producer}"}}}}"#
    )
}

#[test]
fn a_producer_goes_on_behind_a_number_that_is_missing_and_what_comes_again_counts_once() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let mut up = Up::on(SimDisk::default());
    let mut counted = 0;
    for (sequence, counts) in [
        (1, 1),
        (4, 1),
        (4, 0),
        (5, 1),
        (2, 0),
        (9, 1),
        (9, 0),
        (10, 1),
    ] {
        brokers.send(message(0, numbered("p", sequence)));
        // A replay of the log knows the same numbers.
        up = Up::on(up.crash(sequence));
        drain(&mut up.consumer(&brokers, clicks(), None));
        counted += counts;
        assert_eq!(up.total("l", "a"), counted, "number {sequence}");
    }
    let standing = up.state.admin.consuming.topics()["clicks"].clone();
    assert_eq!(standing.last_skipped, None);
}

#[test]
fn items_of_more_producers_than_are_followed_count_without_their_numbers() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let mut up = Up::on(SimDisk::default());
    let many: Vec<String> = (0..10_000).map(|of| numbered(&of.to_string(), 1)).collect();
    for some in many.chunks(1_000) {
        brokers.send(message(0, some.join("\n")));
    }
    let mut counted = 10_000;
    // One that is followed counts once. Another one counts each time, as items without numbers do, also after a replay.
    for (producer, counts) in [("0", 0), ("more", 1), ("more", 1), ("1", 0), ("more", 1)] {
        brokers.send(message(0, numbered(producer, 1)));
        drain(&mut up.consumer(&brokers, clicks(), None));
        counted += counts;
        assert_eq!(up.total("l", "a"), counted, "{producer}");
        let standing = up.state.admin.consuming.topics()["clicks"].clone();
        assert_eq!(standing.last_skipped, None);
        up = Up::on(up.crash(7));
    }
}

#[test]
fn cloud_events_come_in_all_modes_and_an_event_counts_once_by_source_and_id() {
    let brokers = SimBrokers::default();
    brokers.make("events", 1);
    let up = Up::on(SimDisk::default());
    let event = |id: &str| {
        format!(
            r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"org.click","data":{{"entities":{{"ad":"1"}}}}}}"#
        )
    };
    let send = |headers: &[(&str, &str)], body: String| {
        let headers = headers.iter();
        brokers.send(SourceMessage {
            topic: "events".into(),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                .collect(),
            ..message(0, body)
        });
    };
    send(&[], event("a"));
    send(&[], format!("[{},{}]", event("a"), event("b")));
    let attributes = [
        ("ce_specversion", "1.0"),
        ("ce_id", "b"),
        ("ce_source", "/s"),
        ("ce_type", "org.click"),
    ];
    send(&attributes, r#"{"entities":{"ad":"1"}}"#.into());
    let other = attributes.map(|(name, value)| (name, if name == "ce_id" { "c" } else { value }));
    send(&other, r#"{"entities":{"ad":"1"}}"#.into());
    let topics = vec![topic("events", MessageFormat::CloudEvents)];
    drain(&mut up.consumer(&brokers, topics, None));
    let standing = up.state.admin.consuming.topics()["events"].clone();
    assert_eq!(
        (standing.partitions[0].next, standing.last_skipped),
        (4, None)
    );
    assert_eq!(up.total("ad_click", "1"), 3);
}
