//! Minutes make every view of totals exact in half-hour zones. Expired minutes are refused by name, never answered as
//! zeros; their hours stay.

use serde_json::{Value, json};
use tallyring_tests::server::Server;

use crate::events::{counts, send, start};

#[test]
fn expired_minutes_are_refused_and_their_hours_stay() {
    let data = tempfile::tempdir().expect("a directory");
    let start = |clock: &str| Server::start(data.path(), &["--clock", clock]);
    let send = |server: &Server, id: &str, at: &str| {
        let event = json!({"id": id, "type": "click", "at": at, "entities": {"ad": "42"}});
        assert_eq!(server.post("/v1/events", event.to_string()).status, 200);
    };
    let server = start("2026-03-16T13:00:03Z@0");
    for (id, at) in [("a", "12:58:59"), ("b", "12:59:00"), ("c", "12:59:59")] {
        send(&server, id, &format!("2026-03-16T{at}Z"));
    }
    server.terminate();
    let range = "from=2026-03-16T12:58:00Z&to=2026-03-16T12:59:59Z";
    let minutes = format!("/v1/ad_click/42/counts?unit=minute&{range}");
    let hours = format!("/v1/ad_click/42/counts?unit=hour&{range}");
    let server = start("2026-03-18T00:10:00Z@0");
    let generation = server.rebuild();
    let counted = server.get_json(&minutes)["counts"].clone();
    assert_eq!(
        (&counted[0]["count"], &counted[1]["count"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        server.get_json("/v1/admin/status")["archive"]["minutes_from"],
        "2026-02-01T00:00:00Z"
    );
    server.terminate();
    let server = start("2026-05-01T00:10:00Z@0");
    send(&server, "d", "2026-05-01T00:09:00Z");
    server.rebuild();
    let ratio = format!("/v1/ratios/ctr/ad/42?unit=minute&{range}");
    for path in [&minutes, &ratio] {
        let refused = server.get(path);
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["field"]),
            (422, &json!("from")),
            "{problem}"
        );
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(
            detail.contains("2026-04-01T00:00:00Z") && detail.contains("unit=hour"),
            "{detail}"
        );
    }
    assert_eq!(server.get_json(&hours)["total"], 3);
    let days =
        "/v1/ad_click/42/counts?unit=day&units=2&to=2026-03-16T20:00:00Z&timezone=Asia/Kolkata";
    assert_eq!(server.get_json(days)["total"], 3);
    let recent = server.get_json("/v1/ad_click/42/counts?unit=minute&units=5");
    assert_eq!(recent["total"], 1);
    let before = server.get_json(&format!("{minutes}&as_of={generation}"));
    assert_eq!(
        before["counts"], counted,
        "a kept generation is read as it was"
    );
    let metrics = server.get("/metrics").text;
    assert!(
        metrics.contains("tallyring_oldest_minute_seconds 1775001600"),
        "{metrics}"
    );
}

/// All keys together, the heaviest ones and ratios are as exact as one key; breakdowns and users are by the minute in
/// the last hours, and say later what they are not.
fn check_all_keys(server: &Server, is_recent: bool) {
    let kolkata = "timezone=Asia/Kolkata&to=2026-03-16T19:00:00Z";
    let days = format!("/v1/ad_impression/counts?unit=day&units=2&{kolkata}");
    assert_eq!(counts(server, &days), [90, 150]);
    assert_eq!(server.get_json(&days)["aligned"], true);
    let minutes = "unit=minute&from=2026-03-16T18:25:00Z&to=2026-03-16T18:34:59Z";
    assert_eq!(
        counts(server, &format!("/v1/ad_impression/counts?{minutes}")),
        [3; 10]
    );
    for (range, count) in [
        (format!("unit=day&units=1&{kolkata}"), 150),
        (minutes.to_owned(), 30),
    ] {
        let top = server.get_json(&format!("/v1/ad_impression/top?{range}"));
        assert_eq!(top["keys"], json!([{"key": "a", "count": count}]), "{top}");
        let sums = (&top["total"], &top["other"], &top["aligned"]);
        assert_eq!(sums, (&json!(count), &json!(0), &json!(true)), "{top}");
        let ratio = server.get_json(&format!("/v1/ratios/ctr/ad/a?{range}"));
        let found = (&ratio["denominator"], &ratio["aligned"]);
        assert_eq!(found, (&json!(count), &json!(true)), "{ratio}");
    }
    let by = server.get_json(&format!(
        "/v1/ad_impression/a/by/country?unit=day&units=2&{kolkata}"
    ));
    // The hour from 18:00 counts where it starts, on the day before.
    assert_eq!(
        (&by["aligned"], &by["total"]),
        (&json!(false), &json!(240)),
        "{by}"
    );
    let by = server.get_json(&format!(
        "/v1/ad_impression/a/by/country?unit=day&units=1&{kolkata}"
    ));
    assert_eq!(
        (&by["values"][0]["count"], &by["total"]),
        (&json!(60), &json!(60)),
        "{by}"
    );
    let expected = match is_recent {
        true => (200, Value::Null),
        false => (422, json!("from")),
    };
    for read in ["a/by/country", "a/uniques"] {
        let answer = server.get(&format!("/v1/ad_impression/{read}?{minutes}"));
        let found = (answer.status, answer.json()["field"].clone());
        assert_eq!(found, expected, "{read}");
    }
}

#[test]
fn minutes_sum_to_hours_before_and_after_a_rebuild_and_make_half_hour_zones_exact() {
    let data = tempfile::tempdir().expect("a directory");
    let server = start(&data, "2026-03-16T19:00:00Z@0");
    let mut events = Vec::new();
    for number in 0..240 {
        let at = 1_773_684_000 + number * 20;
        let id = format!("e{number}");
        events.push(json!({"id": id, "type": "impression", "at": at, "entities": {"ad": "a"}}));
    }
    let answer = send(&server, &Value::Array(events));
    assert_eq!(answer["accepted"], 240, "{answer}");
    let from = "from=2026-03-16T18:00:00Z&to=2026-03-16T19:19:59Z";
    let minutes = format!("/v1/ad_impression/a/counts?unit=minute&{from}");
    let hours = format!("/v1/ad_impression/a/counts?unit=hour&{from}");
    // Midnight in Kolkata is 18:30 UTC.
    let days =
        "/v1/ad_impression/a/counts?unit=day&units=2&timezone=Asia/Kolkata&to=2026-03-16T19:00:00Z";
    let check = |server: &Server, is_recent: bool| {
        assert_eq!(counts(server, &minutes), [3; 80]);
        assert_eq!(counts(server, &hours), [180, 60]);
        assert_eq!(counts(server, days), [90, 150]);
        assert_eq!(server.get_json(days)["aligned"], true);
        check_all_keys(server, is_recent);
        let all = server.get_json("/v1/ad_impression/a/counts?unit=minute&units=-1");
        assert_eq!(all["total"], 240);
        assert_eq!(all["from"], "2026-03-16T18:00:00+00:00");
    };
    check(&server, true);
    server.terminate();
    let server = start(&data, "2026-03-18T00:10:00Z@0");
    server.rebuild();
    check(&server, false);
    drop(server);
    let verified = tallyring_tests::server::tallyring_ok(&[
        "verify",
        "--deep",
        "--data",
        data.path().to_str().expect("a path of text"),
    ]);
    assert!(verified.contains("all good"), "{verified}");
}
