//! Clocks: the machine's own, and a virtual one for tests and replays.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Unix milliseconds.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some moment of this process. Nobody can set this time, so it tells whether [`Clock::now_ms`]
    /// goes evenly.
    fn elapsed_ms(&self) -> i64;

    /// True when a jump of more than a day is intended (a virtual clock). False when such a jump is more likely a
    /// mistake, which must not be believed at once.
    fn jumps_are_meant(&self) -> bool;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn elapsed_ms(&self) -> i64 {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        i64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn jumps_are_meant(&self) -> bool {
        false
    }
}

/// A clock for replays and tests. It begins at a given time at every start and runs at a given rate. Beats of nodes go
/// on beside one that stands still.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    start_ms: i64,
    rate: f64,
    began: Instant,
}

impl VirtualClock {
    /// Starts now, at `start_ms` (Unix milliseconds), with `rate` virtual seconds a second.
    pub fn new(start_ms: i64, rate: f64) -> Self {
        Self {
            start_ms,
            rate,
            began: Instant::now(),
        }
    }

    fn gone_ms(&self, rate: f64) -> i64 {
        // A conversion from float to integer saturates, so no rate can overflow.
        (self.began.elapsed().as_secs_f64() * 1_000.0 * rate) as i64
    }
}

impl Clock for VirtualClock {
    fn now_ms(&self) -> i64 {
        self.start_ms.saturating_add(self.gone_ms(self.rate))
    }

    fn elapsed_ms(&self) -> i64 {
        let stands = self.rate == 0.0;
        self.gone_ms(if stands { 1.0 } else { self.rate })
    }

    fn jumps_are_meant(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_beside_a_clock_that_stands() {
        let clock = VirtualClock::new(1_000, 0.0);
        while clock.elapsed_ms() == 0 {
            std::hint::spin_loop();
        }
        assert_eq!(clock.now_ms(), 1_000);
    }
}
