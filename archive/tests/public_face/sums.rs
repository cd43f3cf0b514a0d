//! Sums of values over all keys, against a naive model.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use tallyring_archive::merge::{Horizon, merge};
use tallyring_archive::{BlockCache, Run, RunEntry, RunWriter, verify_run};
use tallyring_records::{TimeCode, shard_of};

use crate::format::zstdcat;
use crate::{Line, MemoryDisk, lines, spec, write};

/// Counts by stored key, base bucket and value.
type Model = BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>;

const DAY: i64 = 86_400;

/// Codes of a month: hours of four days, a folded day, and a quarter.
const CODES: [&str; 8] = [
    "c41", "c42l", "c42m", "c430", "c43l", "c43m2", "c4u0", "c4un",
];

/// So many keys that their section is long enough for sums. Some values are rare.
fn model(values: u64) -> impl Strategy<Value = Model> {
    let counts = proptest::collection::vec(
        (0..5_000_u32, 0..CODES.len(), 0..values, 1..60_u64),
        12_000..14_000,
    );
    counts.prop_map(move |counts| {
        let mut model = Model::new();
        for (key, code, value, count) in counts {
            let hours = model.entry(format!("k{key:04}-long")).or_default();
            let value = format!("V{}", value * value / values);
            let values = hours.entry(CODES[code].to_owned()).or_default();
            *values.entry(value).or_default() += count;
        }
        model
    })
}

fn lines_of(model: &Model) -> Vec<Line> {
    let (mut values, mut totals) = (String::new(), String::new());
    for (key, hours) in model {
        let mut buckets = Vec::new();
        for (code, counts) in hours {
            let mut counts: Vec<(&String, &u64)> = counts.iter().collect();
            counts.sort_by_key(|(value, count)| (std::cmp::Reverse(**count), *value));
            let entries = counts
                .iter()
                .map(|(value, count)| format!("{value}:{count}"));
            let entries = entries.collect::<Vec<_>>().join(" ");
            values.push_str(&format!("c.u|{key}.{code},{entries}\n"));
            let total: u64 = counts.iter().map(|(_, count)| **count).sum();
            buckets.push(format!("{code}:{total}"));
        }
        totals.push_str(&format!("u|{key},{}\n", buckets.join(" ")));
    }
    lines(&(values + &totals))
}

fn start(text: &str) -> i64 {
    text.parse::<TimeCode>().unwrap().start()
}

fn expected(model: &Model, range: &Range<i64>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let hours = model.values().flatten();
    for (_, values) in hours.filter(|(code, _)| range.contains(&start(code))) {
        for (value, count) in values {
            *sums.entry(value.clone()).or_default() += count;
        }
    }
    sums
}

/// The sums that a run says; none where its lines have to be read.
fn sums(disk: &MemoryDisk, entry: &RunEntry, range: &Range<i64>) -> Option<BTreeMap<String, u64>> {
    let run = Run::open_named(disk, entry).unwrap();
    let mut sums = BTreeMap::new();
    let visit = &mut |value: &[u8], sum| {
        let value = String::from_utf8(value.to_vec()).unwrap();
        assert_eq!(sums.insert(value, sum), None, "a value comes once");
    };
    let is_kept = run.sum_values(&BlockCache::new(1 << 20), b"c.u|", range, visit);
    is_kept.unwrap().then_some(sums)
}

fn april() -> Range<i64> {
    start("c41")..start("c51")
}

/// Ranges of whole days, and of parts of days.
fn ranges() -> Vec<Range<i64>> {
    let (from, to) = (april().start, april().end);
    let days = (0..4).map(|day| from + day * DAY..from + (day + 2) * DAY);
    let hours = [
        start("c42m")..to,
        from..start("c43l"),
        start("c42l")..start("c42m"),
    ];
    days.chain(hours)
        .chain(std::iter::once(from - DAY..to + DAY))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn prop_sums_say_what_the_lines_of_their_run_say(model in model(20)) {
        let disk = MemoryDisk::default();
        let entry = write(&disk, spec("2012-04", 0, 1), &lines_of(&model)).unwrap().unwrap();
        verify_run(&disk, &entry).unwrap();
        for range in ranges() {
            prop_assert_eq!(sums(&disk, &entry, &range), Some(expected(&model, &range)));
        }
        // A merge sums what its inputs count, and each shard of another number has its own keys.
        let inputs = [(); 2].map(|()| Run::open_named(&disk, &entry).unwrap());
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for shard in 0..2 {
            let out = RunWriter::create(&disk, spec("2012-04", shard, 2)).unwrap();
            let merged = merge(&inputs, out, Horizon::ALL).unwrap().unwrap();
            let mut own = model.clone();
            own.retain(|key, _| shard_of(format!("u|{key}").as_bytes(), 2) == shard);
            verify_run(&disk, &merged).unwrap();
            for range in ranges() {
                let mut doubled = expected(&own, &range);
                doubled.values_mut().for_each(|sum| *sum *= 2);
                let found = sums(&disk, &merged, &range);
                prop_assert!(found.is_none_or(|found| found == doubled));
            }
            let shard_sums = sums(&disk, &merged, &april());
            for (value, sum) in shard_sums.expect("sums of the whole run") {
                *all.entry(value).or_default() += sum;
            }
        }
        let mut doubled = expected(&model, &april());
        doubled.values_mut().for_each(|sum| *sum *= 2);
        prop_assert_eq!(all, doubled);
    }

    #[test]
    fn prop_sums_of_many_values_are_right_or_not_there(model in model(2_000)) {
        let disk = MemoryDisk::default();
        let entry = write(&disk, spec("2012-04", 0, 1), &lines_of(&model)).unwrap().unwrap();
        verify_run(&disk, &entry).unwrap();
        for range in ranges() {
            let found = sums(&disk, &entry, &range);
            prop_assert!(found.is_none_or(|found| found == expected(&model, &range)));
        }
    }
}

/// Clicks of many keys on some days of a month, by few values: every number is another.
fn clicks(keys: u32, days: u32, values: u32) -> Model {
    let mut state = 1_u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut model = Model::new();
    for key in 0..keys {
        let hours = model.entry(format!("k{key:04}")).or_default();
        for _ in 0..15 {
            let digits = [4, 1 + random(days), random(24)];
            let digits = digits.map(|digit| char::from_digit(digit, 32).unwrap());
            let of_hour = hours
                .entry(format!("c{}", String::from_iter(digits)))
                .or_default();
            of_hour.insert(format!("V{}", random(values)), u64::from(1 + random(90)));
        }
    }
    model
}

/// Clicks whose file keeps sums by base bucket.
pub(crate) fn lines_of_clicks() -> Vec<Line> {
    lines_of(&clicks(1_200, 3, 6))
}

#[test]
fn sums_are_a_small_part_of_a_file_and_days_stand_for_hours_that_would_be_too_many() {
    let disk = MemoryDisk::default();
    let model = clicks(6_000, 30, 40);
    let entry = write(&disk, spec("2012-04", 0, 1), &lines_of(&model));
    let entry = entry.unwrap().unwrap();
    let plain = String::from_utf8(zstdcat(&disk.read(&entry.name).unwrap())).unwrap();
    let (_, times) = plain.split_once("\ntimes c.u| days\n").expect("days");
    let times = times.lines().take_while(|line| line.starts_with("c4"));
    assert_eq!(times.count(), 30);
    let days = start("c43")..start("c45");
    assert_eq!(sums(&disk, &entry, &days), Some(expected(&model, &days)));
    assert_eq!(sums(&disk, &entry, &(days.start + 3_600..days.end)), None);
    verify_run(&disk, &entry).unwrap();
}

/// Numbers in the letters of columns.
fn numbers(text: &str) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut number = 0;
    for digit in text.bytes() {
        number = number * 26 + u64::from(digit.to_ascii_lowercase() - b'a');
        if digit.is_ascii_lowercase() {
            numbers.push(std::mem::take(&mut number));
        }
    }
    numbers
}

#[test]
fn zstdcat_prints_the_sums_behind_the_list_of_values() {
    let disk = MemoryDisk::default();
    let model = clicks(6_000, 2, 3);
    let entry = write(&disk, spec("2012-04", 0, 1), &lines_of(&model));
    let plain = zstdcat(&disk.read(&entry.unwrap().unwrap().name).unwrap());
    let plain = String::from_utf8(plain).unwrap();
    let (_, text) = plain.split_once("\nlist c.u|\n").unwrap();
    let text: Vec<&str> = text.lines().collect();
    assert_eq!(text[3..5], ["sums c.u|", "values "]);
    let of = |range: &Range<i64>| {
        let sums = expected(&model, range);
        let of = |value: &&str| sums.get(*value).copied().unwrap_or(0);
        text[..3].iter().map(of).collect::<Vec<u64>>()
    };
    let counts = text[5].strip_prefix("counts ").unwrap();
    assert_eq!(numbers(counts), of(&april()));
    assert_eq!(text[6], "times c.u| buckets");
    for line in &text[7..7 + 48] {
        let (code, counts) = line.split_once(' ').unwrap();
        assert_eq!(numbers(counts), of(&(start(code)..start(code) + 1)));
    }
}

#[test]
fn what_users_did_and_minutes_have_no_sums_and_neither_have_short_sections() {
    let disk = MemoryDisk::default();
    let mut minutes = String::new();
    for key in 0..9_000_u32 {
        minutes.push_str(&format!("_m.u|k{key:04}.c41l,1q:3 1r:2\n"));
    }
    let entry = write(&disk, spec("2012-04", 0, 1), &lines(&minutes))
        .unwrap()
        .unwrap();
    let plain = String::from_utf8(zstdcat(&disk.read(&entry.name).unwrap())).unwrap();
    assert!(!plain.contains("\nsums "));
    let few = lines("c.u|a.c41l,US:4 JP:1\nu|a,c41l:5\n");
    let entry = write(&disk, spec("2012-04", 0, 1), &few).unwrap().unwrap();
    assert_eq!(sums(&disk, &entry, &april()), None);
}

#[test]
fn sums_beyond_64_bits_are_left_out() {
    let disk = MemoryDisk::default();
    let mut model = clicks(6_000, 30, 40);
    let values = model.values_mut().flat_map(|hours| hours.values_mut());
    for values in values {
        *values = BTreeMap::from([("V".to_owned(), 9_007_199_254_740_991)]);
    }
    let entry = write(&disk, spec("2012-04", 0, 1), &lines_of(&model));
    let entry = entry.unwrap().unwrap();
    assert!(entry.meta.sums["c.u|"] > u128::from(u64::MAX));
    assert_eq!(sums(&disk, &entry, &april()), None);
    verify_run(&disk, &entry).unwrap();
}
