//! Whether the clock can be right: what cannot be undone waits until it can.
//!
//! Ids, old log segments and old detail that are forgotten under a clock that is ahead are lost, and a ring that turns by
//! days takes its counts for old. So the clock is doubted when it is more than a day from where it was plausible last, as
//! the log's frames tell (`crate::oplog`), or the manifest where none that is read does. It is believed again once it has
//! come back, has gone for ten minutes as time did, or somebody said that it is right ([`crate::Options::trusts_clock`], a
//! clock whose jumps are meant). The system's word that its clock is synchronised would count only within a day, where it is not needed.
//! A doubted clock turns nothing, and time stands for whatever forgets; increments count all the same.

use tallyring_records::Day;

use super::{Intake, Writer};
use crate::error::Result;

/// For how long a doubted clock must go as time does before it is believed.
const BELIEVED_AFTER_MS: i64 = 600_000;

/// By how much it may go wrong meanwhile without having been set.
const DRIFT_MAX_MS: i64 = 10_000;

/// Since when the clock has gone as time does, without being plausible.
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
            log.believe_clock(now_ms);
        }
        if log.see_clock(now_ms) {
            writer.doubt = None;
            return Ok(true);
        }
        let begun = Doubt { now_ms, elapsed_ms };
        let doubt = writer.doubt.get_or_insert_with(|| {
            tracing::warn!(
                last_plausible_ms = log.plausible_ms(),
                now_ms,
                "the clock is more than a day from where it was: nothing is forgotten and the ring does not turn until it \
                 has gone evenly for ten minutes; if it is right, start with --trust-clock"
            );
            begun
        });
        let agreed_ms = elapsed_ms.saturating_sub(doubt.elapsed_ms);
        let went_ms = now_ms.saturating_sub(doubt.now_ms);
        if went_ms.abs_diff(agreed_ms) > DRIFT_MAX_MS.unsigned_abs() {
            // It was set.
            *doubt = begun;
            return Ok(false);
        }
        if agreed_ms < BELIEVED_AFTER_MS {
            return Ok(false);
        }
        tracing::warn!(
            now_ms,
            "the clock is believed: it has gone evenly for ten minutes"
        );
        log.believe_clock(now_ms);
        writer.doubt = None;
        Ok(true)
    }

    /// As [`Intake::believed_now_ms`], for other folders.
    pub(crate) fn believed_ms(&self) -> i64 {
        self.believed_now_ms(&self.writer())
    }

    /// Now, for whatever forgets: no later than the ring's today ends, and while the clock is doubted, than it was plausible
    /// last.
    pub(super) fn believed_now_ms(&self, writer: &Writer) -> i64 {
        let now_ms = self.world.clock.now_ms();
        let end_ms = self.live.snapshot().ring.today().next().start() * 1_000;
        let log = writer.log.as_ref();
        let last_ms = log
            .filter(|log| !log.is_plausible(now_ms))
            .and_then(|log| log.plausible_ms());
        now_ms.min(end_ms).min(last_ms.unwrap_or(now_ms))
    }

    /// When the clock was plausible last, if it is not at `now_ms` (Unix milliseconds both).
    pub(crate) fn plausible_before(&self, now_ms: i64) -> Option<i64> {
        let writer = self.writer();
        let log = writer.log.as_ref()?;
        match log.is_plausible(now_ms) {
            true => None,
            false => log.plausible_ms(),
        }
    }

    /// Days that the ring's today is later than the clock's.
    pub(crate) fn days_ahead(&self, today: Day) -> u32 {
        let day = Day::of(self.world.clock.now_ms().div_euclid(1_000));
        today.number().saturating_sub(day.number())
    }
}
