//! Three nodes against a naive map, with one strand and with three. The program `simulate` runs more of it.

use tallyring_tests::model::{Stats, run_nodes};

const SEEDS: u64 = 40;
const NODES: usize = 3;
const OPERATIONS: u64 = 100;
const THREADS: usize = 2;

#[test]
fn nodes_count_once_what_was_acknowledged_whatever_fails() {
    let stats = run(1);
    assert!(stats.late > 0, "{stats:?}");
}

#[test]
fn nodes_of_three_strands_count_a_divided_batch_once_whatever_fails() {
    run(3);
}

fn run(strands: usize) -> Stats {
    let of = (OPERATIONS, (NODES, strands));
    let ran = run_nodes(1..1 + SEEDS, of, THREADS, &|_, _| {});
    let stats = ran.unwrap_or_else(|problems| {
        let first = &problems[0];
        panic!(
            "{} of {SEEDS} seeds failed; the first:\n{first}",
            problems.len()
        );
    });
    // A run that never gets anywhere would pass, too.
    let few = [
        stats.increments,
        stats.duplicates,
        stats.flushes,
        stats.generations,
        stats.restarts,
        stats.take_overs,
        stats.unanswered,
        stats.failures,
    ];
    assert!(few.iter().all(|count| *count >= SEEDS), "{stats:?}");
    stats
}
