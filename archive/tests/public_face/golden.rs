//! Manifests, staged files and file names stay what they are for ever: each golden file is read, and this build writes
//! the same bytes again. Golden runs are in `format.rs`; `tests/golden/README.md` says what each file is.

mod consumed;
mod deletes;
mod finals;
mod fixed_actions;
mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tallyring_archive::{
    ArchiveEntry, Corrects, DatasetEntry, Erasures, GenerationEntry, IdRunEntry, IdsEntry,
    IntakeEntry, KeepDays, Manifest, Origin, Partition, ProducerEntry, RunEntry, RunMeta,
    SchemaEntry, Staged, StoreEntry, names,
};
use tallyring_records::{
    Day, EventType, Filter, Grain, Namespace, Offset, Ratio, Schema, StoreId, UserKey,
};

use crate::MemoryDisk;

const MANIFEST: &str = "manifests/manifest-00000042";

/// The bytes of a golden file.
fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails unless these are the bytes of a golden file, and leaves them where they can be looked at.
fn check_written(name: &str, written: &[u8]) {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&made, written).unwrap();
    let is_kept = golden(name) == written;
    assert!(
        is_kept,
        "the format changed: compare {name} and {}",
        made.display()
    );
}

fn at(epoch: u32, sequence: u64) -> Offset {
    Offset { epoch, sequence }
}

fn month() -> Partition {
    "2012-03".parse().unwrap()
}

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

fn run(name: &str) -> RunEntry {
    RunEntry {
        name: name.into(),
        origin: names::origin_of(name).unwrap(),
        bytes: 273,
        hash: "0123456789abcdef0123456789abcdef".into(),
        meta: RunMeta {
            partition: "2012-03".parse().unwrap(),
            shard: 1,
            shards: 4,
            lines: 2,
            plain_bytes: 40,
            first: 1_331_856_000,
            last: 1_331_859_600,
            sums: BTreeMap::from([("l|".to_owned(), u128::from(u64::MAX) + 1)]),
            compression: "zstd 1.5.7 level 6".into(),
        },
        erased_until: 0,
        corrects: None,
    }
}

/// A declaration with every field that a manifest can hold of it.
fn schema() -> Schema {
    Schema {
        namespaces: vec![Namespace {
            name: "l".into(),
            title: "Link".into(),
            grain: Grain::Quarter,
            subtotals: vec!["c".into()],
            minutes: true,
            uniques: true,
        }],
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

/// A manifest with every field that there is.
fn manifest() -> Manifest {
    Manifest {
        number: 42,
        written_at_ms: 1_331_985_600_123,
        plausible_at_ms: Some(1_331_985_600_000),
        store_id: "000102030405060708090a0b0c0d0e0f".into(),
        intake: intake(),
        archive: archive(),
    }
}

fn intake() -> IntakeEntry {
    let days = ["2012-03-16", "2012-03-17"].map(day);
    let stores = vec![
        StoreEntry {
            id: StoreId::Day(days[0]),
            opened: at(1, 0),
            cut: Some(at(2, 70)),
            flushed: at(2, 70),
            runs: vec![run(
                "deltas/day-2012-03-16.2012-03.s01of04.0123456789abcdef.csv.zst",
            )],
        },
        StoreEntry {
            id: StoreId::Late(7),
            opened: at(2, 70),
            cut: None,
            flushed: Offset::default(),
            runs: Vec::new(),
        },
    ];
    IntakeEntry {
        today: days[1],
        begun: None,
        early: None,
        left_log: BTreeSet::new(),
        schemas: vec![SchemaEntry::new(at(1, 0), schema())],
        stores,
        ids: IdsEntry {
            flushed: at(2, 70),
            runs: vec![IdRunEntry {
                newest_ms: 1_331_985_200_000,
                run: run("ids/ids.2012-03.s00of01.0123456789abcdef.csv.zst"),
            }],
            unowned_until_ms: None,
            producers: vec![ProducerEntry {
                id: "00112233445566778899aabbccddeeff".into(),
                epoch: 2,
                first: 1,
                next: 9,
                seen_ms: 1_331_985_100_000,
            }],
        },
        newest_events: BTreeMap::from([("click".to_owned(), 1_331_985_000)]),
        erasures: Erasures::default(),
        keys: Vec::new(),
        consumed: Vec::new(),
        deletes: Vec::new(),
    }
}

fn archive() -> ArchiveEntry {
    let exported = run("runs/ring-day-2012-03-15.2012-03.s01of04.0123456789abcdef.csv.zst");
    let loaded = run("runs/bulk-0123456789abcdef.2012-03.s01of04.0123456789abcdef.csv.zst");
    ArchiveEntry {
        generations: vec![GenerationEntry {
            number: 3,
            created_at_ms: 1_331_985_500_000,
            cut_at_ms: Some(1_331_985_400_000),
            merged: vec![exported.name.clone(), loaded.name.clone()],
            files: vec![run("archive/2012-03.s01of04.0123456789abcdef.csv.zst")],
            minutes_from: Some(1_328_054_400),
            hours_from: Some(1_325_376_000),
            breakdowns_from: Some(1_331_974_800),
            actions_from: None,
            keep: KeepDays {
                minutes: Some(30),
                hours: Some(400),
                actions: None,
            },
        }],
        runs: vec![exported],
        datasets: vec![DatasetEntry {
            name: "history".into(),
            load: "0123456789abcdef".into(),
            adopted_at_ms: 1_331_985_300_000,
            rows: 1_000,
            wanted: true,
            is_final: false,
            proof: None,
            runs: vec![loaded],
        }],
        active: 3,
        finals: Vec::new(),
        awaited: Vec::new(),
        told_by_log: BTreeSet::new(),
        lost_datasets: Vec::new(),
    }
}

/// This manifest as a build wrote it that kept no breakdowns by minute.
fn second_manifest() -> Manifest {
    let mut manifest = manifest();
    manifest.archive.generations[0].breakdowns_from = None;
    manifest
}

/// This manifest as a build wrote it that knew none of the fields that came later.
fn first_manifest() -> Manifest {
    let mut manifest = second_manifest();
    manifest.plausible_at_ms = None;
    manifest.archive.datasets.clear();
    manifest.intake.newest_events.clear();
    manifest.intake.ids.producers[0].first = 0;
    let declared = &mut manifest.intake.schemas[0].schema;
    declared.events.clear();
    declared.ratios.clear();
    declared.filters.clear();
    declared.titles.clear();
    declared.namespaces[0] = Namespace {
        name: "l".into(),
        title: String::new(),
        grain: Grain::Hour,
        subtotals: Vec::new(),
        minutes: false,
        uniques: false,
    };
    let generation = &mut manifest.archive.generations[0];
    generation.cut_at_ms = None;
    generation.minutes_from = None;
    generation.hours_from = None;
    generation.keep = KeepDays::default();
    manifest
}

fn read(manifest: &str) -> Manifest {
    let disk = MemoryDisk::default();
    disk.put(MANIFEST, golden(manifest));
    Manifest::load_number(&disk, 42).unwrap()
}

#[test]
fn a_manifest_without_final_days_is_read_and_written_as_before() {
    let manifest = manifest_with_fixes();
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-12", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-12"), manifest);
}

#[test]
fn a_manifest_of_runs_with_sums_is_read_and_written_as_it_was() {
    let mut manifest = manifest();
    let run = &mut manifest.archive.runs[0];
    run.meta.compression = "zstd 1.5.7 tuning 2 columns 2 summaries 2 level 6".into();
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-24", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-24"), manifest);
}

#[test]
fn a_manifest_whose_log_tells_of_its_beginning_is_read_and_written_as_it_was() {
    let mut manifest = manifest();
    manifest.intake.schemas[0].is_logged = true;
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-28", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-28"), manifest);
}

/// A manifest with the runs of a day that was corrected.
fn manifest_with_fixes() -> Manifest {
    let mut manifest = manifest_with_actions();
    let name = "runs/fix-2012-03-15.v1.plus.2012-03.s01of04.0123456789abcdef.csv.zst";
    manifest.archive.runs.push(run(name));
    manifest.archive.runs.push(RunEntry {
        corrects: Some(Corrects { from: 4, until: 70 }),
        ..run(&name.replace("plus", "minus"))
    });
    manifest
}

/// A manifest with the fields of a store that keeps and erases actions of users, and had API keys.
fn manifest_with_actions() -> Manifest {
    let mut manifest = manifest();
    manifest.intake.ids.unowned_until_ms = Some(1_331_985_000_000);
    manifest.intake.schemas[0].schema.events[0].actions = true;
    manifest.archive.generations[0].actions_from = Some(1_328_054_400);
    manifest.archive.generations[0].keep.actions = Some(32);
    let erased = [UserKey::from_bytes([7; 12]), UserKey::from_bytes([9; 12])];
    manifest.intake.erasures.add(&erased[..1], 41);
    manifest.intake.erasures.add(&erased[1..], 77);
    manifest.archive.runs[0].erased_until = 42;
    manifest
}

#[test]
fn a_manifest_without_fixes_is_read_and_written_as_before() {
    let manifest = manifest_with_actions();
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-11", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-11"), manifest);
    assert_eq!(read("manifest-8"), manifest);
}

#[test]
fn a_run_takes_counts_away_exactly_if_it_says_from_which_records() {
    let minus = "runs/fix-2012-03-15.v1.minus.2012-03.s01of04.0123456789abcdef.csv.zst";
    let plus = minus.replace("minus", "plus");
    for (name, corrects) in [
        (minus, None),
        (plus.as_str(), Some(Corrects { from: 0, until: 70 })),
    ] {
        let entry = RunEntry {
            corrects,
            ..run(name)
        };
        let text = serde_json::to_string(&entry).unwrap();
        let error = serde_json::from_str::<RunEntry>(&text)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(name) && error.contains("`corrects`"),
            "{error}"
        );
    }
}

#[test]
fn manifests_without_actions_are_read() {
    let mut manifest = manifest();
    manifest.intake.ids.unowned_until_ms = Some(1_331_985_000_000);
    assert_eq!(read("manifest-7"), manifest);
    assert_eq!(read("manifest-4"), manifest);
}

#[test]
fn manifests_of_format_2_are_read() {
    assert_eq!(read("manifest-3"), manifest());
    assert_eq!(read("manifest-2"), second_manifest());
    let mut manifest = second_manifest();
    manifest.intake.ids.unowned_until_ms = Some(1_331_985_000_000);
    assert_eq!(read("manifest-2-identities"), manifest);
}

#[test]
fn a_manifest_of_format_1_is_read_with_the_origins_that_names_tell() {
    assert_eq!(read("manifest-1"), second_manifest());
}

#[test]
fn a_manifest_of_the_first_build_is_read() {
    assert_eq!(read("manifest-1-first"), first_manifest());
}

#[test]
fn a_staged_file_is_read_and_written_as_it_was() {
    let staged = Staged {
        load: "0123456789abcdef".into(),
        store_id: "000102030405060708090a0b0c0d0e0f".into(),
        rows: 1_000,
        is_final: false,
        runs: vec![run(
            "incoming/0123456789abcdef.2012-03.s01of04.0123456789abcdef.csv.zst",
        )],
    };
    let disk = MemoryDisk::default();
    staged.write(&disk).unwrap();
    let name = names::staged(&staged.load);
    check_written("staged-2.json", &disk.read(&name).unwrap());
    let is_final = Staged {
        is_final: true,
        ..staged.clone()
    };
    let disk = MemoryDisk::default();
    is_final.write(&disk).unwrap();
    check_written("staged-18.json", &disk.read(&name).unwrap());
    assert_eq!(Staged::read(&disk, &staged.load).unwrap(), is_final);
    // Builds before did not say the origin.
    for kept in ["staged-2.json", "staged.json"] {
        let disk = MemoryDisk::default();
        disk.put(&name, golden(kept));
        assert_eq!(Staged::read(&disk, &staged.load).unwrap(), staged, "{kept}");
    }
}

#[test]
fn files_are_found_under_the_names_of_before() {
    for (name, kept) in [
        (names::manifest(42), MANIFEST),
        (names::segment(0xabc), "oplog/0000000000000abc.tlog"),
        (
            names::staged_segment(0xabc, 42),
            "oplog/0000000000000abc.tlog.000000000000002a.staged",
        ),
        (
            names::staged("0123456789abcdef"),
            "incoming/0123456789abcdef.json",
        ),
        (
            names::incoming_lock("0123456789abcdef"),
            "incoming/0123456789abcdef.lock",
        ),
        (
            names::aside(42, names::RUNS, "x", 1),
            "aside/00000042-1.runs.x",
        ),
    ] {
        assert_eq!(name, kept);
    }
}

#[test]
fn runs_are_named_after_their_origins_as_before() {
    for (origin, kept) in [
        ("flush day-2012-03-16", "deltas/day-2012-03-16"),
        ("ids", "ids/ids"),
        ("export late-000007", "runs/ring-late-000007"),
        (
            "export late-000007 from 4711",
            "runs/ring-late-000007.from-4711",
        ),
        (
            "export day-2012-03-16 from 4711",
            "runs/ring-day-2012-03-16.from-4711",
        ),
        (
            "spill 0123456789abcdef 2",
            "incoming/0123456789abcdef-part2",
        ),
        ("sorted 0123456789abcdef", "incoming/0123456789abcdef"),
        ("load 0123456789abcdef", "runs/bulk-0123456789abcdef"),
        ("fix 2012-03-16 v2 plus", "runs/fix-2012-03-16.v2.plus"),
        ("fix 2012-03-16 v2 minus", "runs/fix-2012-03-16.v2.minus"),
        ("final 2012-03-16 v2", "finals/2012-03-16.v2"),
        ("verdicts 2012-03-16 v2", "finals/2012-03-16.v2.verdicts"),
    ] {
        let name = names::run(&origin.parse().unwrap(), month(), (1, 4), "00ff");
        assert_eq!(name, format!("{kept}.2012-03.s01of04.00ff.csv.zst"));
    }
    let merged = names::run(&Origin::Merge, month(), (1, 4), "00ff");
    assert_eq!(merged, "archive/2012-03.s01of04.00ff.csv.zst");
}

#[test]
fn directories_and_single_files_are_called_as_before() {
    let directories = [
        "manifests",
        "oplog",
        "deltas",
        "ids",
        "runs",
        "archive",
        "finals",
        "incoming",
        "rules",
    ];
    assert_eq!(names::DIRECTORIES, directories);
    let files = [
        names::IDENTITY,
        names::CATALOG,
        names::CATALOG_SNAPSHOT,
        names::LINEAGE,
        names::BACKUP,
        names::RESTORING,
        names::DEMO,
        names::LOCK,
        names::LOCAL_KEY,
        names::ALERTS,
    ];
    let kept = [
        "STORE",
        "catalog",
        "catalog.json",
        "LINEAGE",
        "BACKUP",
        "RESTORING",
        "DEMO",
        "LOCK",
        "LOCAL_KEY",
        "alerts.json",
    ];
    assert_eq!(files, kept);
}
