//! Actions of users on days that become final: caps, frequencies and answers about a person follow the recount.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring_ok};

use crate::final_numbers::{BOTS, reconcile, start, total};
use crate::stored::{files, text};
use crate::voids::void;

const CAPS: &str = "\
[caps.ad_week]
entity = \"ad\"
action = \"click\"
limit = 2
within = \"7d\"
";
const CLOSED: &str = "2026-03-13T13:00:01Z";

/// A click on the day that becomes final.
fn click(id: &str, user: &str, time: &str, device: &str) -> Value {
    json!({"id": id, "type": "click", "at": format!("2026-03-10T{time}Z"), "entities": {"ad": "42"},
        "by": {"device": device}, "user": user, "insertion": "i"})
}

fn send(client: &Client, event: &Value) {
    let answer = client.post("/v1/events", event.to_string()).json();
    assert_eq!(answer["accepted"], 1, "{answer}");
}

fn ask(client: &Client, path: &str, question: Value) -> Value {
    let headers = [("content-type", "application/json")];
    let answer = client.post_with(path, &headers, question.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.json()
}

fn query() -> Value {
    json!({"users": ["ann", "bob"], "ranges": ["7d"], "action": ["click"], "entity": {"ad": ["42"]}})
}

/// Checks that the cap of two clicks lets Ann see the ad, or not.
fn check_cap(client: &Client, n: u64, when: &str) {
    let check = json!({"user": "ann", "candidates": [{"ad": "42"}]});
    let mut questions = vec![("/v1/actions/check", check)];
    if n >= 2 {
        // Otherwise it would hold the ad, and count.
        let reserve = json!({"user": "ann", "candidates": [{"ad": "42"}], "action": "click"});
        questions.push(("/v1/actions/reserve", reserve));
    }
    for (path, question) in questions {
        let verdict = &ask(client, path, question)["candidates"][0];
        let by = (n >= 2).then_some(n);
        assert_eq!(verdict["by"]["count"], json!(by), "{when}: {verdict}");
        assert_eq!(verdict["allowed"], n < 2, "{when}: {verdict}");
    }
}

/// Checks that every answer says that Ann clicked at these times, and Bob once.
fn check(client: &Client, times: &[&str], when: &str) {
    let n = times.len() as u64;
    let query = ask(client, "/v1/actions/query", query());
    let did = |user: &str| query["users"][user]["7d"]["click"]["ad"]["42"].clone();
    assert_eq!((did("ann"), did("bob")), (json!(n), json!(1)), "{when}");
    assert_ne!(query["approximate"], true, "{when}");
    check_cap(client, n, when);
    let frequency = ask(
        client,
        "/v1/actions/frequency",
        json!({"entity": {"ad": "42"}, "action": "click", "range": "7d"}),
    );
    let reach = 1 + u64::from(n > 0);
    assert_eq!(
        (&frequency["actions"], &frequency["reach"]),
        (&json!(n + 1), &json!(reach)),
        "{when}: {frequency}"
    );
    let person = ask(client, "/v1/users/lookup", json!({"user": "ann"}));
    let actions = person["actions"].as_array().expect("actions").iter();
    let mut listed: Vec<String> = Vec::new();
    for action in actions {
        let at = action["at"].as_str().expect("a time").to_owned();
        let n = action["n"].as_u64().unwrap_or(1);
        listed.extend((0..n).map(|_| at.clone()));
    }
    listed.sort();
    let expected: Vec<String> = (times.iter())
        .map(|time| format!("2026-03-10T{time}Z"))
        .collect();
    assert_eq!(listed, expected, "{when}");
    assert_eq!(total(client), n + 1, "{when}: actions count as clicks do");
}

/// A server after the day was closed, with these rules beside the cap.
fn start_closed(directory: &Path, rules: &str) -> Server {
    start(directory, CLOSED, &format!("{CAPS}{rules}"))
}

/// Ann clicks, a bot clicks with her name, and she clicks by mistake; the first click comes again 27 hours later. Then
/// the day is closed, under the rule for bots.
fn clicked(directory: &Path) -> Server {
    let server = start(directory, "2026-03-10T10:45:00Z", CAPS);
    for event in [
        click("first", "ann", "10:30:00", "phone"),
        click("robot", "ann", "10:30:05", "bot"),
        click("mistake", "ann", "10:31:00", "phone"),
        click("other", "bob", "10:31:00", "phone"),
    ] {
        send(&server, &event);
    }
    server.terminate();
    let server = start(directory, "2026-03-11T14:00:01Z", CAPS);
    server.client().rebuild();
    send(&server, &click("first", "ann", "10:30:00", "phone"));
    server.terminate();
    let server = start_closed(directory, BOTS);
    server.client().rebuild();
    server
}

#[test]
fn what_a_reconcile_takes_away_is_no_action_and_what_comes_back_is_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let order = json!({"day": "2026-03-10"});
    let server = clicked(directory);
    assert_eq!(void(&server, "mistake", "she says so").0, 201);
    let before = ["10:30:00", "10:30:00", "10:30:05", "10:31:00"];
    check(&server, &before, "before the reconcile");
    let job = reconcile(&server, &order);
    let causes = json!({"duplicate_beyond_window": -1, "filtered_by:bots": -1, "voided": -1});
    assert_eq!(job["types"]["click"]["causes"], causes, "{job}");
    check(&server, &["10:30:00"], "by version 1");
    server.kill9();
    let server = start_closed(directory, BOTS);
    check(&server, &["10:30:00"], "after a restart");
    server.client().rebuild();
    check(&server, &["10:30:00"], "after a rebuild");
    assert_eq!(reconcile(&server, &order)["published"], false);
    server.terminate();

    let server = start_closed(directory, "");
    let job = reconcile(&server, &order);
    assert_eq!(job["types"]["click"]["causes"], json!({"restored:bots": 1}));
    let restored = ["10:30:00", "10:30:05"];
    check(&server, &restored, "by version 2");
    server.client().rebuild();
    check(&server, &restored, "after another rebuild");
    server.terminate();

    // Everything but the log is lost, and then the fixes alone.
    let (data, config) = (directory.join("data"), directory.join("c.toml"));
    for lost in [&["runs", "archive", "finals"][..], &["runs"]] {
        for directory in lost {
            fs::remove_dir_all(data.join(directory)).expect("removed");
        }
        tallyring_ok(&["recount", "--data", text(&data), "--config", text(&config)]);
        tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
        let server = start_closed(directory, "");
        check(&server, &restored, "after a recount");
        server.client().rebuild();
        check(&server, &restored, "after a recount and a rebuild");
        assert_eq!(reconcile(&server, &order)["published"], false);
        server.terminate();
    }
    let of_fixes = files(&data, "runs");
    let mut of_fixes = of_fixes.iter().filter(|name| name.contains("fix-"));
    assert!(of_fixes.next().is_some(), "the fixes stay");
}

/// A person is erased while the day is final: no fix brings back what was done before, and the next version takes away
/// what was done since.
#[test]
fn an_erased_person_stays_erased_and_is_corrected_like_others_from_then_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let order = json!({"day": "2026-03-10"});
    let server = clicked(directory);
    reconcile(&server, &order);
    ask(server.client(), "/v1/users/erase", json!({"user": "ann"}));
    let did = |server: &Server| {
        let answer = ask(server.client(), "/v1/actions/query", query());
        ["ann", "bob"].map(|user| answer["users"][user]["7d"]["click"]["ad"]["42"].clone())
    };
    assert_eq!(did(&server), [0, 1]);
    // She comes again.
    for id in ["again", "mistaken"] {
        send(&server, &click(id, "ann", "10:30:05", "phone"));
    }
    assert_eq!(did(&server), [2, 1]);
    assert_eq!(void(&server, "mistaken", "she says so").0, 201);
    server.kill9();
    // Without the rule, the click of the robot counts again, of nobody.
    let server = start_closed(directory, "");
    let job = reconcile(&server, &order);
    let causes = json!({"restored:bots": 1, "voided": -1});
    assert_eq!(job["types"]["click"]["causes"], causes, "{job}");
    assert_eq!(did(&server), [1, 1]);
    for _ in 0..2 {
        server.client().rebuild();
        assert_eq!(did(&server), [1, 1], "after a rebuild");
    }
    server.terminate();
}
