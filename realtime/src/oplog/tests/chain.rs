//! Tests of the rule by which messages of a topic count, with several writers that believe to own the log.

use super::*;
use crate::oplog::frame::{FrameHeader, encode};
use crate::oplog::segment::header_crc;
use crate::oplog::{Ahead, Chain, Frame, Message, Owner, Verdict, pack, plain_bytes, redact};

pub(super) const A: Owner = Owner(0xa);
const B: Owner = Owner(0xb00);
const C: Owner = Owner(0xc0000);

/// A topic in memory: messages get their offsets in the order of their sending.
#[derive(Default)]
pub(super) struct Sent(pub Vec<Message>);

impl Sent {
    pub(super) fn send(&mut self, owner: Owner, bytes: &[u8]) -> &Message {
        self.0.push(Message {
            offset: self.0.len() as u64,
            owner,
            bytes: bytes.to_vec(),
        });
        self.0.last().unwrap()
    }

    /// The first header, and a reader behind it.
    pub(super) fn begun(owner: Owner) -> (Self, Chain) {
        let mut sent = Self::default();
        let header = first_header(OPTIONS.store_id);
        sent.send(owner, &header);
        let chain = sent.read();
        (sent, chain)
    }

    /// A reader behind all messages.
    pub(super) fn read(&self) -> Chain {
        let mut chain = Chain::begin(&self.0[0], OPTIONS.store_id).unwrap();
        for message in &self.0[1..] {
            chain.judge(message);
        }
        chain
    }

    /// Sends a message, and lets the reader judge it.
    fn judged(&mut self, chain: &mut Chain, owner: Owner, bytes: &[u8]) -> String {
        said(chain.judge(self.send(owner, bytes)))
    }
}

fn said(verdict: Verdict<'_>) -> String {
    match verdict {
        Verdict::Frame(frame) if frame.count == 0 => "seal".to_owned(),
        Verdict::Frame(frame) => format!("records {} of {}", frame.first_sequence, frame.epoch),
        Verdict::Segment { first_sequence, .. } => format!("segment {first_sequence}"),
        Verdict::TakenOver(_) => "taken over".to_owned(),
        Verdict::Void(why) => format!("void: {why}"),
    }
}

pub(super) fn frame(ahead: &mut Ahead, payload: &[u8]) -> Vec<u8> {
    ahead.frame(payload, 1, NOW_MS, true)
}

/// A writer that took the log over from what `chain` judged.
fn taken(sent: &mut Sent, chain: &mut Chain, owner: Owner) -> Ahead {
    let mut ahead = chain.ahead();
    let seal = ahead.take_over(owner, NOW_MS, true);
    assert_eq!(sent.judged(chain, owner, &seal), "taken over");
    ahead
}

#[test]
fn a_frame_counts_only_behind_the_last_that_counts() {
    let (mut sent, mut chain) = Sent::begun(A);
    let mut ahead = chain.ahead();
    let first = frame(&mut ahead, b"first");
    let second = frame(&mut ahead, b"second");
    assert_eq!(sent.judged(&mut chain, A, &second), "void: out of place");
    assert_eq!(sent.judged(&mut chain, A, &first), "records 0 of 1");
    assert_eq!(sent.judged(&mut chain, A, &second), "records 1 of 1");
    assert_eq!((chain.end().sequence, chain.next()), (2, 4));
    assert_eq!(said(chain.judge(&sent.0[2])), "void: judged before");
    assert_eq!(chain.next(), 4);
}

#[test]
fn a_seal_of_the_next_epoch_takes_over_and_voids_what_the_old_owner_sends_later() {
    let (mut sent, mut chain) = Sent::begun(A);
    let mut old = chain.ahead();
    let first = frame(&mut old, b"first");
    sent.judged(&mut chain, A, &first);
    let mut new = taken(&mut sent, &mut chain, B);
    assert_eq!((chain.owner(), chain.end().epoch), (B, 2));
    let late = frame(&mut old, b"late");
    assert_eq!(sent.judged(&mut chain, A, &late), "void: out of place");
    let good = frame(&mut new, b"good");
    assert_eq!(sent.judged(&mut chain, A, &good), "void: another owner");
    assert_eq!(sent.judged(&mut chain, B, &good), "records 1 of 2");
    let behind = frame(&mut old, b"behind");
    assert_eq!(sent.judged(&mut chain, A, &behind), "void: out of place");
}

#[test]
fn two_takers_of_one_epoch_in_the_same_millisecond_are_told_apart() {
    let (mut sent, mut chain) = Sent::begun(A);
    let [mut b, mut c] = [chain.ahead(), chain.ahead()];
    let of_b = b.take_over(B, NOW_MS, true);
    let of_c = c.take_over(C, NOW_MS, true);
    assert_eq!(sent.judged(&mut chain, B, &of_b), "taken over");
    assert_eq!(sent.judged(&mut chain, C, &of_c), "void: out of place");
    let of_c = frame(&mut c, b"of c");
    assert_eq!(sent.judged(&mut chain, C, &of_c), "void: out of place");
    let of_b = frame(&mut b, b"of b");
    assert_eq!(sent.judged(&mut chain, B, &of_b), "records 0 of 2");
}

#[test]
fn a_seal_of_another_epoch_than_the_next_is_void_and_so_is_one_with_records() {
    let (mut sent, mut chain) = Sent::begun(A);
    let seed = header_crc(&sent.0[0].bytes);
    let mut seal = |epoch, count| {
        let header = FrameHeader {
            epoch,
            count,
            first_sequence: 0,
            written_ms: NOW_MS,
            is_plausible: true,
            synced_bytes: 64,
            previous_crc: seed,
            replaced: None,
        };
        let mut bytes = Vec::new();
        encode(&mut bytes, seed, &header, &B.key());
        sent.judged(&mut chain, B, &bytes)
    };
    assert_eq!(seal(3, 0), "void: another owner");
    assert_eq!(seal(1, 0), "void: another owner");
    assert_eq!(seal(0, 0), "void: out of place");
    assert_eq!(seal(2, 1), "void: another owner");
    assert_eq!(seal(2, 0), "taken over");
}

#[test]
fn a_seal_with_another_owner_than_its_key_is_void() {
    let (mut sent, mut chain) = Sent::begun(A);
    let seal = chain.ahead().take_over(B, NOW_MS, true);
    assert_eq!(sent.judged(&mut chain, C, &seal), "void: another owner");
    assert_eq!(sent.judged(&mut chain, B, &seal), "taken over");
    assert_eq!(sent.judged(&mut chain, B, &seal), "void: out of place");
}

/// A log of five openings and several segments, of which one was packed and has a replaced payload.
fn log_of_many_epochs() -> MemoryDisk {
    let disk = MemoryDisk::default();
    for epoch in 0..5 {
        let (mut log, _, _) = open(&disk);
        for byte in 0..3 {
            commit(&mut log, &[epoch * 3 + byte; 300]);
        }
        if let Some(first) = log.segments().to_pack(0, 4).filter(|_| epoch == 3) {
            let packing = pack(&disk, first, &mut |_, _| Ok(())).unwrap();
            assert!(log.segments_mut().put_packed(&packing).unwrap());
            let mut other =
                |frame: Frame<'_>| Ok((frame.first_sequence == 1).then(|| b"other".to_vec()));
            let packing = redact(&disk, first, false, &mut other).unwrap().unwrap();
            assert!(log.segments_mut().put_packed(&packing).unwrap());
        }
    }
    disk
}

#[test]
fn a_moved_in_log_of_many_epochs_counts_whole() {
    let disk = log_of_many_epochs();
    let (summary, seen) = scan_all(&disk).unwrap();
    assert!(summary.segments > 3 && seen[1].payload == b"other");
    let mut sent = Sent::default();
    for segment in crate::oplog::segments(&disk).unwrap() {
        let bytes = plain_bytes(&disk, segment.first_sequence()).unwrap();
        for piece in pieces(&bytes) {
            sent.send(A, piece);
        }
    }
    let mut chain = Chain::begin(&sent.0[0], OPTIONS.store_id).unwrap();
    let mut found = Vec::new();
    for message in &sent.0[1..] {
        match chain.judge(message) {
            Verdict::Frame(frame) if frame.count > 0 => found.push(record_of(frame)),
            Verdict::Frame(_) | Verdict::Segment { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(found, seen);
    let end = chain.end();
    assert_eq!(
        (end.sequence, end.epoch),
        (summary.end_sequence, summary.epoch)
    );
    let mut ahead = taken(&mut sent, &mut chain, B);
    let next = frame(&mut ahead, b"goes on");
    assert_eq!(sent.judged(&mut chain, B, &next), "records 15 of 6");
}

/// The header and the frames of a segment.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let (header, mut rest) = bytes.split_at(SEGMENT_HEADER_BYTES);
    let mut pieces = vec![header];
    while rest.starts_with(b"TLRF") {
        let payload = u32::from_le_bytes(rest[4..8].try_into().unwrap()) & 0x3fff_ffff;
        let (piece, behind) = rest.split_at(48 + (payload as usize).next_multiple_of(8));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

#[test]
fn a_pipelined_frame_behind_a_void_one_is_void() {
    let (mut sent, mut chain) = Sent::begun(A);
    let mut old = chain.ahead();
    let flight = [frame(&mut old, b"one"), frame(&mut old, b"two")];
    let mut new = taken(&mut sent, &mut chain, B);
    for frame in &flight {
        assert_eq!(sent.judged(&mut chain, A, frame), "void: out of place");
    }
    let good = frame(&mut new, b"good");
    assert_eq!(sent.judged(&mut chain, B, &good), "records 0 of 2");
}

#[test]
fn a_frame_of_the_segment_before_is_void_after_a_roll() {
    let (mut sent, mut chain) = Sent::begun(A);
    let mut ahead = chain.ahead();
    let first = frame(&mut ahead, b"first");
    sent.judged(&mut chain, A, &first);
    let mut missed = ahead.clone();
    let header = ahead.header(NOW_MS);
    assert_eq!(sent.judged(&mut chain, A, &header), "segment 1");
    let late = frame(&mut missed, b"late");
    assert_eq!(
        sent.judged(&mut chain, A, &late),
        "void: damaged or of another segment"
    );
    assert_eq!(sent.judged(&mut chain, A, &header), "void: out of place");
    let good = frame(&mut ahead, b"good");
    assert_eq!(sent.judged(&mut chain, A, &good), "records 1 of 1");
}

#[test]
fn a_header_of_another_store_or_owner_is_void() {
    let (mut sent, mut chain) = Sent::begun(A);
    let mut ahead = chain.ahead();
    let first = frame(&mut ahead, b"first");
    sent.judged(&mut chain, A, &first);
    let header = ahead.header(NOW_MS);
    assert_eq!(sent.judged(&mut chain, B, &header), "void: another owner");
    let mut foreign = Sent::default();
    let other = foreign.send(A, &first_header([8; 16]));
    let error = Chain::begin(other, OPTIONS.store_id).unwrap_err();
    assert!(matches!(error, OplogError::ForeignStore { .. }), "{error}");
    let mut elsewhere = Chain::begin(other, [8; 16]).unwrap().ahead();
    let same = frame(&mut elsewhere, b"first");
    assert_ne!(same, first, "its checksums begin elsewhere");
    let header = elsewhere.header(NOW_MS);
    assert_eq!(sent.judged(&mut chain, A, &header), "void: out of place");
}

#[test]
fn a_log_begins_with_a_header_alone() {
    let (sent, chain) = Sent::begun(A);
    let frame = frame(&mut chain.ahead(), b"one");
    let mut long = sent.0[0].bytes.clone();
    long.push(0);
    for bytes in [frame, long, Vec::new(), b"TLRLOG01".to_vec()] {
        let message = Message {
            offset: 7,
            owner: A,
            bytes,
        };
        let error = Chain::begin(&message, OPTIONS.store_id).unwrap_err();
        assert!(
            error.to_string().contains("no segment header at offset 7"),
            "{error}"
        );
    }
}

#[test]
fn bytes_behind_the_frame_are_void() {
    let (mut sent, mut chain) = Sent::begun(A);
    let mut ahead = chain.ahead();
    let good = frame(&mut ahead, b"first");
    for behind in [1, 8, 48] {
        let mut long = good.clone();
        long.resize(good.len() + behind, 0);
        assert_eq!(
            sent.judged(&mut chain, A, &long),
            "void: bytes behind the frame"
        );
    }
    let two = [good.clone(), frame(&mut ahead, b"second")].concat();
    assert_eq!(
        sent.judged(&mut chain, A, &two),
        "void: bytes behind the frame"
    );
    assert_eq!(sent.judged(&mut chain, A, &good), "records 0 of 1");
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_message_is_void() {
    let (mut sent, mut chain) = Sent::begun(A);
    let mut ahead = chain.ahead();
    let first = frame(&mut ahead, b"first");
    sent.judged(&mut chain, A, &first);
    let next = frame(&mut ahead.clone(), b"a payload");
    let seal = ahead.clone().take_over(B, NOW_MS, true);
    let header = ahead.header(NOW_MS).to_vec();
    for (owner, bytes) in [(A, next), (B, seal), (A, header)] {
        let judge = |owner, bytes: &[u8]| {
            let message = Message {
                offset: chain.next(),
                owner,
                bytes: bytes.to_vec(),
            };
            said(chain.clone().judge(&message))
        };
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let verdict = judge(owner, &flipped);
            assert!(verdict.starts_with("void"), "bit {bit}: {verdict}");
        }
        for bit in 0..128 {
            let verdict = judge(Owner(owner.0 ^ (1 << bit)), &bytes);
            assert!(verdict.starts_with("void"), "owner bit {bit}: {verdict}");
        }
        for cut in 0..bytes.len() {
            let verdict = judge(owner, &bytes[..cut]);
            assert!(verdict.starts_with("void"), "{cut} bytes: {verdict}");
        }
        assert!(!judge(owner, &bytes).starts_with("void"));
    }
}
