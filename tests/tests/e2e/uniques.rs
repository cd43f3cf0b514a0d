//! Unique users through every stage: memory, flushed runs, export, a merge of months, and a rollback.

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring_ok};

/// 2026-03-16T10:00:00Z.
const TEN: i64 = 1_773_655_200;
const USERS: i64 = 3_000;

/// Impressions of one ad: user `n` at minute `n` of some hours, each twice.
fn send(client: &Client, first: i64, users: std::ops::Range<i64>) {
    let events: Vec<Value> = users
        .flat_map(|user| [0, 1].map(|again| (user, again)))
        .map(|(user, again)| {
            json!({"id": format!("{first}-{user}-{again}"), "type": "impression", "at": first + user,
                "entities": {"ad": "42"}, "user": format!("user-{user}")})
        })
        .collect();
    let answer = client.post("/v1/events", Value::Array(events).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn estimates(answer: &Value) -> Vec<i64> {
    let counts = answer["counts"].as_array().expect("counts");
    let estimate = |count: &Value| count["estimate"].as_i64().expect("an estimate");
    counts.iter().map(estimate).collect()
}

fn assert_near(found: i64, expected: i64) {
    let error = (found - expected).abs() as f64 / expected as f64;
    assert!(error < 0.05, "{found}, expected about {expected}");
}

/// Two thousand hours, of which some are united at a time: those of the day before, and the two of `before`.
fn check_long(client: &Client, before: &[i64]) {
    let path = "/v1/ad_impression/42/uniques?unit=hour&units=2000&to=2026-03-16T12:00:00Z";
    let answer = client.get_json(path);
    let found = estimates(&answer);
    assert_eq!(found[1_997..], [before[0], before[1], 0]);
    assert_near(found.iter().sum::<i64>() - before[0] - before[1], 500);
    assert_near(answer["estimate"].as_i64().expect("an estimate"), USERS);
}

#[test]
fn users_are_united_over_hours_and_days_whatever_holds_them() {
    let data = tempfile::tempdir().expect("a directory");
    let path = data.path().to_str().expect("a path of text");
    let start = |clock: &str| Server::start(data.path(), &["--clock", clock]);
    let hours =
        "/v1/ad_impression/42/uniques?unit=hour&from=2026-03-16T10:00:00Z&to=2026-03-16T11:59:59Z";
    let days =
        "/v1/ad_impression/42/uniques?unit=day&from=2026-03-15T00:00:00Z&to=2026-03-17T00:00:00Z";
    let check_hours = |server: &Server| {
        let answer = server.get_json(hours);
        assert_eq!(answer["relative_error"], 0.01625, "{answer}");
        let found = estimates(&answer);
        assert_near(found[0], USERS);
        assert_near(found[1], 200);
        assert_near(answer["estimate"].as_i64().expect("an estimate"), USERS);
        found
    };
    let server = start("2026-03-16T12:00:00Z@0");
    send(&server, TEN, 0..USERS);
    send(&server, TEN + 3_600, 0..100);
    // Memory, then a run and memory, then two runs: the same users.
    server.terminate();
    let server = start("2026-03-16T12:00:00Z@0");
    send(&server, TEN + 3_600, 50..200);
    let before = check_hours(&server);
    assert_eq!(before[1], 200, "few users are counted nearly exactly");
    server.kill9();
    let server = start("2026-03-16T12:00:00Z@0");
    assert_eq!(check_hours(&server), before);
    server.terminate();
    let server = start("2026-03-18T00:10:00Z@0");
    server.rebuild();
    assert_eq!(check_hours(&server), before);
    // A late day joins the month: two source runs are merged into one file.
    send(&server, TEN - 86_400, 0..500);
    let generation = server.rebuild();
    assert_eq!(check_hours(&server), before);
    let answer = server.get_json(days);
    let found = estimates(&answer);
    assert_near(found[0], 500);
    assert_near(found[1], USERS);
    assert_eq!(found[2], 0);
    assert_near(answer["estimate"].as_i64().expect("an estimate"), USERS);
    let back = format!("/v1/admin/generations/{}/activate", generation - 1);
    assert_eq!(server.post(&back, "").status, 200);
    assert_eq!(server.get_json(days), {
        let mut expected = answer.clone();
        expected["generation"] = json!(generation - 1);
        expected
    });
    check_long(&server, &before);
    let csv = server.get(&hours.replace("uniques", "uniques.csv")).text;
    assert!(
        csv.starts_with("start,estimate\n2026-03-16T10:00:00+00:00,"),
        "{csv}"
    );
    assert!(
        server
            .get(&hours.replace("uniques", "uniques.svg"))
            .text
            .contains("<svg")
    );
    server.terminate();
    let verified = tallyring_ok(&["verify", "--deep", "--data", path]);
    assert!(verified.contains("all good"), "{verified}");
}

#[test]
fn a_namespace_without_users_says_so() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &[]);
    let answer = server.get("/v1/l/abc/uniques");
    assert_eq!(
        (answer.status, &answer.json()["field"]),
        (404, &json!("namespace"))
    );
    let nobody = server.get_json("/v1/ad_click/never/uniques?unit=month&units=-1");
    assert_eq!(
        (&nobody["estimate"], estimates(&nobody)),
        (&json!(0), vec![0])
    );
}
