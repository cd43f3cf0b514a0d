//! Manifests with final days. One of them has every field that there is.

use std::collections::BTreeMap;

use tallyring_archive::{
    ArchiveEntry, DatasetProof, FinalEntry, FinalProof, FinalSums, Manifest, RepeatedKey,
    RepeatedKeys,
};
use tallyring_records::{Class, Day, LoggedDataset, LoggedFinal};

use super::{MANIFEST, check_written, day, golden, manifest_with_fixes, read, run};
use crate::MemoryDisk;

/// The manifest with two final versions of a day.
fn manifest_with_finals() -> Manifest {
    let mut manifest = manifest_with_fixes();
    let version = |version: u32, touched| FinalEntry {
        day: day("2012-03-15"),
        version,
        at_ms: 1_331_985_600_000,
        upto: 70,
        rules: "00112233".into(),
        books: vec![run(&format!(
            "finals/2012-03-15.v{version}.2012-03.s01of04.0123456789abcdef.csv.zst"
        ))],
        verdicts: None,
        types: BTreeMap::new(),
        filtered: None,
        repeated: None,
        touched,
        sums_only: false,
        forced: false,
        actor: None,
        proof: None,
    };
    let verdicts = "finals/2012-03-15.v1.verdicts.2012-03.s01of04.0123456789abcdef.csv.zst";
    let sums = FinalSums {
        before: 3,
        causes: BTreeMap::from([("filtered_by:bots".to_owned(), -1), ("voided".into(), -1)]),
        after: 1,
        gross: 3,
        undecided: 2,
    };
    manifest.archive.finals = vec![
        FinalEntry {
            verdicts: Some(run(verdicts)),
            types: BTreeMap::from([("click".to_owned(), sums)]),
            ..version(1, false)
        },
        version(3, true),
    ];
    manifest
}

#[test]
fn a_manifest_with_final_days_is_read_and_written_as_it_was() {
    let manifest = manifest_with_finals();
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-14", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-14"), manifest);
    for (part, wrong, said) in [
        (
            "\"after\": 1",
            "\"after\": 2",
            "3 before and causes of -2 are not 2 after",
        ),
        (
            "final 2012-03-15 v3",
            "final 2012-03-15 v0",
            "is no origin of a run",
        ),
    ] {
        let text = String::from_utf8(golden("manifest-14")).unwrap();
        let (_, json) = text.split_once('\n').unwrap();
        assert!(json.contains(part), "{part}");
        let wrong = json.replace(part, wrong);
        let error = serde_json::from_str::<Manifest>(&wrong).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_manifest_with_every_field_is_read_and_written_as_it_was() {
    let mut manifest = manifest_with_finals();
    for (version, is_logged) in manifest.archive.finals.iter_mut().zip([true, false]) {
        version.proof = Some(FinalProof {
            is_logged,
            ..proof(None)
        });
    }
    let mut awaited = manifest.archive.finals[0].logged().unwrap();
    awaited.version = 4;
    manifest.archive.await_final(awaited.clone());
    manifest.archive.await_final(awaited);
    assert_eq!(manifest.archive.awaited.len(), 1, "it is awaited once");
    assert_eq!(manifest.archive.next_fix(day("2012-03-15")), 5);
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-17", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-17"), manifest);
    let mut unproven = manifest.clone();
    for version in &mut unproven.archive.finals {
        version.proof = None;
    }
    let disk = MemoryDisk::default();
    unproven.commit(&disk).unwrap();
    let text = String::from_utf8(disk.read(MANIFEST).unwrap()).unwrap();
    assert!(text.starts_with("tallyring manifest 17 "), "{text}");
}

#[test]
fn a_manifest_with_a_final_dataset_is_read_and_written_as_it_was() {
    let mut manifest = manifest_with_finals();
    manifest.intake.begun = Some(day("2012-03-14"));
    manifest.intake.early = Some([day("2012-03-02"), day("2012-03-11")].into());
    manifest.archive.datasets[0].is_final = true;
    let days = day("2012-03-15")..=day("2012-03-15");
    assert!(manifest.archive.first_final(&days).is_some());
    manifest.archive.told_by_log.insert(day("2012-03-15"));
    assert_eq!(manifest.archive.first_final(&days), None);
    manifest.archive.keep_sums_of_finals(day("2012-03-15"));
    assert!(!manifest.archive.finals[0].sums_only, "it is kept");
    manifest.archive.keep_sums_of_finals(day("2012-03-16"));
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-18", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-18"), manifest);
}

fn proof(ids_from_ms: Option<i64>) -> FinalProof {
    FinalProof {
        ids_from: 7,
        ids_from_ms,
        content: "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff".into(),
        is_logged: true,
    }
}

/// Checks the golden file of a format that versions need to which `tell` gives something, and that it is needed where
/// only an awaited version has that.
fn check_version_and_awaited(format: u32, tell: fn(&mut FinalEntry, bool)) {
    let name = format!("manifest-{format}");
    let mut manifest = manifest_with_finals();
    tell(&mut manifest.archive.finals[1], true);
    manifest.archive.finals[1].proof = Some(proof(None));
    let awaited = LoggedFinal {
        version: 4,
        ..manifest.archive.finals[1].logged().unwrap()
    };
    manifest.archive.await_final(awaited);
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written(&name, &disk.read(MANIFEST).unwrap());
    assert_eq!(read(&name), manifest);
    tell(&mut manifest.archive.finals[1], false);
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    let text = String::from_utf8(disk.read(MANIFEST).unwrap()).unwrap();
    let begins = format!("tallyring manifest {format} ");
    assert!(text.starts_with(&begins), "{text}");
}

#[test]
fn a_manifest_with_a_forced_final_day_is_read_and_written_as_it_was() {
    check_version_and_awaited(21, |version, is_told| version.forced = is_told);
}

#[test]
fn a_manifest_that_says_who_ordered_a_final_day_is_read_and_written_as_it_was() {
    check_version_and_awaited(36, |version, is_told| {
        version.actor = is_told.then(|| "2bq4xyz7".into());
    });
}

#[test]
fn a_manifest_that_says_since_when_a_final_day_knew_ids_is_read_and_written_as_it_was() {
    let mut manifest = manifest_with_finals();
    manifest.archive.finals[1].proof = Some(proof(Some(1_331_251_200_019)));
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-39", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-39"), manifest);
}

#[test]
fn a_manifest_that_says_what_rules_filter_of_a_final_day_is_read_and_written_as_it_was() {
    let mut manifest = manifest_with_finals();
    let rules = |rule: &str, n| BTreeMap::from([(rule.to_owned(), n)]);
    let classes = [
        (Class::General, rules("bots", 1_390)),
        (Class::Sophisticated, rules("click_rate", 7)),
    ];
    manifest.archive.finals[1].filtered = Some([("click".to_owned(), classes.into())].into());
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-71", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-71"), manifest);
    // No rule filters anything.
    manifest.archive.finals[1].filtered = Some(BTreeMap::new());
    let json = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&json).unwrap(), manifest);
}

#[test]
fn a_manifest_that_names_keys_that_counted_twice_is_read_and_written_as_it_was() {
    let mut manifest = manifest_with_finals();
    let most = RepeatedKey {
        namespace: "click_advertiser".into(),
        key: "a \"b\"".into(),
        n: 5,
        before: 1_200,
    };
    manifest.archive.finals[0].repeated = Some(RepeatedKeys::default());
    manifest.archive.finals[1].repeated = Some(RepeatedKeys {
        keys: 1,
        most: vec![most],
    });
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-72", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-72"), manifest);
}

/// Keys are told of for a week; a version names them for as long as it is younger than the books that are kept.
#[test]
fn an_old_version_without_books_names_no_keys() {
    let mut manifest = manifest_with_finals();
    let version = &mut manifest.archive.finals[1];
    let published = Day::of(version.at_ms / 1_000);
    assert!(version.day < published);
    version.repeated = Some(RepeatedKeys {
        keys: 1,
        most: vec![RepeatedKey {
            namespace: "l".into(),
            key: "a".into(),
            n: 5,
            before: 1_200,
        }],
    });
    for (before, named) in [(published, 1), (published.next(), 0)] {
        manifest.archive.keep_sums_of_finals(before);
        let version = &manifest.archive.finals[1];
        let repeated = version.repeated.as_ref().unwrap();
        assert!(version.sums_only && version.books.is_empty());
        assert_eq!((repeated.keys, repeated.most.len()), (1, named));
    }
}

#[test]
fn a_manifest_with_a_logged_dataset_is_read_and_written_as_it_was() {
    let mut manifest = manifest_with_finals();
    let content = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let dataset = &mut manifest.archive.datasets[0];
    dataset.is_final = true;
    dataset.proof = Some(DatasetProof {
        content: content.into(),
        is_logged: false,
    });
    let unlogged: Vec<LoggedDataset> = manifest.archive.unlogged_datasets().collect();
    let [mut logged] = <[LoggedDataset; 1]>::try_from(unlogged).unwrap();
    assert_eq!(logged.span(), Some((day("2012-03-16"), day("2012-03-16"))));
    manifest.archive.follow_dataset(&logged);
    assert_eq!(manifest.archive.unlogged_datasets().count(), 0);
    logged.name = "lost".into();
    for _ in 0..2 {
        manifest.archive.follow_dataset(&logged);
    }
    assert_eq!(manifest.archive.lost_datasets.len(), 1, "it is lost once");
    manifest.intake.left_log.insert(day("2012-03-19"));
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-22", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-22"), manifest);
    // An older build loaded it, and the log was told of it later.
    manifest.archive.lost_datasets.clear();
    logged.name = manifest.archive.datasets[0].name.clone();
    manifest.archive.datasets[0].proof = None;
    manifest.archive.follow_dataset(&logged);
    assert!(manifest.archive.lost_datasets.is_empty());
    logged.content = content.replace('0', "1");
    manifest.archive.follow_dataset(&logged);
    assert_eq!(manifest.archive.lost_datasets, [logged]);
}

#[test]
fn a_final_dataset_that_waits_in_the_place_of_a_lost_one_is_left_out_unless_the_log_tells_of_it() {
    let mut archive = manifest_with_finals().archive;
    let dataset = &mut archive.datasets[0];
    dataset.is_final = true;
    dataset.proof = Some(DatasetProof {
        content: "0".repeat(64),
        is_logged: false,
    });
    let logged = dataset.logged().unwrap();
    let mut waiting = archive.clone();
    waiting.generations.clear();
    let lost = |name: &str, on: Option<&str>| {
        let on = on.map(|on| vec![(day(on), day(on))]);
        let namespaces = logged.days.keys().cloned();
        LoggedDataset {
            name: name.into(),
            content: "1".repeat(64),
            days: on.map_or_else(BTreeMap::new, |on| {
                namespaces.map(|of| (of, on.clone())).collect()
            }),
            ..logged.clone()
        }
    };
    for (lost, is_in_its_place) in [
        (lost(&logged.name, None), true),
        (lost("other", Some("2012-03-16")), true),
        (lost("other", Some("2012-03-17")), false),
    ] {
        let left_out = |archive: &ArchiveEntry, records: &[&LoggedDataset]| {
            let mut archive = archive.clone();
            records
                .iter()
                .for_each(|logged| archive.follow_dataset(logged));
            let left_out = archive.leave_out_beside_lost().len();
            assert_eq!(archive.datasets.len() + left_out, 1);
            left_out == 1
        };
        assert_eq!(left_out(&waiting, &[&lost]), is_in_its_place, "{lost:?}");
        assert!(!left_out(&archive, &[&lost]), "it counts: {lost:?}");
        for told in [[&lost, &logged], [&logged, &lost]] {
            assert!(!left_out(&waiting, &told), "{told:?}");
        }
    }
}

#[test]
fn no_flipped_bit_makes_another_manifest_of_one_with_final_days() {
    for name in [
        "manifest-14",
        "manifest-17",
        "manifest-18",
        "manifest-21",
        "manifest-22",
        "manifest-24",
        "manifest-28",
        "manifest-30",
        "manifest-71",
        "manifest-72",
    ] {
        let good = golden(name);
        // The rest is under the checksum of the first line.
        let end = good.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for bit in 0..end * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let disk = MemoryDisk::default();
            disk.put(MANIFEST, bad);
            let read = Manifest::load_number(&disk, 42);
            assert!(read.is_err(), "{name}, bit {bit}");
        }
    }
}
