//! Nodes over one simulated topic and one simulated object store, each with a disk of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tallyring_archive::{Blobs, Objects, PartCache};
use tallyring_realtime::oplog::{Owner, Topic};
use tallyring_realtime::{
    Accepted, Batch, Follower, Membership, Options, Refusal, Service, Store, StrandPlace, World,
};
use tallyring_records::{KeyEntry, Scope};
use tallyring_tests::answers::{answers, difference};
use tallyring_tests::model::{ManualClock, schema, world};
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::sim_objects::SimObjects;
use tallyring_tests::sim_topic::SimTopic;

/// 2012-03-16T20:00:00Z.
pub(crate) const START: i64 = 1_331_928_000;

/// The things that all nodes share; they have one clock, too.
pub(crate) struct Stand {
    pub(crate) topic: SimTopic,
    pub(crate) objects: SimObjects,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: Options,
    /// Room for parts of files, bytes, of nodes that have no copies of their archive.
    pub(crate) parts_max: Option<u64>,
    /// True where nodes that join never write.
    pub(crate) only_follow: bool,
    owners: u128,
}

impl Stand {
    /// No store yet. Segments are small, so there are many of them.
    pub(crate) fn empty() -> Self {
        Self {
            topic: SimTopic::default(),
            objects: SimObjects::default(),
            clock: Arc::new(ManualClock::new(START * 1_000, true)),
            options: Options {
                segment_bytes: 16 << 10,
                ..Options::default()
            },
            parts_max: None,
            only_follow: false,
            owners: 0,
        }
    }

    /// A store that was just made.
    pub(crate) fn new() -> Self {
        let mut stand = Self::empty();
        let owner = stand.owner();
        let maker = stand.world(SimDisk::default());
        let topic: &dyn Topic = &stand.topic;
        Store::begin_shared(&maker, &stand.options, (topic, owner), schema(0)).expect("made");
        stand
    }

    /// An owner of the log that no take-over had before.
    pub(crate) fn owner(&mut self) -> Owner {
        self.owners += 1;
        Owner(self.owners)
    }

    /// Opens the store of a single machine, which is made where there is none.
    pub(crate) fn open_alone(&self, disk: &SimDisk) -> Store {
        let world = world(disk.clone(), self.clock.clone());
        let opened = Store::open_as_it_is(world, self.options, schema(0));
        opened.expect("a whole store").0
    }

    /// The blobs of a node with this disk.
    pub(crate) fn blobs(&self, disk: &SimDisk) -> Blobs {
        Blobs::over(Arc::new(disk.clone()), Arc::new(self.objects.clone()))
    }

    pub(crate) fn world(&self, disk: SimDisk) -> World {
        let objects = Arc::new(self.objects.clone());
        let objects: Arc<dyn Objects> = match self.parts_max {
            None => objects,
            Some(bytes_max) => {
                let parts = PartCache::open(Arc::new(disk.clone()), bytes_max);
                Arc::new(parts.expect("a live disk").over_archive(objects))
            }
        };
        World {
            objects: Some(objects),
            ..world(disk, self.clock.clone())
        }
    }

    /// Opens a node with this number and disk.
    pub(crate) fn open(&self, node: usize, disk: &SimDisk) -> tallyring_realtime::Result<Follower> {
        let world = self.world(disk.clone());
        Follower::open(world, self.options, Arc::new(self.topic.node(node)))
    }

    /// A new node, which follows.
    pub(crate) fn follower(&self, node: usize) -> (SimDisk, Follower) {
        let disk = SimDisk::default();
        let follower = self.open(node, &disk).expect("a node");
        (disk, follower)
    }

    /// A new node with its threads, which hears the others in the topic `nodes` and takes its turn to write. It calls
    /// itself `address`.
    pub(crate) fn join(&self, node: usize, address: String, nodes: &SimTopic) -> Service {
        self.join_strand(node, address, nodes, None)
    }

    /// As [`Self::join`], of a store that is a strand of another one.
    pub(crate) fn join_strand(
        &self,
        node: usize,
        address: String,
        nodes: &SimTopic,
        strand: Option<StrandPlace>,
    ) -> Service {
        let world = World {
            random: unique_bytes,
            ..self.world(SimDisk::default())
        };
        let topic = Arc::new(self.topic.node(node));
        let follower = Follower::open(world, self.options, topic).expect("a node");
        let membership = Membership {
            topic: Arc::new(nodes.node(node)),
            node: node.to_string(),
            address,
            build: [0, 1, 0],
            schema: None,
            strand,
            may_write: !self.only_follow,
            rebuilds: self.only_follow,
            backs_up: false,
        };
        Service::join(follower, membership).expect("threads")
    }

    /// Lets time pass, ten times as fast as it does, until `look` finds something.
    pub(crate) fn pass_until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        for _ in 0..20_000 {
            if let Some(found) = look() {
                return found;
            }
            thread::sleep(Duration::from_millis(5));
            self.clock.pass(50);
        }
        panic!("it never comes");
    }

    /// A new node, which writes.
    pub(crate) fn writer(&mut self, node: usize) -> Arc<Store> {
        let (_, follower) = self.follower(node);
        take_over(follower, self.owner())
    }
}

/// Where a node is, as it tells others.
pub(crate) fn address(node: usize) -> String {
    format!("http://node-{node}:7117")
}

/// Other bytes at every call.
pub(crate) fn unique_bytes(out: &mut [u8]) {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let call = CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    out.iter_mut()
        .zip(call.into_iter().cycle())
        .for_each(|(byte, of)| *byte = of);
}

/// An API key with this id, which is made at the start.
pub(crate) fn key(id: &str) -> KeyEntry {
    KeyEntry::new(id.into(), [7; 32], vec![Scope::Read], START * 1_000)
}

pub(crate) fn take_over(follower: Follower, owner: Owner) -> Arc<Store> {
    match follower.take_over(owner) {
        Ok(store) => store,
        Err(not) => panic!("not taken over: {}", not.error),
    }
}

/// Follows up to the end of the topic.
pub(crate) fn follow(follower: &mut Follower) {
    while follower.step(Duration::ZERO).expect("followed") {}
}

/// Commits one batch.
pub(crate) fn commit(store: &Store, batch: Batch) -> Result<Accepted, Refusal> {
    store.intake().commit(vec![batch]).remove(0)
}

/// Compares two stores at the same position.
pub(crate) fn compare(writer: &Store, follower: &Store, now: i64, ids: &[String]) {
    let (writer, follower) = (answers(&[writer], now, ids), answers(&[follower], now, ids));
    assert_eq!(difference(&writer, &follower), None, "the follower differs");
}
