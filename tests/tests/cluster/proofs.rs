//! A writer believes nothing of a build that another node made but what it proved.

use std::collections::BTreeSet;

use tallyring_archive::{Build, Objects, RunEntry, names};
use tallyring_rebuild::build;
use tallyring_rebuild::orders::is_of_content;
use tallyring_tests::sim_objects::Fault;

use super::orders::{claim, cut, done, epoch, failure, node, order, place, prove, work};
use super::play::OPTIONS;

#[test]
fn files_that_are_not_what_a_build_names_are_not_believed() {
    let mut damaged = 0;
    for (seed, parts_max) in (20..26).zip([None, Some(128 << 10)].into_iter().cycle()) {
        let (play, manifest) = cut(seed, parts_max);
        let objects = play.stand.objects.clone();
        let (blobs, worker) = (play.writer.world().blobs(), node(&objects));
        let mut placed = place(&blobs, &order(manifest.number, epoch(&play)));
        let claimed = claim(&worker, epoch(&play)).expect("an order");
        let before: BTreeSet<String> = objects.keys().into_iter().collect();
        let built = work(&claimed, &worker).expect("there was something to do");
        let key = |file: &RunEntry| names::object_key(&file.name).expect("it is shared");
        let new = built.files().find(|file| !before.contains(&key(file)));
        let Some(new) = new.cloned() else {
            continue;
        };
        damaged += 1;
        objects.flip_bit(&key(&new), (new.bytes * 4) as usize);
        claimed.end(&Ok(Some(built.clone()))).expect("told");
        let told = done(&mut placed).expect("a build");
        let error = prove(&blobs, &manifest, &told).unwrap_err();
        assert!(is_of_content(&error), "{error}");
        drop(placed);
        let files: Vec<_> = told.files().map(|file| file.name.clone()).collect();
        let removed = play.writer.ledger().remove_unpublished(&files);
        removed.expect("removed");

        // Its own work puts the object again.
        let own = build(&blobs, &manifest, OPTIONS, &|_, _| {}).expect("built");
        assert_eq!(own.as_ref(), Some(&built), "seed {seed}");
        prove(&blobs, &manifest, &built).expect("they are whole");
        for change in [
            |file: &mut RunEntry| file.name = "STORE".into(),
            |file: &mut RunEntry| file.name = "runs/../../notes".into(),
            |file: &mut RunEntry| file.bytes += 1,
            |file: &mut RunEntry| file.meta.last += 1,
        ] {
            let mut wrong = built.clone();
            let generation = wrong.generation.iter_mut().flat_map(|of| &mut of.files);
            let mut files = wrong.runs.iter_mut().chain(generation);
            change(
                files
                    .find(|file| file.name == new.name)
                    .expect("it is named"),
            );
            prove(&blobs, &manifest, &wrong).unwrap_err();
        }
        objects.set_faults(|_| Some(Fault::Refused));
        let error = prove(&node(&objects), &manifest, &built).unwrap_err();
        assert!(!is_of_content(&error), "{error}");
        objects.set_faults(|_| None);
        objects.remove(&key(&new)).expect("removed");
        prove(&node(&objects), &manifest, &built).unwrap_err();
    }
    assert!(damaged > 0, "no build had a new object");
}

#[test]
fn a_file_that_the_manifest_names_otherwise_is_not_believed() {
    let mut shared = 0;
    for seed in 40..46 {
        let (play, manifest) = cut(seed, None);
        let blobs = play.writer.world().blobs();
        let Some(built) = build(&blobs, &manifest, OPTIONS, &|_, _| {}).expect("built") else {
            continue;
        };
        let known = manifest.file_names();
        let mut wrong = built.clone();
        let generation = wrong.generation.iter_mut().flat_map(|of| &mut of.files);
        let mut files = wrong.runs.iter_mut().chain(generation);
        let Some(file) = files.find(|file| known.contains(&*file.name)) else {
            continue;
        };
        file.meta.last += 1;
        shared += 1;
        prove(&blobs, &manifest, &built).expect("they are whole");
        let error = prove(&blobs, &manifest, &wrong).unwrap_err();
        assert!(is_of_content(&error), "{error}");
    }
    assert!(shared > 0, "no build shares a file");
}

#[test]
fn a_build_of_another_manifest_is_none() {
    let (play, manifest) = cut(2, None);
    let (blobs, worker) = (play.writer.world().blobs(), node(&play.stand.objects));
    let mut placed = place(&blobs, &order(manifest.number, epoch(&play)));
    let claimed = claim(&worker, epoch(&play)).expect("an order");
    let other = work(&claimed, &worker).map(|built| Build {
        base: manifest.number - 1,
        ..built
    });
    claimed.end(&Ok(other)).expect("told");
    let why = failure(&mut placed, 1);
    assert!(why.contains("node c built from manifest"), "{why}");
}
