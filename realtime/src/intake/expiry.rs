//! Old segments of the log: how long they stay, and how they go.

use std::time::Duration;

use super::{HOUR_MS, Intake, Writer};
use crate::error::Result;
use crate::oplog::Log;

impl Intake {
    /// Sequence number with which the log begins; 0 where that cannot be read.
    pub(crate) fn log_begins(&self) -> u64 {
        self.oldest_segment().map_or(0, |(first, _)| first)
    }

    /// Removes log segments that begin before the sequence number `needed`, are outside of the window of ids, and are
    /// old enough. Returns the number of removed segments. Before each removal, `leaves` gets the first record of the
    /// segment, and the earliest time at which a later one was begun, Unix milliseconds; where it fails, the segment
    /// stays.
    pub(crate) fn expire_log(
        &self,
        needed: u64,
        leaves: &dyn Fn(u64, i64) -> Result<()>,
    ) -> Result<usize> {
        let mut removed = 0;
        while let Some((first, behind_ms)) = self.next_to_expire(needed)? {
            leaves(first, behind_ms)?;
            let mut writer = self.writer();
            let older_than_ms = self.kept_from_ms(&mut writer)?;
            let log = writer.log()?;
            let oldest = log.segments().list().first();
            // Another thread may have removed it meanwhile.
            if oldest.is_some_and(|oldest| oldest.first_sequence == first) {
                removed += log.trim(needed, older_than_ms, 1)?;
            }
            drop(writer);
            // Waiting writers go first, because each removal syncs the directory.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(removed)
    }

    fn next_to_expire(&self, needed: u64) -> Result<Option<(u64, i64)>> {
        let mut writer = self.writer();
        let older_than_ms = self.kept_from_ms(&mut writer)?;
        Ok(writer.log()?.segments().next_to_trim(needed, older_than_ms))
    }

    /// The time since when segments stay, Unix milliseconds: those of the journal as long as there is room for the log.
    pub(super) fn kept_from_ms(&self, writer: &mut Writer) -> Result<i64> {
        let known_ms = self.oldest_known_ms(writer);
        if self.options.journal_days == 0 || self.wants_room(writer.log()?) {
            return Ok(known_ms);
        }
        let journal_hours = i64::from(self.options.journal_days) * 24;
        let kept_ms = self.believed_now_ms(writer) - journal_hours * HOUR_MS;
        Ok(kept_ms.min(known_ms))
    }

    /// Segments that were written before then, Unix milliseconds, are a journal, whose users have pseudonyms.
    pub(super) fn journal_until_ms(&self, writer: &Writer) -> i64 {
        match self.options.journal_days {
            0 => i64::MIN,
            _ => self.oldest_known_ms(writer),
        }
    }

    /// True when the log is near the limit of its size, or has a journal and the disk is nearly full, so that old
    /// segments should go now.
    pub fn log_wants_room(&self) -> bool {
        let writer = self.writer();
        let log = writer.log.as_deref();
        log.is_some_and(|log| self.wants_room(log))
    }

    pub(super) fn wants_room(&self, log: &dyn Log) -> bool {
        let segments = log.segments();
        segments.is_near_limit() || self.options.journal_days > 0 && segments.is_disk_nearly_full()
    }
}
