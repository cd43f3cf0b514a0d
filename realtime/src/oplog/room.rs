//! The limit of the log's size.

use super::error::{OplogError, Result};
use super::forecast::{Held, LogForecast, Room, forecast};
use super::frame::frame_bytes;
use super::segment::SEGMENT_HEADER_BYTES;
use super::segments::Segments;

/// Distance from the limit at which old segments should go, segments.
const NEAR_SEGMENTS: u64 = 4;

impl Segments {
    /// Fails with [`OplogError::Limit`] where a frame of so many bytes of payload would leave the log less than one
    /// segment below its limit. That segment is for records that the store appends by itself: an append may use
    /// it.
    pub fn check_room(&self, payload_bytes: usize) -> Result<()> {
        self.check_limit(payload_bytes, self.options.segment_bytes)
    }

    /// True when the log is within some segments of its limit.
    pub fn is_near_limit(&self) -> bool {
        self.bytes().saturating_add(self.near_bytes()) > self.options.bytes_max
    }

    /// True when the disk has no more room than for some segments.
    pub fn is_disk_nearly_full(&self) -> bool {
        let near = self.near_bytes();
        self.disk.free_bytes().is_ok_and(|free| free < near)
    }

    fn near_bytes(&self) -> u64 {
        self.options.segment_bytes.saturating_mul(NEAR_SEGMENTS)
    }

    /// The growth of the log and the time until it has no more room, at `now_ms` (Unix milliseconds), where segments
    /// are kept for `keep_days`, some are `held` longer, and the disk has `free_bytes`.
    pub fn forecast(
        &self,
        (now_ms, keep_days): (i64, u32),
        held: Option<Held>,
        free_bytes: Option<u64>,
    ) -> LogForecast {
        let bytes_max = self.options.bytes_max;
        // Writes are refused where the next segment, the one that is made ahead and the reserve do not fit.
        let kept_free = self.options.segment_bytes.saturating_mul(3);
        let below = |kept_free| (bytes_max < u64::MAX).then(|| bytes_max.saturating_sub(kept_free));
        let room = Room {
            now_ms,
            keep_days,
            held,
            bytes_max: below(kept_free),
            near_max: below(self.near_bytes()),
            free_bytes,
            near_free: free_bytes.map(|free| free.saturating_sub(self.near_bytes())),
            newest_bytes: self.end(),
        };
        forecast(self.list(), room)
    }

    /// Checks that a frame fits below the limit of the log, beside the segment that is made ahead and `reserve` bytes.
    pub(super) fn check_limit(&self, payload_bytes: usize, reserve: u64) -> Result<()> {
        let (info, frame) = (self.newest(), frame_bytes(payload_bytes) as u64);
        let end = self.end() + frame;
        let segment = self.options.segment_bytes;
        let has_record = info.end_sequence > info.first_sequence;
        let grows = match (end.saturating_sub(info.bytes), has_record) {
            (0, _) if reserve == 0 => return Ok(()),
            (0, _) => 0,
            (_, true) => segment.max(SEGMENT_HEADER_BYTES as u64 + frame),
            (behind, false) => behind,
        };
        self.check_growth(grows, reserve)
    }

    /// Checks that the log may grow by so many bytes, beside the segment that is made ahead and `reserve` bytes.
    pub(super) fn check_growth(&self, grows: u64, reserve: u64) -> Result<()> {
        let bytes_max = self.options.bytes_max;
        if bytes_max == u64::MAX {
            return Ok(());
        }
        let bytes = self.bytes();
        let parts = [grows, self.options.segment_bytes, reserve];
        match parts.into_iter().fold(bytes, u64::saturating_add) <= bytes_max {
            true => Ok(()),
            false => Err(OplogError::Limit { bytes, bytes_max }),
        }
    }
}
