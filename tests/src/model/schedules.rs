//! Writers, a reader and the threads that fold, flush, rebuild and roll back, in many orders: a scheduler decides at
//! every lock of the store who goes on, so that orders come up which no machine would find in years.
//!
//! Invariants: those of `torn`: an answer holds whole batches, all that were acknowledged before it was asked for,
//! and nobody waits for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::caps::Caps;
use super::chance::Chance;
use super::torn::{START_MS, Scene, commit, read_once, rebuild, roll_back};

/// The stack of each thread: a merge needs more than the scheduler gives by itself.
const STACK_BYTES: usize = 2 << 20;
/// Changes of thread that the second scheduler makes at most, each where it hurts.
const DEPTH: usize = 3;

/// Runs half of the schedules at random, half with few but well-placed changes of thread.
///
/// # Panics
/// When a schedule tears an answer or ends in a deadlock; it prints what replays it.
pub fn run_schedules(schedules: usize) {
    run(schedules, scenario);
}

/// As [`run_schedules`], of servers that reserve at once.
///
/// # Panics
/// When a schedule exceeds a cap or ends in a deadlock; it prints what replays it.
pub fn run_reservations(schedules: usize) {
    run(schedules, reservations);
}

fn run(schedules: usize, scenario: fn()) {
    run_by(RandomScheduler::new(schedules.div_ceil(2)), scenario);
    run_by(PctScheduler::new(DEPTH, schedules / 2), scenario);
}

fn run_by(scheduler: impl Scheduler + 'static, scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(scheduler, config).run(scenario);
}

fn reservations() {
    let caps = Arc::new(Caps::new());
    let serve = |seed| {
        let caps = Arc::clone(&caps);
        thread::spawn(move || caps.serve(seed, 3))
    };
    let mut threads: Vec<_> = (0..3).map(serve).collect();
    let flushed = Arc::clone(&caps);
    threads.push(thread::spawn(move || flushed.flush()));
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    caps.end();
}

fn scenario() {
    let scene = Arc::new(Scene::new().expect("an empty store opens"));
    let threads = [write, write, fold, change, read].map(|act| {
        let scene = Arc::clone(&scene);
        thread::spawn(move || act(&scene))
    });
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    read_once(&scene).expect("an answer that is whole");
    let sum = scene.acknowledged.load(Ordering::SeqCst);
    assert!(sum > 0, "something was counted");
}

fn write(scene: &Scene) {
    let mut chance = Chance::new(7);
    for _ in 0..3 {
        commit(scene, &mut chance, START_MS).expect("a sound disk");
    }
}

fn fold(scene: &Scene) {
    for _ in 0..3 {
        scene.store.live().fold();
        thread::yield_now();
    }
}

fn change(scene: &Scene) {
    let mut chance = Chance::new(8);
    scene.store.ledger().flush().expect("a sound disk");
    rebuild(scene).expect("a sound disk");
    scene.store.ledger().flush().expect("a sound disk");
    rebuild(scene).expect("a sound disk");
    roll_back(scene, &mut chance).expect("a sound disk");
    scene.store.intake().tick().expect("a sound disk");
}

fn read(scene: &Scene) {
    for _ in 0..4 {
        read_once(scene).unwrap_or_else(|torn| panic!("{torn}"));
    }
}
