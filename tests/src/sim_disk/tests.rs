//! Each behaviour of the simulated disk, and that it finds what a disk must not do to a run.

use std::collections::BTreeSet;

use tallyring_archive::{Error, Origin, RunEntry, RunSpec, RunWriter, names, verify_run};

use super::*;

fn disk() -> SimDisk {
    let disk = SimDisk::default();
    for directory in ["d", names::ARCHIVE] {
        disk.create_directory(directory).expect("a directory");
    }
    disk.sync_directory("").expect("a sync");
    disk
}

/// A file that is wholly durable, with its name.
fn durable(disk: &SimDisk, name: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let mut file = disk.create(name).expect("a new file");
    file.write_at(0, bytes).expect("a write");
    file.sync().expect("a sync");
    disk.sync_directory(split(name).0).expect("a sync");
    file
}

fn bytes(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    disk.read(name).ok().map(|content| content.to_vec())
}

/// Everything that crashes leave of `make`'s disk, as `look` sees it.
fn outcomes<T: Ord>(make: impl Fn(&SimDisk), look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let outcome = |seed| {
        let disk = disk();
        make(&disk);
        look(&disk.crash(&mut random(seed)))
    };
    (0..300).map(outcome).collect()
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn synced_bytes_survive_every_crash() {
    let left = outcomes(
        |disk| {
            durable(disk, "d/a", b"one");
            let mut file = durable(disk, "d/b", b"two");
            file.write_at(3, &[7; 2000]).expect("a write");
            file.sync().expect("a sync");
            disk.link("d/a", "d/c").expect("a link");
            disk.remove("d/a").expect("a removal");
            disk.sync_directory("d").expect("a sync");
        },
        |disk| (disk.files(), bytes(disk, "d/c"), bytes(disk, "d/b")),
    );
    let files = vec![("d/b".to_owned(), 2003), ("d/c".to_owned(), 3)];
    let two = [&b"two"[..], &[7; 2000]].concat();
    assert_eq!(
        left,
        BTreeSet::from([(files, Some(b"one".to_vec()), Some(two))])
    );
}

#[test]
fn unsynced_sectors_survive_or_not_in_any_combination() {
    let make = |disk: &SimDisk| {
        let mut file = durable(disk, "d/a", &[1; 2 * SECTOR_BYTES]);
        file.write_at(0, &[2; 2 * SECTOR_BYTES]).expect("a write");
    };
    let firsts = |disk: &SimDisk| {
        let content = disk.read("d/a").expect("the file");
        assert!(
            content
                .chunks(SECTOR_BYTES)
                .all(|sector| sector.iter().all(|&b| b == sector[0]))
        );
        (content.len(), content[0], content[SECTOR_BYTES])
    };
    let expected = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(a, b)| (1024, a, b));
    assert_eq!(outcomes(make, firsts), BTreeSet::from(expected));
}

#[test]
fn an_unsynced_tail_is_missing_torn_or_zeros() {
    let make = |disk: &SimDisk| {
        let mut file = durable(disk, "d/a", b"x");
        file.write_at(1, &[2; 1023]).expect("a write");
    };
    let left = outcomes(make, |disk| {
        let content = disk.read("d/a").expect("the file");
        (
            content.len(),
            content.get(1).copied(),
            content.last().copied(),
        )
    });
    for expected in [
        (1, None, Some(b'x')),
        (512, Some(2), Some(2)),
        (1024, Some(0), Some(0)),
        (1024, Some(0), Some(2)),
        (1024, Some(2), Some(0)),
        (1024, Some(2), Some(2)),
    ] {
        assert!(left.contains(&expected), "{expected:?} in {left:?}");
    }
}

#[test]
fn a_name_that_was_not_synced_may_vanish_though_its_file_was() {
    let make = |disk: &SimDisk| {
        let mut file = disk.create("d/a").expect("a new file");
        file.write_at(0, b"x").expect("a write");
        file.sync().expect("a sync");
    };
    let left = outcomes(make, |disk| bytes(disk, "d/a"));
    assert_eq!(left, BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn unsynced_links_and_removals_happen_or_not_each_on_its_own() {
    let make = |disk: &SimDisk| {
        durable(disk, "d/a", b"x");
        disk.link("d/a", "d/b").expect("a link");
        disk.remove("d/a").expect("a removal");
    };
    let left = outcomes(make, |disk| {
        (bytes(disk, "d/a").is_some(), bytes(disk, "d/b").is_some())
    });
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn a_directory_whose_parent_was_not_synced_may_vanish_with_all_in_it() {
    let make = |disk: &SimDisk| {
        disk.create_directory("p/q").expect("directories");
        durable(disk, "p/q/a", b"x");
    };
    let left = outcomes(make, |disk| bytes(disk, "p/q/a").is_some());
    assert_eq!(left, BTreeSet::from([false, true]));
    let make = |disk: &SimDisk| {
        make(disk);
        disk.sync_directory("p").expect("a sync");
        disk.sync_directory("").expect("a sync");
    };
    let left = outcomes(make, |disk| bytes(disk, "p/q/a").is_some());
    assert_eq!(left, BTreeSet::from([true]));
}

#[test]
fn two_names_are_one_file_through_a_crash() {
    let disk = disk();
    let mut file = durable(&disk, "d/a", b"x");
    assert!(disk.link("d/a", "d/b").expect("a link"));
    assert!(!disk.link("d/a", "d/b").expect("a taken name"));
    disk.sync_directory("d").expect("a sync");
    file.write_at(0, b"y").expect("a write");
    assert_eq!(bytes(&disk, "d/b"), Some(b"y".to_vec()));
    let disk = disk.crash(&mut random(1));
    assert_eq!(bytes(&disk, "d/a"), bytes(&disk, "d/b"));
    disk.open("d/a")
        .expect("the file")
        .write_at(0, b"z")
        .expect("a write");
    assert_eq!(bytes(&disk, "d/b"), Some(b"z".to_vec()));
}

#[test]
fn a_killed_process_loses_nothing_it_wrote_but_it_is_not_durable_yet() {
    let make = || {
        let disk = disk();
        durable(&disk, "d/a", b"old")
            .write_at(0, b"new")
            .expect("a write");
        disk.create("d/b").expect("a new file");
        disk.kill()
    };
    assert_eq!(bytes(&make(), "d/a"), Some(b"new".to_vec()));
    assert_eq!(bytes(&make(), "d/b"), Some(Vec::new()));
    let left: BTreeSet<_> = (0..100)
        .map(|seed| make().crash(&mut random(seed)))
        .map(|disk| (bytes(&disk, "d/a"), bytes(&disk, "d/b")))
        .collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn a_dead_process_cannot_touch_the_disk() {
    for end in [SimDisk::kill, |disk: &SimDisk| disk.crash(&mut random(7))] {
        let disk = disk();
        let mut file = durable(&disk, "d/a", b"x");
        let held = disk.read("d/a").expect("the file");
        let next = end(&disk);
        assert!(file.write_at(0, b"y").is_err() && file.sync().is_err());
        assert!(disk.create("d/b").is_err() && disk.remove("d/a").is_err());
        assert_eq!(bytes(&next, "d/a"), Some(b"x".to_vec()));
        assert_eq!(*held, *b"x");
    }
}

#[test]
fn removed_content_stays_readable_while_it_is_held() {
    let disk = disk();
    let mut file = durable(&disk, "d/a", b"x");
    let held = disk.read("d/a").expect("the file");
    disk.remove("d/a").expect("a removal");
    file.write_at(0, b"y")
        .expect("a write to a file without a name");
    assert_eq!((bytes(&disk, "d/a"), &*held), (None, &b"x"[..]));
}

#[test]
fn the_nth_call_fails_and_the_ones_around_it_do_not() {
    let disk = disk();
    let mut file = durable(&disk, "d/a", b"");
    let before = disk.calls();
    disk.fail_nth_call(2, ErrorKind::PermissionDenied);
    file.write_at(0, b"abcd").expect("the first call");
    assert_eq!(kind(file.write_at(0, b"efgh")), ErrorKind::PermissionDenied);
    assert_eq!(
        bytes(&disk, "d/a"),
        Some(b"efcd".to_vec()),
        "written in part"
    );
    assert_eq!(disk.calls(), before + 3);
    disk.fail_nth_call(1, ErrorKind::Other);
    assert_eq!(kind(disk.remove("d/a")), ErrorKind::Other);
    assert!(bytes(&disk, "d/a").is_some(), "without effect");
}

#[test]
fn no_sync_makes_up_for_a_failed_one() {
    let make = |disk: &SimDisk| {
        let mut file = durable(disk, "d/a", &[b'-'; 1024]);
        file.write_at(0, b"A").expect("a write");
        disk.fail_nth_call(1, ErrorKind::Other);
        file.sync().expect_err("the fault");
        file.write_at(512, b"B").expect("a write");
        file.sync().expect("a later sync");
    };
    let left = outcomes(make, |disk| {
        let content = disk.read("d/a").expect("the file");
        (content[0], content[512])
    });
    assert_eq!(left, BTreeSet::from([(b'-', b'B'), (b'A', b'B')]));
}

#[test]
fn writes_to_one_sector_survive_in_their_order() {
    let make = |disk: &SimDisk| {
        let mut file = durable(disk, "d/a", b"----");
        for (offset, byte) in [(0, b"A"), (1, b"B"), (2, b"C")] {
            file.write_at(offset, byte).expect("a write");
        }
    };
    let left = outcomes(make, |disk| bytes(disk, "d/a").expect("the file"));
    let expected = [b"----", b"A---", b"AB--", b"ABC-"].map(|text| text.to_vec());
    assert_eq!(left, BTreeSet::from(expected));
}

#[test]
fn a_full_disk_takes_what_fits_until_something_is_removed() {
    let disk = disk();
    durable(&disk, "d/old", &[1; 100]);
    let mut file = durable(&disk, "d/a", &[1; 10]);
    disk.link("d/a", "d/b")
        .expect("a second name takes no space");
    disk.set_free_bytes(5);
    file.write_at(0, &[2; 10]).expect("in place");
    assert_eq!(kind(file.write_at(8, &[3; 8])), ErrorKind::StorageFull);
    assert_eq!(disk.read("d/a").expect("the file").len(), 15);
    assert_eq!(disk.free_bytes().expect("the space"), 0);
    disk.remove("d/old").expect("a removal");
    assert_eq!(disk.free_bytes().expect("the space"), 100);
    file.write_at(15, &[3; 100]).expect("it fits now");
}

#[test]
fn a_flipped_bit_is_there_after_a_crash_too() {
    let disk = disk();
    let mut file = durable(&disk, "d/a", &[0; 3]);
    file.write_at(2, &[8]).expect("a write");
    disk.flip_bit("d/a", 1);
    disk.flip_bit("d/a", 16);
    assert_eq!(bytes(&disk, "d/a"), Some(vec![2, 0, 9]));
    let left = bytes(&disk.crash(&mut random(3)), "d/a").expect("the file");
    assert!(left == [2, 0, 9] || left == [2, 0, 1], "{left:?}");
}

#[test]
fn names_are_taken_missing_and_listed_as_on_a_real_disk() {
    let disk = disk();
    disk.create_directory("d/e").expect("a directory");
    disk.create_directory("d/e").expect("it may be there");
    for name in ["d/b", "d/a", "d/e/c", "top"] {
        disk.create(name).expect("a new file");
    }
    assert_eq!(kind(disk.create("d/a")), ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create("no/a")), ErrorKind::NotFound);
    assert_eq!(kind(disk.open("d/x")), ErrorKind::NotFound);
    assert_eq!(kind(disk.read("d/x")), ErrorKind::NotFound);
    assert_eq!(kind(disk.remove("d/x")), ErrorKind::NotFound);
    assert_eq!(kind(disk.link("d/x", "d/y")), ErrorKind::NotFound);
    assert_eq!(kind(disk.sync_directory("no")), ErrorKind::NotFound);
    assert_eq!(disk.list("d").expect("a list"), ["a", "b"]);
    assert_eq!(disk.list("").expect("a list"), ["top"]);
    assert!(disk.list("no").expect("no error").is_empty());
}

#[test]
fn one_seed_and_the_same_calls_give_the_same_disk() {
    let end = |seed| {
        let disk = disk();
        for name in ["d/a", "d/b", "d/c", "d/e"] {
            durable(&disk, name, b"x")
                .write_at(100, &[5; 3000])
                .expect("a write");
            disk.link(name, &format!("{name}2")).expect("a link");
        }
        let disk = disk.crash(&mut random(seed));
        let files = disk.files();
        let contents = files.iter().map(|(name, _)| bytes(&disk, name));
        (contents.collect::<Vec<_>>(), files)
    };
    for seed in 0..20 {
        assert!(end(seed) == end(seed), "seed {seed}");
    }
    assert!((1..20).any(|seed| end(seed) != end(0)));
}

/// Writes and publishes a run as every stage does.
fn publish(disk: &SimDisk) -> Result<RunEntry, Error> {
    let spec = RunSpec {
        origin: Origin::Merge,
        partition: "2012-04".parse().expect("a month"),
        shard: 0,
        shards: 1,
        level: 3,
    };
    let mut writer = RunWriter::create(&disk.blobs(), spec)?;
    for key in 0..2000 {
        writer.push(format!("u|{key:05}").as_bytes(), b"c41l:1")?;
    }
    let entry = writer.finish()?.expect("a run with lines");
    disk.sync_directory(names::ARCHIVE)
        .map_err(Error::io("sync", names::ARCHIVE))?;
    Ok(entry)
}

#[test]
fn a_published_run_survives_and_an_unpublished_one_never_has_its_name_with_other_bytes() {
    let entry = publish(&disk()).expect("no fault");
    let calls = {
        let disk = disk();
        let before = disk.calls();
        publish(&disk).expect("no fault");
        disk.calls() - before
    };
    for stop in 1..=calls + 1 {
        for seed in 0..40 {
            let disk = disk();
            disk.stop_at_nth_call(stop);
            let published = publish(&disk).is_ok();
            assert_eq!(published, stop > calls);
            let disk = disk.crash(&mut random(seed));
            if published || bytes(&disk, &entry.name).is_some() {
                verify_run(&disk.blobs(), &entry).expect("the run is whole");
            }
        }
    }
}

#[test]
fn a_fault_at_any_call_but_one_is_an_error_and_the_next_try_works() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        let mut unnoticed = 0;
        for call in 1.. {
            let disk = disk();
            let before = disk.calls();
            disk.fail_nth_call(call, kind);
            let first = publish(&disk);
            if disk.calls() - before < call {
                first.expect("the fault was not reached");
                break;
            }
            unnoticed += usize::from(first.is_ok());
            let entry = publish(&disk).expect("the second try");
            verify_run(&disk.blobs(), &entry).expect("the run is whole");
        }
        // A temporary name that cannot be removed is only space.
        assert_eq!(unnoticed, 1);
    }
}
