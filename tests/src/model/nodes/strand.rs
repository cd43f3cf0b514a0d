//! One strand: a topic, an object store, and the place of each node in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tallyring_archive::{Build, KeepDays};
use tallyring_realtime::oplog::Topic;
use tallyring_realtime::{Clock, Error, Options, Store};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{KeyEntry, Offset, Scope};

use super::clicks;
use super::life::{Place, Race, Site};
use crate::model::chance::{Chance, ManualClock, fixed_bytes};
use crate::model::generations::on_one_thread;
use crate::model::run::Stats;
use crate::sim_disk::SimDisk;
use crate::sim_objects::{Fault, SimObjects};
use crate::sim_topic::{SimTopic, WAYS, Way};

/// A strand and its nodes, without what they count.
pub(super) struct Strand {
    pub chance: Chance,
    pub topic: SimTopic,
    pub objects: SimObjects,
    pub clock: Arc<ManualClock>,
    pub options: Options,
    /// Take-overs that were tried.
    pub owners: u128,
    pub sites: Vec<Site>,
    /// The node that took the log over last: no other may acknowledge anything.
    pub writer: Option<usize>,
    /// Faults were set since all was calm: calls may fail.
    pub troubled: bool,
    /// A node that takes the log over while another one does something.
    pub race: Option<Race>,
    /// Behind everything that was acknowledged.
    pub acknowledged: Offset,
    /// API keys, and whether it is sure that they are in force.
    pub keys: BTreeMap<String, (KeyEntry, bool)>,
    /// A build that was not published, and the node that made it.
    pub held: Option<(usize, Build)>,
    /// Calls of the object store up to the last look at its objects.
    pub looked: u64,
    /// Keys of the objects that each kept manifest names.
    pub named: BTreeMap<u64, BTreeSet<String>>,
    pub trace: Vec<String>,
    pub stats: Stats,
}

impl Strand {
    /// So many nodes, all of them down, and a store that was just made.
    pub(super) fn new(seed: u64, nodes: usize, clock: Arc<ManualClock>) -> Self {
        let mut chance = Chance::new(seed);
        let options = Options {
            shards: u16::try_from(1 + chance.below(3)).expect("BUG: at most 3"),
            segment_bytes: 4_096 << chance.below(3),
            id_hours: 24,
            oplog_days: 1,
            flush_level: 1,
            ..Options::default()
        };
        let mut strand = Self {
            topic: SimTopic::default(),
            objects: SimObjects::default(),
            clock,
            options,
            owners: 0,
            sites: (0..nodes).map(|_| Site::new()).collect(),
            writer: None,
            troubled: false,
            race: None,
            acknowledged: Offset::default(),
            keys: BTreeMap::new(),
            held: None,
            looked: 0,
            named: BTreeMap::new(),
            trace: Vec::new(),
            stats: Stats::default(),
            chance,
        };
        strand.tell_time();
        let maker = strand.world(SimDisk::default());
        let (owner, schema) = (strand.owner(), clicks::schema(0));
        let topic: &dyn Topic = &strand.topic;
        Store::begin_shared(&maker, &strand.options, (topic, owner), schema).expect("made");
        strand
    }

    /// Unix milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// A node acknowledged what its store counts.
    pub(super) fn acknowledge(&mut self, store: &Store) {
        self.acknowledged = self.acknowledged.max(store.live().applied());
    }

    /// Objects are as old as the clock says.
    pub(super) fn tell_time(&self) {
        self.objects.set_now_ms(self.now_ms());
    }

    pub(super) fn note(&mut self, step: String) {
        self.trace.push(step);
    }

    /// An operation of a node failed: that is a finding unless a fault was set, or the node does not write the log any
    /// more, and may not know it yet.
    pub(super) fn allow(&mut self, site: usize, what: &str, error: &str) -> Result<(), String> {
        let is_allowed = self.is_risky(site);
        self.note(format!("  {what} failed: {error}"));
        self.stats.failures += 1;
        match is_allowed {
            true => Ok(()),
            false => Err(format!("{what} failed without a fault: {error}")),
        }
    }

    /// True when an operation of a node that believes to write may fail.
    pub(super) fn is_risky(&self, site: usize) -> bool {
        self.troubled
            || self.race.is_some()
            || self.writer != Some(site)
            || self.sites[site].is_doomed
    }

    pub(super) fn set_fault(&mut self) {
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

    pub(super) fn flush(&mut self) -> Result<(), String> {
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
    pub(super) fn rebuild(&mut self) -> Result<(), String> {
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
    pub(super) fn publish_held(&mut self) -> Result<(), String> {
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
    pub(super) fn tidy(&mut self) -> Result<(), String> {
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
    pub(super) fn put_key(&mut self) -> Result<(), String> {
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
        key.revoked_ms = revokes.then_some(self.now_ms());
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

    pub(super) fn any_site(&mut self) -> usize {
        let site = self.chance.below(self.sites.len() as u64);
        usize::try_from(site).expect("BUG: few nodes")
    }
}

fn new_key(id: String, created_ms: i64) -> KeyEntry {
    let mut secret_hash = [0; 32];
    fixed_bytes(&mut secret_hash);
    KeyEntry::new(id, secret_hash, vec![Scope::Read], created_ms)
}
