//! Keys through the real binary: made, kept, revoked; the files on disk; where it listens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tallyring_tests::server::{Server, binary, tallyring, tallyring_ok, wait_until};
use tempfile::TempDir;

use super::http::{address, ask, ask_as};

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// True when a file below the directory holds this text.
fn holds(directory: &Path, needle: &str) -> bool {
    fs::read_dir(directory).expect("a directory").any(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            return holds(&path, needle);
        }
        let bytes = fs::read(&path).expect("a file");
        bytes
            .windows(needle.len())
            .any(|window| window == needle.as_bytes())
    })
}

#[test]
fn the_first_key_is_made_while_it_runs_and_outlives_a_kill() {
    let directory = TempDir::new().expect("make a directory");
    let data = directory.path().join("data");
    let server = Server::start(&data, &[]);
    assert_eq!(server.get("/v1/l/a/counts").status, 200);
    let made = fs::metadata(&data).expect("a data directory");
    assert_eq!(made.permissions().mode() & 0o777, 0o700);
    let scope = ["key", "new", "--scope", "write,read", "--data", text(&data)];
    let made = tallyring(&scope);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stderr.contains("from now on"), "{made:?}");
    let key = made.stdout.trim().to_owned();
    let secret = key.rsplit('_').next().expect("a secret");
    assert_eq!(server.get("/v1/l/a/counts").status, 401);
    let at = address(server.client().url());
    let line = "GET /v1/incr?key.l=a";
    assert_eq!(ask_as(at, &key, line, "").status, 204);
    assert_eq!(ask_as(at, &key, "GET /v1/admin/status", "").status, 403);
    assert!(!holds(&data, secret), "the secret is on the disk");

    // A share opens its reads to whoever has it, and stands in no file and no message.
    let share =
        |more: &[&str]| tallyring_ok(&[&["share"], more, &["--data", text(&data)]].concat());
    let link = share(&["new", "l/a", "--days", "2", "--note", "printer"]);
    let link = link.trim();
    let shared = format!("GET {}", link.replace("/shared", "/v1/l/a/counts"));
    assert_eq!(server.get(link).status, 200);
    assert_eq!(ask(at, &shared, &[], "").status, 200);
    let listed = share(&["list"]);
    assert!(listed.contains("l/a  printer"), "{listed}");
    let (begin, of_share) = link.rsplit_once('_').expect("a secret");
    let id = begin.rsplit('_').next().expect("an id");
    assert!(share(&["revoke", id]).contains("is revoked"));
    assert_eq!(ask(at, &shared, &[], "").status, 403);
    assert!(!holds(&data, of_share), "the secret is on the disk");
    assert!(!server.messages().contains(of_share));

    // Commands of its owner go on.
    tallyring_ok(&["rebuild", "--data", text(&data)]);
    tallyring_ok(&["query", "l/a", "--data", text(&data)]);
    let local = fs::metadata(data.join("LOCAL_KEY")).expect("the owner's key");
    assert_eq!(local.permissions().mode() & 0o777, 0o600);
    let left = fs::read_to_string(data.join("LOCAL_KEY")).expect("the owner's key");

    server.kill9();
    let server = Server::start(&data, &[]);
    let at = address(server.client().url());
    assert_eq!(ask_as(at, &key, line, "").status, 204);
    assert_eq!(ask_as(at, &left, line, "").status, 401, "of another run");
    assert_eq!(ask(at, &shared, &[], "").status, 403);
    let id = key.split('_').nth(1).expect("an id");
    tallyring_ok(&["key", "revoke", id, "--data", text(&data)]);
    assert_eq!(ask_as(at, &key, line, "").status, 401);
    assert!(!server.messages().contains(secret));
    server.terminate();
    assert!(!data.join("LOCAL_KEY").exists());
    let again = Server::start(&data, &[]);
    assert_eq!(again.get("/v1/l/a/counts").status, 401);
}

fn lose_catalog(data: &Path) {
    fs::remove_dir_all(data.join("catalog")).expect("remove the catalog");
    fs::remove_file(data.join("catalog.json")).expect("remove its snapshot");
}

#[test]
fn a_store_that_lost_its_whole_catalog_has_its_keys_from_the_log() {
    let directory = TempDir::new().expect("make a directory");
    let data = directory.path().join("data");
    let new = ["key", "new", "--scope", "read", "--data", text(&data)];
    // One without a server, before there is a store, and two of a server, which revokes one.
    let first = tallyring_ok(&new);
    let server = Server::start(&data, &[]);
    let [second, revoked] = [(); 2].map(|()| tallyring_ok(&new));
    let id = |key: &str| key.split('_').nth(1).expect("an id").to_owned();
    tallyring_ok(&["key", "revoke", &id(&revoked), "--data", text(&data)]);
    server.kill9();
    let of_log = tallyring_ok(&["cat", "oplog", "--data", text(&data)]);
    for key in [&first, &second, &revoked] {
        assert!(of_log.contains(&format!("key id={}", id(key))), "{of_log}");
        let secret = key.trim().rsplit('_').next().expect("a secret");
        assert!(!holds(&data, secret), "the secret is on the disk");
    }
    for _ in 0..2 {
        lose_catalog(&data);
        let server = Server::start(&data, &[]);
        let at = address(server.client().url());
        let ask = |key: &str| ask_as(at, key.trim(), "GET /v1/l/a/counts", "").status;
        assert_eq!([ask(&first), ask(&second), ask(&revoked)], [200, 200, 401]);
        assert_eq!(server.get("/v1/l/a/counts").status, 401);
        // A manifest has the keys from here on.
        server.terminate();
        let listed = tallyring_ok(&["key", "list", "--data", text(&data)]);
        assert!(
            listed.contains(&id(&first)) && listed.contains("revoked"),
            "{listed}"
        );
    }
}

#[test]
fn a_store_that_lost_its_whole_catalog_refuses_until_there_is_a_new_key() {
    let directory = TempDir::new().expect("make a directory");
    let data = directory.path().join("data");
    let new = ["key", "new", "--scope", "read", "--data", text(&data)];
    Server::start(&data, &[]).terminate();
    // No server has told the log of it.
    tallyring_ok(&new);
    lose_catalog(&data);
    let server = Server::start(&data, &[]);
    let refused = server.get("/v1/l/a/counts");
    assert_eq!(refused.status, 401);
    assert!(server.messages().contains("tallyring key new"));
    let listed = tallyring(&["key", "list", "--data", text(&data)]);
    assert!(listed.stderr.contains("is refused"), "{listed:?}");
    let key = tallyring_ok(&new);
    let at = address(server.client().url());
    assert_eq!(ask_as(at, key.trim(), "GET /v1/l/a/counts", "").status, 200);
}

#[test]
fn keys_are_made_listed_and_revoked_without_a_server_too() {
    let directory = TempDir::new().expect("make a directory");
    let data = directory.path().join("data");
    let data = text(&data);
    let new = ["key", "new", "--data", data, "--scope"];
    let make = |more: &[&str]| tallyring_ok(&[&new, more].concat());
    let json = make(&[
        "write",
        "--namespace",
        "l,u",
        "--login",
        "jehiah",
        "--limit",
        "100/s",
        "--note",
        "redirector",
        "--output",
        "json",
    ]);
    let made: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(made["namespaces"], serde_json::json!(["l", "u"]));
    assert_eq!(made["limit"], 100);
    assert_eq!(made["max_n"], 1_000_000, "the default with namespaces");
    assert_eq!(made["identity"], made["id"], "its own");
    let shared = make(&["write", "--identity", "edge-1", "--output", "json"]);
    assert!(shared.contains(r#""identity":"edge-1""#), "{shared}");
    make(&["write", "--shared-ids"]);
    let listed = tallyring_ok(&["key", "list", "--data", data]);
    for part in [
        "redirector",
        "jehiah",
        "100/s",
        "1000000",
        "l,u",
        "write",
        "edge-1",
        "installation",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let key = made["key"].as_str().expect("a key");
    assert!(!listed.contains(key.rsplit('_').next().expect("a secret")));
    let id = made["id"].as_str().expect("an id");
    tallyring_ok(&["key", "revoke", id, "--data", data]);
    assert!(tallyring_ok(&["key", "list", "--data", data]).contains("revoked"));

    for (arguments, code, says) in [
        (["key", "revoke", "zzzzzzzz", "--data", data], 1, "zzzzzzzz"),
        (["key", "revoke", "../x", "--data", data], 2, "../x"),
        (["key", "new", "--scope", "all", "--data"], 2, "all"),
    ] {
        let finished = tallyring(&arguments);
        assert_eq!(finished.code, code, "{finished:?}");
        assert!(finished.stderr.contains(says), "{finished:?}");
    }
    let nowhere = directory.path().join("nowhere");
    let listed = tallyring(&["key", "list", "--data", text(&nowhere)]);
    assert_eq!(listed.code, 1, "{listed:?}");
    assert!(!nowhere.exists());
    let unknown = tallyring(&[&new[..], &["read", "--namespace", "nope"]].concat());
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.stderr.contains("nope"), "{unknown:?}");
}

#[test]
fn it_listens_beyond_loopback_only_with_keys() {
    let directory = TempDir::new().expect("make a directory");
    let data = directory.path().join("data");
    let serve = ["serve", "--listen", "0.0.0.0:0", "--data", text(&data)];
    let refused = tallyring(&serve);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("tallyring key new"), "{refused:?}");
    assert!(!data.exists(), "a refused start makes nothing");
    // A directory that was served, but never had a key.
    Server::start(&data, &[]).terminate();
    assert_eq!(tallyring(&serve).code, 2);

    let new = ["key", "new", "--scope", "read", "--data", text(&data)];
    let key = tallyring_ok(&new);
    let mut child = Command::new(binary())
        .args(serve)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start it");
    let mut url = None;
    wait_until("it listens", || {
        let lock = fs::read_to_string(data.join("LOCK")).unwrap_or_default();
        let lock: Value = serde_json::from_str(&lock).unwrap_or_default();
        let is_its = lock["pid"] == child.id();
        url = lock["url"].as_str().filter(|_| is_its).map(str::to_owned);
        url.is_some()
    });
    let at = address(&url.expect("an address"));
    let statuses = ["", key.trim()].map(|key| ask_as(at, key, "GET /v1/l/a/counts", "").status);
    child.kill().expect("end it");
    child.wait().expect("it ended");
    assert_eq!(statuses, [401, 200]);
}
