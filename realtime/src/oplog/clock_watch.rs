//! Whether the clock is plausible, as a log knows it.

/// Largest distance of a plausible time from the last plausible time, milliseconds.
const PLAUSIBLE_WITHIN_MS: u64 = 86_400_000;

/// The last plausible time of the clock, Unix milliseconds; none before the clock was looked at.
#[derive(Debug, Clone, Copy)]
pub struct ClockWatch(Option<i64>);

impl ClockWatch {
    pub(super) fn new(last_ms: Option<i64>) -> Self {
        Self(last_ms)
    }

    /// Whether the clock is plausible at `now_ms`: within a day of its last plausible time.
    pub fn is_plausible(&self, now_ms: i64) -> bool {
        self.0
            .is_none_or(|last_ms| now_ms.abs_diff(last_ms) <= PLAUSIBLE_WITHIN_MS)
    }

    /// As [`Self::is_plausible`], and notes a plausible time: an idle log is no reason to doubt a clock that goes on.
    pub fn see(&mut self, now_ms: i64) -> bool {
        let is_plausible = self.is_plausible(now_ms);
        if is_plausible {
            self.believe(now_ms);
        }
        is_plausible
    }

    /// Takes `now_ms` for plausible, whatever the log says.
    pub fn believe(&mut self, now_ms: i64) {
        self.0 = Some(now_ms);
    }

    /// The last plausible time, Unix milliseconds.
    pub fn last_ms(&self) -> Option<i64> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_doubted_more_than_a_day_from_its_last_plausible_time_until_it_is_believed() {
        const DAY_MS: i64 = 86_400_000;
        let mut clock = ClockWatch::new(None);
        assert!(clock.see(1_000 * DAY_MS), "nothing is known of it yet");
        assert!(!clock.see(1_001 * DAY_MS + 1) && !clock.see(999 * DAY_MS - 1));
        assert_eq!(clock.last_ms(), Some(1_000 * DAY_MS));
        assert!(clock.is_plausible(1_001 * DAY_MS), "asking notes nothing");
        assert!(!clock.is_plausible(1_002 * DAY_MS));
        assert!(clock.see(1_001 * DAY_MS) && clock.see(1_002 * DAY_MS));
        clock.believe(0);
        assert!(clock.see(DAY_MS) && !clock.see(1_002 * DAY_MS));
        let mut extreme = ClockWatch::new(Some(i64::MIN));
        assert!(!extreme.see(i64::MAX));
    }
}
