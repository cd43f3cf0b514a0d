//! A store with several strands on one machine: served, copied, restored, and what commands say of its directory.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tallyring_tests::server::{Server, tallyring, tallyring_ok};
use tempfile::TempDir;

use crate::stored::text;

const TODAY: &str = "2012-03-18T13:00:00Z@0";
const TOMORROW: &str = "2012-03-19T12:00:00Z@0";
const DAY_AFTER: &str = "2012-03-20T11:00:00Z@0";
const STRANDS: usize = 3;
const SENT: usize = 90;
/// A time before that of the first server, and one before that of the last.
const AT: [&str; 2] = ["2012-03-18T12:00:00Z", "2012-03-20T10:00:00Z"];
const HISTORY: &str = "namespace,key,hour,count\nl,a,2011-03-16T18:00:00Z,5\n";

/// A place for directories, one of which has an empty divided store: its backup is that of one empty store for each
/// strand.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        let (one, copy) = (place.at("one"), place.at("copy-of-one"));
        let server = Server::start(&one, &["--clock", TODAY]);
        assert!(!server.messages().contains("strand="));
        server.terminate();
        tallyring_ok(&["backup", text(&copy), "--data", text(&one)]);
        let whole = place.at("begun");
        fs::create_dir(&whole).expect("a directory");
        fs::copy(copy.join("BACKUP"), whole.join("BACKUP")).expect("copied");
        let says = |directory: &Path, says: Value| {
            fs::write(directory.join("STRANDS"), says.to_string()).expect("written");
        };
        says(&whole, json!({"strands": STRANDS}));
        for strand in 0..STRANDS {
            let to = whole.join(format!("strand-{strand}"));
            copy_directory(&copy, &to);
            says(&to, json!({"strands": STRANDS, "strand": strand}));
        }
        tallyring_ok(&["restore", text(&whole), "--data", text(&place.at("data"))]);
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a list") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_directory(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copied")),
        }
    }
}

/// Sends increments of a time, with ids that tell it, and says how many were known.
fn send(server: &Server, at: &str) -> u64 {
    let items = (0..SENT).map(|number| {
        json!({"keys": {"l": format!("k{}", number % 7)}, "by": {"c": "US"}, "id": format!("{at} {number}"),
            "at": at})
    });
    let body = Value::from_iter(items).to_string();
    let answer = server.post("/v1/increments", body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["duplicates"].as_u64().expect("a number")
}

fn answers(server: &Server) -> Vec<Value> {
    let read = [
        "/v1/l/top?unit=year&units=2",
        "/v1/l/k3/by/c?unit=hour&units=48",
        "/v1/l/a/counts?unit=year&units=2",
    ];
    read.iter().map(|path| server.get_json(path)).collect()
}

fn json_of(arguments: &[&str]) -> Value {
    let arguments = [&["--output", "json"], arguments].concat();
    serde_json::from_str(&tallyring_ok(&arguments)).expect("JSON")
}

fn refused(arguments: &[&str], says: &str) {
    let ended = tallyring(arguments);
    assert!(ended.code != 0, "{arguments:?}: {ended:?}");
    assert!(ended.stderr.contains(says), "{arguments:?}: {ended:?}");
}

/// Checks that lines about a strand name it.
fn check_lines(messages: &str) {
    for strand in 0..STRANDS {
        let of_strand = format!("strand={strand}}}");
        let mut lines = messages.lines().filter(|line| line.contains(&of_strand));
        assert!(lines.any(|line| line.contains("opened")), "{messages}");
        assert!(
            lines.any(|line| line.contains("rebuild started")),
            "{messages}"
        );
    }
}

#[test]
fn a_divided_store_is_served_loaded_rebuilt_copied_and_restored() {
    let place = Place::new();
    let (data, copy, again) = (place.at("data"), place.at("copy"), place.at("again"));
    let server = Server::start(&data, &["--clock", TODAY]);
    assert_eq!(send(&server, AT[0]), 0);
    assert_eq!(send(&server, AT[0]), SENT as u64);
    let history = place.at("history.csv");
    fs::write(&history, HISTORY).expect("written");
    let load = ["load", "h", text(&history), "--data", text(&data)];
    tallyring_ok(&[&load[..], &["--final"]].concat());
    server.terminate();

    let server = Server::start(&data, &["--clock", TOMORROW]);
    let rebuilt = json_of(&["rebuild", "--data", text(&data)]);
    let rebuilt = rebuilt["strands"].as_array().expect("strands").clone();
    assert_eq!(rebuilt.len(), STRANDS);
    assert!(
        rebuilt.iter().all(|of| of["generation"].as_u64() > Some(0)),
        "{rebuilt:?}"
    );
    check_lines(&server.messages());
    let told = tallyring_ok(&["rebuild", "--data", text(&data)]);
    assert_eq!(told.lines().count(), STRANDS, "{told}");
    assert!(told.starts_with("strand 0: generation"), "{told}");
    let datasets = json_of(&["datasets", "--data", text(&data)]);
    assert_eq!(datasets["datasets"][0]["state"], "counted", "{datasets}");
    let expected = answers(&server);
    assert_eq!(expected[2]["total"], 5, "{expected:?}");
    let day = "from=2011-03-16T00:00:00Z&to=2011-03-16T23:59:59Z";
    let day = server.get_json(&format!("/v1/l/a/counts?unit=day&{day}&basis=final"));
    assert_eq!(day["total"], 5, "{day}");
    server.terminate();
    let server = Server::start(&data, &["--clock", DAY_AFTER]);
    tallyring_ok(&["rebuild", "--data", text(&data)]);
    let reconciled = json_of(&["reconcile", "2012-03-18", "--data", text(&data)]);
    assert_eq!(
        reconciled["strands"].as_array().map(Vec::len),
        Some(STRANDS)
    );

    assert_eq!(send(&server, AT[1]), 0);
    let before = json_of(&["backup", text(&copy), "--data", text(&data)]);
    assert_eq!(
        before["strands"].as_array().map(Vec::len),
        Some(STRANDS),
        "{before}"
    );
    let told = tallyring_ok(&["backup", text(&copy), "--data", text(&data)]);
    assert!(told.starts_with("3 strands are backed up in "), "{told}");
    let expected = answers(&server);
    server.terminate();
    let told = tallyring_ok(&["restore", text(&copy), "--data", text(&again)]);
    assert!(told.contains("is restored: 3 strands, "), "{told}");
    let server = Server::start(&again, &["--clock", DAY_AFTER]);
    assert_eq!(answers(&server), expected);
    assert_eq!(send(&server, AT[1]), SENT as u64, "their ids are known");
    server.terminate();
    let told = tallyring_ok(&["verify", "--deep", "--data", text(&again)]);
    let titles = told.lines().filter(|line| line.starts_with("strand "));
    assert!(titles.eq(["strand 0", "strand 1", "strand 2"]), "{told}");
    tallyring_ok(&["verify", "--data", text(&again.join("strand-1"))]);
    check_lost(&again);
    refused(
        &["backup", text(&copy), "--data", text(&again)],
        "restored from",
    );
}

/// Takes files of one strand away: the others are checked all the same.
fn check_lost(data: &Path) {
    let strand = data.join("strand-1");
    for (lost, found) in [
        (&strand.join("manifests"), "WRONG  "),
        (&strand, "WRONG  strand 1 cannot be checked: "),
    ] {
        fs::remove_dir_all(lost).expect("removed");
        let told = tallyring(&["verify", "--data", text(data)]);
        assert_eq!(told.code, 1, "{told:?}");
        assert_eq!(told.stdout.matches("all good").count(), 2, "{told:?}");
        assert!(told.stdout.contains(found), "{told:?}");
    }
}

#[test]
fn a_divided_directory_is_not_taken_for_that_of_one_store() {
    let place = Place::new();
    let data = place.at("data");
    let (data, strand) = (text(&data), place.at("data/strand-1"));
    let (strand, copy) = (text(&strand), place.at("copy"));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data"];
    refused(&[&serve[..], &[strand]].concat(), "has strand 1 of a store");
    refused(
        &["rebuild", "--data", data],
        "name the directory of one of them",
    );
    let counts = ["query", "l/a", "--unit", "hour", "--data"];
    let check = ["actions", "check", "ann", "--candidate", "ad=42", "--data"];
    let read_only = ["serve", "--listen", "127.0.0.1:0", "--read-only"];
    for asked in [&counts[..], &check, &read_only] {
        refused(&[asked, &[data]].concat(), "and ask it");
        refused(&[asked, &[strand]].concat(), "and ask it");
    }
    tallyring_ok(&["rebuild", "--data", strand]);
    let history = place.at("history.csv");
    fs::write(&history, HISTORY).expect("written");
    refused(
        &["load", "h", text(&history), "--data", strand],
        "strand 0 has all datasets",
    );

    tallyring_ok(&["backup", text(&copy), "--data", data]);
    let other = place.at("other");
    refused(
        &["backup", text(&copy), "--data", text(&place.at("one"))],
        "is the backup of a store with 3 strands",
    );
    refused(
        &["backup", text(&place.at("copy-of-one")), "--data", data],
        "is the backup of a store with one strand",
    );
    refused(
        &[
            "restore",
            text(&copy.join("strand-1")),
            "--data",
            text(&other),
        ],
        "is strand 1 of a backup",
    );
    refused(&[&serve[..], &[text(&copy)]].concat(), "is a backup");
    // A strand that is lost never begins again as an empty one.
    fs::rename(strand, place.at("lost")).expect("moved");
    refused(&[&serve[..], &[data]].concat(), "does not have strand 1");
}

#[test]
fn a_backup_whose_logs_went_further_is_restored_and_once_more_after_a_stop() {
    let place = Place::new();
    let (data, copy, again) = (place.at("data"), place.at("copy"), place.at("again"));
    let server = Server::start(&data, &["--clock", TODAY]);
    assert_eq!(send(&server, AT[0]), 0);
    server.terminate();
    tallyring_ok(&["backup", text(&copy), "--data", text(&data)]);
    let server = Server::start(&data, &["--clock", TOMORROW]);
    tallyring_ok(&["rebuild", "--data", text(&data)]);
    let totals = |server: &Server| {
        let answers = answers(server).into_iter();
        answers
            .map(|answer| answer["total"].clone())
            .collect::<Vec<_>>()
    };
    let expected = totals(&server);
    server.terminate();
    // Beside a server the logs are copied last, and tell of manifests that came meanwhile.
    for strand in (0..STRANDS).map(|strand| format!("strand-{strand}/oplog")) {
        fs::remove_dir_all(copy.join(&strand)).expect("removed");
        copy_directory(&data.join(&strand), &copy.join(&strand));
    }
    let restore = ["restore", text(&copy), "--data", text(&again)];
    tallyring_ok(&restore);
    // As a stop leaves it that came between the first strand and the others.
    for half in ["", "strand-1", "strand-2"] {
        fs::write(again.join(half).join("RESTORING"), "").expect("written");
    }
    tallyring_ok(&restore);
    let server = Server::start(&again, &["--clock", TOMORROW]);
    assert_eq!(totals(&server), expected);
    assert_eq!(send(&server, AT[0]), SENT as u64, "their ids are known");
    server.terminate();
}

#[test]
fn a_restore_that_was_stopped_is_completed_and_a_backup_that_is_not_whole_is_refused() {
    let place = Place::new();
    let (begun, data) = (place.at("begun"), place.at("new"));
    fs::rename(begun.join("strand-2"), place.at("aside")).expect("moved");
    let restore = ["restore", text(&begun), "--data", text(&data)];
    refused(&restore, "is no copy of strand 2");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", text(&data)];
    refused(&serve, "is half restored");
    fs::rename(place.at("aside"), begun.join("strand-2")).expect("moved");
    tallyring_ok(&restore);
    let server = Server::start(&data, &["--clock", TODAY]);
    assert_eq!(send(&server, AT[0]), 0);
    server.terminate();
}

/// Events of a user, in all strands.
fn send_events(server: &Server, user: &str) {
    let events = (0..SENT).map(|number| {
        json!({"id": format!("{user} {number}"), "type": "impression", "at": AT[0], "user": user, "insertion": "i",
            "entities": {"ad": "42"}})
    });
    let answer = server.post("/v1/events", Value::from_iter(events).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Erases users with all their events, and checks that these are found in the log of every strand and in its copy.
fn check_erased(server: Server, users: [&str; 2], (data, config): (&Path, &Path)) {
    for user in users {
        let erased = server.post("/v1/users/erase", json!({ "user": user }).to_string());
        assert_eq!(erased.status, 200, "{erased:?}");
    }
    server.terminate();
    let verify = [
        "--output",
        "json",
        "verify",
        "--erased",
        "--data",
        text(data),
    ];
    let told = tallyring(&[&verify[..], &["--config", text(config)]].concat());
    let report: Value = serde_json::from_str(&told.stdout).expect("a report");
    let of_strands = report["strands"].as_array().expect("strands");
    assert_eq!(
        (of_strands.len(), told.code != 0),
        (STRANDS, true),
        "{told:?}"
    );
    let found = 2 * SENT as u64;
    for what in ["log_records", "log_copy_records"] {
        let records = of_strands.iter().map(|of| of["erased"][what].as_u64());
        let records: Vec<u64> = records.map(|records| records.expect("a number")).collect();
        assert!(records.iter().all(|records| *records > 0), "{report}");
        assert_eq!(records.iter().sum::<u64>(), found, "{report}");
    }
    let said = format!("{found} log records");
    assert!(told.stderr.contains(&said), "{told:?}");
}

#[test]
fn second_copies_of_logs_bring_back_what_came_after_a_backup() {
    let place = Place::new();
    let (data, copy, again) = (place.at("data"), place.at("copy"), place.at("again"));
    let (logs, config) = (place.at("logs"), place.at("t.toml"));
    let section = format!("[log_copy]\npath = {:?}\nack = \"both\"\n", text(&logs));
    fs::write(&config, section).expect("written");
    let of_today = ["--clock", TODAY, "--config", text(&config)];
    let server = Server::start(&data, &of_today);
    assert_eq!(send(&server, AT[0]), 0);
    tallyring_ok(&["backup", text(&copy), "--data", text(&data)]);
    send_events(&server, "ann");
    let expected = answers(&server);
    let told = tallyring_ok(&["status", "--data", text(&data)]);
    let copies = told.lines().filter(|line| line.starts_with("log copy"));
    let copies = copies.filter_map(|line| line.rsplit('/').next());
    assert!(copies.eq(["strand-0", "strand-1", "strand-2"]), "{told}");
    server.kill9();
    fs::rename(&data, place.at("gone")).expect("moved");

    let restore = ["restore", text(&copy), "--data", text(&again), "--log"];
    let of_one = logs.join("strand-1");
    refused(
        &[&restore[..], &[text(&of_one)]].concat(),
        "than that of the log of a store with 3 strands:",
    );
    refused(
        &[&restore[..], &[text(&place.at("nowhere"))]].concat(),
        "holds no log",
    );
    let told = tallyring_ok(&[&restore[..], &[text(&logs)]].concat());
    assert!(
        told.contains(" that were logged after the backup"),
        "{told}"
    );
    let of_one = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--config",
        text(&config),
        "--data",
    ];
    let one = place.at("one");
    refused(
        &[&of_one[..], &[text(&one)]].concat(),
        "than that of the log of a store with 1 strand:",
    );
    // A restored store counts apart, and has a copy of its own.
    fs::rename(&logs, place.at("logs-of-before")).expect("moved");
    let server = Server::start(&again, &of_today);
    assert_eq!(answers(&server), expected);
    assert_eq!(send(&server, AT[0]), SENT as u64, "their ids are known");
    send_events(&server, "bob");
    check_erased(server, ["ann", "bob"], (&again, &config));
}
