//! History that is loaded as final, by the real program.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok, wait_until};

use crate::final_numbers::{BOTS, click, reconcile, start};
use crate::stored::{Stored, files, text};
use crate::voids::audit;

const NOW: &str = "2012-03-16T12:00:00Z@0";
const DAY: &str = "/v1/l/a/counts?unit=day&from=2011-05-01T00:00:00Z&to=2011-05-01T23:00:00Z";

#[test]
fn loaded_history_is_final_where_it_was_loaded_as_final() {
    let stored = Stored::new();
    let server = stored.serve(NOW);
    assert_eq!(server.get("/v1/incr?key.l=a&n=5").status, 204);
    let input = tempfile::tempdir().expect("a directory");
    let file = input.path().join("history.csv");
    let rows = "namespace,key,hour,count\nl,a,2011-05-01T10:00:00Z,100\n";
    fs::write(&file, rows).expect("written");
    let file = file.to_str().expect("a path of text");
    let run = |command: &str, rest: &[&str]| {
        let all = [&[command, "--data", stored.argument()], rest].concat();
        tallyring(&all)
    };
    let is_final = format!("{DAY}&basis=final");
    assert_eq!(run("load", &["history", file]).code, 0);
    server.client().rebuild();
    assert_eq!(server.get_json(DAY)["state"], "provisional");
    let refused = server.get(&is_final);
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(
        refused
            .text
            .contains("`history`, which was not loaded with --final: drop it"),
        "{}",
        refused.text
    );

    let replaced = run("load", &["history", file, "--replace", "--final"]);
    assert_eq!(replaced.code, 0, "{replaced:?}");
    server.client().rebuild();
    for path in [DAY, &is_final] {
        let answer = server.get_json(path);
        assert_eq!(
            (&answer["state"], &answer["total"]),
            (&json!("final"), &json!(100)),
            "{answer}"
        );
    }
    for (command, rest) in [
        ("drop", &["history"][..]),
        ("load", &["history", file, "--replace"]),
    ] {
        let refused = run(command, rest);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(
            refused.stderr.contains("are part of final numbers"),
            "{refused:?}"
        );
    }
    let listed = server.get_json("/v1/admin/datasets");
    assert_eq!(listed["datasets"][1]["final"], true, "{listed}");
    let told = run("datasets", &[]);
    assert!(told.stdout.contains("counted, final"), "{told:?}");
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", stored.argument()]);
}

const EVENTS: &str = "[events.imp]\nentities = [\"ad\"]\n[events.click]\nentities = [\"ad\"]\n\
    [ratios.ctr]\nnumerator = \"click\"\ndenominator = \"imp\"\n";

#[test]
fn a_ratio_of_final_numbers_needs_both_counts_to_be_final() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        let path = directory.path().join(name);
        path.to_str().expect("a path of text").to_owned()
    };
    let (data, config, file) = (path("data"), path("c.toml"), path("x.csv"));
    fs::write(&config, EVENTS).expect("written");
    let server = Server::start(
        &PathBuf::from(&data),
        &["--clock", NOW, "--config", &config],
    );
    let load = |name: &str, rows: &[(&str, u32, u64)], last: &[&str]| {
        let rows = rows.iter();
        let rows = rows.map(|(of, day, n)| format!("ad_{of},42,2011-05-{day:02}T10:00:00Z,{n}\n"));
        let text = format!("namespace,key,hour,count\n{}", rows.collect::<String>());
        fs::write(&file, text).expect("written");
        tallyring(&[&["load", "--data", &data, name, &file], last].concat())
    };
    for (name, rows, last) in [
        ("imp", &[("imp", 1, 1_000)][..], &["--final"][..]),
        ("click", &[("click", 1, 10), ("click", 3, 10)], &["--final"]),
        ("beside", &[("imp", 2, 1_000)], &[]),
    ] {
        let loaded = load(name, rows, last);
        assert_eq!(loaded.code, 0, "{loaded:?}");
    }
    server.client().rebuild();
    let ratio = |day: u32, basis: &str| {
        let day = format!("2011-05-{day:02}T");
        let range = format!("from={day}00:00:00Z&to={day}23:00:00Z");
        server.get(&format!("/v1/ratios/ctr/ad/42?unit=day&{range}{basis}"))
    };
    for basis in ["", "&basis=final"] {
        let answer = ratio(1, basis).json();
        let found = ["numerator", "denominator", "state"].map(|name| answer[name].clone());
        assert_eq!(found, [json!(10), json!(1_000), json!("final")], "{answer}");
    }
    for (day, why) in [
        (2, "2011-05-02 may have counts of the dataset `beside`"),
        (3, "2011-05-03 is not final"),
    ] {
        assert_eq!(ratio(day, "").json()["state"], "provisional", "{day}");
        let refused = ratio(day, "&basis=final");
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains(why), "{}", refused.text);
    }
    let refused = load("again", &[("click", 2, 1)], &["--final"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("2011-05-02 is final by the dataset `click`"),
        "{refused:?}"
    );
    server.terminate();
}

/// A time at which 10 March may become final.
pub(crate) const CLOSED: &str = "2026-03-13T13:00:01Z";

/// A server at that time with five clicks of 10 March, and its configuration, which has a second copy of the log.
pub(crate) fn with_clicks(directory: &Path) -> (Server, String) {
    let copy = directory.join("copy");
    let section = format!(
        "{BOTS}[log_copy]\npath = \"{}\"\nack = \"both\"\n",
        text(&copy)
    );
    let server = start(directory, "2026-03-10T12:00:01Z", &section);
    for id in ["e1", "e2", "e3", "e4", "e5"] {
        assert_eq!(server.post("/v1/events", click(id, "phone")).status, 200);
    }
    server.terminate();
    let server = start(directory, CLOSED, &section);
    server.client().rebuild();
    (server, section)
}

/// Puts the backup in the place of the data directory, with the second copy of the log.
pub(crate) fn restore(directory: &Path) {
    let [data, backup, copy] = ["data", "backup", "copy"].map(|name| directory.join(name));
    fs::rename(&data, directory.join("gone")).expect("pulled away");
    let to = ["--log", text(&copy), "--data", text(&data)];
    tallyring_ok(&[&["restore", text(&backup)][..], &to].concat());
}

/// Loads 50 clicks of 10 March, and `early` ones of 1 February, as final.
pub(crate) fn load_final(directory: &Path, name: &str, early: u64) -> Result<(), String> {
    load_both(directory, name, [50, early], &[])
}

/// Loads clicks of 10 March and of 1 February as final.
fn load_both(
    directory: &Path,
    name: &str,
    [late, early]: [u64; 2],
    last: &[&str],
) -> Result<(), String> {
    let (file, data) = (directory.join("h.csv"), directory.join("data"));
    let rows = format!(
        "namespace,key,hour,count\nad_click,42,2026-03-10T10:00:00Z,{late}\nad_click,42,2026-02-01T10:00:00Z,{early}\n"
    );
    fs::write(&file, rows).expect("written");
    let config = directory.join("c.toml");
    let on = ["--data", text(&data), "--config", text(&config)];
    let loaded = tallyring(&[&["load", name, text(&file), "--final"][..], &on, last].concat());
    match loaded.code {
        0 => Ok(()),
        _ => Err(loaded.stderr),
    }
}

/// The final number of a day, or why there is none.
pub(crate) fn final_number(client: &Client, day: &str) -> Result<u64, String> {
    let range = format!("from={day}T00:00:00Z&to={day}T23:59:59Z");
    let answer = client.get(&format!(
        "/v1/ad_click/42/counts?unit=day&{range}&basis=final"
    ));
    match answer.status {
        200 => Ok(answer.json()["total"].as_u64().expect("a number")),
        422 => Err(answer.text),
        other => panic!("{other}: {}", answer.text),
    }
}

pub(crate) fn reasons(client: &Client) -> String {
    client.get_json("/v1/admin/status")["reasons"].to_string()
}

/// The dataset is missed wherever it should be, nothing takes its place, and it comes back with the numbers of before.
fn is_missed_until_it_is_loaded_again(directory: &Path, server: &Server) {
    let client = server.client();
    wait_until("the version is made again", || {
        let days = client.get_json("/v1/finals/days?from=2026-03-10&to=2026-03-10");
        days["days"][0]["versions"] == json!([1])
    });
    let why = reasons(client);
    assert!(
        why.contains("the dataset h (2 rows), which is part of the final numbers from 2026-02-01 to 2026-03-10"),
        "{why}"
    );
    assert!(why.contains("tallyring load h FILE… --final"), "{why}");
    for day in ["2026-02-01", "2026-03-10"] {
        let refused = final_number(client, day).expect_err("it is not final");
        assert!(
            refused.contains("`h`, which was part of final numbers and is lost"),
            "{refused}"
        );
        let days = client.get_json(&format!("/v1/finals/days?from={day}&to={day}"));
        assert_eq!(days["days"][0]["state"], "provisional", "{days}");
        let reason = days["days"][0]["reason"].to_string();
        assert!(reason.contains("tallyring load h FILE… --final"), "{days}");
    }
    // Days and namespaces without its counts are as they were.
    let range = "from=2026-03-10T00:00:00Z&to=2026-03-10T23:59:59Z";
    let other = client.get_json(&format!("/v1/ad_impression/42/counts?{range}&basis=final"));
    assert_eq!(other["state"], "final", "{other}");
    for (name, early) in [("h", 101), ("other", 100)] {
        let refused = load_final(directory, name, early).expect_err("other counts");
        assert!(refused.contains("load exactly its counts"), "{refused}");
    }
    load_final(directory, "h", 100).expect("it is that dataset");
    let waits = final_number(client, "2026-03-10").expect_err("it waits");
    assert!(waits.contains("counts with the next rebuild"), "{waits}");
    let data = directory.join("data");
    let refused = tallyring(&["drop", "h", "--data", text(&data)]);
    assert!(
        refused.stderr.contains("are part of final numbers"),
        "{refused:?}"
    );
    client.rebuild();
    assert_eq!(final_number(client, "2026-03-10"), Ok(55));
    assert_eq!(final_number(client, "2026-02-01"), Ok(100));
    let why = reasons(client);
    assert!(!why.contains("the dataset h"), "{why}");
}

#[test]
fn a_final_dataset_that_is_lost_is_missed_until_exactly_it_is_loaded_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let [data, backup] = ["data", "backup"].map(|name| directory.join(name));
    let (server, section) = with_clicks(directory);
    let client = server.client();
    tallyring_ok(&["backup", text(&backup), "--data", text(&data)]);
    load_final(directory, "h", 100).expect("loaded");
    client.rebuild();
    assert_eq!(
        reconcile(client, &json!({"day": "2026-03-10"}))["version"],
        1
    );
    assert_eq!(final_number(client, "2026-03-10"), Ok(55));
    let trail = audit(directory, &["--day", "2026-02-20"]);
    assert!(
        trail.contains("  dataset   2026-02-01..2026-03-10 h: 2 rows of ad_click; content "),
        "{trail}"
    );
    server.kill9();

    restore(directory);
    let server = start(directory, CLOSED, &section);
    is_missed_until_it_is_loaded_again(directory, &server);
    server.kill9();
    // Nothing is missed after a start that reads the record beside the dataset.
    let server = start(directory, CLOSED, &section);
    assert_eq!(final_number(server.client(), "2026-03-10"), Ok(55));
    server.terminate();

    let bulk = files(&data, "runs").into_iter();
    for file in bulk.filter(|name| name.contains("bulk-")) {
        fs::remove_file(data.join(file)).expect("removed");
    }
    fs::remove_dir_all(data.join("manifests")).expect("removed");
    let config = directory.join("c.toml");
    let told = tallyring(&["recount", "--data", text(&data), "--config", text(&config)]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        told.stderr
            .contains("the dataset h (2 rows) is part of final numbers"),
        "{told:?}"
    );
    let server = start(directory, CLOSED, &section);
    is_missed_until_it_is_loaded_again(directory, &server);
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
}

/// Both final numbers that the loaded clicks are part of, or why there are none.
pub(crate) fn final_numbers(client: &Client) -> [Result<u64, String>; 2] {
    ["2026-03-10", "2026-02-01"].map(|day| final_number(client, day))
}

/// A dataset that waits as `waiting` in a backup gives way to `h`, which counts. The backup is restored with the newer
/// log, and the log is counted again or read by a start.
fn gave_way_to_a_lost_one(waiting: &str, recounts: bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let [data, backup] = ["data", "backup"].map(|name| directory.join(name));
    let (server, section) = with_clicks(directory);
    load_both(directory, waiting, [7, 7], &[]).expect("loaded");
    tallyring_ok(&["backup", text(&backup), "--data", text(&data)]);
    let is_replaced = waiting == "h";
    if !is_replaced {
        tallyring_ok(&["drop", waiting, "--data", text(&data)]);
    }
    let last: &[&str] = if is_replaced { &["--replace"] } else { &[] };
    load_both(directory, "h", [50, 100], last).expect("loaded");
    server.client().rebuild();
    let closed = reconcile(server.client(), &json!({"day": "2026-03-10"}));
    assert_eq!(closed["version"], 1);
    assert_eq!(final_numbers(server.client()), [Ok(55), Ok(100)]);
    server.kill9();

    restore(directory);
    let config = directory.join("c.toml");
    let mut told = String::new();
    if recounts {
        let recount = tallyring(&["recount", "--data", text(&data), "--config", text(&config)]);
        assert_eq!(recount.code, 0, "{recount:?}");
        told = recount.stderr;
    }
    let server = start(directory, CLOSED, &section);
    never_counts_again(directory, waiting, server.client());
    told.push_str(&server.messages());
    let left_out =
        format!("the dataset {waiting}, which is final and waited for a rebuild, is left out");
    assert_eq!(told.matches(&left_out).count(), 1, "{told}");
    server.kill9();
    let server = start(directory, CLOSED, &section);
    assert_eq!(final_numbers(server.client()), [Ok(55), Ok(100)]);
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
}

/// No rebuild counts it, nor is it taken; the lost dataset comes back with the numbers of before.
fn never_counts_again(directory: &Path, waiting: &str, client: &Client) {
    wait_until("the version is made again", || {
        let days = client.get_json("/v1/finals/days?from=2026-03-10&to=2026-03-10");
        days["days"][0]["versions"] == json!([1])
    });
    client.rebuild();
    let listed = client.get_json("/v1/admin/datasets");
    assert_eq!(listed["datasets"], json!([]), "{listed}");
    for refused in final_numbers(client) {
        let refused = refused.expect_err("it is lost");
        assert!(
            refused.contains("`h`, which was part of final numbers and is lost"),
            "{refused}"
        );
    }
    let range = "from=2026-02-01T00:00:00Z&to=2026-03-10T23:59:59Z";
    let counted = client.get_json(&format!("/v1/ad_click/42/counts?unit=day&{range}"));
    assert_eq!(counted["total"], 5, "{counted}");
    let both: [&[&str]; 2] = [&[], &["--replace"]];
    for last in both {
        let refused = load_both(directory, waiting, [7, 7], last);
        let refused = refused.expect_err("it is not the lost one");
        assert!(refused.contains("load exactly its counts"), "{refused}");
    }
    load_final(directory, "h", 100).expect("its name is free");
    client.rebuild();
    assert_eq!(final_numbers(client), [Ok(55), Ok(100)]);
}

#[test]
fn a_dataset_that_was_dropped_before_another_became_final_never_counts_after_a_restore() {
    for recounts in [false, true] {
        gave_way_to_a_lost_one("g", recounts);
    }
}

#[test]
fn a_dataset_that_was_replaced_before_it_became_final_never_counts_after_a_restore() {
    for recounts in [false, true] {
        gave_way_to_a_lost_one("h", recounts);
    }
}
