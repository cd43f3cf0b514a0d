//! Final numbers: a closed day is counted again from the log by the real program.

use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok, wait_until};

pub(crate) const BOTS: &str =
    "[filters.bots]\nevents = [\"click\"]\nfield = \"by.device\"\nvalues = [\"bot\"]\n";

pub(crate) fn click(id: &str, device: &str) -> String {
    json!({"id": id, "type": "click", "at": "2026-03-10T12:00:00Z", "entities": {"ad": "42"},
        "by": {"device": device}, "user": format!("user of {id}")})
    .to_string()
}

/// A server at a time, with rules.
pub(crate) fn start(directory: &Path, clock: &str, rules: &str) -> Server {
    let config = directory.join("c.toml");
    std::fs::write(&config, rules).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let clock = format!("{clock}@0");
    Server::start(
        &directory.join("data"),
        &["--clock", &clock, "--config", config],
    )
}

pub(crate) fn total(client: &Client) -> Value {
    client.get_json("/v1/ad_click/42/summary?to=2026-03-12T00:00:00Z")["total"].clone()
}

/// The distinct users of the day that are served.
fn users(client: &Client) -> Value {
    let range = "from=2026-03-10T00:00:00Z&to=2026-03-10T23:59:59Z";
    let path = format!("/v1/ad_click/42/uniques?unit=day&{range}");
    client.get_json(&path)["estimate"].clone()
}

/// Reconciles the day and returns how it went.
pub(crate) fn reconcile(client: &Client, order: &Value) -> Value {
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
    // A delete of the day waits for the next time at which days become final.
    let day = "2026-03-10";
    let order = json!({
        "namespace": "ad_click", "key": "42", "from": day, "to": day, "reason": "a test"
    });
    let (headers, body) = ([("content-type", "application/json")], order.to_string());
    let client = server.client();
    let ordered = client.post_with("/v1/admin/deletes", &headers, body.as_bytes());
    assert_eq!(ordered.status, 201, "{}", ordered.text);
    let waits = |server: &Server| {
        let listed = server.client().get_json("/v1/admin/deletes");
        (
            listed["deletes"][0]["waiting"].clone(),
            total(server.client()),
        )
    };
    assert_eq!(waits(&server), (json!(true), json!(1)));
    server.terminate();
    let server = start(directory, "2026-03-15T00:00:01Z", &rules);
    wait_until("the delete is obeyed", || {
        waits(&server) == (json!(false), json!(0))
    });
    server.terminate();
}

/// A click and a click of a bot; 26 hours later a rule is declared, and the click is sent again.
fn send_and_send_again(directory: &Path) {
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    for (id, device) in [("e1", "phone"), ("b1", "bot")] {
        assert_eq!(server.post("/v1/events", click(id, device)).status, 200);
    }
    server.terminate();
    let server = start(directory, "2026-03-11T14:00:01Z", BOTS);
    let again = server.post("/v1/events", click("e1", "phone")).json();
    assert_eq!(again["accepted"], 1, "{again}");
    server.terminate();
}

/// Reconciles by the command, without a server and in words.
fn reconcile_without_a_server(directory: &Path) {
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
    // A server and a command without one have one name for who orders.
    let audit = || tallyring_ok(&["audit", "--data", data]);
    assert_eq!(audit().matches(" by installation: ").count(), 3);
    tallyring_ok(&["key", "new", "--data", data, "--scope", "admin"]);
    std::fs::write(config, "").expect("write the configuration");
    let order = [
        "reconcile",
        "2026-03-10",
        "--data",
        data,
        "--config",
        config,
    ];
    tallyring_ok(&order);
    assert!(audit().contains(" version 4 by local: "), "{}", audit());
    tallyring_ok(&["verify", "--deep", "--data", data]);
}

#[test]
fn a_click_that_counted_twice_and_a_bot_leave_and_a_rule_that_goes_brings_the_bot_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    send_and_send_again(directory);
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
    assert_eq!((total(client), users(client)), (json!(3), json!(2)));

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
    assert_eq!((total(client), users(client)), (json!(1), json!(1)));
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
    let found = (total(server.client()), users(server.client()));
    assert_eq!(found, (json!(2), json!(2)));
    check_what_the_reconciles_found(server.client());
    server.kill9();
    let server = start(directory, "2026-03-14T14:00:01Z", BOTS);
    assert_eq!(total(server.client()), 2);
    server.terminate();
    reconcile_without_a_server(directory);
}

fn check_what_the_reconciles_found(client: &Client) {
    let mut found = client.get_json("/v1/admin/reconciles/2026-03-10");
    let of_first = &found["versions"][0]["upto"];
    assert!(
        of_first.as_str().expect("a text").starts_with("3:"),
        "{of_first}"
    );
    for version in found["versions"].as_array_mut().expect("a list") {
        let version = version.as_object_mut().expect("an object");
        version.retain(|name, _| !["at", "upto"].contains(&name.as_str()));
    }
    let causes = json!({"duplicate_beyond_window": -1, "filtered_by:bots": -1});
    let expected = json!({"day": "2026-03-10", "versions": [
        {"version": 1, "live": 3, "final": 1, "causes": causes, "unexplained": 0},
        {"version": 2, "live": 1, "final": 2, "causes": {"restored:bots": 1}, "unexplained": 0},
    ]});
    assert_eq!(found, expected);
    let days = client.get_json("/v1/admin/reconciles");
    assert_eq!(days, json!({"days": [{"day": "2026-03-10", "version": 2}]}));
    let none = client.get("/v1/admin/reconciles/2026-03-11");
    assert_eq!(none.status, 404, "{}", none.text);
}

#[test]
fn few_repeated_events_are_no_fault_and_many_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let send = |server: &Server, ids: std::ops::Range<u32>| {
        let events: Vec<String> = ids.map(|id| click(&format!("e{id}"), "phone")).collect();
        let answer = server.post("/v1/events", format!("[{}]", events.join(",")));
        assert_eq!(answer.json()["duplicates"], 0, "{}", answer.text);
    };
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    send(&server, 0..2_000);
    server.terminate();
    let mut repeated = 1;
    for (sent_at, judged_at, causes, state) in [
        ("2026-03-11T14:00:01Z", "2026-03-12T01:00:01Z", 1, "ok"),
        (
            "2026-03-13T17:00:01Z",
            "2026-03-13T18:00:01Z",
            4,
            "degraded",
        ),
    ] {
        let server = start(directory, sent_at, "");
        // Ids of before are forgotten once files hold them.
        server.client().rebuild();
        send(&server, repeated..repeated + causes);
        repeated += causes;
        server.terminate();
        let server = start(directory, judged_at, "");
        server.client().rebuild();
        let data = directory.join("data").display().to_string();
        let order = ["reconcile", "2026-03-10", "--dry-run", "--data", &data];
        let dry = tallyring(&[&order[..], &["--fail-above", "0.001"]].concat());
        assert_eq!(dry.code, i32::from(state == "degraded"), "{dry:?}");
        assert_eq!(server.client().status()["state"], "ok", "it only tells");
        let job = reconcile(server.client(), &json!({"day": "2026-03-10"}));
        let found = &job["types"]["click"];
        assert_eq!(
            found["causes"],
            json!({"duplicate_beyond_window": -i64::from(causes)}),
            "{job}"
        );
        assert_eq!(total(server.client()), 2_000);
        let status = server.client().status();
        assert_eq!(status["state"], state, "{status}");
        let told = &server.client().get_json("/v1/finals/2026-03-10")["versions"];
        let repeated = told
            .as_array()
            .and_then(|all| all.last().map(|of| &of["repeated"]));
        let keys = u32::from(causes == 4);
        assert_eq!(repeated.map(|of| &of["keys"]), Some(&json!(keys)), "{told}");
        server.terminate();
        // Neither a restart nor a dry run of a day without differences ends what the newest version says.
        let server = start(directory, judged_at, "");
        let dry = json!({"day": "2026-03-10", "dry_run": true});
        reconcile(server.client(), &dry);
        let status = server.client().status();
        assert_eq!(status["state"], state, "{status}");
        let metrics = server.get("/metrics").text;
        let ratio = "tallyring_reconcile_difference_ratio{type=\"click\",class=\"pipeline\"} 0.00";
        assert!(metrics.contains(ratio), "{metrics}");
        // 2026-03-11T00:00:00Z
        assert!(
            metrics.contains("tallyring_final_until_seconds 1773187200\n"),
            "{metrics}"
        );
        server.terminate();
    }
    check_it_ends_after_a_week(directory);
}

/// Neither a version of another day ends it, nor a restart: a week does.
fn check_it_ends_after_a_week(directory: &Path) {
    for (at, state) in [
        ("2026-03-14T18:00:01Z", "degraded"),
        ("2026-03-20T17:00:01Z", "degraded"),
        ("2026-03-20T19:00:01Z", "ok"),
    ] {
        let server = start(directory, at, "");
        server.client().rebuild();
        reconcile(server.client(), &json!({"day": "2026-03-11"}));
        let status = server.client().status();
        assert_eq!(status["state"], state, "{at}: {status}");
        let metrics = server.get("/metrics").text;
        let ratio = "tallyring_reconcile_difference_ratio{type=\"click\",class=\"pipeline\"} 0\n";
        assert!(metrics.contains(ratio), "{metrics}");
        server.terminate();
    }
}
