//! Access: keys, scopes, rates, load shedding, CORS.
//!
//! [`guard`] decides before every handler, in a layer of the router or called by [`App`](crate::App). One table decides
//! what a route needs ([`route::Route`]), and a route that is not in it needs a key with the scope `read`: a new route
//! is never open by mistake. Without any key the layer reads one pointer and one counter, and of a
//! read, a batch or a stream the places of its address.

mod caller;
mod cors;
mod denial;
mod gate;
mod guard;
mod hosts;
mod key;
pub(crate) mod keys;
mod limits;
mod logged;
mod new_key;
mod place;
mod rate;
mod route;
mod session;
mod share;
mod shared_link;
pub(crate) mod shares;
mod streams;
mod table;
mod turns;

pub use caller::Caller;
pub(crate) use caller::Peer;
pub(crate) use denial::Denial;
pub(crate) use guard::{SHED, SHED_CLASSES, admit, check, guard, run};
pub use limits::AccessLimits;
pub use new_key::{KeyRequest, issue, key_json};
pub(crate) use place::{behind, done_by, off_thread, threads_behind};
pub(crate) use rate::network;
pub(crate) use route::{Class, Dialect, Route};
pub(crate) use shared_link::{PARAMETER, SharedLink, presented as presented_shares};
pub(crate) use streams::StreamPlace;
pub(crate) use turns::Length;

pub(crate) use session::{begin, end, is_own_page};

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tallyring_realtime::Store;
use tallyring_realtime::catalog::{Catalog, CatalogError, KeyEntry};
use tallyring_records::{INSTALLATION, Text};
use tokio::sync::Notify;

use cors::Origins;
use gate::{Gate, Queue, WAITING_PER_PLACE};
use hosts::Hosts;
use key::NewKey;
use rate::WrongKeys;
use share::AddressShares;
use shared_link::SharedLinks;
use streams::Streams;
use table::KeyTable;
use turns::Turns;

/// The keys and the limits of one server.
pub struct Access {
    /// None while there never was a key: then everything is open, on loopback.
    table: ArcSwapOption<KeyTable>,
    shares: ArcSwap<SharedLinks>,
    catalog: Option<Catalogued>,
    limits: AccessLimits,
    increments: Gate,
    batches: Gate,
    queries: Queue,
    /// Reads that wait for a position.
    positions: Gate,
    /// Turns of reads.
    pub(crate) turns: Turns,
    pages: Gate,
    admin: Gate,
    streams: Streams,
    addresses: AddressShares,
    wrong_keys: WrongKeys,
    origins: Origins,
    hosts: Hosts,
    now: Box<dyn Fn() -> Duration + Send + Sync>,
}

/// Where keys are kept; writes go one after the other.
struct Catalogued {
    catalog: Arc<Catalog>,
    /// The store whose log has them; none until it is open.
    store: OnceLock<Arc<Store>>,
    writing: Mutex<()>,
    /// Told of each change of the store's keys.
    changed: Notify,
    local: NewKey,
    random: fn(&mut [u8]),
}

impl Access {
    /// No keys and no way to make any: for a command that asks files.
    pub fn open(limits: AccessLimits) -> Self {
        let start = Instant::now();
        Self {
            table: ArcSwapOption::empty(),
            shares: ArcSwap::from_pointee(SharedLinks::none(&limits)),
            catalog: None,
            increments: Gate::new(limits.writes),
            batches: Gate::new(limits.batches),
            queries: Queue::new(limits.queries, limits.query_wait),
            positions: Gate::new(limits.queries * WAITING_PER_PLACE),
            turns: Turns::new(),
            pages: Gate::new(limits.queries),
            admin: Gate::new(limits.admin),
            streams: Streams::new(limits.streams),
            addresses: AddressShares::default(),
            wrong_keys: WrongKeys::new(limits.wrong_keys_per_second),
            origins: Origins::default(),
            hosts: Hosts::default(),
            now: Box::new(move || start.elapsed()),
            limits,
        }
    }

    /// The keys of a catalog, until those of a store are known ([`Access::attach`]). Fails when they cannot be read:
    /// then nothing may be served.
    pub fn load(
        catalog: Arc<Catalog>,
        limits: AccessLimits,
        random: fn(&mut [u8]),
    ) -> Result<Self, CatalogError> {
        let mut access = Self::open(limits);
        access.catalog = Some(Catalogued {
            catalog,
            store: OnceLock::new(),
            writing: Mutex::new(()),
            changed: Notify::new(),
            local: NewKey::local(random),
            random,
        });
        access.reload()?;
        Ok(access)
    }

    /// Lets pages of these origins read, such as `https://stats.example`.
    pub fn with_origins(mut self, origins: &[String]) -> Self {
        self.origins = Origins::new(origins);
        self
    }

    /// Takes these names of this server, such as `stats.example`, in requests without a key.
    pub fn with_hosts(mut self, names: &[String]) -> Self {
        self.hosts = Hosts::new(names);
        self
    }

    /// Measures rates by another clock: the time since some start.
    pub fn with_clock(mut self, now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.now = Box::new(now);
        self
    }

    /// True once there ever was a key: from then on every request needs one.
    pub fn needs_keys(&self) -> bool {
        self.table.load().is_some()
    }

    /// The identity of ids that come without a key, as over StatsD: none while there are no keys.
    pub fn identity_without_key(&self) -> Option<Text> {
        self.needs_keys().then(|| INSTALLATION.into())
    }

    /// The identities that may have sent something: those of all keys that could ever write, and that of what comes
    /// without a key. None without keys.
    pub(crate) fn writing_identities(&self) -> Vec<Text> {
        let table = self.table.load();
        let identities = table.iter().flat_map(|table| &table.writing_identities);
        identities.cloned().collect()
    }

    /// True while the caller's key is in force: streams outlive the moment at which their key was checked.
    pub fn is_in_force(&self, caller: &Caller) -> bool {
        match (self.table.load().as_ref(), caller.key()) {
            (None, _) => true,
            (Some(table), Some(key)) => table.holds(key),
            (Some(_), None) => false,
        }
    }

    /// Tells every stream to end.
    pub fn close_streams(&self) {
        self.streams.close();
    }

    /// The key with every scope that this server leaves for commands on its data directory.
    pub fn local_key(&self) -> Option<&str> {
        self.catalog.as_ref().map(|kept| kept.local.text.as_str())
    }

    fn now(&self) -> Duration {
        (self.now)()
    }

    /// Takes a change of the keys into effect for every request from here on.
    fn reload(&self) -> Result<(), CatalogError> {
        let Some(kept) = &self.catalog else {
            return Ok(());
        };
        let entries = match kept.store.get() {
            Some(store) => store.intake().keys(),
            None => kept.catalog.keys()?,
        };
        let is_share = |entry: &KeyEntry| entry.shared.is_some();
        let (shares, entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_share);
        let links = self.shares.load().followed_by(shares);
        self.shares.store(Arc::new(links));
        // A store that has lost its keys leaves the local one, with which `tallyring key new` makes another.
        if !entries.is_empty() || kept.catalog.had_keys()? {
            let before = self.table.load_full();
            let table = KeyTable::new(entries, &kept.local, &self.limits, before.as_deref());
            self.table.store(Some(Arc::new(table)));
        }
        Ok(())
    }
}
