//! Blobs on a local disk, on a disk that loses power, and over an object store that loses answers.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::BTreeMap;
use std::sync::Arc;

use tallyring_archive::{
    Blobs, Error, Manifest, Objects, OsDisk, RunEntry, manifest, names, verify_on_disk, verify_run,
};
use tallyring_tests::conformity::blobs::{Bench, check, empty_manifest, write_run};
use tallyring_tests::sim_disk::{SimDisk, random};
use tallyring_tests::sim_objects::{Fault, SimObjects};

/// A node with an empty disk.
fn node(objects: &SimObjects) -> (SimDisk, Blobs) {
    let disk = SimDisk::default();
    let blobs = over(&disk, objects);
    blobs.prepare().unwrap();
    (disk, blobs)
}

fn over(disk: &SimDisk, objects: &SimObjects) -> Blobs {
    Blobs::over(Arc::new(disk.clone()), Arc::new(objects.clone()))
}

#[test]
fn blobs_of_a_local_directory_hold_the_laws() {
    let directories = std::cell::RefCell::new(Vec::new());
    check(&|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        directories.borrow_mut().push(directory);
        let blobs = Blobs::new(Arc::new(OsDisk::new(&path).unwrap()));
        blobs.prepare().unwrap();
        Bench {
            blobs,
            is_shared: false,
            next_process: Box::new(move || Blobs::local(&path).unwrap()),
        }
    });
}

#[test]
fn blobs_of_a_disk_that_loses_power_hold_the_laws() {
    check(&|| {
        let mut disk = SimDisk::default();
        let blobs = disk.blobs();
        blobs.prepare().unwrap();
        let mut draws = random(1);
        Bench {
            blobs,
            is_shared: false,
            next_process: Box::new(move || {
                disk = disk.crash(&mut draws);
                disk.blobs()
            }),
        }
    });
}

#[test]
fn blobs_of_an_object_store_hold_the_laws() {
    check(&|| {
        let objects = SimObjects::default();
        let (mut disk, blobs) = node(&objects);
        let mut draws = random(1);
        Bench {
            blobs,
            is_shared: true,
            next_process: Box::new(move || {
                disk = disk.crash(&mut draws);
                over(&disk, &objects)
            }),
        }
    });
}

/// Two nodes make, name, remove and read blobs. Fails where a call fails.
fn work(one: &Blobs, two: &Blobs) -> Result<(RunEntry, Manifest), Error> {
    let run = write_run(one, 200)?;
    let named = run.renamed("load 0123456789abcdef".parse().unwrap());
    one.copy(&run.name, &named.name)?;
    one.put_over(names::IDENTITY, b"identity")?;
    one.put("rules/00", b"list")?;
    let number = manifest::numbers(one)?.last().map_or(1, |last| last + 1);
    let manifest = empty_manifest(number, 1);
    manifest.commit(one)?;
    two.remove(&named.name)?;
    verify_run(two, &named)?;
    assert_eq!(two.read(names::IDENTITY)?, b"identity");
    assert_eq!(two.read("rules/00")?, b"list");
    assert_eq!(Manifest::load(two)?.as_ref(), Some(&manifest));
    Ok((named, manifest))
}

/// Two nodes go on without faults and find everything as it should be.
fn goes_on(one: &Blobs, two: &Blobs, said: &str) {
    let (run, manifest) = work(one, two).unwrap_or_else(|error| panic!("{said}: {error}"));
    for blobs in [one, two] {
        verify_run(blobs, &run).unwrap();
        verify_on_disk(blobs, &run, &mut || ()).unwrap();
        assert_eq!(Manifest::load(blobs).unwrap().as_ref(), Some(&manifest));
    }
}

#[test]
fn whatever_call_fails_and_however_the_next_try_finds_everything_in_order() {
    let calls = {
        let objects = SimObjects::default();
        let ((_, one), (_, two)) = (node(&objects), node(&objects));
        work(&one, &two).unwrap();
        objects.calls()
    };
    assert!(calls > 10, "{calls}");
    let mut refused = 0;
    for call in 1..=calls {
        for fault in [
            Fault::Refused,
            Fault::AnswerLost,
            Fault::Late(1),
            Fault::Late(3),
            Fault::Late(1_000),
            Fault::Away(2),
            Fault::Away(1_000),
        ] {
            let objects = SimObjects::default();
            let ((disk_one, one), (disk_two, two)) = (node(&objects), node(&objects));
            objects.fail_nth_call(call, fault);
            refused += u64::from(work(&one, &two).is_err());
            // No copy stands for an object that is not there: a manifest may name the file.
            let keys = objects.keys();
            for (file, _) in [disk_one.files(), disk_two.files()].concat() {
                let is_there = names::object_key(&file).is_none_or(|key| keys.contains(&key));
                assert!(is_there, "call {call} fails by {fault:?}: {file}");
            }
            objects.settle();
            goes_on(&one, &two, &format!("call {call} fails by {fault:?}"));
            for disk in [disk_one, disk_two] {
                let files = disk.files().into_iter().map(|(file, _)| file);
                let unfinished = files.filter(|file| file.ends_with(names::TEMPORARY_SUFFIX));
                assert_eq!(unfinished.collect::<Vec<_>>(), [""; 0]);
            }
        }
    }
    assert!(refused > calls, "{refused} of {calls} calls");
}

#[test]
fn a_node_that_loses_power_at_any_call_of_its_disk_finds_no_copy_that_is_half() {
    let calls = {
        let objects = SimObjects::default();
        let ((disk, one), (_, two)) = (node(&objects), node(&objects));
        let before = disk.calls();
        work(&one, &two).unwrap();
        disk.calls() - before
    };
    for call in 1..=calls {
        for seed in 0..5 {
            let objects = SimObjects::default();
            let ((disk, one), (_, two)) = (node(&objects), node(&objects));
            disk.stop_at_nth_call(call);
            let _ = work(&one, &two);
            let disk = disk.crash(&mut random(seed));
            let one = over(&disk, &objects);
            one.prepare().unwrap();
            for directory in names::DIRECTORIES {
                one.remove_unfinished(directory).unwrap();
            }
            goes_on(&one, &two, &format!("crash at call {call}, seed {seed}"));
        }
    }
}

#[test]
fn of_two_nodes_that_race_for_every_number_one_gets_it_under_any_faults() {
    let mut committed = 0;
    for seed in 0..100 {
        let objects = SimObjects::default();
        let nodes = [node(&objects), node(&objects)];
        let (mut draws, mut faults) = (random(seed), random(seed + 1_000));
        objects.set_faults(move |_| match faults() % 16 {
            0 => Some(Fault::Refused),
            1 => Some(Fault::AnswerLost),
            2 => Some(Fault::Late(1 + faults() % 6)),
            3 => Some(Fault::Away(1 + faults() % 3)),
            _ => None,
        });
        // The writer of each number, as the nodes were told.
        let mut won: BTreeMap<u64, i64> = BTreeMap::new();
        for turn in 1..=100 {
            let (_, blobs) = &nodes[(draws() % 2) as usize];
            let Ok(numbers) = manifest::numbers(blobs) else {
                continue;
            };
            let newest = numbers.last().copied().unwrap_or(0);
            // Some believe in an older root than there is.
            let number = (newest + 1).saturating_sub(draws() % 2).max(1);
            match empty_manifest(number, turn).commit(blobs) {
                Ok(()) => {
                    let earlier = won.insert(number, turn);
                    assert_eq!(earlier, None, "seed {seed}: number {number} was won twice");
                }
                Err(Error::Conflict { number: taken }) => assert_eq!(taken, number),
                Err(_) => {}
            }
            for number in numbers {
                if let (Some(&writer), Ok(there)) =
                    (won.get(&number), Manifest::load_number(blobs, number))
                {
                    assert_eq!(there.written_at_ms, writer, "seed {seed}, number {number}");
                }
            }
        }
        objects.settle();
        let newest = Manifest::load(&nodes[0].1).unwrap();
        let (&last, _) = won.last_key_value().unwrap();
        assert!(newest.unwrap().number >= last, "seed {seed}");
        committed += won.len();
    }
    assert!(committed > 1_000, "{committed}");
}

#[test]
fn rot_in_the_object_store_never_gets_a_name_on_a_node() {
    for bit in [0, 7, 999, 2_000] {
        let objects = SimObjects::default();
        let ((_, one), (disk, two)) = (node(&objects), node(&objects));
        let run = write_run(&one, 200).unwrap();
        let keys = objects.keys();
        let [key] = keys.as_slice() else {
            panic!("one run is one object: {keys:?}");
        };
        objects.flip_bit(key, bit);
        let damaged = verify_run(&two, &run).unwrap_err();
        assert!(damaged.is_damage(), "{damaged}");
        assert!(damaged.to_string().contains(key), "{damaged}");
        assert_eq!(disk.files(), []);
        // The node that made the run has it whole, and puts it again.
        let bytes = one.read(&run.name).unwrap();
        assert!(!one.put(&run.name, &bytes).unwrap());
        verify_run(&two, &run).unwrap();
    }
}

#[test]
fn an_upload_that_finds_its_object_makes_it_young_again() {
    let objects = SimObjects::default();
    let ((_, one), (_, two)) = (node(&objects), node(&objects));
    objects.set_now_ms(1_000);
    let run = write_run(&one, 200).unwrap();
    objects.set_now_ms(2_000);
    assert_eq!(write_run(&two, 200).unwrap(), run);
    let key = names::object_key(&run.name).unwrap();
    assert_eq!(objects.info(&key).unwrap().modified_ms, 2_000);
}
