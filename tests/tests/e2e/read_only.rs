//! `serve --read-only`: a directory, or a copy of one, is served as its manifests say, and nothing of it is written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tallyring_tests::server::{Server, tallyring, tallyring_ok, wait_until};

use crate::stored::{Stored, copy, files, text};

const TODAY: &str = "2012-03-18T13:00:00Z@0";
/// A clock by which a read-only server looks for newer manifests ten times a second.
const FAST: &str = "2012-03-18T13:00:00Z@50";
const READS: [&str; 7] = [
    "/v1/l/link1/counts?unit=hour&units=72",
    "/v1/l/a%20link%20with%20blanks%2C%20commas%20and%20more/by/r?unit=day&units=7",
    "/v1/u/somebody/by/c?unit=day&units=7&rollup=false",
    "/v1/l/top?unit=week&units=1",
    "/v1/l/link3/counts?unit=day&units=7&as_of=1",
    "/v1/l/counts?unit=day&units=7",
    "/v1/namespaces",
];

/// Answers without the words that tell how settled they are.
fn answers(server: &Server) -> Vec<Value> {
    let asked = READS.iter().map(|read| server.get_json(read));
    asked.map(without_states).collect()
}

fn without_states(mut answer: Value) -> Value {
    for name in ["settled_until", "state"] {
        if let Some(answer) = answer.as_object_mut() {
            answer.remove(name);
        }
    }
    answer
}

fn total(server: &Server, link: &str) -> Value {
    server.get_json(&format!("/v1/l/{link}/counts?unit=day&units=7"))["total"].clone()
}

/// Every file and directory below, with what a write of it would change.
fn state(root: &Path) -> BTreeMap<PathBuf, (i64, i64, u64, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = fs::metadata(&path).expect("its facts");
        let mut bytes = Vec::new();
        if meta.is_dir() {
            let inside = fs::read_dir(&path).expect("list a directory");
            waiting.extend(inside.map(|entry| entry.expect("an entry").path()));
        } else {
            bytes = fs::read(&path).expect("read a file");
        }
        let facts = (meta.mtime(), meta.mtime_nsec(), meta.ino(), meta.mode());
        found.insert(path, (facts.0, facts.1, facts.2, facts.3, bytes));
    }
    found
}

fn beside(stored: &Stored, name: &str) -> PathBuf {
    stored.data.with_file_name(name)
}

/// Unix seconds of a time in an answer.
fn instant(text: &Value) -> i64 {
    let text = text.as_str().expect("a time");
    let instant: jiff::Timestamp = text.parse().expect("a time");
    instant.as_second()
}

#[test]
fn a_directory_and_its_backup_are_served_alike_and_not_a_byte_is_written() {
    let stored = Stored::with_a_file_of_every_kind();
    let (backup, bare) = (beside(&stored, "backup"), beside(&stored, "bare"));
    let server = stored.serve(TODAY);
    let expected = answers(&server);
    server.terminate();
    tallyring_ok(&["backup", text(&backup), "--data", stored.argument()]);
    // An operator copies so much who wants the archive alone.
    copy(&stored.data, &bare);
    for gone in ["oplog", "ids", "catalog"] {
        fs::remove_dir_all(bare.join(gone)).expect("remove a directory");
    }
    for place in [&stored.data, &backup, &bare] {
        let before = state(place);
        let server = Server::read_only(text(place), &["--clock", TODAY]);
        assert_eq!(answers(&server), expected, "{}", place.display());
        let status = server.status();
        assert_eq!(status["state"], "ok", "{status}");
        let shown = &status["read_only"];
        assert_eq!(shown["manifest"], status["manifest"]);
        assert_eq!(shown["waiting"], Value::Null);
        // The newest arrival with an id, some seconds after noon; the clock says an hour later.
        let counted = instant(&shown["counted_until"]);
        let noon = instant(&json!("2012-03-18T12:00:00Z"));
        assert!((0..600).contains(&(counted - noon)), "{shown}");
        let answer = server.get(READS[0]);
        let settled = instant(&answer.json()["settled_until"]);
        assert_eq!(counted - settled, 300, "{answer:?}");
        let position = answer.header("tallyring-position").expect("a position");
        assert_eq!(status["oplog"]["position"], position);
        let metrics = server.get("/metrics").text;
        assert!(
            metrics.contains("\ntallyring_manifest_waiting 0\n")
                && !metrics.contains("\ntallyring_cluster_without_writer "),
            "{metrics}"
        );
        assert_eq!(server.get("/readyz").status, 200);
        assert_eq!(server.get("/").status, 200);
        server.terminate();
        assert!(state(place) == before, "{} was written", place.display());
    }
}

#[test]
fn what_needs_the_log_is_refused_with_the_server_that_has_it() {
    let stored = Stored::with_one_day();
    let server = Server::read_only(stored.argument(), &["--clock", FAST]);
    let refused = |answer: tallyring_tests::server::Answer, says: &str| {
        assert_eq!(answer.status, 403, "{answer:?}");
        let problem = answer.json();
        assert_eq!(problem["title"], "Read-only");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("`serve --read-only`"), "{detail}");
        assert!(detail.contains(says), "{detail}");
    };
    let item = json!([{"keys": {"l": "x"}}]).to_string();
    let unknown = "ask the server that writes the store";
    for path in [
        "/v1/incr?key.l=x",
        "/v1/closed?namespace=l",
        "/v1/events/a1",
    ] {
        refused(server.get(path), unknown);
    }
    for path in [
        "/v1/incr?key.l=x",
        "/v1/increments",
        "/v1/events",
        "/v1/events/a1/void",
        "/v1/actions/reserve",
        "/v1/users/erase",
        "/v1/admin/rebuild",
        "/v1/admin/reload",
        "/v1/admin/keys",
        "/v1/admin/reconcile",
    ] {
        refused(server.post(path, &item), unknown);
    }
    refused(server.delete("/v1/admin/keys/abc"), unknown);
    let second = server.get("/v1/l/link1/counts?unit=second");
    assert_eq!(second.status, 422, "{second:?}");

    let writer = stored.serve(TODAY);
    server.wait_for_status("the server that writes is known", |status| {
        status["read_only"]["writer"] == writer.url()
    });
    refused(server.get("/v1/incr?key.l=x"), writer.url());
    // A position of that server's log is not counted here.
    let answer = writer.get("/v1/incr?key.l=new");
    let position = answer.header("tallyring-position").expect("a position");
    let after = server.get(&format!("/v1/l/new/counts?units=1&after={position}"));
    assert_eq!(after.status, 503, "{after:?}");
    assert!(after.text.contains("manifest"), "{after:?}");
}

#[test]
fn newer_manifests_of_a_server_that_runs_are_taken_up() {
    let stored = Stored::new();
    let writer = stored.serve("2012-03-18T12:59:00Z");
    assert_eq!(writer.get("/v1/incr?key.l=a&n=3").status, 204);
    let server = Server::read_only(stored.argument(), &["--clock", "2012-03-20T12:30:00Z@50"]);
    assert_eq!(total(&server, "a"), 0, "only the log has it");
    let first = server.status()["manifest"].clone();
    writer.terminate();
    wait_until("the flush of the stop is served", || {
        total(&server, "a") == 3
    });
    // A night, in which files of before are removed.
    let writer = stored.serve("2012-03-20T12:00:00Z");
    assert_eq!(writer.get("/v1/incr?key.l=a&n=4").status, 204);
    writer.rebuild();
    // A look may come while the writer goes from one manifest to the next.
    let status = server.wait_for_status("the generation is served, and nothing waits", |status| {
        status["generation"] == writer.status()["generation"] && status["state"] == "ok"
    });
    assert!(status["generation"].as_u64() >= Some(1), "{status}");
    assert!(status["manifest"].as_u64() > first.as_u64(), "{status}");
    writer.terminate();
    let later = Server::read_only(stored.argument(), &["--clock", "2012-03-20T13:00:00Z@0"]);
    assert_eq!(total(&later, "a"), 7);
}

#[test]
fn a_manifest_that_is_not_whole_leaves_the_one_before() {
    let stored = Stored::with_one_day();
    let older = beside(&stored, "copy");
    copy(&stored.data, &older);
    let server = stored.serve("2012-03-16T13:00:00Z");
    assert_eq!(server.get("/v1/incr?key.l=later&n=5").status, 204);
    server.terminate();
    let server = Server::read_only(text(&older), &["--clock", FAST]);
    let number = server.status()["manifest"].clone();
    assert_eq!(total(&server, "link1"), 20);
    // The copy is brought up to date, the manifest first.
    let newest = stored.files("manifests").pop().expect("a manifest");
    fs::copy(stored.data.join(&newest), older.join(&newest)).expect("copy a file");
    let status = server.wait_for_status("the newer one waits", |status| {
        !status["read_only"]["waiting"].is_null()
    });
    assert_eq!(status["manifest"], number, "{status}");
    assert_eq!(status["state"], "degraded", "{status}");
    let reason = status["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("cannot be served yet"), "{reason}");
    let metrics = server.get("/metrics").text;
    assert!(
        metrics.contains("\ntallyring_manifest_waiting 1\n"),
        "{metrics}"
    );
    assert_eq!(total(&server, "link1"), 20);
    for directory in ["deltas", "ids"] {
        for file in files(&stored.data, directory) {
            fs::copy(stored.data.join(&file), older.join(&file)).expect("copy a file");
        }
    }
    wait_until("the newer one is served", || total(&server, "later") == 5);
    let status = server.status();
    assert_eq!(status["state"], "ok", "{status}");
    assert_eq!(total(&server, "link1"), 20);
    server.terminate();

    // A damaged newest manifest at the start.
    let mut bytes = fs::read(older.join(&newest)).expect("a manifest");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(older.join(&newest), bytes).expect("damage it");
    let server = Server::read_only(text(&older), &["--clock", TODAY]);
    let status = server.status();
    assert_eq!(status["manifest"], number, "{status}");
    assert_eq!(status["state"], "degraded", "{status}");
    assert_eq!(total(&server, "link1"), 20);
}

#[test]
fn a_directory_that_becomes_another_store_leaves_what_was_served() {
    let (stored, other) = (Stored::with_one_day(), Stored::new());
    for count in 1..=4 {
        let writer = other.serve("2012-03-16T12:00:00Z");
        let counted = writer.get(&format!("/v1/incr?key.l=link1&n={}", 1_000 * count));
        assert_eq!(counted.status, 204);
        writer.terminate();
    }
    let arguments = ["key", "new", "--scope", "read", "--data", other.argument()];
    tallyring_ok(&arguments);
    let server = Server::read_only(stored.argument(), &["--clock", FAST]);
    let number = server.status()["manifest"].clone();
    let newest = |stored: &Stored| stored.files("manifests").pop();
    assert!(newest(&other) > newest(&stored), "it would be taken");
    let away = beside(&stored, "away");
    fs::rename(&stored.data, &away).expect("move it away");
    fs::rename(&other.data, &stored.data).expect("move the other there");
    let status = server.wait_for_status("it is told", |status| status["state"] != "ok");
    assert_eq!(status["state"], "degraded", "{status}");
    let reason = status["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("this server serves store"), "{reason}");
    // A look or two later: neither counts nor keys of the other are taken.
    let manifest = |status: &Value| status["read_only"]["manifest"] == number;
    for _ in 0..3 {
        server.wait_for_status("what was served is", manifest);
        assert_eq!(total(&server, "link1"), 20);
    }
    assert_eq!(server.get("/readyz").status, 200);
    fs::rename(&stored.data, &other.data).expect("move the other back");
    fs::rename(&away, &stored.data).expect("move it back");
    let status = server.wait_for_status("all is well", |status| status["state"] == "ok");
    assert_eq!(status["read_only"]["waiting"], Value::Null, "{status}");
    assert_eq!(total(&server, "link1"), 20);
}

#[test]
fn api_keys_of_the_directory_are_obeyed() {
    let stored = Stored::with_one_day();
    let writer = stored.serve(TODAY);
    let new = |scope: &str| {
        let arguments = ["--output", "json", "key", "new", "--scope", scope];
        let made = tallyring_ok(&[&arguments[..], &["--data", stored.argument()]].concat());
        let made: Value = serde_json::from_str(&made).expect("JSON");
        let part = |name: &str| made[name].as_str().expect("a text").to_owned();
        (part("id"), part("key"))
    };
    let (id, key) = new("read");
    let server = Server::read_only(stored.argument(), &["--clock", FAST]);
    let asked = |key: &str| server.get_as(key, READS[0]).status;
    assert_eq!(server.get(READS[0]).status, 401);
    assert_eq!(asked(&key), 200, "its manifest does not name it yet");
    let (_, other) = new("read");
    wait_until("another key is known", || asked(&other) == 200);
    tallyring_ok(&["key", "revoke", &id, "--data", stored.argument()]);
    wait_until("the revocation is obeyed", || asked(&key) == 401);
    writer.terminate();
    drop(server);

    // A copy without the list of keys, whose store had some: the manifest names them.
    let bare = beside(&stored, "bare");
    copy(&stored.data, &bare);
    fs::remove_dir_all(bare.join("catalog")).expect("remove a directory");
    fs::remove_file(bare.join("catalog.json")).expect("remove a file");
    let server = Server::read_only(text(&bare), &["--clock", TODAY]);
    assert_eq!(server.get(READS[0]).status, 401);
    assert_eq!(server.get_as(&key, READS[0]).status, 401, "it is revoked");
    assert_eq!(server.get_as(&other, READS[0]).status, 200);
}

#[test]
fn what_cannot_be_served_is_told_with_what_to_do() {
    let stored = Stored::with_one_day();
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let ended = tallyring(&arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(says), "{arguments:?}: {ended:?}");
    };
    let nowhere = beside(&stored, "nowhere");
    refused(&["--read-only", text(&nowhere)], 1, "is no data directory");
    assert!(!nowhere.exists(), "it was made");
    let empty = beside(&stored, "empty");
    fs::create_dir(&empty).expect("make a directory");
    refused(&["--read-only", text(&empty)], 1, "is no data directory");
    fs::copy(stored.data.join("STORE"), empty.join("STORE")).expect("copy a file");
    refused(&["--read-only", text(&empty)], 1, "has no manifest");
    let place = stored.argument();
    refused(&["--read-only", place, "--data", "other"], 2, "--data");
    refused(&["--read-only", place, "--cache", "c"], 2, "s3://… only");
    refused(&["--read-only", "s3://metrics/a"], 2, "needs --cache DIR");
    refused(&["--read-only", "s3://A"], 2, "a bucket has");
    let cached = ["--read-only", "s3://metrics/a", "--cache", "c"];
    let small = [&cached[..], &["--cache-max", "1MiB"]].concat();
    refused(&small, 2, "at least 32MiB");
    refused(&["--cache-max", "1GiB"], 2, "--cache");
    let open = ["--read-only", place, "--listen", "0.0.0.0:0"];
    let ended = tallyring(&[&["serve"], &open[..]].concat());
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("open to all"), "{ended:?}");
    for file in stored.files("manifests") {
        fs::write(stored.data.join(file), "damaged").expect("damage a manifest");
    }
    refused(&["--read-only", place], 1, "cannot be served");
}
