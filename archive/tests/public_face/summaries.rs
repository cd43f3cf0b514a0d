//! Summaries of sections, their sums and lists, against a naive model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proptest::prelude::*;
use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{BlockCache, Run, RunEntry, RunWriter, Summary, TopList, verify_run};
use tallyring_records::{Day, TimeCode, shard_of};

use crate::format::zstdcat;
use crate::{Line, MemoryDisk, lines, spec, write};

/// Counts by stored key and base bucket.
type Model = BTreeMap<String, BTreeMap<String, u64>>;

/// Codes of a month: hours of three days, a folded day, and a quarter.
const CODES: [&str; 7] = ["c41", "c42l", "c42m", "c430", "c43l", "c43m2", "c4u0"];

/// So many keys that their section is long enough for a summary, and counts with a tail.
fn model() -> impl Strategy<Value = Model> {
    let counts = proptest::collection::vec(
        (0..9_000_usize, 0..CODES.len(), 1..60_u64, 0..40_u32),
        10_000..14_000,
    );
    counts.prop_map(|counts| {
        let mut model = Model::new();
        for (key, code, count, shift) in counts {
            let count = count << if shift < 8 { shift } else { 0 };
            let hours = model
                .entry(format!("k{:04}-long", key * key / 9_000))
                .or_default();
            *hours.entry(CODES[code].to_owned()).or_default() += count;
        }
        model
    })
}

fn lines_of(model: &Model) -> Vec<Line> {
    let lines = model.iter().map(|(key, hours)| {
        let hours = hours.iter().map(|(code, count)| format!("{code}:{count}"));
        let payload = hours.collect::<Vec<_>>().join(" ");
        (format!("u|{key}").into_bytes(), payload.into_bytes())
    });
    lines.collect()
}

fn code(text: &str) -> TimeCode {
    text.parse().unwrap()
}

/// Checks that a list has the heaviest keys, in order, and that its rest is the largest count of the others.
fn check_list(list: TopList<'_>, sums: &BTreeMap<&str, u64>) {
    let mut expected: Vec<(&str, u64)> = sums.iter().map(|(key, sum)| (*key, *sum)).collect();
    expected.sort_by_key(|(key, sum)| (Reverse(*sum), *key));
    let listed: Vec<(&str, u64)> = list
        .keys()
        .map(|(key, count)| (std::str::from_utf8(key).unwrap(), count))
        .collect();
    assert_eq!(listed, expected[..listed.len()]);
    let rest = expected.get(listed.len()).map_or(0, |(_, sum)| *sum);
    assert_eq!(list.rest, rest);
    assert!(!listed.is_empty() || expected.is_empty());
}

fn check(summary: &Summary, model: &Model) {
    let mut totals: BTreeMap<TimeCode, u128> = BTreeMap::new();
    let mut run: BTreeMap<&str, u64> = BTreeMap::new();
    let mut days: BTreeMap<Day, BTreeMap<&str, u64>> = BTreeMap::new();
    for (key, hours) in model {
        for (text, count) in hours {
            let code = code(text);
            *totals.entry(code).or_default() += u128::from(*count);
            *run.entry(key).or_default() += count;
            let day = days.entry(Day::of(code.start())).or_default();
            *day.entry(key).or_default() += count;
        }
    }
    assert_eq!(summary.totals().collect::<BTreeMap<_, _>>(), totals);
    check_list(summary.top(), &run);
    let april = (1..=30).map(|day| Day::of(code("c41").start() + (day - 1) * 86_400));
    for day in april {
        let list = summary.top_of(day).expect("a month has lists of days");
        check_list(list, days.get(&day).unwrap_or(&BTreeMap::new()));
    }
}

fn summary_of(disk: &MemoryDisk, entry: &RunEntry) -> Option<Summary> {
    let run = Run::open_named(disk, entry).unwrap();
    run.summary(&BlockCache::new(1 << 20), b"u|").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn prop_summaries_say_what_the_lines_of_their_run_say(model in model()) {
        let disk = MemoryDisk::default();
        let entry = write(&disk, spec("2012-04", 0, 1), &lines_of(&model)).unwrap().unwrap();
        check(&summary_of(&disk, &entry).expect("a summary"), &model);
        verify_run(&disk, &entry).unwrap();
        // A merge sums what its inputs count, and each shard of another number has its own keys.
        let inputs = [(); 2].map(|()| Run::open_named(&disk, &entry).unwrap());
        for shards in [1, 2] {
            for shard in 0..shards {
                let out = RunWriter::create(&disk, spec("2012-04", shard, shards)).unwrap();
                let merged = merge(&inputs, out, Horizon::ALL).unwrap().unwrap();
                let mut expected = model.clone();
                expected.retain(|key, _| shard_of(format!("u|{key}").as_bytes(), shards) == shard);
                let counts = expected.values_mut().flat_map(|hours| hours.values_mut());
                counts.for_each(|count| *count *= 2);
                if let Some(summary) = summary_of(&disk, &merged) {
                    check(&summary, &expected);
                }
                verify_run(&disk, &merged).unwrap();
            }
        }
    }
}

/// Lines of many keys with the same hour.
pub(crate) fn lines_of_many_keys() -> Vec<Line> {
    let text: String = (0..6_000_u32)
        .map(|key| {
            format!(
                "u|k{key:04},c41l:{} c42l:{}\n",
                1 + key * 7 % 50,
                1 + key % 3
            )
        })
        .collect();
    lines(&text)
}

#[test]
fn zstdcat_prints_the_summary_behind_the_lines() {
    let disk = MemoryDisk::default();
    let entry = write(&disk, spec("2012-04", 0, 500), &lines_of_many_keys());
    let entry = entry.unwrap().unwrap();
    let plain = String::from_utf8(zstdcat(&disk.read(&entry.name).unwrap())).unwrap();
    let (_, summary) = plain.split_once("\nsummary ").unwrap();
    let summary: Vec<&str> = summary.lines().collect();
    // Each of 500 files lists two of 1,000 keys.
    assert_eq!(
        summary,
        [
            "u|",
            "totals c41l:153000 c42l:12000",
            "top 53 k0107:53 k0257:53",
            "top c41 50 k0007:50 k0057:50",
            "top c42 3 k0002:3 k0005:3",
        ]
    );
}

#[test]
fn a_year_has_no_lists_of_days_and_short_sections_have_no_summary() {
    let disk = MemoryDisk::default();
    let year = write(&disk, spec("2012", 0, 1), &lines_of_many_keys())
        .unwrap()
        .unwrap();
    let summary = summary_of(&disk, &year).expect("a summary");
    assert!(summary.top_of(Day::of(code("c41").start())).is_none());
    assert!(summary.top().keys().count() > 0);
    let few = write(&disk, spec("2012", 0, 1), &lines_of_many_keys()[..100]);
    assert!(summary_of(&disk, &few.unwrap().unwrap()).is_none());
}

#[test]
fn a_sum_beyond_the_largest_count_is_kept_in_128_bits() {
    let disk = MemoryDisk::default();
    let mut lines = lines_of_many_keys();
    let most = 9_007_199_254_740_991_u64;
    for (_, payload) in &mut lines[..3_000] {
        *payload = format!("c41l:{most} c42l:{most}").into_bytes();
    }
    let entry = write(&disk, spec("2012-04", 0, 1), &lines)
        .unwrap()
        .unwrap();
    let summary = summary_of(&disk, &entry).expect("a summary");
    let (_, sum) = summary.totals().next().unwrap();
    assert!(sum > 3_000 * u128::from(most));
    let counts: Vec<u64> = summary.top().keys().map(|(_, count)| count).collect();
    assert!(counts.iter().all(|count| *count == most));
    assert_eq!(summary.top().rest, most);
    verify_run(&disk, &entry).unwrap();
}
