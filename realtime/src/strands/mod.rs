//! The strands of a store: one, or several whole stores, each with a log of its own, that answer as one.
//!
//! An increment is in one strand alone, that of its id (`split.rs`), so each log knows its ids by itself. A batch goes
//! to all strands of its increments (`submission.rs`). A read is of a view over all strands, whose counts add up. Each
//! strand is a part of the view as it is at a moment of its own, so increments that came together in several strands
//! may be seen one after the other. One strand alone costs what its store costs.
//!
//! Invariant: every question about counts, people and times is asked of all strands. A question to one store is about
//! something that only that store knows.

mod split;
mod submission;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tallyring_records::{Namespace, Offset, Position, UserKey, add_capped};

use crate::budget::{ReadBudget, Reading};
use crate::holds::{ReservationId, strand_of_user};
use crate::intake::{Batch, Part};
use crate::service::Service;
use crate::store::{ClosedReader, Store};
use crate::view::{RECENT_SECONDS_MAX, Seconds, View};

use split::{BatchPart, Split};

pub use submission::Submission;

/// All strands of a store on this node, in their order, each with its threads.
///
/// A store that is not divided is one strand, so a [`Service`] becomes [`Strands`] by `into`.
pub struct Strands {
    services: Vec<Arc<Service>>,
    stores: Arc<Stores>,
    /// Where the last increments went that are bound to no strand.
    home: AtomicUsize,
}

/// The stores of all strands, in their order, without their threads.
pub struct Stores(Vec<Arc<Store>>);

impl Strands {
    /// The strands of a store, which share one key of hashes.
    ///
    /// # Panics
    /// Without a strand.
    pub fn new(services: Vec<Arc<Service>>) -> Self {
        let stores = services.iter().map(|service| Arc::clone(service.store()));
        Self {
            stores: Arc::new(Stores::new(stores.collect())),
            services,
            home: AtomicUsize::new(0),
        }
    }

    /// All of them.
    pub fn services(&self) -> &[Arc<Service>] {
        &self.services
    }

    /// Their stores.
    pub fn stores(&self) -> &Arc<Stores> {
        &self.stores
    }

    /// A strand for increments that are bound to none: one that this node writes, where there is one, in turn.
    pub fn home(&self) -> usize {
        let count = self.services.len();
        let first = self.home.fetch_add(1, Ordering::Relaxed);
        let mut turns = (0..count).map(|turn| first.wrapping_add(turn) % count);
        let is_written = |at: &usize| self.services[*at].store().part() == Part::Writes;
        turns.find(is_written).unwrap_or(first % count)
    }
}

impl Stores {
    /// The stores of all strands, which share one key of hashes.
    ///
    /// # Panics
    /// Without a store.
    pub fn new(stores: Vec<Arc<Store>>) -> Self {
        assert!(!stores.is_empty(), "BUG: a store has a strand");
        Self(stores)
    }

    /// The store that has what is not divided: API keys, datasets, and the schema by which requests are read.
    pub fn first(&self) -> &Arc<Store> {
        &self.0[0]
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Store>] {
        &self.0
    }

    /// The budget of all running reads.
    pub fn read_budget(&self) -> &Arc<ReadBudget> {
        self.first().read_budget()
    }

    /// Takes a view of the newest counts, for a new request.
    pub fn view(&self) -> View<'_> {
        self.view_for(Reading::new(self.read_budget()))
    }

    /// Takes a view of the newest counts, for this request.
    pub fn view_for(&self, reading: Reading) -> View<'_> {
        View::over(self.0.iter().map(|store| store.live()), reading)
    }

    /// The strand that has, or would have, an id, the numbers of a producer, or what no id binds of a batch with a key.
    pub fn strand_of(&self, text: &str) -> usize {
        match self.0.len() {
            1 => 0,
            count => split::strand_of(self.first().live().keys(), text, count),
        }
    }

    /// Divides a batch among the strands. Increments that are bound to none go to `home`.
    fn split(&self, batch: Batch, home: usize) -> Split {
        let first = self.first();
        let declared = batch.declared.clone().unwrap_or_else(|| first.schema());
        let by = (&*declared, first.live().keys());
        Split::new(batch, by, (self.0.len(), home))
    }

    /// The strand that decides about the reservations of a user.
    pub fn strand_of_user(&self, user: &str) -> usize {
        strand_of_user(self.user_key(user), self.0.len())
    }

    /// The store of that strand.
    pub fn of_user(&self, user: &str) -> &Arc<Store> {
        &self.0[self.strand_of_user(user)]
    }

    /// The strand of a reservation.
    pub fn strand_of_hold(&self, id: ReservationId) -> usize {
        id.strand(self.0.len())
    }

    /// How far a view must have counted that the reservations of a user are decided by.
    pub fn needed_by(&self, user: &str) -> Position {
        let needed = self.of_user(user).holds().needed(self.user_key(user));
        let of_strand = |strand: usize| {
            let mut needed = needed.iter();
            let needed = needed.find(|until| until.strand as usize == strand);
            needed.map_or(Offset::default(), |until| until.before)
        };
        (0..self.0.len()).map(of_strand).collect()
    }

    fn user_key(&self, user: &str) -> UserKey {
        UserKey::of(self.first().live().keys(), user)
    }

    /// How far each strand is counted.
    pub fn position(&self) -> Position {
        self.0.iter().map(|store| store.live().applied()).collect()
    }

    /// A reader of the settled buckets of a namespace in a view of these strands. `now` is in Unix seconds.
    pub fn closed<'r>(
        &'r self,
        view: &'r View<'r>,
        namespace: &'r Namespace,
        now: i64,
    ) -> ClosedReader<'r> {
        let stores = self.0.iter().map(|store| &**store);
        ClosedReader::of(stores.collect(), view, namespace, now)
    }

    /// Sum of the increments that came in each of the last 60 whole seconds before `now` (Unix seconds), oldest first.
    /// Each increment counts once, whatever its keys.
    pub fn arrivals(&self, now: i64) -> [u64; RECENT_SECONDS_MAX] {
        let mut sums = [0; RECENT_SECONDS_MAX];
        for store in &self.0 {
            for (sum, more) in sums.iter_mut().zip(store.live().arrivals(now)) {
                add_capped(sum, more);
            }
        }
        sums
    }

    /// Counts of a key in the last `seconds` seconds up to `now` (Unix seconds), at most [`RECENT_SECONDS_MAX`]. The
    /// namespace keeps minutes.
    pub fn last_seconds(&self, namespace: &str, key: &str, seconds: usize, now: i64) -> Seconds {
        let of_strands = self.0.iter();
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

impl From<Arc<Service>> for Strands {
    fn from(service: Arc<Service>) -> Self {
        Self::new(vec![service])
    }
}

impl From<Service> for Strands {
    fn from(service: Service) -> Self {
        Arc::new(service).into()
    }
}
