//! Rankings of many keys over strands: from lists of files, from heavy keys of recent hours, and from all totals.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_realtime::{Options, Reading, View};
use tallyring_records::Increment;
use tallyring_tests::model::{Chance, ManualClock};

use crate::life::{DAY, HOUR, Kept, START};

/// Counts by key and hour.
type Model = BTreeMap<(String, i64), u64>;

/// The heaviest keys first.
fn ranked(model: &Model, range: &Range<i64>) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<&String, u64> = BTreeMap::new();
    for ((key, at), count) in model {
        if range.contains(at) {
            *sums.entry(key).or_default() += count;
        }
    }
    let mut ranked: Vec<(String, u64)> =
        sums.into_iter().map(|(key, n)| (key.clone(), n)).collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked
}

/// A strand has many counts of some keys, and few of others.
fn send(strands: &[Kept], model: &mut Model, dice: &mut Chance, clicks: usize) {
    let mut by_strand: Vec<Vec<Increment>> = vec![Vec::new(); strands.len()];
    for _ in 0..clicks {
        let below = 1 + dice.below(4_000);
        let rank = dice.below(below);
        let key = match rank % 5 {
            0 => format!("link {rank} is stored as a hash"),
            _ => format!("k{rank}"),
        };
        let hours_ago = match dice.below(10) {
            0..3 => dice.below(40 * 24),
            _ => dice.below(40),
        };
        let at = START - START % HOUR - hours_ago as i64 * HOUR;
        let strand = match dice.below(3) {
            0 => rank as usize % strands.len(),
            _ => dice.below(strands.len() as u64) as usize,
        };
        *model.entry((key.clone(), at)).or_default() += 1;
        by_strand[strand].push(Increment::new(at, 1, [("l", key)]));
    }
    for (strand, increments) in strands.iter().zip(by_strand) {
        strand.count(increments);
    }
}

fn compare(strands: &[Kept], model: &Model, range: &Range<i64>, limit: usize) -> bool {
    let lives = strands.iter().map(|kept| kept.store().live());
    let view = View::over(lives, Reading::new(strands[0].store().read_budget()));
    let expected = ranked(model, range);
    let listed = &expected[..limit.min(expected.len())];
    let exact = view.top("l", range.clone(), false, (limit, true), None);
    let exact = exact.expect("a ranking");
    let of = |top: &tallyring_realtime::TopKey| (top.key.clone(), top.count);
    let keys: Vec<(String, u64)> = exact.keys.iter().map(of).collect();
    assert_eq!(keys, listed, "{limit} of {range:?}");
    let sum: u64 = expected.iter().map(|(_, count)| count).sum();
    assert_eq!(exact.total, sum, "{range:?}");
    let near = view.top("l", range.clone(), false, (limit, false), None);
    let near = near.expect("a ranking");
    let keys: Vec<(String, u64)> = near.keys.iter().map(of).collect();
    let Some(bound) = near.bound else {
        assert_eq!(keys, listed, "{limit} of {range:?}");
        return false;
    };
    assert_eq!(near.total, sum, "{range:?}");
    assert!(
        keys.iter().all(|key| expected.contains(key)),
        "counts are exact"
    );
    let mut unlisted = expected.iter().filter(|key| !keys.contains(key));
    assert!(unlisted.all(|(_, count)| *count <= bound), "{bound}");
    true
}

#[test]
fn rankings_over_strands_are_those_of_all_counts() {
    let mut dice = Chance::new(5);
    let clock = Arc::new(ManualClock::new(START * 1_000, true));
    let strands: Vec<Kept> = (0..3)
        .map(|_| Kept::new(&mut dice, &clock, Options::default().cache_bytes))
        .collect();
    let (mut model, mut near) = (Model::new(), 0);
    for round in 0..40_usize {
        send(&strands, &mut model, &mut dice, 1_500);
        let some = &strands[round % 3];
        match round % 8 {
            1 => strands
                .iter()
                .for_each(|kept| kept.store().ledger().flush().expect("flushed")),
            3 => some.store().ledger().flush().expect("flushed"),
            5 => some.rebuild(),
            7 => strands.iter().for_each(Kept::rebuild),
            _ => {}
        }
        for kept in strands.iter().filter(|_| dice.percent(50)) {
            let learned = kept
                .store()
                .live()
                .learn_heavy_keys(&AtomicBool::new(false));
            learned.expect("learned");
        }
        let end = START - START % HOUR + HOUR;
        let ranges = [
            end - 40 * DAY..end,
            end - 30 * DAY..end - 10 * DAY,
            end - (1 + dice.below(8)) as i64 * HOUR..end,
            end - 40 * HOUR..end,
        ];
        for range in ranges {
            let limit = 1 + dice.below(60) as usize;
            near += u32::from(compare(&strands, &model, &range, limit));
        }
    }
    assert!(near > 0, "no ranking was approximate");
}
