//! Tests of a log that moves to a topic: nodes count what it had and go on, wherever the move was stopped.

use std::collections::BTreeMap;

use super::node::{Node, counts, two_nodes};
use super::redacted::{packed_log, replace};
use super::sim_topic::{SimTopic, Way};
use super::*;
use crate::oplog::{Owner, Segment, Topic, Transfer, begin_log, pack, plain_bytes, segments};

/// A log of several segments, of which the first ones are packed, one has replaced payloads, and the newest was opened
/// again and again.
fn log_of_all_forms() -> MemoryDisk {
    let payloads: Vec<Vec<u8>> = (0..9).map(|byte| vec![byte; 400]).collect();
    let (disk, mut log) = packed_log(&payloads);
    let by = BTreeMap::from([(2, b"erased".to_vec()), (3, vec![7; 700])]);
    assert!(replace(&disk, &mut log, &by) > 0);
    drop(log);
    for byte in 20..22 {
        append(&disk, &[byte; 300]);
    }
    disk
}

/// A process that opens the log, appends a record, and ends in good order.
fn append(disk: &MemoryDisk, payload: &[u8]) {
    let (mut log, _, _) = open(disk);
    commit(&mut log, payload);
    log.seal(NOW_MS).unwrap();
}

fn prepare<'d>(disk: &'d MemoryDisk, topic: &SimTopic) -> Result<Transfer<'d>, OplogError> {
    Transfer::prepare(disk, Arc::new(topic.clone()), OPTIONS.store_id)
}

/// Sends the log; the bytes that were sent.
fn transfer(disk: &MemoryDisk, topic: &SimTopic, owner: u128) -> Result<u64, OplogError> {
    let transfer = prepare(disk, topic)?;
    let (bytes, sent) = (transfer.bytes(), std::cell::Cell::new(0));
    transfer.run(Owner(owner), &|bytes| sent.set(bytes))?;
    assert_eq!(sent.get(), bytes);
    Ok(bytes)
}

#[test]
fn nodes_go_on_from_a_log_with_segments_of_all_forms() {
    let disk = log_of_all_forms();
    let (before, seen) = scan_all(&disk).unwrap();
    let topic = SimTopic::default();
    assert_eq!(prepare(&disk, &topic).unwrap().end(), before.end_sequence);
    assert!(topic.messages().is_empty());
    assert!(transfer(&disk, &topic, 5).unwrap() > 4_000);
    assert_eq!(transfer(&disk, &topic, 6).unwrap(), 0, "it is there");
    let (mut first, mut second) = (Node::new(&topic, 1), Node::new(&topic, 2));
    first.check(&seen);
    // The mirror has the bytes of the log, so every offset and checksum is the same.
    let whole = segments(&disk).unwrap();
    for segment in &whole[..whole.len() - 1] {
        let first_sequence = segment.first_sequence();
        let mut mirrored = plain_bytes(&first.disk, first_sequence).unwrap();
        let bytes = plain_bytes(&disk, first_sequence).unwrap();
        mirrored.resize(bytes.len(), 0);
        assert!(mirrored == bytes);
    }
    first.take_over(11).unwrap();
    assert_eq!(first.log().epoch(), before.epoch + 1);
    for byte in 30..40 {
        first.commit(&[vec![byte; 200]]).unwrap();
    }
    second.follow().unwrap();
    second.check(&first.counted);
    assert_eq!(counts(&topic), first.counted);
    assert_eq!(first.counted[..seen.len()], seen);
    // A packed segment says that it lacks something, as that of before did.
    let lacking = |disk: &MemoryDisk| -> Vec<u64> {
        let lacking = segments(disk)
            .unwrap()
            .into_iter()
            .filter(Segment::lacks_erased);
        lacking.map(|one| one.first_sequence()).collect()
    };
    while let Some(from) = first.log().segments().to_pack(0, u64::MAX) {
        let packing = pack(&first.disk, from, &mut |_, _| Ok(())).unwrap();
        assert!(first.log().segments_mut().put_packed(&packing).unwrap());
    }
    assert_eq!(lacking(&first.disk), lacking(&disk));
    assert!(!lacking(&disk).is_empty());
    assert_eq!(scan_all(&first.disk).unwrap().1, first.counted);
    // The copy of a node is the log of a single machine, which goes on.
    drop(first.role);
    let (mut log, summary, back) = open(&first.disk);
    assert_eq!((back, summary.torn), (first.counted, None));
    assert_eq!(log.epoch(), before.epoch + 2);
    commit(&mut log, b"alone again");
}

#[test]
fn a_transfer_that_is_stopped_anywhere_is_completed_by_the_next_one() {
    let disk = log_of_all_forms();
    let topic = SimTopic::default();
    transfer(&disk, &topic, 5).unwrap();
    let messages = topic.messages().len();
    assert!(messages > 12, "{messages}");
    for way in [
        Way::NoPlace,
        Way::Twice,
        Way::NoAnswer,
        Way::Lost,
        Way::Late(1),
        Way::Late(30),
    ] {
        for stopped in 0..messages {
            let (disk, topic) = (log_of_all_forms(), SimTopic::default());
            topic.ways(std::iter::repeat_n(Way::Told, stopped).chain([way]));
            let is_whole = transfer(&disk, &topic, 5).is_ok();
            assert_eq!(
                is_whole,
                matches!(way, Way::NoPlace | Way::Twice),
                "{way:?}"
            );
            // The directory may have served meanwhile.
            if stopped % 2 == 0 {
                append(&disk, b"one more");
            }
            topic.ways([]);
            // A header that is late may come between a look at the topic and the first message.
            let again = transfer(&disk, &topic, 6).or_else(|_| transfer(&disk, &topic, 7));
            again.unwrap_or_else(|error| panic!("{way:?} {stopped}: {error}"));
            let mut node = Node::new(&topic, 1);
            assert_eq!(
                node.counted,
                scan_all(&disk).unwrap().1,
                "{way:?} {stopped}"
            );
            node.take_over(11).unwrap();
            node.commit(&[b"in the cluster".to_vec()]).unwrap();
            assert_eq!(counts(&topic), node.counted, "{way:?} {stopped}");
        }
    }
}

#[test]
fn a_topic_with_anything_else_is_refused_and_stays() {
    let disk = log_of_all_forms();
    let in_use = |topic: &SimTopic, what: &str| {
        let before = topic.messages();
        let refused = transfer(&disk, topic, 5).expect_err(what);
        assert!(
            matches!(refused, OplogError::TopicInUse { .. }),
            "{what}: {refused}"
        );
        assert_eq!(topic.messages(), before, "{what}");
    };
    let topic = SimTopic::default();
    topic.put(Owner(1), b"no log");
    in_use(&topic, "other messages");
    for store_id in [OPTIONS.store_id, [8; 16]] {
        let topic = SimTopic::default();
        begin_log(&topic, store_id, Owner(1), NOW_MS + 1).unwrap();
        in_use(&topic, "the log of another store");
    }
    let (topic, _, _) = two_nodes();
    in_use(&topic, "nodes");
    // Nodes go on from the moved log: what the directory says since is another history.
    let topic = SimTopic::default();
    transfer(&disk, &topic, 5).unwrap();
    Node::new(&topic, 1).take_over(11).unwrap();
    in_use(&topic, "nodes that went on");
    let topic = SimTopic::default();
    transfer(&disk, &topic, 5).unwrap();
    topic.remove_before(u64::MAX).unwrap();
    in_use(&topic, "what is gone");
}

#[test]
fn a_log_that_is_damaged_or_too_large_for_the_topic_is_refused_before_anything_is_sent() {
    let disk = log_of_all_forms();
    let topic = SimTopic::default();
    topic.limit_messages(700);
    let refused = transfer(&disk, &topic, 5).unwrap_err().to_string();
    assert!(refused.contains("max.message.bytes"), "{refused}");
    let newest = segments(&disk).unwrap().pop().unwrap();
    let name = tallyring_archive::names::segment(newest.first_sequence());
    for (file, at) in [(FIRST, 100), (&*name, SEGMENT_HEADER_BYTES + 60)] {
        let disk = log_of_all_forms();
        let mut bytes = disk.bytes(file);
        bytes[at] ^= 1;
        disk.set(file, bytes);
        let topic = SimTopic::default();
        let refused = transfer(&disk, &topic, 5).unwrap_err();
        assert!(matches!(refused, OplogError::Corrupt { .. }), "{refused}");
        assert!(topic.messages().is_empty());
    }
}
