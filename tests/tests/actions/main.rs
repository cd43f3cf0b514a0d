//! Actions of users in random lives of some weeks, against a list of all events that is scanned.
//!
//! A life commits events, flushes, folds, cuts, rebuilds with other numbers of shards, rolls back, dies, counts its log
//! again and grows old. After each step what users did in a random range must be what the list says: all of it from the
//! horizon on, and nothing that was not told. Counts of the same events must agree too.
//!
//! `TALLYRING_SEED=n` replays one life, `TALLYRING_SEEDS=n` runs that many, `TALLYRING_OPERATIONS=n` sets their steps.

mod events;
mod everyone;
mod life;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use life::Life;
use tallyring_archive::RunEntry;
use tallyring_records::is_actions_section;
use tallyring_tests::model::Chance;

/// Lives of an ordinary run, and steps of each.
const SEEDS: u64 = 8;
const STEPS: u64 = 120;

/// 2012-03-26, 2011-12-20 and 2011-12-31, at noon.
const STARTS: [i64; 3] = [1_332_763_200, 1_324_382_400, 1_325_332_800];
/// 2012-04-01T00:00:00Z.
const APRIL: i64 = 1_333_238_400;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

#[test]
fn users_did_what_a_list_of_all_events_says_whatever_becomes_of_the_files() {
    let one = setting("TALLYRING_SEED");
    let seeds = one.map_or(1..=setting("TALLYRING_SEEDS").unwrap_or(SEEDS), |seed| {
        seed..=seed
    });
    let steps = setting("TALLYRING_OPERATIONS").unwrap_or(STEPS);
    let (mut done, mut gone) = (BTreeMap::new(), 0);
    for seed in seeds.clone() {
        let mut chance = Chance::new(seed);
        let start = *chance.pick(&STARTS);
        let mut life = Life::new(chance, start);
        let lived = catch_unwind(AssertUnwindSafe(|| life.live(steps)));
        if lived.is_err() {
            let from = life.steps.len().saturating_sub(60);
            panic!(
                "seed {seed}, {:?}, the last of {} steps:\n{}",
                life.keep,
                life.steps.len(),
                life.steps[from..].join("\n")
            );
        }
        for (kind, times) in life.done {
            *done.entry(kind).or_insert(0) += times;
        }
        gone += life.gone;
    }
    let lives = seeds.end() + 1 - seeds.start();
    // A test that never gets anywhere would pass too.
    let is_much = gone > 0 && done.len() == 15 && done.values().all(|&times| times >= lives);
    assert!(
        is_much || lives < SEEDS || steps < STEPS,
        "{gone} gone, {done:?}"
    );
}

#[test]
fn a_month_of_actions_is_gone_from_every_file_once_all_of_it_is_old() {
    let mut life = Life::new(Chance::new(1), STARTS[0]);
    life.keep.actions = Some(10);
    let store = life.open();
    // From the 26th of March to the 13th of April, when the last of March is more than ten days old.
    let is_of_march = |file: &RunEntry| {
        let mut sections = file.meta.sums.keys();
        file.meta.first < APRIL && sections.any(|section| is_actions_section(section))
    };
    let mut of_march = Vec::new();
    for _ in 0..24 {
        life.send(&store, vec![events::click(life.now)]);
        life.pass(&store, DAY);
        life.rebuild(&store, 0);
        life.check(&store);
        of_march.push(
            store
                .manifest()
                .files()
                .filter(|file| is_of_march(file))
                .count(),
        );
    }
    assert!(of_march[14] > 0, "{of_march:?}");
    assert_eq!(of_march.last(), Some(&0), "{of_march:?}");
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}
