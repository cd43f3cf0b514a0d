//! Events: counted once on every entity they name, by minute and hour, whatever their form.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server};
use tempfile::TempDir;

/// A server at 13:00:03, where time stands still.
fn server() -> (TempDir, Server) {
    let data = tempfile::tempdir().expect("a directory");
    let server = start(&data, "2026-03-16T13:00:03Z@0");
    (data, server)
}

fn start(data: &TempDir, clock: &str) -> Server {
    Server::start(data.path(), &["--clock", clock])
}

fn click(id: &str, at: &str) -> Value {
    json!({"id": id, "type": "click", "at": at, "entities": {"ad": "42", "campaign": "7"},
        "by": {"country": "US", "device": "mobile"}, "user": format!("user of {id}"), "view": "home"})
}

fn send(client: &Client, body: &Value) -> Value {
    let answer = client.post("/v1/events", body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Counts of the buckets of a read that was answered.
fn counts(client: &Client, path: &str) -> Vec<u64> {
    let answer = client.get_json(path);
    let counts = answer["counts"].as_array().expect("counts");
    let count = |count: &Value| count["count"].as_u64().expect("a count");
    counts.iter().map(count).collect()
}

#[test]
fn a_duplicate_event_counts_once_in_its_minute() {
    let (_data, server) = server();
    let at = |minute: u32| format!("2026-03-16T12:{minute}:10Z");
    for (id, minute, accepted) in [("e1", 57, 1), ("e2", 57, 1), ("e1", 57, 0), ("e3", 58, 1)] {
        let answer = send(&server, &click(id, &at(minute)));
        let expected = json!({"accepted": accepted, "duplicates": 1 - accepted, "late": 0});
        assert_eq!(answer, expected, "{id}");
    }
    let range = "unit=minute&from=2026-03-16T12:57:00Z&to=2026-03-16T12:58:59Z";
    let path = format!("/v1/ad_click/42/counts?{range}");
    assert_eq!(counts(&server, &path), [2, 1]);
    let answer = server.get_json(&path);
    assert_eq!(
        (&answer["total"], &answer["aligned"]),
        (&json!(3), &json!(true))
    );
    let starts: Vec<&Value> = answer["counts"]
        .as_array()
        .expect("counts")
        .iter()
        .collect();
    assert_eq!(starts[0]["start"], "2026-03-16T12:57:00+00:00");
}

#[test]
fn an_event_counts_in_the_minute_that_it_says_and_not_in_that_of_its_arrival() {
    let (_data, server) = server();
    let answer = send(&server, &click("e1", "2026-03-16T12:59:58Z"));
    assert_eq!(answer, json!({"accepted": 1, "duplicates": 0, "late": 0}));
    let path = "/v1/campaign_click/7/counts?unit=minute&units=2";
    assert_eq!(counts(&server, path), [1, 0]);
    let hours = "/v1/campaign_click/7/counts?unit=hour&units=2";
    assert_eq!(counts(&server, hours), [1, 0]);
}

/// All keys together, the heaviest ones and ratios are as exact as one key; breakdowns and users say what they are not.
fn check_all_keys(server: &Server) {
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
    for read in ["a/by/country", "a/uniques"] {
        let refused = server.get(&format!("/v1/ad_impression/{read}?{minutes}"));
        assert_eq!(
            (refused.status, &refused.json()["field"]),
            (422, &json!("unit")),
            "{read}"
        );
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
    let check = |server: &Server| {
        assert_eq!(counts(server, &minutes), [3; 80]);
        assert_eq!(counts(server, &hours), [180, 60]);
        assert_eq!(counts(server, days), [90, 150]);
        assert_eq!(server.get_json(days)["aligned"], true);
        check_all_keys(server);
        let all = server.get_json("/v1/ad_impression/a/counts?unit=minute&units=-1");
        assert_eq!(all["total"], 240);
        assert_eq!(all["from"], "2026-03-16T18:00:00+00:00");
    };
    check(&server);
    server.terminate();
    let server = start(&data, "2026-03-18T00:10:00Z@0");
    server.rebuild();
    check(&server);
    drop(server);
    let verified = tallyring_tests::server::tallyring_ok(&[
        "verify",
        "--deep",
        "--data",
        data.path().to_str().expect("a path of text"),
    ]);
    assert!(verified.contains("all good"), "{verified}");
}

#[test]
fn an_array_and_lines_and_a_retried_batch_are_taken_as_increments_are() {
    let (_data, server) = server();
    let at = "2026-03-16T13:00:00Z";
    let answer = send(
        &server,
        &json!([click("a", at), click("b", at), click("a", at)]),
    );
    assert_eq!(answer, json!({"accepted": 2, "duplicates": 1, "late": 0}));
    let lines = format!("{}\n\n{}\n", click("c", at), click("b", at));
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("idempotency-key", "k"),
    ];
    for _ in 0..2 {
        let answer = server.post_with("/v1/events", &headers, lines.as_bytes());
        assert_eq!(
            answer.json(),
            json!({"accepted": 1, "duplicates": 1, "late": 0})
        );
    }
    let bad = json!({"id": "d", "type": "click", "entities": {"pin": "1"}});
    let mixed = json!([click("e", at), bad]);
    let answer = server.post("/v1/events", mixed.to_string());
    assert_eq!((answer.status, &answer.json()["index"]), (400, &json!(1)));
    let answer = server
        .post("/v1/events?on_error=skip", mixed.to_string())
        .json();
    assert_eq!(answer["accepted"], 1, "{answer}");
    assert_eq!(answer["rejected"][0]["field"], "entities.pin");
    let by = server.get_json("/v1/ad_click/42/by/country*device?unit=hour&units=1");
    let both = json!([{"value": "US*mobile", "parts": ["US", "mobile"], "count": 4}]);
    assert_eq!(by["values"], both);
}

#[test]
fn cloud_events_are_taken_in_every_mode() {
    let (_data, server) = server();
    let data = json!({"entities": {"ad": "42"}, "by": {"country": "DE"}, "user": "u"});
    let event = |id: &str| {
        json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "com.example.click",
            "time": "2026-03-16T12:59:00Z", "subject": "x", "traceparent": "00-1", "data": data})
    };
    let post = |headers: &[(&str, &str)], body: &Value| {
        let answer = server.post_with("/v1/events", headers, body.to_string().as_bytes());
        (answer.status, answer.json())
    };
    let one = json!({"accepted": 1, "duplicates": 0, "late": 0});
    let structured = [(
        "content-type",
        "application/cloudevents+json; charset=utf-8",
    )];
    assert_eq!(post(&structured, &event("s")), (200, one.clone()));
    let batch = [("content-type", "application/cloudevents-batch+json")];
    let answer = post(&batch, &json!([event("b"), event("s")]));
    assert_eq!(
        answer,
        (200, json!({"accepted": 1, "duplicates": 1, "late": 0}))
    );
    let binary = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "bin%20ary"),
        ("ce-source", "/shop"),
        ("ce-type", "click"),
        ("ce-time", "2026-03-16T12:58:00Z"),
    ];
    assert_eq!(post(&binary, &data), (200, one.clone()));
    assert_eq!(
        post(&binary, &data),
        (200, json!({"accepted": 0, "duplicates": 1, "late": 0}))
    );
    assert_eq!(
        counts(&server, "/v1/ad_click/42/counts?unit=minute&units=3"),
        [1, 2, 0]
    );
    // The same id of another source, or of none, is another event.
    let mut elsewhere = event("s");
    elsewhere["source"] = json!("/other");
    assert_eq!(post(&structured, &elsewhere), (200, one.clone()));
    let plain = send(&server, &click("bin ary", "2026-03-16T12:59:00Z"));
    assert_eq!(plain, one);
    let of_source = |source: &str| server.get_json(&format!("/v1/events/s?source={source}"));
    assert_eq!(of_source("/shop")["verdict"], "counted");
    assert_eq!(of_source("/shop")["id"], "/shop s");
    assert_ne!(
        of_source("/shop")["counted"]["position"],
        of_source("/other")["counted"]["position"]
    );
    assert_eq!(server.get("/v1/events/s").status, 404);
    for (attribute, value) in [
        ("source", json!("")),
        ("source", json!("the shop")),
        ("id", json!("x".repeat(252))),
        ("specversion", json!("0.3")),
        ("data", json!(7)),
    ] {
        let mut wrong = event("w");
        wrong[attribute] = value;
        let (status, problem) = post(&structured, &wrong);
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(attribute)),
            "{problem}"
        );
    }
}

#[test]
fn a_ratio_divides_two_counts_of_one_view() {
    let (_data, server) = server();
    let event = |id: &str, kind: &str, at: &str| json!({"id": id, "type": kind, "at": at, "entities": {"ad": "42"}});
    let mut events: Vec<Value> = (0..8)
        .map(|number| event(&format!("i{number}"), "impression", "2026-03-16T12:10:00Z"))
        .collect();
    events.push(event("c", "click", "2026-03-16T12:20:00Z"));
    send(&server, &Value::Array(events));
    let ratio = server.get_json("/v1/ratios/ctr/ad/42?unit=hour&units=2");
    let whole = (&ratio["numerator"], &ratio["denominator"], &ratio["ratio"]);
    assert_eq!(whole, (&json!(1), &json!(8), &json!(0.125)), "{ratio}");
    let expected = json!([
        {"start": "2026-03-16T12:00:00+00:00", "numerator": 1, "denominator": 8, "ratio": 0.125},
        {"start": "2026-03-16T13:00:00+00:00", "numerator": 0, "denominator": 0, "ratio": null},
    ]);
    assert_eq!(ratio["counts"], expected);
    let all = server.get_json("/v1/ratios/ctr/ad/42?unit=minute&units=-1");
    assert_eq!(all["counts"][10]["numerator"], 1);
    for (path, field) in [("cpm/ad/42", "ratio"), ("ctr/pin/42", "entity")] {
        let answer = server.get(&format!("/v1/ratios/{path}"));
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (404, &json!(field))
        );
    }
}

#[test]
fn a_late_event_is_a_correction_that_counts_at_once() {
    let (_data, server) = server();
    let settled =
        |server: &Server| server.get_json("/v1/ad_click/42/summary")["settled_until"].clone();
    send(&server, &click("new", "2026-03-16T13:00:01Z"));
    assert_eq!(settled(&server), "2026-03-16T12:55:01Z");
    let answer = send(&server, &click("in time", "2026-03-16T12:55:01Z"));
    assert_eq!(answer["late"], 0);
    let answer = send(&server, &click("late", "2026-03-16T12:55:00Z"));
    assert_eq!(answer, json!({"accepted": 1, "duplicates": 0, "late": 1}));
    let minutes =
        "/v1/ad_click/42/counts?unit=minute&from=2026-03-16T12:55:00Z&to=2026-03-16T12:55:59Z";
    assert_eq!(counts(&server, minutes), [2]);
    let metrics = server.get("/metrics").text;
    assert!(
        metrics.contains("tallyring_event_corrections_total 1"),
        "{metrics}"
    );
}

#[test]
fn what_is_settled_stays_settled_over_every_end_of_the_server() {
    let data = tempfile::tempdir().expect("a directory");
    let clock = "2026-03-16T13:00:03Z@0";
    let settled = |server: &Server| {
        let answer = server.get_json("/v1/ad_click/42/summary");
        answer["settled_until"].as_str().expect("a time").to_owned()
    };
    let mut server = start(&data, clock);
    // Without events it is the clock that settles times, later.
    assert_eq!(settled(&server), "2026-03-16T12:50:03Z");
    send(&server, &click("a", "2026-03-16T12:59:00Z"));
    let mut before = settled(&server);
    assert_eq!(before, "2026-03-16T12:54:00Z");
    let stops: [fn(Server); 4] = [
        Server::terminate,
        Server::kill9,
        Server::terminate,
        Server::kill9,
    ];
    for (number, stop) in stops.into_iter().enumerate() {
        stop(server);
        server = start(&data, clock);
        assert_eq!(settled(&server), before, "after end {number}");
        let late = click(&format!("late {number}"), "2026-03-16T12:53:59Z");
        assert_eq!(send(&server, &late)["late"], 1, "after end {number}");
        // A newer one moves it on, from the manifest's or the log's.
        let at = format!("2026-03-16T12:59:{:02}Z", number + 1);
        send(&server, &click(&format!("b{number}"), &at));
        let after = settled(&server);
        assert!(after > before, "{after} after {before}");
        before = after;
    }
}

#[test]
fn every_wrong_field_of_an_event_is_named() {
    let (_data, server) = server();
    for (change, field) in [
        (json!({"id": null}), "id"),
        (json!({"id": ""}), "id"),
        (json!({"id": "x".repeat(257)}), "id"),
        (json!({"type": null}), "type"),
        (json!({"type": "view"}), "type"),
        (json!({"at": "yesterday"}), "at"),
        (json!({"entities": null}), "entities"),
        (json!({"entities": {}}), "entities"),
        (json!({"entities": {"ad": ""}}), "entities.ad"),
        (json!({"entities": {"ad": 42}}), "entities.ad"),
        (
            json!({"entities": {"ad_group": "x".repeat(2049)}}),
            "entities.ad_group",
        ),
        (json!({"by": {"browser": "x"}}), "by.browser"),
        (json!({"user": ""}), "user"),
        (json!({"view": "x".repeat(65)}), "view"),
        (json!({"n": 2}), "n"),
    ] {
        let mut event = click("e", "2026-03-16T13:00:00Z");
        for (name, value) in change.as_object().expect("an object") {
            event[name] = value.clone();
        }
        let answer = server.post("/v1/events", event.to_string());
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (400, &json!(field)),
            "{answer:?}"
        );
    }
    let future = click("e", "2026-03-17T13:00:04Z");
    let answer = server.post("/v1/events", future.to_string());
    assert_eq!(
        (answer.status, &answer.json()["field"]),
        (422, &json!("at"))
    );
    assert_eq!(
        server.get_json("/v1/ad_click/42/summary?unit=year&units=-1")["total"],
        0
    );
}

#[test]
fn every_id_has_a_verdict_that_survives_kills_and_rebuilds() {
    let data = tempfile::tempdir().expect("a directory");
    let server = start(&data, "2026-03-16T13:00:03Z@0");
    send(&server, &click("new", "2026-03-16T13:00:00Z"));
    send(&server, &click("new", "2026-03-16T12:00:00Z"));
    assert_eq!(
        send(&server, &click("old/1", "2026-03-16T12:00:00Z"))["late"],
        1
    );
    let whole = json!([
        click("whole", "2026-03-16T13:00:00Z"),
        click("ahead", "2026-03-18T13:00:00Z")
    ]);
    assert_eq!(server.post("/v1/events", whole.to_string()).status, 422);
    let bad = json!([{"id": "bad", "type": "click", "entities": {"pin": "1"}}, click("other", "2026-03-16T13:00:00Z")]);
    let answer = server.post("/v1/events?on_error=skip", bad.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let verdict = |server: &Server, id: &str| server.get_json(&format!("/v1/events/{id}"));
    let check = |server: &Server, generation: Value| {
        let new = verdict(server, "new");
        assert_eq!(
            (&new["verdict"], &new["id"]),
            (&json!("counted"), &json!("new"))
        );
        let counted = &new["counted"];
        assert_eq!(counted["type"], "click");
        assert_eq!(counted["at"], "2026-03-16T13:00:00Z");
        assert_eq!(counted["generation"], generation, "{new}");
        let bucket = json!({"namespace": "ad_click", "key": "42", "start": "2026-03-16T13:00:00Z",
            "minute": "2026-03-16T13:00:00Z"});
        assert_eq!(counted["buckets"][0], bucket);
        let of = new["duplicate"]["of"].as_u64().expect("a sequence");
        assert!(
            counted["position"]
                .as_str()
                .expect("a position")
                .ends_with(&format!(":{of}"))
        );
        let old = verdict(server, "old%2F1");
        assert_eq!(old["verdict"], "corrected");
        assert_eq!(old["counted"]["late"], true, "as it was answered");
        let bad = verdict(server, "bad");
        assert_eq!(
            (&bad["verdict"], &bad["refused"]["field"]),
            (&json!("refused"), &json!("entities.pin"))
        );
        let ahead = verdict(server, "ahead");
        assert_eq!(
            (&ahead["verdict"], &ahead["refused"]["field"]),
            (&json!("refused"), &json!("at"))
        );
        assert_eq!(
            server.get("/v1/events/whole").status,
            404,
            "nothing was wrong with it"
        );
        let unknown = server.get("/v1/events/unknown");
        assert_eq!(
            (unknown.status, &unknown.json()["field"]),
            (404, &json!("id"))
        );
    };
    check(&server, Value::Null);
    server.kill9();
    let server = start(&data, "2026-03-16T13:00:03Z@0");
    check(&server, Value::Null);
    server.terminate();
    let server = start(&data, "2026-03-18T00:10:00Z@0");
    let generation = server.rebuild();
    check(&server, json!(generation));
    // Mended, the refused one counts.
    send(&server, &click("bad", "2026-03-18T00:10:00Z"));
    assert_eq!(verdict(&server, "bad")["verdict"], "counted");
}

#[test]
fn the_last_minute_ticks_by_the_second() {
    let (_data, server) = server();
    let events: Vec<Value> = [
        ("a", "12:59:59"),
        ("b", "13:00:02"),
        ("c", "13:00:02"),
        ("d", "12:58:00"),
    ]
    .iter()
    .map(|(id, at)| click(id, &format!("2026-03-16T{at}Z")))
    .collect();
    send(&server, &json!(events));
    let minute = server.get_json("/v1/ad_click/42/counts?unit=second&units=60");
    assert_eq!(
        (&minute["total"], &minute["unit"]),
        (&json!(3), &json!("second"))
    );
    let counts = minute["counts"].as_array().expect("counts");
    assert_eq!(counts.len(), 60);
    assert_eq!(
        counts[58],
        json!({"start": "2026-03-16T13:00:02+00:00", "count": 2})
    );
    assert_eq!(counts[59]["start"], "2026-03-16T13:00:03+00:00");
    assert_eq!(
        minute["complete"], false,
        "the server has run for less than a minute"
    );
    let two = server.get_json("/v1/ad_click/42/counts?unit=second&units=2");
    assert_eq!(two["total"], 2);
    for (path, status, field) in [
        ("ad_click/42/counts?unit=second&units=61", 422, "units"),
        ("ad_click/42/counts?unit=second&from=1", 400, "from"),
        ("l/a/counts?unit=second", 422, "unit"),
        ("ad_click/42/summary?unit=second", 400, "unit"),
        ("ad_click/42/by/country?unit=second", 400, "unit"),
        ("ad_click/top?unit=second", 400, "unit"),
    ] {
        let answer = server.get(&format!("/v1/{path}"));
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (status, &json!(field)),
            "{path}"
        );
        if status == 400 && field == "unit" {
            let problem = answer.json();
            let detail = problem["detail"].as_str().expect("a detail");
            assert!(detail.contains("/counts alone"), "{detail}");
        }
    }
}

/// More keys in an hour than are held: nothing that is listed is counted less than it is, what is not listed has no
/// more than the bound, and a key never seen is nothing.
#[test]
fn the_heaviest_keys_are_listed_with_at_least_their_counts_among_more_than_are_held() {
    const OTHERS: u64 = 4_000;
    let (_data, server) = server();
    let count = |key: String, n: u64| json!({"keys": {"ad_click": key}, "n": n});
    let mut expected = BTreeMap::from([("ad-42".to_owned(), 1_000), ("ad-7".to_owned(), 5)]);
    // Twice what is held, several times over; the two come first, so that they may be let go.
    for number in 0..OTHERS {
        expected.insert(format!("o-{number}"), 1 + number % 3);
    }
    let mut increments: Vec<Value> = Vec::new();
    increments.push(count("ad-42".to_owned(), 1_000));
    increments.push(count("ad-7".to_owned(), 5));
    for number in 0..OTHERS {
        increments.push(count(format!("o-{number}"), 1 + number % 3));
    }
    let answer = server.post("/v1/increments", Value::Array(increments).to_string());
    assert_eq!(answer.json()["accepted"], OTHERS + 2);
    for limit in [1, 2, 10, 100] {
        let top = server.get_json(&format!("/v1/ad_click/top?unit=day&units=1&limit={limit}"));
        let total: u64 = expected.values().sum();
        assert_eq!(top["total"], total, "{top}");
        let keys = top["keys"].as_array().expect("keys");
        assert_eq!(keys.len(), limit);
        assert_eq!(keys[0], json!({"key": "ad-42", "count": 1_000}));
        let mut left = expected.clone();
        for listed in keys {
            let key = listed["key"].as_str().expect("a key");
            let count = left
                .remove(key)
                .unwrap_or_else(|| panic!("{key} was never sent"));
            assert_eq!(listed["count"], count, "{key}");
        }
        let least = keys.last().expect("a key")["count"]
            .as_u64()
            .expect("a count");
        let most_left = left.values().max().copied().unwrap_or(0);
        match top["approximate"].as_bool() {
            Some(true) => {
                let bound = top["bound"].as_u64().expect("a bound");
                assert!(bound >= most_left, "{bound} is less than {most_left}");
                assert!(bound <= total / 448, "{bound} of {total}");
            }
            _ => assert!(least >= most_left, "{top}"),
        }
        // One key leads by more than the bound, a hundred do not.
        assert_eq!(top["approximate"], limit > 1, "{top}");
    }
    assert_eq!(
        server.get_json("/v1/ad_click/ad-unseen/summary")["total"],
        0
    );
}

#[test]
fn a_producer_that_numbers_its_events_needs_no_ids() {
    let data = tempfile::tempdir().expect("a directory");
    let clock = "2026-03-16T13:00:03Z@0";
    let mut server = start(&data, clock);
    let event = |epoch: u64, sequence: u64| json!({"producer": "edge 1", "epoch": epoch, "sequence": sequence, "type": "click", "entities": {"ad": "42"}});
    let batch = |epoch, numbers: std::ops::Range<u64>| -> Value {
        numbers.map(|number| event(epoch, number)).collect()
    };
    let counted = |accepted: u64, duplicates: u64| json!({"accepted": accepted, "duplicates": duplicates, "late": 0});
    assert_eq!(send(&server, &batch(1, 0..100)), counted(100, 0));
    assert_eq!(send(&server, &batch(1, 0..100)), counted(0, 100));
    for stop in [Server::kill9 as fn(Server), Server::terminate] {
        stop(server);
        server = start(&data, clock);
        // Unanswered, it is sent again, with what follows.
        assert_eq!(send(&server, &batch(1, 50..100)), counted(0, 50));
    }
    assert_eq!(send(&server, &batch(1, 90..110)), counted(10, 10));
    let gap = server.post(
        "/v1/events",
        json!([event(1, 110), event(1, 112)]).to_string(),
    );
    assert_eq!(
        (gap.status, &gap.json()["index"]),
        (409, &json!(1)),
        "{gap:?}"
    );
    assert_eq!(
        send(&server, &event(1, 110)),
        counted(1, 0),
        "nothing of the refused batch counts"
    );
    assert_eq!(send(&server, &event(2, 0)), counted(1, 0));
    let over = server.post("/v1/events", event(1, 111).to_string());
    let problem = over.json();
    assert_eq!(
        (over.status, &problem["field"], &problem["value"]),
        (409, &json!("epoch"), &json!("1"))
    );
    assert!(
        problem["detail"]
            .as_str()
            .expect("a detail")
            .contains("epoch 2 with sequence 1"),
        "{problem}"
    );
    let lines = format!("{}\n\n{}\n", event(2, 1), event(2, 3));
    let headers = [("content-type", "application/x-ndjson")];
    let gap = server
        .post_with("/v1/events", &headers, lines.as_bytes())
        .json();
    let fields = ["field", "value", "index", "line"].map(|field| gap[field].clone());
    assert_eq!(
        fields,
        [json!("sequence"), json!("3"), json!(1), json!(3)],
        "{gap}"
    );
    let both = json!({"keys": {"l": "a"}, "id": "x", "producer": "p", "sequence": 1});
    assert_eq!(server.post("/v1/increments", both.to_string()).status, 400);
    assert_eq!(server.get_json("/v1/ad_click/42/summary")["total"], 112);
}
