//! Compares what a node has of a log with the log's topic, before the node writes anything.
//!
//! Where the node has records that the topic lacks, the topic is another one, or lost its end: the node may hold the
//! last copy of these records, so nothing is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tallyring_archive::{Disk, names};

use super::chain::{Chain, Verdict};
use super::cursor::ChainPoint;
use super::entries::{Entry, list_below, read_header};
use super::error::{OplogError, Result};
use super::headers::Headers;
use super::messages::{Messages, failed};
use super::mirror::{at, decode};
use super::packed::SegmentBytes;
use super::topic::Message;
use super::window::Source;

/// Where a mirror goes on.
pub(super) struct Start {
    /// Header of the first segment that is written anew.
    pub header: Message,
    /// The segments before, which stay.
    pub older: Vec<Entry>,
    pub headers: Headers,
    /// Offset behind the messages that were compared.
    pub end: u64,
}

/// A segment of the node.
struct Local {
    /// The point behind its last whole frame.
    end: ChainPoint,
    is_packed: bool,
}

/// Finds where the mirror goes on: at the newest segment that the file of headers names, else at the topic's begin. All
/// messages from there on are read once. Changes nothing.
pub(super) fn survey(
    disk: &dyn Disk,
    messages: &mut Messages,
    store_id: [u8; 16],
) -> Result<Start> {
    let range = messages.topic().range().map_err(failed("look at"))?;
    let mut headers = Headers::read(disk);
    let mut header = begin(messages, &mut headers, &range)?;
    let is_synced = headers.last().is_some();
    let mut chain = Chain::begin(&header, store_id)?;
    headers.note(at(&decode(&header)?, &header));
    let locals = locals(disk, store_id, chain.first())?;
    let ends = locals
        .values()
        .map(|local| (local.end.sequence, local.end.crc));
    let mut missed: BTreeSet<(u64, u32)> = ends.collect();
    let mut stays = true;
    loop {
        let before = (chain.first(), chain.point());
        missed.remove(&(before.1.sequence, before.1.crc));
        if chain.next() >= range.end {
            break;
        }
        let message = messages.next_there(chain.next())?;
        if let Verdict::Segment { .. } = chain.judge(&message) {
            headers.note(at(&decode(&message)?, &message));
            // A packed file is whole, and payloads may have been replaced in it that the topic still has.
            let local = locals.get(&before.0);
            stays = stays && local.is_some_and(|local| local.is_packed && local.end == before.1);
            if stays {
                header = message;
            }
        }
    }
    if let Some((mirror, _)) = missed.last() {
        return Err(OplogError::TopicDiffers {
            mirror: *mirror,
            topic: chain.end().sequence,
        });
    }
    Ok(Start {
        older: older(disk, store_id, &header, is_synced)?,
        header,
        headers,
        end: range.end,
    })
}

/// The header at which the comparison begins. Clears the headers where they are not those of this topic.
fn begin(messages: &mut Messages, headers: &mut Headers, range: &Range<u64>) -> Result<Message> {
    messages.forget();
    if let Some(hint) = headers.last().filter(|at| range.contains(&at.offset)) {
        let message = messages.next_there(hint.offset)?;
        if decode(&message).is_ok_and(|header| at(&header, &message) == hint) {
            return Ok(message);
        }
        messages.forget();
    }
    *headers = Headers::default();
    match range.is_empty() {
        true => Err(OplogError::NoLog {
            offset: range.start,
        }),
        false => messages.next_there(range.start),
    }
}

/// The node's segments from `first` on. One without a whole header has nothing to lose.
fn locals(disk: &dyn Disk, store_id: [u8; 16], first: u64) -> Result<BTreeMap<u64, Local>> {
    let files = disk
        .list(names::OPLOG)
        .map_err(OplogError::io(names::OPLOG, "list"))?;
    let firsts = files.iter().filter_map(|file| names::segment_first(file));
    let mut locals = BTreeMap::new();
    for first in firsts.filter(|one| *one >= first) {
        match local(disk, store_id, first) {
            Ok(local) => {
                locals.insert(first, local);
            }
            Err(OplogError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(locals)
}

fn local(disk: &dyn Disk, store_id: [u8; 16], first: u64) -> Result<Local> {
    let entry = read_header(disk, names::segment(first), Some(store_id))?;
    Ok(Local {
        end: end(disk, &entry)?,
        is_packed: entry.form.is_packed(),
    })
}

/// The node's segments before the one of this header. The last one ends where that begins.
///
/// Where they may not be synced, a crash may have left anything of them, and the topic no longer has them. So all of
/// them are read, and damage means that the node was away for too long.
fn older(
    disk: &dyn Disk,
    store_id: [u8; 16],
    message: &Message,
    is_synced: bool,
) -> Result<Vec<Entry>> {
    let header = decode(message)?;
    let topic = header.first_sequence;
    let behind = |error| match error {
        OplogError::Corrupt { sequence, .. } | OplogError::Missing { from: sequence, .. }
            if !is_synced =>
        {
            OplogError::MirrorBehind {
                mirror: sequence,
                topic,
            }
        }
        error => error,
    };
    let older = list_below(disk, Some(store_id), topic).map_err(behind)?;
    let next = older.iter().skip(1).map(|entry| &entry.header);
    let followed = older.iter().zip(next.chain([&header]));
    let proven = if is_synced {
        older.len().saturating_sub(1)
    } else {
        0
    };
    for (entry, next) in followed.skip(proven) {
        let end = end(disk, entry).map_err(behind)?;
        let begins = ChainPoint {
            sequence: next.first_sequence,
            crc: next.previous_crc,
        };
        if end != begins || entry.header.first_sequence != next.previous_first {
            return Err(OplogError::MirrorBehind {
                mirror: end.sequence,
                topic,
            });
        }
    }
    Ok(older)
}

/// The point behind the last whole frame of a segment.
fn end(disk: &dyn Disk, entry: &Entry) -> Result<ChainPoint> {
    let bytes = SegmentBytes::open(disk, &entry.file)?;
    Ok(entry.last_frame(Source::File(bytes))?.point())
}
