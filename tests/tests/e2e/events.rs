//! Events: counted once on every entity they name, by minute and hour, whatever their form.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server};
use tempfile::TempDir;

/// A server at 13:00:03, where time stands still.
pub(crate) fn server() -> (TempDir, Server) {
    let data = tempfile::tempdir().expect("a directory");
    let server = start(&data, "2026-03-16T13:00:03Z@0");
    (data, server)
}

pub(crate) fn start(data: &TempDir, clock: &str) -> Server {
    Server::start(data.path(), &["--clock", clock])
}

pub(crate) fn click(id: &str, at: &str) -> Value {
    json!({"id": id, "type": "click", "at": at, "entities": {"ad": "42", "campaign": "7"},
        "by": {"country": "US", "device": "mobile"}, "user": format!("user of {id}"), "view": "home"})
}

pub(crate) fn send(client: &Client, body: &Value) -> Value {
    let answer = client.post("/v1/events", body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Counts of the buckets of a read that was answered.
pub(crate) fn counts(client: &Client, path: &str) -> Vec<u64> {
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

/// One click counts on its ad, its ad group, its campaign and its advertiser; each tells it by country and device.
#[test]
fn an_event_counts_on_every_entity_and_is_told_by_country_and_device() {
    let (_data, server) = server();
    let event = |number: u32, ad: &str, (country, device): (&str, &str)| {
        json!({"id": format!("e{number}"), "type": "click", "at": "2026-03-16T12:30:00Z",
            "entities": {"ad": ad, "ad_group": "g", "campaign": "c", "advertiser": "a"},
            "by": {"country": country, "device": device}})
    };
    let clicks = [
        event(1, "42", ("US", "mobile")),
        event(2, "42", ("US", "mobile")),
        event(3, "42", ("US", "desktop")),
        event(4, "42", ("DE", "mobile")),
        event(5, "43", ("DE", "mobile")),
    ];
    assert_eq!(send(&server, &json!(clicks))["accepted"], 5);
    let hour = "unit=hour&units=2";
    for (entity, key, count) in [
        ("ad", "42", 4),
        ("ad", "43", 1),
        ("ad_group", "g", 5),
        ("campaign", "c", 5),
        ("advertiser", "a", 5),
    ] {
        let path = format!("/v1/{entity}_click/{key}/counts?{hour}");
        assert_eq!(counts(&server, &path), [count, 0], "{entity}");
        let impressions = format!("/v1/{entity}_impression/{key}/summary?{hour}");
        assert_eq!(server.get_json(&impressions)["total"], 0, "{entity}");
    }
    let by = |subtotal: &str| {
        let path = format!("/v1/ad_click/42/by/{subtotal}?{hour}");
        let answer = server.get_json(&path);
        let values = answer["values"].as_array().expect("values").iter();
        let pair = |value: &Value| (value["value"].clone(), value["count"].clone());
        values.map(pair).collect::<Vec<_>>()
    };
    let listed = |values: &[(&str, u64)]| -> Vec<(Value, Value)> {
        let pair = |&(value, count): &(&str, u64)| (json!(value), json!(count));
        values.iter().map(pair).collect()
    };
    assert_eq!(by("country"), listed(&[("US", 3), ("DE", 1)]));
    assert_eq!(by("device"), listed(&[("mobile", 3), ("desktop", 1)]));
    let both = [("US*mobile", 2), ("DE*mobile", 1), ("US*desktop", 1)];
    assert_eq!(by("country*device"), listed(&both));
}

/// Not soon after: whoever was answered finds it in the next read, however many others are counted meanwhile.
#[test]
fn an_acknowledged_click_is_in_every_read_that_begins_after() {
    const WRITERS: u32 = 4;
    const BATCHES: u64 = 40;
    let (_data, server) = server();
    let write = |writer: u32| {
        let client = server.client().clone();
        for batch in 1..=BATCHES {
            let event = |number: u32| {
                json!({"id": format!("{writer}-{batch}-{number}"), "type": "click", "user": format!("u{batch}"),
                    "entities": {"ad": writer.to_string(), "campaign": "all"}})
            };
            let events: Vec<Value> = (0..25).map(event).collect();
            assert_eq!(send(&client, &json!(events))["accepted"], 25);
            let read = |read: &str| client.get_json(&format!("/v1/ad_click/{writer}/{read}"));
            for unit in ["minute", "day"] {
                let found = read(&format!("summary?units=1&unit={unit}"));
                assert_eq!(found["total"], 25 * batch, "{unit}");
            }
            let users = read("uniques?units=1");
            assert_eq!(users["estimate"], batch);
            let all = client.get_json("/v1/campaign_click/all/summary?units=1");
            assert!(all["total"].as_u64().expect("a total") >= 25 * batch);
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || write(writer));
        }
    });
    let all = server.get_json("/v1/campaign_click/all/summary?units=1");
    assert_eq!(all["total"], u64::from(WRITERS) * BATCHES * 25);
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

/// Newer clicks settle no impressions, and each type allows for its own lateness.
#[test]
fn each_type_has_its_own_watermark_and_lateness() {
    let data = tempfile::tempdir().expect("a directory");
    let config = data.path().join("c.toml");
    let text = "[events.click]\nentities = [\"ad\"]\nlateness_seconds = 60\n\
        [events.impression]\nentities = [\"ad\"]\nlateness_seconds = 600\n";
    std::fs::write(&config, text).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let arguments = ["--clock", "2026-03-16T13:00:03Z@0", "--config", config];
    let server = Server::start(&data.path().join("data"), &arguments);
    let late = |id: &str, kind: &str, at: &str| {
        let at = format!("2026-03-16T{at}Z");
        let event = json!({"id": id, "type": kind, "at": at, "entities": {"ad": "42"}});
        send(&server, &event)["late"].clone()
    };
    let settled = |kind: &str| {
        let path = format!("/v1/ad_{kind}/42/summary");
        server.get_json(&path)["settled_until"].clone()
    };
    assert_eq!(late("c1", "click", "13:00:00"), 0);
    assert_eq!(late("i1", "impression", "12:59:00"), 0);
    assert_eq!(settled("click"), "2026-03-16T12:59:00Z");
    assert_eq!(settled("impression"), "2026-03-16T12:49:00Z");
    for (id, kind, at, expected) in [
        ("c2", "click", "12:59:00", 0),
        ("c3", "click", "12:58:59", 1),
        ("i2", "impression", "12:49:00", 0),
        ("i3", "impression", "12:48:59", 1),
    ] {
        assert_eq!(late(id, kind, at), expected, "{id}");
    }
    let total = |kind: &str| server.get_json(&format!("/v1/ad_{kind}/42/summary"))["total"].clone();
    assert_eq!((total("click"), total("impression")), (json!(3), json!(3)));
}

#[test]
fn a_settled_minute_stays_settled_over_every_end_of_the_server() {
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
    // Without `strict`, a wrong breakdown value does not cost the event.
    let data = tempfile::tempdir().expect("a directory");
    let config = data.path().join("tallyring.toml");
    std::fs::write(&config, "strict = true\n").expect("a configuration");
    let config = config.to_str().expect("UTF-8");
    let store = data.path().join("data");
    let clock = "2026-03-16T13:00:03Z@0";
    let server = Server::start(&store, &["--clock", clock, "--config", config]);
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
        (json!({"n": 0}), "n"),
        (json!({"browser": "x"}), "browser"),
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
    let (data, server) = server();
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
    // The archive ranks all keys of a finished day.
    server.terminate();
    let server = start(&data, "2026-03-18T00:10:00Z@0");
    server.rebuild();
    let top =
        server.get_json("/v1/ad_click/top?unit=day&units=1&to=2026-03-16T12:00:00Z&limit=100");
    assert_eq!(top["approximate"], false, "{top}");
    let mut ranked: Vec<(&String, u64)> = expected.iter().map(|(key, &n)| (key, n)).collect();
    ranked.sort_by_key(|&(key, n)| (std::cmp::Reverse(n), key));
    let ranked = ranked.iter().take(100);
    let ranked: Vec<Value> = ranked
        .map(|(key, n)| json!({"key": key, "count": n}))
        .collect();
    assert_eq!(top["keys"], json!(ranked));
}
