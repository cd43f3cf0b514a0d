//! Final versions are in the log: what a disk, a backup or a person lost of them is made again.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok, wait_until};

use crate::final_numbers::{BOTS, click, reconcile, start, total};
use crate::stored::{files, text};
use crate::voids::{audit, changed, void};

const DAY: &str = "from=2026-03-10T00:00:00Z&to=2026-03-10T23:59:59Z";
const LATER: &str = "2026-03-13T14:00:01Z";

/// A server whose day has two final versions.
fn with_two_versions(directory: &Path) -> Server {
    let server = changed(directory);
    let job = reconcile(server.client(), &json!({"day": "2026-03-10"}));
    assert_eq!(job["version"], 2, "{job}");
    server
}

/// The counts that are served of the day, and those of each version.
fn answers(client: &Client) -> Vec<Value> {
    let reads = [
        format!("/v1/ad_click/42/counts?unit=hour&{DAY}&final=1"),
        format!("/v1/ad_click/42/counts?unit=hour&{DAY}&final=2"),
        format!("/v1/ad_click/42/by/device?{DAY}&final=1"),
        "/v1/finals".to_owned(),
        "/v1/finals/2026-03-10".to_owned(),
        format!("/v1/ad_click/42/summary?{DAY}"),
    ];
    let read = |read: &String| {
        let mut answer = client.get_json(read);
        let fields = answer.as_object_mut().expect("an object");
        for depends_on_now in ["generation", "settled_until"] {
            fields.remove(depends_on_now);
        }
        answer
    };
    reads.iter().map(read).collect()
}

/// The lines of the trail that tell of final versions.
fn finals(trail: &str) -> Vec<String> {
    let lines = trail.lines().filter(|line| line.contains("  final "));
    lines.map(str::to_owned).collect()
}

fn recount(data: &Path, config: &Path) -> String {
    let (data, config) = (text(data), text(config));
    let told = tallyring(&["recount", "--data", data, "--config", config]);
    assert!(told.code == 0, "{}", told.stderr);
    format!("{}{}", told.stdout, told.stderr)
}

fn lose(data: &Path, directories: &[&str]) {
    for directory in directories {
        fs::remove_dir_all(data.join(directory)).expect("removed");
    }
}

#[test]
fn a_recount_makes_final_versions_again_whatever_is_lost_of_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let (data, config) = (directory.join("data"), directory.join("c.toml"));
    let server = with_two_versions(directory);
    server.client().rebuild();
    let before = answers(server.client());
    let trail = audit(directory, &[]);
    let versions = finals(&trail);
    assert_eq!(versions.len(), 2, "{trail}");
    assert!(
        versions.iter().all(|line| !line.contains("  -  ")),
        "{trail}"
    );
    let log = tallyring_ok(&["cat", "oplog", "--data", text(&data)]);
    assert!(log.contains(" final day=2026-03-10 version=1 "), "{log}");
    let log = tallyring_ok(&["cat", "oplog", "--data", text(&data), "--output", "json"]);
    let records = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"));
    let records: Vec<Value> = records
        .filter(|record: &Value| record["record"] == "final")
        .collect();
    assert_eq!(records.len(), 2, "{log}");
    assert_eq!(records[1]["types"]["click"]["after"], 1, "{}", records[1]);
    server.kill9();
    for lost in [
        &["runs", "archive", "finals"][..],
        &["finals"],
        &["runs", "archive", "finals", "manifests", "deltas", "ids"],
    ] {
        lose(&data, lost);
        let told = recount(&data, &config);
        assert!(told.contains("2 final versions made again"), "{told}");
        tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
        let server = start(directory, LATER, BOTS);
        assert_eq!(answers(server.client()), before, "{lost:?}");
        let job = reconcile(server.client(), &json!({"day": "2026-03-10"}));
        assert_eq!(job["published"], false, "{job}");
        server.kill9();
        assert_eq!(finals(&audit(directory, &[])), versions, "{lost:?}");
        let told = recount(&data, &config);
        assert!(!told.contains("made again"), "nothing is lost: {told}");
    }
}

/// The manifest that named the second version is lost, and the store goes on from the one before.
#[test]
fn a_version_whose_manifest_is_lost_is_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let data = directory.join("data");
    let server = with_two_versions(directory);
    let before = answers(server.client());
    server.kill9();
    let newest = files(&data, "manifests").pop().expect("a manifest");
    fs::remove_file(data.join(newest)).expect("removed");
    tallyring_ok(&["verify", "--repair", "--data", text(&data)]);
    let server = start(directory, LATER, BOTS);
    wait_for_two_versions(server.client());
    assert_eq!(answers(server.client()), before);
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
}

fn wait_for_two_versions(client: &Client) {
    wait_until("the version is made again", || {
        client.get_json("/v1/finals/2026-03-10")["versions"]
            .as_array()
            .is_some_and(|versions| versions.len() == 2)
    });
}

/// The backup has the first version. The second copy of the log tells of the second.
#[test]
fn a_version_that_a_backup_lacks_is_made_again_from_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let [data, backup, copy] = ["data", "backup", "copy"].map(|name| directory.join(name));
    let section = format!(
        "{BOTS}[log_copy]\npath = \"{}\"\nack = \"both\"\n",
        text(&copy)
    );
    changed(directory).terminate();
    let server = start(directory, "2026-03-13T13:00:01Z", &section);
    tallyring_ok(&["backup", text(&backup), "--data", text(&data)]);
    let order = json!({"day": "2026-03-10"});
    assert_eq!(reconcile(server.client(), &order)["version"], 2);
    assert_eq!(total(server.client()), 1);
    let before = answers(server.client());
    let late = server.post("/v1/events", click("e7", "phone")).json();
    assert_eq!(late["accepted"], 1, "{late}");
    server.kill9();
    fs::rename(&data, directory.join("gone")).expect("pulled away");
    let restore = [
        "restore",
        text(&backup),
        "--log",
        text(&copy),
        "--data",
        text(&data),
    ];
    tallyring_ok(&restore);

    let server = start(directory, LATER, &section);
    let client = server.client();
    wait_for_two_versions(client);
    let again = answers(client);
    assert_eq!(again[..3], before[..3]);
    assert_eq!(
        again[4]["versions"][1]["at"],
        before[4]["versions"][1]["at"]
    );
    assert_eq!(total(client), 2, "the late click counts");
    assert_eq!(again[4]["state"], "corrected", "{}", again[4]);
    assert_eq!(finals(&audit(directory, &[])).len(), 2);
    let (status, _) = void(client, "e7", "it came late");
    assert_eq!(status, 201);
    assert_eq!(reconcile(client, &order)["version"], 3);
    assert_eq!(total(client), 1);
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
}
