//! A second copy of the log, on a disk of its own that fails and loses what was not synced.

use std::io::ErrorKind;
use std::sync::Arc;

use tallyring_archive::Disk;
use tallyring_realtime::Error;
use tallyring_realtime::oplog::{LogCopy, LogCopyAck, ReadFrom, scan};

use super::Driver;

/// Tries after which a copy must be up to date: of faults, at most one is set at a time.
const TRIES: usize = 20;

impl Driver {
    /// Opens the copy beside the log. It is a beginning of the log at every start, however both disks were left.
    pub(super) fn open_copy(&self) -> Result<Option<LogCopy>, Error> {
        let Some(copy) = &self.copy_disk else {
            return Ok(None);
        };
        let log = Arc::new(self.disk.clone());
        let copy = Arc::new(copy.clone());
        let opened = LogCopy::open(log, copy, "copy".into(), LogCopyAck::Local, self.now_ms)?;
        Ok(Some(opened))
    }

    /// The process of the copy ends, or its power is lost.
    pub(super) fn end_copy(&mut self, power_lost: bool) {
        if let Some(copy) = &self.copy_disk {
            let next = match power_lost {
                true => copy.crash(&mut || self.chance.bits()),
                false => copy.kill(),
            };
            self.copy_disk = Some(next);
        }
    }

    /// Brings the copy up now and then; one of the calls of its disk may fail.
    pub(super) fn copy_log(&mut self) {
        let Some(copy) = self.copy_disk.clone() else {
            return;
        };
        if self.chance.percent(60) {
            return;
        }
        if self.chance.percent(30) {
            copy.fail_nth_call(1 + self.chance.below(8), ErrorKind::Other);
        }
        let copied = self.store().intake().copy_log();
        self.stats.copies += u64::from(copied.is_ok());
        self.note(format!("copy the log: {copied:?}"));
    }

    /// Brought up to date, the copy holds every frame of the log and no other, from the first that both hold on, and
    /// names no user whom the log does not name.
    pub(super) fn check_copy(&mut self) -> Result<(), String> {
        let Some(copy) = self.copy_disk.clone() else {
            return Ok(());
        };
        let mut is_even = false;
        for _ in 0..TRIES {
            is_even = is_even || matches!(self.store().intake().copy_log(), Ok(true));
        }
        if !is_even {
            return Err("the copy of the log is never up to date".to_owned());
        }
        let mut is_redacted = false;
        for _ in 0..TRIES {
            self.stats.steps += 1;
            is_redacted = self.redact_log()?;
        }
        let frames = |disk: &dyn Disk| {
            let mut frames = Vec::new();
            scan(disk, None, ReadFrom::Oldest, &mut |frame| {
                frames.push((frame.epoch, frame.first_sequence, frame.payload.to_vec()));
                Ok(())
            })
            .map(|_| frames)
            .map_err(|error| error.to_string())
        };
        let (mut copied, mut logged) = (frames(&copy)?, frames(&self.disk)?);
        // The removal of an old segment is not synced, so a loss of power may bring the segment back on one disk.
        let first = |frames: &[(u32, u64, Vec<u8>)]| frames.first().map_or(0, |frame| frame.1);
        let from = first(&copied).max(first(&logged));
        copied.retain(|frame| frame.1 >= from);
        logged.retain(|frame| frame.1 >= from);
        // Where the disk of the log stays full, erased users left the copy alone.
        if self.is_troubled() || !is_redacted || copied == logged {
            return Ok(());
        }
        let span = |frames: &[(u32, u64, Vec<u8>)]| {
            let ends = [frames.first(), frames.last()];
            ends.map(|frame| frame.map(|(epoch, sequence, _)| (*epoch, *sequence)))
        };
        Err(format!(
            "the copy of the log has other frames: {} over {:?}, and the log {} over {:?}",
            copied.len(),
            span(&copied),
            logged.len(),
            span(&logged)
        ))
    }
}
