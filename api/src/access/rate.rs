//! Rates: items a second for each key, wrong keys for each address.
//!
//! A bucket is one number, the time at which it is full again; taking moves it on. A request is
//! taken while the bucket is not empty and then pays for all its items, so a batch that is larger than a
//! second's worth passes, and the next one waits for as long as that takes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

const SECOND: u64 = 1_000_000_000;

/// A bucket that holds one second's worth of items.
#[derive(Debug)]
pub(super) struct Bucket {
    item_ns: u64,
    /// When it is full again, nanoseconds of the caller's clock.
    full_at: AtomicU64,
}

impl Bucket {
    /// A full bucket for `limit` items a second.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            item_ns: SECOND / u64::from(limit.max(1)),
            full_at: AtomicU64::new(0),
        }
    }

    /// Takes one item, or says how long until there is one.
    pub(super) fn take(&self, now: Duration) -> Result<(), Duration> {
        let now = nanoseconds(now);
        let taken = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                let next = full_at.max(now).saturating_add(self.item_ns);
                (next <= now + SECOND).then_some(next)
            });
        taken.map(|_| ()).map_err(|full_at| {
            Duration::from_nanos(full_at.saturating_add(self.item_ns) - SECOND - now)
        })
    }

    /// Pays for items that were accepted already, whether there is room or not.
    pub(super) fn pay(&self, items: u64, now: Duration) {
        let cost = self.item_ns.saturating_mul(items);
        let now = nanoseconds(now);
        let _ = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                Some(full_at.max(now).saturating_add(cost))
            });
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 2 * SECOND)
}

/// Wrong keys of each address. A right key is never refused for them.
#[derive(Debug)]
pub(super) struct WrongKeys {
    per_second: u32,
    peers: Mutex<HashMap<IpAddr, Bucket>>,
}

/// Addresses remembered; beyond it those with a full bucket are forgotten, then all.
const PEERS_MAX: usize = 10_000;

impl WrongKeys {
    /// Allows so many wrong keys a second from one address.
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            per_second,
            peers: Mutex::default(),
        }
    }

    /// Notes a wrong key. The error is how long the address should wait, when there were too many.
    pub(super) fn note(&self, peer: IpAddr, now: Duration) -> Result<(), Duration> {
        let mut peers = self.peers.lock();
        if peers.len() >= PEERS_MAX {
            let now = nanoseconds(now);
            peers.retain(|_, bucket| bucket.full_at.load(Ordering::Relaxed) > now);
            if peers.len() >= PEERS_MAX {
                peers.clear();
            }
        }
        peers
            .entry(network(peer))
            .or_insert_with(|| Bucket::new(self.per_second))
            .take(now)
    }
}

/// One subscriber has a whole /64 of IPv6.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => mapped.into(),
            None => {
                let bits = u128::from(address) >> 64 << 64;
                IpAddr::V6(bits.into())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(5);

    #[test]
    fn a_second_holds_the_limit_and_not_one_more() {
        let bucket = Bucket::new(10);
        for _ in 0..10 {
            assert_eq!(bucket.take(START), Ok(()));
        }
        assert_eq!(bucket.take(START), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take(START + Duration::from_millis(100)), Ok(()));
        assert!(bucket.take(START + Duration::from_millis(100)).is_err());
        let later = START + Duration::from_secs(60);
        assert_eq!((0..20).filter(|_| bucket.take(later).is_ok()).count(), 10);
    }

    #[test]
    fn a_large_batch_passes_and_is_paid_for_afterwards() {
        let bucket = Bucket::new(10);
        assert_eq!(bucket.take(START), Ok(()));
        bucket.pay(99, START);
        assert_eq!(bucket.take(START), Err(Duration::from_millis(9_100)));
        assert!(bucket.take(START + Duration::from_secs(9)).is_err());
        assert_eq!(bucket.take(START + Duration::from_millis(9_100)), Ok(()));
    }

    #[test]
    fn wrong_keys_are_counted_by_network() {
        let wrong = WrongKeys::new(2);
        let first: IpAddr = "2001:db8::1".parse().unwrap();
        let same: IpAddr = "2001:db8::2".parse().unwrap();
        let other: IpAddr = "2001:db8:0:1::1".parse().unwrap();
        assert!(wrong.note(first, START).is_ok());
        assert!(wrong.note(same, START).is_ok());
        assert!(wrong.note(first, START).is_err());
        assert!(wrong.note(other, START).is_ok());
    }

    #[test]
    fn memory_of_addresses_is_bounded() {
        let wrong = WrongKeys::new(2);
        for number in 0..(2 * PEERS_MAX as u32) {
            let _ = wrong.note(IpAddr::V4(number.into()), START);
        }
        assert!(wrong.peers.lock().len() <= PEERS_MAX);
    }
}
