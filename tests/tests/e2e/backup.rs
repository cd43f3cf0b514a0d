//! Backup and restore: a copy made beside a running server answers as the server did, only what is new is copied,
//! and single damaged files are healed from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tallyring_tests::server::{Server, binary, tallyring, tallyring_ok};

use crate::stored::{Stored, files, text};

const TODAY: &str = "2012-03-18T13:00:00Z@0";
const READS: [&str; 4] = [
    "/v1/l/link1/counts?unit=hour&units=72",
    "/v1/l/a%20link%20with%20blanks%2C%20commas%20and%20more/by/r?unit=day&units=7",
    "/v1/u/somebody/by/c?unit=day&units=7&rollup=false",
    "/v1/l/top?unit=week&units=1",
];

fn answers(server: &Server) -> Vec<Value> {
    let asked = READS.iter().map(|read| server.get_json(read));
    asked.collect()
}

fn json_of(arguments: &[&str]) -> Value {
    let arguments = [&["--output", "json"], arguments].concat();
    serde_json::from_str(&tallyring_ok(&arguments)).expect("JSON")
}

fn verified(data: &Path) {
    let told = tallyring_ok(&["verify", "--deep", "--data", text(data)]);
    assert!(told.ends_with("all good\n"), "{told}");
}

/// The key that a server leaves for commands on its data directory.
fn local_key(data: &Path) -> String {
    fs::read_to_string(data.join("LOCAL_KEY")).expect("a key")
}

/// A directory beside a store's.
fn beside(stored: &Stored, name: &str) -> PathBuf {
    stored.data.with_file_name(name)
}

#[test]
fn a_backup_beside_a_server_restores_to_the_same_answers_and_grows_by_what_is_new() {
    let stored = Stored::with_a_file_of_every_kind();
    let (copy, again) = (beside(&stored, "copy"), beside(&stored, "again"));
    let server = stored.serve(TODAY);
    let key = json_of(&["key", "new", "--scope", "read", "--data", stored.argument()]);
    let key = key["key"].as_str().expect("a key").to_owned();
    let before = json_of(&["backup", text(&copy), "--data", stored.argument()]);
    assert!(before["files"].as_u64() >= Some(8), "{before}");
    verified(&copy);

    let click = "/v1/incr?key.l=link1&n=7&id=x";
    assert_eq!(server.get_as(&local_key(&stored.data), click).status, 204);
    let more = json_of(&["backup", text(&copy), "--data", stored.argument()]);
    assert_eq!(more["files"], 1, "only the log's newest segment: {more}");
    let read = |server: &Server, key: &str| READS.map(|read| server.get_as(key, read).json());
    let expected = read(&server, &key);
    server.kill9();

    let restored = json_of(&["restore", text(&copy), "--data", text(&again)]);
    assert_eq!(restored["generation"], before["generation"]);
    verified(&again);
    let server = Server::start(&again, &["--clock", TODAY]);
    assert_eq!(read(&server, &key), expected);
    assert_eq!(
        server.get(READS[0]).status,
        401,
        "the keys are restored too"
    );
    // An acknowledged click is known by its id, and new counts go on.
    let local = local_key(&again);
    for _ in 0..2 {
        assert_eq!(server.get_as(&local, click).status, 204);
    }
    assert_eq!(read(&server, &key)[0]["total"], expected[0]["total"]);
    server.terminate();
    verified(&again);
}

#[test]
fn a_backup_is_not_served_nor_mixed_up_with_others() {
    let stored = Stored::with_a_file_of_every_kind();
    let copy = beside(&stored, "copy");
    tallyring_ok(&["backup", text(&copy), "--data", stored.argument()]);
    let refused = |arguments: &[&str], says: &str| {
        let ended = tallyring(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(says), "{ended:?}");
    };
    refused(
        &["serve", "--listen", "127.0.0.1:0", "--data", text(&copy)],
        "is a backup",
    );
    refused(&["rebuild", "--data", text(&copy)], "is a backup");
    let inside = stored.data.join("backup");
    refused(
        &["backup", text(&inside), "--data", stored.argument()],
        "is in the data directory",
    );
    refused(
        &["restore", text(&copy), "--data", stored.argument()],
        "is not empty",
    );
    let inside = copy.join("restored");
    refused(
        &["restore", text(&copy), "--data", text(&inside)],
        "is in the backup",
    );
    refused(
        &["restore", stored.argument(), "--data", "new"],
        "is no backup",
    );
    // A copy may be read, and another store's is refused.
    let query = tallyring_ok(&["query", "l/link1", "--data", text(&copy)]);
    assert!(query.contains("l/link1"), "{query}");
    let other = Stored::new();
    other.serve(TODAY).terminate();
    let ended = tallyring(&["backup", text(&copy), "--data", other.argument()]);
    assert!(ended.stderr.contains("another store"), "{ended:?}");
}

#[test]
fn a_restored_store_counts_apart_from_its_first_moment_on() {
    let stored = Stored::with_a_file_of_every_kind();
    let copy = beside(&stored, "copy");
    tallyring_ok(&["backup", text(&copy), "--data", stored.argument()]);
    let restored = beside(&stored, "restored");
    tallyring_ok(&["restore", text(&copy), "--data", text(&restored)]);
    let refused = || {
        let ended = tallyring(&["backup", text(&copy), "--data", text(&restored)]);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains("count apart since"), "{ended:?}");
        verified(&copy);
    };
    refused();
    for data in [&stored.data, &restored] {
        let server = Server::start(data, &["--clock", "2012-03-20T13:00:00Z@0"]);
        assert_eq!(
            server
                .get(&format!("/v1/incr?key.l={}", data.display()))
                .status,
            204
        );
        server.client().rebuild();
        server.terminate();
    }
    tallyring_ok(&["backup", text(&copy), "--data", stored.argument()]);
    refused();
    // Its log is never healed from the other's, and it has a backup of its own, with its lineage.
    let log = stored_log(&restored);
    let mut bytes = fs::read(&log).expect("a segment");
    bytes[200] ^= 1;
    fs::write(&log, &bytes).expect("damaged");
    let from = |backup: &Path| {
        let backup = text(backup);
        tallyring(&[
            "verify",
            "--repair",
            "--backup",
            backup,
            "--data",
            text(&restored),
        ])
    };
    assert_eq!(from(&copy).code, 1);
    assert_eq!(fs::read(&log).expect("a segment"), bytes);
    bytes[200] ^= 1;
    fs::write(&log, &bytes).expect("mended");
    let own = beside(&stored, "own");
    for _ in 0..2 {
        tallyring_ok(&["backup", text(&own), "--data", text(&restored)]);
    }
    bytes[200] ^= 1;
    fs::write(&log, &bytes).expect("damaged");
    assert_eq!(from(&own).code, 0);
    let ended = tallyring(&["backup", text(&own), "--data", stored.argument()]);
    assert!(ended.stderr.contains("count apart since"), "{ended:?}");
}

/// The oldest segment of a store's log.
fn stored_log(data: &Path) -> PathBuf {
    let segments = files(data, "oplog");
    data.join(segments.first().expect("a segment"))
}

#[test]
fn a_backup_that_fails_behind_a_server_fails_the_rebuild_and_is_in_the_status() {
    let stored = Stored::with_a_file_of_every_kind();
    let (blocked, config) = (beside(&stored, "blocked"), beside(&stored, "backup.toml"));
    fs::write(&blocked, "no directory").expect("written");
    let place = format!("[backup]\npath = {:?}\n", text(&blocked.join("copy")));
    fs::write(&config, place).expect("written");
    let server = Server::start(&stored.data, &["--clock", TODAY, "--config", text(&config)]);
    let rebuilt = tallyring(&["rebuild", "--data", stored.argument()]);
    assert_eq!(rebuilt.code, 1, "{rebuilt:?}");
    assert!(
        rebuilt.stderr.contains("is published, but not backed up: "),
        "{rebuilt:?}"
    );
    let shown = tallyring_ok(&["status", "--data", stored.argument()]);
    assert!(shown.contains("\nbackup    failed, "), "{shown}");
    assert!(shown.starts_with("state     degraded, "), "{shown}");
    // Once there is a place for it, both are well.
    fs::remove_file(&blocked).expect("removed");
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
    let shown = tallyring_ok(&["status", "--data", stored.argument()]);
    assert!(shown.contains("\nbackup    done, "), "{shown}");
    assert!(shown.starts_with("state     ok, "), "{shown}");
    server.terminate();
    verified(&blocked.join("copy"));
}

#[test]
fn every_rebuild_backs_up_where_the_configuration_says_and_damage_is_healed() {
    let stored = Stored::with_a_file_of_every_kind();
    let copy = beside(&stored, "copy");
    let config = beside(&stored, "backup.toml");
    fs::write(
        &config,
        format!(
            "[oplog]\nsegment_mib = 1\n[backup]\npath = {:?}\n",
            text(&copy)
        ),
    )
    .expect("written");
    let server = Server::start(
        &stored.data,
        &[
            "--clock",
            "2012-03-19T13:00:00Z@0",
            "--config",
            text(&config),
        ],
    );
    server.wait_for_status("the rebuild is backed up", |status| {
        status["last_backup"]["generation"] == 3
    });
    let status = server.get_json("/v1/admin/status");
    assert_eq!(
        status["last_rebuild"]["files"]["shared"],
        json!(0),
        "{status:#}"
    );
    let expected = answers(&server);
    server.terminate();
    verified(&copy);

    let damaged: Vec<String> = ["archive", "runs", "ids"]
        .iter()
        .map(|directory| stored.files(directory).remove(0))
        .collect();
    for name in &damaged {
        let path = stored.data.join(name);
        let mut bytes = fs::read(&path).expect("read");
        bytes[10] ^= 1;
        // By another name, so that no hard link is damaged with it.
        fs::remove_file(&path).expect("removed");
        fs::write(&path, bytes).expect("written");
    }
    let told = tallyring(&["verify", "--data", stored.argument()]);
    assert_eq!(told.code, 1, "{told:?}");
    let told = tallyring_ok(&[
        "verify",
        "--repair",
        "--config",
        text(&config),
        "--data",
        stored.argument(),
    ]);
    for name in &damaged {
        assert!(told.contains(&format!("HEALED {name}")), "{told}");
    }
    let server = Server::start(&stored.data, &["--clock", "2012-03-19T13:00:00Z@0"]);
    assert_eq!(answers(&server), expected);
    server.terminate();
    verified(&stored.data);
}

#[test]
fn without_a_backup_an_archive_file_is_merged_again() {
    let stored = Stored::with_a_file_of_every_kind();
    let server = stored.serve("2012-03-19T13:00:00Z@0");
    server.wait_for_status("the 18th is archived", |status| status["generation"] == 3);
    server.terminate();
    for name in stored.files("archive") {
        fs::remove_file(stored.data.join(name)).expect("removed");
    }
    let told = tallyring_ok(&["verify", "--repair", "--data", stored.argument()]);
    assert!(told.contains("merged again"), "{told}");
    verified(&stored.data);
}

#[test]
fn a_damaged_log_never_takes_the_place_of_a_good_copy_and_rot_of_the_copy_is_found() {
    let stored = Stored::with_a_file_of_every_kind();
    let copy = beside(&stored, "copy");
    let back_up = || tallyring(&["backup", text(&copy), "--data", stored.argument()]);
    assert_eq!(back_up().code, 0);
    let flip = |path: &Path, byte: usize| {
        let mut bytes = fs::read(path).expect("read");
        bytes[byte] ^= 1;
        fs::remove_file(path).expect("removed");
        fs::write(path, bytes).expect("written");
    };
    let segment = stored
        .files("oplog")
        .into_iter()
        .rfind(|name| name.ends_with(".tlog"));
    let segment = stored.data.join(segment.expect("a segment"));
    flip(&segment, 200);
    let refused = back_up();
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("damaged"), "{refused:?}");
    verified(&copy);
    let repair = [
        "verify",
        "--repair",
        "--backup",
        text(&copy),
        "--data",
        stored.argument(),
    ];
    let told = tallyring_ok(&repair);
    assert!(told.contains("HEALED oplog/"), "{told}");
    verified(&stored.data);
    fs::remove_file(&segment).expect("removed");
    let told = tallyring(&repair);
    assert_eq!(
        told.code, 1,
        "what came after the backup may be lost: {told:?}"
    );
    fs::copy(
        copy.join("oplog")
            .join(segment.file_name().expect("a name")),
        &segment,
    )
    .expect("copied");

    let rotten = files(&copy, "archive").remove(0);
    flip(&copy.join(&rotten), 10);
    let healed = json_of(&["backup", text(&copy), "--data", stored.argument()]);
    assert!(healed["files"].as_u64() >= Some(1), "{healed}");
    verified(&copy);
}

#[test]
fn a_backup_in_the_data_directory_is_refused_before_anything_is_served() {
    let stored = Stored::new();
    fs::create_dir(&stored.data).expect("a directory");
    let (config, missing) = (beside(&stored, "inside.toml"), beside(&stored, "missing"));
    let back = missing.join("../data/backup");
    for inside in [text(&stored.data.join("backup")), text(&back), "backup"] {
        fs::write(&config, format!("[backup]\npath = {inside:?}\n")).expect("write it");
        let mut serve = Command::new(binary());
        serve.args([
            "serve",
            "--data",
            ".",
            "--listen",
            "127.0.0.1:0",
            "--config",
        ]);
        let refused = serve.arg(&config).current_dir(&stored.data).output();
        let refused = refused.expect("it runs");
        assert_eq!(refused.status.code(), Some(2), "{inside}: {refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("name a directory elsewhere"), "{said}");
    }
}
