//! How much of breakdowns all reads together hold at a time: what one asks for is bounded by nothing else, as a key may
//! have any number of values in every hour.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts of values, 24 bytes each.
pub const POINTS_MAX: usize = 40_000_000;

/// What all reads hold.
#[derive(Debug, Default)]
pub(super) struct Room(Arc<AtomicUsize>);

/// What one series holds, given back with it.
#[derive(Debug, Default)]
pub(super) struct Held {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Room {
    /// Nothing yet.
    pub fn hold(&self) -> Held {
        Held {
            all: Arc::clone(&self.0),
            own: 0,
        }
    }
}

impl Held {
    /// Holds this many more, if there is room for them.
    pub fn grow(&mut self, points: usize) -> bool {
        let before = self.all.fetch_add(points, Ordering::Relaxed);
        self.own += points;
        before.saturating_add(points) <= POINTS_MAX
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_gives_back_another_may_hold() {
        let room = Room::default();
        let (mut one, mut other) = (room.hold(), room.hold());
        assert!(one.grow(POINTS_MAX - 1) && other.grow(1));
        assert!(!other.grow(1));
        drop(one);
        assert!(other.grow(1));
    }
}
