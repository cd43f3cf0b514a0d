//! Readers beside a writer: no answer holds half of a click, of a batch or of a publication.
//!
//! Every click touches the same key of three namespaces, and every batch counts seven in all; so in
//! each answer all sums are one number, a multiple of seven, between what was acknowledged before
//! the read and what was sent before it ended. (As of a kept generation only the first holds: a
//! batch may touch days that are exported and days that are not.)

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tallyring_archive::KeepDays;
use tallyring_realtime::{Batch, Clock, Durability, Error, Options, Read, Store, View};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Increment, TIME_MAX, TIME_MIN};

use super::chance::{Chance, ManualClock, world};
use super::clicks;
use super::generations::on_one_thread;
use crate::sim_disk::SimDisk;

/// The count of every click of one batch.
const BATCH_SUM: u64 = 7;
const READERS: u64 = 2;
/// Answers that are read at least, unless so many rounds of so many operations more do not suffice.
const ANSWERS: u64 = 101;
const ROUNDS: u64 = 1_000;
const OPERATIONS_MORE: u64 = 20;
/// 2012-03-16T22:00Z.
pub(super) const START_MS: i64 = 1_331_935_200_000;
const HOT: &str = "http://example.com/hot";

/// The sums in one answer: all are equal.
const READS: [(&str, Option<&str>); 6] = [
    ("l", Some("c")),
    ("l", Some("r")),
    ("u", Some("c")),
    ("u", Some("c*r")),
    ("q", Some("c")),
    ("q", None),
];

/// A store on a sound disk, and what was counted on it.
pub(super) struct Scene {
    pub(super) store: Store,
    disk: SimDisk,
    clock: Arc<ManualClock>,
    sent: AtomicU64,
    pub(super) acknowledged: AtomicU64,
    answered: AtomicU64,
    over: AtomicBool,
}

impl Scene {
    /// An empty one.
    pub(super) fn new() -> Result<Self, String> {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(START_MS, true));
        let world = world(disk.clone(), clock.clone());
        let options = Options {
            shards: 3,
            durability: Durability::Fsync,
            segment_bytes: 1 << 16,
            oplog_days: 1,
            ..Options::default()
        };
        let schema = clicks::schema(0);
        let (store, _) =
            Store::open(world, options, schema.clone()).map_err(|error| error.to_string())?;
        Ok(Self {
            store,
            disk,
            clock,
            sent: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }
}

/// Runs `operations` of a writer beside two readers, and goes on until those have read some hundred answers: how much
/// each of them does meanwhile is not ours to say. Returns how many answers were read.
///
/// # Errors
/// The first answer that is torn.
pub fn run_readers(seed: u64, operations: u64) -> Result<u64, String> {
    let mut chance = Chance::new(seed);
    let scene = Scene::new()?;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                scope.spawn({
                    let scene = &scene;
                    move || read_on(scene, Chance::new(seed ^ (reader + 1)))
                })
            })
            .collect();
        let mut written = write_on(&scene, &mut chance, operations);
        let mut rounds = 0;
        while written.is_ok() && scene.answered.load(Ordering::SeqCst) < ANSWERS && rounds < ROUNDS
        {
            written = write_on(&scene, &mut chance, OPERATIONS_MORE);
            rounds += 1;
        }
        scene.over.store(true, Ordering::SeqCst);
        for reader in readers {
            reader
                .join()
                .map_err(|_| format!("seed {seed}: a reader panicked"))?
                .map_err(|torn| format!("seed {seed}: {torn}"))?;
        }
        written.map(|()| scene.answered.load(Ordering::SeqCst))
    })
}

fn write_on(scene: &Scene, chance: &mut Chance, operations: u64) -> Result<(), String> {
    let mut now_ms = scene.clock.now_ms();
    for _ in 0..operations {
        let done = match chance.below(20) {
            0..14 => commit(scene, chance, now_ms),
            14 => scene.store.ledger().flush(),
            15..17 => rebuild(scene),
            17 => roll_back(scene, chance),
            18 => scene.store.ledger().expire_log().map(drop),
            _ => {
                now_ms += chance.between(1, 30) * 3_600_000;
                scene.clock.set(now_ms);
                Ok(())
            }
        };
        done.map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub(super) fn commit(scene: &Scene, chance: &mut Chance, now_ms: i64) -> Result<(), Error> {
    let batches: Vec<Batch> = (0..1 + chance.below(3))
        .map(|_| {
            let first = 1 + chance.below(BATCH_SUM - 1);
            let increments = [first, BATCH_SUM - first].map(|n| click(chance, n, now_ms));
            Batch {
                increments: increments.into(),
                ..Batch::default()
            }
        })
        .collect();
    let sum = BATCH_SUM * batches.len() as u64;
    scene.sent.fetch_add(sum, Ordering::SeqCst);
    for outcome in scene.store.intake().commit(batches) {
        outcome.expect("a commit on a sound disk succeeds");
    }
    scene.acknowledged.fetch_add(sum, Ordering::SeqCst);
    Ok(())
}

fn click(chance: &mut Chance, n: u64, now_ms: i64) -> Increment {
    let country = format!("c{}", chance.below(5));
    let referrer = format!("http://referrer.example.com/{}", chance.below(5));
    let at = now_ms.div_euclid(1_000) - chance.between(0, 100_000);
    Increment {
        by: vec![("c".into(), country.into()), ("r".into(), referrer.into())],
        ..Increment::new(at, n, ["l", "u", "q"].map(|name| (name, HOT)))
    }
}

pub(super) fn rebuild(scene: &Scene) -> Result<(), Error> {
    let manifest = scene.store.ledger().cut()?;
    let options = BuildOptions {
        breakdown_hours: 3,
        rewrite_bytes_min: REWRITE_BYTES_MIN,
        shards: 3,
        level: 1,
        keep: KeepDays {
            minutes: Some(30),
            hours: None,
            actions: None,
        },
    };
    let built = on_one_thread(|| build(&scene.disk.blobs(), &manifest, options, &|_, _| {}))?;
    match built {
        Some(built) => scene.store.ledger().publish(&built),
        None => Ok(()),
    }
}

pub(super) fn roll_back(scene: &Scene, chance: &mut Chance) -> Result<(), Error> {
    let generations = scene.store.manifest().archive.generations.clone();
    match generations.is_empty() {
        true => Ok(()),
        false => scene
            .store
            .ledger()
            .activate(chance.pick(&generations).number),
    }
}

fn read_on(scene: &Scene, mut chance: Chance) -> Result<(), String> {
    let mut as_of: BTreeMap<u64, u64> = BTreeMap::new();
    while !scene.over.load(Ordering::SeqCst) {
        let number = read_once(scene)?;
        scene.answered.fetch_add(1, Ordering::SeqCst);
        if number == 0 || chance.percent(50) {
            continue;
        }
        match one_sum(&scene.store.view(), Some(number)) {
            Ok(sum) => {
                let sum = sum?;
                let first = *as_of.entry(number).or_insert(sum);
                if first != sum {
                    return Err(format!("generation {number} had {first}, now {sum}"));
                }
            }
            Err(Error::NoGeneration { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Reads everything once; the generation that was read.
///
/// # Errors
/// The difference that makes an answer wrong: something is torn, missing or too much.
pub(super) fn read_once(scene: &Scene) -> Result<u64, String> {
    let before = scene.acknowledged.load(Ordering::SeqCst);
    let reader = scene.store.view();
    let after = scene.sent.load(Ordering::SeqCst);
    let sum = one_sum(&reader, None).map_err(|error| error.to_string())??;
    if sum < before || sum > after || !sum.is_multiple_of(BATCH_SUM) {
        return Err(format!(
            "{sum} counted, not a multiple of {BATCH_SUM} in {before}..={after}"
        ));
    }
    Ok(reader.generation())
}

fn reads() -> Vec<Read> {
    let read = |(namespace, subtotal): (&str, Option<&str>)| Read {
        namespace: namespace.to_owned(),
        key: HOT.to_owned(),
        subtotal: subtotal.map(str::to_owned),
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    READS.into_iter().map(read).collect()
}

/// The sum of every series and of every breakdown, which must be one.
fn one_sum(reader: &View<'_>, as_of: Option<u64>) -> Result<Result<u64, String>, Error> {
    let mut sums = Vec::new();
    for mut read in reads() {
        let series = reader.read(&read, as_of)?;
        sums.push(series.totals.sum());
        if read.subtotal.is_some() {
            sums.push(series.points.iter().map(|point| point.count).sum());
            read.rolled = Some(TIME_MIN..TIME_MAX);
            sums.push(reader.read(&read, as_of)?.sums.iter().sum());
        }
    }
    let first = sums[0];
    if sums.iter().any(|sum| *sum != first) {
        return Ok(Err(format!(
            "the answer of manifest {} at {} is torn: {sums:?}",
            reader.manifest(),
            reader.applied()
        )));
    }
    Ok(Ok(first))
}
