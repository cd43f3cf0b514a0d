//! Lines of the log that come once a minute at most, however often their cause does.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The least time between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// The state of one such line: when it was last written, and how many causes came since.
pub struct Seldom(Mutex<State>);

struct State {
    written: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// A line that was not written yet.
    pub const fn untold() -> Self {
        Self(Mutex::new(State {
            written: None,
            untold: 0,
        }))
    }

    /// Notes one more cause. Returns the number of causes that the line has to tell, if it is due.
    pub fn due(&self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.untold = state.untold.saturating_add(1);
        let is_due = state
            .written
            .is_none_or(|written| now.saturating_duration_since(written) >= PAUSE);
        if !is_due {
            return None;
        }
        state.written = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_at_once_and_then_once_a_minute_with_what_it_did_not_tell() {
        let (line, began) = (Seldom::untold(), Instant::now());
        let told = |seconds| line.due_at(began + Duration::from_secs(seconds));
        assert_eq!(told(0), Some(1));
        for seconds in [0, 1, 59] {
            assert_eq!(told(seconds), None);
        }
        assert_eq!(told(60), Some(4));
        assert_eq!(told(119), None);
        assert_eq!(told(600), Some(2));
    }
}
