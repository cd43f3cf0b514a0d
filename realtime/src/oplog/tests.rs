//! Tests of the log through its public face, on a disk that loses what was not synced.

#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod chain;
mod damage;
mod faults;
mod hand;
mod life;
mod memory_disk;
mod model;
mod node;
mod nodes;
mod packed;
mod race;
mod redacted;
mod second;
mod sim_topic;
mod tail;
mod topic_log;
mod transfer;

use std::sync::Arc;

use memory_disk::{Choices, MemoryDisk};
use tallyring_archive::Disk;

use super::{FileLog, Log, LogOptions, LogSummary, OplogError, ReadFrom, scan};

const OPTIONS: LogOptions = LogOptions {
    segment_bytes: 1024,
    bytes_max: u64::MAX,
    store_id: [7; 16],
    plausible_ms: None,
    trusts_clock: false,
};
const NOW_MS: i64 = 1_700_000_000_000;
const FIRST: &str = "oplog/0000000000000000.tlog";
const SEGMENT_HEADER_BYTES: usize = 64;

/// A frame as it was passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    epoch: u32,
    first_sequence: u64,
    count: u32,
    payload: Vec<u8>,
}

type Opened = Result<(FileLog, LogSummary, Vec<Seen>), OplogError>;

fn try_open(disk: &MemoryDisk, from: ReadFrom) -> Opened {
    let mut seen = Vec::new();
    let (log, summary) = FileLog::open(
        Arc::new(disk.clone()),
        OPTIONS,
        NOW_MS,
        from,
        &mut |frame| {
            seen.push(record_of(frame));
            Ok(())
        },
    )?;
    assert_eq!(log.durable(), log.appended());
    assert_eq!(summary.frames, seen.len() as u64);
    Ok((log, summary, seen))
}

/// An empty log with these options.
fn begin(disk: &MemoryDisk, options: LogOptions) -> FileLog {
    let disk = Arc::new(disk.clone());
    let begun = FileLog::open(disk, options, NOW_MS, ReadFrom::Oldest, &mut |_| Ok(()));
    begun.unwrap().0
}

fn open(disk: &MemoryDisk) -> (FileLog, LogSummary, Vec<Seen>) {
    try_open(disk, ReadFrom::Oldest).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(disk: &MemoryDisk) -> OplogError {
    try_open(disk, ReadFrom::Oldest)
        .err()
        .expect("the open is refused")
}

fn scan_all(disk: &MemoryDisk) -> Result<(LogSummary, Vec<Seen>), OplogError> {
    let mut seen = Vec::new();
    let summary = scan(
        disk,
        Some(OPTIONS.store_id),
        ReadFrom::Oldest,
        &mut |frame| {
            seen.push(record_of(frame));
            Ok(())
        },
    )?;
    Ok((summary, seen))
}

fn record_of(frame: super::Frame<'_>) -> Seen {
    assert!(frame.count > 0, "seals are not passed on");
    Seen {
        epoch: frame.epoch,
        first_sequence: frame.first_sequence,
        count: frame.count,
        payload: frame.payload.to_vec(),
    }
}

/// Appends and syncs one record.
fn commit(log: &mut FileLog, payload: &[u8]) -> u64 {
    let sequence = log
        .append(payload, 1, NOW_MS)
        .unwrap_or_else(|error| panic!("{error}"));
    log.commit().unwrap_or_else(|error| panic!("{error}"));
    sequence
}

fn payloads(seen: &[Seen]) -> Vec<&[u8]> {
    seen.iter().map(|seen| seen.payload.as_slice()).collect()
}

/// A log of one segment with these payloads, each synced; and the end of each frame.
fn small_log(payloads: &[&[u8]]) -> (MemoryDisk, Vec<usize>) {
    let disk = MemoryDisk::default();
    let (mut log, _, _) = open(&disk);
    let mut end = SEGMENT_HEADER_BYTES;
    let mut ends = Vec::new();
    for payload in payloads {
        commit(&mut log, payload);
        end += 48 + payload.len().next_multiple_of(8);
        ends.push(end);
    }
    assert_eq!(log.segments().list().len(), 1, "BUG: not a small log");
    (disk, ends)
}

/// The header with which a log begins.
fn first_header(store_id: [u8; 16]) -> Vec<u8> {
    let disk = MemoryDisk::default();
    begin(
        &disk,
        LogOptions {
            store_id,
            ..OPTIONS
        },
    );
    disk.bytes(FIRST)[..SEGMENT_HEADER_BYTES].to_vec()
}
