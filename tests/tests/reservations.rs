//! Servers that reserve at once never exceed a cap by what they reserve or confirm.

use std::thread;

use tallyring_tests::model::Caps;

const SEEDS: u64 = 60;
const SERVERS: u64 = 16;
const ROUNDS: u64 = 4;

#[test]
fn servers_that_ask_at_once_never_exceed_a_cap_and_reach_it() {
    for seed in 0..SEEDS {
        let caps = Caps::new();
        thread::scope(|scope| {
            for server in 0..SERVERS {
                let caps = &caps;
                scope.spawn(move || caps.serve(seed * SERVERS + server, ROUNDS));
            }
            scope.spawn(|| caps.flush());
        });
        caps.end();
    }
}
