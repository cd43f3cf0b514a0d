//! Bytes that stay as they are for ever: every golden file is read, and this build writes the same bytes again.
//!
//! `README.md` says what each file is and which build made it.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use data_encoding::HEXLOWER;
use tallyring_records::{
    Accepted, Consumed, DatasetGone, Day, Delete, Details, Event, EventType, Evidence, Filter,
    FinalSums, Grain, INSTALLATION, Increment, KeyEntry, List, ListKind, LoggedDataset,
    LoggedFinal, LoggedHold, LongKeys, Namespace, Offset, Origin, Point, Ratio, Record, Schema,
    Scope, Shared, ShownHold, Skipped, StoreId, TimeCode, TopicPartition, User, UserKey, Users,
    Void, content_hash, decode_all, shard_of,
};

/// The text of a golden file, which must be the text that this build writes.
fn golden(name: &str, written: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&made, written).unwrap();
    let (path, made) = (path.display(), made.display());
    let kept = fs::read_to_string(path.to_string())
        .unwrap_or_else(|error| panic!("{path}: {error}; this build would write {made}"));
    let lines = kept.lines().zip(written.lines());
    for (number, (kept, written)) in (1..).zip(lines) {
        assert_eq!(written, kept, "{path}:{number}: the format changed");
    }
    assert_eq!(
        written.len(),
        kept.len(),
        "{path} has other lines than {made}"
    );
    kept
}

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

/// Every field of a declaration.
fn schema() -> Schema {
    let namespace = |name: &str, grain, minutes, uniques| Namespace {
        name: name.into(),
        title: format!("Title of {name}"),
        grain,
        subtotals: vec!["c".into(), "c*v".into()],
        minutes,
        uniques,
    };
    Schema {
        namespaces: vec![
            namespace("l", Grain::Hour, false, true),
            namespace("q", Grain::Quarter, true, false),
        ],
        events: vec![EventType {
            name: "click".into(),
            entities: vec!["ad".into()],
            lateness_seconds: 300,
            actions: false,
        }],
        ratios: vec![Ratio {
            name: "ctr".into(),
            numerator: "click".into(),
            denominator: "impression".into(),
        }],
        filters: vec![Filter::of_values("bots", &["click"], "by.c", &["bot"])],
        lists: Vec::new(),
        titles: BTreeMap::from([("c".to_owned(), "country".to_owned())]),
        settings: BTreeMap::new(),
    }
}

/// An increment with every field that a record without an event has.
fn increment() -> Increment {
    Increment {
        by: vec![("c".into(), "US".into()), ("r".into(), "http://a/".into())],
        id: Some("id-1".into()),
        user: Some("user-1".into()),
        ..Increment::new(1_331_923_247, 300, [("l", "abc"), ("u", "jehiah")])
    }
}

/// That increment, as an event of a producer.
fn event(correction: bool) -> Increment {
    Increment {
        event: Some(Box::new(Event {
            kind: "click".into(),
            view: Some("view-1".into()),
            correction,
        })),
        origin: Some(Box::new(Origin {
            producer: "producer-1".into(),
            epoch: 2,
            sequence: 1_000_000,
        })),
        ..increment()
    }
}

fn batch(filtered: u64, skipped: Vec<Skipped>) -> Record {
    Record::Batch {
        identity: None,
        key: "batch-1".into(),
        body: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        accepted: Accepted {
            accepted: 3,
            duplicates: 2,
            late: 1,
            filtered,
            skipped,
            ..Accepted::default()
        },
    }
}

fn refused(namespaces: &[&str]) -> Record {
    Record::Refused {
        identity: None,
        id: "id-2".into(),
        field: "keys.x".into(),
        detail: "is not declared".into(),
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
    }
}

/// Records of every kind; several where a kind has several forms.
fn records() -> Vec<Record> {
    let plain = Increment::new(-1, 1, [("l", "a")]);
    let without_origin = Increment {
        origin: None,
        ..event(false)
    };
    let without_event = Increment {
        event: None,
        ..event(false)
    };
    let skipped = vec![Skipped {
        index: 200,
        field: "n".into(),
        detail: "is 0".into(),
    }];
    vec![
        Record::Increment(plain),
        Record::Increment(increment()),
        Record::Duplicate {
            identity: None,
            id: "id-1".into(),
            of: 128,
        },
        Record::Rotate {
            today: day("2012-03-17"),
        },
        Record::Cut {
            stores: vec![StoreId::Day(day("2012-03-16")), StoreId::Late(7)],
        },
        Record::Schema(schema()),
        Record::Late(increment()),
        batch(0, Vec::new()),
        Record::Increment(event(true)),
        Record::Increment(without_origin),
        Record::Increment(without_event),
        Record::Late(event(false)),
        refused(&[]),
        Record::Filtered {
            rule: "bots".into(),
            increment: increment(),
        },
        Record::Filtered {
            rule: "bots".into(),
            increment: event(false),
        },
        batch(9, Vec::new()),
        refused(&["l", "?"]),
        batch(0, skipped),
        Record::Turn {
            today: day("2012-03-15"),
            opened: vec![day("2012-03-15"), day("2012-03-16")],
        },
        Record::Manifest { number: 300 },
    ]
}

/// Writes records, a line for each, which must be the lines of a golden file, and reads them from there. The bytes of
/// each line.
fn kept(name: &str, records: Vec<Record>) -> Vec<Vec<u8>> {
    let mut written = String::new();
    for record in &records {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        writeln!(written, "{}", HEXLOWER.encode(&bytes)).unwrap();
    }
    let lines = golden(name, &written);
    let read = lines.lines().zip(records).map(|(line, record)| {
        let bytes = HEXLOWER.decode(line.as_bytes()).unwrap();
        assert_eq!(decode_all(&bytes, 1), Ok(vec![record]), "{line}");
        bytes
    });
    read.collect()
}

#[test]
fn every_kind_of_log_record_is_read_and_written_as_it_was() {
    let lines = kept("log-records.txt", records());
    let kinds: BTreeSet<u8> = lines.iter().map(|bytes| bytes[0]).collect();
    assert!(kinds.into_iter().eq(1..=16), "a kind is missing");
}

/// A schema with a rule of every form, and two lists.
fn schema_with_rules() -> Schema {
    let rules = [
        r#"{"name": "a", "list": "agents"}"#,
        r#"{"name": "b", "class": "sophisticated", "events": ["click"], "list": "networks"}"#,
        r#"{"name": "c", "within": "30s", "same": ["user", "ad"]}"#,
        r#"{"name": "d", "more_than": 10, "within": "1h", "same": ["ip"], "all": true}"#,
        r#"{"name": "e", "more_than": 1, "within": "1m", "same": ["by.c"]}"#,
        r#"{"name": "f", "events": ["click"], "needs": "impression", "within": "24h", "same": ["insertion"]}"#,
    ];
    let mut schema = schema();
    let rules = rules.map(|rule| serde_json::from_str::<Filter>(rule).unwrap());
    schema.filters.extend(rules);
    schema.lists = [("agents", ListKind::UserAgent), ("networks", ListKind::Ip)]
        .map(|(name, kind)| List {
            name: name.into(),
            kind,
            sha256: content_hash(name.as_bytes()),
        })
        .into();
    schema
}

#[test]
fn a_schema_with_rules_is_read_and_written_as_it_was() {
    let mut bytes = Vec::new();
    Record::Schema(schema_with_rules()).encode(&mut bytes);
    let kept = golden(
        "log-records-rules.txt",
        &format!("{}\n", HEXLOWER.encode(&bytes)),
    );
    let bytes = HEXLOWER.decode(kept.trim_end().as_bytes()).unwrap();
    let read = decode_all(&bytes, 1);
    assert_eq!(read, Ok(vec![Record::Schema(schema_with_rules())]));
}

/// Records with what was set aside and with details.
fn detailed_records() -> Vec<Record> {
    let set_aside = Details {
        set_aside: vec![
            ("by.x".into(), "7".into()),
            ("insertion".into(), "abc…".into()),
        ],
        ..Details::default()
    };
    let full = Details {
        insertion: Some("insertion-1".into()),
        referrer: Some("http://a/".into()),
        meta: Some(r#"{"a":[1]}"#.into()),
        evidence: Evidence {
            ip: Some("192.0.2.1".into()),
            ua: Some("curl/8".into()),
            referrer: None,
        },
        ..set_aside.clone()
    };
    let with = |details: Details, increment| Increment {
        details: details.boxed(),
        ..increment
    };
    let Record::Batch {
        identity,
        key,
        body,
        accepted,
    } = batch(9, Vec::new())
    else {
        panic!("a batch");
    };
    vec![
        Record::Increment(with(set_aside.clone(), increment())),
        Record::Late(with(set_aside, event(true))),
        Record::Increment(with(full.clone(), event(false))),
        Record::Filtered {
            rule: "bots".into(),
            increment: with(full, event(false)),
        },
        Record::Batch {
            identity,
            key,
            body,
            accepted: Accepted {
                set_aside: 300,
                ..accepted
            },
        },
    ]
}

#[test]
fn records_with_details_are_read_and_written_as_they_were() {
    kept("log-records-details.txt", detailed_records());
}

/// A record of an identity for each kind that can have one.
fn records_of_identities() -> Vec<Record> {
    let identity = || Some("2bq4xyz7".into());
    let of_identity = |increment| Increment {
        identity: identity(),
        ..increment
    };
    let mut records = vec![
        Record::Increment(of_identity(increment())),
        Record::Late(of_identity(event(true))),
        Record::Filtered {
            rule: "bots".into(),
            increment: of_identity(event(false)),
        },
        Record::Duplicate {
            identity: Some(INSTALLATION.into()),
            id: "id-1".into(),
            of: 128,
        },
        refused(&["l", "?"]),
        batch(9, Vec::new()),
    ];
    for record in &mut records {
        if let Record::Refused { identity: of, .. } | Record::Batch { identity: of, .. } = record {
            *of = identity();
        }
    }
    records
}

#[test]
fn records_of_identities_are_read_and_written_as_they_were() {
    kept("log-records-identities.txt", records_of_identities());
}

#[test]
fn keyed_hashes_and_shards_of_a_text_stay_what_they_were() {
    let keys = LongKeys::new(std::array::from_fn(|at| at as u8));
    let mut written = String::new();
    for text in [
        "a.b",
        "123456789012",
        "http://www.example.com/?q=1",
        "日本語 or a longer text",
    ] {
        writeln!(written, "long key {} {text}", keys.stored(text)).unwrap();
        for domain in [0, 1, 255] {
            let identity = keys.identity(domain, text.as_bytes());
            writeln!(written, "identity {domain} {identity:032x} {text}").unwrap();
        }
        let shard = shard_of(text.as_bytes(), 99);
        writeln!(written, "shard {shard} of 99 {text}").unwrap();
    }
    golden("hashes.txt", &written);
}

#[test]
fn sketches_of_users_are_read_and_written_as_they_were() {
    // The library keeps a list, then a set, then registers.
    let sizes = [1, 5, 20, 300, 2_000];
    let mut written = String::new();
    for size in sizes {
        let mut users = Users::default();
        for number in 0..size {
            users.add(User::new(&format!("user-{number}")));
        }
        writeln!(
            written,
            "{size} {} {}",
            users.estimate(),
            users.to_payload()
        )
        .unwrap();
    }
    for line in golden("users.txt", &written).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let users = Users::from_payload(words[2].as_bytes()).unwrap();
        assert_eq!(users.estimate().to_string(), words[1], "{}", words[0]);
        assert_eq!(users.to_payload(), words[2], "{}", words[0]);
    }
}

#[test]
fn time_codes_and_data_points_are_read_and_written_as_they_were() {
    let mut written = String::new();
    for instant in [
        "2000-01-01T00:00:00Z",
        "2012-04-01T21:58:59Z",
        "2031-12-31T23:59:59Z",
        "2040-02-29T12:30:00Z",
    ] {
        let at = instant.parse::<jiff::Timestamp>().unwrap().as_second();
        for grain in [Grain::Day, Grain::Hour, Grain::Quarter, Grain::Minute] {
            let code = TimeCode::containing(at, grain);
            writeln!(written, "{instant} {code} starts at {}", code.start()).unwrap();
        }
    }
    for point in ["u|jehiah,c41l → 5", "c.u|jehiah,US,c41l → 4"] {
        writeln!(written, "{}", point.parse::<Point>().unwrap()).unwrap();
    }
    for line in golden("time-codes-and-points.txt", &written).lines() {
        let Some((_, rest)) = line.split_once("Z ") else {
            continue;
        };
        let (code, start) = rest.split_once(" starts at ").unwrap();
        let code: TimeCode = code.parse().unwrap();
        assert_eq!(code.start().to_string(), start, "{line}");
    }
}
