//! Final numbers: a closed day is counted again from the log by the real program.

use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok, wait_until};

const BOTS: &str =
    "[filters.bots]\nevents = [\"click\"]\nfield = \"by.device\"\nvalues = [\"bot\"]\n";

fn click(id: &str, device: &str) -> String {
    json!({"id": id, "type": "click", "at": "2026-03-10T12:00:00Z", "entities": {"ad": "42"},
        "by": {"device": device}, "user": format!("user of {id}")})
    .to_string()
}

/// A server at a time, with rules.
fn start(directory: &Path, clock: &str, rules: &str) -> Server {
    let config = directory.join("c.toml");
    std::fs::write(&config, rules).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let clock = format!("{clock}@0");
    Server::start(
        &directory.join("data"),
        &["--clock", &clock, "--config", config],
    )
}

fn total(client: &Client) -> Value {
    client.get_json("/v1/ad_click/42/summary?to=2026-03-12T00:00:00Z")["total"].clone()
}

/// Reconciles the day and returns how it went.
fn reconcile(client: &Client, order: &Value) -> Value {
    let headers = [("content-type", "application/json")];
    let body = order.to_string();
    let answer = client.post_with("/v1/admin/reconcile", &headers, body.as_bytes());
    assert_eq!(answer.status, 202, "{}", answer.text);
    wait_until("the reconcile ends", || {
        client.get_json("/v1/admin/reconcile")["state"] != "running"
    });
    let job = client.get_json("/v1/admin/reconcile");
    assert_eq!(job["job"], answer.json()["job"]);
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(job["unexplained"]["counters"], 0, "{job}");
    job
}

#[test]
fn days_become_final_by_themselves_so_long_after_their_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let rules = format!("{BOTS}[final]\n");
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    for (id, device) in [("e1", "phone"), ("b1", "bot")] {
        assert_eq!(server.post("/v1/events", click(id, device)).status, 200);
    }
    server.terminate();
    // 71 hours after the end of the day it is not final, and then it is.
    let server = start(directory, "2026-03-13T23:00:00Z", &rules);
    server.client().rebuild();
    assert_eq!(total(server.client()), 2);
    assert_eq!(
        server.client().get_json("/v1/admin/reconcile")["job"],
        Value::Null
    );
    server.terminate();
    let server = start(directory, "2026-03-14T00:00:01Z", &rules);
    wait_until("the day is final", || total(server.client()) == 1);
    let job = server.client().get_json("/v1/admin/reconcile");
    assert_eq!(
        (&job["day"], &job["version"]),
        (&json!("2026-03-10"), &json!(1)),
        "{job}"
    );
    server.terminate();
}

#[test]
fn a_click_that_counted_twice_and_a_bot_leave_and_a_rule_that_goes_brings_the_bot_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    for (id, device) in [("e1", "phone"), ("b1", "bot")] {
        assert_eq!(server.post("/v1/events", click(id, device)).status, 200);
    }
    server.terminate();
    // 26 hours later a rule is declared, and the click is sent again.
    let server = start(directory, "2026-03-11T14:00:01Z", BOTS);
    let again = server.post("/v1/events", click("e1", "phone")).json();
    assert_eq!(again["accepted"], 1, "{again}");
    server.terminate();

    let server = start(directory, "2026-03-13T13:00:01Z", BOTS);
    let client = server.client();
    let order = json!({"day": "2026-03-10"});
    let early = json!({"day": "2026-03-13"}).to_string();
    let headers = [("content-type", "application/json")];
    let answer = client.post_with("/v1/admin/reconcile", &headers, early.as_bytes());
    assert_eq!(answer.status, 422, "{}", answer.text);
    assert!(
        answer.text.contains("2026-03-13 is not closed"),
        "{}",
        answer.text
    );
    client.rebuild();
    assert_eq!(total(client), 3);

    let dry = reconcile(client, &json!({"day": "2026-03-10", "dry_run": true}));
    assert_eq!(
        (&dry["published"], total(client)),
        (&json!(false), json!(3))
    );
    let causes = json!({"duplicate_beyond_window": -1, "filtered_by:bots": -1});
    for job in [dry, reconcile(client, &order)] {
        let click = &job["types"]["click"];
        assert_eq!(
            (&click["before"], &click["after"]),
            (&json!(3), &json!(1)),
            "{job}"
        );
        assert_eq!(
            (&click["causes"], &job["version"]),
            (&causes, &json!(1)),
            "{job}"
        );
    }
    assert_eq!(total(client), 1);
    let again = reconcile(client, &order);
    assert_eq!(again["published"], false, "nothing changed since: {again}");
    server.terminate();

    let server = start(directory, "2026-03-13T14:00:01Z", "");
    let job = reconcile(server.client(), &order);
    let click = &job["types"]["click"];
    assert_eq!(click["causes"], json!({"restored:bots": 1}), "{job}");
    assert_eq!(
        (&click["before"], &click["after"], &job["version"]),
        (&json!(1), &json!(2), &json!(2))
    );
    assert_eq!(total(server.client()), 2);
    server.client().rebuild();
    assert_eq!(total(server.client()), 2);
    server.kill9();
    let server = start(directory, "2026-03-14T14:00:01Z", BOTS);
    assert_eq!(total(server.client()), 2);
    server.terminate();
    // Without a server, and in words.
    let data = directory.join("data");
    let data = data.to_str().expect("a path of text");
    let config = directory.join("c.toml");
    let config = config.to_str().expect("a path of text");
    let told = tallyring_ok(&[
        "reconcile",
        "2026-03-10",
        "--data",
        data,
        "--config",
        config,
    ]);
    assert!(
        told.contains("filtered_by:bots") && told.contains("version 3"),
        "{told}"
    );
    let refused = tallyring(&[
        "reconcile",
        "2026-03-14",
        "--data",
        data,
        "--config",
        config,
    ]);
    assert!(
        refused.stderr.contains("2026-03-14 is not closed"),
        "{}",
        refused.stderr
    );
    tallyring_ok(&["verify", "--deep", "--data", data]);
}

/// A void is in the log, changes no count, and takes the event out of the next final version. The audit trail tells
/// all.
#[test]
fn a_voided_click_leaves_with_the_next_reconcile_and_the_audit_trail_tells_who_and_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    let bell = "bell\u{7}\u{202e}\u{9b}";
    for id in ["e1", "e2", bell] {
        assert_eq!(server.post("/v1/events", click(id, "phone")).status, 200);
    }
    let headers = [("content-type", "application/json")];
    let erased =
        server
            .client()
            .post_with("/v1/users/erase", &headers, br#"{"user":"user of e2"}"#);
    assert_eq!(erased.status, 200, "{}", erased.text);
    server.terminate();
    let server = start(directory, "2026-03-13T13:00:01Z", BOTS);
    let client = server.client();
    client.rebuild();
    let order = json!({"day": "2026-03-10"});
    assert_eq!(reconcile(client, &order)["types"]["click"]["after"], 3);

    let void = |id: &str, reason: &str| {
        let path = format!("/v1/events/{id}/void");
        let body = json!({ "reason": reason }).to_string();
        client.post_with(&path, &headers, body.as_bytes())
    };
    let answer = void("e1", "it was \u{202e}a test");
    assert_eq!(
        (answer.status, &answer.json()["voided"][0]["day"]),
        (201, &json!("2026-03-10"))
    );
    assert_eq!(void("bell%07%E2%80%AE%C2%9B", "rang").status, 201);
    assert_eq!(
        (void("e1", "again").status, void("e9", "never").status),
        (409, 404)
    );
    assert_eq!(total(client), 3, "a void changes no count");
    let job = reconcile(client, &order);
    let sums = &job["types"]["click"];
    assert_eq!(
        (&sums["causes"], &sums["after"]),
        (&json!({"voided": -2}), &json!(1)),
        "{job}"
    );
    assert_eq!((&job["version"], total(client)), (&json!(2), json!(1)));
    assert_eq!(
        client.get_json("/v1/events/e1")["voided"]["actor"],
        "installation"
    );
    assert_eq!(
        reconcile(client, &order)["published"],
        false,
        "nothing changed since"
    );

    // Beside the server, and without it.
    let data = directory.join("data");
    let data = data.to_str().expect("a path of text");
    let audit =
        |arguments: &[&str]| tallyring_ok(&[&["audit", "--data", data], arguments].concat());
    let running = audit(&[]);
    let told: Vec<&str> = running.lines().collect();
    let kinds = told
        .iter()
        .filter_map(|line| line.split_whitespace().nth(2));
    let kinds: Vec<&str> = kinds.collect();
    let all = [
        "schema", "erase", "schema", "final", "void", "void", "final",
    ];
    assert_eq!(kinds, all, "{running}");
    assert!(
        told[1].ends_with("1 user") && !running.contains("user of"),
        "{running}"
    );
    assert!(told[2].ends_with("rules +bots"), "{running}");
    assert!(
        told[3].contains("2026-03-10 version 1: click 3 = 3; rules "),
        "{running}"
    );
    let of_e1 = "2026-03-10 \"e1\" by installation: \"it was \\u{202e}a test\"";
    assert!(told[4].ends_with(of_e1), "{running}");
    assert!(
        told[6].contains("version 2: click 3 voided -2 = 1"),
        "{running}"
    );
    let is_hidden = |character: char| character.is_control() && character != '\n';
    assert!(
        !running.contains(is_hidden) && !running.contains('\u{202e}'),
        "{running:?}"
    );
    server.terminate();
    assert_eq!(audit(&[]), running);

    let days = |arguments: &[&str]| audit(arguments).lines().count();
    assert_eq!(days(&["--day", "2026-03-10"]), all.len());
    assert_eq!(
        days(&["--day", "2026-03-11"]),
        1,
        "the rules that were declared since"
    );
    assert_eq!(days(&["--to", "2026-03-10"]), 2);
    assert_eq!(days(&["--from", "2026-03-13", "--to", "2026-03-13"]), 5);
    let json = audit(&["--output", "json"]);
    assert!(
        !json.contains(is_hidden) && !json.contains('\u{202e}'),
        "{json:?}"
    );
    let changes: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert_eq!(changes.len(), all.len(), "{json}");
    assert_eq!(
        (&changes[5]["id"], &changes[5]["reason"]),
        (&json!(bell), &json!("rang"))
    );
    assert_eq!(changes[2]["rules"]["added"], json!(["bots"]), "{json}");
    assert_eq!(
        changes[6]["types"]["click"]["causes"],
        json!({"voided": -2}),
        "{json}"
    );
    let wrong = tallyring(&[
        "audit",
        "--data",
        data,
        "--from",
        "2026-03-12",
        "--to",
        "2026-03-11",
    ]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(
        wrong.stderr.contains("`--from` must not be after `--to`"),
        "{wrong:?}"
    );
    let log = tallyring_ok(&["cat", "oplog", "--day", "2026-03-10", "--data", data]);
    assert_eq!(
        log.lines()
            .filter(|line| line.contains(" void id="))
            .count(),
        2,
        "{log}"
    );
}
