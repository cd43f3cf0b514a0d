//! The laws of the merge: it adds, whatever the division into runs and their order, and it refuses
//! rather than sum what it must not.

use proptest::prelude::*;
use tallyring_archive::{Error, RunEntry, names, verify_run};

use crate::model::{Click, click, lines_of};
use crate::{MemoryDisk, lines, merge_runs, read_all, spec, write, write_april};

/// Writes each part as a run of its own; parts without lines give none.
fn runs_of(disk: &MemoryDisk, parts: &[Vec<&Click>]) -> Vec<RunEntry> {
    let part_lines = parts.iter().map(|part| lines_of(part.iter().copied()));
    part_lines
        .filter_map(|lines| write(disk, spec("2012-04", 0, 1), &lines).unwrap())
        .collect()
}

/// Merging these parts gives the very file that writing all clicks at once gives.
fn check_division(clicks: &[Click], parts: &[Vec<&Click>]) -> RunEntry {
    let disk = MemoryDisk::default();
    let whole = write_april(&disk, &lines_of(clicks));
    let mut inputs = runs_of(&disk, parts);
    let forward = merge_runs(&disk, &inputs, spec("2012-04", 0, 1)).unwrap();
    inputs.reverse();
    let backward = merge_runs(&disk, &inputs, spec("2012-04", 0, 1)).unwrap();
    assert_eq!(forward, backward);
    let merged = forward.unwrap();
    assert_eq!(read_all(&disk, &merged.name).unwrap(), lines_of(clicks));
    assert_eq!(merged, whole);
    verify_run(&disk, &merged).unwrap();
    merged
}

fn divide<'c>(clicks: &'c [Click], to: &[usize], count: usize) -> Vec<Vec<&'c Click>> {
    let mut parts = vec![Vec::new(); count];
    for (click, to) in clicks.iter().zip(to.iter().cycle()) {
        parts[to % count].push(click);
    }
    parts
}

proptest! {
    #[test]
    fn merge_is_independent_of_run_boundaries(
        clicks in prop::collection::vec(click(), 1..60),
        to in prop::collection::vec(any::<usize>(), 1..60),
        count in 1..9_usize,
    ) {
        check_division(&clicks, &divide(&clicks, &to, count));
    }

    #[test]
    fn merging_merges_gives_the_same_file(
        clicks in prop::collection::vec(click(), 1..60),
        to in prop::collection::vec(any::<usize>(), 1..60),
        split in 0..6_usize,
    ) {
        let disk = MemoryDisk::default();
        let runs = runs_of(&disk, &divide(&clicks, &to, 6));
        let at_once = merge_runs(&disk, &runs, spec("2012-04", 0, 1)).unwrap();
        let (left, right) = runs.split_at(split.min(runs.len()));
        let halves: Vec<RunEntry> = [left, right]
            .into_iter()
            .filter_map(|half| merge_runs(&disk, half, spec("2012-04", 0, 1)).unwrap())
            .collect();
        prop_assert_eq!(merge_runs(&disk, &halves, spec("2012-04", 0, 1)).unwrap(), at_once);
    }
}

#[test]
fn every_division_of_a_few_rows_gives_one_file() {
    let rows: Vec<Click> = ["US", "JP", "US", "-"]
        .into_iter()
        .zip(["c413", "c41l", "c413", "c41l"])
        .map(|(country, code)| Click {
            key: "jehiah",
            code,
            country,
            referrer: "RRRRRRRRRRR1",
            count: 2,
        })
        .collect();
    for division in 0..4_usize.pow(4) {
        let to: Vec<usize> = (0..4).map(|row| division / 4_usize.pow(row) % 4).collect();
        check_division(&rows, &divide(&rows, &to, 4));
    }
}

#[test]
fn equal_records_are_added_never_dropped() {
    let disk = MemoryDisk::default();
    let run = write_april(
        &disk,
        &lines("c.u|a.c41l,US:4 JP:1\nu|a,c413:2 c41l:5\n~KKKKKKKKKKK1,text"),
    );
    let inputs = [run.clone(), run.clone(), run];
    let merged = merge_runs(&disk, &inputs, spec("2012-04", 0, 1))
        .unwrap()
        .unwrap();
    assert_eq!(
        read_all(&disk, &merged.name).unwrap(),
        lines("c.u|a.c41l,US:12 JP:3\nu|a,c413:6 c41l:15\n~KKKKKKKKKKK1,text")
    );
}

#[test]
fn a_merge_can_change_which_value_is_largest() {
    let disk = MemoryDisk::default();
    let inputs = ["US:4 JP:1", "JP:3 FR:1", "FR:3 AR:4"].map(|payload| {
        let text = format!("c.u|a.c41l,{payload}\nu|a,c41l:9");
        write_april(&disk, &lines(&text))
    });
    let merged = merge_runs(&disk, &inputs, spec("2012-04", 0, 1))
        .unwrap()
        .unwrap();
    assert_eq!(
        read_all(&disk, &merged.name).unwrap(),
        lines("c.u|a.c41l,AR:4 FR:4 JP:4 US:4\nu|a,c41l:27")
    );
}

#[test]
fn a_merge_of_nothing_is_nothing_and_leaves_nothing() {
    let disk = MemoryDisk::default();
    assert_eq!(merge_runs(&disk, &[], spec("2012-04", 0, 1)).unwrap(), None);
    assert!(disk.list(names::RUNS).unwrap().is_empty());
}

/// Merging runs of these texts fails, and nothing new has a name.
fn check_refused(texts: &[&str], is_expected: fn(&Error) -> bool, said: &[&str]) {
    let disk = MemoryDisk::default();
    let inputs: Vec<RunEntry> = texts
        .iter()
        .map(|text| write_april(&disk, &lines(text)))
        .collect();
    let error = merge_runs(&disk, &inputs, spec("2012-04", 0, 1)).unwrap_err();
    assert!(is_expected(&error), "{error}");
    for said in said {
        assert!(error.to_string().contains(said), "{error}");
    }
    let named = disk.list(names::RUNS).unwrap();
    let named = named.iter().filter(|name| name.ends_with(".csv.zst"));
    assert_eq!(named.count(), inputs.len());
}

#[test]
fn two_texts_with_one_hash_are_reported_and_not_summed() {
    let first = "u|KKKKKKKKKKK1,c41l:1\n~KKKKKKKKKKK1,one text";
    let second = "u|KKKKKKKKKKK1,c41l:1\n~KKKKKKKKKKK1,another text";
    let same = "u|KKKKKKKKKKK1,c42l:1\n~KKKKKKKKKKK1,one text";
    let collision = |error: &Error| matches!(error, Error::Collision { .. });
    let said = [
        "KKKKKKKKKKK1",
        "one text",
        "another text",
        "nothing was published",
    ];
    check_refused(&[first, second], collision, &said);
    check_refused(&[first, same, second], collision, &said);
    check_refused(&[second, first, same], collision, &said);
}

#[test]
fn a_sum_beyond_64_bits_is_reported_and_never_wraps() {
    let overflow = |error: &Error| matches!(error, Error::Overflow { .. });
    let (max, one) = ("18446744073709551615", "1");
    let total = |count: &str| format!("u|a,c41l:{count}");
    check_refused(&[&total(max), &total(one)], overflow, &["u|a"]);
    let subtotal = |count: &str| format!("c.u|a.c41l,US:{count}");
    check_refused(&[&subtotal(max), &subtotal(one)], overflow, &["c.u|a.c41l"]);
}

#[test]
fn the_books_hold_more_than_64_bits() {
    let max = "18446744073709551615";
    for (first, second) in [("u|a,c41l:", "u|a,c41m:"), ("u|a,c41l:", "u|b,c41l:")] {
        let disk = MemoryDisk::default();
        let inputs = [format!("{first}{max}"), format!("{second}1")];
        let inputs: Vec<RunEntry> = inputs
            .iter()
            .map(|text| write_april(&disk, &lines(text)))
            .collect();
        let merged = merge_runs(&disk, &inputs, spec("2012-04", 0, 1))
            .unwrap()
            .unwrap();
        assert_eq!(merged.meta.sums["u|"], 1 << 64);
        verify_run(&disk, &merged).unwrap();
    }
}

#[test]
fn the_largest_count_is_kept() {
    let disk = MemoryDisk::default();
    let first = write_april(&disk, &lines("u|a,c41l:18446744073709551614"));
    let second = write_april(&disk, &lines("u|a,c41l:1"));
    let merged = merge_runs(&disk, &[first, second], spec("2012-04", 0, 1))
        .unwrap()
        .unwrap();
    assert_eq!(
        read_all(&disk, &merged.name).unwrap(),
        lines("u|a,c41l:18446744073709551615")
    );
    verify_run(&disk, &merged).unwrap();
}
