//! The spine, from the log to a published generation, against a naive map.
//!
//! `TALLYRING_SEED=n` replays one seed, `TALLYRING_SEEDS=n` runs that many from
//! `TALLYRING_SEED_FIRST` (or 1) on, `TALLYRING_OPERATIONS=n` sets how many operations each has.

use std::io::Write as _;

use tallyring_tests::model::{Stats, run_readers, run_seeds};

/// A run asks for little else than small texts and maps.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds of an ordinary test run: ten million operations, in three to four minutes of two cores.
const SEEDS: u64 = 680;
const OPERATIONS: u64 = 150;
const THREADS: usize = 2;
/// Increments, compared answers and steps that a seed of ordinary length makes, at least, on average.
const OPERATIONS_A_SEED: u64 = 14_000;
/// Kinds of fault that a run of all seeds must meet.
const FAULT_KINDS: usize = 18;

#[test]
fn every_read_equals_a_naive_map_under_crashes_rebuilds_and_rollbacks() {
    let (first, count) = match setting("TALLYRING_SEED") {
        Some(seed) => (seed, 1),
        None => (
            setting("TALLYRING_SEED_FIRST").unwrap_or(1),
            setting("TALLYRING_SEEDS").unwrap_or(SEEDS),
        ),
    };
    let operations = setting("TALLYRING_OPERATIONS").unwrap_or(OPERATIONS);
    let stats = match run_seeds(first..first + count, operations, THREADS, &|_, _| {}) {
        Ok(stats) => stats,
        Err(problems) => {
            let heads = problems.iter().filter_map(|text| text.lines().next());
            let heads: Vec<&str> = heads.collect();
            panic!(
                "{} of {count} seeds failed:\n{}\nthe first in full:\n{}",
                heads.len(),
                heads.join("\n"),
                problems[0]
            );
        }
    };
    // Past the test harness, which keeps what a test prints that passes.
    let told = format!("{count} seeds, {} operations\n", stats.operations());
    std::io::stderr()
        .write_all(told.as_bytes())
        .expect("standard error");
    check_coverage(count, &stats);
}

/// A model test that never gets anywhere would pass too.
fn check_coverage(seeds: u64, stats: &Stats) {
    let few = [
        stats.increments,
        stats.duplicates,
        stats.late,
        stats.flushes,
        stats.generations,
        stats.waited,
        stats.rollbacks,
        stats.loads,
        stats.fixes,
        stats.restarts,
        stats.replayed,
        stats.faults,
        stats.failures,
        stats.segments_expired,
        stats.segments_packed,
    ];
    assert!(seeds < 50 || stats.recompressed > 0, "{stats:#?}");
    assert!(seeds < 50 || stats.segments_redacted > 0, "{stats:#?}");
    assert!(
        seeds < 50 || few.iter().all(|count| *count >= seeds / 2),
        "{seeds} seeds did little: {stats:?}"
    );
    assert!(seeds < 50 || stats.overflows > 0, "{stats:?}");
    assert!(seeds < 50 || stats.log_full >= seeds / 10, "{stats:?}");
    assert!(seeds < 50 || stats.finals >= seeds / 2, "{stats:?}");
    assert!(
        seeds < 50
            || stats.judged >= seeds && stats.voids >= seeds / 4 && stats.deletes >= seeds / 4,
        "{stats:?}"
    );
    // Rules with memory must catch repeats, events that come too often, and those that lack one before them.
    let caught = ["twice", "many", "lone"].map(|rule| stats.caught.get(rule).copied().unwrap_or(0));
    assert!(
        seeds < 50 || caught.iter().all(|caught| *caught >= seeds / 3),
        "{stats:?}"
    );
    let operations = stats.operations();
    assert!(
        seeds < 50 || operations >= seeds * OPERATIONS_A_SEED,
        "only {operations} operations: {stats:?}"
    );
    let faults = stats.faults();
    assert!(seeds < 50 || faults.len() >= FAULT_KINDS, "{faults:?}");
}

#[test]
fn no_answer_beside_a_writer_holds_half_of_a_click_or_of_a_publication() {
    for seed in 1..=4 {
        let answers = run_readers(seed, 400).unwrap_or_else(|torn| panic!("{torn}"));
        assert!(
            answers > 100,
            "seed {seed}: only {answers} answers were read"
        );
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}
