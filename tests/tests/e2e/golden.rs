//! A data directory of the build before opens, answers rightly, holds under a deep look and is rebuilt.
//!
//! `golden/make_directory.sh` made it, and says what was sent; `golden/README.md` says with which build.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring, workspace};
use tempfile::TempDir;

use crate::stored::text;

/// The server that wrote the directory was killed at 21:00.
const AN_HOUR_LATER: &str = "2026-03-11T22:00:00Z";
/// The day of its last clicks is over, and is exported and merged.
const THE_NEXT_DAY: &str = "2026-03-12T12:00:00Z";

/// The answers that there must be, by a path and a place in the answer. Totals hold all that was ever counted.
fn answers() -> Vec<(&'static str, &'static str, Value)> {
    let named = |values: &[(&str, u64)]| -> Vec<Value> {
        let value = |(value, count): &(&str, u64)| json!({"value": value, "count": count});
        values.iter().map(value).collect()
    };
    vec![
        // Bulk history, the ring, a late correction, and the end of the log that no run holds.
        ("l/abc/summary?unit=year&units=-1", "/total", json!(186)),
        ("u/jehiah/summary?unit=year&units=-1", "/total", json!(35)),
        ("u/somebody/summary?unit=year&units=-1", "/total", json!(9)),
        (
            "l/a%20link%20with%20blanks%2C%20and%20commas/summary?unit=year&units=-1",
            "/total",
            json!(1),
        ),
        ("l/counts?unit=year&units=-1", "/total", json!(187)),
        ("ad_click/42/summary?unit=year&units=-1", "/total", json!(4)),
        ("q/k/summary?unit=year&units=-1", "/total", json!(13)),
        (
            "l/abc/by/c?unit=year&units=-1",
            "/values",
            json!(named(&[("JP", 106), ("US", 42), ("-", 21), ("FR", 17)])),
        ),
        (
            "l/abc/by/r?unit=year&units=-1",
            "/values",
            json!(named(&[("-", 181), ("https://news.example/a,b", 5)])),
        ),
        (
            "l/abc/by/c*v?unit=year&units=-1",
            "/values/4",
            json!({"value": "US*mobile", "parts": ["US", "mobile"], "count": 5}),
        ),
        // Hours of November were folded into days.
        (
            "l/abc/counts?unit=day&from=2025-11-03T00:00:00Z&to=2025-11-04T00:00:00Z",
            "/total",
            json!(11),
        ),
        (
            "q/k/counts?unit=minute&from=2026-03-10T10:20:00Z&to=2026-03-10T10:21:00Z",
            "/counts/0/count",
            json!(4),
        ),
        ("l/abc/uniques?unit=year&units=-1", "/estimate", json!(5)),
        ("ratios/ctr/ad/42?unit=year&units=-1", "/ratio", json!(2.0)),
        ("events/a1", "/verdict", json!("counted")),
        ("events/e2", "/filtered/rule", json!("bots")),
        ("events/e4", "/verdict", json!("corrected")),
        ("events/b4", "/refused/field", json!("keys.nope")),
        ("events/late1", "/counted/late", json!(true)),
        ("events/b3", "/counted/position", json!("4:31")),
    ]
}

fn check_answers(client: &Client) {
    for (path, place, expected) in answers() {
        let answer = client.get_json(&format!("/v1/{path}"));
        assert_eq!(answer.pointer(place), Some(&expected), "{path}: {answer:#}");
    }
}

/// The server knows what it was sent before: by the id, by the number, by the key of the batch.
fn check_retries(client: &Client) {
    let post = |body: &Value| client.post("/v1/increments", body.to_string());
    let item = |id: &str| json!({"at": "2026-03-10T09:10:00Z", "keys": {"l": "abc"}, "id": id});
    // One id of each: archived, flushed, in no run.
    let again = post(&json!([item("a1"), item("late1"), item("b2"), item("b3")]));
    assert_eq!(
        again.json(),
        json!({"accepted": 0, "duplicates": 4, "late": 0})
    );
    let numbered = |sequence: u64| {
        let at = "2026-03-11T20:31:00Z";
        post(
            &json!({"at": at, "n": 3, "keys": {"q": "k"}, "producer": "p1", "epoch": 1, "sequence": sequence}),
        )
    };
    assert_eq!(numbered(3).json()["duplicates"], 1);
    assert_eq!(numbered(5).status, 409);
    let batch = r#"[
  {"at":"2026-03-11T20:30:00Z","n":17,"keys":{"l":"abc","u":"jehiah"},"by":{"c":"FR"},"id":"b3","user":"u7"},
  {"at":"2026-03-11T20:30:00Z","keys":{"nope":"x"},"id":"b4"}]"#;
    let path = "/v1/increments?on_error=skip";
    let headers = [
        ("idempotency-key", "batch-1"),
        ("content-type", "application/json"),
    ];
    let retried = client.post_with(path, &headers, batch.as_bytes()).json();
    assert_eq!(
        (&retried["accepted"], &retried["rejected"][0]["index"]),
        (&json!(1), &json!(1))
    );
}

fn unpacked(directory: &TempDir) -> PathBuf {
    let archive = workspace().join("tests/golden/directory-1.tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["-xzf", text(&archive), "-C"])
        .arg(directory.path());
    let status = tar.status().expect("run tar");
    assert!(status.success(), "{status}");
    directory.path().join("data")
}

fn check_deeply(data: &Path) {
    let verified = tallyring(&["verify", "--deep", "--data", text(data)]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stdout.ends_with("all good\n"), "{verified:?}");
}

#[test]
fn a_data_directory_of_the_build_before_opens_answers_and_is_rebuilt() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = unpacked(&directory);
    check_deeply(&data);
    let config = workspace().join("tests/golden/directory.toml");
    let serve = |clock| Server::start(&data, &["--clock", clock, "--config", text(&config)]);
    let server = serve(AN_HOUR_LATER);
    check_answers(&server);
    check_retries(&server);
    check_answers(&server);
    let of_generation = |generation: u64| {
        let path = format!("/v1/l/abc/summary?unit=year&units=-1&as_of={generation}");
        server.get_json(&path)["total"].clone()
    };
    assert_eq!([1, 2, 3].map(of_generation), [7, 45, 145].map(Value::from));
    server.terminate();

    let server = serve(THE_NEXT_DAY);
    server.wait_for_status("the last day is archived", |status| {
        status["generation"] == 4
    });
    check_answers(&server);
    check_retries(&server);
    server.terminate();
    check_deeply(&data);
}
