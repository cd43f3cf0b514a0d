//! Tests of the mirror of a topic: it has what counts and nothing else, whatever becomes of the node's disk.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use super::hand::{A, B, Hand, follow, followed, segments, steps};
use super::sim_topic::SimTopic;
use super::*;
use crate::oplog::{Chain, Frame, Packing, Tail, Topic, TopicError, pack, redact};

const TOPIC: &str = "oplog/topic.json";

/// The mirror of a node that was never there before.
fn fresh(topic: &SimTopic) -> BTreeMap<String, Vec<u8>> {
    let disk = MemoryDisk::default();
    followed(&disk, topic);
    segments(&disk)
}

#[test]
fn mirrors_are_equal_byte_for_byte_and_have_what_counts_alone() {
    let hand = Hand::of_four_segments();
    let [live, late] = [MemoryDisk::default(), MemoryDisk::default()];
    let first = SimTopic::default();
    let messages = hand.topic.messages();
    first.set(messages[..1].to_vec());
    let mut tail = followed(&live, &first);
    let mut passed = Vec::new();
    for end in 1..=messages.len() {
        first.set(messages[..end].to_vec());
        passed.extend(steps(&mut tail).unwrap());
        assert_eq!(tail.next(), messages[end - 1].offset + 1);
    }
    let other = followed(&late, &hand.topic);
    assert_eq!(segments(&live), segments(&late));
    assert_eq!(tail.segments().list(), other.segments().list());
    let (summary, seen) = scan_all(&live).unwrap();
    assert_eq!((seen.len(), summary.segments, summary.torn), (8, 4, None));
    assert_eq!(passed, seen);
    assert_eq!(tail.end(), other.end());
    assert_eq!(
        (tail.end().sequence, tail.end().epoch, tail.owner()),
        (8, 2, B)
    );
    let voids: Vec<_> = tail
        .voids()
        .iter()
        .map(|(why, count)| (*why, *count))
        .collect();
    assert_eq!(
        voids,
        [("neither frame nor header", 8), ("out of place", 8)]
    );
    assert_eq!(tail.clock().last_ms(), Some(NOW_MS));
    let sizes: u64 = segments(&live)
        .values()
        .map(|bytes| bytes.len() as u64)
        .sum();
    let ended: u64 = tail.segments().list()[..3]
        .iter()
        .map(|one| one.bytes)
        .sum();
    assert_eq!(
        ended + (SEGMENT_HEADER_BYTES + 2 * (48 + 104)) as u64,
        sizes
    );
}

#[test]
fn nodes_that_follow_a_failing_topic_have_equal_mirrors() {
    for seed in 0..200 {
        let topic = Hand::begin().topic;
        let begun = Chain::begin(&topic.messages()[0], OPTIONS.store_id).unwrap();
        let [live, late] = [MemoryDisk::default(), MemoryDisk::default()];
        let mut tail = followed(&live, &topic);
        topic.draw(Some(seed));
        let mut writer = topic.writer(A).unwrap();
        // Each frame follows what counted when it was sent.
        for byte in 0..20 {
            let mut chain = begun.clone();
            let mut all = topic.messages();
            all.retain(|message| message.offset > 0);
            for message in &all {
                chain.judge(message);
            }
            writer
                .send(&chain.ahead().frame(&[byte; 30], 1, NOW_MS, true))
                .unwrap();
            if byte % 3 == 0 {
                steps(&mut tail).unwrap();
            }
        }
        topic.settle();
        steps(&mut tail).unwrap();
        followed(&late, &topic);
        assert_eq!(segments(&live), segments(&late), "seed {seed}");
        assert!(tail.end().sequence >= 10, "seed {seed}");
        assert_eq!(scan_all(&live).unwrap().0.end_sequence, tail.end().sequence);
    }
}

#[test]
fn a_crash_at_any_change_of_the_disk_leaves_a_mirror_that_goes_on() {
    let hand = Hand::of_four_segments();
    let messages = hand.topic.messages();
    let whole = fresh(&hand.topic);
    for changes in 0.. {
        let disk = MemoryDisk::default();
        disk.fail_after(changes);
        let topic = SimTopic::default();
        topic.set(messages[..9].to_vec());
        let lived = follow(&disk, &topic).and_then(|mut tail| {
            topic.set(messages.clone());
            steps(&mut tail)?;
            tail.sync()?;
            tail.trim(2, i64::MAX, 1).map(drop)
        });
        let is_trimmed = lived.is_ok();
        topic.set(messages.clone());
        disk.crash(&mut Choices(changes));
        let mut tail = followed(&disk, &topic);
        let mut kept = whole.clone();
        if !disk
            .list("oplog")
            .unwrap()
            .contains(&"0000000000000000.tlog".to_owned())
        {
            kept.pop_first();
        }
        assert_eq!(segments(&disk), kept, "after {changes} changes");
        tail.sync().unwrap();
        let files = disk.list("oplog").unwrap();
        assert!(
            !files.iter().any(|file| file.ends_with(".tmp")),
            "{files:?}"
        );
        if is_trimmed {
            break;
        }
    }
}

#[test]
fn a_newest_segment_with_flipped_bits_or_missing_bytes_is_read_anew() {
    let hand = Hand::of_four_segments();
    let disk = MemoryDisk::default();
    followed(&disk, &hand.topic).sync().unwrap();
    let whole = segments(&disk);
    let newest = "oplog/0000000000000006.tlog";
    let bytes = disk.bytes(newest);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        let mut long = bytes.clone();
        long.resize(bytes.len() + at + 1, 7);
        for damaged in [flipped, bytes[..at].to_vec(), long] {
            disk.set(newest, damaged);
            followed(&disk, &hand.topic);
            assert_eq!(segments(&disk), whole, "byte {at}");
        }
    }
    disk.remove(newest).unwrap();
    followed(&disk, &hand.topic);
    assert_eq!(segments(&disk), whole);
}

#[test]
fn a_start_reads_anew_what_is_not_synced_and_all_where_the_file_of_headers_says_nothing() {
    let hand = Hand::of_four_segments();
    let disk = MemoryDisk::default();
    followed(&disk, &hand.topic);
    let whole = segments(&disk);
    // Damage to an old segment shows how far back a start reads.
    let heals = |disk: &MemoryDisk| {
        let mut bytes = disk.bytes(FIRST);
        bytes[70] ^= 1;
        disk.set(FIRST, bytes);
        let mut tail = followed(disk, &hand.topic);
        let heals = segments(disk) == whole;
        disk.set(FIRST, whole[&FIRST["oplog/".len()..]].clone());
        tail.sync().unwrap();
        heals
    };
    assert!(heals(&disk), "nothing was synced");
    assert!(!heals(&disk), "the newest alone is read");
    let hint = disk.bytes(TOPIC);
    assert!(hint.starts_with(b"tallyring topic 1 crc32 "));
    for at in 0..hint.len() {
        let mut flipped = hint.clone();
        flipped[at] ^= 1;
        disk.set(TOPIC, flipped);
        followed(&disk, &hand.topic);
        assert_eq!(segments(&disk), whole);
    }
    disk.remove(TOPIC).unwrap();
    assert!(heals(&disk), "the file is gone");
    disk.set(TOPIC, b"anything".to_vec());
    assert!(heals(&disk), "the file is damaged");
    // The topic has the headers elsewhere.
    disk.set(TOPIC, hint);
    let mut moved = hand.topic.messages();
    moved.iter_mut().for_each(|message| message.offset += 3);
    hand.topic.set(moved);
    assert!(heals(&disk), "the file is of a topic with other offsets");
}

/// Checks that the open is refused with this text, and that nothing changed.
fn check_refused(disk: &MemoryDisk, topic: &SimTopic, text: &str) {
    let files = |disk: &MemoryDisk| {
        let files = disk.list("oplog").unwrap();
        let bytes = files
            .iter()
            .map(|file| disk.bytes(&format!("oplog/{file}")));
        let bytes: Vec<_> = bytes.collect();
        (files, bytes)
    };
    let before = files(disk);
    let error = follow(disk, topic).err().expect("refused").to_string();
    assert!(error.contains(text), "{error}");
    assert!(files(disk) == before, "something changed: {error}");
}

#[test]
fn a_topic_that_lacks_what_the_node_has_is_refused_and_nothing_is_removed() {
    let hand = Hand::of_four_segments();
    let all = hand.topic.messages();
    let disk = MemoryDisk::default();
    followed(&disk, &hand.topic);
    for has_hint in [false, true] {
        // Cut off anywhere before the last message that counts.
        for end in 1..all.len() - 1 {
            let cut = SimTopic::default();
            cut.set(all[..end].to_vec());
            check_refused(&disk, &cut, "ends at record 8, which may be the last copy");
        }
        let mut without = all.clone();
        without.truncate(all.len() - 2);
        without.push(all[1].clone());
        without.last_mut().unwrap().offset = all.last().unwrap().offset;
        let cut = SimTopic::default();
        cut.set(without);
        check_refused(&disk, &cut, "it ends at record 7, or differs before that");
        let mut other = Hand::begin();
        (0..30).for_each(|byte| other.frame(&[byte; 90]));
        check_refused(&disk, &other.topic, "the log's topic is another one");
        let empty = SimTopic::default();
        check_refused(&disk, &empty, "no segment header at offset 0");
        let foreign = SimTopic::default();
        foreign.put(A, &first_header([8; 16]));
        check_refused(&disk, &foreign, "belongs to store 0808");
        if !has_hint {
            followed(&disk, &hand.topic).sync().unwrap();
        }
    }
}

#[test]
fn a_topic_that_begins_above_the_mirror_is_refused_and_one_that_begins_where_it_ends_is_not() {
    let hand = Hand::of_four_segments();
    let all = hand.topic.messages();
    let headers: Vec<u64> = all
        .iter()
        .filter(|one| one.bytes.starts_with(b"TLRLOG01"))
        .map(|one| one.offset)
        .collect();
    let disk = MemoryDisk::default();
    let early = SimTopic::default();
    let until = |offset| {
        all.iter()
            .take_while(|one| one.offset < offset)
            .cloned()
            .collect()
    };
    early.set(until(headers[2]));
    followed(&disk, &early).sync().unwrap();
    let topic = SimTopic::default();
    topic.set(all.clone());
    topic.remove_before(headers[3]).unwrap();
    check_refused(
        &disk,
        &topic,
        "begins at record 6, but this node's copy of it in `oplog/` ends at record 4",
    );
    topic.set(all.clone());
    topic.remove_before(headers[2]).unwrap();
    let tail = followed(&disk, &topic);
    assert_eq!(
        (tail.end().sequence, scan_all(&disk).unwrap().1.len()),
        (8, 8)
    );
    let fresh = MemoryDisk::default();
    assert_eq!(followed(&fresh, &topic).segments().list().len(), 2);
    // A reader is told of messages that are removed before it gets there.
    let slow = MemoryDisk::default();
    topic.set(until(headers[1] + 1));
    let mut tail = followed(&slow, &topic);
    topic.set(all);
    topic.remove_before(headers[3]).unwrap();
    let error = steps(&mut tail).unwrap_err();
    assert!(matches!(
        error,
        OplogError::Topic {
            source: TopicError::Gone { .. },
            ..
        }
    ));
}

fn packing(disk: &MemoryDisk, tail: &mut Tail) -> Packing {
    let first = tail
        .segments()
        .to_pack(0, u64::MAX)
        .expect("a segment to pack");
    pack(disk, first, &mut |_, _| Ok(())).unwrap()
}

#[test]
fn packed_segments_stay_and_so_do_their_replaced_payloads() {
    let hand = Hand::of_four_segments();
    let disk = MemoryDisk::default();
    let mut tail = followed(&disk, &hand.topic);
    for _ in 0..2 {
        let packing = packing(&disk, &mut tail);
        assert!(tail.segments_mut().put_packed(&packing).unwrap());
    }
    let mut other = |frame: Frame<'_>| Ok((frame.first_sequence == 1).then(|| b"other".to_vec()));
    let packing = redact(&disk, 0, false, &mut other).unwrap().unwrap();
    assert!(tail.segments_mut().put_packed(&packing).unwrap());
    let packed = segments(&disk);
    let check = |tail: &Tail| {
        assert_eq!(segments(&disk), packed);
        let infos = tail.segments().list().iter();
        assert_eq!(infos.filter(|one| one.is_packed).count(), 2);
        assert_eq!(scan_all(&disk).unwrap().1[1].payload, b"other");
    };
    check(&followed(&disk, &hand.topic));
    tail.sync().unwrap();
    check(&followed(&disk, &hand.topic));
    disk.remove(TOPIC).unwrap();
    check(&followed(&disk, &hand.topic));
}

#[test]
fn a_refused_frame_and_a_full_disk_change_nothing_and_the_step_is_done_again() {
    let mut hand = Hand::begin();
    let disk = MemoryDisk::default();
    let mut tail = followed(&disk, &hand.topic);
    hand.frame(&[1; 100]);
    let mut refuse = |_: Frame<'_>| Err("no".into());
    for _ in 0..2 {
        let error = tail.step(Duration::ZERO, &mut refuse).unwrap_err();
        let text = "0.tlog: the frame at byte 64, record 0, cannot be applied: no";
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!((tail.end().sequence, tail.next()), (0, 1));
    }
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        disk.fail_next_write(kind);
        let error = steps(&mut tail).unwrap_err();
        assert_eq!(
            error.is_no_room(),
            kind == ErrorKind::StorageFull,
            "{error}"
        );
        assert_eq!(tail.end().sequence, 0);
    }
    assert_eq!(steps(&mut tail).unwrap().len(), 1);
    // Nothing of a long frame that failed stays behind the short one that counts instead.
    disk.fail_next_write(ErrorKind::StorageFull);
    let lost = hand.ahead.clone().frame(&[2; 300], 1, NOW_MS, true);
    let all = hand.topic.messages();
    hand.topic.put(A, &lost);
    steps(&mut tail).unwrap_err();
    hand.topic.set(all);
    hand.frame(&[3; 10]);
    assert_eq!(steps(&mut tail).unwrap()[0].payload, [3; 10]);
    hand.roll();
    hand.frame(&[4; 10]);
    disk.limit_space(Some(0));
    assert!(steps(&mut tail).unwrap_err().is_no_room());
    disk.limit_space(None);
    assert_eq!(steps(&mut tail).unwrap().len(), 1);
    let (summary, seen) = scan_all(&disk).unwrap();
    assert_eq!((seen.len(), summary.segments, summary.torn), (3, 2, None));
}

#[test]
fn a_node_that_is_cut_off_goes_on_where_it_stopped() {
    let mut hand = Hand::begin();
    let disk = MemoryDisk::default();
    let node = hand.topic.node(3);
    let mut tail = followed(&disk, &node);
    hand.frame(b"one");
    node.cut_off(true);
    let error = steps(&mut tail).unwrap_err().to_string();
    assert_eq!(
        error,
        "the log's topic: cannot read: the topic is out of reach: cut off"
    );
    assert!(follow(&MemoryDisk::default(), &node).is_err());
    node.cut_off(false);
    hand.frame(b"two");
    assert_eq!(payloads(&steps(&mut tail).unwrap()), [b"one", b"two"]);
    assert!(steps(&mut tail).unwrap().is_empty());
}

#[test]
fn old_segments_leave_the_mirror_as_they_leave_a_log() {
    let hand = Hand::of_four_segments();
    let disk = MemoryDisk::default();
    let mut tail = followed(&disk, &hand.topic);
    assert_eq!(tail.trim(8, NOW_MS, 9).unwrap(), 0, "not old enough");
    assert_eq!(tail.trim(3, i64::MAX, 9).unwrap(), 1);
    tail.sync().unwrap();
    assert_eq!(tail.trim(u64::MAX, i64::MAX, 1).unwrap(), 1);
    assert_eq!(tail.segments().list().len(), 2);
    let tail = followed(&disk, &hand.topic);
    assert_eq!(tail.segments().list()[0].first_sequence, 4);
    let mut tail = followed(&disk, &hand.topic);
    assert_eq!(
        tail.trim(u64::MAX, i64::MAX, 9).unwrap(),
        1,
        "never the newest"
    );
}

#[test]
fn the_file_of_headers_says_where_segments_begin() {
    let mut hand = Hand::begin();
    hand.frame(b"one");
    hand.roll();
    let disk = MemoryDisk::default();
    followed(&disk, &hand.topic).sync().unwrap();
    assert_eq!(
        String::from_utf8(disk.bytes(TOPIC)).unwrap(),
        "tallyring topic 1 crc32 adc76a03 bytes 94\n\
         {\"segments\":[{\"first\":0,\"offset\":0,\"crc\":3710896248},{\"first\":1,\"offset\":2,\"crc\":2311915832}]}"
    );
}
