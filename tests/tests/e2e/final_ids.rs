//! Ids that come again on another day, long after: they are known for as long as the log and its journal, and longer
//! where the configuration wants that.

use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, tallyring_ok, wait_until};

use crate::final_numbers::{reconcile, start};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const JOURNAL: &str = "[journal]\nkeep_days = 60\n";

fn click(id: &str, at: &str) -> String {
    json!({"id": id, "type": "click", "at": at, "entities": {"ad": "42"}, "user": "u1"}).to_string()
}

/// Posts an order that is refused with this status. Returns the detail.
fn refused(client: &Client, order: &Value, status: u16) -> String {
    let order = order.to_string();
    let answer = client.post_with("/v1/admin/reconcile", &JSON, order.as_bytes());
    assert_eq!(answer.status, status, "{}", answer.text);
    let detail = answer.json()["detail"].clone();
    detail.as_str().expect("a text").to_owned()
}

/// The click comes on 2 and on 6 March, and another one on each day until the 17th.
fn send_twice(directory: &Path) {
    // A server doubts a clock that jumps over days.
    for day in 2..18 {
        let at = format!("2026-03-{day:02}T12:00:0");
        let server = start(directory, &format!("{at}1Z"), JOURNAL);
        let of_day = format!("d{day}");
        for id in [&*of_day, "e1"] {
            if id != "e1" || [2, 6].contains(&day) {
                let answer = server.post("/v1/events", click(id, &format!("{at}0Z")));
                assert_eq!(answer.json()["accepted"], 1, "{}", answer.text);
            }
        }
        server.client().rebuild();
        server.terminate();
    }
}

#[test]
fn an_id_that_comes_again_is_found_in_the_journal_and_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    send_twice(directory);
    let server = start(directory, "2026-03-18T12:00:01Z", JOURNAL);
    let client = server.client();
    client.rebuild();
    let since = "2026-03-02T12:00:01Z";
    let job = reconcile(client, &json!({"day": "2026-03-06"}));
    let causes = &job["types"]["click"]["causes"];
    assert_eq!(
        (causes, &job["ids_from"]),
        (&json!({"duplicate_other_day": -1}), &json!(since))
    );
    let versions = client.get_json("/v1/finals/2026-03-06");
    assert_eq!(versions["versions"][0]["ids_from"], since, "{versions}");
    let told = client.get_json("/v1/events/e1");
    assert_eq!(
        (&told["counted"]["at"], &told["earlier"][0]["counted"]["at"]),
        (
            &json!("2026-03-06T12:00:00Z"),
            &json!("2026-03-02T12:00:00Z")
        ),
        "{told}"
    );
    let reason = br#"{"reason": "it was a test"}"#;
    let voided = client.post_with("/v1/events/e1/void", &JSON, reason).json();
    let days = ["2026-03-02", "2026-03-06"].map(|day| json!(day));
    let voided = [0, 1].map(|at| voided["voided"][at]["day"].clone());
    assert_eq!(voided, days);
    let unseen = client.get("/v1/events/e2");
    // Runs tell the minute.
    let says = "`id` was not seen since 2026-03-02T12:00:00Z";
    assert!(
        unseen.status == 404 && unseen.text.contains(says),
        "{}",
        unseen.text
    );
    server.terminate();

    let data = directory.join("data");
    let data = data.to_str().expect("a path of text");
    let told = tallyring_ok(&["reconcile", "2026-03-02", "--data", data]);
    assert!(
        told.contains(&format!("ids that came since {since} were known")),
        "{told}"
    );

    leave_the_log(directory);
}

/// Without a journal these days leave the log.
fn leave_the_log(directory: &Path) {
    let server = start(
        directory,
        "2026-03-18T13:00:01Z",
        "[final]\nids_days = 60\n",
    );
    let client = server.client();
    client.rebuild();
    let mut left = client.get("/v1/events/e1");
    wait_until("the records leave the log", || {
        left = client.get("/v1/events/e1");
        left.status == 404
    });
    let says = "`id` was counted or filtered when it came on 2026-03-06T12:00:00Z, and its record has left the log, \
                which begins on 2026-03-";
    assert!(left.text.contains(says), "{}", left.text);
    let reason = br#"{"reason": "it was a test"}"#;
    let unvoided = client.post_with("/v1/events/e1/void", &JSON, reason);
    assert!(
        unvoided.status == 404 && unvoided.text.contains(says),
        "{}",
        unvoided.text
    );
}

#[test]
fn an_order_that_cannot_be_carried_out_is_refused_at_once_and_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), "2026-03-10T12:00:01Z", "");
    let client = server.client();
    let sent = server.post("/v1/events", click("e1", "2026-03-06T12:00:00Z"));
    assert_eq!(sent.json()["accepted"], 1, "{}", sent.text);
    let detail = refused(client, &json!({"day": "2020-03-10"}), 409);
    let says = "the store began on 2026-03-10, and has no event of 2020-03-10";
    assert!(detail.contains(says), "{detail}");
    assert_eq!(client.get_json("/v1/admin/reconcile")["job"], Value::Null);
    let job = reconcile(client, &json!({"day": "2026-03-06"}));
    assert_eq!(job["types"]["click"]["after"], 1, "somebody sent one of it");
    for (day, rebuild) in [("2026-03-10", "2026-03-12"), ("2026-03-20", "2026-03-22")] {
        let detail = refused(client, &json!({ "day": day }), 422);
        let says =
            format!("until the first rebuild on {rebuild} (UTC) or later; reconcile it after that");
        assert!(detail.contains(&says), "{detail}");
    }
    let detail = refused(client, &json!({"day": "x".repeat(10_000)}), 400);
    assert!(detail.len() < 1_024, "{detail}");
    let says = "is not a day; write a day as 2012-03-16, from 2000-01-01 on";
    assert!(
        detail.contains("found: `xxx") && detail.contains(says),
        "{detail}"
    );
}
