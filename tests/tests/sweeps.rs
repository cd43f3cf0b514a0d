//! Old objects go from an object store that nodes share, and nothing goes that a kept manifest names.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::BTreeSet;
use std::sync::Arc;

use tallyring_archive::{
    Blobs, Content, Error, Manifest, Objects, RunEntry, Sweep, Swept, Turn, manifest, names,
};
use tallyring_tests::conformity::blobs::{empty_manifest, write_run};
use tallyring_tests::sim_disk::{SimDisk, random};
use tallyring_tests::sim_objects::{Fault, SimObjects};

const HOUR_MS: i64 = 3_600_000;

/// A node with a disk of its own.
fn node(objects: &SimObjects) -> Blobs {
    let blobs = Blobs::over(Arc::new(SimDisk::default()), Arc::new(objects.clone()));
    blobs.prepare().unwrap();
    blobs
}

/// A manifest that names these files.
fn naming(number: u64, runs: &[RunEntry]) -> Manifest {
    let mut manifest = empty_manifest(number, 1);
    manifest.archive.runs = runs.to_vec();
    manifest
}

/// Commits a manifest as a node does.
fn commit(blobs: &Blobs, number: u64, runs: &[RunEntry]) -> Result<(), Error> {
    for run in runs {
        blobs.ensure_object(&run.name)?;
    }
    naming(number, runs).commit(blobs)
}

/// Takes one turn; none where the sweep is over.
fn turn(sweep: &mut Sweep, blobs: &Blobs) -> Result<Option<Swept>, Error> {
    match sweep.next_turn() {
        Turn::Look => sweep.look(blobs).map(Some),
        Turn::Remove => sweep.remove(blobs).map(Some),
        Turn::Done => Ok(None),
    }
}

fn finish(sweep: &mut Sweep, blobs: &Blobs) -> Result<Swept, Error> {
    let mut all = Swept::default();
    while let Some(swept) = turn(sweep, blobs)? {
        assert!(swept.objects <= 20 && swept.manifests <= 20, "{swept:?}");
        all.add(swept);
    }
    Ok(all)
}

/// One sweep from its beginning to its end, at a time in hours.
fn sweep_at(sweep: &mut Sweep, blobs: &Blobs, hours: i64) -> Result<Swept, Error> {
    sweep.begin(blobs, hours * HOUR_MS)?;
    finish(sweep, blobs)
}

fn key(run: &RunEntry) -> String {
    names::object_key(&run.name).unwrap()
}

/// Keys of sorted files.
fn keys(objects: &SimObjects) -> BTreeSet<String> {
    let keys = objects.keys().into_iter();
    keys.filter(|key| key.starts_with("blobs/")).collect()
}

/// Asserts that all objects are there that the newest `kept` manifests name.
fn assert_named_are_there(objects: &SimObjects, blobs: &Blobs, kept: usize, said: &str) {
    let keys = keys(objects);
    for number in manifest::numbers(blobs)
        .unwrap()
        .into_iter()
        .rev()
        .take(kept)
    {
        let manifest = Manifest::load_number(blobs, number).unwrap();
        for run in manifest.files() {
            assert!(
                keys.contains(&key(run)),
                "{said}: manifest {number} lacks {}",
                run.name
            );
        }
    }
}

#[test]
fn an_object_goes_a_day_after_the_last_manifest_that_named_it() {
    let objects = SimObjects::default();
    let blobs = node(&objects);
    let [gone, kept, unnamed] = [10, 20, 30].map(|lines| write_run(&blobs, lines).unwrap());
    commit(&blobs, 1, &[gone.clone(), kept.clone()]).unwrap();
    objects.set_now_ms(30 * HOUR_MS);
    for number in 2..12 {
        commit(&blobs, number, std::slice::from_ref(&kept)).unwrap();
    }
    let mut sweep = Sweep::default();
    let mut at = |hours: i64, number: u64| {
        objects.set_now_ms(hours * HOUR_MS);
        commit(&blobs, number, std::slice::from_ref(&kept)).unwrap();
        sweep_at(&mut sweep, &blobs, hours).unwrap()
    };
    // Nothing ever named one of them, and a day is more than enough.
    let swept = at(31, 12);
    let bytes = unnamed.bytes;
    assert_eq!(
        swept,
        Swept {
            objects: 1,
            bytes,
            ..Swept::default()
        }
    );
    // The first manifest counted until 30 hours.
    assert_eq!(at(53, 13), Swept::default());
    assert_eq!(keys(&objects), BTreeSet::from([key(&gone), key(&kept)]));
    let swept = at(55, 14);
    let expected = Swept {
        objects: 1,
        bytes: gone.bytes,
        manifests: 6,
        ..Swept::default()
    };
    assert_eq!(swept, expected);
    assert_eq!(keys(&objects), BTreeSet::from([key(&kept)]));
    // The newest eight stay, however old they are.
    assert_eq!(
        manifest::numbers(&blobs).unwrap(),
        (7..=14).collect::<Vec<_>>()
    );
    assert_eq!(at(500, 15).manifests, 1);
    assert_named_are_there(&objects, &blobs, 8, "at the end");
}

#[test]
fn what_is_young_or_unknown_stays_and_no_clock_of_a_node_makes_it_old() {
    let objects = SimObjects::default();
    let blobs = node(&objects);
    let [old, again, older] = [10, 20, 30].map(|lines| write_run(&blobs, lines).unwrap());
    for foreign in ["blobs/notes.txt", "blobs/2012-03.s00of01.short.csv.zst"] {
        let content = Content::new(b"of somebody else".to_vec());
        objects.put(foreign, &content).unwrap();
    }
    blobs.put("rules/00", b"a list").unwrap();
    objects.set_now_ms(40 * HOUR_MS);
    // Another node makes one of them again.
    write_run(&node(&objects), 20).unwrap();
    commit(&blobs, 1, &[]).unwrap();
    let mut sweep = Sweep::default();
    assert_eq!(
        sweep_at(&mut sweep, &blobs, 23).unwrap().objects,
        0,
        "by the node's clock"
    );
    let swept = sweep_at(&mut sweep, &blobs, 9_000).unwrap();
    assert_eq!(swept.objects, 2, "by the bucket's clock");
    let keys = objects.keys();
    assert!(keys.contains(&key(&again)), "{keys:?}");
    assert!(!keys.contains(&key(&old)) && !keys.contains(&key(&older)));
    for foreign in [
        "blobs/notes.txt",
        "blobs/2012-03.s00of01.short.csv.zst",
        "rules/00",
    ] {
        assert!(keys.iter().any(|key| key == foreign), "{foreign}");
    }
}

#[test]
fn a_damaged_manifest_lets_everything_stay() {
    let objects = SimObjects::default();
    let blobs = node(&objects);
    write_run(&blobs, 10).unwrap();
    commit(&blobs, 1, &[]).unwrap();
    objects.flip_bit(&names::manifest(1), 2_000);
    objects.set_now_ms(99 * HOUR_MS);
    commit(&blobs, 2, &[]).unwrap();
    let before = objects.keys();
    let error = sweep_at(&mut Sweep::default(), &blobs, 99).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(objects.keys(), before);
}

#[test]
fn a_local_directory_has_nothing_to_sweep() {
    let disk = SimDisk::default();
    let blobs = disk.blobs();
    blobs.prepare().unwrap();
    let run = write_run(&blobs, 10).unwrap();
    empty_manifest(1, 1).commit(&blobs).unwrap();
    assert_eq!(
        sweep_at(&mut Sweep::default(), &blobs, 9_000).unwrap(),
        Swept::default()
    );
    assert!(!blobs.ensure_object(&run.name).unwrap());
    blobs.read(&run.name).unwrap();
}

#[test]
fn whatever_call_of_a_sweep_fails_nothing_goes_that_is_named_and_the_next_sweep_is_whole() {
    let begin = || {
        let objects = SimObjects::default();
        let blobs = node(&objects);
        let runs: Vec<_> = (1..=30).map(|n| write_run(&blobs, n).unwrap()).collect();
        commit(&blobs, 1, &runs).unwrap();
        for number in 2..=12 {
            commit(&blobs, number, &runs[25..]).unwrap();
        }
        objects.set_now_ms(49 * HOUR_MS);
        commit(&blobs, 13, &runs[25..]).unwrap();
        objects.set_now_ms(98 * HOUR_MS);
        commit(&blobs, 14, &runs[25..]).unwrap();
        (objects, blobs, runs)
    };
    let calls = {
        let (objects, blobs, _) = begin();
        let before = objects.calls();
        let swept = sweep_at(&mut Sweep::default(), &blobs, 98).unwrap();
        assert_eq!((swept.objects, swept.manifests), (25, 6));
        objects.calls() - before
    };
    let mut failed = 0;
    for call in 1..=calls {
        for fault in [
            Fault::Refused,
            Fault::AnswerLost,
            Fault::Late(3),
            Fault::Away(9),
        ] {
            let (objects, blobs, runs) = begin();
            let said = format!("call {call} fails by {fault:?}");
            objects.fail_nth_call(call, fault);
            let mut sweep = Sweep::default();
            failed += u64::from(sweep_at(&mut sweep, &blobs, 98).is_err());
            objects.settle();
            assert_named_are_there(&objects, &blobs, usize::MAX, &said);
            let swept = sweep_at(&mut sweep, &blobs, 98).unwrap();
            assert_eq!(swept.restored + swept.gone, 0, "{said}");
            let expected = runs[25..].iter().map(key).collect();
            assert_eq!(keys(&objects), expected, "{said}");
            assert_eq!(manifest::numbers(&blobs).unwrap().len(), 8, "{said}");
        }
    }
    assert!(failed > 2 * calls, "{failed} of {calls} calls");
}

#[test]
fn what_is_gone_is_put_back_from_a_sound_copy() {
    let objects = SimObjects::default();
    let (one, two) = (node(&objects), node(&objects));
    let run = write_run(&one, 10).unwrap();
    commit(&one, 1, std::slice::from_ref(&run)).unwrap();
    let lose = || objects.remove(&key(&run)).unwrap();
    lose();
    let mut sweep = Sweep::default();
    let swept = sweep_at(&mut sweep, &two, 1).unwrap();
    assert_eq!((swept.restored, swept.gone), (0, 1), "it has no copy");
    let swept = sweep_at(&mut sweep, &one, 1).unwrap();
    assert_eq!((swept.restored, swept.gone), (1, 0));
    two.read(&run.name).unwrap();
    lose();
    // A copy that rots is none.
    let bytes = one.disk().read(&run.name).unwrap();
    let mut rotten = one.disk().create("runs/rotten").unwrap();
    rotten.write_at(0, &bytes[1..]).unwrap();
    one.disk().replace("runs/rotten", &run.name).unwrap();
    let error = one.ensure_object(&run.name).unwrap_err();
    assert!(error.is_damage() && !error.is_gone(), "{error}");
    assert_eq!(keys(&objects), BTreeSet::new());
}

/// Two nodes make, name and drop files of few contents at any time of some days. One of them writes, and sweeps beside
/// that. Now and then the other one takes its place; with `zombies`, turns of the one before come late.
fn live(seed: u64, zombies: bool) -> Swept {
    let objects = SimObjects::default();
    let nodes = [node(&objects), node(&objects)];
    let mut draws = random(seed);
    let mut draw = |below: u64| draws() % below;
    let (mut now_ms, mut number, mut writer) = (0, 1, 0);
    let mut sweeps = [Sweep::default(), Sweep::default()];
    let (mut made, mut named) = (Vec::<RunEntry>::new(), Vec::<RunEntry>::new());
    // The writer has copies of these.
    let mut known = Vec::<RunEntry>::new();
    let mut all = Swept::default();
    commit(&nodes[0], 1, &[]).unwrap();
    for _ in 0..300 {
        let blobs = &nodes[writer];
        match draw(10) {
            0 | 1 => made.push(write_run(blobs, 1 + draw(6) as u32).unwrap()),
            2..5 => {
                named.retain(|_| draw(3) > 0);
                // A job of days names what it made at its beginning.
                if !known.is_empty() && draw(4) == 0 {
                    made.push(known[draw(known.len() as u64) as usize].clone());
                }
                known.extend(made.iter().cloned());
                named.append(&mut made);
                number += 1;
                commit(blobs, number, &named).unwrap();
            }
            5 => {
                now_ms += (1 + draw(20) as i64) * HOUR_MS;
                objects.set_now_ms(now_ms);
            }
            6 if draw(9) == 0 => {
                // The new one follows: it reads what the newest manifest names.
                writer = 1 - writer;
                made.clear();
                known.clone_from(&named);
                sweeps[writer] = Sweep::default();
                let read = |run: &RunEntry| nodes[writer].read(&run.name).map(drop);
                named.iter().try_for_each(read).unwrap();
            }
            7 if zombies => {
                let late = &mut sweeps[1 - writer];
                let _ = turn(late, &nodes[1 - writer]);
            }
            _ => match turn(&mut sweeps[writer], blobs).unwrap() {
                Some(swept) => all.add(swept),
                None => sweeps[writer].begin(blobs, now_ms).unwrap(),
            },
        }
        assert_named_are_there(&objects, blobs, usize::MAX, &format!("seed {seed}"));
    }
    all
}

#[test]
fn objects_of_few_contents_that_come_and_go_are_there_while_a_manifest_names_them() {
    let mut all = Swept::default();
    for seed in 0..200 {
        all.add(live(seed, seed % 2 == 0));
    }
    assert!(all.objects > 100 && all.manifests > 1_000, "{all:?}");
    assert_eq!(all.restored + all.gone, 0);
}
