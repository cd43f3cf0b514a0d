//! A topic for other programs keeps messages and progress.

use std::time::Duration;

use tallyring_cluster::{KafkaTopic, Kept, OutMessage, OutTopic, Partition, TopicName};
use tallyring_realtime::oplog::Topic;

use super::{brokers, fresh_name};

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn progress_that_time_would_remove_is_refused() {
    let Some(settings) = brokers("progress_that_time_would_remove_is_refused") else {
        return;
    };
    let name = fresh_name();
    let topic: TopicName = name.clone().try_into().unwrap();
    for name in [&name, &topic.of_progress()] {
        assert!(KafkaTopic::create(&settings, (name, Kept::ForEver), (1, 1)).unwrap());
        // A broker hears of a new topic within moments.
        KafkaTopic::open(&settings, name, Partition::ONLY).unwrap();
    }
    let said = OutTopic::open(&settings, &topic, "a")
        .unwrap_err()
        .to_string();
    let begins = format!("`cleanup.policy` of the topic `{name}.progress` is `delete`: ");
    assert!(
        said.starts_with(&begins) && said.ends_with("set it to compact"),
        "{said}"
    );
}

#[test]
fn messages_for_other_programs_arrive_in_order_and_the_progress_outlives_the_program() {
    let test = "messages_for_other_programs_arrive_in_order_and_the_progress_outlives_the_program";
    let Some(settings) = brokers(test) else {
        return;
    };
    let name = fresh_name();
    let topic: TopicName = name.clone().try_into().unwrap();
    let said = OutTopic::open(&settings, &topic, "a")
        .unwrap_err()
        .to_string();
    assert!(said.contains("make it"), "{said}");

    assert!(KafkaTopic::create(&settings, (&name, Kept::ForEver), (1, 1)).unwrap());
    // A broker hears of a new topic within moments.
    let made = KafkaTopic::open(&settings, &name, Partition::ONLY).unwrap();
    let mut out = OutTopic::open(&settings, &topic, "a").unwrap();
    assert_eq!(kept(&mut out), [""; 0]);
    out.send(&[]).unwrap();
    let messages: Vec<OutMessage> = (0..500)
        .map(|number| OutMessage {
            key: format!("key\u{e9}{}", number % 7),
            id: format!("{number}"),
            value: format!("value {number}").into_bytes(),
        })
        .collect();
    out.send(&messages).unwrap();
    out.keep(b"one").unwrap();
    out.keep(b"two").unwrap();
    assert_eq!(kept(&mut out), ["one", "two"]);

    let mut other = OutTopic::open(&settings, &topic, "b").unwrap();
    assert_eq!(kept(&mut other), ["one", "two"]);
    other.keep(b"three").unwrap();
    assert_eq!(kept(&mut other), ["three"]);
    assert_eq!(kept(&mut out), ["three"]);
    assert_eq!(kept(&mut out), [""; 0]);
    let mut reader = made.reader(0).unwrap();
    for message in &messages {
        let read = reader.next(PATIENCE).unwrap().expect("a message");
        assert_eq!(read.bytes, message.value);
    }
}

/// All that was kept since the last look.
fn kept(out: &mut OutTopic) -> Vec<String> {
    let kept = std::iter::from_fn(|| out.next_kept().unwrap());
    kept.map(|bytes| String::from_utf8(bytes).unwrap())
        .collect()
}
