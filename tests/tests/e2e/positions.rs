//! Positions of answers: a read with one as `after` counts what was acknowledged before it, over connections and kills.

use std::time::{Duration, Instant};

use serde_json::json;
use tallyring_tests::server::{Answer, Server, not_on_a_node};

use super::http_writes::{server, total};

/// The position that an answer tells.
fn position(answer: &Answer) -> String {
    let position = answer.header("tallyring-position");
    position.unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

#[test]
fn an_acknowledged_write_is_read_by_its_position_also_after_a_kill() {
    let (data, server) = server();
    let one = server.get("/v1/incr?key.l=abc&id=1");
    assert_eq!(one.status, 204, "{one:?}");
    let items = json!([{"keys": {"l": "abc"}, "n": 2}, {"keys": {"u": "x"}}]);
    let two = server.post("/v1/increments", items.to_string());
    assert_eq!(two.status, 200, "{two:?}");
    assert_ne!(position(&one), position(&two));
    for (after, expected) in [(&one, 3), (&two, 3)] {
        let after = position(after);
        let path = format!("/v1/l/abc/summary?after={after}&units=1");
        assert_eq!(server.get_json(&path)["total"], expected);
        let path = format!("/v1/query?after={after}");
        let query = json!({"queries": [{"namespace": "l", "key": "abc", "summary": true}]});
        let answer = server.post(&path, query.to_string());
        assert_eq!(answer.json()["answers"][0]["total"], expected, "{answer:?}");
    }
    // A duplicate is acknowledged like what it repeats.
    let again = server.get("/v1/incr?key.l=abc&id=1");
    assert_eq!(again.header("tallyring-duplicate"), Some("1"));
    let read = server.get("/v1/l/abc/counts");
    assert_eq!(position(&again), position(&read));
    server.kill9();

    let server = Server::start(data.path(), &["--clock", "2012-03-16T18:40:00Z@0"]);
    for before in [&one, &two, &again, &read] {
        let path = format!("/v1/l/abc/summary?after={}", position(before));
        assert_eq!(server.get_json(&path)["total"], 3);
    }
    assert_eq!(total(&server, "l/abc"), 3);
}

#[test]
fn a_position_that_is_none_or_of_another_server_is_refused_at_once() {
    let (_data, server) = server();
    server.get("/v1/incr?key.l=abc");
    let began = Instant::now();
    let none = ["abc", "1:2,1:3"].map(|wrong| (wrong, "such as 2:881"));
    let of_another = ["900:1", "1:900"].map(|wrong| (wrong, "the server that answered it"));
    let waits =
        not_on_a_node("it waits, as for a position that another node answered a moment ago");
    let of_another = of_another.into_iter().filter(|_| !waits);
    for (wrong, says) in none.into_iter().chain(of_another) {
        let answer = server.get(&format!("/v1/l/abc/counts?after={wrong}"));
        assert_eq!(answer.status, 400, "{answer:?}");
        let problem = answer.json();
        assert_eq!(
            (&problem["field"], &problem["value"]),
            (&json!("after"), &json!(wrong))
        );
        assert!(problem["detail"].to_string().contains(says), "{problem}");
        assert_eq!(answer.header("tallyring-position"), None);
    }
    assert!(began.elapsed() < Duration::from_secs(4));
    // A write takes no position, and says so.
    let answer = server.get("/v1/incr?key.l=abc&after=1:1");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(total(&server, "l/abc"), 1);
}
