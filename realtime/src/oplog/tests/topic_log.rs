//! Tests of the log over a topic: what it acknowledges counts for every node, once, whatever the topic does.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use tallyring_records::Offset;

use super::node::{Node, Role, counts, two_nodes};
use super::sim_topic::{SimTopic, Way};
use super::*;
use crate::oplog::{Owner, Tail, Topic, begin_log, check_begin, pack};

const WAYS: [Way; 7] = [
    Way::Told,
    Way::NoPlace,
    Way::Twice,
    Way::NoAnswer,
    Way::Lost,
    Way::Late(1),
    Way::Late(9),
];

fn deposed(result: Result<(), OplogError>) -> String {
    let error = result.expect_err("the log is lost");
    assert!(matches!(error, OplogError::Deposed { .. }), "{error}");
    error.to_string()
}

fn bytes(payloads: &[&str]) -> Vec<Vec<u8>> {
    payloads.iter().map(|one| one.as_bytes().to_vec()).collect()
}

#[test]
fn a_log_begins_in_an_empty_topic_alone() {
    let topic = SimTopic::default();
    let wrong = |store_id| {
        let checked = check_begin(&topic, store_id);
        checked.unwrap_err().to_string()
    };
    assert!(wrong(OPTIONS.store_id).contains("has no segment header at offset 0"));
    begin_log(&topic, OPTIONS.store_id, Owner(1), NOW_MS).unwrap();
    check_begin(&topic, OPTIONS.store_id).unwrap();
    assert!(wrong([8; 16]).contains("or name the topic of this store"));
    let refused = |store_id, end: u64| {
        let again = begin_log(&topic, store_id, Owner(2), NOW_MS);
        let (text, said) = (
            again.unwrap_err().to_string(),
            format!("has had messages up to offset {end}"),
        );
        assert!(text.contains(&said), "{text}");
    };
    refused([8; 16], 1);
    let before = topic.messages();
    begin_log(&topic, OPTIONS.store_id, Owner(2), NOW_MS).unwrap();
    assert_eq!(topic.messages(), before, "it was begun already");
    let mut node = Node::new(&topic, 1);
    assert!(node.counted.is_empty());
    node.take_over(11).unwrap();
    refused(OPTIONS.store_id, 2);
}

#[test]
fn what_is_acknowledged_is_counted_by_all_and_offsets_are_those_of_a_log() {
    let (topic, mut first, mut second) = two_nodes();
    assert_eq!((first.log().epoch(), first.log().durable()), (2, 0));
    for byte in 0..30_u8 {
        let group: Vec<Vec<u8>> = (0..byte % 9).map(|_| vec![byte; 100]).collect();
        first.commit(&group).unwrap();
        let log = first.log();
        assert_eq!(log.durable(), log.appended());
        assert_eq!(
            log.end(),
            Offset {
                epoch: 2,
                sequence: log.appended()
            }
        );
        second.follow().unwrap();
    }
    assert!(first.log().segments().list().len() > 10);
    let all = counts(&topic);
    first.check(&all);
    second.check(&all);
    assert_eq!(all.len() as u64, first.log().durable());
    let Role::Follows(tail) = &second.role else {
        panic!("it follows");
    };
    assert_eq!(tail.segments().list(), first.log().segments().list());
    let old = first.log().segments().to_pack(0, u64::MAX).unwrap();
    let packing = pack(&first.disk, old, &mut |_, _| Ok(())).unwrap();
    assert!(first.log().segments_mut().put_packed(&packing).unwrap());
    first.log().sync().unwrap();
    first.check(&all);
}

#[test]
fn whatever_becomes_of_any_message_what_is_acknowledged_counts_once() {
    for way in WAYS {
        for at in 0..16 {
            let (topic, mut first, mut second) = two_nodes();
            topic.ways(std::iter::repeat_n(Way::Told, at).chain([way]));
            let mut acknowledged = Vec::new();
            let mut epoch = 100;
            for number in 0..12_u8 {
                let group: Vec<Vec<u8>> = (0..3).map(|one| vec![number * 3 + one; 150]).collect();
                match first.commit(&group) {
                    Ok(()) => acknowledged.extend(group),
                    Err(error) => {
                        assert!(deposed(Err(error)).contains("unknown"), "{way:?}");
                        deposed(first.log().commit().map(drop));
                        deposed(first.log().append(b"x", 1, NOW_MS).map(drop));
                        first.step_down();
                        while let Err(error) = first.take_over(epoch) {
                            assert!(matches!(way, Way::Late(_)), "{way:?} at {at}: {error}");
                            epoch += 1;
                        }
                    }
                }
                second.follow().unwrap();
            }
            let all = counts(&topic);
            second.follow().unwrap();
            first.check(&all);
            second.check(&all);
            let counted: Vec<&Vec<u8>> = all.iter().map(|one| &one.payload).collect();
            let distinct: BTreeSet<_> = counted.iter().collect();
            assert_eq!(distinct.len(), counted.len(), "{way:?} at {at}");
            assert!(acknowledged.iter().all(|one| distinct.contains(&one)));
            let is_certain = matches!(way, Way::Told | Way::NoPlace | Way::Twice);
            assert!(!is_certain || acknowledged.len() == 36, "{way:?} at {at}");
        }
    }
}

#[test]
fn a_writer_that_slept_while_another_took_over_acknowledges_nothing() {
    for in_flight in 0..4 {
        let (topic, mut first, mut second) = two_nodes();
        first.commit(&bytes(&["one"])).unwrap();
        // Some frames are sent before the other takes over, and some after it.
        for _ in 0..in_flight {
            first.log().append(b"in flight", 1, NOW_MS).unwrap();
        }
        second.take_over(22).unwrap();
        second.commit(&bytes(&["two", "three", "four"])).unwrap();
        assert_eq!(first.log().durable(), 1);
        match in_flight {
            0 | 2 => drop(first.log().append(b"late", 1, NOW_MS)),
            _ => {}
        }
        let result = first.log().commit();
        match in_flight {
            // They came before the seal.
            1 | 3 => {
                assert_eq!(result.unwrap(), 1 + in_flight);
                let text = deposed(first.log().commit().map(drop));
                assert!(text.contains("another node took the log over"), "{text}");
            }
            _ => {
                let text = deposed(result.map(drop));
                assert!(text.contains("another node took the log over"), "{text}");
                assert_eq!(first.log().durable(), 1);
            }
        }
        let acknowledged = first.log().durable() as usize;
        let all = counts(&topic);
        first.counted.extend_from_slice(&all[1..acknowledged]);
        first.step_down();
        first.follow().unwrap();
        first.check(&all);
        second.check(&all);
        assert_eq!(all.len() as u64, 4 + in_flight);
    }
}

#[test]
fn void_messages_in_the_gap_do_not_keep_a_frame_from_being_acknowledged() {
    let (topic, mut first, _) = two_nodes();
    first.commit(&bytes(&["one"])).unwrap();
    let stale = topic.messages().pop().unwrap();
    topic.put(Owner(77), b"anything");
    topic.put(stale.owner, &stale.bytes);
    topic.skip_offset();
    first.commit(&bytes(&["two", "three"])).unwrap();
    topic.put(Owner(77), b"anything");
    assert_eq!(first.log().commit().unwrap(), 3);
    first.check(&counts(&topic));
}

#[test]
fn an_idle_writer_learns_from_a_commit_that_it_was_deposed() {
    let (topic, mut first, mut second) = two_nodes();
    first.commit(&bytes(&["one"])).unwrap();
    assert_eq!(first.log().commit().unwrap(), 1);
    // Nothing is under way, so a topic out of reach is no reason to give up.
    first.topic.cut_off(true);
    let error = first.log().commit().unwrap_err();
    assert!(matches!(error, OplogError::Topic { .. }), "{error}");
    first.topic.cut_off(false);
    assert_eq!(first.log().commit().unwrap(), 1);
    second.take_over(22).unwrap();
    let text = deposed(first.log().commit().map(drop));
    assert!(
        text.starts_with("this node writes the log no more"),
        "{text}"
    );
    assert!(text.contains("epoch 2"), "{text}");
    for result in [
        first.log().append(b"x", 1, NOW_MS).map(drop),
        first.log().begin_segment(NOW_MS),
        first.log().trim(9, 9, 9).map(drop),
    ] {
        assert_eq!(deposed(result), text);
    }
    first.step_down();
    second.commit(&bytes(&["two"])).unwrap();
    first.follow().unwrap();
    first.check(&counts(&topic));
}

#[test]
fn of_a_group_that_failed_the_tail_passes_on_the_frames_that_count() {
    let (topic, mut first, mut second) = two_nodes();
    first.commit(&bytes(&["before"])).unwrap();
    topic.ways([Way::Told, Way::Told, Way::NoAnswer, Way::Lost]);
    deposed(first.commit(&bytes(&["one", "two", "three", "four"])));
    assert_eq!(first.counted.len(), 1);
    assert_eq!(first.log().durable(), 1);
    first.step_down();
    first.follow().unwrap();
    assert_eq!(
        payloads(&first.counted),
        [&b"before"[..], b"one", b"two", b"three"]
    );
    second.take_over(22).unwrap();
    second.commit(&bytes(&["five"])).unwrap();
    first.follow().unwrap();
    let all = counts(&topic);
    first.check(&all);
    second.check(&all);
    // The node writes again, and passes nothing on twice.
    second.step_down();
    first.take_over(33).unwrap();
    first.commit(&bytes(&["six"])).unwrap();
    second.follow().unwrap();
    let all = counts(&topic);
    assert_eq!(all.len(), 6);
    first.check(&all);
    second.check(&all);
}

#[test]
fn of_two_nodes_that_take_over_at_once_one_writes() {
    let (topic, mut first, mut second) = two_nodes();
    first.step_down();
    topic.ways([Way::Late(2)]);
    // The seal of the first comes while the second waits for its own.
    let error = first.take_over(12).unwrap_err();
    assert!(matches!(error, OplogError::Topic { .. }), "{error}");
    let taken = second.take_over(22);
    topic.settle();
    if taken.is_err() {
        assert!(deposed(taken).contains("another node wrote meanwhile"));
        second.take_over(23).unwrap();
    }
    second.commit(&bytes(&["one"])).unwrap();
    first.follow().unwrap();
    let all = counts(&topic);
    first.check(&all);
    second.check(&all);
}

#[test]
fn a_writer_that_is_deposed_while_it_begins_a_segment_leaves_no_trace() {
    let (topic, mut first, mut second) = two_nodes();
    first.commit(&bytes(&["one"])).unwrap();
    second.take_over(22).unwrap();
    deposed(first.log().begin_segment(NOW_MS));
    assert_eq!(first.log().segments().list().len(), 1);
    second.log().begin_segment(NOW_MS).unwrap();
    second.log().begin_segment(NOW_MS).unwrap();
    second.commit(&bytes(&["two"])).unwrap();
    first.step_down();
    first.follow().unwrap();
    let all = counts(&topic);
    first.check(&all);
    second.check(&all);
    assert_eq!(second.log().segments().list().len(), 2);
    // A roll within a group, of which the writer learns at the end.
    first.take_over(33).unwrap();
    for _ in 0..3 {
        second.log().append(&[1; 600], 1, NOW_MS).unwrap();
    }
    deposed(second.log().commit().map(drop));
    second.step_down();
    second.follow().unwrap();
    second.check(&counts(&topic));
}

#[test]
fn a_mirror_that_fails_after_the_acknowledgement_costs_the_log_and_no_count() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        let (topic, mut first, mut second) = two_nodes();
        first.commit(&bytes(&["one"])).unwrap();
        first.disk.fail_next_write(kind);
        first.commit(&bytes(&["two", "three"])).unwrap();
        let text = deposed(first.commit(&bytes(&["four"])));
        assert!(text.contains("0000000000000000.tlog"), "{text}");
        first.step_down();
        second.take_over(22).unwrap();
        second.commit(&bytes(&["five"])).unwrap();
        first.follow().unwrap();
        let all = counts(&topic);
        assert_eq!(payloads(&all), [&b"one"[..], b"two", b"three", b"five"]);
        first.check(&all);
        second.check(&all);
    }
}

#[test]
fn a_full_disk_is_refused_where_a_segment_begins_and_the_log_goes_on() {
    let (topic, mut first, _) = two_nodes();
    first.commit(&[vec![1; 700]]).unwrap();
    first.disk.limit_space(Some(1000));
    let sent = topic.messages().len();
    for _ in 0..2 {
        let error = first.commit(&[vec![2; 700]]).unwrap_err();
        assert!(matches!(error, OplogError::Full { .. }), "{error}");
    }
    assert_eq!(topic.messages().len(), sent);
    first.disk.limit_space(None);
    first.commit(&[vec![3; 700]]).unwrap();
    let all = counts(&topic);
    assert_eq!(all.len(), 2);
    first.check(&all);
}

#[test]
fn frames_above_a_limit_are_refused_and_the_log_goes_on() {
    let (topic, mut first, _) = two_nodes();
    let error = first.commit(&[vec![0; (16 << 20) + 1]]).unwrap_err();
    assert!(
        error.to_string().contains("above the limit of 16777216"),
        "{error}"
    );
    topic.limit_messages(300);
    let error = first.commit(&[vec![0; 249]]).unwrap_err();
    let text = "a frame of 249 bytes is above the limit of 248; commit smaller groups";
    assert_eq!(error.to_string(), text);
    first.commit(&[vec![1; 248]]).unwrap();
    first.check(&counts(&topic));
}

#[test]
fn a_topic_that_lost_its_end_is_not_written_on() {
    let (topic, mut first, mut second) = two_nodes();
    first.commit(&bytes(&["one", "two", "three"])).unwrap();
    second.follow().unwrap();
    let mut messages = topic.messages();
    messages.truncate(messages.len() - 2);
    topic.set(messages.clone());
    let text = deposed(first.log().commit().map(drop));
    assert!(
        text.contains("it ends at offset 3, but this node read it up to offset 5"),
        "{text}"
    );
    let error = second.take_over(22).unwrap_err();
    assert!(
        matches!(error, OplogError::TopicCut { end: 3, next: 5 }),
        "{error}"
    );
    assert_eq!(topic.messages(), messages);
}

#[test]
fn a_mirror_is_a_log_in_files_that_goes_on_without_the_topic() {
    let (topic, mut first, mut second) = two_nodes();
    for byte in 0..20 {
        first.commit(&[vec![byte; 90], vec![byte; 9]]).unwrap();
        second.follow().unwrap();
    }
    let all = counts(&topic);
    for node in [&first, &second] {
        let (mut log, summary, seen) = open(&node.disk);
        assert_eq!((seen, summary.torn), (all.clone(), None));
        assert_eq!(commit(&mut log, b"goes on"), 40);
        assert_eq!(log.epoch(), 3);
        assert_eq!(scan_all(&node.disk).unwrap().1.len(), 41);
    }
}

#[test]
fn old_segments_leave_the_topic_and_the_mirror_before_one_header() {
    let (topic, mut first, mut second) = two_nodes();
    for byte in 0..9 {
        first.commit(&[vec![byte; 400]]).unwrap();
    }
    let segments = first.log().segments().list().len();
    assert!(segments > 3);
    second.follow().unwrap();
    assert_eq!(first.log().trim(9, NOW_MS, 9).unwrap(), 0, "not old enough");
    assert_eq!(first.log().trim(3, i64::MAX, 9).unwrap(), 1);
    assert_eq!(first.log().trim(u64::MAX, i64::MAX, 1).unwrap(), 1);
    let oldest = first.log().segments().list()[0].first_sequence;
    let header = &topic.messages()[0];
    assert!(header.bytes.starts_with(b"TLRLOG01"));
    assert_eq!(header.bytes[16..24], oldest.to_le_bytes());
    assert_eq!(topic.range().unwrap().start, header.offset);
    first.topic.cut_off(true);
    assert!(first.log().trim(u64::MAX, i64::MAX, 9).is_err());
    assert_eq!(
        first.log().segments().list()[0].first_sequence,
        oldest,
        "the topic is first"
    );
    first.topic.cut_off(false);
    first.commit(&[vec![9; 400]]).unwrap();
    second.follow().unwrap();
    // A node that is there has the records that left the topic.
    second.check(&first.counted.clone());
    first.log().trim(u64::MAX, i64::MAX, 99).unwrap();
    assert_eq!(first.log().segments().list().len(), 1);
    let fresh = Node::new(&topic, 3);
    assert_eq!(
        fresh.counted.len() as u64,
        10 - first.log().segments().list()[0].first_sequence
    );
    let reopened = Tail::open(
        Arc::new(second.disk.clone()),
        Arc::new(topic.clone()),
        OPTIONS,
    );
    assert_eq!(reopened.unwrap().end().sequence, 10);
}
