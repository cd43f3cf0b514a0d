//! Operators' mistakes: each is refused with one message that says what to do, and nothing is lost by it.

use std::fs;
use std::path::Path;

use tallyring_tests::server::{Finished, Server, tallyring};

const CLOCK: &str = "2012-03-16T18:40:00Z@0";

/// The message of a start that is refused.
fn refused(data: &Path) -> String {
    let data = data.to_str().expect("a path of text");
    let Finished { code, stderr, .. } =
        tallyring(&["serve", "--data", data, "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1, "{stderr}");
    let errors: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "one message: {stderr}");
    errors[0].to_owned()
}

fn total(data: &Path) -> u64 {
    let server = Server::start(data, &["--clock", CLOCK]);
    let total = server.get_json("/v1/l/abc/summary")["total"].as_u64();
    total.expect("a total")
}

/// A store that counted three clicks, one of them after its last flush.
fn store(data: &Path) {
    let server = Server::start(data, &["--clock", CLOCK]);
    assert_eq!(server.post("/v1/incr?key.l=abc&n=2", "").status, 204);
    server.terminate();
    let server = Server::start(data, &["--clock", CLOCK]);
    assert_eq!(server.post("/v1/incr?key.l=abc", "").status, 204);
    server.kill9();
}

#[test]
fn a_removed_file_is_named_and_the_start_goes_on_once_it_is_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    store(&data);
    for (name, said) in [
        ("oplog", "oplog"),
        ("manifests", "manifests"),
        ("STORE", "STORE"),
    ] {
        let away = directory.path().join("away");
        fs::rename(data.join(name), &away).expect("move it away");
        let message = refused(&data);
        assert!(message.contains(said), "{name}: {message}");
        assert!(message.contains("restore"), "{message}");
        let left = data.join(name);
        if left.is_dir() {
            fs::remove_dir_all(&left).expect("remove what the start made");
        }
        fs::rename(&away, data.join(name)).expect("move it back");
    }
    assert_eq!(total(&data), 3);
}

#[test]
fn sorted_files_without_manifests_and_log_are_kept_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    store(&data);
    let away = directory.path().join("away");
    fs::create_dir(&away).expect("a place");
    let lost = ["manifests", "oplog", "STORE"];
    for name in lost {
        fs::rename(data.join(name), away.join(name)).expect("move it away");
    }
    let runs = || fs::read_dir(data.join("deltas")).expect("runs").count();
    let before = runs();
    assert!(before > 0, "the first stop has flushed");
    let message = refused(&data);
    let expected = ["deltas/", "manifests/", "oplog/", "restore"];
    assert!(
        expected.iter().all(|part| message.contains(part)),
        "{message}"
    );
    assert_eq!(runs(), before);
    assert!(!data.join("STORE").exists(), "no new identity");
    for name in lost {
        // The start has made the directories.
        let _ = fs::remove_dir(data.join(name));
        fs::rename(away.join(name), data.join(name)).expect("move it back");
    }
    assert_eq!(total(&data), 3);
}

#[test]
fn a_newer_format_names_both_and_touches_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    store(&data);
    let manifests = fs::read_dir(data.join("manifests")).expect("manifests");
    let mut paths: Vec<_> = manifests
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let newest = paths.pop().expect("a manifest");
    let content = fs::read(&newest).expect("read it");
    let text = String::from_utf8(content.clone()).expect("text");
    let format = text.split(' ').nth(2).expect("a format");
    fs::write(&newest, text.replacen(format, "99", 1)).expect("write it");
    let message = refused(&data);
    assert!(message.contains("format 99"), "{message}");
    let known = message.split("this build reads ").nth(1);
    let known = known.and_then(|rest| rest.split(';').next()?.parse::<u32>().ok());
    let format: u32 = format.parse().expect("a number");
    let known = known.expect("a number");
    assert!((format..99).contains(&known), "{message}");
    fs::write(&newest, content).expect("write it back");
    assert_eq!(total(&data), 3);
}

#[test]
fn a_path_that_cannot_hold_data_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "mine").expect("write a file");
    assert!(refused(&file).contains(file.to_str().expect("a path of text")));
    assert_eq!(fs::read(&file).expect("read it"), b"mine");
    let system = Path::new("/proc/tallyring");
    assert!(refused(system).contains("/proc/tallyring"));
}

#[test]
fn a_clock_that_says_1970_takes_no_wrong_times_and_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    store(&data);
    let server = Server::start(&data, &["--clock", "1970-01-01T00:00:00Z@0"]);
    let answer = server.post("/v1/incr?key.l=abc", "");
    assert_eq!(answer.status, 422, "{answer:?}");
    assert_eq!(answer.json()["field"], "at", "{answer:?}");
    assert_eq!(
        server.get_json("/v1/l/abc/summary?to=2012-03-16T18:40:00Z")["total"],
        3
    );
    server.terminate();
    assert_eq!(total(&data), 3);
}
