//! Reconciles that cannot be: each says why, and the day stays as it was.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, wait_until};

use crate::final_numbers::{click, reconcile, start, total};
use crate::stored::files;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const ORDER: &[u8] = br#"{"day": "2026-03-10"}"#;

/// Reconciles the day, which fails; returns why.
pub(crate) fn fail(client: &Client) -> String {
    let answer = client.post_with("/v1/admin/reconcile", &JSON, ORDER);
    assert_eq!(answer.status, 202, "{}", answer.text);
    wait_until("the reconcile ends", || {
        client.get_json("/v1/admin/reconcile")["state"] != "running"
    });
    let job = client.get_json("/v1/admin/reconcile");
    assert_eq!(
        (&job["state"], job["job"] == answer.json()["job"]),
        (&json!("failed"), true)
    );
    job["error"].as_str().expect("an error").to_owned()
}

/// Nothing is final.
pub(crate) fn check_nothing_is_final(client: &Client) {
    let day = "from=2026-03-10T00:00:00Z&to=2026-03-10T23:59:59Z";
    let told = client.get_json(&format!("/v1/ad_click/42/summary?{day}"));
    assert_eq!(
        (&told["state"], &told["final_until"]),
        (&json!("provisional"), &Value::Null)
    );
    let refused = client.get(&format!("/v1/ad_click/42/summary?{day}&basis=final"));
    assert_eq!(refused.status, 422, "{}", refused.text);
}

/// Sends two clicks on the day.
fn send_two(directory: &Path) {
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    for id in ["e1", "e2"] {
        assert_eq!(server.post("/v1/events", click(id, "phone")).status, 200);
    }
    server.terminate();
}

/// Flips a bit of a byte of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("read a file");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("write a file");
}

#[test]
fn a_damaged_segment_leaves_the_day_as_it_was_and_is_named_with_its_place() {
    const IN_A_FRAME: usize = 120;
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    send_two(directory);
    let server = start(directory, "2026-03-13T13:00:01Z", "");
    server.client().rebuild();
    let data = directory.join("data");
    let segment = files(&data, "oplog").remove(0);
    flip(&data.join(&segment), IN_A_FRAME);
    let why = fail(&server);
    assert!(
        why.contains(&format!("{segment}: damaged at byte 64, from record 0 on")),
        "{why}"
    );
    check_nothing_is_final(&server);
    assert_eq!(total(&server), 2);
    assert_eq!(files(&data, "incoming"), [""; 0], "nothing is left behind");
    flip(&data.join(&segment), IN_A_FRAME);
    let job = reconcile(server.client(), &json!({"day": "2026-03-10"}));
    assert_eq!(
        (&job["version"], &job["published"]),
        (&json!(1), &json!(true))
    );
}

#[test]
fn a_clock_that_was_set_back_over_midnight_reopens_a_final_day_until_its_next_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    send_two(directory);
    let order = json!({"day": "2026-03-10"});
    let server = start(directory, "2026-03-13T00:30:00Z", "");
    server.client().rebuild();
    assert_eq!(reconcile(server.client(), &order)["version"], 1);
    server.terminate();
    let server = start(directory, "2026-03-10T23:50:00Z", "");
    assert_eq!(
        server.post("/v1/events", click("e3", "phone")).json()["accepted"],
        1
    );
    let refused = server
        .client()
        .post_with("/v1/admin/reconcile", &JSON, ORDER);
    assert_eq!(refused.status, 422, "{}", refused.text);
    let says = "2026-03-10 is not closed: it takes late events until the first rebuild on 2026-03-12 (UTC) or later";
    assert!(refused.text.contains(says), "{}", refused.text);
    let path = "/v1/ad_click/42/summary?from=2026-03-10T00:00:00Z&to=2026-03-10T23:59:59Z";
    let told = server.get_json(&format!("{path}&basis=final"));
    assert_eq!(told["total"], 2, "a version never changes");
    server.kill9();
    let server = start(directory, "2026-03-13T13:00:00Z", "");
    server.client().rebuild();
    let job = reconcile(server.client(), &order);
    assert_eq!(
        (&job["version"], &job["types"]["click"]["after"]),
        (&json!(2), &json!(3))
    );
    for (basis, expected) in [("", 3), ("&basis=final", 3), ("&final=1", 2)] {
        let told = server.get_json(&format!("{path}{basis}"));
        assert_eq!(told["total"], expected, "{basis}");
    }
}
