//! A store of several strands consumes topics: parts of what was read count in other strands than the offsets.

use super::*;

const STRANDS: usize = 3;

/// A server that is up, with the strands of its store.
struct Divided {
    disks: Vec<SimDisk>,
    state: ApiState,
    runtime: Runtime,
}

/// The items that were sent.
#[derive(Default)]
struct Sent {
    /// The count of each key.
    counts: BTreeMap<String, u64>,
    /// The ids in each partition: partitions are read in no order of each other.
    ids: [Vec<String>; PARTITIONS as usize],
    /// The next number of the producer of each partition.
    numbers: [u64; PARTITIONS as usize],
}

impl Divided {
    fn on(disks: Vec<SimDisk>) -> Self {
        let (runtime, clock) = (runtime(), Arc::new(ManualClock::new(START * 1_000, true)));
        let state = |disk: &SimDisk| state(&runtime, disk, &clock, |store| store);
        let state = ApiState::of_strands(disks.iter().map(state).collect());
        Self {
            disks,
            state,
            runtime,
        }
    }

    fn consumer(&self, brokers: &SimBrokers, chance: Option<Chance>) -> Consumer {
        let ends = (self.runtime.handle().clone(), Arc::default());
        Consumer::new(
            self.state.clone(),
            Box::new(brokers.source(chance)),
            clicks(),
            ends,
        )
    }

    fn total(&self, key: &str) -> u64 {
        let stores = self.state.strands.stores().all().iter();
        stores.map(|store| answers::total(store, "l", key)).sum()
    }

    /// Records in the log of each strand.
    fn records(&self) -> Vec<u64> {
        let stores = self.state.strands.stores().all().iter();
        stores
            .map(|store| store.live().applied().sequence)
            .collect()
    }

    fn crash(self, chance: &mut Chance) -> Self {
        let disks = self.disks.iter();
        let disks = disks.map(|disk| disk.crash(&mut random(chance.below(u64::MAX))));
        let disks = disks.collect();
        drop(self);
        Self::on(disks)
    }
}

impl Sent {
    /// Sends a message of some items, a few of which are wrong or came before.
    fn send(&mut self, brokers: &SimBrokers, chance: &mut Chance) {
        let partition = chance.below(PARTITIONS) as usize;
        let items = (0..1 + chance.below(6)).map(|_| {
            let number = self.counts.len();
            let (key, n) = (format!("a{number}"), 1 + chance.below(9));
            let keys = format!(r#""keys":{{"l":"{key}"}},"n":{n}"#);
            let (more, counted) = match chance.below(6) {
                0 if !self.ids[partition].is_empty() => (
                    format!(r#""id":"{}""#, chance.pick(&self.ids[partition])),
                    0,
                ),
                0..=2 => {
                    self.ids[partition].push(format!("id-{number}"));
                    (format!(r#""id":"id-{number}""#), n)
                }
                3 => {
                    // A number is missing at times.
                    self.numbers[partition] += 1 + chance.below(2);
                    let sequence = self.numbers[partition];
                    (
                        format!(r#""producer":"p{partition}","epoch":1,"sequence":{sequence}"#),
                        n,
                    )
                }
                4 => (format!(r#""id":"wrong-{number}","nowhere":1"#), 0),
                _ => (r#""by":{}"#.to_owned(), n),
            };
            self.counts.insert(key, counted);
            format!("{{{keys},{more}}}")
        });
        let items: Vec<String> = items.collect();
        brokers.send(message(partition as u32, format!("[{}]", items.join(","))));
    }
}

/// One life of a topic, in which strands fail one by one and together.
fn play(seed: u64) {
    let mut chance = Chance::new(seed);
    let brokers = SimBrokers::default();
    brokers.make("clicks", PARTITIONS as usize);
    let mut sent = Sent::default();
    let mut up = Divided::on((0..STRANDS).map(|_| SimDisk::default()).collect());
    let rewinds = |chance: &mut Chance| Some(Chance::new(chance.below(u64::MAX)));
    let mut consumer = up.consumer(&brokers, rewinds(&mut chance));
    for _ in 0..40 {
        let strand = chance.below(STRANDS as u64) as usize;
        match chance.below(10) {
            0..=3 => (0..chance.below(20)).for_each(|_| sent.send(&brokers, &mut chance)),
            4..=6 => drop(consumer.turn(Duration::ZERO)),
            7 => {
                up.disks[strand].set_free_bytes(0);
                (0..3).for_each(|_| drop(consumer.turn(Duration::ZERO)));
                up.disks[strand].set_free_bytes(1 << 30);
            }
            8 => up.state.strands.stores().all()[strand]
                .ledger()
                .flush()
                .unwrap(),
            _ => {
                up.disks[strand].stop_at_nth_call(1 + chance.below(6));
                drop(consumer.turn(Duration::ZERO));
                drop(consumer);
                up = up.crash(&mut chance);
                consumer = up.consumer(&brokers, rewinds(&mut chance));
            }
        }
    }
    drop(consumer);
    for again in 0..2 {
        drain(&mut up.consumer(&brokers, None));
        for (key, n) in &sent.counts {
            assert_eq!(up.total(key), *n, "seed {seed}, {again}: {key}");
        }
        up = up.crash(&mut chance);
    }
}

#[test]
fn each_item_counts_once_in_whichever_strand_it_belongs_and_whichever_fails() {
    for seed in 0..30 {
        play(seed);
    }
}

#[test]
fn a_strand_that_takes_nothing_holds_messages_back_and_skips_none() {
    let brokers = SimBrokers::default();
    brokers.make("clicks", 1);
    let up = Divided::on((0..STRANDS).map(|_| SimDisk::default()).collect());
    let mut consumer = up.consumer(&brokers, None);
    let error = || up.state.admin.consuming.topics()["clicks"].error.clone();
    up.disks[1].set_free_bytes(0);
    let mut sent = 0;
    while error().is_none() {
        for _ in 0..100 {
            let item = format!(r#"{{"keys":{{"l":"a"}},"id":"i{sent}"}}"#);
            brokers.send(message(0, item));
            sent += 1;
        }
        consumer.turn(Duration::ZERO).unwrap();
        assert!(sent < 100_000, "the disk never fills");
    }
    assert!(up.total("a") < sent);
    let records = up.records();
    for _ in 0..5 {
        assert!(!consumer.turn(Duration::ZERO).unwrap());
    }
    assert_eq!(up.records(), records, "tries fill no other log");
    up.disks[1].set_free_bytes(1 << 30);
    drain(&mut consumer);
    assert_eq!((up.total("a"), error()), (sent, None));
    let consumed: Vec<usize> = {
        let stores = up.state.strands.stores().all().iter();
        stores
            .map(|store| store.intake().consumed().len())
            .collect()
    };
    assert_eq!(consumed, [1, 0, 0], "strand 0 has the offsets");
}
