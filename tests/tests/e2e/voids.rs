//! Events that people take out of a final day, and the trail of everything that people changed.

use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok};

use crate::final_numbers::{BOTS, click, reconcile, start, total};

/// An id on which a terminal would act, and how a path has it.
const BELL: &str = "bell\u{7}\u{202e}\u{9b}";
const BELL_IN_PATH: &str = "bell%07%E2%80%AE%C2%9B";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
/// All changes of [`changed`], oldest first.
const CHANGES: [&str; 6] = ["erase", "schema", "final", "void", "void", "final"];

pub(crate) fn void(client: &Client, id: &str, reason: &str) -> (u16, Value) {
    let path = format!("/v1/events/{id}/void");
    let body = json!({ "reason": reason }).to_string();
    let answer = client.post_with(&path, &JSON, body.as_bytes());
    (answer.status, answer.json())
}

/// A server with three clicks of a person who is erased, a rule, and a final day from which two clicks are voided.
pub(crate) fn changed(directory: &Path) -> Server {
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    for id in ["e1", "e2", BELL] {
        let answer = server.post("/v1/events", click(id, "phone"));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let user = br#"{"user":"user of e2"}"#;
    let erased = server.client().post_with("/v1/users/erase", &JSON, user);
    assert_eq!(erased.status, 200, "{}", erased.text);
    server.terminate();
    let server = start(directory, "2026-03-13T13:00:01Z", BOTS);
    let client = server.client();
    client.rebuild();
    let order = json!({"day": "2026-03-10"});
    assert_eq!(reconcile(client, &order)["types"]["click"]["after"], 3);
    let (status, said) = void(client, "e1", "it was \u{202e}a test");
    assert_eq!(
        (status, &said["voided"][0]["day"]),
        (201, &json!("2026-03-10"))
    );
    assert_eq!(void(client, BELL_IN_PATH, "rang").0, 201);
    assert_eq!(total(client), 3, "a void changes no count");
    server
}

#[test]
fn voided_clicks_leave_with_the_next_reconcile_and_stay_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = changed(directory.path());
    let client = server.client();
    let statuses = ["e1", "e9"].map(|id| void(client, id, "again").0);
    assert_eq!(statuses, [409, 404]);
    let order = json!({"day": "2026-03-10"});
    let job = reconcile(client, &order);
    let sums = &job["types"]["click"];
    let causes = json!({"voided": -2});
    assert_eq!(
        (&sums["causes"], &sums["after"], &job["version"]),
        (&causes, &json!(1), &json!(2)),
        "{job}"
    );
    assert_eq!(total(client), 1);
    let told = client.get_json("/v1/events/e1");
    assert_eq!(told["voided"]["actor"], "installation", "{told}");
    client.rebuild();
    assert_eq!(total(client), 1);
    let again = reconcile(client, &order);
    assert_eq!(again["published"], false, "nothing changed since: {again}");
    server.kill9();
    let server = start(directory.path(), "2026-03-13T14:00:01Z", "");
    assert_eq!(reconcile(server.client(), &order)["published"], false);
    assert_eq!(total(server.client()), 1, "no rule brings them back");
}

/// The trail, as text or JSON.
pub(crate) fn audit(directory: &Path, arguments: &[&str]) -> String {
    let data = directory.join("data");
    let data = data.to_str().expect("a path of text");
    let trail = tallyring_ok(&[&["audit", "--data", data], arguments].concat());
    let is_hidden = |character: char| {
        character.is_control() && character != '\n' || ['\u{202e}', '\u{9b}'].contains(&character)
    };
    assert!(!trail.contains(is_hidden), "{trail:?}");
    assert!(!trail.contains("user of"), "who was erased: {trail}");
    trail
}

#[test]
fn the_audit_trail_tells_what_people_changed_and_why_beside_a_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let server = changed(directory);
    reconcile(server.client(), &json!({"day": "2026-03-10"}));
    let trail = audit(directory, &[]);
    let lines: Vec<&str> = trail.lines().collect();
    let kind = |line: &&str| line.split_whitespace().nth(2).map(str::to_owned);
    let kinds: Vec<String> = lines.iter().filter_map(kind).collect();
    let ends = [
        "  1 user",
        "  rules +bots",
        "",
        "  2026-03-10 \"e1\" by installation: \"it was \\u{202e}a test\"",
        "  2026-03-10 \"bell\\u{7}\\u{202e}\\u{9b}\" by installation: \"rang\"",
        "",
    ];
    assert_eq!(kinds, CHANGES, "{trail}");
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{line}");
    }
    for (line, part) in [
        (
            lines[2],
            "  2026-03-10 version 1 by installation: click 3 = 3; rules ",
        ),
        (
            lines[5],
            "  2026-03-10 version 2 by installation: click 3 voided -2 = 1; rules ",
        ),
    ] {
        assert!(line.contains(part), "{line}");
    }
    server.terminate();
    assert_eq!(audit(directory, &[]), trail, "without a server");

    for (arguments, changes) in [
        (&["--day", "2026-03-10"][..], 6),
        (&["--day", "2026-03-11"], 1),
        (&["--to", "2026-03-10"], 1),
        (&["--from", "2026-03-13", "--to", "2026-03-13"], 5),
    ] {
        let chosen = audit(directory, arguments);
        assert_eq!(chosen.lines().count(), changes, "{arguments:?}: {chosen}");
    }
}

#[test]
fn programs_read_the_audit_trail_as_an_object_on_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let server = changed(directory);
    reconcile(server.client(), &json!({"day": "2026-03-10"}));
    server.terminate();
    let trail = audit(directory, &["--output", "json"]);
    let read = |line: &str| serde_json::from_str(line).expect("an object");
    let changes: Vec<Value> = trail.lines().map(read).collect();
    let kinds: Vec<&Value> = changes.iter().map(|change| &change["change"]).collect();
    assert_eq!(kinds, CHANGES, "{trail}");
    assert_eq!(changes[0]["users"], 1, "{trail}");
    assert_eq!(changes[1]["rules"]["added"], json!(["bots"]), "{trail}");
    let voided = (&changes[4]["id"], &changes[4]["reason"]);
    assert_eq!(voided, (&json!(BELL), &json!("rang")), "{trail}");
    let causes = &changes[5]["types"]["click"]["causes"];
    assert_eq!(causes, &json!({"voided": -2}), "{trail}");

    let data = directory.join("data");
    let data = data.to_str().expect("a path of text");
    let days = ["--from", "2026-03-12", "--to", "2026-03-11"];
    let wrong = tallyring(&[&["audit", "--data", data], &days[..]].concat());
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let named = wrong.stderr.contains("`--from` must not be after `--to`");
    assert!(named, "{wrong:?}");
    let log = tallyring_ok(&["cat", "oplog", "--day", "2026-03-10", "--data", data]);
    let voids = log.lines().filter(|line| line.contains(" void id="));
    assert_eq!(voids.count(), 2, "{log}");
}

#[test]
fn a_void_of_days_that_no_reconcile_changes_is_refused_in_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let folds = "[hours]\nkeep_days = 40\n";
    let server = start(directory, "2026-03-10T12:00:01Z", folds);
    let old = click("old", "phone").replace("2026-03-10T", "2026-01-01T");
    for event in [&old, &click("e1", "phone")] {
        assert_eq!(server.post("/v1/events", event.clone()).status, 200);
    }
    server.terminate();
    let server = start(directory, "2026-03-13T13:00:01Z", folds);
    let client = server.client();
    client.rebuild();
    let (status, said) = void(client, "old", "it was a test");
    assert_eq!(status, 422, "{said}");
    let detail = said["detail"].as_str().expect("a sentence");
    assert!(
        detail.contains("nothing is voided") && detail.contains("keeps 2026-01-01 as a whole"),
        "{detail}"
    );
    assert!(client.get_json("/v1/events/old")["voided"].is_null());
    let (status, said) = void(client, "e1", "it was a test");
    assert_eq!(status, 201, "{said}");
    assert!(!said["effect"].to_string().contains("No reconcile"));
    // The id counts on another day, too, which can be reconciled.
    let again = click("old", "phone").replace("2026-03-10T", "2026-03-12T");
    let taken = server.post("/v1/events", again).json();
    assert_eq!(taken["accepted"], 1, "{taken}");
    let (status, said) = void(client, "old", "it was a test");
    assert_eq!(status, 201, "{said}");
    let effect = said["effect"].as_str().expect("a sentence");
    assert!(
        effect.contains("No reconcile changes 2026-01-01 any more"),
        "{effect}"
    );
    server.terminate();
}
