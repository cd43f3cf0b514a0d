//! Totals longer than a block: they continue month by month, however they came together.

use proptest::prelude::*;
use tallyring_archive::{BLOCK_BYTES, BlockCache, Run, RunEntry, verify_run};

use crate::{Line, MemoryDisk, merge_runs, read_all, read_from, spec, write};

/// All hours of 2012, as codes.
fn hours_of_2012() -> Vec<String> {
    let start: jiff::Timestamp = "2012-01-01T00:00:00Z".parse().unwrap();
    (0..366 * 24)
        .map(|hour| {
            let time = (start + jiff::SignedDuration::from_hours(hour))
                .to_zoned_datetime(jiff::tz::TimeZone::UTC);
            let digits = [time.month(), time.day(), time.hour()];
            let digits =
                digits.map(|digit| char::from_digit(digit.unsigned_abs().into(), 32).unwrap());
            format!("c{}", String::from_iter(digits))
        })
        .collect()
}

/// `u|long` with these hours, as the model has it: one line, or one a month if that is too long.
fn long_lines(hours: &[(&str, u64)]) -> Vec<Line> {
    let payload = |hours: &[(&str, u64)]| -> Vec<u8> {
        let entries = hours.iter().map(|(code, count)| format!("{code}:{count}"));
        entries.collect::<Vec<_>>().join(" ").into_bytes()
    };
    let line = |hours: &[(&str, u64)]| (b"u|long".to_vec(), payload(hours));
    if hours.is_empty() {
        return Vec::new();
    }
    if payload(hours).len() <= BLOCK_BYTES {
        return vec![line(hours)];
    }
    hours
        .chunk_by(|a, b| a.0[..2] == b.0[..2])
        .map(line)
        .collect()
}

fn around(long: Vec<Line>) -> Vec<Line> {
    let line = |key: &str| (key.into(), b"c411:1".to_vec());
    let mut lines = vec![line("u|before")];
    lines.extend(long);
    lines.extend([
        line("u|longer"),
        (b"~KKKKKKKKKKK1".to_vec(), b"text".to_vec()),
    ]);
    lines
}

/// Runs with the hours that `part_of` gives them merge into what all hours give at once.
fn check_parts(
    counts: u64,
    parts: usize,
    part_of: impl Fn(usize) -> usize,
) -> (MemoryDisk, RunEntry) {
    let disk = MemoryDisk::default();
    let hours = hours_of_2012();
    let mut inputs = Vec::new();
    for part in 0..parts {
        let kept = hours
            .iter()
            .enumerate()
            .filter(|(at, _)| part_of(*at) == part);
        let kept: Vec<(&str, u64)> = kept.map(|(_, code)| (code.as_str(), counts)).collect();
        let mut lines = long_lines(&kept);
        if part == 0 {
            lines = around(lines);
        }
        inputs.extend(write(&disk, spec("2012", 0, 1), &lines).unwrap());
    }
    let all: Vec<(&str, u64)> = hours.iter().map(|code| (code.as_str(), counts)).collect();
    let merged = merge_runs(&disk, &inputs, spec("2012", 0, 1))
        .unwrap()
        .unwrap();
    let expected = around(long_lines(&all));
    assert!(read_all(&disk, &merged.name).unwrap() == expected);
    let at_once = write(&disk, spec("2012", 0, 1), &expected)
        .unwrap()
        .unwrap();
    assert_eq!(merged, at_once);
    let checked = verify_run(&disk, &merged).unwrap();
    assert_eq!(checked.buckets, 366 * 24 + 2);
    (disk, merged)
}

#[test]
fn a_total_longer_than_a_block_is_split_at_month_ends_and_read_back() {
    let (disk, entry) = check_parts(100_000, 12, |at| at / (366 * 2));
    let run = Run::open(&disk, &entry.name).unwrap();
    assert!(run.block_count() > 1);
    for cache_bytes in [0, 1 << 20] {
        let cache = BlockCache::new(cache_bytes);
        let from = read_from(&run, &cache, b"u|long", 13).unwrap();
        let (long, next) = from.split_at(12);
        assert!(long.iter().all(|(key, _)| key == b"u|long"));
        for (month, (_, payload)) in [
            "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "ca", "cb", "cc",
        ]
        .iter()
        .zip(long)
        {
            let payload = String::from_utf8_lossy(payload);
            assert!(payload.split(' ').all(|entry| entry.starts_with(month)));
        }
        assert_eq!(next[0].0, b"u|longer");
    }
}

#[test]
fn one_run_alone_keeps_its_long_total() {
    check_parts(100_000, 1, |_| 0);
}

#[test]
fn a_total_that_just_fits_stays_one_line() {
    // 8,784 hours of `c411:1` and the spaces between are 61,487 bytes.
    let (disk, entry) = check_parts(1, 7, |at| at % 7);
    let lines = read_all(&disk, &entry.name).unwrap();
    assert_eq!(lines.iter().filter(|(key, _)| key == b"u|long").count(), 1);
    assert_eq!(lines[1].1.len(), 61_487);
}

#[test]
fn short_totals_become_a_long_one_and_long_ones_meet_short_ones() {
    check_parts(1_000, 2, |at| usize::from(at == 5_000));
    check_parts(1_000, 2, |at| usize::from(at != 5_000));
    check_parts(1_000, 3, |at| at % 3);
    check_parts(1_000, 366, |at| at / 24);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn prop_however_the_hours_are_divided(
        seed in any::<u64>(),
        parts in 1..20_usize,
        counts in prop_oneof![Just(1_u64), Just(100), Just(1 << 30)],
    ) {
        check_parts(counts, parts, |at| {
            // Runs of hours of uneven length, scattered over the parts.
            let stretch = (at as u64 / 37).wrapping_mul(seed | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (stretch >> 33) as usize % parts
        });
    }

    #[test]
    fn prop_any_boundary_between_lines_and_blocks(before in 0..70_000_usize, count in 1..u64::from(u32::MAX)) {
        let disk = MemoryDisk::default();
        let hours = hours_of_2012();
        let hours: Vec<(&str, u64)> = hours.iter().map(|code| (code.as_str(), count)).collect();
        let mut lines = vec![(b"c.u|a.c411".to_vec(), [&vec![b'x'; before + 1][..], b":1"].concat())];
        lines.extend(around(long_lines(&hours)));
        let entry = write(&disk, spec("2012", 0, 1), &lines).unwrap().unwrap();
        let run = Run::open(&disk, &entry.name).unwrap();
        let cache = BlockCache::new(1 << 20);
        for from in ["", "u|before", "u|lon", "u|long", "u|long-", "u|longer", "~"] {
            let found = read_from(&run, &cache, from.as_bytes(), usize::MAX).unwrap();
            let expected = lines.iter().filter(|(key, _)| **key >= *from.as_bytes());
            prop_assert!(found.iter().eq(expected), "from {}", from);
        }
    }
}
