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

    /// A place, at once or after a short wait, and one of the client's own, where it has some. They can outlive the
    /// request: work that goes on holds them.
    pub(super) async fn enter(&self, own: Option<Arc<Semaphore>>) -> Option<Places> {
        if let Some(places) = self.enter_at_once(own.clone()) {
            return Some(places);
        }
        let _waiting = self.waiting.enter()?;
        let both = async {
            // Its own first: a read that waits for one holds none of the others'.
            let own = match own {
                Some(own) => Some(own.acquire_owned().await.ok()?),
                None => None,
            };
            let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
            Some((place, own))
        };
        tokio::time::timeout(self.wait, both).await.ok()?
    }

    fn enter_at_once(&self, own: Option<Arc<Semaphore>>) -> Option<Places> {
        let own = match own {
            Some(own) => Some(own.try_acquire_owned().ok()?),
            None => None,
        };
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some((place, own))
    }
}

/// A place of all clients, and one of the client's own.
type Places = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Requests that wait for each place, at most.
pub(super) const WAITING_PER_PLACE: usize = 4;

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
    async fn a_client_whose_own_places_are_taken_waits_and_holds_none_of_the_others() {
        let queue = Queue::new(2, Duration::from_millis(20));
        let one = Arc::new(Semaphore::new(1));
        let own = || Some(Arc::clone(&one));
        let held = queue.enter(own()).await;
        assert!(held.is_some() && queue.enter(own()).await.is_none());
        let other = Some(Arc::new(Semaphore::new(1)));
        assert!(queue.enter(other).await.is_some());
        drop(held);
        assert!(queue.enter(own()).await.is_some());
    }

    #[tokio::test]
    async fn a_queue_waits_a_moment_and_then_refuses() {
        let queue = Arc::new(Queue::new(1, Duration::from_millis(20)));
        let place = queue.enter(None).await.unwrap();
        assert!(queue.enter(None).await.is_none());
        let queue = Arc::new(Queue::new(1, Duration::from_secs(60)));
        let held = queue.enter(None).await.unwrap();
        let other = Arc::clone(&queue);
        let waiting = tokio::spawn(async move { other.enter(None).await.is_some() });
        tokio::task::yield_now().await;
        drop((place, held));
        assert!(waiting.await.unwrap());
    }
}
