//! An object store that does not answer: its readers must not all wait for it.
//!
//! A request to an object store that is out of reach fails after many seconds. A reader that waits for that holds its
//! turn to read, which others need whose data is on the disk. So after such a request others fail at once for a while,
//! and then a single one tries for all.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request that fails before keeps nobody waiting.
const LATE: Duration = Duration::from_secs(1);
/// How long requests fail at once.
const PAUSE: Duration = Duration::from_secs(5);
/// How long the others wait for the one that tries, at most.
const TRY: Duration = Duration::from_secs(30);

/// Whether an object store answers.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// The time until which no request is sent; none while the object store answers.
    until: Mutex<Option<Instant>>,
}

impl Outage {
    /// Sends a request. Fails as that does, and at once soon after one that failed late.
    pub(crate) fn ask<T>(&self, request: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let asked = Instant::now();
        if !self.may_ask(asked) {
            let what =
                "the object store did not answer a moment ago, and is asked again within seconds";
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        let answer = request();
        let is_answered = match &answer {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        self.note(is_answered, (asked, Instant::now()));
        answer
    }

    fn may_ask(&self, now: Instant) -> bool {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        match *until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                *until = Some(now + TRY);
                true
            }
        }
    }

    fn note(&self, is_answered: bool, (asked, now): (Instant, Instant)) {
        let is_away = !is_answered && now.saturating_duration_since(asked) >= LATE;
        let until = is_away.then(|| now + PAUSE);
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_late_failure_one_request_tries_for_all() {
        let (outage, begin) = (Outage::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert!(outage.may_ask(at(0)) && outage.may_ask(at(0)));
        outage.note(false, (at(0), at(20)));
        assert!(!outage.may_ask(at(20)) && !outage.may_ask(at(24)));
        let refused = outage.ask(|| Ok(())).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(outage.may_ask(at(25)), "this one tries");
        assert!(!outage.may_ask(at(25)) && !outage.may_ask(at(45)));
        outage.note(false, (at(25), at(45)));
        assert!(!outage.may_ask(at(49)) && outage.may_ask(at(50)));
        outage.note(true, (at(50), at(51)));
        assert!(outage.may_ask(at(51)) && outage.may_ask(at(51)));
        // One that never comes back keeps the others waiting for a while only.
        outage.note(false, (at(51), at(60)));
        assert!(outage.may_ask(at(65)) && !outage.may_ask(at(94)) && outage.may_ask(at(95)));
    }

    #[test]
    fn a_request_that_fails_soon_and_an_object_that_is_gone_are_no_outage() {
        let (outage, begin) = (Outage::default(), Instant::now());
        outage.note(false, (begin, begin));
        assert!(outage.may_ask(begin));
        let gone = || Err::<(), _>(io::ErrorKind::NotFound.into());
        assert_eq!(
            outage.ask(gone).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(outage.may_ask(Instant::now()));
    }
}
