//! The second copy of the log: its segments once more, in a directory on another disk.
//!
//! The copy is made from the first log's files, as far as those are durable, in pieces: it holds no memory however far it
//! is behind, and a write that a crash tore is never in it. A segment has the name and the bytes of the first one, so what
//! reads a log reads its copy. Beside them is the identity (`STORE`), which the log is of no use without.
//!
//! # Invariants
//!
//! * What is behind `At` is durable in the copy. After a failure all from there on is written again, because a sync that
//!   failed may have dropped what was written.
//! * A segment gets its name with its header, and only after the one before is whole: the copy has no gap.
//! * The copy's whole frames are a beginning of the log. A start at which they are not is refused, and changes nothing.
//! * Segments leave the copy only when the log has expired them, the oldest first.

use std::io::{self, ErrorKind};
use std::sync::{Arc, PoisonError};

use serde::Serialize;
use tallyring_archive::{Blobs, Disk, names};

use super::error::OplogError;
use super::recovery::{Entry, list, read_header};
use super::segment::{HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::spare::write_zeros;
use super::writer::{DurableEnd, Log};
use crate::sync::{Mutex, MutexGuard};

/// Bytes that are read and written at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes that are written before they are synced.
const UNSYNCED_BYTES: u64 = 16 << 20;

/// When an increment is acknowledged where the log has a second copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogCopyAck {
    /// When the log has it; the copy follows.
    Local,
    /// When the log and the copy have it.
    Both,
}

/// State of the second copy.
#[derive(Debug, Clone, Serialize)]
pub struct LogCopyStatus {
    /// Its directory.
    pub path: String,
    /// When increments are acknowledged.
    pub ack: LogCopyAck,
    /// Records of the log that it may lack.
    pub behind_records: u64,
    /// Bytes of the log that it lacks.
    pub behind_bytes: u64,
    /// It has all that was durable so many seconds ago; 0 when it lacks nothing.
    pub behind_seconds: f64,
    /// Why it could not be brought up to date the last time, if it could not.
    pub failure: Option<String>,
}

/// The second copy of a log. Its lock is held while its disk works, so a disk that hangs holds up only what waits for the
/// copy.
pub struct LogCopy {
    log: Arc<dyn Disk>,
    copy: Arc<dyn Disk>,
    path: String,
    ack: LogCopyAck,
    at: Mutex<At>,
    /// Locked last, for a moment.
    progress: Mutex<Progress>,
}

/// How far the copy is durable.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    /// First record of the segment that is copied.
    first: u64,
    /// Bytes of that segment; 0 before it is begun.
    bytes: u64,
    /// Number after the last record that is there for certain.
    sequence: u64,
    /// Segments before this one were removed.
    expired: u64,
    /// Where what a crash tore begins in the file; 0 where nothing is torn.
    torn: u64,
}

/// What is told of the copy.
#[derive(Debug)]
struct Progress {
    at: At,
    /// The copy has all that was durable at this time, Unix milliseconds.
    held_ms: i64,
    failure: Option<String>,
}

impl LogCopy {
    /// Compares what is in `copy` with the log in `log`, and goes on from there. Changes nothing. `path` names the copy in
    /// its state.
    ///
    /// # Errors
    /// [`OplogError::CopyAhead`] when the copy has frames that the log lacks, [`OplogError::CopyDiffers`] when it is one of
    /// another log; when a disk refuses, or the log's headers are damaged.
    pub fn open(
        log: Arc<dyn Disk>,
        copy: Arc<dyn Disk>,
        path: String,
        ack: LogCopyAck,
        now_ms: i64,
    ) -> Result<Self, OplogError> {
        let at = compare(&*log, &*copy)?;
        Ok(Self {
            log,
            copy,
            path,
            ack,
            at: Mutex::new(at),
            progress: Mutex::new(Progress {
                at,
                held_ms: now_ms,
                failure: None,
            }),
        })
    }

    /// When increments are acknowledged.
    pub fn ack(&self) -> LogCopyAck {
        self.ack
    }

    /// Brings the copy up to `end`, which was the log's at `now_ms`; true once it is there, false after `bytes_max` bytes
    /// (or little more). A failure leaves the copy as far as it was, and can be tried again.
    ///
    /// # Errors
    /// When either disk refuses, or the copy's directory holds something else by now.
    pub fn bring_up(
        &self,
        end: DurableEnd,
        bytes_max: u64,
        now_ms: i64,
    ) -> Result<bool, OplogError> {
        let mut at = lock(&self.at);
        let reached = self.advance(&mut at, end, bytes_max);
        let mut progress = lock(&self.progress);
        progress.at = *at;
        let failure = match &reached {
            Ok(true) => {
                progress.held_ms = now_ms;
                None
            }
            Ok(false) if self.ack == LogCopyAck::Local => None,
            Ok(false) => Some("it is still being brought up to date".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        match (&progress.failure, &failure) {
            (None, Some(failure)) => {
                tracing::error!(failure, "the second copy of the log is not up to date");
            }
            (Some(_), None) => tracing::info!("the second copy of the log goes on"),
            _ => {}
        }
        progress.failure = failure;
        reached
    }

    /// How it is, beside the log that it follows.
    pub fn status(&self, log: &Log, now_ms: i64) -> LogCopyStatus {
        let progress = lock(&self.progress);
        let at = progress.at;
        let behind_bytes = log.bytes_behind(at.first, at.bytes);
        let behind_ms = match behind_bytes {
            0 => 0,
            _ => now_ms.saturating_sub(progress.held_ms).max(0),
        };
        LogCopyStatus {
            path: self.path.clone(),
            ack: self.ack,
            behind_records: log.appended().saturating_sub(at.sequence),
            behind_bytes,
            behind_seconds: behind_ms as f64 / 1e3,
            failure: progress.failure.clone(),
        }
    }

    fn advance(&self, at: &mut At, end: DurableEnd, bytes_max: u64) -> Result<bool, OplogError> {
        if at.first < end.oldest {
            // The log has expired what the copy would go on with.
            *at = At {
                first: end.oldest,
                bytes: 0,
                sequence: end.oldest,
                torn: 0,
                ..*at
            };
        }
        let mut left = bytes_max;
        while (at.first, at.bytes) < (end.newest, end.bytes) {
            if left == 0 {
                return Ok(false);
            }
            let is_newest = at.first == end.newest;
            let until = if is_newest { end.bytes } else { u64::MAX };
            let before = at.bytes;
            let is_whole = self.copy_part(at, until, left.min(UNSYNCED_BYTES))?;
            left = left.saturating_sub(at.bytes - before);
            if is_newest && at.bytes == end.bytes {
                at.sequence = end.sequence;
            } else if is_whole {
                self.turn_to_next(at)?;
            }
        }
        self.expire(at, end.oldest);
        Ok(true)
    }

    /// Copies and syncs at most so many bytes of the segment, up to its byte `until`; true when the log's file ends there.
    fn copy_part(&self, at: &mut At, until: u64, bytes_max: u64) -> Result<bool, OplogError> {
        let name = names::segment(at.first);
        let mut offset = at.bytes;
        if offset == 0 {
            self.begin(&name)?;
            offset = SEGMENT_HEADER_BYTES as u64;
        }
        // By its name each time: what is written to a file that was removed would be in no copy.
        let mut file = self.copy.open(&name).map_err(failed(&name))?;
        if at.torn > 0 {
            // The log may go on with other bytes, where it was restored from this copy.
            let there = self.copy.read(&name).map_err(failed(&name))?.len() as u64;
            write_zeros(&mut *file, at.torn, there.saturating_sub(at.torn))
                .map_err(failed(&name))?;
        }
        let stop = until.min(offset.saturating_add(bytes_max));
        let mut is_whole = false;
        while offset < stop && !is_whole {
            let wanted = PIECE_BYTES.min(stop - offset);
            let piece = self.read(&name, offset, wanted)?;
            is_whole = (piece.len() as u64) < wanted;
            if is_whole && until < u64::MAX {
                let ended = io::Error::from(ErrorKind::UnexpectedEof);
                return Err(OplogError::io(&name, "read for its second copy")(ended));
            }
            file.write_at(offset, &piece).map_err(failed(&name))?;
            offset += piece.len() as u64;
        }
        file.sync().map_err(failed(&name))?;
        at.bytes = offset;
        at.torn = 0;
        Ok(is_whole)
    }

    /// Begins a segment with the log's header, unless it is there.
    fn begin(&self, name: &str) -> Result<(), OplogError> {
        self.copy
            .create_directory(names::OPLOG)
            .map_err(failed(names::OPLOG))?;
        self.keep_identity()?;
        let header = self.read(name, 0, SEGMENT_HEADER_BYTES as u64)?;
        let is_new = self.put(name, &header)?;
        if !is_new && read_part(&*self.copy, name, SEGMENT_HEADER_BYTES as u64)? != header {
            return Err(differs(name, "its header is another one"));
        }
        for directory in [names::OPLOG, ""] {
            self.copy
                .sync_directory(directory)
                .map_err(failed(directory))?;
        }
        Ok(())
    }

    /// Writes a whole file of the copy unless its name is taken; true when it was free.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<bool, OplogError> {
        let blobs = Blobs::new(Arc::clone(&self.copy));
        blobs.put(name, bytes).map_err(refused)
    }

    fn keep_identity(&self) -> Result<(), OplogError> {
        let name = names::IDENTITY;
        let identity = self.log.read(name).map_err(OplogError::io(name, "read"))?;
        match self.copy.read(name) {
            Ok(there) if *there == *identity => Ok(()),
            Ok(_) => Err(differs(name, "it belongs to another store")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.put(name, &identity).map(drop)
            }
            Err(error) => Err(failed(name)(error)),
        }
    }

    /// Goes on with the segment that follows.
    fn turn_to_next(&self, at: &mut At) -> Result<(), OplogError> {
        let listed = segments(&*self.log)?;
        let next = listed.into_iter().find(|first| *first > at.first);
        let file = names::segment(next.unwrap_or(at.first));
        let missing = |from: u64, next: u64| OplogError::Missing {
            file: names::segment(from),
            from,
            next,
        };
        let next = next.ok_or_else(|| missing(at.first, at.first + 1))?;
        let header = self.read(&file, 0, SEGMENT_HEADER_BYTES as u64)?;
        match SegmentHeader::decode(&header) {
            Ok((header, _)) if header.previous_first == at.first => {
                *at = At {
                    first: next,
                    bytes: 0,
                    sequence: next,
                    ..*at
                };
                Ok(())
            }
            Ok((header, _)) => Err(missing(header.previous_first, next)),
            Err(HeaderFault::Version(_) | HeaderFault::Damaged(_)) => {
                read_header(&*self.log, file, None).map(drop)
            }
        }
    }

    /// Removes what the log has expired. What cannot be removed is tried again; nothing else depends on it.
    fn expire(&self, at: &mut At, oldest: u64) {
        if at.expired >= oldest {
            return;
        }
        let removed = segments(&*self.copy).and_then(|listed| {
            for first in listed.into_iter().take_while(|first| *first < oldest) {
                let name = names::segment(first);
                self.copy.remove(&name).map_err(failed(&name))?;
                // After each one, because of several removals a crash may keep any: a gap.
                self.copy
                    .sync_directory(names::OPLOG)
                    .map_err(failed(names::OPLOG))?;
            }
            Ok(())
        });
        match removed {
            Ok(()) => at.expired = oldest,
            Err(error) => tracing::debug!(%error, "an expired segment stays in the second copy"),
        }
    }

    fn read(&self, name: &str, offset: u64, bytes: u64) -> Result<Vec<u8>, OplogError> {
        self.log
            .read_part(name, offset, usize::try_from(bytes).unwrap_or(usize::MAX))
            .map_err(OplogError::io(name, "read for its second copy"))
    }
}

/// How far the copy is the log for certain. Its whole frames, which may go on behind that, are the log's, too.
fn compare(log: &dyn Disk, copy: &dyn Disk) -> Result<At, OplogError> {
    if let (Ok(there), Ok(identity)) = (copy.read(names::IDENTITY), log.read(names::IDENTITY))
        && *there != *identity
    {
        return Err(differs(names::IDENTITY, "it belongs to another store"));
    }
    let copied = segments(copy)?;
    let Some(&newest) = copied.last() else {
        return Ok(At::default());
    };
    let logged = list(log, None)?;
    for &first in &copied {
        let of_log = logged.iter().find(|one| one.header.first_sequence == first);
        let of_copy = header_of_copy(copy, first)?;
        if of_log.is_some_and(|one| one.header != of_copy.header) {
            return Err(differs(&of_copy.file, "its header is another one"));
        }
        let is_of_store = |one: &Entry| one.header.store_id == of_copy.header.store_id;
        if !logged.iter().all(is_of_store) {
            return Err(differs(&of_copy.file, "it belongs to another store"));
        }
    }
    let (Some(oldest), Some(last)) = (logged.first(), logged.last()) else {
        return Err(ahead(copy, newest, 0));
    };
    if newest > last.header.first_sequence {
        let content = read_whole(log, &last.file)?;
        return Err(ahead(copy, newest, last.last_frame(&content).sequence));
    }
    if newest < oldest.header.first_sequence {
        // All of it is expired.
        return Ok(At::default());
    }
    let Some(place) = logged
        .iter()
        .position(|one| one.header.first_sequence == newest)
    else {
        return Err(differs(
            &names::segment(newest),
            "the log has no such segment",
        ));
    };
    let at = compare_newest(log, copy, &logged[place])?;
    // What follows a segment that is missing, or shorter than the log's, is copied again.
    let whole = logged[..place].iter();
    let mut whole = whole.filter(|one| one.header.first_sequence >= copied[0]);
    let lacking = whole.find(|one| {
        let content = copy.read(&one.file);
        content.map_or(0, |content| content.len() as u64) < one.bytes()
    });
    Ok(lacking.map_or(at, |one| At {
        first: one.header.first_sequence,
        sequence: one.header.first_sequence,
        ..At::default()
    }))
}

fn compare_newest(log: &dyn Disk, copy: &dyn Disk, entry: &Entry) -> Result<At, OplogError> {
    let (content, of_log) = (
        read_whole(copy, &entry.file)?,
        read_whole(log, &entry.file)?,
    );
    let cursor = entry.last_frame(&content);
    let frames = &content[..cursor.offset];
    if of_log.starts_with(frames) {
        let frames_end = frames.len() as u64;
        // Where a sync failed before the end of the process, what it was for may be in memory only, and no later sync
        // writes it: so it is written again.
        return Ok(At {
            first: entry.header.first_sequence,
            bytes: frames_end.saturating_sub(UNSYNCED_BYTES),
            sequence: entry.header.first_sequence,
            torn: match content.len() as u64 > frames_end {
                true => frames_end,
                false => 0,
            },
            ..At::default()
        });
    }
    let logged = entry.last_frame(&of_log);
    if frames.starts_with(&of_log[..logged.offset]) {
        return Err(OplogError::CopyAhead {
            copy: cursor.sequence,
            log: logged.sequence,
        });
    }
    let equal = frames.iter().zip(&*of_log).take_while(|(a, b)| a == b);
    let problem = format!("the log has other bytes from offset {} on", equal.count());
    Err(differs(&entry.file, &problem))
}

/// The copy's newest segment follows the end of the log.
fn ahead(copy: &dyn Disk, newest: u64, log: u64) -> OplogError {
    let end = header_of_copy(copy, newest).and_then(|entry| {
        let content = read_whole(copy, &entry.file)?;
        Ok(entry.last_frame(&content).sequence)
    });
    OplogError::CopyAhead {
        copy: end.unwrap_or(newest),
        log,
    }
}

fn header_of_copy(copy: &dyn Disk, first: u64) -> Result<Entry, OplogError> {
    let file = names::segment(first);
    read_header(copy, file.clone(), None).map_err(|error| match error {
        OplogError::Corrupt { problem, .. } => differs(&file, &problem),
        other => other,
    })
}

/// First records of the segments, oldest first.
fn segments(disk: &dyn Disk) -> Result<Vec<u64>, OplogError> {
    let files = disk
        .list(names::OPLOG)
        .map_err(OplogError::io(names::OPLOG, "list"))?;
    let firsts = files.iter();
    Ok(firsts
        .filter_map(|file| names::segment_first(file))
        .collect())
}

fn read_whole(disk: &dyn Disk, name: &str) -> Result<tallyring_archive::Content, OplogError> {
    disk.read(name).map_err(OplogError::io(name, "read"))
}

fn read_part(disk: &dyn Disk, name: &str, bytes: u64) -> Result<Vec<u8>, OplogError> {
    disk.read_part(name, 0, usize::try_from(bytes).unwrap_or(usize::MAX))
        .map_err(failed(name))
}

/// For `map_err`: the copy's disk refused.
fn failed(name: &str) -> impl FnOnce(io::Error) -> OplogError {
    OplogError::io(name, "write the second copy")
}

fn refused(error: tallyring_archive::Error) -> OplogError {
    failed(names::OPLOG)(io::Error::other(error))
}

fn differs(file: &str, problem: &str) -> OplogError {
    OplogError::CopyDiffers {
        file: file.to_owned(),
        problem: problem.to_owned(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic leaves is how far the copy was before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
