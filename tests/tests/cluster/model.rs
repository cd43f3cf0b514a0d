//! Three nodes against a naive map. The program `simulate` runs more of it.

use tallyring_tests::model::run_nodes;

const SEEDS: u64 = 40;
const OPERATIONS: u64 = 100;
const THREADS: usize = 2;

#[test]
fn nodes_count_once_what_was_acknowledged_whatever_fails() {
    let ran = run_nodes(1..1 + SEEDS, (OPERATIONS, 3), THREADS, &|_, _| {});
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
    assert!(stats.late > 0, "{stats:?}");
}
