//! Nodes over one simulated topic and one simulated object store, each with a disk of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tallyring_realtime::oplog::{Owner, Topic};
use tallyring_realtime::{
    Accepted, Batch, Follower, Membership, Options, Read, Refusal, Service, Store, World,
};
use tallyring_records::{KeyEntry, Scope, TIME_MAX, TIME_MIN, Users};
use tallyring_tests::model::{ManualClock, deeds, schema, world};
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
    owners: u128,
}

impl Stand {
    /// A store that was just made. Segments are small, so there are many of them.
    pub(crate) fn new() -> Self {
        let mut stand = Self {
            topic: SimTopic::default(),
            objects: SimObjects::default(),
            clock: Arc::new(ManualClock::new(START * 1_000, true)),
            options: Options {
                segment_bytes: 16 << 10,
                ..Options::default()
            },
            owners: 0,
        };
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

    fn world(&self, disk: SimDisk) -> World {
        World {
            objects: Some(Arc::new(self.objects.clone())),
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
fn unique_bytes(out: &mut [u8]) {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let call = CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    out.iter_mut()
        .zip(call.into_iter().cycle())
        .for_each(|(byte, of)| *byte = of);
}

/// An API key with this id, which is made at the start.
pub(crate) fn key(id: &str) -> KeyEntry {
    KeyEntry {
        id: id.into(),
        secret_hash: [7; 32],
        scopes: vec![Scope::Read],
        namespaces: None,
        login: None,
        limit: None,
        max_n: None,
        identity: None,
        note: None,
        created_ms: START * 1_000,
        revoked_ms: None,
    }
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

/// Answers of a store to all kinds of questions, for comparison with another store at the same position. `now` is in
/// Unix seconds.
pub(crate) fn answers(store: &Store, now: i64, ids: &[String]) -> BTreeMap<String, String> {
    let view = store.view();
    let mut answers = BTreeMap::new();
    let mut answer = |what: String, found: String| {
        answers.insert(what, found);
    };
    answer("keys".into(), format!("{:?}", store.intake().keys()));
    answer("position".into(), view.applied().sequence.to_string());
    answer("manifest".into(), view.manifest().to_string());
    answer("today".into(), store.status().today.to_string());
    let schema = store.schema();
    answer("schema".into(), format!("{schema:?}"));
    for namespace in &schema.namespaces {
        let name = &namespace.name;
        let hour = now - now.rem_euclid(3_600);
        let days = hour - 86_400..hour + 86_400;
        let ranges = [TIME_MIN..TIME_MAX, days.clone(), hour - 7_200..hour + 3_600];
        let mut keys = Vec::new();
        for range in ranges {
            let top = view.top(name, range.clone(), namespace.minutes, (1_000, true), None);
            let top = top.expect("a ranking");
            // Which span was counted, and in which grain, depends on the files that a node has.
            let ranking = (top.total, &top.keys, top.is_cut);
            answer(format!("top {name} {range:?}"), format!("{ranking:?}"));
            keys.extend(top.keys.into_iter().map(|top| top.key).take(9));
        }
        let totals = view.totals(name, days, namespace.minutes, None);
        answer(
            format!("totals {name}"),
            format!("{:?}", totals.expect("totals")),
        );
        let settled = view.settled_until(name, None, now);
        answer(format!("settled {name}"), settled.to_string());
        keys.sort();
        keys.dedup();
        for key in keys {
            let of_key = of_key(store, (name.as_str(), key.as_str()), &namespace.subtotals);
            answer(format!("key {name} {key}"), of_key);
            if namespace.uniques {
                let users = view.users(read(name, &key, None), None).expect("users");
                let users = users.unite(&(TIME_MIN..TIME_MAX), |_| Some(0));
                let users = users.expect("users").remove(&0);
                let users = users.as_ref().map_or(0, Users::estimate);
                answer(format!("users {name} {key}"), users.to_string());
            }
        }
    }
    let users: Vec<String> = (0..20).map(|number| format!("user {number}")).collect();
    let did = deeds(&view, &users, &(TIME_MIN..TIME_MAX)).expect("actions");
    answer("actions".into(), format!("{did:?}"));
    for id in ids {
        let mut history = store.intake().id_history(None, id).expect("a history");
        // A later repeat is noted where the first one is forgotten, and each node forgets when it reads a manifest.
        history.again.truncate(1);
        answer(format!("id {id}"), format!("{history:?}"));
    }
    for id in store.live().store_ids() {
        let points = store.live().points(id).expect("counters");
        answer(format!("store {id}"), format!("{points:?}"));
    }
    answers
}

fn read(namespace: &str, key: &str, subtotal: Option<&str>) -> Read {
    Read {
        namespace: namespace.into(),
        key: key.into(),
        subtotal: subtotal.map(Into::into),
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    }
}

/// Totals of a key, and the values of its subtotals.
fn of_key(store: &Store, (name, key): (&str, &str), subtotals: &[String]) -> String {
    let view = store.view();
    let mut all = Vec::new();
    let none = std::iter::once(None);
    for subtotal in none.chain(subtotals.iter().map(Some)) {
        let series = view.read(&read(name, key, subtotal.map(String::as_str)), None);
        let series = series.expect("counts");
        let mut values: BTreeMap<(String, Vec<String>), u64> = BTreeMap::new();
        for point in &series.points {
            let value = &series.values[point.value as usize];
            let texts = view.expand(&series, value).expect("texts");
            *values
                .entry((format!("{:?}", point.code), texts))
                .or_default() += point.count;
        }
        all.push(format!("{subtotal:?} {:?} {values:?}", series.totals));
    }
    all.join("\n")
}

/// Compares two stores at the same position.
pub(crate) fn compare(writer: &Store, follower: &Store, now: i64, ids: &[String]) {
    let position = |store: &Store| store.view().applied().sequence;
    assert_eq!(position(writer), position(follower), "positions");
    let (writer, follower) = (answers(writer, now, ids), answers(follower, now, ids));
    for (what, expected) in &writer {
        let found = follower.get(what);
        assert_eq!(
            found,
            Some(expected),
            "the follower answers `{what}` otherwise"
        );
    }
    assert_eq!(writer.len(), follower.len(), "the follower knows more");
}
