//! The view's switches, group commits and reservations under many orders of threads.
//!
//! `cargo test --release -p tallyring-tests --no-default-features --features shuttle --test schedules`;
//! `TALLYRING_SCHEDULES=n` runs that many.

use tallyring_tests::model::{run_reservations, run_schedules};

/// Schedules of an ordinary run.
const SCHEDULES: usize = 2_000;

#[test]
fn no_order_of_threads_tears_an_answer_or_waits_for_ever() {
    run_schedules(schedules());
}

#[test]
fn no_order_of_threads_lets_reservations_exceed_a_cap() {
    // Each of them takes several times as long.
    run_reservations(schedules() / 5);
}

fn schedules() -> usize {
    let wanted = std::env::var("TALLYRING_SCHEDULES");
    wanted.map_or(SCHEDULES, |text| text.parse().expect("a number"))
}
