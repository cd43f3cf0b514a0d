//! Several nodes over one topic and one object store, against the naive model of one store.
//!
//! [`Nodes`] owns the topic, the object store, a clock and some nodes, and draws their fate from a seed: nodes hang,
//! die, start again, take the log over, and some of them believe to write it when they do not. Invariants: what was
//! acknowledged is counted once; a batch is whole or absent; a read that knows of an acknowledgement counts it on any
//! node; no node goes back; nodes at one position of the log answer alike; manifests name only objects that are there.
//! When all faults are over, every node has everything, and a new one has it as well.
//!
//! A batch that was sent and not acknowledged carries a mark, a key of its own. The next node that takes the log over
//! tells by it whether the batch counts: nothing that was sent before counts later.

mod check;
mod commit;
mod life;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{Build, KeepDays};
use tallyring_realtime::oplog::Topic;
use tallyring_realtime::{Clock, Error, Options, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Accepted, Increment, KeyEntry, Offset, Scope};

use super::chance::{Chance, ManualClock, fixed_bytes, world};
use super::clicks;
use super::generations::on_one_thread;
use super::naive::Naive;
use super::run::Stats;
use crate::sim_disk::SimDisk;
use crate::sim_objects::{Fault, SimObjects};
use crate::sim_topic::{SimTopic, WAYS, Way};
use commit::Sent;
use life::{Place, Race, Site};

/// 2012-03-16T20:00:00Z.
const START_MS: i64 = 1_331_928_000_000;
const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;
/// Ids are sent again while they are so much younger than the window in which nodes know them.
const MARGIN_MS: i64 = 3_600_000;

/// Nodes, the world that they share, and the model.
pub(super) struct Nodes {
    chance: Chance,
    topic: SimTopic,
    objects: SimObjects,
    clock: Arc<ManualClock>,
    now_ms: i64,
    options: Options,
    /// Take-overs that were tried.
    owners: u128,
    sites: Vec<Site>,
    /// The node that took the log over last: no other may acknowledge anything.
    writer: Option<usize>,
    /// Faults were set since all was calm: calls may fail.
    troubled: bool,
    /// A node that takes the log over while another one does something.
    race: Option<Race>,
    naive: Naive,
    /// Keyed batches that count, with the answer if it was told.
    keyed: BTreeMap<String, (Vec<Increment>, Option<Accepted>)>,
    /// Batches that were sent since the last take-over and may count.
    pending: Vec<Sent>,
    /// Batches whose client tries again: each increment has an id.
    again: Vec<Sent>,
    /// Marks of batches that never count.
    void: Vec<String>,
    /// Behind everything that was acknowledged.
    acknowledged: Offset,
    /// Answers of some node, by the position.
    answered: BTreeMap<u64, check::Answered>,
    /// API keys, and whether it is sure that they are in force.
    keys: BTreeMap<String, (KeyEntry, bool)>,
    /// A build that was not published, and the node that made it.
    held: Option<(usize, Build)>,
    /// Calls of the object store up to the last look at its objects.
    looked: u64,
    /// Keys of the objects that each kept manifest names.
    named: BTreeMap<u64, BTreeSet<String>>,
    pub(super) trace: Vec<String>,
    pub(super) stats: Stats,
    /// Answers compared with the model.
    pub(super) compared: Cell<u64>,
}

impl Nodes {
    /// So many nodes, all of them down, and a store that was just made.
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        let mut chance = Chance::new(seed);
        let options = Options {
            shards: u16::try_from(1 + chance.below(3)).expect("BUG: at most 3"),
            segment_bytes: 4_096 << chance.below(3),
            id_hours: 24,
            oplog_days: 1,
            flush_level: 1,
            ..Options::default()
        };
        let mut nodes = Self {
            topic: SimTopic::default(),
            objects: SimObjects::default(),
            clock: Arc::new(ManualClock::new(START_MS, true)),
            now_ms: START_MS,
            options,
            owners: 0,
            sites: (0..nodes).map(|_| Site::new()).collect(),
            writer: None,
            troubled: false,
            race: None,
            naive: Naive::default(),
            keyed: BTreeMap::new(),
            pending: Vec::new(),
            again: Vec::new(),
            void: Vec::new(),
            acknowledged: Offset::default(),
            answered: BTreeMap::new(),
            keys: BTreeMap::new(),
            held: None,
            looked: 0,
            named: BTreeMap::new(),
            trace: Vec::new(),
            stats: Stats::default(),
            compared: Cell::new(0),
            chance,
        };
        nodes.pass(0);
        let maker = nodes.world(SimDisk::default());
        let (owner, schema) = (nodes.owner(), clicks::schema(0));
        let topic: &dyn Topic = &nodes.topic;
        Store::begin_shared(&maker, &nodes.options, (topic, owner), schema).expect("made");
        nodes
    }

    /// So many operations, and a calm end.
    ///
    /// # Errors
    /// The first thing that is not as the model says.
    pub(super) fn run(&mut self, operations: u64) -> Result<(), String> {
        self.calm()?;
        while self.stats.steps < operations {
            self.stats.steps += 1;
            self.operation()?;
            self.check_always()?;
        }
        self.calm()?;
        self.check_new_node()
    }

    fn operation(&mut self) -> Result<(), String> {
        match self.chance.below(100) {
            0..34 => self.commit(),
            34..48 => self.tend(),
            48..60 => self.read(),
            60..65 => self.flush(),
            65..69 => self.rebuild(),
            69..71 => self.publish_held(),
            71..74 => self.take_over_by_any(),
            74..79 => self.race(),
            79..83 => self.kill(),
            83..85 => self.hang(),
            85..90 => {
                self.set_fault();
                Ok(())
            }
            90..92 => self.calm(),
            92..95 => {
                self.let_time_pass();
                Ok(())
            }
            95..97 => self.put_key(),
            _ => self.tidy(),
        }
    }

    fn note(&mut self, step: String) {
        self.trace.push(step);
    }

    /// An operation of a node failed: that is a finding unless a fault was set, or the node does not write the log any
    /// more, and may not know it yet.
    fn allow(&mut self, site: usize, what: &str, error: &str) -> Result<(), String> {
        let is_allowed = self.is_risky(site);
        self.note(format!("  {what} failed: {error}"));
        self.stats.failures += 1;
        match is_allowed {
            true => Ok(()),
            false => Err(format!("{what} failed without a fault: {error}")),
        }
    }

    /// True when an operation of a node that believes to write may fail.
    fn is_risky(&self, site: usize) -> bool {
        self.troubled
            || self.race.is_some()
            || self.writer != Some(site)
            || self.sites[site].is_doomed
    }

    fn pass(&mut self, passed_ms: i64) {
        self.now_ms += passed_ms;
        self.clock.pass(passed_ms);
        self.objects.set_now_ms(self.now_ms);
        self.naive.age(self.now_ms, passed_ms);
        let known_ms = i64::from(self.options.id_hours) * 3_600_000 - MARGIN_MS;
        let naive = &mut self.naive;
        naive.ids.retain(|_, id| id.is_within(known_ms));
        naive.batches.retain(|_, key| key.is_within(known_ms));
        let sent_from_ms = self.now_ms - known_ms;
        self.again.retain(|sent| sent.at_ms > sent_from_ms);
        let known = &naive.batches;
        self.keyed.retain(|key, _| known.contains_key(key));
    }

    fn let_time_pass(&mut self) {
        let to_midnight = DAY_MS - self.now_ms.rem_euclid(DAY_MS);
        let passed_ms = match self.chance.below(10) {
            0..6 => self.chance.between(1, 59) * MINUTE_MS,
            6..8 => self.chance.between(1, 23) * 60 * MINUTE_MS,
            8 => to_midnight + self.chance.between(-1, 30_000),
            _ => self.chance.between(1, 3) * DAY_MS,
        };
        self.note(format!("{passed_ms} ms pass"));
        // Histories of ids reach as far back as the logs of nodes.
        self.answered.clear();
        self.pass(passed_ms);
    }

    fn set_fault(&mut self) {
        self.troubled = true;
        self.stats.faults += 1;
        match self.chance.below(10) {
            0..5 => {
                let told = self.chance.below(4);
                let told = (0..told).map(|_| Way::Told);
                let ways: Vec<Way> = told.chain([*self.chance.pick(&WAYS)]).collect();
                self.note(format!("the next messages go {ways:?}"));
                self.topic.ways(ways);
            }
            5..7 => {
                let site = self.any_site();
                let is_cut_off = self.chance.percent(70);
                self.note(format!("{site} is cut off: {is_cut_off}"));
                self.topic.node(site).cut_off(is_cut_off);
            }
            7..9 => {
                let percent = *self.chance.pick(&[3, 20, 100]);
                self.note(format!("{percent} of 100 calls of the object store fail"));
                let mut chance = Chance::new(self.chance.bits());
                self.objects.set_faults(move |_| {
                    let fault = match chance.below(8) {
                        0..3 => Fault::Refused,
                        3..6 => Fault::AnswerLost,
                        6 => Fault::Late(1 + chance.below(60)),
                        _ => Fault::Away(2 + chance.below(30)),
                    };
                    chance.percent(percent).then_some(fault)
                });
            }
            _ => {
                let site = self.any_site();
                let call = 1 + self.chance.below(40);
                self.note(format!("the disk of {site} stops at call {call} from now"));
                self.sites[site].disk.stop_at_nth_call(call);
                self.sites[site].is_doomed = true;
            }
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let Some((site, store)) = self.claimant() else {
            return Ok(());
        };
        self.note(format!("{site} flushes"));
        self.stats.flushes += 1;
        match store.ledger().flush() {
            Ok(()) => Ok(()),
            Err(error) => self.allow(site, "a flush", &error.to_string()),
        }
    }

    /// Cuts and builds a generation, which is published at once or later.
    fn rebuild(&mut self) -> Result<(), String> {
        let Some((site, store)) = self.claimant() else {
            return Ok(());
        };
        self.note(format!("{site} rebuilds"));
        let options = BuildOptions {
            shards: self.options.shards,
            level: 1,
            breakdown_hours: 3,
            rewrite_bytes_min: REWRITE_BYTES_MIN,
            keep: KeepDays::default(),
        };
        let manifest = match store.ledger().cut() {
            Ok(manifest) => manifest,
            Err(error) => return self.allow(site, "a cut", &error.to_string()),
        };
        let blobs = store.world().blobs();
        match on_one_thread(|| build(&blobs, &manifest, options, &|_, _| {})) {
            Ok(None) => Ok(()),
            Ok(Some(built)) => {
                self.held = Some((site, built));
                match self.chance.percent(60) {
                    true => self.publish_held(),
                    false => Ok(()),
                }
            }
            Err(error) => self.allow(site, "a build", &error.to_string()),
        }
    }

    /// Publishes what was built. The node may have lost the log since.
    fn publish_held(&mut self) -> Result<(), String> {
        let Some((site, built)) = self.held.take() else {
            return Ok(());
        };
        if self.sites[site].hangs {
            self.held = Some((site, built));
            return Ok(());
        }
        let Place::Writes(store) = &self.sites[site].place else {
            return Ok(());
        };
        let published = store.ledger().publish(&built);
        self.note(format!("{site} publishes: {published:?}"));
        match published {
            Ok(()) => self.stats.generations += 1,
            // Another manifest came first, and the next rebuild starts from it.
            Err(Error::StaleBuild(_)) => {}
            Err(Error::Archive(tallyring_archive::Error::Conflict { .. })) => {}
            Err(error) => self.allow(site, "a publication", &error.to_string())?,
        }
        Ok(())
    }

    /// Removes what is old from the log, and from the mirror of a node that follows.
    fn tidy(&mut self) -> Result<(), String> {
        let site = self.any_site();
        if self.sites[site].hangs {
            return Ok(());
        }
        let tidied = match &mut self.sites[site].place {
            Place::Down => return Ok(()),
            Place::Follows(follower) => follower.tidy(),
            Place::Writes(store) => store.ledger().expire_log().map(|removed| {
                self.stats.segments_expired += removed as u64;
            }),
        };
        self.note(format!("{site} tidies"));
        match tidied {
            Ok(()) => Ok(()),
            Err(error) => self.allow(site, "tidying", &error.to_string()),
        }
    }

    /// Makes an API key, or revokes one. A revocation that fails may be in force on one node alone, so it does not.
    fn put_key(&mut self) -> Result<(), String> {
        let Some((site, store)) = self.claimant() else {
            return Ok(());
        };
        let keys = self.keys.values();
        let known = keys.filter(|(key, _)| key.revoked_ms.is_none());
        let known: Vec<String> = known.map(|(key, _)| key.id.clone()).collect();
        let revokes = !known.is_empty() && !self.is_risky(site) && self.chance.percent(40);
        let mut key = match revokes {
            true => self.keys[self.chance.pick(&known)].0.clone(),
            false => new_key(format!("k{}", self.keys.len()), self.clock.now_ms()),
        };
        key.revoked_ms = revokes.then_some(self.now_ms);
        self.note(format!("{site} puts the key {} ({revokes})", key.id));
        let is_sure = match store.intake().put_key(key.clone()) {
            Ok(()) => true,
            Err(error) => {
                self.allow(site, "a key", &error.to_string())?;
                false
            }
        };
        self.keys.insert(key.id.clone(), (key, is_sure));
        Ok(())
    }

    fn any_site(&mut self) -> usize {
        let site = self.chance.below(self.sites.len() as u64);
        usize::try_from(site).expect("BUG: few nodes")
    }
}

fn new_key(id: String, created_ms: i64) -> KeyEntry {
    let mut secret_hash = [0; 32];
    fixed_bytes(&mut secret_hash);
    KeyEntry::new(id, secret_hash, vec![Scope::Read], created_ms)
}
