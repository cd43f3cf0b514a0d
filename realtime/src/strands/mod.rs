//! The strands of a store: several whole stores, each with a log of its own, that answer as one.
//!
//! An increment is in one strand alone. A read is of a view over all strands, whose counts add up. Each strand is a
//! part of the view as it is at a moment of its own, so increments that came together in several strands may be seen
//! one after the other. One strand alone costs what its store costs.
//!
//! Invariant: every question about counts, people and times is asked of all strands. One store alone is asked what only
//! that store knows.

use std::sync::Arc;

use tallyring_records::{Namespace, add_capped};

use crate::budget::{ReadBudget, Reading};
use crate::service::Service;
use crate::store::{ClosedReader, Store};
use crate::view::{RECENT_SECONDS_MAX, Seconds, View};

/// The services of all strands of a store, in their order.
pub struct Strands(Vec<Arc<Service>>);

impl Strands {
    /// The strands of a store, which share one key of hashes.
    ///
    /// # Panics
    /// Without a strand.
    pub fn new(services: Vec<Arc<Service>>) -> Self {
        assert!(!services.is_empty(), "BUG: a store has a strand");
        Self(services)
    }

    /// The first strand. It has the API keys and the datasets.
    pub fn first(&self) -> &Arc<Service> {
        &self.0[0]
    }

    /// All strands, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.0.iter()
    }

    /// A strand by its number.
    pub fn get(&self, strand: usize) -> Option<&Arc<Service>> {
        self.0.get(strand)
    }

    /// Number of strands, at least 1.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn stores(&self) -> impl Iterator<Item = &Store> {
        self.iter().map(|service| &**service.store())
    }

    /// The budget of all running reads.
    pub fn read_budget(&self) -> &Arc<ReadBudget> {
        self.first().store().read_budget()
    }

    /// Takes a view of the newest counts, for a new request.
    pub fn view(&self) -> View<'_> {
        self.view_for(Reading::new(self.read_budget()))
    }

    /// Takes a view of the newest counts, for this request.
    pub fn view_for(&self, reading: Reading) -> View<'_> {
        View::over(self.stores().map(Store::live), reading)
    }

    /// A reader of the settled buckets of a namespace in a view of these strands. `now` is in Unix seconds.
    pub fn closed<'r>(
        &'r self,
        view: &'r View<'r>,
        namespace: &'r Namespace,
        now: i64,
    ) -> ClosedReader<'r> {
        ClosedReader::of(self.stores().collect(), view, namespace, now)
    }

    /// Sum of the increments that came in each of the last 60 whole seconds before `now` (Unix seconds), oldest first.
    /// Each increment counts once, whatever its keys.
    pub fn arrivals(&self, now: i64) -> [u64; RECENT_SECONDS_MAX] {
        let mut sums = [0; RECENT_SECONDS_MAX];
        for store in self.stores() {
            for (sum, more) in sums.iter_mut().zip(store.live().arrivals(now)) {
                add_capped(sum, more);
            }
        }
        sums
    }

    /// Counts of a key in the last `seconds` seconds up to `now` (Unix seconds), at most [`RECENT_SECONDS_MAX`]. The
    /// namespace keeps minutes.
    pub fn last_seconds(&self, namespace: &str, key: &str, seconds: usize, now: i64) -> Seconds {
        let of_strands = self.stores();
        let of_strands =
            of_strands.map(|store| store.live().last_seconds(namespace, key, seconds, now));
        let add = |mut sum: Seconds, more: Seconds| {
            for (sum, more) in sum.counts.iter_mut().zip(more.counts) {
                add_capped(sum, more);
            }
            sum.complete &= more.complete;
            sum
        };
        of_strands.reduce(add).expect("BUG: a store has a strand")
    }
}
