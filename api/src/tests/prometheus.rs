//! Prometheus' HTTP API: its counts are those of other reads, and its refusals say what to change.

mod agree;
mod refusals;

use axum::body::Body;
use axum::http::Request;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tallyring_records::{Grain, Namespace, Schema};

use super::site::{Answer, Site};

/// 2012-03-16T18:40:00Z
const NOW: i64 = 1_331_923_200;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
/// The last midnight before that.
const TODAY: i64 = NOW - NOW % DAY;

/// Links, which are also broken down by country and device at once, and hours with minutes beside.
fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].subtotals.push("c*v".to_owned());
    schema.namespaces.push(Namespace {
        name: "m".into(),
        title: String::new(),
        grain: Grain::Hour,
        subtotals: vec!["c".into()],
        minutes: true,
        uniques: false,
    });
    schema
}

/// Links with clicks of yesterday and today.
async fn counted() -> Site {
    let site = Site::open(schema(), NOW);
    let click = |at: i64, n: u64, key: &str, country: &str, device: &str| json!({"at": at, "n": n, "keys": {"l": key, "u": "jehiah"}, "by": {"c": country, "v": device}});
    site.count(json!([
        click(TODAY - 2 * HOUR, 1, "abc", "US", "mobile"),
        click(TODAY, 2, "abc", "US", "desktop"),
        click(TODAY + HOUR, 4, "abc", "DE", "mobile"),
        click(NOW, 8, "abc", "DE", "mobile"),
        click(TODAY + HOUR, 16, "abd", "FR", "mobile"),
        click(
            TODAY + 2 * HOUR,
            32,
            "a longer key, with spaces",
            "US",
            "mobile"
        ),
    ]))
    .await;
    site
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A query at an instant.
async fn at(site: &Site, query: &str, instant: i64) -> Answer {
    let path = format!("/api/v1/query?query={}&time={instant}", encoded(query));
    site.get(&path).await
}

/// The values of a query at an instant, each with its labels, by their order.
async fn values(site: &Site, query: &str, instant: i64) -> Vec<(Value, String)> {
    let answer = at(site, query, instant).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    let answer = answer.json();
    let result = answer["data"]["result"].as_array().unwrap();
    let mut values: Vec<_> = result
        .iter()
        .map(|of| {
            (
                of["metric"].clone(),
                of["value"][1].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    if !query.starts_with("topk") {
        values.sort_by_key(|(metric, _)| metric.to_string());
    }
    values
}

/// The points of each series from `start` to `end`.
async fn points(
    site: &Site,
    query: &str,
    (start, end, step): (i64, i64, i64),
    more: &str,
) -> Vec<(Value, Vec<(i64, String)>)> {
    let query = encoded(query);
    let path =
        format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}{more}");
    let answer = site.get(&path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    let answer = answer.json();
    assert_eq!(answer["data"]["resultType"], "matrix");
    let point = |of: &Value| (of[0].as_i64().unwrap(), of[1].as_str().unwrap().to_owned());
    let result = answer["data"]["result"].as_array().unwrap().iter();
    result
        .map(|of| {
            let values = of["values"].as_array().unwrap().iter();
            (of["metric"].clone(), values.map(point).collect())
        })
        .collect()
}

/// A query, and its values by their labels.
type Case<'c> = (&'c str, Vec<(Value, String)>);

async fn check_values(cases: Vec<Case<'_>>) {
    let site = counted().await;
    for (query, mut expected) in cases {
        if !query.starts_with("topk") {
            expected.sort_by_key(|(metric, _)| metric.to_string());
        }
        assert_eq!(values(&site, query, NOW).await, expected, "{query}");
    }
}

fn abc() -> Value {
    json!({"namespace": "l", "key": "abc"})
}

fn of(n: u64) -> String {
    n.to_string()
}

#[tokio::test]
async fn selectors_have_their_values() {
    check_values(vec![
        // The hour that runs counts as far as it has come.
        (
            r#"increase(tallyring_count{namespace="l",key="abc"}[1h])"#,
            vec![(abc(), of(8))],
        ),
        (
            r#"increase({__name__="tallyring_count",namespace="l",key="abc"}[1d])"#,
            vec![(abc(), of(15))],
        ),
        (
            r#"increase(tallyring_count{namespace="l",key="abc"}[19h] offset 1d)"#,
            vec![(abc(), of(0))],
        ),
        (
            r#"increase(tallyring_count{namespace="l",key="abc"}[1d] offset 19h)"#,
            vec![(abc(), of(1))],
        ),
        (
            r#"rate(tallyring_count{namespace="l",key="abc"}[1h]) * 3600 / 2"#,
            vec![(abc(), of(4))],
        ),
        (
            r#"tallyring_count{namespace="l",key="abc"}"#,
            vec![(
                json!({"__name__": "tallyring_count", "namespace": "l", "key": "abc"}),
                of(15),
            )],
        ),
        (
            r#"sum(increase(tallyring_count{namespace="l"}[1d]))"#,
            vec![(json!({}), of(63))],
        ),
        (
            r#"sum by (namespace) (increase(tallyring_count{namespace=~"l|u|d"}[1d]))"#,
            vec![
                (json!({"namespace": "d"}), of(0)),
                (json!({"namespace": "l"}), of(63)),
                (json!({"namespace": "u"}), of(63)),
            ],
        ),
        (
            r#"sum by (c) (increase(tallyring_count{namespace="l",key="abc"}[1d]))"#,
            vec![(json!({"c": "DE"}), of(12)), (json!({"c": "US"}), of(3))],
        ),
    ])
    .await;
}

#[tokio::test]
async fn sums_have_their_values() {
    check_values(vec![
        (
            r#"sum(increase(tallyring_count{namespace="l",key="abc",c="US"}[1d])) by (v)"#,
            vec![
                (json!({"v": "desktop"}), of(2)),
                (json!({"v": "mobile"}), of(1)),
            ],
        ),
        (
            r#"sum by (c) (increase(tallyring_count{namespace="l"}[1d]))"#,
            vec![
                (json!({"c": "DE"}), of(12)),
                (json!({"c": "FR"}), of(16)),
                (json!({"c": "US"}), of(35)),
            ],
        ),
        (
            r#"sum(increase(tallyring_count{namespace="l",c!="US"}[1d]))"#,
            vec![(json!({}), of(28))],
        ),
        (
            r#"increase(tallyring_count{namespace="l",key="abc",c=~"US|FR"}[1d])"#,
            vec![(json!({"namespace": "l", "key": "abc", "c": "US"}), of(3))],
        ),
        // A value that is named has zeros where it never counted.
        (
            r#"increase(tallyring_count{namespace="l",key="abc",c="JP"}[1d])"#,
            vec![(json!({"namespace": "l", "key": "abc", "c": "JP"}), of(0))],
        ),
        (
            r#"increase(tallyring_count{namespace="l",key="never"}[1d])"#,
            vec![(json!({"namespace": "l", "key": "never"}), of(0))],
        ),
        (
            r#"sum by (key) (increase(tallyring_count{namespace="l",key=~"ab.*"}[1d]))"#,
            vec![
                (json!({"key": "abc"}), of(15)),
                (json!({"key": "abd"}), of(16)),
            ],
        ),
    ])
    .await;
}

#[tokio::test]
async fn rankings_and_operators_have_their_values() {
    check_values(vec![
        (
            r#"topk(2, increase(tallyring_count{namespace="l"}[1d]))"#,
            vec![
                (
                    json!({"namespace": "l", "key": "a longer key, with spaces"}),
                    of(32),
                ),
                (json!({"namespace": "l", "key": "abd"}), of(16)),
            ],
        ),
        (
            r#"topk(1, sum by (c) (increase(tallyring_count{namespace="l"}[1d])))"#,
            vec![(json!({"c": "US"}), of(35))],
        ),
        (
            r#"increase(tallyring_count{namespace="l"}[1d]) > 15"#,
            vec![
                (
                    json!({"namespace": "l", "key": "a longer key, with spaces"}),
                    of(32),
                ),
                (json!({"namespace": "l", "key": "abd"}), of(16)),
            ],
        ),
        (
            r#"sum(increase(tallyring_count{namespace="l"}[1h])) / sum(increase(tallyring_count{namespace="l"}[1d])) * -63"#,
            vec![(json!({}), of(0).replace('0', "-8"))],
        ),
        (
            r#"2 - increase(tallyring_count{namespace="l",key="abc"}[1h])"#,
            vec![(abc(), "-6".to_owned())],
        ),
        (
            r#"increase(tallyring_count{namespace="l",key="abc"}[1h]) / 0"#,
            vec![(abc(), "+Inf".to_owned())],
        ),
        (
            r#"increase(tallyring_count{namespace="nowhere",key="abc"}[1h])"#,
            vec![],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_search_within_alternatives_is_refused_and_an_unknown_namespace_is_told() {
    let site = counted().await;
    let query =
        r#"sum by (key) (increase(tallyring_count{namespace="l",key=~".*KEY.*|nothing.*"}[1d]))"#;
    assert_eq!(at(&site, query, NOW).await.status, 400, "{query}");
    let unknown = at(&site, r#"tallyring_count{namespace="nowhere"}"#, NOW).await;
    let unknown = unknown.json();
    let warning = unknown["warnings"][0].as_str().unwrap();
    assert!(warning.contains("namespaces are l, u"), "{warning}");
}

/// Requests as Grafana's Prometheus data source sends them, with `timezone` as a parameter of the data source; one a
/// line: method, path, and form.
const REQUESTS: &str = include_str!("prometheus/grafana.txt");

/// The answers to the requests, in their order.
async fn replayed(site: &Site) -> Vec<Value> {
    let mut answers = Vec::new();
    for line in REQUESTS.lines().filter(|line| !line.starts_with('#')) {
        let [method, path, form] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.body(Body::from(form.to_owned())).unwrap();
        let answer = site.ask(request).await;
        assert_eq!(answer.status, 200, "{line}: {}", answer.text);
        let answer = answer.json();
        assert_eq!(answer["status"], "success", "{line}");
        answers.push(answer["data"].clone());
    }
    answers
}

#[tokio::test]
async fn a_stock_data_source_learns_what_there_is() {
    let answers = replayed(&counted().await).await;
    let [
        health,
        build,
        metadata,
        labels,
        names,
        namespaces,
        keys,
        searched,
        series,
        ..,
    ] = &answers[..]
    else {
        panic!("{}", answers.len());
    };
    assert_eq!(health, &json!({"resultType": "scalar", "result": [4, "2"]}));
    assert_eq!(build["version"], "2.24.0");
    assert_eq!(metadata["tallyring_count"][0]["type"], "counter");
    let expected = json!(["__name__", "c", "key", "namespace", "r", "v"]);
    assert_eq!(labels, &expected);
    assert_eq!(names, &json!(["tallyring_count"]));
    assert_eq!(namespaces, &json!(["d", "l", "m", "u"]));
    assert_eq!(keys, &json!(["a longer key, with spaces", "abc", "abd"]));
    assert_eq!(searched, &json!(["abc", "abd"]));
    assert_eq!(
        series[1],
        json!({"__name__": "tallyring_count", "key": "abc", "namespace": "l"})
    );
}

#[tokio::test]
async fn a_stock_data_source_draws_what_other_reads_say() {
    let site = counted().await;
    let counts = async |path: &str| -> Vec<String> {
        let answer = site.get(path).await.json();
        let counts = answer["counts"].as_array().unwrap().iter();
        counts.map(|of| of["count"].to_string()).collect()
    };
    let values = |answer: &Value| answer["result"][0]["values"].as_array().unwrap().clone();
    let told = |answer: &Value| -> Vec<String> {
        let values = values(answer).into_iter();
        values
            .map(|of| of[1].as_str().unwrap().to_owned())
            .collect()
    };
    let answers = replayed(&site).await;
    let [.., hours, days, top, by] = &answers[..] else {
        panic!("{}", answers.len());
    };
    // A point counts the bucket that ends there.
    let hourly = "/v1/l/abc/counts?unit=hour&from=2012-03-16T00:00:00Z&to=2012-03-16T17:59:59Z";
    assert_eq!(told(hours), counts(hourly).await);
    let daily = "/v1/l/counts?from=2012-03-09&to=2012-03-15&timezone=America/New_York";
    assert_eq!(told(days), counts(daily).await);
    let midnights = values(days).into_iter();
    let midnights: Vec<i64> = midnights.map(|of| of[0].as_i64().unwrap()).collect();
    assert_eq!(midnights[1] - midnights[0], DAY);
    let lost = midnights[1] + DAY - midnights[2];
    assert_eq!(lost, HOUR, "clocks went forward on the 11th");
    let ranking = site.get("/v1/l/top?units=1").await.json();
    for place in 0..2 {
        let (found, key) = (&top["result"][place], &ranking["keys"][place]);
        assert_eq!(found["metric"]["key"], key["key"]);
        assert_eq!(found["value"][1], key["count"].to_string());
    }
    let countries = site.get("/v1/l/abc/by/c?units=1").await.json();
    let found = &by["result"][0];
    assert_eq!(found["metric"], json!({"c": "DE"}));
    assert_eq!(
        found["value"][1],
        countries["values"][0]["count"].to_string()
    );
}

#[tokio::test]
async fn coarse_counts_say_that_a_point_divides_them_and_minutes_are_exact() {
    let site = Site::open(schema(), NOW);
    site.count(json!([
        {"at": TODAY + 90, "n": 1, "keys": {"l": "abc", "m": "abc"}},
        {"at": TODAY + HOUR - 1, "n": 2, "keys": {"l": "abc", "m": "abc"}},
    ]))
    .await;
    let half = |namespace: &str| {
        format!("increase(tallyring_count{{namespace=\"{namespace}\",key=\"abc\"}}[30m])")
    };
    let range = (TODAY + HOUR / 2, TODAY + HOUR, HOUR / 2);
    let told = async |namespace| {
        let points = points(&site, &half(namespace), range, "").await;
        let values: Vec<String> = points[0].1.iter().map(|(_, value)| value.clone()).collect();
        let answer = at(&site, &half(namespace), TODAY + HOUR / 2).await.json();
        (values, answer["infos"].clone())
    };
    let (values, infos) = told("l").await;
    assert_eq!(values, ["3", "0"], "an hour counts where it starts");
    let info = infos[0].as_str().unwrap();
    assert_eq!(
        info,
        "a point or a range divides base buckets of l: each counts where it starts"
    );
    let (values, infos) = told("m").await;
    assert_eq!(
        (values, infos),
        (vec!["1".to_owned(), "2".to_owned()], Value::Null)
    );
    // A range that ends minutes before now ends there, though its hour is not over.
    site.count(json!([{"at": NOW - 120, "n": 5, "keys": {"m": "abc"}}]))
        .await;
    let minutes = r#"increase(tallyring_count{namespace="m",key="abc"}[5m]"#;
    for (query, instant, value) in [
        (format!("{minutes})"), NOW, "5"),
        (format!("{minutes} offset 10m)"), NOW, "0"),
        (format!("{minutes})"), NOW - 1_200, "0"),
    ] {
        let found = at(&site, &query, instant).await.json();
        let found = &found["data"]["result"][0]["value"][1];
        assert_eq!(found, value, "{query} at {instant}");
    }
}

#[tokio::test]
async fn numbers_are_written_as_prometheus_does() {
    let site = counted().await;
    for (query, value) in [
        ("1e21 + 0", "1e21"),
        ("1 / 1e9", "1e-9"),
        ("1 / 8", "0.125"),
        ("1e20 + 0", "100000000000000000000"),
    ] {
        let answer = at(&site, query, TODAY).await.json();
        assert_eq!(answer["data"]["result"][1], value, "{query}: {answer}");
    }
}

#[tokio::test]
async fn days_of_a_zone_count_as_far_as_they_have_come() {
    let site = counted().await;
    for (unit, units, range) in [("day", 1, "1d"), ("day", 7, "1w"), ("day", 2, "48h")] {
        for zone in ["UTC", "utc", "America/New_York", "Asia/Tokyo"] {
            let query = format!(
                r#"sum(increase(tallyring_count{{namespace="l",timezone="{zone}"}}[{range}]))"#
            );
            let value = values(&site, &query, NOW).await;
            let path = format!("/v1/l/counts?unit={unit}&units={units}&timezone={zone}");
            let total = site.get(&path).await.json()["total"].to_string();
            assert_eq!(value, [(json!({}), total)], "{query}");
        }
    }
    // A bar for each day that begins there.
    let query = r#"increase(tallyring_count{namespace="l",key="abc"}[1d] offset -1d)"#;
    let bars = points(
        &site,
        query,
        (TODAY - DAY, TODAY + DAY, DAY),
        "&timezone=UTC",
    )
    .await;
    let expected = [(TODAY - DAY, "1".to_owned()), (TODAY, "14".to_owned())];
    assert_eq!(bars[0].1, expected, "no day that has not begun");
}
