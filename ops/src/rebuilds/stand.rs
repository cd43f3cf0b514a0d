//! Nodes over one simulated object store, for tests of orders.

use std::sync::Arc;

use tallyring_archive::{Blobs, Build, Manifest};
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::oplog::{Owner, Topic};
use tallyring_realtime::{Batch, Clock, Follower, Options, Store, World};
use tallyring_rebuild::build;
use tallyring_rebuild::orders::{Claimed, Order, Placed};
use tallyring_records::{Increment, Schema};
use tallyring_tests::model::ManualClock;
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::sim_objects::SimObjects;
use tallyring_tests::sim_topic::SimTopic;
use tempfile::TempDir;

use super::Rebuilds;
use crate::config::Config;
use crate::data_directory::random;

/// 2012-03-16T18:00:00Z
const NOW: i64 = 1_331_920_800;

/// Version of the build of all nodes.
pub(super) const BUILD: [u32; 3] = [0, 1, 0];

/// The node that writes, with a click of yesterday in its store.
pub(super) struct Stand {
    pub objects: SimObjects,
    pub clock: Arc<ManualClock>,
    pub rebuilds: Arc<Rebuilds>,
    _catalog: TempDir,
}

impl Stand {
    pub(super) fn new() -> Self {
        let (objects, topic) = (SimObjects::default(), SimTopic::default());
        let clock = Arc::new(ManualClock::new(NOW * 1_000, true));
        let world = || World {
            disk: Arc::new(SimDisk::default()),
            objects: Some(Arc::new(objects.clone())),
            clock: clock.clone(),
            random,
        };
        let (options, schema) = (Options::for_memory(1 << 28), Schema::default_clicks());
        let log: &dyn Topic = &topic;
        Store::begin_shared(&world(), &options, (log, Owner(1)), &schema).unwrap();
        let follower = Follower::open(world(), options, Arc::new(topic.node(1))).unwrap();
        let Ok(store) = follower.take_over(Owner(2)) else {
            panic!("not taken over");
        };
        let batch = Batch {
            increments: vec![Increment::new(NOW - 86_400, 1, [("l", "abc")])],
            ..Batch::default()
        };
        store.intake().commit(vec![batch]).remove(0).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let catalog = Arc::new(Catalog::open(&directory.path().join("catalog")).unwrap());
        let config = (Config::load(None).unwrap().rebuild, None);
        Self {
            rebuilds: Rebuilds::new(store, catalog, directory.path(), config, Arc::default()),
            objects,
            clock,
            _catalog: directory,
        }
    }

    /// The epoch in which the node writes.
    pub(super) fn epoch(&self) -> u32 {
        self.rebuilds.store.intake().epoch().unwrap()
    }

    /// The blobs of another node.
    pub(super) fn other(&self) -> Blobs {
        let blobs = Blobs::over(Arc::new(SimDisk::default()), Arc::new(self.objects.clone()));
        blobs.prepare().unwrap();
        blobs
    }

    /// An order of another node for a manifest, which nobody has claimed.
    pub(super) fn place(&self, manifest: u64) -> Placed {
        let order = Order {
            build: BUILD,
            epoch: self.epoch(),
            manifest,
            options: self
                .rebuilds
                .config
                .build_options(self.rebuilds.store.options()),
        };
        Placed::place(&self.other(), &order, random, self.clock.elapsed_ms()).unwrap()
    }

    /// The objects of orders.
    pub(super) fn orders(&self) -> Vec<String> {
        let keys = self.objects.keys().into_iter();
        keys.filter(|key| key.starts_with("orders/")).collect()
    }
}

/// Claims the order that there is for node `c`.
pub(super) fn claim(blobs: &Blobs, epoch: u32) -> Claimed {
    claim_while(blobs, epoch, || false).expect("an order")
}

/// As [`claim`], or an order that comes while it `may_come`; none where it did not.
pub(super) fn claim_while(
    blobs: &Blobs,
    epoch: u32,
    may_come: impl Fn() -> bool,
) -> Option<Claimed> {
    loop {
        let is_last = !may_come();
        let claimed = Claimed::claim(blobs, ("c", BUILD), epoch, random, |_| true).unwrap();
        if claimed.is_some() || is_last {
            break claimed;
        }
        std::thread::yield_now();
    }
}

/// Does the work of an order, as a child does.
pub(super) fn work(blobs: &Blobs, claimed: &Claimed) -> Option<Build> {
    let order = claimed.order();
    let manifest = Manifest::load_number(blobs, order.manifest).unwrap();
    build(blobs, &manifest, order.options, &|_, _| {}).unwrap()
}
