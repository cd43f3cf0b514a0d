//! Starts of the program under a clock that is far from what the log says.

use serde_json::Value;
use tallyring_tests::server::{Server, tallyring, tallyring_ok};
use tempfile::TempDir;

const CLOCK: &str = "2012-03-16T18:40:00Z@0";

#[test]
fn a_start_days_after_the_log_waits_for_the_clock_or_for_a_word() {
    let directory = TempDir::new().expect("a directory");
    let data = directory.path().to_str().expect("a path of text");
    let click = |server: &Server, id: &str| {
        let at = "2012-03-16T18:40:00Z";
        let query = format!("/v1/incr?key.l=a&id={id}&at={at}");
        assert_eq!(server.client().post(&query, "").status, 204);
    };
    let server = Server::start(directory.path(), &["--clock", CLOCK]);
    click(&server, "one");
    server.terminate();

    // The machine's clock is years later: right or not, it has to show it.
    let server = Server::start(directory.path(), &[]);
    let status = server.client().status();
    assert_eq!(status["clock_jumped"], true, "{status}");
    assert_eq!(status["state"], "degraded");
    let reasons = status["reasons"].to_string();
    assert!(reasons.contains("2012-03-16T18:40:00Z"), "{reasons}");
    assert_eq!(status["clock_plausible_at"], "2012-03-16T18:40:00Z");
    assert_eq!(status["ring"]["today"], "2012-03-16");
    click(&server, "one");
    let summary = server
        .client()
        .get_json("/v1/l/a/summary?to=2012-03-17T00:00:00Z");
    assert_eq!(summary["total"], 1, "{summary}");
    let shown = tallyring_ok(&["status", "--data", data]);
    assert!(shown.contains("serve --trust-clock"), "{shown}");
    let metrics = server.client().get("/metrics").text;
    assert!(metrics.contains("\ntallyring_clock_jumped 1"), "{metrics}");
    server.terminate();

    let alone = tallyring(&["rebuild", "--data", data]);
    assert!(alone.stderr.contains("--trust-clock"), "{}", alone.stderr);

    let server = Server::start(directory.path(), &["--trust-clock"]);
    let status = server.client().status();
    assert_eq!(status["clock_jumped"], false, "{status}");
    assert_eq!(status["clock_plausible_at"], Value::Null);
    let now = status["now"].as_str().expect("a time");
    assert_eq!(status["ring"]["today"].as_str(), Some(&now[..10]));
    server.terminate();

    // It was wrong after all: the ring turns back.
    let server = Server::start(directory.path(), &["--clock", CLOCK]);
    let status = server.client().status();
    assert_eq!(status["ring"]["today"], "2012-03-16", "{status}");
    assert_eq!(status["ring"]["days_ahead"], 0);
    server.terminate();
}
