//! One seed, from an empty disk to the last comparison.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tallyring_realtime::{Accepted, Durability, Options};
use tallyring_records::{Day, StoreId};

use super::Driver;
use super::chance::{Chance, ManualClock};
use super::naive::Naive;
use super::nodes::{Divided, Nodes};
use crate::sim_disk::{SimDisk, Tally};

/// The work of a run, so that a test can see that the run did something.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "each name says it")]
pub struct Stats {
    pub steps: u64,
    pub reads: u64,
    pub batches: u64,
    pub increments: u64,
    pub duplicates: u64,
    pub late: u64,
    pub overflows: u64,
    pub flushes: u64,
    pub generations: u64,
    pub waited: u64,
    pub rollbacks: u64,
    pub recompressed: u64,
    pub loads: u64,
    pub fixes: u64,
    pub finals: u64,
    pub judged: u64,
    pub caught: BTreeMap<&'static str, u64>,
    pub voids: u64,
    pub deletes: u64,
    pub restarts: u64,
    pub replayed: u64,
    pub faults: u64,
    pub failures: u64,
    pub log_full: u64,
    pub verified: u64,
    pub segments_expired: u64,
    pub segments_packed: u64,
    pub segments_redacted: u64,
    pub power_losses: u64,
    pub lost_replies: u64,
    pub clock_forward: u64,
    pub clock_back: u64,
    pub harmed: u64,
    pub refused_starts: u64,
    pub copies: u64,
    pub take_overs: u64,
    pub unanswered: u64,
    pub disk: Tally,
}

/// A function that hears of each seed that is done, with the sums of all.
type Told<'t> = dyn Fn(u64, &Stats) + Sync + 't;

/// Steps of the trace that a failure prints.
const TRACE_STEPS: usize = 120;

/// 2012-03-16T22:00Z, the end of a year, the end of the years with one digit, the first day.
const STARTS: [i64; 4] = [1_331_935_200, 1_325_361_600, 1_956_513_600, 946_702_800];

/// Runs `operations` random operations drawn from `seed`.
///
/// # Errors
/// The first thing that is not as the model says, with the last steps before it.
pub(super) fn run_seed(seed: u64, operations: u64) -> Result<Stats, String> {
    let mut driver = Driver::new(seed);
    let problem = problem_of(|| driver.run(operations));
    let disk = driver.disk.tally();
    let stats = Stats {
        disk,
        reads: driver.compared.get(),
        ..driver.stats
    };
    told(seed, problem, &driver.trace, stats)
}

/// As [`run_seed`], with so many nodes that share a store of so many strands.
fn run_seed_of_nodes(
    seed: u64,
    operations: u64,
    (nodes, strands): (usize, usize),
) -> Result<Stats, String> {
    if strands == 1 {
        let mut nodes = Nodes::new(seed, nodes);
        let problem = problem_of(|| nodes.run(operations));
        return told(seed, problem, nodes.trace(), nodes.stats());
    }
    let mut divided = Divided::new(seed, (nodes, strands));
    let problem = problem_of(|| divided.run(operations));
    let stats = divided.stats();
    told(seed, problem, divided.trace(), stats)
}

/// Why a run did not end, if it did not.
fn problem_of(run: impl FnOnce() -> Result<(), String>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ran) => ran.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Some(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

fn told(
    seed: u64,
    problem: Option<String>,
    trace: &[String],
    stats: Stats,
) -> Result<Stats, String> {
    let Some(problem) = problem else {
        return Ok(stats);
    };
    let from = trace.len().saturating_sub(TRACE_STEPS);
    Err(format!(
        "seed {seed} ({}): {problem}\n{}",
        stats.steps,
        trace[from..].join("\n")
    ))
}

/// Runs many seeds on some threads; `told` hears of each when it is done.
///
/// # Errors
/// The problems of all seeds that failed, the first seed's first.
pub fn run_seeds(
    seeds: Range<u64>,
    operations: u64,
    threads: usize,
    told: &Told<'_>,
) -> Result<Stats, Vec<String>> {
    run_all(seeds, threads, told, &|seed| run_seed(seed, operations))
}

/// As [`run_seeds`], where each seed has so many nodes that share a store, and so many strands.
///
/// # Errors
/// The problems of all seeds that failed, the first seed's first.
pub fn run_nodes(
    seeds: Range<u64>,
    (operations, of): (u64, (usize, usize)),
    threads: usize,
    told: &Told<'_>,
) -> Result<Stats, Vec<String>> {
    let run = |seed| run_seed_of_nodes(seed, operations, of);
    run_all(seeds, threads, told, &run)
}

fn run_all(
    seeds: Range<u64>,
    threads: usize,
    told: &Told<'_>,
    run: &(dyn Fn(u64) -> Result<Stats, String> + Sync),
) -> Result<Stats, Vec<String>> {
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new(Stats::default());
    let failed = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match run(seed) {
                        Ok(stats) => {
                            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                            *sum += stats;
                            told(seed, &sum);
                        }
                        Err(problem) => {
                            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                            failed.insert(seed, problem);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failed.is_empty() {
        true => Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner)),
        false => Err(failed.into_values().collect()),
    }
}

/// The limit of the log's size in a life, bytes: low enough in one of five to be met, and none in the others.
fn log_bytes_max(seed: u64) -> u64 {
    match seed % 5 {
        2 => 40_000 + seed / 5 % 8 * 20_000,
        _ => u64::MAX,
    }
}

/// A number from 1 to `end`.
fn small(end: u64, chance: &mut Chance) -> u32 {
    u32::try_from(1 + chance.below(end)).expect("BUG: a small number")
}

impl Driver {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let start_ms = *chance.pick(&STARTS) * 1_000;
        let options = Options {
            shards: u16::try_from(small(5, &mut chance)).expect("BUG: at most 5"),
            durability: match chance.percent(25) {
                true => Durability::Interval(1_000),
                false => Durability::Fsync,
            },
            memory_bytes: 4 << 30,
            delta_bytes_max: 1 << (12 + chance.below(5)),
            replay_records_max: 20 + chance.below(100),
            // Mostly large enough: decoding blocks again and again is the greatest part of a run's time.
            cache_bytes: 1
                << if chance.percent(20) {
                    14 + chance.below(8)
                } else {
                    23
                },
            read_bytes_max: 256 << 20,
            queue_bytes_max: 128 << 20,
            holds_bytes_max: 64 << 20,
            segment_bytes: 4_096,
            oplog_bytes_max: log_bytes_max(seed),
            oplog_days: small(2, &mut chance),
            journal_days: if seed.is_multiple_of(4) { 3 } else { 0 },
            ids_days: if seed.is_multiple_of(3) { 6 } else { 0 },
            final_days: None,
            final_after_hours: seed.is_multiple_of(5).then_some(25),
            id_hours: small(24, &mut chance),
            breakdown_hours: small(24, &mut chance) - 1,
            logs_holds: false,
            drops_evidence: false,
            trusts_clock: false,
            flush_level: 1,
        };
        let clock = Arc::new(ManualClock::new(start_ms, chance.percent(60)));
        let mut naive = Naive::default();
        naive.history.has_pseudonyms = options.journal_days > 0;
        naive.rotate(Day::of(start_ms.div_euclid(1_000)));
        naive.ring.insert(StoreId::Late(0), false);
        Self {
            again: Chance::new(!seed),
            disk: SimDisk::default(),
            copy_disk: seed.is_multiple_of(3).then(SimDisk::default),
            clock,
            now_ms: start_ms,
            latest_ms: start_ms,
            options,
            schema: 0,
            store: None,
            naive,
            fault_at: None,
            troubled: false,
            full: false,
            pending: Vec::new(),
            unsynced: Vec::new(),
            keyed: BTreeMap::new(),
            held: None,
            attempted: None,
            attempted_fix: None,
            trace: Vec::new(),
            stats: Stats::default(),
            compared: Cell::new(0),
            proved: BTreeMap::new(),
            chance,
        }
    }

    fn run(&mut self, operations: u64) -> Result<(), String> {
        if self.chance.percent(30) {
            self.set_stop();
        }
        if !self.open()? {
            self.reopen()?;
        }
        while self.stats.steps < operations {
            self.stats.steps += 1;
            self.operation()?;
            self.copy_log();
            if self.chance.percent(30) {
                self.check_some()?;
                self.check_actions()?;
            }
            if self.chance.percent(10) {
                self.check_top()?;
                self.check_breakdown()?;
            }
            if self.is_troubled() && self.chance.percent(20) {
                self.check_all()?;
                self.reopen()?;
            }
        }
        self.check_all()?;
        self.reopen()?;
        self.check_all()?;
        self.check_copy()?;
        self.rot()
    }

    fn operation(&mut self) -> Result<(), String> {
        match self.chance.below(100) {
            0..40 if self.chance.percent(12) => self.commit().and_then(|()| self.tap()),
            0..40 => self.commit(),
            40..42 => self.load(),
            42..54 => {
                self.move_clock();
                Ok(())
            }
            54..58 => self.tick().and_then(|()| self.redact_log().map(drop)),
            58..64 => self.flush(),
            64..66 => self.cut().map(drop),
            66..74 => self.rebuild(),
            74..76 => self.build_and_hold(),
            76 => self.publish_held(),
            77 => self.drop_dataset(),
            78..80 => self.roll_back(),
            80 => self.fix(),
            81 => self.reconcile(),
            82..84 => self.expire_log(),
            84 if self.chance.percent(30) => self.prepare(),
            84 => self.pack_log().and_then(|()| self.redact_log().map(drop)),
            85 if self.chance.percent(30) => self.seal(),
            85 => self.reconcile(),
            86 => self.check_all(),
            87 if self.chance.percent(50) => self.recompress(),
            87 => self.erase(),
            88..90 => {
                self.set_fault();
                Ok(())
            }
            90..93 => {
                self.set_stop();
                for _ in 0..self.chance.below(4) {
                    self.operation()?;
                }
                self.reopen()
            }
            93..95 => {
                self.toggle_full();
                Ok(())
            }
            95 if self.chance.percent(50) => self.declare(),
            _ => self.reopen(),
        }
    }

    fn move_clock(&mut self) {
        const MINUTE: i64 = 60_000;
        const DAY: i64 = 86_400_000;
        let now = self.now_ms;
        let to = match self.chance.below(20) {
            0..8 => now + self.chance.between(0, 59) * MINUTE,
            8..13 => now + self.chance.between(1, 23) * 60 * MINUTE,
            13..16 => now - now.rem_euclid(DAY) + DAY + self.chance.between(-1, 30_000),
            16 => now + self.chance.between(2, 6) * DAY,
            17 => now + self.chance.between(20, 45) * DAY,
            18 => now - self.chance.between(0, 59) * MINUTE,
            _ => now - self.chance.between(1, 72) * 60 * MINUTE,
        };
        self.note(format!(
            "the clock goes from {now} by {} s",
            (to - now) / 1_000
        ));
        if to < now {
            self.stats.clock_back += 1;
        } else {
            self.stats.clock_forward += 1;
        }
        self.set_clock(to.max(STARTS[3] * 1_000));
    }

    fn prepare(&mut self) -> Result<(), String> {
        self.note("prepare a segment".to_owned());
        match self.store().intake().prepare_segment() {
            Ok(()) => Ok(()),
            Err(error) => self.allow("preparing", &error.to_string()),
        }
    }

    fn seal(&mut self) -> Result<(), String> {
        self.note("seal".to_owned());
        match self.store().intake().seal() {
            Ok(()) => Ok(()),
            Err(error) => self.allow("sealing", &error.to_string()),
        }
    }
}

impl Stats {
    /// A batch was answered.
    pub(super) fn count(&mut self, accepted: &Accepted) {
        self.increments += accepted.accepted;
        self.duplicates += accepted.duplicates;
        self.late += accepted.late;
    }

    /// Increments sent, answers compared with the model, and other steps.
    pub fn operations(&self) -> u64 {
        self.increments + self.duplicates + self.reads + self.steps
    }

    /// How often each kind of fault came; the disk's by their own names.
    pub fn faults(&self) -> BTreeMap<String, u64> {
        let of_disk = self.disk.iter();
        let mut faults: BTreeMap<String, u64> = of_disk
            .map(|(kind, count)| (format!("{kind:?}"), count))
            .collect();
        let others = [
            ("PowerLoss", self.power_losses),
            ("KilledProcess", self.restarts - self.power_losses),
            ("LostReply", self.lost_replies),
            ("RepeatedRequest", self.duplicates),
            ("ClockForward", self.clock_forward),
            ("ClockBack", self.clock_back),
        ];
        faults.extend(others.map(|(name, count)| (name.to_owned(), count)));
        faults.retain(|_, count| *count > 0);
        faults
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.reads += other.reads;
        self.batches += other.batches;
        self.increments += other.increments;
        self.duplicates += other.duplicates;
        self.late += other.late;
        self.overflows += other.overflows;
        self.flushes += other.flushes;
        self.generations += other.generations;
        self.waited += other.waited;
        self.rollbacks += other.rollbacks;
        self.recompressed += other.recompressed;
        self.loads += other.loads;
        self.fixes += other.fixes;
        self.finals += other.finals;
        self.judged += other.judged;
        for (rule, caught) in other.caught {
            *self.caught.entry(rule).or_default() += caught;
        }
        self.voids += other.voids;
        self.deletes += other.deletes;
        self.restarts += other.restarts;
        self.replayed += other.replayed;
        self.faults += other.faults;
        self.failures += other.failures;
        self.log_full += other.log_full;
        self.verified += other.verified;
        self.segments_expired += other.segments_expired;
        self.segments_packed += other.segments_packed;
        self.segments_redacted += other.segments_redacted;
        self.power_losses += other.power_losses;
        self.lost_replies += other.lost_replies;
        self.clock_forward += other.clock_forward;
        self.clock_back += other.clock_back;
        self.harmed += other.harmed;
        self.refused_starts += other.refused_starts;
        self.copies += other.copies;
        self.take_overs += other.take_overs;
        self.unanswered += other.unanswered;
        self.disk.add_all(&other.disk);
    }
}
