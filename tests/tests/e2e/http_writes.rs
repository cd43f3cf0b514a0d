//! The contract of `/v1/incr` and `/v1/increments`: what is accepted, and what is answered.

use serde_json::{Value, json};
use tallyring_tests::server::{Answer, Client, Server};
use tempfile::TempDir;

/// A server at 2012-03-16T18:40:00Z, where time stands still.
pub(crate) fn server() -> (TempDir, Server) {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &["--clock", "2012-03-16T18:40:00Z@0"]);
    (data, server)
}

/// The total of a key over the week around now.
pub(crate) fn total(client: &Client, key: &str) -> Value {
    client.get_json(&format!("/v1/{key}/summary"))["total"].clone()
}

/// An answer that counted something.
fn counted(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

#[test]
fn incr_answers_204_by_get_and_post_and_ignores_any_body() {
    let (_data, server) = server();
    let path =
        "/v1/incr?key.l=abc&key.u=jehiah&by.c=US&by.r=https%3A%2F%2Fnews.example%2F%3Fa%26b&n=2";
    let answer = server.get(path);
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    assert_eq!(answer.header("tallyring-duplicate"), None);
    let bodies: [(&str, &[u8]); 4] = [
        ("application/json", b"{\"not\": \"read\""),
        ("application/x-www-form-urlencoded", b"n=100"),
        ("text/plain", b"\xff\xfe\x00"),
        ("multipart/form-data", b""),
    ];
    for (kind, body) in bodies {
        let answer = server.post_with(path, &[("content-type", kind)], body);
        assert_eq!(answer.status, 204, "{kind}: {answer:?}");
    }
    assert_eq!(total(&server, "l/abc"), 10);
    assert_eq!(total(&server, "u/jehiah"), 10);
    let by = server.get_json("/v1/u/jehiah/by/r");
    let referrer = "https://news.example/?a&b";
    assert_eq!(by["values"], json!([{"value": referrer, "count": 10}]));
}

#[test]
fn incr_counts_now_when_no_time_is_given_and_an_empty_value_as_missing() {
    let (_data, server) = server();
    for query in [
        "",
        "&at=",
        "&at=1331923200",
        "&at=2012-03-16T14:40:00-04:00",
        "&by.c=&n=",
    ] {
        let answer = server.get(&format!("/v1/incr?key.l=abc{query}"));
        assert_eq!(answer.status, 204, "{query}: {answer:?}");
    }
    let by = server.get_json("/v1/l/abc/by/c?unit=hour&units=1");
    assert_eq!(by["from"], "2012-03-16T18:00:00+00:00");
    assert_eq!(by["values"], json!([{"value": "-", "count": 5}]));
}

#[test]
fn an_id_counts_once_whatever_its_time_keys_or_endpoint() {
    let (_data, server) = server();
    let first = server.get("/v1/incr?key.l=abc&id=one");
    assert_eq!(
        (first.status, first.header("tallyring-duplicate")),
        (204, None)
    );
    for query in ["key.l=abc", "key.l=other", "key.l=abc&at=1331900000&n=5"] {
        let again = server.post(&format!("/v1/incr?{query}&id=one"), "");
        let duplicate = again.header("tallyring-duplicate");
        assert_eq!((again.status, duplicate), (204, Some("1")), "{query}");
    }
    let items = json!([
        {"keys": {"l": "abc"}, "id": "one"},
        {"keys": {"l": "abc"}, "id": "two"},
        {"keys": {"l": "abc"}, "id": "two"},
        {"keys": {"l": "abc"}},
    ]);
    let answer = server.post("/v1/increments", items.to_string());
    let expected = json!({"accepted": 2, "duplicates": 2, "late": 0});
    assert_eq!(counted(&answer), expected);
    let again = server.get("/v1/incr?key.l=abc&id=two");
    assert_eq!(again.header("tallyring-duplicate"), Some("1"));
    let event = json!({"id": "two", "type": "click", "entities": {"ad": "42"}});
    let answer = server.post("/v1/events", event.to_string());
    let expected = json!({"accepted": 0, "duplicates": 1, "late": 0});
    assert_eq!(counted(&answer), expected);
    assert_eq!(total(&server, "ad_click/42"), 0);
    assert_eq!(total(&server, "l/abc"), 3);
    assert_eq!(total(&server, "l/other"), 0);
}

#[test]
fn increments_takes_an_object_an_array_and_ndjson() {
    let (_data, server) = server();
    let one = json!({
        "at": "2012-03-16T18:40:47Z", "n": 3, "keys": {"l": "A6qOVH", "u": "orofrog"},
        "by": {"c": "US", "r": "http://example.org/"}, "id": "x", "user": "y",
    });
    let expected = json!({"accepted": 1, "duplicates": 0, "late": 0});
    assert_eq!(
        counted(&server.post("/v1/increments", one.to_string())),
        expected
    );
    let two = json!([{"at": 1_331_923_247, "keys": {"l": "A6qOVH"}}, {"keys": {"l": "A6qOVH"}, "by": {"c": null}}]);
    let expected = json!({"accepted": 2, "duplicates": 0, "late": 0});
    assert_eq!(
        counted(&server.post("/v1/increments", two.to_string())),
        expected
    );
    let lines = "{\"keys\":{\"l\":\"A6qOVH\"}}\n\n{\"keys\":{\"l\":\"A6qOVH\"},\"n\":4}\r\n{\"keys\":{\"u\":\"orofrog\"}}";
    let headers = [("content-type", "application/x-ndjson; charset=utf-8")];
    let answer = server.post_with("/v1/increments", &headers, lines.as_bytes());
    let expected = json!({"accepted": 3, "duplicates": 0, "late": 0});
    assert_eq!(counted(&answer), expected);
    let nothing = json!({"accepted": 0, "duplicates": 0, "late": 0});
    assert_eq!(counted(&server.post("/v1/increments", "[]")), nothing);
    assert_eq!(total(&server, "l/A6qOVH"), 10);
    assert_eq!(total(&server, "u/orofrog"), 4);
}

#[test]
fn an_increment_for_a_day_outside_the_ring_is_late_and_counts() {
    let (_data, server) = server();
    let items = json!([
        {"at": "2012-03-14T23:59:59Z", "keys": {"l": "a"}},
        {"at": "2000-01-01T00:00:00Z", "keys": {"l": "a"}},
        {"at": "2012-03-15T00:00:00Z", "keys": {"l": "a"}},
        {"at": "2012-03-17T18:40:00Z", "keys": {"l": "a"}},
    ]);
    let answer = server.post("/v1/increments", items.to_string());
    let expected = json!({"accepted": 4, "duplicates": 0, "late": 2});
    assert_eq!(counted(&answer), expected);
    let all = server.get_json("/v1/l/a/counts?unit=year&units=-1");
    let years = all["counts"].as_array().expect("buckets");
    assert_eq!((years.len(), &all["total"]), (13, &json!(4)));
    assert_eq!(
        years[0],
        json!({"start": "2000-01-01T00:00:00+00:00", "count": 1})
    );
    assert_eq!(
        years[12],
        json!({"start": "2012-01-01T00:00:00+00:00", "count": 3})
    );
}

#[test]
fn one_bad_item_refuses_the_batch_with_its_index_and_line() {
    let (_data, server) = server();
    let good = json!({"keys": {"l": "a"}});
    let bad = json!({"keys": {"x": "a"}});
    let answer = server.post("/v1/increments", json!([good, good, bad, good]).to_string());
    let problem = answer.json();
    assert_eq!((answer.status, &problem["index"]), (400, &json!(2)));
    assert_eq!(problem["field"], "keys.x");
    let lines = format!("{good}\n\n{good}\n{{\"keys\":\n{good}\n");
    let headers = [("content-type", "application/x-ndjson")];
    let answer = server.post_with("/v1/increments", &headers, lines.as_bytes());
    let problem = answer.json();
    assert_eq!((answer.status, &problem["index"]), (400, &json!(2)));
    assert_eq!(problem["line"], 4);
    assert_eq!(total(&server, "l/a"), 0, "nothing of them was counted");
}

#[test]
fn on_error_skip_takes_the_good_items_and_lists_the_first_hundred_bad_ones() {
    let (_data, server) = server();
    let items: Vec<Value> = (0..301)
        .map(|index| match index % 2 {
            0 => json!({"keys": {"l": "a"}}),
            _ => json!({"keys": {"x": "a"}}),
        })
        .collect();
    let answer = counted(&server.post("/v1/increments?on_error=skip", json!(items).to_string()));
    let rejected = answer["rejected"].as_array().expect("a list");
    assert_eq!((&answer["accepted"], rejected.len()), (&json!(151), 100));
    for (place, row) in rejected.iter().enumerate() {
        assert_eq!(row["index"], json!(2 * place + 1));
        assert_eq!(row["field"], "keys.x");
        assert!(
            row["detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty())
        );
    }
    assert_eq!(total(&server, "l/a"), 151);
    let fine = counted(&server.post("/v1/increments?on_error=skip", "[]"));
    assert_eq!(fine["rejected"], json!([]));
}
