//! Damage: every cut and every flipped bit is found, and no read ever returns another line.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use proptest::prelude::*;
use tallyring_archive::{Blobs, BlockCache, Error, Run, RunEntry, verify_run};

use crate::format::lines_of_columns;
use crate::{Line, MemoryDisk, lines, merge_runs, read_all, read_from, spec, write, write_april};

/// Ordinary lines, and texts so long that each fills a block and so dull that all of the file stays
/// small enough to flip every bit of it.
fn many_blocks() -> Vec<Line> {
    let mut lines = lines(
        "c.u|jehiah.c413,US:1 JP:1\n\
         c.u|jehiah.c41l,US:4\n\
         u|jehiah,c413:2 c41l:5\n",
    );
    for (number, byte) in (1..).zip(*b"xyz") {
        let text = format!("a text that does not repeat {:016x}", u64::MAX / number);
        let payload = [text.as_bytes(), &[byte; 40_000]].concat();
        lines.push((format!("~aaaaaaaaaaa{number}").into(), payload));
    }
    lines
}

struct Good {
    lines: Vec<Line>,
    entry: RunEntry,
    file: Vec<u8>,
}

fn good() -> Good {
    let disk = MemoryDisk::default();
    let lines = many_blocks();
    let entry = write_april(&disk, &lines);
    assert!(Run::open(&disk, &entry.name).unwrap().block_count() >= 3);
    assert_eq!(verify_run(&disk, &entry).unwrap().lines, lines.len() as u64);
    let file = disk.read(&entry.name).unwrap().to_vec();
    Good { lines, entry, file }
}

impl Good {
    /// `bad` in the place of the file is reported by name, and reads fail or give the true lines.
    fn check(&self, bad: Vec<u8>, what: &str) {
        let disk = MemoryDisk::default();
        let name = &self.entry.name;
        disk.put(name, bad);
        let error = verify_run(&disk, &self.entry).expect_err(what);
        assert!(matches!(&error, Error::Damaged { .. }), "{what}: {error}");
        assert!(error.to_string().contains(name.as_str()), "{what}: {error}");
        if let Ok(read) = read_all(&disk, name) {
            assert!(read == self.lines, "{what}: other lines");
        }
        let Ok(run) = Run::open(&disk, name) else {
            return;
        };
        let cache = BlockCache::new(1 << 20);
        for from in [&b""[..], b"u|jehiah", b"~aaaaaaaaaaa2", b"~b"] {
            if let Ok(read) = read_from(&run, &cache, from, 2) {
                let true_lines = self.lines.iter().filter(|(key, _)| &**key >= from);
                assert!(read.iter().eq(true_lines.take(2)), "{what}: other lines");
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let good = good();
    for bit in 0..good.file.len() * 8 {
        let mut bad = good.file.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        good.check(bad, &format!("bit {bit}"));
    }
}

#[test]
fn flipped_bits_and_cuts_of_columns_and_their_list_are_found() {
    let disk = MemoryDisk::default();
    let lines = lines_of_columns();
    let entry = write(&disk, spec("2012", 0, 1), &lines).unwrap().unwrap();
    let file = disk.read(&entry.name).unwrap().to_vec();
    let good = Good { lines, entry, file };
    for bit in (0..good.file.len() * 8).step_by(1_999) {
        let mut bad = good.file.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        good.check(bad, &format!("bit {bit}"));
    }
    for length in (0..good.file.len()).step_by(499) {
        good.check(good.file[..length].to_vec(), &format!("length {length}"));
    }
}

#[test]
fn every_cut_is_found() {
    let good = good();
    for length in 0..good.file.len() {
        good.check(good.file[..length].to_vec(), &format!("length {length}"));
    }
}

#[test]
fn bytes_in_front_behind_or_missing_in_the_middle_are_found() {
    let good = good();
    good.check([&good.file[..], b"\0"].concat(), "a byte more");
    good.check([&good.file[..], &good.file].concat(), "twice");
    good.check([b"\0", &good.file[..]].concat(), "a byte in front");
    good.check(good.file[1..].to_vec(), "without the first byte");
    for length in [1, 40, 256] {
        let (start, end) = good.file.split_at(good.file.len() / 3);
        good.check([start, &end[length..]].concat(), "a hole");
    }
}

#[test]
fn a_damaged_block_is_named_and_the_others_are_still_read() {
    let good = good();
    let disk = MemoryDisk::default();
    let mut bad = good.file.clone();
    bad[10] ^= 1;
    disk.put(&good.entry.name, bad);
    let error = verify_run(&disk, &good.entry).unwrap_err().to_string();
    assert!(error.contains("block 0: checksum"), "{error}");
    let run = Run::open(&disk, &good.entry.name).unwrap();
    let cache = BlockCache::new(1 << 20);
    assert!(read_from(&run, &cache, b"u|jehiah", 1).is_err());
    assert_eq!(cache.take_damaged(), [good.entry.name].into());
    let last = read_from(&run, &cache, b"~aaaaaaaaaaa3", 9).unwrap();
    assert_eq!(last, good.lines[5..]);
    assert!(cache.take_damaged().is_empty());
}

#[test]
fn a_run_that_is_made_shorter_while_it_is_open_is_an_error_that_names_file_and_block() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(directory.path()).unwrap();
    blobs.prepare().unwrap();
    let good = good();
    blobs.put(&good.entry.name, &good.file).unwrap();
    let run = Run::open_named(&blobs, &good.entry).unwrap();
    let path = directory.path().join(&good.entry.name);
    let file = fs::File::options().write(true).open(&path).unwrap();
    // A page that is no longer there is what a mapping would end the process for.
    file.set_len(0).unwrap();
    let cache = BlockCache::new(1 << 20);
    let error = read_from(&run, &cache, b"", 1).unwrap_err();
    assert!(error.is_damage(), "{error}");
    let error = error.to_string();
    assert!(
        error.contains(&good.entry.name) && error.contains("block 0: cannot be read"),
        "{error}"
    );
    let error = run.cursor().advance().unwrap_err().to_string();
    assert!(error.contains("block 0: cannot be read"), "{error}");
    let error = verify_run(&blobs, &good.entry).unwrap_err();
    assert!(
        error.is_damage() && error.to_string().contains(&good.entry.name),
        "{error}"
    );
}

#[test]
fn what_is_no_file_in_the_place_of_a_run_is_damage_is_not_waited_for_and_is_put_aside() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = Blobs::local(directory.path()).unwrap();
    blobs.prepare().unwrap();
    let good = good();
    let path = directory.path().join(&good.entry.name);
    for kind in ["directory", "link to itself", "pipe"] {
        match kind {
            "directory" => fs::create_dir(&path).unwrap(),
            "pipe" => {
                let made = Command::new("mkfifo").arg(&path).status().unwrap();
                assert!(made.success());
            }
            _ => symlink(&path, &path).unwrap(),
        }
        let error = Run::open_named(&blobs, &good.entry).unwrap_err();
        assert!(error.is_damage(), "{kind}: {error}");
        assert!(
            error.to_string().contains(&good.entry.name),
            "{kind}: {error}"
        );
        assert!(blobs.clear_way(7, &good.entry.name).unwrap(), "{kind}");
        assert!(blobs.put(&good.entry.name, &good.file).unwrap(), "{kind}");
        verify_run(&blobs, &good.entry).unwrap();
        assert!(!blobs.clear_way(7, &good.entry.name).unwrap(), "{kind}");
        blobs.remove(&good.entry.name).unwrap();
    }
    let aside = fs::read_dir(directory.path().join("aside")).unwrap();
    assert_eq!(aside.count(), 3);
}

#[test]
fn a_file_that_the_disk_fails_to_open_keeps_its_name() {
    let disk = MemoryDisk::default();
    let good = good();
    disk.put(&good.entry.name, good.file);
    disk.set_failing(true);
    let error = Run::open_named(&disk, &good.entry).unwrap_err();
    assert!(error.is_damage() && !error.is_gone(), "{error}");
    assert!(!disk.clear_way(7, &good.entry.name).unwrap());
    disk.set_failing(false);
    verify_run(&disk, &good.entry).unwrap();
}

#[test]
fn a_run_in_the_place_of_one_that_is_like_it_is_found() {
    // Both have one length, the same sums and times: only the keys differ.
    let disk = MemoryDisk::default();
    let [one, other] =
        ["u|a,c413:1\n", "u|b,c413:1\n"].map(|text| write_april(&disk, &lines(text)));
    assert_eq!((one.bytes, &one.meta), (other.bytes, &other.meta));
    assert!(Run::open_named(&disk, &one).is_ok());
    disk.put(&one.name, disk.read(&other.name).unwrap().to_vec());
    let error = Run::open_named(&disk, &one).unwrap_err().to_string();
    assert!(
        error.contains("not the one that the manifest names"),
        "{error}"
    );
    assert!(error.contains(&one.name), "{error}");
}

#[test]
fn a_cursor_that_failed_fails_again_and_never_panics() {
    let good = good();
    let disk = MemoryDisk::default();
    let mut bad = good.file.clone();
    let magic = 0xFD2F_B528_u32.to_le_bytes();
    let frames = (1..bad.len() - 4).filter(|&at| bad[at..at + 4] == magic);
    let second = frames.min().unwrap();
    bad[second + 8] ^= 1;
    disk.put(&good.entry.name, bad);
    let mut cursor = Run::open(&disk, &good.entry.name).unwrap().cursor();
    while cursor.advance().is_ok() {}
    assert!(cursor.advance().is_err());
    assert!(cursor.line().map_or(true, |line| line.is_none()));
}

#[test]
fn a_damaged_input_stops_a_merge_and_nothing_is_published() {
    let good = good();
    for at in (0..good.file.len()).step_by(97) {
        let disk = MemoryDisk::default();
        let other = write_april(&disk, &lines("u|jehiah,c41l:1\nu|other,c41l:1"));
        let mut bad = good.file.clone();
        bad[at] ^= 0x10;
        disk.put(&good.entry.name, bad);
        let inputs = [other, good.entry.clone()];
        let error = merge_runs(&disk, &inputs, spec("2012-04", 0, 1)).unwrap_err();
        assert!(error.to_string().contains(&good.entry.name), "{error}");
        let published = disk.list("runs").unwrap();
        let published = published.iter().filter(|name| name.ends_with(".csv.zst"));
        assert_eq!(published.count(), inputs.len(), "byte {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn prop_overwritten_ranges_are_found(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..600),
    ) {
        let good = good();
        let mut bad = good.file.clone();
        let at = at.index(bad.len());
        let end = bad.len().min(at + bytes.len());
        bad[at..end].copy_from_slice(&bytes[..end - at]);
        if bad != good.file {
            good.check(bad, "overwritten");
        }
    }

    #[test]
    fn prop_any_bytes_are_no_run(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let disk = MemoryDisk::default();
        disk.put("runs/x.csv.zst", bytes);
        prop_assert!(Run::open(&disk, "runs/x.csv.zst").is_err());
    }
}
