//! A server that only reads the bucket shows what each manifest names, and never more or less.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use tallyring_api::{ApiState, App};
use tallyring_archive::{Blobs, Manifest, Objects, OsDisk, PartCache, RunEntry, manifest, names};
use tallyring_realtime::{Batch, Error, Read, Service, Store, Strands, World};
use tallyring_records::{Increment, Offset, TIME_MAX, TIME_MIN};
use tallyring_tests::answers::{answers, difference, total};
use tallyring_tests::api;
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::sim_objects::SimObjects;
use tokio::runtime::Runtime;

use super::play::Play;
use super::stand::{Stand, key};

/// A reader that keeps parts of files on this disk.
fn reader(stand: &Stand, cache: &SimDisk) -> Store {
    reader_with_room(stand, cache, 64 << 20)
}

fn reader_with_room(stand: &Stand, cache: &SimDisk, bytes_max: u64) -> Store {
    let parts = PartCache::open(Arc::new(cache.clone()), bytes_max).expect("an empty disk");
    reader_beside(stand, cache, &parts)
}

/// A reader that keeps its parts beside those of others, on the same disk.
fn reader_beside(stand: &Stand, cache: &SimDisk, parts: &PartCache) -> Store {
    let world = World {
        objects: Some(Arc::new(parts.over(Arc::new(stand.objects.clone())))),
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

/// The status of a server over these services.
fn status(services: &[Arc<Service>]) -> Value {
    let runtime = Runtime::new().expect("a runtime");
    let _guard = runtime.enter();
    let states = services.iter().map(|service| api::state(service.clone()));
    let app = Arc::new(App::new(ApiState::of_strands(states.collect())));
    let request = Request::get("http://localhost/v1/admin/status").body(Body::empty());
    let request = request.expect("a request");
    let body = runtime.block_on(async {
        let answer = app.answer(request, Ipv4Addr::LOCALHOST.into()).await;
        axum::body::to_bytes(answer.into_body(), 1 << 20).await
    });
    serde_json::from_slice(&body.expect("a body")).expect("JSON")
}

/// The number of clicks that the writers of all strands have counted, and the number that the readers show together.
fn clicks(plays: &[Play], shown: &Strands) -> (u64, u64) {
    let of_strands = plays.iter().map(|play| total(&play.writer, "l", "a"));
    let view = shown.stores().view();
    let read = Read {
        namespace: "l".into(),
        key: "a".into(),
        subtotal: None,
        from: TIME_MIN,
        to: TIME_MAX,
        rolled: None,
    };
    let together = view.read(&read, None).expect("a view").totals.sum();
    (of_strands.sum(), together)
}

#[test]
fn the_readers_of_all_strands_share_a_cache_and_take_the_manifest_of_each_on_its_own() {
    let mut plays = [760, 761, 762].map(Play::new);
    let mut count = |play: &mut Play| {
        play.commit();
        let clicks = (0..5).map(|_| Increment::new(play.now, 1, [("l", "a")]));
        let batch = Batch {
            increments: clicks.collect(),
            ..Batch::default()
        };
        super::stand::commit(&play.writer, batch).expect("counted");
        play.writer.ledger().flush().expect("flushed");
    };
    plays.iter_mut().for_each(&mut count);
    let disk = SimDisk::default();
    let parts = PartCache::open(Arc::new(disk.clone()), 256 << 10).expect("an empty disk");
    let readers = plays
        .iter()
        .map(|play| Arc::new(reader_beside(&play.stand, &disk, &parts)));
    let services = readers.map(|reader| Arc::new(Service::start(reader).expect("threads")));
    let services: Vec<Arc<Service>> = services.collect();
    let shown = Strands::new(services.clone());
    let (counted, told) = clicks(&plays, &shown);
    assert!(counted >= 15 && counted == told, "{counted} {told}");
    plays.iter_mut().for_each(&mut count);

    // An object of the second strand is gone, and the other two go on.
    let named = plays[1].writer.manifest();
    let known = services[1].store().manifest();
    let fresh = named.intake.stores.iter().flat_map(|store| &store.runs);
    let mut fresh = fresh.filter(|run| !known.file_names().contains(run.name.as_str()));
    let lost = fresh.next().expect("a new run").name.clone();
    let object = names::object_key(&lost).expect("a sorted file");
    plays[1].stand.objects.remove(&object).expect("removed");
    let look = || {
        services
            .iter()
            .map(|of| of.store().show_newer().expect("the bucket answers"))
    };
    assert!(look().eq([true, false, true]));
    let all = total(&plays[1].writer, "l", "a");
    let behind = total(services[1].store(), "l", "a");
    let (counted, told) = clicks(&plays, &shown);
    assert_eq!(told, counted - (all - behind));
    let status_of_two = status(&services);
    assert_eq!(status_of_two["state"], "degraded", "{status_of_two}");
    let reasons = status_of_two["reasons"].to_string();
    assert!(
        reasons.contains("strand 1: manifest") && reasons.contains(&lost),
        "{reasons}"
    );
    let told = &status_of_two["read_only"];
    assert_eq!(told["waiting"], told["strands"][1]["waiting"]);
    assert_eq!(told["strands"][0]["waiting"], Value::Null);

    let writer = plays[1].writer.world().blobs();
    assert!(writer.ensure_object(&lost).expect("put back"));
    assert!(look().eq([false, true, false]));
    let (counted, told) = clicks(&plays, &shown);
    assert_eq!(counted, told);
    assert_eq!(status(&services)["state"], "ok");
    for (play, service) in plays.iter().zip(&services) {
        compare(play, service.store());
    }
    // A part takes 64 KiB of the bound.
    let kept = disk.files().into_iter();
    let kept = kept.filter(|(name, _)| name.starts_with("parts/")).count();
    assert!((1..=4).contains(&kept), "{kept} parts are kept");
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
