//! Breakdowns by the minute through every stage: memory, flushed runs, a kill, midnight with its rebuild, a late event,
//! and the end of what is kept.

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring_ok};

use crate::events::{send, start};

const COUNTRIES: [&str; 3] = ["US", "JP", "DE"];

/// Two events in each minute from 22:30 to 23:29, or to 00:29.
fn events(first: usize, minutes: usize) -> Value {
    let events = (first * 2..(first + minutes) * 2).map(|number| {
        // 2026-03-16T22:30:00Z.
        let at = 1_773_700_200 + 30 * number;
        json!({"id": format!("e{number}"), "type": "click", "at": at, "entities": {"ad": "42"},
            "by": {"country": COUNTRIES[number % 3], "device": if number % 2 == 0 { "phone" } else { "desktop" }},
            "user": format!("user {}", number / 4)})
    });
    Value::Array(events.collect())
}

/// Checks the values and users of every minute of a range against its totals.
fn check(client: &Client, range: &str, total: u64) {
    let read = |what: &str| client.get_json(&format!("/v1/ad_click/42/{what}unit=minute&{range}"));
    let counts = read("counts?");
    assert_eq!(counts["total"], total, "{counts}");
    for subtotal in ["country", "device", "country*device"] {
        let by = read(&format!("by/{subtotal}?rollup=false&"));
        let rows = by["buckets"].as_array().expect("buckets").iter();
        for (row, count) in rows.zip(counts["counts"].as_array().expect("counts")) {
            let values = row["values"].as_array().expect("values").iter();
            let named = values.filter(|value| value["value"] != "-");
            let sum: u64 = named.filter_map(|value| value["count"].as_u64()).sum();
            let expected = (&count["start"], count["count"].as_u64());
            assert_eq!((&row["start"], Some(sum)), expected, "{subtotal}");
        }
        let rolled = read(&format!("by/{subtotal}?"));
        assert_eq!(rolled["total"], total, "{rolled}");
    }
    let users = read("uniques?");
    let rows = users["counts"].as_array().expect("counts").iter();
    for (row, count) in rows.zip(counts["counts"].as_array().expect("counts")) {
        // The two events of a minute are of one user.
        let expected = u64::from(count["count"] != 0);
        assert_eq!(row["estimate"], expected, "{row} {count}");
    }
}

#[test]
fn the_values_of_every_minute_sum_to_it_whatever_holds_them() {
    let data = tempfile::tempdir().expect("a directory");
    let hour = "from=2026-03-16T22:30:00Z&to=2026-03-16T23:29:59Z";
    let server = start(&data, "2026-03-16T23:30:00Z@0");
    send(&server, &events(0, 20));
    check(
        &server,
        "from=2026-03-16T22:30:00Z&to=2026-03-16T22:49:59Z",
        40,
    );
    // Memory, then a run and memory, then a replay.
    server.terminate();
    let server = start(&data, "2026-03-16T23:30:00Z@0");
    send(&server, &events(20, 40));
    check(&server, hour, 120);
    server.kill9();
    let server = start(&data, "2026-03-16T23:30:00Z@0");
    check(&server, hour, 120);
    server.terminate();
    // Midnight: the day is exported and merged, and its last hours are still broken down.
    let server = start(&data, "2026-03-17T00:10:00Z@0");
    server.rebuild();
    check(&server, hour, 120);
    let late = json!({"id": "late", "type": "click", "at": "2026-03-16T23:29:30Z", "entities": {"ad": "42"},
        "by": {"country": "US", "device": "phone"}, "user": "user 29"});
    send(&server, &late);
    send(&server, &events(60, 40));
    check(&server, hour, 121);
    check(
        &server,
        "from=2026-03-16T22:30:00Z&to=2026-03-17T00:09:59Z",
        201,
    );
    server.rebuild();
    check(&server, "units=120", 201);
    server.terminate();
    let path = data.path().to_str().expect("a path of text");
    let verified = tallyring_ok(&["verify", "--deep", "--data", path]);
    assert!(verified.contains("all good"), "{verified}");
    // The window ends at 00:00.
    let server = start(&data, "2026-03-17T03:00:00Z@0");
    check(&server, "from=2026-03-17T00:00:00Z", 20);
    let refused = server.get(&format!("/v1/ad_click/42/by/country?unit=minute&{hour}"));
    let problem = refused.json();
    assert_eq!((refused.status, &problem["field"]), (422, &json!("from")));
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("2026-03-17T00:00:00Z"), "{detail}");
}

#[test]
fn breakdowns_by_minute_can_be_switched_off() {
    let data = tempfile::tempdir().expect("a directory");
    let config = data.path().join("tallyring.toml");
    std::fs::write(&config, "[minutes]\nbreakdowns_hours = 0\n").expect("a file");
    let path = config.to_str().expect("a path of text");
    let server = Server::start(
        &data.path().join("data"),
        &["--config", path, "--clock", "2026-03-16T23:30:00Z@0"],
    );
    send(&server, &events(0, 20));
    for read in ["by/country", "uniques"] {
        let refused = server.get(&format!("/v1/ad_click/42/{read}?unit=minute&units=60"));
        let problem = refused.json();
        assert_eq!((refused.status, &problem["field"]), (422, &json!("unit")));
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("breakdowns_hours is 0"), "{detail}");
    }
    let hours = server.get_json("/v1/ad_click/42/by/country?unit=hour&units=2");
    assert_eq!(hours["total"], 40);
}
