//! Random batches and deeds of operators on a store that nodes share, or on that of one machine.

use std::sync::Arc;
use std::time::Duration;

use tallyring_archive::{Build, KeepDays};
use tallyring_realtime::{Batch, BatchKey, Follower, Store, VoidOrder};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{KeyEntry, Text};
use tallyring_tests::model::{Chance, increment, schema, schema_without_lists};
use tallyring_tests::sim_disk::{SimDisk, random};

use super::stand::{START, Stand, commit, compare, follow, key};

/// Limits of all rebuilds.
pub(crate) const OPTIONS: BuildOptions = BuildOptions {
    shards: 1,
    level: 1,
    breakdown_hours: 3,
    rewrite_bytes_min: REWRITE_BYTES_MIN,
    keep: KeepDays {
        minutes: None,
        hours: None,
        actions: None,
    },
};

/// Draws what happens to a store of two nodes, or of one machine.
pub(crate) struct Play {
    pub(crate) stand: Stand,
    pub(crate) chance: Chance,
    pub(crate) now: i64,
    /// Ids that were sent.
    pub(crate) ids: Vec<String>,
    batches: u64,
    schema: usize,
    pub(crate) writer: Arc<Store>,
    pub(crate) disk: SimDisk,
    pub(crate) follower: Option<Follower>,
}

impl Play {
    pub(crate) fn new(seed: u64) -> Self {
        let mut stand = Stand::new();
        let writer = stand.writer(1);
        let (disk, follower) = stand.follower(2);
        Self {
            stand,
            chance: Chance::new(seed),
            now: START,
            ids: Vec::new(),
            batches: 0,
            schema: 0,
            writer,
            disk,
            follower: Some(follower),
        }
    }

    /// A store of one machine.
    pub(crate) fn alone(seed: u64) -> Self {
        let (stand, disk) = (Stand::empty(), SimDisk::default());
        Self {
            writer: Arc::new(stand.open_alone(&disk)),
            stand,
            chance: Chance::new(seed),
            now: START,
            ids: Vec::new(),
            batches: 0,
            schema: 0,
            disk,
            follower: None,
        }
    }

    pub(crate) fn commit(&mut self) {
        self.pass(1);
        let increments = (0..self.chance.below(30)).map(|_| {
            let drawn = increment(&mut self.chance, schema(self.schema), self.now, &self.ids);
            self.ids.extend(drawn.id.clone());
            drawn
        });
        let increments: Vec<_> = increments.collect();
        self.batches += 1;
        let key = self.chance.percent(30).then(|| BatchKey {
            text: format!("batch {}", self.chance.below(self.batches)),
            body: 7,
        });
        let identity = self.chance.percent(20).then(|| Text::from("a"));
        let batch = Batch {
            increments,
            key,
            identity,
            ..Batch::default()
        };
        // Some are refused: a counter may overflow.
        let _ = commit(&self.writer, batch);
    }

    /// Cuts the delta stores that are due, and publishes a generation with their counts.
    pub(crate) fn rebuild(&self) {
        if let Some(built) = self.build() {
            self.writer.ledger().publish(&built).expect("published");
        }
    }

    pub(crate) fn build(&self) -> Option<Build> {
        let store = &self.writer;
        let manifest = store.ledger().cut().expect("cut");
        let blobs = store.world().blobs();
        build(&blobs, &manifest, OPTIONS, &|_, _| {}).expect("built")
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += seconds;
        self.stand.clock.pass(seconds * 1_000);
        self.stand.objects.set_now_ms(self.now * 1_000);
    }

    /// Removes old objects.
    fn sweep(&mut self) {
        for _ in 0..2 {
            while self.writer.ledger().sweep().expect("swept") {}
            self.pass(3_600);
        }
    }

    pub(crate) fn step(&mut self) {
        match self.chance.below(24) {
            7 | 8 => self.crash(),
            9..12 => {
                let mut follower = self.follower.take().expect("a follower");
                let ids: Vec<String> = self.ids.iter().rev().take(9).cloned().collect();
                self.check(&mut follower, &ids);
                self.follower = Some(follower);
            }
            12 => {
                let mut follower = self.follower.take().expect("a follower");
                follower.step(Duration::ZERO).expect("a step");
                self.follower = Some(follower);
            }
            choice => self.write(choice),
        }
    }

    /// Lets the store that writes do something.
    pub(crate) fn write(&mut self, choice: u64) {
        match choice {
            0 if self.chance.percent(50) => {
                self.writer.ledger().begin_reconcile().expect("flushed");
            }
            0 => self.writer.ledger().flush().expect("flushed"),
            1 => self.rebuild(),
            2 => {
                self.pass(86_400);
                self.writer.intake().tick().expect("turned");
            }
            3 => self.pass(1_800),
            4 if !self.ids.is_empty() => {
                let id = self.chance.pick(&self.ids).clone();
                let order = VoidOrder {
                    identity: None,
                    id: &id,
                    reason: "a test",
                    actor: "key",
                    four_eyes: self.chance.percent(30),
                };
                self.writer.intake().void(order).expect("voided");
            }
            5 => {
                let user = format!("user {}", self.chance.below(20));
                self.writer.intake().erase(&[user]).expect("erased");
            }
            22 => self.change_key(),
            23 => self.sweep(),
            6 if self.chance.percent(20) && self.schema < 2 => {
                self.schema += 1;
                let next = schema_without_lists(self.schema);
                self.writer.declare(next).expect("declared");
            }
            _ => self.commit(),
        }
    }

    /// Makes an API key, or revokes one.
    pub(crate) fn change_key(&mut self) {
        let mut keys = self.writer.intake().keys();
        let revoked_ms =
            Some(self.now * 1_000).filter(|_| !keys.is_empty() && self.chance.percent(40));
        let key = match revoked_ms {
            Some(_) => keys.swap_remove(self.chance.below(keys.len() as u64) as usize),
            None => key(&format!("k{}", keys.len())),
        };
        let key = KeyEntry { revoked_ms, ..key };
        self.writer.intake().put_key(key).expect("in the log");
    }

    /// Compares the follower, of which there must be one, with the writer.
    pub(crate) fn check_follower(&mut self) {
        let mut follower = self.follower.take().expect("a follower");
        self.check(&mut follower, &[]);
        self.follower = Some(follower);
    }

    /// Both nodes forget what is old, because a history of an id reaches as far back as the log.
    pub(crate) fn check(&self, follower: &mut Follower, ids: &[String]) {
        self.writer.ledger().expire_log().expect("expired");
        follow(follower);
        follower.tidy().expect("tidied");
        compare(&self.writer, follower.store(), self.now, ids);
    }

    pub(crate) fn crash(&mut self) {
        self.follower = None;
        let seed = self.chance.below(u64::MAX);
        self.disk = match self.chance.below(3) {
            0 => SimDisk::default(),
            1 => self.disk.kill(),
            _ => self.disk.crash(&mut random(seed)),
        };
        let follower = self.stand.open(2, &self.disk);
        self.follower = Some(follower.expect("opened"));
    }
}
