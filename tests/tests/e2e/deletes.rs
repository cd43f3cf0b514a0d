//! Counts of one key that people take away, and give back.

use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring};

use crate::final_numbers::start;
use crate::voids::audit;

/// A server with five clicks of a link and of a user on a day that is closed.
fn clicked(directory: &Path) -> Server {
    let server = start(directory, "2026-03-10T12:00:01Z", "");
    let click = json!({"keys": {"l": "abc", "u": "ann"}, "by": {"c": "US"}, "n": 5});
    let taken = server.post("/v1/increments", json!([click]).to_string());
    assert_eq!(taken.status, 200, "{}", taken.text);
    server.terminate();
    let server = start(directory, "2026-03-13T13:00:01Z", "");
    server.client().rebuild();
    server
}

/// The counts of the link and of the user.
fn counted(client: &Client) -> [Value; 2] {
    let range = "from=2026-03-10&to=2026-03-11&timezone=UTC&unit=day";
    ["l/abc", "u/ann"].map(|key| {
        let told = client.get_json(&format!("/v1/{key}/summary?{range}"));
        told["total"].clone()
    })
}

#[test]
fn deleted_counts_of_a_key_leave_and_come_back_by_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let server = clicked(directory);
    let data = directory.join("data");
    let data = data.to_str().expect("a path of text");
    let run = |command: &str, key: &str, reason: &[&str]| {
        let words = [command, key, "--days", "2026-03-10", "--data", data];
        tallyring(&[&words[..], reason].concat())
    };
    let told = run("delete", "l/abc", &[]).stdout;
    let is_told = told.starts_with("2026-03-10") && told.contains("nothing was ordered");
    assert!(is_told, "{told}");
    let none = run("delete", "l/other", &["--reason", "a crawler"]);
    let is_none = none.stderr.contains("nothing is counted of l/other");
    assert!(is_none, "{none:?}");
    let told = run("delete", "l/abc", &["--reason", "a \u{202e}crawler"]);
    let is_told = told.stdout.contains("version 1 of 2026-03-10 is published");
    assert!(is_told, "{told:?}");
    let gone = [json!(0), json!(5)];
    assert_eq!(counted(server.client()), gone);
    server.client().rebuild();
    assert_eq!(counted(server.client()), gone);
    server.kill9();

    let server = start(directory, "2026-03-13T14:00:01Z", "");
    assert_eq!(counted(server.client()), gone);
    let undelete = || run("undelete", "l/abc", &["--reason", "it was ann"]);
    let told = undelete();
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(counted(server.client()), [json!(5), json!(5)]);
    let trail = audit(directory, &["--day", "2026-03-10"]);
    for end in [
        "  delete    2026-03-10..2026-03-10 l \"abc\" by installation: \"a \\u{202e}crawler\"",
        "  undelete  2026-03-10..2026-03-10 l \"abc\" by installation: \"it was ann\"",
    ] {
        assert!(trail.lines().any(|line| line.ends_with(end)), "{trail}");
    }
    server.terminate();
    let without = undelete();
    let is_refused = without.stderr.contains("no server holds");
    assert!(is_refused, "{without:?}");
}
