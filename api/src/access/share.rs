//! The share of one client in the places of all: of reads, of batches, of streams, and of the memory of reservations.
//!
//! A client is known by its key, and without keys by its address. One key has half of the places. One address has all
//! but an eighth: without keys a server listens on loopback, where one client may be the only one, and where a proxy
//! speaks for many. So an address leaves some places to others, and hardly misses them. Readers of links are strangers:
//! all links together are one client, with half of the places, so that keys have the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tallyring_realtime::Holds;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::denial::Denial;
use super::limits::AccessLimits;
use super::rate::network;

/// How long a client should wait for its own requests to end.
const WAIT: Duration = Duration::from_secs(1);

/// The places of one client.
#[derive(Debug, Clone)]
pub(super) struct Share {
    reads: Arc<Semaphore>,
    batches: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Bytes.
    reservations: Arc<Semaphore>,
    kind: &'static Kind,
}

/// A kind of client: limits that were reached, as clauses, and what a read does that finds its places taken.
#[derive(Debug)]
struct Kind {
    reads_wait: bool,
    reads: &'static str,
    batches: &'static str,
    streams: &'static str,
    reservations: &'static str,
}

const OF_KEY: Kind = Kind {
    reads_wait: false,
    reads: "This key has as many reads on their way as one key may have",
    batches: "This key has as many batches on their way as one key may have",
    streams: "This key has as many streams open as one key may have",
    reservations: "The reservations of this key take as much memory as those of one key may",
};
const OF_ADDRESS: Kind = Kind {
    reads_wait: true,
    reads: "This address has as many reads on their way as one address may have",
    batches: "This address has as many batches on their way as one address may have",
    streams: "This address has as many streams open as one address may have",
    reservations: "The reservations of this address take as much memory as those of one address may",
};
/// A link opens reads alone.
const OF_LINKS: Kind = Kind {
    reads_wait: true,
    reads: "Links that share counts have as many reads on their way as all of them may have",
    ..OF_KEY
};

impl Share {
    /// A key's: half of these.
    pub(super) fn of_key(limits: &AccessLimits) -> Self {
        Self::new(limits, |places| places.div_ceil(2), &OF_KEY)
    }

    /// All links have half of these together.
    pub(super) fn of_links(limits: &AccessLimits) -> Self {
        Self::new(limits, |places| places.div_ceil(2), &OF_LINKS)
    }

    /// An address's: all of these but an eighth, and at least one.
    fn of_address(limits: &AccessLimits) -> Self {
        let part = |places: usize| (places - places.div_ceil(8)).max(1);
        Self::new(limits, part, &OF_ADDRESS)
    }

    fn new(limits: &AccessLimits, part: fn(usize) -> usize, kind: &'static Kind) -> Self {
        let places = |places: usize| Arc::new(Semaphore::new(part(places)));
        Self {
            reads: places(limits.queries),
            batches: places(limits.batches),
            streams: places(limits.streams),
            reservations: places(Holds::BYTES_MAX),
            kind,
        }
    }

    /// A place for a read. Fails with 429 where the client's other reads have them all.
    pub(super) fn read(&self) -> Result<OwnedSemaphorePermit, Denial> {
        take(&self.reads, self.kind.reads)
    }

    /// True where a read waits for a place.
    pub(super) fn reads_wait(&self) -> bool {
        self.kind.reads_wait
    }

    /// The places for reads, for a read that may wait for one.
    pub(super) fn reads(&self) -> Arc<Semaphore> {
        Arc::clone(&self.reads)
    }

    /// A place for a batch. Fails with 429 where the client's other batches have them all.
    pub(super) fn batch(&self) -> Result<OwnedSemaphorePermit, Denial> {
        take(&self.batches, self.kind.batches)
    }

    /// A place for a stream. Fails with 429 where the client's other streams have them all.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Denial> {
        take(&self.streams, self.kind.streams)
    }

    /// The bytes that the reservations of the client may take, and the refusal for more.
    pub(super) fn reservations(&self) -> (Arc<Semaphore>, Denial) {
        let what = self.kind.reservations;
        (
            Arc::clone(&self.reservations),
            Denial::TooMany { what, wait: WAIT },
        )
    }

    /// True while something has one of the places, or waits for it.
    fn is_used(&self) -> bool {
        let all = [
            &self.reads,
            &self.batches,
            &self.streams,
            &self.reservations,
        ];
        all.iter().any(|places| Arc::strong_count(places) > 1)
    }
}

/// The shares of addresses. Shares that are not used are forgotten once there are many.
#[derive(Debug, Default)]
pub(super) struct AddressShares(Mutex<HashMap<IpAddr, Share>>);

/// Addresses that are remembered, at most, beside those that have a place.
const ADDRESSES_MAX: usize = 1_000;

impl AddressShares {
    /// The share of this address in these places.
    pub(super) fn of(&self, address: IpAddr, limits: &AccessLimits) -> Share {
        let mut shares = self.0.lock();
        let address = network(address);
        if shares.len() >= ADDRESSES_MAX && !shares.contains_key(&address) {
            shares.retain(|_, share| share.is_used());
        }
        let share = shares.entry(address);
        share.or_insert_with(|| Share::of_address(limits)).clone()
    }
}

fn take(places: &Arc<Semaphore>, what: &'static str) -> Result<OwnedSemaphorePermit, Denial> {
    let place = Arc::clone(places).try_acquire_owned();
    place.map_err(|_| Denial::TooMany { what, wait: WAIT })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_place_are_forgotten_and_others_keep_their_share() {
        let limits = AccessLimits {
            batches: 2,
            ..AccessLimits::default()
        };
        let shares = AddressShares::default();
        let address = |number: u32| IpAddr::V4(number.into());
        let held = shares.of(address(0), &limits).batch();
        assert!(held.is_ok());
        for number in 1..3 * ADDRESSES_MAX as u32 {
            assert!(shares.of(address(number), &limits).batch().is_ok());
        }
        assert!(shares.0.lock().len() <= ADDRESSES_MAX);
        assert!(shares.of(address(0), &limits).batch().is_err());
        drop(held);
        assert!(shares.of(address(0), &limits).batch().is_ok());
    }

    #[test]
    fn one_place_can_be_taken_by_any_address() {
        let limits = AccessLimits {
            queries: 1,
            batches: 1,
            streams: 1,
            ..AccessLimits::default()
        };
        let share = Share::of_address(&limits);
        assert!(share.read().is_ok() && share.batch().is_ok() && share.stream().is_ok());
    }
}
