//! The plausibility of the clock: nothing irreversible happens while the clock is doubted.
//!
//! A clock that is ahead would lose ids, old log segments and old detail that are forgotten too early, and a ring that
//! turns with it would take current counts for late ones. So the clock is doubted when it is more than a day from the
//! last plausible time, which the frames of the log hold (`crate::oplog`), or the manifest where no frame was read.
//!
//! The clock is believed again once it has come back, once it has gone evenly for ten minutes, or once somebody said
//! that it is right ([`crate::Options::trusts_clock`], or a clock whose jumps are intended). The system's flag that its
//! clock is synchronised is not used: it could only be trusted within a day, where it is not needed.
//!
//! Under a doubted clock the ring does not turn and nothing is forgotten; increments count all the same.

use tallyring_records::Day;

use super::{Intake, Writer};
use crate::error::Result;

/// Time for which a doubted clock must go evenly before it is believed, milliseconds.
const BELIEVED_AFTER_MS: i64 = 600_000;

/// Largest deviation in that time that does not mean that the clock was set, milliseconds.
const DRIFT_MAX_MS: i64 = 10_000;

/// The beginning of an even run of the clock that is not plausible yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    now_ms: i64,
    elapsed_ms: i64,
}

impl Intake {
    /// Whether the clock can be believed now.
    pub(super) fn is_clock_plausible(&self, writer: &mut Writer) -> Result<bool> {
        let clock = &*self.world.clock;
        let (now_ms, elapsed_ms) = (clock.now_ms(), clock.elapsed_ms());
        let log = writer.log.as_mut().ok_or(crate::error::Error::ReadOnly)?;
        if clock.jumps_are_meant() {
            log.clock_mut().believe(now_ms);
        }
        if log.clock_mut().see(now_ms) {
            writer.doubt = None;
            return Ok(true);
        }
        let begun = Doubt { now_ms, elapsed_ms };
        let doubt = writer.doubt.get_or_insert_with(|| {
            tracing::warn!(
                last_plausible_ms = log.clock().last_ms(),
                now_ms,
                "the clock is more than a day from its last plausible time: nothing is forgotten and the ring does not turn \
                 until the clock has gone evenly for ten minutes; if the clock is right, start with --trust-clock"
            );
            begun
        });
        let agreed_ms = elapsed_ms.saturating_sub(doubt.elapsed_ms);
        let went_ms = now_ms.saturating_sub(doubt.now_ms);
        if went_ms.abs_diff(agreed_ms) > DRIFT_MAX_MS.unsigned_abs() {
            // The clock was set.
            *doubt = begun;
            return Ok(false);
        }
        if agreed_ms < BELIEVED_AFTER_MS {
            return Ok(false);
        }
        tracing::warn!(
            now_ms,
            "the clock is believed again: it has gone evenly for ten minutes"
        );
        log.clock_mut().believe(now_ms);
        writer.doubt = None;
        Ok(true)
    }

    /// [`Intake::believed_now_ms`], for other folders.
    pub(crate) fn believed_ms(&self) -> i64 {
        self.believed_now_ms(&self.writer())
    }

    /// The time by which things expire, Unix milliseconds: no later than the end of the ring's today, and while the
    /// clock is doubted, no later than its last plausible time.
    pub(super) fn believed_now_ms(&self, writer: &Writer) -> i64 {
        let now_ms = self.world.clock.now_ms();
        let end_ms = self.live.snapshot().ring.today().next().start() * 1_000;
        let log = writer.log.as_ref();
        let last_ms = log
            .filter(|log| !log.clock().is_plausible(now_ms))
            .and_then(|log| log.clock().last_ms());
        now_ms.min(end_ms).min(last_ms.unwrap_or(now_ms))
    }

    /// The last plausible time of the clock, unless `now_ms` is plausible (both Unix milliseconds).
    pub(crate) fn plausible_before(&self, now_ms: i64) -> Option<i64> {
        let writer = self.writer();
        let log = writer.log.as_ref()?;
        match log.clock().is_plausible(now_ms) {
            true => None,
            false => log.clock().last_ms(),
        }
    }

    /// Days by which the ring's today is ahead of the clock's day.
    pub(crate) fn days_ahead(&self, today: Day) -> u32 {
        let day = Day::of(self.world.clock.now_ms().div_euclid(1_000));
        today.number().saturating_sub(day.number())
    }
}
