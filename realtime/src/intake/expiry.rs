//! Old segments of the log: how long they stay, and how they go.

use std::iter;
use std::time::Duration;

use tallyring_archive::IntakeEntry;
use tallyring_records::Day;

use super::{HOUR_MS, Intake, Writer};
use crate::error::Result;
use crate::oplog::{Held, SegmentInfo, Segments};

/// Time after it should be final after which a day is overdue, milliseconds.
const OVERDUE_MS: i64 = 24 * HOUR_MS;

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

    /// The time since when segments stay, Unix milliseconds: those of the journal, and of days that are to become
    /// final, as long as there is room for the log.
    fn kept_from_ms(&self, writer: &mut Writer) -> Result<i64> {
        let known_ms = self.oldest_known_ms(writer);
        if self.wants_room(writer.log()?.segments()) {
            return Ok(known_ms);
        }
        let held_ms = self.held_from_ms(writer);
        if self.options.journal_days == 0 {
            return Ok(held_ms.min(known_ms));
        }
        let journal_hours = i64::from(self.options.journal_days) * 24;
        let kept_ms = self.believed_now_ms(writer) - journal_hours * HOUR_MS;
        Ok(kept_ms.min(held_ms).min(known_ms))
    }

    /// The time since when segments of the mirror of a node that follows stay, Unix milliseconds. A node without days
    /// that become final lets go of its own mirror alone.
    pub(crate) fn mirror_from_ms(&self, segments: &Segments) -> i64 {
        let known_ms = self.log_from_ms();
        if self.wants_room(segments) {
            return known_ms;
        }
        let held = self.held(&segments.list()[0], self.believed_ms());
        held.map_or(known_ms, |held| held.from_ms.min(known_ms))
    }

    /// Segments that were written before then, Unix milliseconds, are a journal, whose users have pseudonyms.
    pub(super) fn journal_until_ms(&self, writer: &Writer) -> i64 {
        match self.options.journal_days {
            0 => i64::MIN,
            _ => self.oldest_known_ms(writer).min(self.held_from_ms(writer)),
        }
    }

    /// The time since when segments stay for days that are to become final, Unix milliseconds.
    fn held_from_ms(&self, writer: &Writer) -> i64 {
        let held = writer.log.as_deref().and_then(|log| {
            let oldest = &log.segments().list()[0];
            self.held(oldest, self.believed_now_ms(writer))
        });
        held.map_or(i64::MAX, |held| held.from_ms)
    }

    /// The segments that stay at `now_ms` (Unix milliseconds) for the oldest day that is to become final: it is whole
    /// in the log, which begins with the segment `oldest`, and ended no longer ago than a day is awaited.
    pub(crate) fn held(&self, oldest: &SegmentInfo, now_ms: i64) -> Option<Held> {
        let held_ms = self.options.held_hours()? * HOUR_MS;
        let manifest = self.live.manifest();
        let since = Day::of((now_ms - held_ms).div_euclid(1_000));
        let first = manifest
            .intake
            .begun
            .map_or(since, |begun| begun.max(since));
        let end_ms = |day: &Day| day.next().start() * 1_000;
        let begins = (oldest.first_sequence, oldest.created_ms);
        let days = iter::successors(Some(first), |day| Some(day.next()));
        let mut ended = days.take_while(|day| end_ms(day) <= now_ms);
        let day = ended.find(|day| {
            let is_final = !manifest.archive.finals_of(*day).is_empty();
            !is_final && log_reaches_back(&manifest.intake, begins, *day)
        })?;
        let final_ms = i64::from(self.options.final_after_hours?) * HOUR_MS;
        Some(Held {
            from_ms: begins_ms(day),
            overdue_ms: end_ms(&day) + final_ms + OVERDUE_MS,
            until_ms: end_ms(&day) + held_ms,
        })
    }

    /// True when the log is near the limit of its size, or has segments that may go early and the disk is nearly full,
    /// so that old segments should go now.
    pub fn log_wants_room(&self) -> bool {
        let writer = self.writer();
        let log = writer.log.as_deref();
        log.is_some_and(|log| self.wants_room(log.segments()))
    }

    fn wants_room(&self, segments: &Segments) -> bool {
        let may_keep_more =
            self.options.journal_days > 0 || self.options.final_after_hours.is_some();
        segments.is_near_limit() || may_keep_more && segments.is_disk_nearly_full()
    }
}

/// The earliest time (Unix milliseconds) of a record of the day, unless the clock was ahead before.
fn begins_ms(day: Day) -> i64 {
    day.previous().start().saturating_mul(1_000)
}

/// True where all events of the day came after this time (Unix milliseconds), unless the clock was ahead before: they
/// can come from the beginning of the day before on.
pub(crate) fn is_after(at_ms: i64, day: Day) -> bool {
    at_ms <= begins_ms(day)
}

/// True where the log has the first event of the day; its oldest segment begins with the record `first`, and was begun
/// at `created_ms`, Unix milliseconds.
pub(crate) fn log_reaches_back(
    intake: &IntakeEntry,
    (first, created_ms): (u64, i64),
    day: Day,
) -> bool {
    first == 0 || is_after(created_ms, day) && !intake.left_log.contains(&day)
}
