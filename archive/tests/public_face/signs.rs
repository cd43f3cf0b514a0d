//! Runs whose counts are taken away: a merge subtracts them, never below zero, and what becomes zero is gone.

use proptest::prelude::*;
use tallyring_archive::merge::{Horizon, merge, merge_erasing};
use tallyring_archive::{
    ArchiveEntry, Blobs, Corrects, Erasures, Error, Origin, Run, RunEntry, RunWriter, Sign,
    verify_run,
};
use tallyring_records::{UserKey, shard_of};

use crate::model::{Click, click, lines_of};
use crate::{Line, MemoryDisk, lines, read_all, spec, write};

/// Writes lines as a run of April 2012 whose counts are taken away.
fn write_minus(disk: &Blobs, version: u32, lines: &[Line]) -> Option<RunEntry> {
    let mut spec = spec("2012-04", 0, 1);
    spec.origin = Origin::Fix {
        day: "2012-04-01".parse().unwrap(),
        version,
        sign: Sign::Minus,
    };
    let corrects = Some(Corrects { from: 0, until: 9 });
    let written = write(disk, spec, lines).unwrap();
    written.map(|entry| RunEntry { corrects, ..entry })
}

fn merge_signed(disk: &Blobs, inputs: &[RunEntry]) -> Result<Option<RunEntry>, Error> {
    let inputs = Run::open_all(disk, inputs)?;
    let out = RunWriter::create(disk, spec("2012-04", 0, 1))?;
    merge(&inputs, out, Horizon::ALL)
}

/// Merges a run of `plus` with a run of `minus`.
fn merge_texts(disk: &MemoryDisk, plus: &str, minus: &str) -> Result<Option<RunEntry>, Error> {
    let plus = write(disk, spec("2012-04", 0, 1), &lines(plus)).unwrap();
    let minus = write_minus(disk, 1, &lines(minus));
    merge_signed(disk, &[plus.unwrap(), minus.unwrap()])
}

fn check_merged(plus: &str, minus: &str, expected: &str) {
    let disk = MemoryDisk::default();
    let merged = merge_texts(&disk, plus, minus).unwrap();
    let found = merged.map(|merged| {
        verify_run(&disk, &merged).unwrap();
        read_all(&disk, &merged.name).unwrap()
    });
    assert_eq!(
        found.unwrap_or_default(),
        lines(expected),
        "{plus} less {minus}"
    );
}

fn check_refused(plus: &str, minus: &str, key: &str) {
    let disk = MemoryDisk::default();
    let error = merge_texts(&disk, plus, minus)
        .expect_err(minus)
        .to_string();
    let said = format!(
        "the counts of `{key}` would fall below zero: more than was counted is taken away by \
         runs/fix-2012-04-01.v1.minus.2012-04."
    );
    assert!(error.starts_with(&said), "{error}");
}

proptest! {
    #[test]
    fn a_merge_takes_away_what_was_counted_in_any_division_and_order(
        clicks in prop::collection::vec((click(), 0..3_usize, any::<bool>()), 1..60),
        is_backward in any::<bool>(),
        split in 0..6_usize,
    ) {
        let disk = MemoryDisk::default();
        let part = |wanted: &dyn Fn(usize, bool) -> bool| -> Vec<Line> {
            let clicks = clicks.iter().filter(|(_, run, less)| wanted(*run, *less));
            lines_of(clicks.map(|(click, _, _)| click))
        };
        let mut plus: Vec<RunEntry> = (0..3)
            .filter_map(|of| write(&disk, spec("2012-04", 0, 1), &part(&|run, _| run == of)).unwrap())
            .collect();
        let mut minus: Vec<RunEntry> = (0..3)
            .filter_map(|of| write_minus(&disk, of as u32 + 1, &part(&|run, less| less && run == of)))
            .collect();
        // Counts that are added may be merged among each other first.
        let rest = plus.split_off(split.min(plus.len()));
        plus.extend(merge_signed(&disk, &rest).unwrap());
        plus.append(&mut minus);
        if is_backward {
            plus.reverse();
        }
        let merged = merge_signed(&disk, &plus).unwrap();
        let expected = part(&|_, less| !less);
        let found = merged.as_ref().map(|merged| read_all(&disk, &merged.name).unwrap());
        prop_assert_eq!(found.unwrap_or_default(), expected.clone());
        let written = write(&disk, spec("2012-04", 0, 1), &expected).unwrap();
        prop_assert_eq!(&merged, &written, "and the file is the one that never had them");
        if let Some(merged) = merged {
            verify_run(&disk, &merged).unwrap();
        }
    }

    #[test]
    fn a_merge_never_takes_more_away_than_was_counted(
        counted in prop::collection::vec(click(), 1..20),
        other in click(),
    ) {
        let disk = MemoryDisk::default();
        let plus = write(&disk, spec("2012-04", 0, 1), &lines_of(&counted)).unwrap().unwrap();
        let same = |click: &&Click| (click.key, click.code) == (other.key, other.code);
        let total: u64 = counted.iter().filter(same).map(|click| click.count).sum();
        let more = Click { count: total + 1, ..other.clone() };
        let minus = write_minus(&disk, 1, &lines_of([&more])).unwrap();
        let error = merge_signed(&disk, &[plus, minus]).unwrap_err();
        prop_assert!(matches!(error, Error::BelowZero { .. }), "{error}");
    }
}

#[test]
fn lines_and_values_that_become_zero_vanish_with_the_texts_that_nothing_uses_any_more() {
    check_merged("u|a,c413:2 c41l:5", "u|a,c413:2", "u|a,c41l:5");
    check_merged("u|a,c413:2\nu|b,c413:1", "u|a,c413:2", "u|b,c413:1");
    check_merged("u|a,c413:2", "u|a,c413:2", "");
    check_merged(
        "c.u|a.c413,US:2 JP:1\nu|a,c413:3",
        "c.u|a.c413,US:2\nu|a,c413:2",
        "c.u|a.c413,JP:1\nu|a,c413:1",
    );
    check_merged(
        "u|KKKKKKKKKKK1,c413:2\nu|b,c413:1\n~KKKKKKKKKKK1,text",
        "u|KKKKKKKKKKK1,c413:2\n~KKKKKKKKKKK1,text",
        "u|b,c413:1",
    );
}

#[test]
fn users_of_a_bucket_stay_for_as_long_as_it_counts_something() {
    let users = "AgEHDAMIAQhLu0wK";
    let plus = format!("_u.u|a.c413,{users}\n_u.u|a.c41l,{users}\nu|a,c413:2 c41l:2");
    let left = format!("_u.u|a.c41l,{users}\nu|a,c41l:1");
    check_merged(&plus, "u|a,c413:2 c41l:1", &left);
    check_merged(&plus, "u|a,c413:2 c41l:2", "");
}

#[test]
fn breakdowns_by_minute_go_with_the_day_that_is_corrected() {
    check_merged(
        "_m*c.u|a.c4110a,US:1 JP:1\n_m.u|a.c411,0a:2\nu|a,c411:2",
        "_m.u|a.c411,0a:1\nu|a,c411:1",
        "_m.u|a.c411,0a:1\nu|a,c411:1",
    );
}

/// The line of what a user did on the first of April.
fn did(values: &str) -> String {
    format!("_a.@|q2Xb9K0fJt4wLm1c.c41,{values}")
}

#[test]
fn actions_are_taken_away_by_the_second_and_else_from_their_hour() {
    let [first, second] = ["78301.click..ad=42", "78302.click..ad=42"];
    let hour = "75600~click..ad=42";
    for (plus, minus, left) in [
        (
            format!("{first}:2 {second}:1"),
            format!("{first}:2"),
            format!("{second}:1"),
        ),
        (
            format!("{hour}:9 {first}:1"),
            format!("{first}:3"),
            format!("{hour}:7"),
        ),
        (
            format!("{second}:3 {first}:2"),
            format!("{hour}:4"),
            format!("{hour}:1"),
        ),
    ] {
        check_merged(&did(&plus), &did(&minus), &did(&left));
        check_merged(&did(&plus), &did(&plus), "");
    }
    for minus in ["78301.click..ad=42:2", "78301.click.home.ad=42:1"] {
        check_refused(
            &did("78301.click..ad=42:1"),
            &did(minus),
            "_a.@|q2Xb9K0fJt4wLm1c.c41",
        );
    }
}

/// The file that counted the actions was written again without the person, and the fix was not yet.
#[test]
fn actions_of_an_erased_user_are_left_out_of_what_is_taken_away_too() {
    let disk = MemoryDisk::default();
    let others = "_a.@|r2Xb9K0fJt4wLm1c.c41,00005.click..ad=42:2";
    let plus = write(&disk, spec("2012-04", 0, 1), &lines(others)).unwrap();
    let minus = format!(
        "{}\n{}",
        did("00005.click..ad=42:3"),
        others.replace(":2", ":1")
    );
    let [plus, minus] = [plus, write_minus(&disk, 1, &lines(&minus))].map(Option::unwrap);
    let plus = RunEntry {
        erased_until: 6,
        ..plus
    };
    let mut erasures = Erasures::default();
    let user = UserKey::from_text(b"q2Xb9K0fJt4wLm1c").unwrap();
    erasures.add(&[user], 5);
    let inputs = Run::open_all(&disk, [&plus, &minus]).unwrap();
    let out = RunWriter::create(&disk, spec("2012-04", 0, 1)).unwrap();
    let merged = merge_erasing(
        &inputs,
        &[&plus, &minus],
        &erasures,
        out,
        Horizon::ALL,
        &|_| {},
    );
    let merged = merged.unwrap().unwrap();
    assert_eq!(
        read_all(&disk, &merged.name).unwrap(),
        lines(&others.replace(":2", ":1"))
    );
}

#[test]
fn a_count_below_zero_names_the_line_and_the_files() {
    check_refused("u|a,c413:2", "u|a,c413:3", "u|a");
    check_refused("u|a,c413:2", "u|a,c41l:1", "u|a");
    check_refused("u|a,c413:2", "u|b,c413:1", "u|b");
    check_refused(
        "c.u|a.c413,US:2\nu|a,c413:9",
        "c.u|a.c413,JP:1\nu|a,c413:1",
        "c.u|a.c413",
    );
    check_refused(
        "c.u|a.c413,US:2 JP:1\nu|a,c413:9",
        "c.u|a.c413,JP:2\nu|a,c413:2",
        "c.u|a.c413",
    );
}

#[test]
fn no_user_can_be_taken_away() {
    let disk = MemoryDisk::default();
    let text = "_u.u|a.c413,AgEHDAMIAQhLu0wK\nu|a,c413:2";
    let error = merge_texts(&disk, text, text).unwrap_err().to_string();
    assert!(
        error.contains("`_u.u|a.c413`: no user can be taken away"),
        "{error}"
    );
}

#[test]
fn other_content_in_the_place_of_a_run_has_its_sign_and_its_records() {
    let disk = MemoryDisk::default();
    let text = lines("u|a,c413:2");
    let plus = write(&disk, spec("2012-04", 0, 1), &text).unwrap().unwrap();
    let minus = write_minus(&disk, 1, &text).unwrap();
    assert_eq!(plus.hash, minus.hash);
    let mut by = spec("2012-04", 0, 1);
    by.level = 19;
    by.origin = Origin::Merge;
    let by = RunEntry {
        hash: "another".into(),
        ..write(&disk, by, &text).unwrap().unwrap()
    };
    let mut archive = ArchiveEntry {
        runs: vec![plus.clone(), minus.clone()],
        ..ArchiveEntry::default()
    };
    let names = archive.replace(&minus.hash, &by);
    assert_eq!(names.len(), 2);
    for (run, before) in archive.runs.iter().zip([plus, minus]) {
        let expected = (&before.origin, before.sign(), before.corrects);
        assert_eq!((&run.origin, run.sign(), run.corrects), expected);
        assert!(
            run.hash == by.hash && names.contains(&run.name),
            "{}",
            run.name
        );
    }
}

#[test]
fn counts_are_taken_away_whatever_the_numbers_of_shards() {
    let disk = MemoryDisk::default();
    let text = lines("u|a,c413:2\nu|b,c413:2\nu|c,c413:2\nu|jehiah,c413:2");
    let minus = write_minus(&disk, 1, &text).unwrap();
    for shards in [2, 3] {
        for shard in 0..shards {
            let of_shard = |(key, _): &&Line| shard_of(key, shards) == shard;
            let own: Vec<Line> = text.iter().filter(of_shard).cloned().collect();
            let Some(plus) = write(&disk, spec("2012-04", shard, shards), &own).unwrap() else {
                continue;
            };
            let inputs = Run::open_all(&disk, [&plus, &minus]).unwrap();
            let out = RunWriter::create(&disk, spec("2012-04", shard, shards)).unwrap();
            let merged = merge(&inputs, out, Horizon::ALL).unwrap();
            assert_eq!(merged, None, "shard {shard} of {shards}");
        }
    }
}
