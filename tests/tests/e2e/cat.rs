//! `cat`: every stored thing as text that a person can read.

use std::collections::BTreeSet;
use std::fs::File;

use serde_json::Value;
use tallyring_tests::server::{tallyring, tallyring_ok};

use crate::stored::Stored;

fn cat(stored: &Stored, arguments: &[&str]) -> String {
    tallyring_ok(&[&["cat", "--data", stored.argument()], arguments].concat())
}

#[test]
fn cat_oplog_prints_what_was_accepted_in_order() {
    let stored = Stored::with_a_file_of_every_kind();
    let log = cat(&stored, &["oplog"]);
    let first = "at=2012-03-16T09:10:00Z n=1 key.l=link1 key.u=somebody by.c=JP \
                 by.r=http://example.org/1 id=a1";
    let line = log.lines().find(|line| line.ends_with(" id=a1"));
    let line = line.unwrap_or_else(|| panic!("a1 is not in {log}"));
    assert!(line.ends_with(&format!(" increment {first}")), "{line}");
    for part in [
        " rotate today=2012-03-17",
        " cut day-2012-03-15 day-2012-03-16",
        " reopen day=2012-03-16",
        " increment at=2012-03-16T09:30:00Z n=1 key.l=link1",
        " late at=2012-03-16T09:40:00Z n=1 key.l=link1",
    ] {
        assert!(log.contains(part), "{part} is not in the log");
    }
    let numbers: Vec<u64> = log.lines().map(number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    let from = numbers[numbers.len() / 2];
    let rest = cat(&stored, &["oplog", "--from", &from.to_string()]);
    let expected: Vec<&str> = log.lines().skip(numbers.len() / 2).collect();
    assert_eq!(rest.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn cat_oplog_prints_the_events_of_a_day_however_late_they_came() {
    let stored = Stored::with_a_file_of_every_kind();
    for (day, events) in [
        ("2012-03-16", 460),
        ("2012-03-17", 200),
        ("2012-03-18", 100),
    ] {
        let lines = cat(&stored, &["oplog", "--day", day, "--output", "json"]);
        let mut ids = BTreeSet::new();
        for line in lines.lines() {
            let record: Value = serde_json::from_str(line).expect("an object a line");
            let at = record["at"].as_str().expect("a time");
            assert!(at.starts_with(day), "{line}");
            assert!(["increment", "late"].contains(&record["record"].as_str().expect("a kind")));
            ids.insert(record["id"].as_str().expect("an id").to_owned());
        }
        assert_eq!(
            (lines.lines().count(), ids.len()),
            (events, events),
            "{day}"
        );
        assert_eq!(
            cat(&stored, &["oplog", "--day", day]).lines().count(),
            events
        );
    }
    let no_day = tallyring(&[
        "cat",
        "--data",
        stored.argument(),
        "oplog",
        "--day",
        "2012-03-20",
    ]);
    assert_eq!((no_day.code, &*no_day.stdout), (1, ""), "{no_day:?}");
    let says =
        "the log has no event of 2012-03-20 (UTC); it has events of 2012-03-16 to 2012-03-18";
    assert!(no_day.stderr.contains(says), "{no_day:?}");
    for arguments in [
        ["oplog", "--day", "yesterday"],
        ["slot", "--day", "2012-03-16"],
    ] {
        let wrong = tallyring(&[&["cat", "--data", stored.argument()], &arguments[..]].concat());
        assert_eq!(wrong.code, 2, "{wrong:?}");
        assert!(wrong.stderr.contains("day"), "{wrong:?}");
    }
}

/// The record's number: `epoch:number time …`.
fn number(line: &str) -> u64 {
    let place = line
        .split(' ')
        .next()
        .and_then(|place| place.split_once(':'));
    let number = place.and_then(|(_, number)| number.parse().ok());
    number.unwrap_or_else(|| panic!("no number in {line}"))
}

#[test]
fn cat_slot_lists_the_delta_stores_and_prints_their_counters() {
    let stored = Stored::with_a_file_of_every_kind();
    let names = cat(&stored, &["slot"]);
    let names: BTreeSet<&str> = names.lines().collect();
    assert!(names.contains("day-2012-03-18"), "{names:?}");
    assert!(names.contains("day-2012-03-19"), "{names:?}");
    assert!(
        !names.contains("day-2012-03-16"),
        "it was exported: {names:?}"
    );
    let further = names
        .iter()
        .find(|name| name.starts_with("day-2012-03-17.from-"));
    let further = cat(&stored, &["slot", further.expect("yesterday's slot")]);
    assert_eq!(further, "", "nothing came for yesterday");
    let points = cat(&stored, &["slot", "day-2012-03-18"]);
    let points: BTreeSet<&str> = points.lines().collect();
    // 2012-03-18T10 is c3ia: March is 3, the 18th i, ten o'clock a.
    for point in [
        "l|link1,c3ia → 5",
        "u|somebody,c3ia → 100",
        "c.u|somebody,US,c3ia → 34",
        "v.l|link1,-,c3ia → 5",
    ] {
        assert!(points.contains(point), "{point} is not in {points:?}");
    }
    let late = names.iter().find(|name| name.starts_with("late"));
    let late = cat(&stored, &["slot", late.expect("a late store")]);
    assert!(late.contains("u|somebody,c3g9 → 10\n"), "{late}");
    let wrong = tallyring(&["cat", "--data", stored.argument(), "slot", "day-2012-03-16"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
}

#[test]
fn cat_archive_and_cat_file_print_the_lines_that_zstd_decodes() {
    let stored = Stored::with_a_file_of_every_kind();
    let archive = cat(&stored, &["archive"]);
    assert_eq!(cat(&stored, &["archive", "2012-03"]), archive);
    let missing = tallyring(&["cat", "--data", stored.argument(), "archive", "2012-02"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("2012-02"), "{missing:?}");
    for line in [
        "u|somebody,c3g9:450 c3ha:200",
        "c.u|somebody.c3ha,JP:67 US:67 NZ:66",
    ] {
        assert!(
            archive.lines().any(|found| found == line),
            "{line} in {archive}"
        );
    }
    let manifest: Value = serde_json::from_str(&cat(&stored, &["manifest"])).expect("JSON");
    let active = manifest["archive"]["active"].as_u64();
    let generations = manifest["archive"]["generations"]
        .as_array()
        .expect("a list");
    let generation = generations
        .iter()
        .find(|entry| entry["number"].as_u64() == active);
    let files = generation.expect("the active one")["files"]
        .as_array()
        .expect("a list");
    let mut together = String::new();
    for file in files {
        let name = file["name"].as_str().expect("a name");
        let printed = cat(&stored, &["file", name]);
        let content = File::open(stored.data.join(name)).expect("open the file");
        let decoded = zstd::decode_all(content).expect("zstd decodes it");
        assert_eq!(String::from_utf8(decoded).expect("text"), printed, "{name}");
        together.push_str(&printed);
    }
    assert_eq!(together, archive);
    for directory in ["deltas", "ids", "runs"] {
        for name in stored.files(directory) {
            let content = File::open(stored.data.join(&name)).expect("open the file");
            let decoded = zstd::decode_all(content).expect("zstd decodes it");
            assert_eq!(
                decoded,
                cat(&stored, &["file", &name]).into_bytes(),
                "{name}"
            );
        }
    }
    let other = tallyring(&["cat", "--data", stored.argument(), "file", "STORE"]);
    assert_eq!(other.code, 2, "{other:?}");
    assert!(other.stderr.contains("no sorted file"), "{other:?}");
}

#[test]
fn cat_manifest_prints_any_kept_manifest_and_says_which_is_missing() {
    let stored = Stored::with_a_file_of_every_kind();
    let newest: Value = serde_json::from_str(&cat(&stored, &["manifest"])).expect("JSON");
    let number = newest["number"].as_u64().expect("a number").to_string();
    let named: Value = serde_json::from_str(&cat(&stored, &["manifest", &number])).expect("JSON");
    assert_eq!(named, newest);
    assert_eq!(newest["archive"]["active"], 2);
    let missing = tallyring(&["cat", "--data", stored.argument(), "manifest", "9999"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("manifest-00009999"), "{missing:?}");
}
