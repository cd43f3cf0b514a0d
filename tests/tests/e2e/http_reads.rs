//! The contract of reads: the exact shape of an answer, ranges, zones, breakdowns, kept generations.

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server};

use crate::http_writes::{server, total};

/// Counts `n` at each of these times.
fn count(client: &Client, key: &str, times: &[(&str, u64)]) {
    for (at, n) in times {
        let answer = client.get(&format!("/v1/incr?key.l={key}&at={at}&n={n}"));
        assert_eq!(answer.status, 204, "{answer:?}");
    }
}

#[test]
fn counts_answer_exactly_the_documented_document() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &["--clock", "2012-03-16T18:35:00Z@0"]);
    let times = [
        ("2012-03-10T05:00:00Z", 3),
        ("2012-03-11T04:59:59Z", 1),
        ("2012-03-11T05:00:00Z", 2),
        ("2012-03-12T03:59:59Z", 2),
        ("2012-03-16T18:34:00Z", 4),
    ];
    count(&server, "A6qOVH", &times);
    let path = "/v1/l/A6qOVH/counts?unit=day&units=7&timezone=America/New_York";
    let expected = concat!(
        r#"{"namespace":"l","key":"A6qOVH","unit":"day","timezone":"America/New_York","#,
        r#""from":"2012-03-10T00:00:00-05:00","to":"2012-03-17T00:00:00-04:00","aligned":true,"state":"live","#,
        r#""settled_until":"2012-03-16T18:30:00Z","final_until":null,"generation":0,"total":12,"#,
        r#""counts":[{"start":"2012-03-10T00:00:00-05:00","count":4},"#,
        r#"{"start":"2012-03-11T00:00:00-05:00","count":4},"#,
        r#"{"start":"2012-03-12T00:00:00-04:00","count":0},"#,
        r#"{"start":"2012-03-13T00:00:00-04:00","count":0},"#,
        r#"{"start":"2012-03-14T00:00:00-04:00","count":0},"#,
        r#"{"start":"2012-03-15T00:00:00-04:00","count":0},"#,
        r#"{"start":"2012-03-16T00:00:00-04:00","count":4}]}"#,
    );
    let answer = server.get(path);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.text, expected);
    let mut summary: Value = serde_json::from_str(expected).expect("JSON");
    summary.as_object_mut().expect("an object").remove("counts");
    assert_eq!(
        server.get_json(&path.replace("/counts", "/summary")),
        summary
    );
    assert_eq!(
        server.get_json("/v1/l/A6qOVH/counts?timezone=America/New_York")["total"],
        12
    );
}

#[test]
fn the_last_bucket_holds_to_and_the_first_holds_from() {
    let (_data, server) = server();
    let starts = |query: &str| -> Vec<String> {
        let answer = server.get_json(&format!("/v1/ad_click/a/counts?{query}"));
        let counts = answer["counts"].as_array().expect("buckets").iter();
        counts
            .map(|row| row["start"].as_str().expect("a time")[..16].to_owned())
            .collect()
    };
    // A Friday.
    for (query, expected) in [
        (
            "unit=minute&units=2",
            vec!["2012-03-16T18:39", "2012-03-16T18:40"],
        ),
        (
            "unit=hour&units=2",
            vec!["2012-03-16T17:00", "2012-03-16T18:00"],
        ),
        (
            "unit=week&units=2",
            vec!["2012-03-04T00:00", "2012-03-11T00:00"],
        ),
        (
            "unit=mweek&units=2",
            vec!["2012-03-05T00:00", "2012-03-12T00:00"],
        ),
        (
            "unit=month&units=2",
            vec!["2012-02-01T00:00", "2012-03-01T00:00"],
        ),
        (
            "unit=quarter&units=2",
            vec!["2011-10-01T00:00", "2012-01-01T00:00"],
        ),
        (
            "unit=year&units=2",
            vec!["2011-01-01T00:00", "2012-01-01T00:00"],
        ),
        (
            "unit=day&units=1&to=2013-01-01T00:00:00Z",
            vec!["2013-01-01T00:00"],
        ),
        (
            "unit=day&from=2012-03-01T23:59:59Z&to=2012-03-03T00:00:00Z",
            vec!["2012-03-01T00:00", "2012-03-02T00:00", "2012-03-03T00:00"],
        ),
        (
            "unit=hour&units=1&hour_offset=5.5",
            vec!["2012-03-17T00:00"],
        ),
    ] {
        assert_eq!(starts(query), expected, "{query}");
    }
}

#[test]
fn hours_of_a_half_hour_zone_count_where_they_start_and_are_not_aligned() {
    let (_data, server) = server();
    // 18:00Z is 23:30 in India: the whole hour counts on the 16th there.
    count(
        &server,
        "a",
        &[("2012-03-16T18:59:59Z", 5), ("2012-03-16T19:00:00Z", 2)],
    );
    let path = "/v1/l/a/counts?unit=day&units=2&timezone=Asia/Kolkata&to=2012-03-17T00:00:00Z";
    let answer = server.get_json(path);
    assert_eq!(answer["aligned"], false);
    let expected = json!([
        {"start": "2012-03-16T00:00:00+05:30", "count": 5},
        {"start": "2012-03-17T00:00:00+05:30", "count": 2},
    ]);
    assert_eq!(answer["counts"], expected);
}

#[test]
fn units_minus_one_lists_from_the_first_counted_bucket_to_now_or_the_last_counted_one() {
    let (_data, server) = server();
    let counts = |key: &str| -> Vec<u64> {
        let answer = server.get_json(&format!("/v1/l/{key}/counts?unit=day&units=-1"));
        let counts = answer["counts"].as_array().expect("buckets").iter();
        counts
            .map(|row| row["count"].as_u64().expect("a count"))
            .collect()
    };
    assert_eq!(counts("never"), [0]);
    count(&server, "past", &[("2012-03-13T01:00:00Z", 2)]);
    assert_eq!(counts("past"), [2, 0, 0, 0]);
    count(&server, "future", &[("2012-03-17T01:00:00Z", 3)]);
    assert_eq!(counts("future"), [3]);
    count(&server, "future", &[("2012-03-15T01:00:00Z", 1)]);
    assert_eq!(counts("future"), [1, 0, 3]);
}

#[test]
fn a_breakdown_lists_the_largest_values_and_sums_the_others() {
    let (_data, server) = server();
    for (country, hour, n) in [
        ("US", 17, 5),
        ("NZ", 17, 3),
        ("JP", 18, 3),
        ("", 18, 2),
        ("DE", 18, 1),
    ] {
        let path = format!("/v1/incr?key.l=a&by.c={country}&at=2012-03-16T{hour}:10:00Z&n={n}");
        assert_eq!(server.get(&path).status, 204);
    }
    let answer = server.get_json("/v1/l/a/by/c?limit=3");
    let value = |value: &str, count: u64| json!({"value": value, "count": count});
    assert_eq!(
        answer["values"],
        json!([value("US", 5), value("JP", 3), value("NZ", 3)])
    );
    assert_eq!(
        (&answer["other"], &answer["total"]),
        (&json!(3), &json!(14))
    );
    assert_eq!(answer["subtotal"], "c");
    let path = "/v1/l/a/by/c?unit=hour&units=3&limit=2&rollup=false&to=2012-03-16T19:00:00Z";
    let answer = server.get_json(path);
    let at = |hour: u64| format!("2012-03-16T{hour}:00:00+00:00");
    let expected = json!([
        {"start": at(17), "total": 8, "values": [value("US", 5), value("NZ", 3)], "other": 0},
        {"start": at(18), "total": 6, "values": [value("JP", 3), value("-", 2)], "other": 1},
        {"start": at(19), "total": 0, "values": [], "other": 0},
    ]);
    assert_eq!(answer["buckets"], expected);
    assert_eq!(answer.get("values"), None);
    let device = server.get_json("/v1/l/a/by/v");
    assert_eq!(device["values"], json!([value("-", 14)]));
}

#[test]
fn keys_are_percent_encoded_and_any_text_is_a_key_and_a_value() {
    let (_data, server) = server();
    for (key, encoded) in [
        ("a/b", "a%2Fb"),
        ("a b,c|d.e*f:g\"h'", "a%20b%2Cc%7Cd%2Ee%2Af%3Ag%22h%27"),
        ("é…", "%C3%A9%E2%80%A6"),
        ("line\nbreak", "line%0Abreak"),
        ("exactly12byt", "exactly12byt"),
        ("-", "-"),
    ] {
        let path = format!("/v1/incr?key.l={encoded}&by.r={encoded}&by.c=%C3%A9");
        assert_eq!(server.get(&path).status, 204, "{key:?}");
        let answer = server.get_json(&format!("/v1/l/{encoded}/by/r"));
        assert_eq!(answer["key"], key);
        assert_eq!(
            answer["values"],
            json!([{"value": key, "count": 1}]),
            "{key:?}"
        );
        assert_eq!(total(&server, &format!("l/{encoded}")), 1, "{key:?}");
    }
}

#[test]
fn as_of_reads_a_kept_generation_as_it_was() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &["--clock", "2012-03-16T18:40:00Z@0"]);
    let first = [("2012-03-16T10:00:00Z", 5)];
    count(&server, "a", &first);
    server.terminate();
    let server = Server::start(data.path(), &["--clock", "2012-03-17T00:01:00Z@0"]);
    assert_eq!(server.rebuild(), 1);
    count(
        &server,
        "a",
        &[("2012-03-16T11:00:00Z", 2), ("2012-03-17T00:00:30Z", 1)],
    );
    let read = |query: &str| {
        let answer = server.get_json(&format!("/v1/l/a/counts?{query}"));
        (answer["total"].clone(), answer["generation"].clone())
    };
    assert_eq!(read(""), (json!(8), json!(1)));
    assert_eq!(read("as_of=1"), (json!(5), json!(1)));
    assert_eq!(server.rebuild(), 2);
    assert_eq!(read(""), (json!(8), json!(2)));
    assert_eq!(read("as_of=2"), (json!(7), json!(2)));
    assert_eq!(read("as_of=1"), (json!(5), json!(1)));
    let by = server.get_json("/v1/l/a/by/c?as_of=1");
    assert_eq!(by["values"], json!([{"value": "-", "count": 5}]));
    let kept = server.get_json("/v1/admin/generations");
    let numbers = kept["generations"].as_array().expect("a list").iter();
    let numbers: Vec<_> = numbers.map(|entry| entry["generation"].as_u64()).collect();
    assert_eq!(
        (&kept["active"], numbers),
        (&json!(2), vec![Some(1), Some(2)])
    );
}

#[test]
fn health_readiness_and_metrics_answer() {
    let (_data, server) = server();
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.get("/v1/incr?key.l=a").status, 204);
    let metrics = server.get("/metrics");
    assert_eq!(metrics.status, 200);
    let line = |name: &str| metrics.text.lines().find(|line| line.starts_with(name));
    assert_eq!(
        line("tallyring_increments_total "),
        Some("tallyring_increments_total 1")
    );
    assert_eq!(
        line("tallyring_generation "),
        Some("tallyring_generation 0")
    );
    // A metric that counted nothing yet is there all the same, with its meaning.
    for name in [
        "tallyring_connections_refused_total",
        "tallyring_wrong_keys_total",
        "tallyring_statsd_bad_lines_total",
        "tallyring_statsd_dropped_total",
        "tallyring_shed_total{class=\"reads\"}",
        "tallyring_shed_total{class=\"operators' requests\"}",
    ] {
        assert_eq!(line(name), Some(&*format!("{name} 0")), "{}", metrics.text);
        let bare = name.split('{').next().expect("a name");
        assert!(line(&format!("# HELP {bare} ")).is_some(), "{bare}");
    }
}
