//! How many connections each address has.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::access::network;

/// Connections of each address, at most so many. Loopback is not counted: a proxy lives there.
#[derive(Debug)]
pub(super) struct Addresses {
    connections_max: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address; forgotten when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    addresses: Arc<Addresses>,
    /// None when it is not counted.
    network: Option<IpAddr>,
}

impl Addresses {
    /// None has any yet.
    pub(super) fn new(connections_max: usize) -> Arc<Self> {
        Arc::new(Self {
            connections_max,
            open: Mutex::default(),
        })
    }

    /// Counts a connection, unless its address has too many.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Connection> {
        let counted = !peer.to_canonical().is_loopback();
        let network = counted.then(|| network(peer));
        if let Some(network) = network {
            let mut open = self.open.lock();
            let count = open.entry(network).or_default();
            if *count >= self.connections_max {
                return None;
            }
            *count += 1;
        }
        Some(Connection {
            addresses: Arc::clone(self),
            network,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(network) = self.network else {
            return;
        };
        let mut open = self.addresses.open.lock();
        if let Some(count) = open.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                open.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_is_then_forgotten() {
        let addresses = Addresses::new(2);
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        let connections = [addresses.enter(peer), addresses.enter(peer)];
        assert!(connections.iter().all(Option::is_some));
        assert!(addresses.enter(peer).is_none());
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(addresses.enter(mapped).is_none());
        assert!(addresses.enter("192.0.2.2".parse().unwrap()).is_some());
        drop(connections);
        assert!(addresses.open.lock().is_empty());
    }

    #[test]
    fn loopback_is_not_counted() {
        let addresses = Addresses::new(0);
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(addresses.enter(peer.parse().unwrap()).is_some(), "{peer}");
        }
        assert!(addresses.enter("192.0.2.1".parse().unwrap()).is_none());
    }
}
