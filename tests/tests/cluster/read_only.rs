//! A server that only reads the bucket shows what each manifest names, and never more or less.

use std::sync::Arc;

use tallyring_archive::manifest;
use tallyring_realtime::{Error, Store};
use tallyring_tests::answers::{answers, difference};
use tallyring_tests::sim_disk::SimDisk;

use super::play::Play;
use super::stand::{Stand, key};

/// A reader with this disk as its cache.
fn reader(stand: &Stand, cache: &SimDisk) -> Store {
    let opened = Store::open_without_log(stand.world(cache.clone()), stand.options);
    opened.expect("opened")
}

/// All answers of both that files give; of ids, only the log tells.
fn compare(play: &Play, reader: &Store) {
    let (end, shown) = (play.writer.live().applied(), reader.live().applied());
    assert!(shown <= end, "{shown} is behind {end}");
    let [writer, reader] = [&*play.writer, reader].map(|store| {
        let mut all = answers(store, play.now, &[]);
        // A flush logs something behind what it wrote, and times settle by what the files tell.
        all.retain(|what, _| what != "position" && !what.starts_with("settled "));
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
                // Its cache, or an empty one.
                drop(shown);
                shown = reader(&play.stand, &SimDisk::default());
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
    let before = answers(&shown, play.now, &[]);
    let number = shown.manifest().number;
    (0..5).for_each(|_| play.commit());
    play.writer.ledger().flush().expect("flushed");
    let named = play.writer.manifest();
    let known = shown.manifest();
    let fresh = named.intake.stores.iter().flat_map(|store| &store.runs);
    let mut fresh = fresh.filter(|run| !known.file_names().contains(run.name.as_str()));
    let lost = fresh.next().expect("a new run").name.clone();
    let object = tallyring_archive::names::object_key(&lost).expect("a sorted file");
    let objects: Arc<dyn tallyring_archive::Objects> = Arc::new(play.stand.objects.clone());
    objects.remove(&object).expect("removed");
    for _ in 0..2 {
        assert!(!shown.show_newer().expect("the bucket answers"));
        let waiting = shown.shown().and_then(|shown| shown.waiting);
        let waiting = waiting.expect("it is told");
        assert_eq!(waiting.manifest, named.number);
        assert!(waiting.error.contains(&lost), "{waiting:?}");
        assert_eq!(shown.manifest().number, number);
        assert_eq!(difference(&before, &answers(&shown, play.now, &[])), None);
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
