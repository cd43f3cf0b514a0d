//! The identity of an event: its id, an id within a source, or its producer's numbers; and the verdict on it.

use serde_json::{Value, json};
use tallyring_tests::server::Server;

use crate::events::{click, counts, send, server, start};

const STRUCTURED: (&str, &str) = (
    "content-type",
    "application/cloudevents+json; charset=utf-8",
);

/// The data of an event.
fn data() -> Value {
    json!({"entities": {"ad": "42"}, "by": {"country": "DE"}, "user": "u"})
}

fn cloud_event(id: &str) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "com.example.click",
        "time": "2026-03-16T12:59:00Z", "subject": "x", "traceparent": "00-1", "data": data()})
}

fn post(server: &Server, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let answer = server.post_with("/v1/events", headers, body.to_string().as_bytes());
    (answer.status, answer.json())
}

fn accepted(accepted: u64, duplicates: u64) -> (u16, Value) {
    let answer = json!({"accepted": accepted, "duplicates": duplicates, "late": 0});
    (200, answer)
}

#[test]
fn cloud_events_are_taken_in_every_mode() {
    let (_data, server) = server();
    let answer = post(&server, &[STRUCTURED], &cloud_event("s"));
    assert_eq!(answer, accepted(1, 0));
    let batch = [("content-type", "application/cloudevents-batch+json")];
    let both = json!([cloud_event("b"), cloud_event("s")]);
    assert_eq!(post(&server, &batch, &both), accepted(1, 1));
    let binary = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "bin%20ary"),
        ("ce-source", "/shop"),
        ("ce-type", "click"),
        ("ce-time", "2026-03-16T12:58:00Z"),
    ];
    assert_eq!(post(&server, &binary, &data()), accepted(1, 0));
    assert_eq!(post(&server, &binary, &data()), accepted(0, 1));
    // A body that says all itself may be said again by headers.
    let both = [&[STRUCTURED][..], &binary[1..]].concat();
    assert_eq!(post(&server, &both, &cloud_event("t")), accepted(1, 0));
    let minutes = "/v1/ad_click/42/counts?unit=minute&units=3";
    assert_eq!(counts(&server, minutes), [1, 3, 0]);
    let mut quoted = binary;
    quoted[2].1 = r#""bin%20\ary""#;
    assert_eq!(post(&server, &quoted, &data()), accepted(0, 1));
    for (attribute, value) in [
        ("source", json!("")),
        ("source", json!("the shop")),
        ("id", json!("x".repeat(252))),
        ("specversion", json!("0.3")),
        ("data", json!(7)),
    ] {
        let mut wrong = cloud_event("w");
        wrong[attribute] = value;
        let (status, problem) = post(&server, &[STRUCTURED], &wrong);
        let found = (status, &problem["field"]);
        assert_eq!(found, (400, &json!(attribute)), "{problem}");
    }
}

/// The headers are part of the batch that a key names.
#[test]
fn an_idempotency_key_of_another_binary_event_is_refused() {
    let (_data, server) = server();
    let event = |id| {
        [
            ("idempotency-key", "k"),
            ("ce-specversion", "1.0"),
            ("ce-id", id),
            ("ce-source", "/shop"),
            ("ce-type", "click"),
        ]
    };
    for _ in 0..2 {
        assert_eq!(post(&server, &event("a"), &data()), accepted(1, 0));
    }
    let (status, problem) = post(&server, &event("b"), &data());
    let found = (status, &problem["field"]);
    assert_eq!(found, (422, &json!("idempotency-key")), "{problem}");
}

#[test]
fn an_idempotency_key_of_another_endpoint_or_form_is_refused() {
    let (_data, server) = server();
    // Each endpoint skips what the other one counts.
    let increment = json!({"keys": {"l": "a"}});
    let batch = json!([
        increment,
        click("i", "2026-03-16T12:59:00Z"),
        cloud_event("i")
    ]);
    let (increments, events) = ("/v1/increments", "/v1/events");
    let (list, lines) = ("application/json", "application/x-ndjson");
    let kinds = [
        (increments, list),
        (increments, lines),
        (events, list),
        (events, lines),
        (events, "application/cloudevents+json"),
    ];
    let post = |key: &str, (path, kind): (&str, &str)| {
        let path = format!("{path}?on_error=skip");
        let headers = [("idempotency-key", key), ("content-type", kind)];
        server.post_with(&path, &headers, batch.to_string().as_bytes())
    };
    for (number, first) in kinds.into_iter().enumerate() {
        let key = format!("k{number}");
        let counted = post(&key, first);
        assert_eq!(counted.status, 200, "{first:?}: {counted:?}");
        for kind in kinds {
            let status = if kind == first { 200 } else { 422 };
            assert_eq!(post(&key, kind).status, status, "{first:?} {kind:?}");
        }
    }
    // Another way to say what it is.
    for kind in ["Application/JSON; charset=utf-8", "text/plain", ""] {
        let again = post("k0", (increments, kind));
        assert_eq!((again.status, &again.json()["accepted"]), (200, &json!(1)));
    }
}

#[test]
fn one_id_of_two_sources_or_of_none_is_as_many_events() {
    let (_data, server) = server();
    let mut elsewhere = cloud_event("s");
    elsewhere["source"] = json!("/other");
    for event in [cloud_event("s"), elsewhere] {
        let answer = post(&server, &[STRUCTURED], &event);
        assert_eq!(answer, accepted(1, 0));
        let answer = post(&server, &[STRUCTURED], &event);
        assert_eq!(answer, accepted(0, 1));
    }
    assert_eq!(server.get("/v1/events/s").status, 404);
    let plain = send(&server, &click("s", "2026-03-16T12:59:00Z"));
    assert_eq!(plain["accepted"], 1);
    let of_source = |source: &str| server.get_json(&format!("/v1/events/s?source={source}"));
    let (shop, other) = (of_source("/shop"), of_source("/other"));
    let told = ["verdict", "id", "source"].map(|field| &shop[field]);
    assert_eq!(told, ["counted", "s", "/shop"]);
    // A plain id that looks like both is another one.
    let alike = send(&server, &click("/shop s", "2026-03-16T12:59:00Z"));
    assert_eq!(alike["accepted"], 1, "{alike}");
    assert_ne!(shop["counted"]["position"], other["counted"]["position"]);
    let mut wrong = cloud_event("wrong");
    wrong["data"]["entities"] = json!({"pin": "1"});
    assert_eq!(post(&server, &[STRUCTURED], &wrong).0, 400);
    let verdict = server.get_json("/v1/events/wrong?source=/shop");
    assert_eq!(verdict["refused"]["field"], "entities.pin", "{verdict}");
}

#[test]
fn a_single_increment_that_is_refused_has_a_verdict() {
    let (_data, server) = server();
    let refused = server.post("/v1/incr?key.nowhere=a&id=lost", "");
    assert_eq!(refused.status, 400, "{refused:?}");
    let verdict = server.get_json("/v1/events/lost");
    assert_eq!(verdict["verdict"], "refused", "{verdict}");
    assert_eq!(verdict["refused"]["field"], "keys.nowhere", "{verdict}");
    // It may come again, mended.
    assert_eq!(server.post("/v1/incr?key.l=a&id=lost", "").status, 204);
    assert_eq!(server.get_json("/v1/events/lost")["verdict"], "counted");
}

/// The store refuses a count that a counter has no room for, after the item was found well-formed.
#[test]
fn an_item_that_the_store_refuses_has_a_verdict_however_it_was_sent() {
    let (data, server) = server();
    let most = 9_007_199_254_740_991_u64;
    let item = |id: &str, n: u64| json!({"keys": {"l": "full"}, "n": n, "id": id});
    let first = server.post("/v1/increments", item("first", most).to_string());
    assert_eq!(first.status, 200, "{first:?}");
    let batch = json!([{"keys": {"l": "other"}, "id": "beside"}, item("stop", 1)]);
    let stopped = server.post("/v1/increments", batch.to_string());
    let problem = stopped.json();
    assert_eq!((stopped.status, &problem["index"]), (409, &json!(1)));
    let single = server.post("/v1/incr?key.l=full&id=single", "");
    assert_eq!(single.status, 409, "{single:?}");
    // More that are malformed than an answer lists keep the good ones from nothing.
    let mut many: Vec<Value> = (0..120)
        .map(|number| json!({"id": format!("bad-{number}")}))
        .collect();
    many.extend([
        item("skip", 1),
        json!({"keys": {"l": "other"}, "id": "good"}),
    ]);
    let skipped = server.post("/v1/increments?on_error=skip", json!(many).to_string());
    let answer = skipped.json();
    assert_eq!(
        (skipped.status, &answer["accepted"]),
        (200, &json!(1)),
        "{answer}"
    );
    let check = |server: &Server| {
        for id in ["stop", "single", "skip"] {
            let told = verdict(server, id);
            let found = (&told["verdict"], &told["refused"]["field"]);
            assert_eq!(found, (&json!("refused"), &json!("keys.l")), "{told}");
        }
        assert_eq!(verdict(server, "bad-119")["refused"]["field"], "keys");
        assert_eq!(server.get("/v1/events/beside").status, 404);
        assert_eq!(server.get_json("/v1/l/other/summary?unit=year")["total"], 1);
    };
    check(&server);
    server.kill9();
    check(&start(&data, "2026-03-16T13:00:03Z@0"));
}

/// Sends a batch with an `Idempotency-Key`; its status and answer.
fn keyed(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let answer = server.post_with(
        path,
        &[("idempotency-key", "k")],
        body.to_string().as_bytes(),
    );
    (answer.status, answer.json())
}

#[test]
fn a_retry_is_told_what_the_first_was_not_counted_for() {
    let (data, server) = server();
    let item = |key: &str, n: u64, id: &str| json!({"keys": {"l": key}, "n": n, "id": id});
    let most = 9_007_199_254_740_991_u64;
    let batch = json!([
        item("of", most, "o1"),
        {"keys": {"nowhere": "a"}},
        item("of", 1, "o2"),
        item("ok", 1, "o3"),
        {"keys": {"l": "ok"}, "at": "2026-03-18T00:00:00Z"},
    ]);
    let skip = "/v1/increments?on_error=skip";
    let (status, first) = keyed(&server, skip, &batch);
    assert_eq!((status, &first["accepted"]), (200, &json!(2)), "{first}");
    let rejected = first["rejected"].as_array().expect("a list").iter();
    let rejected: Vec<_> = rejected
        .map(|item| (&item["index"], &item["field"]))
        .collect();
    assert_eq!(
        rejected,
        [
            (&json!(1), &json!("keys.nowhere")),
            (&json!(2), &json!("keys.l")),
            (&json!(4), &json!("at"))
        ]
    );
    let check = |server: &Server| {
        assert_eq!(keyed(server, skip, &batch), (200, first.clone()));
        // To stop at what is wrong is another request.
        let good = json!([item("ok", 1, "o3")]);
        assert_eq!(keyed(server, skip, &good).0, 422);
        assert_eq!(keyed(server, "/v1/increments", &batch).0, 400);
    };
    check(&server);
    server.kill9();
    // By now its time would be near enough.
    let server = start(&data, "2026-03-17T12:00:00Z@0");
    check(&server);
    let other = [("idempotency-key", "stop")];
    let good = json!([item("ok", 1, "o4")]).to_string();
    for (path, status) in [
        ("/v1/increments", 200),
        (skip, 422),
        ("/v1/increments", 200),
    ] {
        let answer = server.post_with(path, &other, good.as_bytes());
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    let total =
        |key: &str| server.get_json(&format!("/v1/l/{key}/summary?unit=year"))["total"].clone();
    assert_eq!((total("of"), total("ok")), (json!(most), json!(2)));
}

#[test]
fn good_items_are_taken_however_many_the_store_refuses_beside_them() {
    let (_data, server) = server();
    let most = 9_007_199_254_740_991_u64;
    let full = json!({"keys": {"l": "full"}, "n": most});
    assert_eq!(server.post("/v1/increments", full.to_string()).status, 200);
    let numbered =
        |sequence: u64| json!({"keys": {"l": "ok"}, "producer": "p", "sequence": sequence});
    assert_eq!(
        server
            .post("/v1/increments", numbered(1).to_string())
            .status,
        200
    );
    let mut many = vec![json!({"keys": {"l": "ok"}}); 151];
    for number in 0..150_u64 {
        many.push(json!({"keys": {"l": "ok", "u": format!("u{number}")}, "n": 2}));
        many.push(json!({"keys": {"l": "full", "u": "never"}}));
        many.push(numbered(3 + number));
    }
    let body = json!(many).to_string();
    let stopped = server.post("/v1/increments", &*body);
    let problem = stopped.json();
    assert_eq!(
        (stopped.status, &problem["index"]),
        (409, &json!(152)),
        "{problem}"
    );
    let answer = server.post("/v1/increments?on_error=skip", &*body).json();
    assert_eq!(answer["accepted"], 301, "{answer}");
    let rejected = answer["rejected"].as_array().expect("a list");
    let index = |at: usize| &rejected[at]["index"];
    assert_eq!(
        (rejected.len(), index(0), index(1), index(99)),
        (100, &json!(152), &json!(153), &json!(300))
    );
    let total =
        |key: &str| server.get_json(&format!("/v1/{key}/summary?unit=year"))["total"].clone();
    assert_eq!(
        [total("l/ok"), total("l/full"), total("u/never")],
        [json!(452), json!(most), json!(0)]
    );
}

#[test]
fn a_binary_cloud_event_whose_body_or_header_cannot_be_read_has_a_verdict() {
    let (_data, server) = server();
    let binary = |id: &'static str, kind: &'static str| {
        [
            ("ce-specversion", "1.0"),
            ("ce-id", id),
            ("ce-source", "/shop"),
            ("ce-type", kind),
        ]
    };
    for (id, kind, body, field) in [
        ("no-json", "click", "{", "body"),
        ("twice", "click", r#"{"user":"a","user":"b"}"#, "body"),
        ("no-text", "%ff", "{}", "ce-type"),
    ] {
        let answer = server.post_with("/v1/events", &binary(id, kind), body.as_bytes());
        let found = (answer.status, &answer.json()["field"]);
        assert_eq!(found, (400, &json!(field)), "{id}: {answer:?}");
        let told = server.get_json(&format!("/v1/events/{id}?source=/shop"));
        let found = (&told["verdict"], &told["refused"]["field"]);
        assert_eq!(found, (&json!("refused"), &json!(field)), "{told}");
    }
}

fn verdict(server: &Server, id: &str) -> Value {
    server.get_json(&format!("/v1/events/{id}"))
}

/// The wrong items of refused batches have a verdict, the others have none.
fn check_refused(server: &Server) {
    for (id, field) in [("bad", "entities.pin"), ("ahead", "at")] {
        let told = verdict(server, id);
        let found = (&told["verdict"], &told["refused"]["field"]);
        assert_eq!(found, (&json!("refused"), &json!(field)), "{told}");
    }
    for id in ["whole", "unknown"] {
        let answer = server.get(&format!("/v1/events/{id}"));
        let found = (answer.status, &answer.json()["field"]);
        assert_eq!(found, (404, &json!("id")), "{id}");
    }
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
        assert!(counted["position"].is_string(), "{new}");
        assert_eq!(new["duplicate"]["of"], counted["position"], "{new}");
        assert_ne!(new["duplicate"]["position"], counted["position"], "{new}");
        let old = verdict(server, "old%2F1");
        assert_eq!(old["verdict"], "corrected");
        assert_eq!(old["counted"]["late"], true, "as it was answered");
        check_refused(server);
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
