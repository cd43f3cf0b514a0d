//! A topic of Kafka is consumed as the simulated one is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tallyring_api::{ConsumedTopic, Consumer, MessageFormat};
use tallyring_cluster::{KafkaSettings, KafkaSource, KafkaTopic, Kept, Partition};
use tallyring_realtime::oplog::{Owner, Topic};
use tallyring_realtime::{Options, Service, Source, Store, SystemClock};
use tallyring_records::{Consumed, Schema};
use tallyring_tests::model::world;
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::{answers, api};

use super::{brokers, fresh_name};

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_millis(200);

/// A topic without messages, and its name; none where the environment has no broker, which the output says.
fn topic(test: &str) -> Option<(KafkaSettings, String)> {
    let (settings, name) = (brokers(test)?, fresh_name());
    assert!(KafkaTopic::create(&settings, (&name, Kept::AnHour), (1, 1)).unwrap());
    Some((settings, name))
}

fn send(settings: &KafkaSettings, name: &str, bodies: impl IntoIterator<Item = String>) {
    let topic = KafkaTopic::open(settings, name, Partition::ONLY).unwrap();
    let mut writer = topic.writer(Owner(1)).unwrap();
    for body in bodies {
        writer.send(body.as_bytes()).unwrap();
        writer.told().unwrap();
    }
}

#[test]
fn a_topic_tells_its_id_and_gives_its_messages_from_any_offset_again() {
    let Some((settings, name)) =
        topic("a_topic_tells_its_id_and_gives_its_messages_from_any_offset_again")
    else {
        return;
    };
    send(&settings, &name, (0..20).map(|number| number.to_string()));
    let mut source = KafkaSource::new(&settings).unwrap();
    let [of] = source.partitions(&name).unwrap().try_into().unwrap();
    assert!(
        of.is_valid() && of.partition == 0 && of.topic == name,
        "{of:?}"
    );
    let other = topic("another").unwrap().1;
    let other = source.partitions(&other).unwrap().remove(0);
    assert_eq!(other.cluster, of.cluster);
    assert_ne!(other.topic_id, of.topic_id);
    assert!(source.partitions("in.nowhere").is_err());
    assert_eq!(source.kept(&of).unwrap(), 0..20);
    for from in [0, 7, 3] {
        let to = Consumed {
            of: of.clone(),
            next: from,
        };
        source.seek(&[to]).unwrap();
        let until = Instant::now() + PATIENCE;
        let mut read = Vec::new();
        while read.len() < 20 - from as usize {
            read.extend(source.next(WAIT).unwrap());
            assert!(Instant::now() < until, "{} from {from}", read.len());
        }
        for (offset, message) in (from..).zip(read) {
            assert_eq!((message.offset, &*message.topic), (offset, &*name));
            assert_eq!(message.body, offset.to_string().into_bytes());
            assert!(message.at_ms.is_some());
        }
    }
    KafkaTopic::open(&settings, &name, Partition::ONLY)
        .unwrap()
        .remove_before(5)
        .unwrap();
    assert_eq!(source.kept(&of).unwrap(), 5..20);
    source.seek(&[Consumed { of, next: 2 }]).unwrap();
    let until = Instant::now() + PATIENCE;
    while source.next(WAIT).is_ok_and(|message| message.is_none()) {
        assert!(Instant::now() < until, "an offset that is gone is an error");
    }
}

/// A producer with one more setting.
fn producer(settings: &KafkaSettings, (name, value): (&str, &str)) -> BaseProducer {
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", settings.brokers())
        .set("linger.ms", "100")
        .set(name, value);
    client.create().unwrap()
}

/// A source that reads the only partition of a topic from its beginning.
fn source(settings: &KafkaSettings, name: &str) -> KafkaSource {
    let mut source = KafkaSource::new(settings).unwrap();
    let [of] = source.partitions(name).unwrap().try_into().unwrap();
    source.seek(&[Consumed { of, next: 0 }]).unwrap();
    source
}

#[test]
fn messages_of_every_codec_are_read() {
    let Some((settings, name)) = topic("messages_of_every_codec_are_read") else {
        return;
    };
    let mut sent = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let producer = producer(&settings, ("compression.type", codec));
        for number in 0..20 {
            let body = format!("{codec} {number} {}", "again ".repeat(200));
            let record = BaseRecord::<(), _>::to(&name).payload(&body);
            producer.send(record).map_err(|(error, _)| error).unwrap();
            sent.push(body);
        }
        producer.flush(PATIENCE).unwrap();
    }
    let mut source = source(&settings, &name);
    let until = Instant::now() + PATIENCE;
    let mut read = Vec::new();
    while read.len() < sent.len() {
        let message = source.next(WAIT).unwrap();
        read.extend(message.map(|message| String::from_utf8(message.body).unwrap()));
        assert!(Instant::now() < until, "{} came", read.len());
    }
    assert_eq!(read, sent);
}

#[test]
fn a_source_goes_behind_marks_and_aborted_messages_at_the_end() {
    let Some((settings, name)) =
        topic("a_source_goes_behind_marks_and_aborted_messages_at_the_end")
    else {
        return;
    };
    let producer = producer(&settings, ("transactional.id", &name));
    producer.init_transactions(PATIENCE).unwrap();
    for (body, is_committed) in [("counts", true), ("aborted", false)] {
        producer.begin_transaction().unwrap();
        let record = BaseRecord::<(), _>::to(&name).payload(body);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(PATIENCE).unwrap();
        match is_committed {
            true => producer.commit_transaction(PATIENCE).unwrap(),
            false => producer.abort_transaction(PATIENCE).unwrap(),
        }
    }
    let mut source = source(&settings, &name);
    let of = (name.clone(), 0);
    let until = Instant::now() + PATIENCE;
    let mut read = Vec::new();
    // Each message has a mark behind it.
    while source.passed().unwrap() != [(of.clone(), 4)].into() {
        read.extend(source.next(WAIT).unwrap().map(|message| message.body));
        assert!(Instant::now() < until, "{:?}", source.passed());
    }
    assert_eq!(read, [b"counts"]);
    // The position of before is not told after a seek.
    let [of] = source.partitions(&name).unwrap().try_into().unwrap();
    source.seek(&[Consumed { of, next: 0 }]).unwrap();
    assert_eq!(source.passed(), Ok(BTreeMap::new()));
}

#[test]
fn each_message_of_a_topic_counts_once_over_restarts() {
    let Some((settings, name)) = topic("each_message_of_a_topic_counts_once_over_restarts") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut disk = SimDisk::default();
    let mut sent = BTreeSet::new();
    for round in 0..3 {
        let keys: Vec<String> = (0..500)
            .map(|number| format!("k{round}-{number}"))
            .collect();
        let bodies = keys
            .iter()
            .map(|key| format!(r#"{{"keys":{{"l":"{key}","u":"all"}}}}"#));
        send(&settings, &name, bodies.chain(["no JSON".to_owned()]));
        sent.extend(keys);
        let world = world(disk.clone(), Arc::new(SystemClock));
        let (store, _) = Store::open(world, Options::default(), Schema::default_clicks()).unwrap();
        let service = Arc::new(Service::start(Arc::new(store)).unwrap());
        let state = api::state(Arc::clone(&service));
        let consumed = ConsumedTopic {
            name: name.clone(),
            format: MessageFormat::Json,
            reset: false,
        };
        let source = Box::new(KafkaSource::new(&settings).unwrap());
        let ends = (runtime.handle().clone(), Arc::default());
        let mut consumer = Consumer::new(state, source, vec![consumed], ends);
        let total = |key: &str, namespace: &str| answers::total(service.store(), namespace, key);
        let until = Instant::now() + PATIENCE;
        while total("all", "u") < sent.len() as u64 {
            let _ = consumer.turn(WAIT);
            assert!(Instant::now() < until, "{} came", total("all", "u"));
        }
        // Nothing comes again.
        assert!(!consumer.turn(WAIT).unwrap());
        assert!(sent.iter().all(|key| total(key, "l") == 1));
        drop(consumer);
        disk = disk.kill();
    }
}
