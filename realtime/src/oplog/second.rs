//! The second copy of the log: the same segments in a directory on another disk.
//!
//! The copy is made from the durable part of the log's files, in pieces: it holds no memory however far it is behind,
//! and a torn write is never in it. A segment of the copy has the name and the bytes of the log's segment in
//! the plain form, so a reader of a log can read its copy. Where the log replaces payloads of a segment, the copy gets
//! the whole segment anew ([`LogCopy::write_again`]). The copy also has the identity file (`STORE`), without which the
//! log is of no use, and the contents of lists that records of the log name.
//!
//! # Invariants
//!
//! * Everything before [`Tip`] is durable in the copy. After a failure the bytes from there on are written again,
//!   because a failed sync may have dropped them.
//! * A segment gets its name together with its header, and only after the preceding segment is whole: the copy has no
//!   gap.
//! * The frames of a segment are all of before payloads were replaced, or all of after: the log replaces none in a
//!   segment that the copy lacks ([`LogCopy::has_whole`]).
//! * The whole frames of the copy are a beginning of the log, by number and checksum. A start at which they are not is
//!   refused, and changes nothing.
//! * Segments leave the copy only when the log has expired them, the oldest first, or when they are copied anew because
//!   an earlier one is missing.

mod compare;
mod lists;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use compare::compare;
use serde::Serialize;
use tallyring_archive::{Blobs, Disk, names};

use super::entries::read_header;
use super::error::{OplogError, Result};
use super::log::Log;
use super::packed::SegmentBytes;
use super::segment::{HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::spare::write_zeros;
use super::writer::DurableEnd;
use crate::identity::{are_of_one_store, is_keyed};
use crate::sync::{Mutex, MutexGuard};

/// Bytes that are read and written at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes that are written before a sync.
const UNSYNCED_BYTES: u64 = 16 << 20;

/// When an increment is acknowledged where the log has a second copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogCopyAck {
    /// When the log has the increment; the copy follows.
    Local,
    /// When the log and the copy have the increment.
    Both,
}

/// State of the second copy.
#[derive(Debug, Clone, Serialize)]
pub struct LogCopyStatus {
    /// Directory of the copy.
    pub path: String,
    /// When increments are acknowledged.
    pub ack: LogCopyAck,
    /// Records of the log that the copy may lack.
    pub behind_records: u64,
    /// Bytes of the log that the copy lacks.
    pub behind_bytes: u64,
    /// Age of the last time at which the copy had everything durable, seconds; 0 when the copy lacks nothing.
    pub behind_seconds: f64,
    /// The failure of the last attempt to bring the copy up, or to copy contents of lists; none where both succeeded.
    pub failure: Option<String>,
}

/// The second copy of a log. Its lock is held while its disk works, so a disk that hangs holds up only callers that
/// wait for the copy.
pub struct LogCopy {
    log: Arc<dyn Disk>,
    copy: Arc<dyn Disk>,
    path: String,
    ack: LogCopyAck,
    tip: Mutex<Tip>,
    /// Locked last, for a moment.
    progress: Mutex<Progress>,
    /// Hashes of contents of lists that were copied since the start.
    lists: Mutex<BTreeSet<String>>,
}

/// The tip of the copy: how far it is durable.
#[derive(Debug, Clone, Copy, Default)]
struct Tip {
    /// First record of the segment that is being copied.
    first: u64,
    /// Durable bytes of that segment; 0 before it is begun.
    bytes: u64,
    /// Sequence number after the last record that the copy has for certain.
    sequence: u64,
    /// First record of the oldest segment that was not removed from the copy.
    expired: u64,
    /// Position at which a torn write begins in the file; 0 where nothing is torn.
    torn: u64,
    /// Whether what the copy has of a segment goes before the segment is copied from its beginning.
    anew: bool,
}

/// State of the copy, for its status.
#[derive(Debug)]
struct Progress {
    tip: Tip,
    /// Time at which the copy had everything durable, Unix milliseconds.
    held_ms: i64,
    failure: Option<String>,
    /// Why the copy lacks contents of lists.
    lists_failure: Option<String>,
}

impl LogCopy {
    /// Compares the copy in `copy` with the log in `log`, and continues from there. Changes no segment. `path` is the
    /// copy's directory in its status. Fails with [`OplogError::CopyAhead`] when the copy has frames that the log
    /// lacks, and [`OplogError::CopyDiffers`] when the copy is of another log; also when the headers of the log are
    /// damaged.
    pub fn open(
        log: Arc<dyn Disk>,
        copy: Arc<dyn Disk>,
        path: String,
        ack: LogCopyAck,
        now_ms: i64,
    ) -> Result<Self> {
        let tip = compare(&*log, &*copy)?;
        // A crash may have left it; it only takes space.
        copy.remove(names::PACKING).ok();
        Ok(Self {
            log,
            copy,
            path,
            ack,
            tip: Mutex::new(tip),
            progress: Mutex::new(Progress {
                tip,
                held_ms: now_ms,
                failure: None,
                lists_failure: None,
            }),
            lists: Mutex::default(),
        })
    }

    /// When increments are acknowledged.
    pub fn ack(&self) -> LogCopyAck {
        self.ack
    }

    /// Brings the copy up to `end`, which was the end of the log at `now_ms` (Unix milliseconds). Returns true once the
    /// copy has reached it, and false after about `bytes_max` bytes. After a failure the call can be repeated. Fails
    /// when the directory of the copy has other files by now.
    pub fn bring_up(&self, end: DurableEnd, bytes_max: u64, now_ms: i64) -> Result<bool> {
        let mut tip = lock(&self.tip);
        let reached = self.advance(&mut tip, end, bytes_max);
        let mut progress = lock(&self.progress);
        progress.tip = *tip;
        let failure = match &reached {
            Ok(true) => {
                progress.held_ms = now_ms;
                None
            }
            Ok(false) if self.ack == LogCopyAck::Local => None,
            Ok(false) => Some("it is still being brought up".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        match (&progress.failure, &failure) {
            (None, Some(failure)) => {
                tracing::error!(failure, "the second copy of the log falls behind");
            }
            (Some(_), None) => tracing::info!("the second copy of the log is brought up again"),
            _ => {}
        }
        progress.failure = failure;
        reached
    }

    /// State of the copy beside the log that it follows.
    pub fn status(&self, log: &dyn Log, now_ms: i64) -> LogCopyStatus {
        let progress = lock(&self.progress);
        let tip = progress.tip;
        let behind_bytes = log.segments().bytes_behind(tip.first, tip.bytes);
        let behind_ms = match behind_bytes {
            0 => 0,
            _ => now_ms.saturating_sub(progress.held_ms).max(0),
        };
        LogCopyStatus {
            path: self.path.clone(),
            ack: self.ack,
            behind_records: log.appended().saturating_sub(tip.sequence),
            behind_bytes,
            behind_seconds: behind_ms as f64 / 1e3,
            failure: (progress.failure.as_ref())
                .or(progress.lists_failure.as_ref())
                .cloned(),
        }
    }

    fn advance(&self, tip: &mut Tip, end: DurableEnd, bytes_max: u64) -> Result<bool> {
        if tip.first < end.oldest {
            // The log has expired the segment with which the copy would continue.
            *tip = Tip {
                first: end.oldest,
                bytes: 0,
                sequence: end.oldest,
                torn: 0,
                ..*tip
            };
        }
        let mut left = bytes_max;
        while (tip.first, tip.bytes) < (end.newest, end.bytes) {
            if left == 0 {
                return Ok(false);
            }
            let is_newest = tip.first == end.newest;
            let until = if is_newest { end.bytes } else { u64::MAX };
            let before = tip.bytes;
            let is_whole = self.copy_part(tip, until, left.min(UNSYNCED_BYTES))?;
            left = left.saturating_sub(tip.bytes - before);
            if is_newest && tip.bytes == end.bytes {
                tip.sequence = end.sequence;
            } else if is_whole {
                self.go_to_next_segment(tip)?;
            }
        }
        self.expire(tip, end.oldest);
        Ok(true)
    }

    /// Copies and syncs at most `bytes_max` bytes of the segment, up to its byte `until`. Returns true when the log's
    /// file ends.
    fn copy_part(&self, tip: &mut Tip, until: u64, bytes_max: u64) -> Result<bool> {
        let name = names::segment(tip.first);
        let mut offset = tip.bytes;
        if offset == 0 {
            self.begin(&name, tip.anew)?;
            offset = SEGMENT_HEADER_BYTES as u64;
        }
        // Opened by name each time: a write to a removed file would be in no copy.
        let mut file = self.copy.open(&name).map_err(failed(&name))?;
        if tip.torn > 0 {
            // The log may continue with other bytes, if it was restored from this copy.
            let existing = self.copy.content(&name).map_err(failed(&name))?.len();
            write_zeros(&mut *file, tip.torn, existing.saturating_sub(tip.torn))
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
        tip.bytes = offset;
        tip.torn = 0;
        Ok(is_whole)
    }

    /// Begins a segment with the log's header, unless the copy has it; `anew` replaces what the copy has of it.
    fn begin(&self, name: &str, anew: bool) -> Result<()> {
        self.copy
            .create_directory(names::OPLOG)
            .map_err(failed(names::OPLOG))?;
        self.keep_identity()?;
        let header = self.read(name, 0, SEGMENT_HEADER_BYTES as u64)?;
        let is_new = self.put(name, &header)?;
        if !is_new && read_part(&*self.copy, name, SEGMENT_HEADER_BYTES as u64)? != header {
            return Err(differs(name, "its header differs"));
        }
        if !is_new && anew {
            // A crash leaves the segment missing or short, which the next start sees.
            self.copy.remove(name).map_err(failed(name))?;
            self.put(name, &header)?;
        }
        self.copy.sync_directory("").map_err(failed(""))
    }

    /// Writes a whole file of the copy unless its name is taken. Returns true when the name was free.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let blobs = Blobs::new(Arc::clone(&self.copy));
        blobs.put(name, bytes).map_err(refused)
    }

    fn keep_identity(&self) -> Result<()> {
        let name = names::IDENTITY;
        let identity = self.log.read(name).map_err(OplogError::io(name, "read"))?;
        match self.copy.read(name) {
            Ok(existing) if *existing == *identity => Ok(()),
            // One of them notes an API key. A store that had one never opens to all again, so that note stays.
            Ok(existing) if are_of_one_store(&existing, &identity) => match is_keyed(&identity) {
                true => {
                    let blobs = Blobs::new(Arc::clone(&self.copy));
                    blobs.put_over(name, &identity).map_err(refused)
                }
                false => Ok(()),
            },
            Ok(_) => Err(differs(name, "it belongs to another store")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.put(name, &identity).map(drop)
            }
            Err(error) => Err(failed(name)(error)),
        }
    }

    /// Continues with the next segment.
    fn go_to_next_segment(&self, tip: &mut Tip) -> Result<()> {
        let listed = segments(&*self.log)?;
        let next = listed.into_iter().find(|first| *first > tip.first);
        let file = names::segment(next.unwrap_or(tip.first));
        let missing = |from: u64, next: u64| OplogError::Missing {
            file: names::segment(from),
            from,
            next,
        };
        let next = next.ok_or_else(|| missing(tip.first, tip.first + 1))?;
        let header = self.read(&file, 0, SEGMENT_HEADER_BYTES as u64)?;
        match SegmentHeader::decode(&header) {
            Ok((header, ..)) if header.previous_first == tip.first => {
                *tip = Tip {
                    first: next,
                    bytes: 0,
                    sequence: next,
                    ..*tip
                };
                Ok(())
            }
            Ok((header, ..)) => Err(missing(header.previous_first, next)),
            Err(HeaderFault::Version(_) | HeaderFault::Damaged(_)) => {
                read_header(&*self.log, file, None).map(drop)
            }
        }
    }

    /// Removes segments that the log has expired. A failed removal is repeated later.
    fn expire(&self, tip: &mut Tip, oldest: u64) {
        if tip.expired >= oldest {
            return;
        }
        let removed = segments(&*self.copy).and_then(|listed| {
            for first in listed.into_iter().take_while(|first| *first < oldest) {
                let name = names::segment(first);
                self.copy.remove(&name).map_err(failed(&name))?;
                // A sync follows each removal: of several unsynced removals, a crash may undo any, which leaves a gap.
                self.copy
                    .sync_directory(names::OPLOG)
                    .map_err(failed(names::OPLOG))?;
            }
            Ok(())
        });
        match removed {
            Ok(()) => tip.expired = oldest,
            Err(error) => tracing::debug!(%error, "an expired segment stays in the second copy"),
        }
    }

    /// Whether the copy had all of the segment that begins with this record when it was brought up last. Payloads of
    /// another segment must stay: the copy would go on in the middle of other bytes.
    pub fn has_whole(&self, first_sequence: u64) -> bool {
        first_sequence < lock(&self.progress).tip.first
    }

    /// Writes a segment that the copy has whole again where the bytes of the log's segment are others, because payloads
    /// were replaced. The new file takes the place of the other in one step, so a crash leaves either. Other segments
    /// stay. No lock is held while the disk works, but for that step. One caller at a time. Fails soon after `stop` is
    /// set, and when a disk fails or has no space to spare: the copy must go on, whatever is replaced.
    pub fn write_again(&self, first_sequence: u64, stop: &AtomicBool) -> Result<()> {
        let name = names::segment(first_sequence);
        let has = || Ok(segments(&*self.copy)?.contains(&first_sequence));
        if !self.has_whole(first_sequence) || !has()? || self.is_equal(&name, stop)? {
            return Ok(());
        }
        let is_put = self.write_whole(&name, stop).and_then(|()| {
            let _tip = lock(&self.tip);
            // The log may have expired it meanwhile.
            let is_left = has()?;
            if is_left {
                let replaced = self.copy.replace(names::PACKING, &name);
                replaced.map_err(failed(&name))?;
            }
            Ok(is_left)
        });
        if !matches!(is_put, Ok(true)) {
            self.copy.remove(names::PACKING).ok();
        }
        is_put?;
        let synced = self.copy.sync_directory(names::OPLOG);
        synced.map_err(failed(names::OPLOG))
    }

    /// Writes a segment of the log under a temporary name, and syncs it.
    fn write_whole(&self, name: &str, stop: &AtomicBool) -> Result<()> {
        let full = || OplogError::full_or_io(names::PACKING, "a segment of the second copy");
        let bytes = SegmentBytes::open(&*self.log, name)?.len();
        // As much is left for what the log writes meanwhile.
        if self.copy.free_bytes().map_err(full())? < 2 * bytes {
            return Err(full()(ErrorKind::StorageFull.into()));
        }
        let mut file = self.copy.create(names::PACKING).map_err(full())?;
        self.each_piece(name, stop, &mut |at, piece| {
            file.write_at(at, &piece).map_err(full())?;
            // A sync of all of it at once would hold up those of new increments.
            if (at + piece.len() as u64).is_multiple_of(UNSYNCED_BYTES) {
                file.sync().map_err(full())?;
            }
            Ok(true)
        })?;
        file.sync().map_err(full())
    }

    /// Whether log and copy have the same bytes of a segment, in the plain form.
    fn is_equal(&self, name: &str, stop: &AtomicBool) -> Result<bool> {
        let mut copy = SegmentBytes::open(&*self.copy, name)?;
        let (copied, mut equal) = (copy.len(), 0);
        self.each_piece(name, stop, &mut |at, piece| {
            let end = at + piece.len() as u64;
            let is_equal = end <= copied && copy.part(at, piece.len())? == piece;
            equal = if is_equal { end } else { u64::MAX };
            Ok(is_equal)
        })?;
        Ok(equal == copied)
    }

    /// Passes the log's segment on in pieces, each with its position, until `each` returns false.
    fn each_piece(
        &self,
        name: &str,
        stop: &AtomicBool,
        each: &mut dyn FnMut(u64, Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let mut segment = SegmentBytes::open(&*self.log, name)?;
        let mut at = 0;
        while at < segment.len() {
            if stop.load(Ordering::Relaxed) {
                return Err(failed(name)(io::Error::other("the store is stopping")));
            }
            let bytes = PIECE_BYTES.min(segment.len() - at);
            let piece = segment.part(at, bytes as usize)?;
            if !each(at, piece)? {
                break;
            }
            at += bytes;
        }
        Ok(())
    }

    fn read(&self, name: &str, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut segment = SegmentBytes::open(&*self.log, name)?;
        let left = segment.len().saturating_sub(offset);
        segment.part(offset, left.min(bytes) as usize)
    }
}

/// First records of the segments, oldest first.
fn segments(disk: &dyn Disk) -> Result<Vec<u64>> {
    let files = disk
        .list(names::OPLOG)
        .map_err(OplogError::io(names::OPLOG, "list"))?;
    let firsts = files.iter();
    Ok(firsts
        .filter_map(|file| names::segment_first(file))
        .collect())
}

fn read_part(disk: &dyn Disk, name: &str, bytes: u64) -> Result<Vec<u8>> {
    disk.read_part(name, 0, usize::try_from(bytes).unwrap_or(usize::MAX))
        .map_err(failed(name))
}

/// For `map_err`: the disk of the copy failed.
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
    // After a panic, the tip of the copy is the one before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
