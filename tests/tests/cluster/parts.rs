//! Nodes whose archive is larger than their disks: they read its files in parts, and answer as all others do.

use std::sync::Arc;

use tallyring_archive::{Blobs, Content, Disk, Objects, PartCache, RunEntry, names};
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::sim_objects::SimObjects;

use super::play::Play;
use super::stand::take_over;

/// Room for two parts.
const BYTES_MAX: u64 = 128 << 10;

/// Copies of files of the archive on a node's disk.
fn copies(disk: &SimDisk) -> Vec<String> {
    let files = disk.files().into_iter().map(|(name, _)| name);
    files.filter(|name| names::is_of_archive(name)).collect()
}

fn parts(disk: &SimDisk) -> usize {
    let files = disk.files().into_iter();
    files.filter(|(name, _)| name.starts_with("parts/")).count()
}

#[test]
fn parts_leave_room_on_the_disk_and_the_newest_take_the_place_of_others() {
    const MIB: u64 = 1 << 20;
    let name = "runs/ring-day-2012-03-16.2012-03.s00of01.0123456789abcdef.csv.zst";
    let (disk, objects) = (SimDisk::default(), SimObjects::default());
    let key = names::object_key(name).expect("it is shared");
    let bytes = Content::new(vec![7; 8 << 20]);
    objects.put(&key, &bytes).expect("put");
    let cache = PartCache::open(Arc::new(disk.clone()), 16 * MIB).expect("made");
    let objects = cache.over(Arc::new(objects));
    let content = Blobs::over(Arc::new(disk.clone()), Arc::new(objects)).content(name);
    let content = content.expect("there");
    for (free, kept) in [(19, 3), (15, 2), (30, 8)] {
        disk.set_free_bytes(free * MIB);
        assert_eq!(content.all().expect("read").len(), 8 << 20);
        assert_eq!(parts(&disk), kept, "{free} MiB are free");
        assert!(disk.free_bytes().expect("the space") >= 16 * MIB);
    }
}

#[test]
fn a_node_that_lets_go_of_its_copies_answers_as_the_writer_does() {
    let mut let_go = 0;
    for seed in 770..774 {
        let mut play = Play::new(seed);
        (0..40).for_each(|_| play.step());
        play.rebuild();
        play.check_follower();
        let_go += copies(&play.disk).len();
        // The follower begins anew, with the disk of before or an empty one.
        play.stand.parts_max = Some(BYTES_MAX);
        play.crash();
        for _ in 0..4 {
            assert_eq!(copies(&play.disk), [""; 0], "seed {seed}");
            (0..15).for_each(|_| play.step());
            play.rebuild();
            play.check_follower();
            assert!(parts(&play.disk) <= 2, "seed {seed}");
        }
    }
    assert!(let_go > 0, "there was no copy to let go of");
}

#[test]
fn a_node_without_copies_of_its_archive_writes_and_merges_it() {
    for seed in 780..784 {
        let mut play = Play::new(seed);
        play.stand.parts_max = Some(BYTES_MAX);
        let (disk, follower) = play.stand.follower(3);
        let owner = play.stand.owner();
        play.writer = take_over(follower, owner);
        for _ in 0..5 {
            (0..20).for_each(|_| play.step());
            play.rebuild();
            assert_eq!(copies(&disk), [""; 0], "seed {seed}");
            play.check_follower();
        }
        assert!(!play.writer.manifest().archive.generations.is_empty());
    }
}

/// A file of the archive that the writer reads, its key, and its bytes.
fn archived(play: &Play) -> (RunEntry, String, Vec<u8>) {
    let manifest = play.writer.manifest();
    let active = manifest.archive.generations.last().expect("a generation");
    let file = active.files[0].clone();
    let key = names::object_key(&file.name).expect("it is shared");
    let mut bytes = Vec::new();
    let read = play.stand.objects.get(&key, &mut |part| bytes.extend(part));
    read.expect("read");
    (file, key, bytes)
}

/// Names of damaged files, as the follower tells them.
fn damaged(play: &Play) -> Vec<String> {
    let follower = play.follower.as_ref().expect("a follower");
    let damaged = follower.store().ledger().damaged_entries().into_iter();
    damaged.map(|file| file.name).collect()
}

#[test]
fn a_follower_opens_a_lost_file_again_once_it_is_healed() {
    for newer_manifest in [false, true] {
        let mut play = Play::new(790);
        (0..40).for_each(|_| play.step());
        play.rebuild();
        let (file, key, bytes) = archived(&play);
        play.stand.objects.remove(&key).expect("removed");
        play.stand.parts_max = Some(BYTES_MAX);
        (play.disk, play.follower) = {
            let (disk, follower) = play.stand.follower(3);
            (disk, Some(follower))
        };
        assert_eq!(damaged(&play), std::slice::from_ref(&file.name));
        let reopen = |play: &Play| {
            let follower = play.follower.as_ref().expect("a follower");
            follower.store().ledger().open_lost_again();
        };
        reopen(&play);
        assert_eq!(
            damaged(&play),
            std::slice::from_ref(&file.name),
            "it is gone still"
        );
        let objects = &play.stand.objects;
        assert!(objects.put_if_absent(&key, &bytes).expect("put"));
        match newer_manifest {
            true => {
                play.commit();
                play.writer.ledger().flush().expect("flushed");
            }
            false => reopen(&play),
        }
        play.check_follower();
        assert_eq!(damaged(&play), [""; 0]);
    }
}

#[test]
fn a_rebuild_of_more_than_a_day_keeps_its_files_from_the_sweeps() {
    let mut play = Play::new(800);
    play.stand.parts_max = Some(BYTES_MAX);
    let (_, follower) = play.stand.follower(3);
    let owner = play.stand.owner();
    play.writer = take_over(follower, owner);
    (0..40).for_each(|_| play.step());
    let writer = Arc::clone(&play.writer);
    let sweep = || while writer.ledger().sweep().expect("swept") {};
    sweep();
    let stay = writer.ledger().keep_objects();
    let built = play.build().expect("a build");
    for _ in 0..30 {
        play.pass(3_600);
        play.commit();
        writer.ledger().flush().expect("flushed");
        sweep();
    }
    assert!(writer.ledger().swept().manifests > 0, "nothing was old");
    writer.ledger().publish(&built).expect("published");
    drop(stay);
    play.check_follower();
    // A file that no rebuild is to name goes as before.
    play.pass(30 * 3_600);
    play.commit();
    writer.ledger().flush().expect("flushed");
    sweep();
    assert!(writer.ledger().swept().objects > 0);
    play.check_follower();
}
