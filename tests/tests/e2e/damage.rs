//! `verify`: all good on good data, and one flipped byte anywhere is found and its file named.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tallyring_tests::needs::data_file;
use tallyring_tests::server::{
    Finished, Server, tallyring, tallyring_after, tallyring_ok, wait_until,
};

use crate::chance::Chance;
use crate::stored::{Stored, files, text};

const SEED: u64 = 1;
/// Flipped bytes of one file.
const FLIPS: u64 = 6;
/// A manifest's or the identity's.
const FLIPS_OF_SMALL: u64 = 2;

fn verify(data: &Path) -> Finished {
    tallyring(&["verify", "--data", text(data)])
}

#[test]
fn verify_finds_good_data_good_while_it_is_served_and_after_a_stop() {
    let stored = Stored::with_a_file_of_every_kind();
    for served in [false, true, false] {
        let server = served.then(|| stored.serve("2012-03-18T13:00:00Z"));
        let verified = verify(&stored.data);
        assert_eq!(verified.code, 0, "served: {served}, {verified:?}");
        assert!(verified.stdout.ends_with("all good\n"), "{verified:?}");
        if let Some(server) = server {
            server.terminate();
        }
    }
    let verified = tallyring(&[
        "verify",
        "--deep",
        "--output",
        "json",
        "--data",
        stored.argument(),
    ]);
    let report: Value = serde_json::from_str(&verified.stdout).expect("JSON");
    assert_eq!(verified.code, 0, "{verified:?}");
    assert_eq!(report["findings"], Value::Array(vec![]));
    for (field, least) in [("files", 8), ("oplog_records", 760), ("subtotals", 100)] {
        assert!(report[field].as_u64() >= Some(least), "{field}: {report:#}");
    }
}

/// A source run gave way to an older generation's file, which has its lines at another zstd level.
#[test]
fn verify_finds_good_what_differs_only_in_how_it_is_compressed() {
    let Some(archive) = data_file("store_shards_changed.tar.gz") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let mut tar = Command::new("tar");
    tar.args(["--strip-components=1", "-xzf", text(&archive), "-C"]);
    let unpacked = tar.arg(directory.path()).status().expect("run tar");
    assert!(unpacked.success(), "{unpacked}");
    let data = directory.path().join("data");
    let verified = tallyring(&["verify", "--deep", "--data", text(&data)]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stdout.ends_with("all good\n"), "{verified:?}");
}

#[test]
fn verify_of_a_directory_that_is_none_fails_and_makes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    let verified = verify(&missing);
    assert_eq!(verified.code, 1, "{verified:?}");
    assert!(!missing.exists(), "it was made");
}

/// Files of which there is no second name.
fn unlinked(stored: &Stored, directory: &str) -> Vec<PathBuf> {
    let files = stored.files(directory).into_iter();
    let mut paths: Vec<PathBuf> = files.map(|name| stored.data.join(name)).collect();
    paths.retain(|path| fs::metadata(path).expect("a file").nlink() == 1);
    paths
}

#[test]
fn a_directory_in_the_place_of_a_run_stays_there_where_nothing_has_its_content() {
    let stored = Stored::with_a_file_of_every_kind();
    let path = unlinked(&stored, "runs").remove(0);
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a directory in its place");
    let server = stored.serve("2012-03-18T13:00:00Z");
    wait_until("the server has tried to heal it", || {
        server
            .messages()
            .contains("neither another file nor a backup")
    });
    assert!(path.is_dir());
    server.terminate();
}

#[test]
fn damage_that_only_a_read_meets_is_in_the_status_until_it_is_healed() {
    let stored = Stored::with_a_file_of_every_kind();
    // So soon after midnight no file is read by itself.
    let serve = || stored.serve("2012-03-19T00:00:30Z@0");
    let links = (1..20).map(|link| format!("/v1/l/link{link}/counts?unit=hour&units=96"));
    let links: Vec<String> = links.collect();
    let answers = |server: &Server| -> Vec<Value> {
        links.iter().map(|link| server.get_json(link)).collect()
    };
    let server = serve();
    let expected = answers(&server);
    server.terminate();
    let server = serve();
    for path in unlinked(&stored, "archive") {
        let file = fs::File::options().write(true).open(path);
        file.and_then(|file| file.set_len(8)).expect("shorter");
    }
    // Every file is met before the status is asked: with one of them healed and the others not met, it would be `ok`.
    let statuses: Vec<u16> = links.iter().map(|link| server.get(link).status).collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    server.wait_for_status("it is healed", |status| status["state"] == "ok");
    assert_eq!(answers(&server), expected);
    let told = server.messages();
    assert!(told.contains("healed a file"), "{told}");
    server.terminate();
}

#[test]
fn a_recount_takes_no_damaged_file_for_one_that_it_wrote() {
    let stored = Stored::with_a_file_of_every_kind();
    let recount = ["recount", "--data", stored.argument()];
    tallyring_ok(&recount);
    // Counted again, they have the names that they have now.
    for directory in ["deltas", "ids", "runs", "archive"] {
        let path = stored.data.join(stored.files(directory).remove(0));
        let mut bytes = fs::read(&path).expect("read");
        bytes[20] ^= 1;
        fs::write(&path, bytes).expect("written");
    }
    assert_eq!(verify(&stored.data).code, 1);
    tallyring_ok(&recount);
    let verified = verify(&stored.data);
    assert!(verified.stdout.ends_with("all good\n"), "{verified:?}");
}

#[test]
fn a_file_that_cannot_be_healed_does_not_hinder_the_repair_of_others() {
    let stored = Stored::with_a_file_of_every_kind();
    let backup = stored.data.with_file_name("backup");
    let backup = text(&backup);
    tallyring_ok(&["backup", backup, "--data", stored.argument()]);
    let [first, .., last] = &stored.files("archive")[..] else {
        panic!("two files");
    };
    fs::remove_file(stored.data.join(first)).expect("removed");
    fs::create_dir(stored.data.join(first)).expect("a directory in its place");
    fs::remove_file(stored.data.join(last)).expect("removed");
    // The directory can be put nowhere.
    fs::write(stored.data.join("aside"), "").expect("written");
    let repair = ["verify", "--repair", "--backup", backup, "--data"];
    let told = tallyring(&[&repair[..], &[stored.argument()]].concat());
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stdout.contains(&format!("HEALED {last}")), "{told:?}");
    assert!(told.stderr.contains("could not be healed"), "{told:?}");
}

#[test]
fn a_command_opens_as_many_files_as_the_system_allows_and_says_where_that_is_too_few() {
    let stored = Stored::with_a_file_of_every_kind();
    let recount = ["recount", "--data", stored.argument()];
    let recounted = tallyring_after("ulimit -Sn 20", &recount);
    assert_eq!(recounted.code, 0, "{recounted:?}");
    let recounted = tallyring_after("ulimit -n 20", &recount);
    assert_eq!(recounted.code, 1, "{recounted:?}");
    let told = recounted.stderr;
    assert!(told.contains("raise `ulimit -n`"), "{told}");
}

/// One byte of one file of a copy.
struct Flip<'a> {
    copy: &'a Path,
    name: &'a str,
    offset: usize,
    bit: u8,
}

impl Flip<'_> {
    /// Flips it, verifies, flips it back.
    fn check(&self) {
        let path = self.copy.join(self.name);
        let whole = fs::read(&path).expect("read the file");
        let mut damaged = whole.clone();
        damaged[self.offset] ^= 1 << self.bit;
        fs::write(&path, damaged).expect("write the file");
        let verified = verify(self.copy);
        fs::write(&path, &whole).expect("write the file");
        let place = format!(
            "bit {} of byte {} of {} in {}",
            self.bit,
            self.offset,
            whole.len(),
            self.name
        );
        assert_eq!(verified.code, 1, "{place} was not found: {verified:?}");
        let findings = verified.stdout.lines();
        let named = findings
            .filter(|line| line.starts_with("WRONG"))
            .any(|line| line.contains(self.name));
        assert!(named, "{place}: not named in {verified:?}");
    }
}

/// Flips some bytes in each of these files, at offsets below `limit` of each.
fn flip(
    copy: &Path,
    names: &[String],
    flips: u64,
    limit: impl Fn(&[u8]) -> std::ops::Range<usize>,
) {
    let mut chance = Chance::new(SEED);
    assert!(!names.is_empty(), "there is such a file");
    for name in names {
        let range = limit(&fs::read(copy.join(name)).expect("read the file"));
        for _ in 0..flips {
            let offset = range.start + chance.below(range.len() as u64) as usize;
            let bit = chance.below(8) as u8;
            Flip {
                copy,
                name,
                offset,
                bit,
            }
            .check();
        }
    }
    let verified = verify(copy);
    assert_eq!(verified.code, 0, "it is whole again: {verified:?}");
}

fn copy_of(stored: &Stored) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a directory");
    copy_into(&stored.data, copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("list a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            fs::create_dir(&target).expect("make a directory");
            copy_into(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("copy a file");
        }
    }
}

fn whole(content: &[u8]) -> std::ops::Range<usize> {
    0..content.len()
}

#[test]
fn one_flipped_byte_of_any_sorted_file_is_found_and_its_file_named() {
    let stored = Stored::with_a_file_of_every_kind();
    let copy = copy_of(&stored);
    for directory in ["deltas", "ids", "runs", "archive"] {
        let names = files(copy.path(), directory);
        flip(copy.path(), &names[..1], FLIPS, whole);
    }
}

#[test]
fn one_flipped_byte_of_the_identity_or_any_manifest_is_found_and_its_file_named() {
    let stored = Stored::with_a_file_of_every_kind();
    let copy = copy_of(&stored);
    flip(copy.path(), &["STORE".to_owned()], FLIPS, whole);
    let manifests = files(copy.path(), "manifests");
    assert!(manifests.len() > 3, "{manifests:?}");
    flip(copy.path(), &manifests, FLIPS_OF_SMALL, whole);
}

#[test]
fn one_flipped_byte_of_the_log_is_found_in_its_records_and_in_the_zeros_behind_them() {
    let stored = Stored::with_a_file_of_every_kind();
    let copy = copy_of(&stored);
    let segments = files(copy.path(), "oplog");
    let segments: Vec<String> = segments
        .into_iter()
        .filter(|name| name.ends_with(".tlog"))
        .collect();
    let end = |content: &[u8]| {
        let last = content.iter().rposition(|&byte| byte != 0);
        last.expect("records") + 1
    };
    flip(copy.path(), &segments, FLIPS, |content| 0..end(content));
    let zeros = |content: &[u8]| (end(content) + 8).min(content.len() - 1)..content.len();
    let newest = &segments[segments.len() - 1..];
    flip(copy.path(), newest, FLIPS, zeros);
}

#[test]
fn the_reason_of_a_failed_read_is_logged_beside_the_id_of_its_request() {
    /// Within the first block: behind the signature.
    const OFFSET: usize = 60;
    let stored = Stored::with_a_file_of_every_kind();
    for name in stored.files("archive") {
        let path = stored.data.join(name);
        let mut content = fs::read(&path).expect("read the file");
        content[OFFSET] ^= 1;
        fs::write(&path, content).expect("write the file");
    }
    let server = stored.serve("2012-03-18T13:00:00Z");
    let read = server.get("/v1/l/link1/counts?units=7");
    assert_eq!(read.status, 503, "{read:?}");
    let id = read.header("x-request-id").expect("every answer has one");
    let messages = server.messages();
    let names_both = |line: &str| line.contains(id) && line.contains("is damaged");
    assert!(messages.lines().any(names_both), "{id}: {messages}");
}
