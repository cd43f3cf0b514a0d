//! How much of each class of request runs at once; what comes beyond is told to come again.
//!
//! Classes do not share places, so heavy queries never starve increments. A batch takes its place once its body is
//! there, so slow bodies never starve others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for requests that are answered at once or not at all. No lock.
#[derive(Debug)]
pub(super) struct Gate {
    places: usize,
    taken: AtomicUsize,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a Gate);

impl Gate {
    /// A gate with so many places.
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            taken: AtomicUsize::new(0),
        }
    }

    /// A place, if one is free.
    pub(super) fn enter(&self) -> Option<Place<'_>> {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        // Made before the check, so that a refused request gives back what it counted.
        let place = Place(self);
        (before < self.places).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Places for requests that may wait a moment: a bounded queue, for a bounded time.
#[derive(Debug)]
pub(super) struct Queue {
    places: Arc<Semaphore>,
    waiting: Gate,
    wait: Duration,
}

impl Queue {
    /// `places` at once; four times as many wait, for at most `wait`.
    pub(super) fn new(places: usize, wait: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            waiting: Gate::new(places * WAITING_PER_PLACE),
            wait,
        }
    }

    /// A place, at once or after a short wait. It can outlive the request: work that goes on holds it.
    pub(super) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        let _waiting = self.waiting.enter()?;
        let place = Arc::clone(&self.places).acquire_owned();
        tokio::time::timeout(self.wait, place).await.ok()?.ok()
    }
}

const WAITING_PER_PLACE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_gives_no_more_places_than_it_has_and_takes_them_back() {
        let gate = Gate::new(2);
        let (first, second) = (gate.enter(), gate.enter());
        assert!(first.is_some() && second.is_some());
        for _ in 0..3 {
            assert!(gate.enter().is_none());
        }
        drop(first);
        assert!(gate.enter().is_some());
    }

    #[tokio::test]
    async fn a_queue_waits_a_moment_and_then_refuses() {
        let queue = Arc::new(Queue::new(1, Duration::from_millis(20)));
        let place = queue.enter().await.unwrap();
        assert!(queue.enter().await.is_none());
        let queue = Arc::new(Queue::new(1, Duration::from_secs(60)));
        let held = queue.enter().await.unwrap();
        let other = Arc::clone(&queue);
        let waiting = tokio::spawn(async move { other.enter().await.is_some() });
        tokio::task::yield_now().await;
        drop((place, held));
        assert!(waiting.await.unwrap());
    }
}
