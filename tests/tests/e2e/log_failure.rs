//! The log of a running server fails: waiting clicks are refused, the process ends with the exit code that tells a
//! supervisor to start it again, and the next start reads back every acknowledged click.

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server};

/// It stands, so that nothing is written for idleness and only what a client sends meets the failure.
const CLOCK: &str = "2012-03-16T12:00:00Z@0";
/// Far above what else the server writes: its messages, its catalog.
const FILE_BYTES_MAX: u64 = 2 << 20;
/// The log's end is behind that limit after so many increments with keys so long.
const BATCHES: u64 = 3;
const ITEMS: u64 = 500;
const KEY_BYTES: usize = 2_000;

fn total(client: &Client, key: &str) -> Value {
    let path = format!("/v1/u/{key}/summary?unit=year&units=-1");
    client.get_json(&path)["total"].clone()
}

#[test]
fn a_server_whose_log_fails_refuses_ends_with_70_and_counts_a_retry_once_after_a_restart() {
    let data = tempfile::tempdir().expect("a directory");
    let arguments = ["--clock", CLOCK];
    let mut server = Server::start_for_limits(data.path(), &arguments);
    let key = "x".repeat(KEY_BYTES);
    let items: Vec<Value> = (0..ITEMS)
        .map(|_| json!({"keys": {"l": key, "u": "all"}}))
        .collect();
    for _ in 0..BATCHES {
        let answer = server.post("/v1/increments", json!(items).to_string());
        assert_eq!(answer.json()["accepted"], ITEMS, "{answer:?}");
    }

    server.limit_files(FILE_BYTES_MAX);
    let click = "/v1/incr?key.u=retried&id=retried";
    let refused = server.post(click, "");
    assert_eq!(refused.status, 503, "{refused:?}");
    let status = server.wait();
    assert_eq!(status.code(), Some(70), "{status}");
    let messages = server.messages();
    assert!(messages.contains("the oplog failed"), "{messages}");

    let server = Server::start(data.path(), &arguments);
    assert_eq!(total(&server, "all"), BATCHES * ITEMS);
    for duplicate in [None, Some("1")] {
        let answer = server.post(click, "");
        let told = answer.header("tallyring-duplicate");
        assert_eq!((answer.status, told), (204, duplicate), "{answer:?}");
    }
    assert_eq!(total(&server, "retried"), 1);
    assert_eq!(total(&server, "all"), BATCHES * ITEMS);
}
