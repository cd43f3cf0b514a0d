//! A server that only reads the bucket shows what each manifest names, and never more or less.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tallyring_archive::{Blobs, Manifest, ObjectParts, Objects, OsDisk, RunEntry, manifest, names};
use tallyring_realtime::{Error, Store, World};
use tallyring_records::Offset;
use tallyring_tests::answers::{answers, difference};
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::sim_objects::SimObjects;

use super::play::Play;
use super::stand::{Stand, key};

/// A reader that keeps parts of files on this disk.
fn reader(stand: &Stand, cache: &SimDisk) -> Store {
    reader_with_room(stand, cache, 64 << 20)
}

fn reader_with_room(stand: &Stand, cache: &SimDisk, bytes_max: u64) -> Store {
    let (objects, disk) = (Arc::new(stand.objects.clone()), Arc::new(cache.clone()));
    let parts = ObjectParts::new(objects, disk, bytes_max).expect("an empty disk");
    let world = World {
        objects: Some(Arc::new(parts)),
        ..stand.world(cache.clone())
    };
    Store::open_without_log(world, stand.options).expect("opened")
}

/// All answers of both that files give; of ids, only the log tells.
fn compare(play: &Play, reader: &Store) {
    let (end, shown) = (play.writer.live().applied(), reader.live().applied());
    assert!(shown <= end, "{shown} is behind {end}");
    assert_eq!(reader.manifest().number, play.writer.manifest().number);
    compare_counts(play, reader);
}

/// As [`compare`], where the reader's manifest may have another number.
fn compare_counts(play: &Play, reader: &Store) {
    let [writer, reader] = [&*play.writer, reader].map(|store| {
        let mut all = answers(&[store], play.now, &[]);
        // A flush logs something behind what it wrote, and times settle by what the files tell.
        let is_other = |what: &str| ["position", "manifest"].contains(&what);
        all.retain(|what, _| !is_other(what) && !what.starts_with("settled "));
        all
    });
    assert_eq!(difference(&writer, &reader), None, "the reader differs");
}

#[test]
fn a_reader_answers_as_the_writer_does_whenever_that_has_flushed() {
    for seed in 700..708 {
        let mut play = Play::new(seed);
        let cache = SimDisk::default();
        let mut shown = reader(&play.stand, &cache);
        for round in 0..6 {
            for _ in 0..20 {
                play.step();
            }
            play.writer.ledger().flush().expect("flushed");
            shown.show_newer().expect("the bucket answers");
            assert_eq!(shown.manifest().number, play.writer.manifest().number);
            compare(&play, &shown);
            let told = shown.shown().expect("it has no log");
            assert_eq!(told.waiting, None);
            assert!(told.counted_until <= play.now, "{told:?}");
            if round % 2 == 1 {
                drop(shown);
                // With what was kept, or with nothing and room for nothing.
                shown = match round {
                    1 => reader(&play.stand, &cache),
                    _ => reader_with_room(&play.stand, &SimDisk::default(), 0),
                };
                compare(&play, &shown);
            }
        }
    }
}

#[test]
fn a_manifest_whose_objects_are_gone_leaves_the_one_before_until_they_are_back() {
    let mut play = Play::new(710);
    (0..20).for_each(|_| play.commit());
    play.writer.ledger().flush().expect("flushed");
    let shown = reader(&play.stand, &SimDisk::default());
    let before = answers(&[&shown], play.now, &[]);
    let number = shown.manifest().number;
    (0..5).for_each(|_| play.commit());
    play.writer.ledger().flush().expect("flushed");
    let named = play.writer.manifest();
    let known = shown.manifest();
    let fresh = named.intake.stores.iter().flat_map(|store| &store.runs);
    let mut fresh = fresh.filter(|run| !known.file_names().contains(run.name.as_str()));
    let lost = fresh.next().expect("a new run").name.clone();
    let object = names::object_key(&lost).expect("a sorted file");
    play.stand.objects.remove(&object).expect("removed");
    for _ in 0..2 {
        assert!(!shown.show_newer().expect("the bucket answers"));
        let waiting = shown.shown().and_then(|shown| shown.waiting);
        let waiting = waiting.expect("it is told");
        assert_eq!(waiting.manifest, Some(named.number));
        assert!(waiting.error.contains(&lost), "{waiting:?}");
        assert_eq!(shown.manifest().number, number);
        assert_eq!(
            difference(&before, &answers(&[&shown], play.now, &[])),
            None
        );
    }
    let writer = play.writer.world().blobs();
    assert!(writer.ensure_object(&lost).expect("put back"));
    assert!(shown.show_newer().expect("the bucket answers"));
    assert_eq!(shown.shown().and_then(|shown| shown.waiting), None);
    compare(&play, &shown);
}

#[test]
fn a_reader_writes_no_object_takes_no_increment_and_has_the_keys_of_its_manifest() {
    let mut play = Play::new(720);
    (0..10).for_each(|_| play.commit());
    play.writer.intake().put_key(key("a")).expect("logged");
    play.writer.ledger().flush().expect("flushed");
    let writer = play.writer.world().blobs();
    let before = manifest::numbers(&writer).expect("listed");
    let shown = reader(&play.stand, &SimDisk::default());
    assert_eq!(shown.intake().keys(), [key("a")]);
    assert!(shown.ready().is_ok(), "it answers reads");
    assert!(shown.intake().put_key(key("b")).is_err());
    assert!(matches!(shown.ledger().flush(), Err(Error::ReadOnly)));
    assert_eq!(manifest::numbers(&writer).expect("listed"), before);
    play.writer.intake().put_key(key("b")).expect("logged");
    (0..2).for_each(|_| play.commit());
    play.writer.ledger().flush().expect("flushed");
    assert!(shown.show_newer().expect("the bucket answers"));
    assert_eq!(shown.intake().keys(), [key("a"), key("b")]);
}

/// A store that has flushed some counts, and a reader of it.
fn begun(seed: u64) -> (Play, Store) {
    let mut play = Play::new(seed);
    (0..20).for_each(|_| play.commit());
    play.writer.ledger().flush().expect("flushed");
    let shown = reader(&play.stand, &SimDisk::default());
    (play, shown)
}

/// The blobs of somebody else who writes to the bucket.
fn maker(stand: &Stand) -> Blobs {
    let blobs = stand.blobs(&SimDisk::default());
    blobs.prepare().expect("an empty disk");
    blobs
}

/// The reader cannot show what is there for a reason that has these words, and answers as before.
fn stays(shown: &Store, play: &Play, says: &str) {
    let before = answers(&[shown], play.now, &[]);
    let refused = shown.show_newer().expect_err("refused").to_string();
    assert!(refused.contains(says), "{refused}");
    let waiting = shown.shown().and_then(|shown| shown.waiting);
    let waiting = waiting.expect("it is told");
    assert_eq!((waiting.manifest, waiting.error), (None, refused));
    assert_eq!(difference(&before, &answers(&[shown], play.now, &[])), None);
}

/// Makes the objects of one store those of another.
fn become_like(objects: &SimObjects, others: &SimObjects) {
    for key in objects.keys() {
        objects.remove(&key).expect("removed");
    }
    for key in others.keys() {
        copy_object(others, objects, &key);
    }
}

fn copy_object(from: &SimObjects, to: &SimObjects, key: &str) {
    let mut bytes = Vec::new();
    from.get(key, &mut |part| bytes.extend_from_slice(part))
        .expect("an object");
    to.put_if_absent(key, &bytes).expect("put");
}

#[test]
fn a_bucket_that_becomes_that_of_another_store_or_goes_back_is_not_followed() {
    let (mut play, shown) = begun(730);
    let kept = play.stand.objects.copy();
    let number = shown.manifest().number;

    let newest = play.stand.objects.copy();
    let mut strange = shown.manifest().as_ref().clone();
    strange.number += 1;
    strange.store_id = "ab".repeat(16);
    strange.commit(&maker(&play.stand)).expect("free");
    assert!(!shown.show_newer().expect("the identity is that of before"));
    let waiting = shown.shown().and_then(|shown| shown.waiting);
    let waiting = waiting.expect("it is told");
    assert_eq!(waiting.manifest, Some(strange.number));
    assert!(waiting.error.contains(&strange.store_id), "{waiting:?}");
    become_like(&play.stand.objects, &newest);

    let mut other = Stand::empty();
    let owner = other.owner();
    let world = World {
        random: |out| out.fill(9),
        ..other.world(SimDisk::default())
    };
    let schema = tallyring_tests::model::schema(0);
    Store::begin_shared(&world, &other.options, (&other.topic, owner), schema).expect("made");
    become_like(&play.stand.objects, &other.objects);
    stays(&shown, &play, "this server serves store");
    play.stand.objects.remove("STORE").expect("removed");
    stays(&shown, &play, "is missing");

    become_like(&play.stand.objects, &kept);
    assert!(!shown.show_newer().expect("that of before"));
    assert_eq!(shown.shown().and_then(|shown| shown.waiting), None);
    let object = names::manifest(number);
    play.stand.objects.remove(&object).expect("removed");
    stays(&shown, &play, "went back");

    become_like(&play.stand.objects, &kept);
    play.commit();
    play.writer.ledger().flush().expect("flushed");
    assert!(shown.show_newer().expect("the bucket answers"));
    compare(&play, &shown);
}

#[test]
fn a_manifest_whose_files_go_for_a_newer_one_is_not_taken_for_one_that_waits() {
    let mut told = 0;
    for call in 1..=16 {
        let (mut play, shown) = begun(740);
        let known = shown.manifest();
        play.commit();
        play.writer.ledger().flush().expect("flushed");
        let next = play.writer.manifest();
        let fresh = next.intake.stores.iter().flat_map(|store| &store.runs);
        let mut fresh = fresh.filter(|run| !known.file_names().contains(run.name.as_str()));
        let lost = fresh.next().expect("a new run").name.clone();
        let lost = names::object_key(&lost).expect("a sorted file");
        let mut newest = Manifest {
            number: next.number + 1,
            ..known.as_ref().clone()
        };
        // It counts no less than the one before.
        let stores = newest.intake.stores.iter_mut();
        for (store, counted) in stores.zip(&next.intake.stores) {
            store.flushed = counted.flushed;
        }
        let (objects, blobs) = (play.stand.objects.clone(), maker(&play.stand));
        play.stand.objects.before_nth_call(call, move || {
            newest.commit(&blobs).expect("free");
            objects.remove(&lost).expect("removed");
        });
        assert!(shown.show_newer().expect("the bucket answers"), "{call}");
        assert_eq!(shown.shown().and_then(|shown| shown.waiting), None);
        let number = shown.manifest().number;
        assert!([next.number, next.number + 1].contains(&number), "{call}");
        told += u64::from(number == next.number);
    }
    assert!(
        (1..16).contains(&told),
        "the files went too late or too soon"
    );
}

#[test]
fn a_store_that_is_counted_anew_is_shown_once_it_has_come_as_far() {
    let (mut play, shown) = begun(745);
    play.commit();
    play.writer.ledger().flush().expect("flushed");
    assert!(shown.show_newer().expect("the bucket answers"));
    let whole = shown.manifest();
    let mut anew = Manifest {
        number: whole.number + 1,
        ..whole.as_ref().clone()
    };
    for store in &mut anew.intake.stores {
        store.runs.clear();
        store.flushed = Offset::default();
    }
    anew.intake.ids.flushed = Offset::default();
    let blobs = maker(&play.stand);
    anew.clone().commit(&blobs).expect("free");
    let refused = shown.show_newer().expect_err("counts less");
    assert!(refused.to_string().contains("counted anew"), "{refused}");
    assert_eq!(shown.manifest().number, whole.number);
    assert!(shown.shown().and_then(|shown| shown.waiting).is_some());
    let counted = Manifest {
        number: anew.number + 1,
        ..whole.as_ref().clone()
    };
    counted.clone().commit(&blobs).expect("free");
    assert!(shown.show_newer().expect("the bucket answers"));
    assert_eq!(shown.manifest().number, counted.number);
    assert_eq!(shown.shown().and_then(|shown| shown.waiting), None);
}

/// Files of this directory that this process has open.
fn open_files(directory: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("a list");
    let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    open.filter(|path| path.starts_with(directory)).count()
}

#[test]
fn files_of_manifests_that_wait_one_after_the_other_are_closed() {
    let mut play = Play::new(750);
    (0..20).for_each(|_| play.commit());
    play.writer.ledger().flush().expect("flushed");
    // The objects of the reader, which come there without one that is lost.
    let objects = play.stand.objects.copy();
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(OsDisk::new(directory.path()).expect("a disk"));
    let blobs = Blobs::over(disk.clone(), Arc::new(objects.clone()));
    let world = World {
        disk,
        objects: Some(Arc::new(objects.clone())),
        ..play.stand.world(SimDisk::default())
    };
    let shown = Store::open_without_log(world, play.stand.options).expect("opened");
    let before = open_files(directory.path());
    assert!(before > 0);
    for _ in 0..3 {
        play.commit();
        play.writer.ledger().flush().expect("flushed");
        for key in play.stand.objects.keys() {
            if key.starts_with(names::OBJECTS) {
                copy_object(&play.stand.objects, &objects, &key);
            }
        }
        let mut next = play.writer.manifest().as_ref().clone();
        let store = next
            .intake
            .stores
            .iter_mut()
            .rfind(|store| !store.runs.is_empty());
        let runs = &mut store.expect("a flushed store").runs;
        let last = runs.last().expect("a run").clone();
        let (place, _) = last.name.split_once(".csv.zst").expect("a sorted file");
        let place = &place[..place.len() - 16];
        runs.push(RunEntry {
            name: format!("{place}00000000000000ff.csv.zst"),
            ..last
        });
        next.commit(&blobs).expect("free");
        for _ in 0..2 {
            assert!(!shown.show_newer().expect("the bucket answers"));
            let waiting = shown.shown().and_then(|shown| shown.waiting);
            assert_eq!(waiting.and_then(|of| of.manifest), Some(next.number));
        }
    }
    let named = play.writer.manifest().file_names().len() - shown.manifest().file_names().len();
    let open = open_files(directory.path());
    assert!(open <= before + named, "{open} are open, {before} were");
    // Once they are whole, copies of those between go with their manifests.
    let last = play.writer.manifest();
    let whole = Manifest {
        number: last.number + 1,
        ..last.as_ref().clone()
    };
    whole.commit(&blobs).expect("free");
    let theirs = directory.path().join("archive/notes.txt");
    fs::write(&theirs, "theirs").expect("written");
    let gone = directory
        .path()
        .join("archive/2001-01.s00of01.00000000000000ff.csv.zst");
    fs::write(&gone, "left by a crash").expect("written");
    assert!(shown.show_newer().expect("the bucket answers"));
    compare_counts(&play, &shown);
    assert!(theirs.exists() && !gone.exists());
}
