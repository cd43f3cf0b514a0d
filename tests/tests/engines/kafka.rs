//! A topic of Kafka gives what the log's trait says.

use std::time::{Duration, Instant};

use tallyring_cluster::{Finding, KafkaTopic, Kept, Partition, Standing, check_topic};
use tallyring_realtime::oplog::{Message, Owner, Topic, TopicError, TopicReader, TopicWriter};

use super::{brokers, fresh_name};

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A topic without messages; none where the environment has no broker, which the output says.
fn topic(test: &str) -> Option<KafkaTopic> {
    let (settings, name) = (brokers(test)?, fresh_name());
    assert!(KafkaTopic::create(&settings, (&name, Kept::ForEver), (1, 1)).unwrap());
    assert!(!KafkaTopic::create(&settings, (&name, Kept::ForEver), (1, 1)).unwrap());
    Some(KafkaTopic::open(&settings, &name, Partition::ONLY).unwrap())
}

fn send(writer: &mut dyn TopicWriter, bytes: &[u8]) -> Option<u64> {
    writer.send(bytes).unwrap();
    writer.told().unwrap()
}

/// The next messages.
fn read(reader: &mut dyn TopicReader, messages: usize) -> Vec<Message> {
    let until = Instant::now() + PATIENCE;
    let mut read = Vec::new();
    while read.len() < messages {
        read.extend(reader.next(Duration::from_millis(200)).unwrap());
        assert!(Instant::now() < until, "{} of {messages}", read.len());
    }
    read
}

#[test]
fn messages_come_in_order_with_the_key_of_their_writer() {
    let Some(topic) = topic("messages_come_in_order_with_the_key_of_their_writer") else {
        return;
    };
    assert_eq!(topic.range().unwrap(), 0..0);
    let [one, two] = [Owner(1 << 100), Owner(7)];
    let (mut first, mut second) = (topic.writer(one).unwrap(), topic.writer(two).unwrap());
    let mut sent = Vec::new();
    for number in 0..50_u32 {
        let (writer, owner) = match number % 3 {
            0 => (&mut second, two),
            _ => (&mut first, one),
        };
        let bytes = number.to_le_bytes().repeat(100);
        let offset = send(&mut **writer, &bytes).unwrap();
        sent.push(Message {
            offset,
            owner,
            bytes,
        });
    }
    // Several on their way at once, and none at all.
    for number in 0..5_u8 {
        first.send(&[number]).unwrap();
        let (offset, bytes) = (50 + u64::from(number), vec![number]);
        sent.push(Message {
            offset,
            owner: one,
            bytes,
        });
    }
    for _ in 0..5 {
        first.told().unwrap().unwrap();
    }
    assert_eq!(send(&mut *second, &[]), Some(55));
    sent.push(Message {
        offset: 55,
        owner: two,
        bytes: Vec::new(),
    });
    assert_eq!(topic.range().unwrap(), 0..56);
    for from in [0, 17, 55] {
        let mut reader = topic.reader(from).unwrap();
        assert!(
            read(&mut *reader, 56 - from as usize) == sent[from as usize..],
            "{from}"
        );
        assert_eq!(reader.next(Duration::from_millis(50)).unwrap(), None);
    }
    // A reader at the end gets what comes.
    let mut reader = topic.reader(56).unwrap();
    assert_eq!(reader.next(Duration::from_millis(50)).unwrap(), None);
    send(&mut *first, b"new");
    assert_eq!(read(&mut *reader, 1)[0].bytes, b"new");
}

#[test]
fn removed_messages_are_gone_and_the_others_keep_their_offsets() {
    let Some(topic) = topic("removed_messages_are_gone_and_the_others_keep_their_offsets") else {
        return;
    };
    let mut writer = topic.writer(Owner(3)).unwrap();
    for number in 0..20_u8 {
        assert_eq!(send(&mut *writer, &[number]), Some(u64::from(number)));
    }
    for offset in [12, 12, 5] {
        topic.remove_before(offset).unwrap();
        assert_eq!(topic.range().unwrap(), 12..20);
    }
    let read_one = |from: u64| {
        let until = Instant::now() + PATIENCE;
        let mut reader = topic.reader(from)?;
        loop {
            match reader.next(Duration::from_millis(200))? {
                Some(message) => return Ok(message.bytes),
                None => assert!(Instant::now() < until, "nothing comes"),
            }
        }
    };
    assert_eq!(read_one(11), Err(TopicError::Gone { begins: 12 }));
    assert_eq!(read_one(12), Ok(vec![12]));
    assert!(matches!(read_one(21), Err(TopicError::Unreachable(_))));
    assert!(topic.remove_before(21).is_err());
    topic.remove_before(20).unwrap();
    assert_eq!(topic.range().unwrap(), 20..20);
    assert_eq!(send(&mut *writer, b"on"), Some(20));
}

#[test]
fn a_frame_of_sixteen_mebibytes_fits_and_a_larger_message_than_the_topic_takes_changes_nothing() {
    let Some(topic) = topic("a_frame_of_sixteen_mebibytes_fits") else {
        return;
    };
    let max = topic.message_bytes_max();
    assert!(max > (16 << 20) + 4_096, "{max}");
    // Bytes that no compression makes fewer.
    let mut state = 1_u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(max + 1)
    .collect();
    let mut writer = topic.writer(Owner(3)).unwrap();
    let too_large = TopicError::TooLarge { bytes: max + 1 };
    assert_eq!(writer.send(&bytes), Err(too_large));
    assert_eq!(send(&mut *writer, &bytes[..max]), Some(0));
    assert_eq!(send(&mut *writer, b"small"), Some(1));
    let mut reader = topic.reader(0).unwrap();
    let read = read(&mut *reader, 2);
    assert!(read[0].bytes == bytes[..max]);
    assert_eq!(read[1].bytes, b"small");
}

#[test]
fn a_topic_that_is_not_there_is_named() {
    let Some(settings) = brokers("a_topic_that_is_not_there_is_named") else {
        return;
    };
    let opened = KafkaTopic::open(&settings, "tallyring.absent", Partition::ONLY);
    let said = opened.unwrap_err().to_string();
    assert!(
        said.contains("`tallyring.absent`") && said.contains("do not know it"),
        "{said}"
    );
}

#[test]
fn a_topic_that_was_made_is_as_a_log_needs_it() {
    let Some(settings) = brokers("a_topic_that_was_made_is_as_a_log_needs_it") else {
        return;
    };
    let name = fresh_name();
    assert_eq!(KafkaTopic::describe(&settings, &name).unwrap().1, None);
    let (brokers, _) = KafkaTopic::describe(&settings, &name).unwrap();
    assert!(KafkaTopic::create(&settings, (&name, Kept::ForEver), (1, brokers)).unwrap());
    let topic = KafkaTopic::open(&settings, &name, Partition::ONLY).unwrap();
    assert!(topic.range().is_ok());
    let (_, facts) = KafkaTopic::describe(&settings, &name).unwrap();
    let found = check_topic(&name, (1, brokers), &facts.unwrap());
    let wrong = |finding: &&Finding| finding.standing == Standing::Wrong;
    assert_eq!(found.iter().find(wrong), None, "{found:#?}");
    // One broker is no copy, and Kafka does not wait for disks unless it is told to.
    let risks = found
        .iter()
        .filter(|found| found.standing == Standing::Risk);
    assert_eq!(
        risks.count(),
        if brokers == 1 { 3 } else { 1 },
        "{found:#?}"
    );
}

#[test]
fn each_partition_has_messages_of_its_own_and_another_number_of_them_is_refused() {
    let test = "each_partition_has_messages_of_its_own_and_another_number_of_them_is_refused";
    let Some(settings) = brokers(test) else {
        return;
    };
    let name = fresh_name();
    assert!(KafkaTopic::create(&settings, (&name, Kept::ForEver), (3, 1)).unwrap());
    let open = |number, of| KafkaTopic::open(&settings, &name, Partition { number, of });
    for of in [1, 2, 4] {
        let said = open(0, of).unwrap_err().to_string();
        assert!(said.contains("has 3 partitions"), "{said}");
    }
    let topics = [0, 1, 2].map(|number| open(number, 3).unwrap());
    for (number, topic) in topics.iter().enumerate() {
        let mut writer = topic.writer(Owner(number as u128)).unwrap();
        for message in 0..=number {
            let bytes = [number as u8, message as u8];
            assert_eq!(send(&mut *writer, &bytes), Some(message as u64));
        }
    }
    for (number, topic) in topics.iter().enumerate() {
        assert_eq!(topic.range().unwrap(), 0..number as u64 + 1);
        let read = read(&mut *topic.reader(0).unwrap(), number + 1);
        let sent = (0..=number).map(|message| vec![number as u8, message as u8]);
        let bytes = read.into_iter().map(|message| message.bytes);
        assert_eq!(bytes.collect::<Vec<_>>(), sent.collect::<Vec<_>>());
    }
    topics[2].remove_before(2).unwrap();
    let ranges = topics.map(|topic| topic.range().unwrap());
    assert_eq!(ranges, [0..1, 0..2, 2..3]);
}
