//! When the thread that commits lets others finish first.
//!
//! While groups are small it interrupts whoever runs when its sync is done, and answers come soon. When many batches come in
//! the time of one sync, the threads that answer have enough to do: one that was interrupted would stand behind the thread
//! that commits while the other processor waits for work. Then it lets them finish first, and more is counted. To do so
//! always would double the tails at half the rate.
//!
//! The system then lets any thread finish first, even one of a low priority that computes for milliseconds, such as a
//! rebuild's. Where groups take much longer for it, the thread that commits interrupts others again, and tries only a second
//! later whether they have gone.

use std::time::{Duration, Instant};

use crate::options::Durability;
use crate::priority;

/// Groups whose batches count for the average, about.
const GROUPS: usize = 8;
/// Groups whose times count for the average, about: so many that a processor that is away for some milliseconds, once, does
/// not make them take long.
const TIMED_GROUPS: u32 = 32;
/// Batches of a group, on average, from which on it gives way. Without, 64 connections that count as fast as they can come
/// to 18; at half that rate groups are of 6 to 12.
const LARGE_GROUP: usize = 16;
/// Groups that take so many times as long as without giving way have waited for a thread that computes.
const PATIENCE: u32 = 3;
/// From then until it gives way again.
const RETRY: Duration = Duration::from_secs(1);

/// Of the thread that commits.
pub struct Courtesy {
    /// Batches of a group, on average, times [`GROUPS`].
    sum: usize,
    /// How long a group takes, on average, where it interrupts others.
    usual: Duration,
    /// The same since it gives way.
    given: Duration,
    gives_way: bool,
    not_before: Option<Instant>,
    may: bool,
}

impl Courtesy {
    /// Of the calling thread, which commits so: who does not wait for syncs has no reason to give way. Nor does it where an
    /// operator has chosen otherwise for the whole process.
    pub fn new(durability: Durability) -> Self {
        Self {
            sum: 0,
            usual: Duration::ZERO,
            given: Duration::ZERO,
            gives_way: false,
            not_before: None,
            may: durability == Durability::Fsync && priority::interrupts_others(),
        }
    }

    /// After the thread has committed a group of so many batches, begun then.
    pub fn note_group(&mut self, batches: usize, began: Instant) {
        if !self.may {
            return;
        }
        let now = Instant::now();
        if let Some(gives_way) = self.changed(batches, now - began, now) {
            priority::interrupt_others(!gives_way);
        }
    }

    /// Whether it gives way from here on, if that is not as before.
    fn changed(&mut self, batches: usize, took: Duration, now: Instant) -> Option<bool> {
        self.sum = self.sum - self.sum / GROUPS + batches;
        let average = if self.gives_way {
            &mut self.given
        } else {
            &mut self.usual
        };
        *average = if average.is_zero() {
            took
        } else {
            *average - *average / TIMED_GROUPS + took / TIMED_GROUPS
        };
        if self.gives_way && self.given > self.usual * PATIENCE {
            self.not_before = Some(now + RETRY);
        }
        let gives_way = self.sum >= LARGE_GROUP * GROUPS
            && self.not_before.is_none_or(|not_before| now >= not_before);
        if gives_way == self.gives_way {
            return None;
        }
        (self.gives_way, self.given) = (gives_way, self.usual);
        Some(gives_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(300);

    /// What changes while so many groups of so many batches come, each of which takes so long.
    fn changes(
        courtesy: &mut Courtesy,
        now: &mut Instant,
        groups: usize,
        (batches, took): (usize, Duration),
    ) -> Vec<bool> {
        let each = (0..groups).filter_map(|_| {
            *now += took;
            courtesy.changed(batches, took, *now)
        });
        each.collect()
    }

    #[test]
    fn it_gives_way_while_groups_are_large() {
        let (mut courtesy, mut now) = (Courtesy::new(Durability::Fsync), Instant::now());
        let mut changes =
            |groups, batches| changes(&mut courtesy, &mut now, groups, (batches, SOON));
        assert!(changes(1_000, LARGE_GROUP - 1).is_empty());
        assert_eq!(changes(100, LARGE_GROUP), [true]);
        assert_eq!(changes(100, LARGE_GROUP - 1), [false]);
        assert_eq!(changes(1, usize::MAX / 2), [true]);
    }

    #[test]
    fn it_interrupts_others_for_a_second_after_one_kept_it_waiting() {
        let (mut courtesy, mut now) = (Courtesy::new(Durability::Fsync), Instant::now());
        let mut changes =
            |groups, of, took| changes(&mut courtesy, &mut now, groups, (of * LARGE_GROUP, took));
        assert!(changes(100, 0, SOON).is_empty());
        assert_eq!(changes(100, 2, SOON), [true]);
        assert!(changes(100, 2, SOON * (PATIENCE - 1)).is_empty());
        assert_eq!(changes(1, 2, SOON * 100), [false]);
        let groups_a_retry = (RETRY.as_nanos() / SOON.as_nanos()) as usize;
        assert!(changes(groups_a_retry, 2, SOON).is_empty());
        assert_eq!(changes(1, 2, SOON), [true]);
    }
}
