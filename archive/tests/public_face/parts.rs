//! Files that are read in parts of their objects, of which the disk keeps some.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use tallyring_archive::{
    Blobs, Content, Objects, PartCache, Run, RunEntry, RunSpec, names, verify_run,
};

use crate::objects::Bucket;
use crate::{Files, Line, read_all, spec, write};

const MIB: usize = 1 << 20;
/// A name of an object's content.
const NAME: &str = "runs/ring-day-2012-03-16.2012-03.s00of01.0123456789abcdef.csv.zst";

/// A server that keeps at most so many bytes of parts on this disk.
fn server(bucket: &Arc<Bucket>, disk: &Files, bytes_max: usize) -> Blobs {
    let disk = Arc::new(disk.clone());
    let cache = PartCache::open(disk.clone(), bytes_max as u64).unwrap();
    Blobs::over(disk, Arc::new(cache.over(bucket.clone())))
}

/// A bucket with an object of so many bytes, all of which are different from their neighbours.
fn bucket_of(bytes: usize) -> (Arc<Bucket>, Vec<u8>) {
    let bucket = Arc::new(Bucket::default());
    let all: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
    let key = names::object_key(NAME).unwrap();
    bucket.put(&key, &Content::new(all.clone())).unwrap();
    (bucket, all)
}

/// Names and bytes of the parts that the disk keeps.
fn kept(disk: &Files) -> Vec<(String, usize)> {
    let files = disk.0.lock().unwrap();
    let parts = files.iter().filter(|(name, _)| name.starts_with("parts/"));
    parts
        .map(|(name, bytes)| (name.clone(), bytes.len()))
        .collect()
}

fn kept_bytes(disk: &Files) -> usize {
    kept(disk).iter().map(|(_, bytes)| bytes).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn prop_any_bytes_of_an_object_are_read_within_the_bound(
        bytes in (3 * MIB..5 * MIB),
        room in prop_oneof![Just(0), Just(MIB), Just(3 * MIB), Just(64 * MIB)],
        reads in proptest::collection::vec((0..5 * MIB, 0..2 * MIB), 1..20),
    ) {
        let (bucket, all) = bucket_of(bytes);
        let disk = Files::default();
        let content = server(&bucket, &disk, room).content(NAME).unwrap();
        prop_assert_eq!(content.len(), bytes as u64);
        for (start, length) in reads {
            let wanted: Range<usize> = start..start + length;
            let read = content.part(start as u64, length);
            match all.get(wanted) {
                Some(bytes) => prop_assert!(read.unwrap() == bytes),
                None => {
                    prop_assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
                }
            }
            prop_assert!(kept_bytes(&disk) <= room, "{:?}", kept(&disk));
        }
    }
}

#[test]
fn a_part_is_fetched_once_and_the_next_process_finds_it() {
    let (bucket, all) = bucket_of(3 * MIB + 5);
    let disk = Files::default();
    let content = server(&bucket, &disk, 64 * MIB).content(NAME).unwrap();
    assert_eq!(bucket.parts_read(), 0, "to open a file reads nothing");
    for _ in 0..3 {
        assert!(content.part(MIB as u64 - 1, 2).unwrap() == all[MIB - 1..MIB + 1]);
        assert_eq!(bucket.parts_read(), 2);
    }
    let names = kept(&disk).into_iter().map(|(name, _)| name);
    let file = "2012-03.s00of01.0123456789abcdef.csv.zst";
    assert!(names.eq([0, 1].map(|number| format!("parts/{file}.{number}"))));
    disk.put("parts/of-somebody", vec![1]);
    disk.put(&format!("parts/{file}.x"), vec![1]);
    let again = server(&bucket, &disk, 64 * MIB).content(NAME).unwrap();
    assert!(again.part(0, 2 * MIB).unwrap() == all[..2 * MIB]);
    assert_eq!(bucket.parts_read(), 2);
    assert_eq!(kept(&disk).len(), 2, "other files are removed");
    assert!(again.part(2 * MIB as u64, MIB + 5).unwrap() == all[2 * MIB..]);
    assert_eq!(kept(&disk).len(), 4);
    // With less room than before, the next process makes it.
    drop(server(&bucket, &disk, 2 * MIB));
    assert!(kept_bytes(&disk) <= 2 * MIB, "{:?}", kept(&disk));
}

#[test]
fn parts_that_are_gone_or_cut_off_are_fetched_again_and_a_full_disk_costs_only_time() {
    let (bucket, all) = bucket_of(2 * MIB);
    let disk = Files::default();
    let content = server(&bucket, &disk, 64 * MIB).content(NAME).unwrap();
    content.all().unwrap();
    let [(first, _), (second, _)] = kept(&disk).try_into().unwrap();
    disk.put(&first, all[..10].to_vec());
    disk.0.lock().unwrap().remove(&second);
    assert!(content.all().unwrap() == all);
    assert_eq!(bucket.parts_read(), 4);
    assert_eq!(kept_bytes(&disk), 2 * MIB);
    // Nothing can be read from this disk any more.
    disk.1.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(content.all().unwrap() == all);
    assert_eq!(bucket.parts_read(), 6);
}

#[test]
fn a_part_that_another_process_removes_meanwhile_is_fetched_again() {
    let (bucket, all) = bucket_of(2 * MIB);
    let disk = Files::default();
    let first = server(&bucket, &disk, 64 * MIB).content(NAME).unwrap();
    assert!(first.all().unwrap() == all);
    for removed in kept(&disk) {
        *disk.2.lock().unwrap() = Some(removed.0);
        // The list of the second process still has it.
        let second = server(&bucket, &disk, 64 * MIB).content(NAME).unwrap();
        for content in [&first, &second] {
            assert!(content.all().unwrap() == all);
        }
    }
    assert_eq!(bucket.parts_read(), 6, "each process fetches it");
}

/// A run of a node in the bucket, and its lines.
fn run_in(bucket: &Arc<Bucket>) -> (RunEntry, Vec<Line>) {
    let line = |number: u32| (format!("u|user{number:05}").into(), b"c41l:5".to_vec());
    let lines: Vec<Line> = (0..9_000).map(line).collect();
    let node = Blobs::over(Arc::new(Files::default()), bucket.clone());
    let run = write(&node, spec("2012-04", 0, 1), &lines)
        .unwrap()
        .unwrap();
    (run, lines)
}

#[test]
fn a_kept_part_that_rotted_is_fetched_again_and_an_object_that_rotted_is_damage() {
    let bucket = Arc::new(Bucket::default());
    let (run, lines) = run_in(&bucket);
    let disk = Files::default();
    let read = |disk: &Files| read_all(&server(&bucket, disk, 64 * MIB), &run.name);
    assert_eq!(read(&disk).unwrap(), lines);
    assert_eq!(bucket.parts_read(), 1);
    let [(part, bytes)] = kept(&disk).try_into().unwrap();
    let mut fetched = 1;
    // In the footer, in the index, in the first block.
    for at in [bytes - 1, bytes - 100, 9] {
        disk.0.lock().unwrap().get_mut(&part).unwrap()[at] ^= 1;
        Run::open_named(&server(&bucket, &disk, 64 * MIB), &run).unwrap();
        assert_eq!(read(&disk).unwrap(), lines, "byte {at}");
        assert!(bucket.parts_read() > fetched, "byte {at}");
        fetched = bucket.parts_read();
    }
    let key = names::object_key(&run.name).unwrap();
    bucket.change(&key, |bytes| bytes[9] ^= 1);
    let damage = read(&Files::default()).unwrap_err();
    assert!(damage.is_damage(), "{damage}");
}

#[test]
fn a_small_run_is_proved_by_its_kept_part_and_anew_where_that_rotted() {
    let bucket = Arc::new(Bucket::default());
    let blobs = Blobs::over(Arc::new(Files::default()), bucket.clone());
    let write = |key: &str| {
        let lines = [(key.into(), b"c41l:5".to_vec())];
        write(&blobs, spec("2012-04", 0, 1), &lines)
            .unwrap()
            .unwrap()
    };
    let (run, other) = (write("u|a"), write("u|b"));
    assert_eq!((run.bytes, &run.meta), (other.bytes, &other.meta));
    let disk = Files::default();
    let open = || Run::open_named(&server(&bucket, &disk, 64 * MIB), &run);
    for _ in 0..3 {
        open().unwrap();
        assert_eq!(bucket.parts_read(), 1, "its object is read once");
    }
    let keys = [&run, &other].map(|run| names::object_key(&run.name).unwrap());
    let mut others = Vec::new();
    bucket.change(&keys[1], |bytes| others.clone_from(bytes));
    let [(part, good)] = kept(&disk).try_into().unwrap();
    disk.put(&part, others.clone());
    open().unwrap();
    assert_eq!((bucket.parts_read(), kept(&disk)), (2, vec![(part, good)]));
    bucket.change(&keys[0], |bytes| *bytes = others);
    let fresh = server(&bucket, &Files::default(), 64 * MIB);
    assert!(Run::open_named(&fresh, &run).unwrap_err().is_damage());
}

#[test]
fn parts_of_files_that_no_manifest_names_go_and_others_stay() {
    let (bucket, all) = bucket_of(2 * MIB);
    let disk = Files::default();
    let other = NAME.replace("0123456789abcdef", "fedcba9876543210");
    let content = Content::new(all.clone());
    let key = names::object_key(&other).unwrap();
    bucket.put(&key, &content).unwrap();
    let cache = PartCache::open(Arc::new(disk.clone()), 64 * MIB as u64).unwrap();
    let parts = cache.over(bucket.clone());
    let blobs = Blobs::over(Arc::new(disk.clone()), Arc::new(parts));
    for name in [NAME, &other] {
        assert!(blobs.content(name).unwrap().all().unwrap() == all);
    }
    cache.keep_only([NAME, "oplog/0000000000000000.tlog"]);
    assert_eq!(kept_bytes(&disk), 2 * MIB);
    assert!(!kept(&disk).iter().any(|(name, _)| name.contains("fedcba")));
    for name in [NAME, &other] {
        assert!(blobs.content(name).unwrap().all().unwrap() == all);
    }
    assert_eq!(bucket.parts_read(), 6);
}

#[test]
fn object_stores_that_keep_their_parts_together_have_one_bound() {
    let buckets = [bucket_of(3 * MIB), bucket_of(3 * MIB)];
    let disk = Files::default();
    let cache = PartCache::open(Arc::new(disk.clone()), 4 * MIB as u64).unwrap();
    let other = NAME.replace("0123456789abcdef", "fedcba9876543210");
    let (key, of_other) = (names::object_key(NAME), names::object_key(&other));
    let (second, all) = &buckets[1];
    let content = Content::new(all.clone());
    second.put(&of_other.unwrap(), &content).unwrap();
    second.remove(&key.unwrap()).unwrap();
    for ((bucket, all), name) in buckets.iter().zip([NAME, &other]) {
        let blobs = Blobs::over(Arc::new(disk.clone()), Arc::new(cache.over(bucket.clone())));
        assert!(blobs.content(name).unwrap().all().unwrap() == *all);
        assert_eq!(bucket.parts_read(), 3);
        assert!(kept_bytes(&disk) <= 4 * MIB, "{:?}", kept(&disk));
    }
    assert!(kept(&disk).iter().any(|(name, _)| name.contains("fedcba")));
}

/// A node that reads its archive in parts.
fn node(bucket: &Arc<Bucket>, disk: &Files) -> Blobs {
    let disk = Arc::new(disk.clone());
    let cache = PartCache::open(disk.clone(), 64 * MIB as u64).unwrap();
    Blobs::over(disk, Arc::new(cache.over_archive(bucket.clone())))
}

#[test]
fn a_node_that_reads_its_archive_in_parts_has_copies_of_what_was_flushed_alone() {
    let bucket = Arc::new(Bucket::default());
    let disk = Files::default();
    let blobs = node(&bucket, &disk);
    let has = |name: &str| disk.0.lock().unwrap().contains_key(name);
    let lines = vec![(b"u|a".to_vec(), b"c41l:5".to_vec())];
    let flushed = RunSpec {
        origin: "flush day-2012-04-01".parse().unwrap(),
        ..spec("2012-04", 0, 1)
    };
    for (spec, is_copied) in [(spec("2012-04", 0, 1), false), (flushed, true)] {
        let run = write(&blobs, spec, &lines).unwrap().unwrap();
        assert_eq!(has(&run.name), is_copied, "{}", run.name);
        assert_eq!(read_all(&blobs, &run.name).unwrap(), lines);
        let other = Files::default();
        assert_eq!(read_all(&node(&bucket, &other), &run.name).unwrap(), lines);
        let copied = other.0.lock().unwrap().contains_key(&run.name);
        assert_eq!(copied, is_copied, "{}", run.name);
    }
    let files = disk.0.lock().unwrap();
    assert!(
        !files.keys().any(|name| name.ends_with(".tmp")),
        "{files:?}"
    );
}

#[test]
fn a_copy_of_before_goes_where_the_bucket_has_the_file_and_stays_where_it_is_gone() {
    let bucket = Arc::new(Bucket::default());
    let disk = Files::default();
    let copying = Blobs::over(Arc::new(disk.clone()), bucket.clone());
    let lines = vec![(b"u|a".to_vec(), b"c41l:5".to_vec())];
    let run = write(&copying, spec("2012-04", 0, 1), &lines)
        .unwrap()
        .unwrap();
    let has = || disk.0.lock().unwrap().contains_key(&run.name);
    assert!(copying.let_go_of_copy(&run.name).unwrap());
    assert!(has(), "it reads copies");
    let blobs = node(&bucket, &disk);
    let key = names::object_key(&run.name).unwrap();
    bucket.change(&key, |bytes| bytes.push(0));
    assert!(!blobs.let_go_of_copy(&run.name).unwrap());
    bucket.remove(&key).unwrap();
    assert!(!blobs.let_go_of_copy(&run.name).unwrap());
    assert!(has(), "it is the last one");
    assert_eq!(read_all(&blobs, &run.name).unwrap(), lines);
    assert!(blobs.ensure_object(&run.name).unwrap());
    // A file that is read in parts is not read from its copy, which may go at any time.
    disk.put(&run.name, Vec::new());
    assert_eq!(read_all(&blobs, &run.name).unwrap(), lines);
    bucket.change(&key, |bytes| disk.put(&run.name, bytes.clone()));
    assert!(blobs.let_go_of_copy(&run.name).unwrap());
    assert!(!has());
    assert_eq!(read_all(&blobs, &run.name).unwrap(), lines);
}

#[test]
fn an_object_that_rotted_is_found_whatever_parts_are_kept_and_good_bytes_take_its_place() {
    let bucket = Arc::new(Bucket::default());
    let (run, lines) = run_in(&bucket);
    let disk = Files::default();
    let blobs = node(&bucket, &disk);
    verify_run(&blobs, &run).unwrap();
    let key = names::object_key(&run.name).unwrap();
    bucket.change(&key, |bytes| bytes[9] ^= 1);
    assert_eq!(
        read_all(&blobs, &run.name).unwrap(),
        lines,
        "its parts are kept"
    );
    assert!(verify_run(&blobs, &run).unwrap_err().is_damage());
    let backup = Blobs::new(Arc::new(Files::default()));
    let [good] = [write(&backup, spec("2012-04", 0, 1), &lines)
        .unwrap()
        .unwrap()];
    assert_eq!(good.name, run.name);
    blobs.put_over_from(&backup, &good.name, &run.name).unwrap();
    verify_run(&blobs, &run).unwrap();
    assert!(!disk.0.lock().unwrap().contains_key(&run.name));
    let fresh = node(&bucket, &Files::default());
    assert_eq!(read_all(&fresh, &run.name).unwrap(), lines);
}
