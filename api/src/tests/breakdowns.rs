//! Breakdowns and users by the minute: exact for the last hours, and refused where they are not kept.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::{Grain, Namespace, Schema};

use super::site::Site;

/// 2012-03-16T18:40:30Z.
const NOW: i64 = 1_331_923_230;

fn schema(subtotals: &[&str]) -> Schema {
    Schema {
        namespaces: vec![Namespace {
            name: "l".into(),
            title: String::new(),
            grain: Grain::Hour,
            subtotals: subtotals.iter().map(|&name| name.into()).collect(),
            minutes: true,
            uniques: true,
        }],
        events: Vec::new(),
        ratios: Vec::new(),
        filters: Vec::new(),
        lists: Vec::new(),
        titles: BTreeMap::new(),
        settings: BTreeMap::new(),
    }
}

/// Two clicks of one minute, one of the minute after, one of the hour before.
async fn site() -> Site {
    let site = Site::open(schema(&["c", "v", "c*v"]), NOW);
    let click = |at: i64, country: &str, device: &str, user: &str| json!({"at": at, "keys": {"l": "abc"}, "by": {"c": country, "v": device}, "user": user});
    site.count(json!([
        click(NOW - 120, "US", "phone", "ann"),
        click(NOW - 115, "JP", "phone", "bob"),
        click(NOW - 60, "US", "desktop", "ann"),
        click(NOW - 3_600, "US", "phone", "cid"),
    ]))
    .await;
    site
}

#[tokio::test]
async fn all_keys_together_are_broken_down_by_the_values_of_a_subtotal() {
    let site = site().await;
    let other = json!([{"at": NOW - 60, "keys": {"l": "xyz"}, "by": {"c": "JP"}}]);
    site.count(other).await;
    let by = site.get("/v1/l/by?subtotal=c&units=1").await.json();
    let texts = |found: &[(String, u64)]| -> Vec<String> {
        let texts = found.iter().map(|(text, count)| format!("{text}:{count}"));
        texts.collect()
    };
    assert_eq!(texts(&values(&by)), ["US:3", "JP:2"]);
    assert_eq!((&by["total"], &by["other"]), (&json!(5), &json!(0)));
    assert!(by.get("key").is_none(), "{by}");
    let by = site.get("/v1/l/by?subtotal=v&units=1&limit=1").await.json();
    assert_eq!(texts(&values(&by)), ["phone:3"]);
    assert_eq!((&by["total"], &by["other"]), (&json!(5), &json!(2)));
    let by = site
        .get("/v1/namespaces/l/by.csv?subtotal=c*v&units=1")
        .await;
    let rows: Vec<&str> = by.text.lines().collect();
    let ties = ["JP*-", "JP*phone", "US*desktop"].map(|value| format!("{value},1,value"));
    assert_eq!(rows[..2], ["value,count,kind", "US*phone,2,value"]);
    assert_eq!(rows[2..], ties);
    // An hour of it.
    let hour = "/v1/l/by?subtotal=c&unit=hour&units=1";
    assert_eq!(
        texts(&values(&site.get(hour).await.json())),
        ["JP:2", "US:2"]
    );
    for (query, status, said) in [
        ("", 400, "must be given"),
        (
            "?subtotal=x",
            404,
            "must be one of the subtotals of l, c, v, c*v",
        ),
        (
            "?subtotal=c&unit=minute",
            422,
            "must be longer than a minute",
        ),
        ("?subtotal=c&rollup=false", 400, "rollup"),
    ] {
        let refused = site.get(&format!("/v1/l/by{query}")).await;
        assert_eq!(refused.status, status, "{query}: {}", refused.text);
        assert!(refused.text.contains(said), "{query}: {}", refused.text);
    }
}

fn values(of: &Value) -> Vec<(String, u64)> {
    let values = of["values"].as_array().expect("values").iter();
    let value = |value: &Value| {
        let text = value["value"].as_str().expect("a value").to_owned();
        (text, value["count"].as_u64().expect("a count"))
    };
    values.map(value).collect()
}

#[tokio::test]
async fn the_last_hour_is_broken_down_to_the_minute() {
    let site = site().await;
    let by = site.get("/v1/l/abc/by/c*v?unit=minute&units=60").await;
    let by = by.json();
    let found = values(&by);
    let found: Vec<(&str, u64)> = found.iter().map(|(text, n)| (text.as_str(), *n)).collect();
    assert_eq!(
        found,
        [("JP*phone", 1), ("US*desktop", 1), ("US*phone", 1)],
        "the click of an hour ago lies just before: {by}"
    );
    assert_eq!((&by["total"], &by["aligned"]), (&json!(3), &json!(true)));
    let by = site.get("/v1/l/abc/by/c?unit=minute&units=61").await.json();
    let us = ("US".to_owned(), 3);
    assert_eq!((values(&by)[0].clone(), &by["total"]), (us, &json!(4)));
    // By the minute, and from one minute to another.
    let rows =
        "/v1/l/abc/by/c?unit=minute&rollup=false&from=2012-03-16T18:38:00Z&to=2012-03-16T18:39:59Z";
    let rows = site.get(rows).await.json();
    let buckets = rows["buckets"].as_array().expect("buckets");
    let one = |country: &str| vec![(country.to_owned(), 1)];
    assert_eq!(
        values(&buckets[0]),
        [one("JP"), one("US")].concat(),
        "{rows}"
    );
    assert_eq!(values(&buckets[1]), one("US"));
    assert_eq!(buckets.len(), 2);
    assert_eq!(buckets[0]["total"], 2);
}

#[tokio::test]
async fn breakdowns_by_minute_have_all_forms() {
    let site = site().await;
    let csv = site
        .get("/v1/l/abc/by/v.csv?unit=minute&units=3&rollup=false")
        .await
        .text;
    assert!(
        csv.contains("2012-03-16T18:38:00+00:00") && csv.contains("phone"),
        "{csv}"
    );
    let svg = site.get("/v1/l/abc/by/v.svg?unit=minute&units=3").await;
    assert!(svg.text.contains("<svg"), "{}", svg.text);
    let body = r#"{"queries":[{"namespace":"l","key":"abc","unit":"minute","units":60,"by":"v"},
        {"namespace":"l","key":"abc","unit":"minute","units":60}]}"#;
    let query = Request::post("/v1/query").body(Body::from(body)).unwrap();
    let answers = site.ask(query).await.json();
    let [by, counts] = [0, 1].map(|index| &answers["answers"][index]);
    assert_eq!(by["total"], counts["total"]);
    assert_eq!(
        values(by)[0],
        ("phone".to_owned(), 2),
        "the values sum to the total: {answers}"
    );
}

#[tokio::test]
async fn users_are_told_apart_by_the_minute() {
    let site = site().await;
    let path = "/v1/l/abc/uniques?unit=minute&units=3";
    let users = site.get(path).await.json();
    let rows = users["counts"].as_array().expect("rows").iter();
    let rows: Vec<&Value> = rows.map(|row| &row["estimate"]).collect();
    assert_eq!(rows, [&json!(2), &json!(1), &json!(0)], "{users}");
    assert_eq!(users["estimate"], 2, "ann is counted once in all");
    let hours = site.get("/v1/l/abc/uniques?unit=hour&units=2").await.json();
    assert_eq!(hours["estimate"], 3);
    let before = site.get("/v1/l/abc/uniques?unit=minute&units=240").await;
    assert_eq!(
        (before.status, &before.json()["field"]),
        (422, &json!("from"))
    );
}

#[tokio::test]
async fn a_range_before_what_is_kept_says_since_when_it_is() {
    let site = site().await;
    for (path, from) in [
        ("abc/by/c", "2012-03-16T14:59:00Z"),
        ("never/by/c", "2012-03-15T15:00:00Z"),
        ("abc/uniques", "2012-03-16T14:59:00Z"),
    ] {
        let answer = site
            .get(&format!("/v1/l/{path}?unit=minute&from={from}"))
            .await;
        let problem = answer.json();
        assert_eq!(
            (answer.status, &problem["field"]),
            (422, &json!("from")),
            "{path}: {problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("before 2012-03-16T15:00:00Z") && detail.contains("unit=hour"),
            "{detail}"
        );
    }
    let kept = site
        .get("/v1/l/abc/by/c?unit=minute&from=2012-03-16T15:00:00Z")
        .await;
    assert_eq!(kept.json()["total"], 4, "{}", kept.text);
}

#[tokio::test]
async fn what_was_counted_before_its_subtotal_was_declared_is_not_told_by_the_minute() {
    let mut site = Site::open(schema(&["v"]), NOW);
    site.count(json!([{"at": NOW - 7_200, "keys": {"l": "abc"}, "by": {"v": "phone"}}]))
        .await;
    site.reopen(schema(&["v", "c"]), NOW);
    site.count(json!([{"at": NOW, "n": 2, "keys": {"l": "abc"}, "by": {"c": "US"}}]))
        .await;
    let since = "/v1/l/abc/by/c?unit=minute&from=2012-03-16T17:00:00Z";
    assert_eq!(site.get(since).await.json()["total"], 2);
    let before = "/v1/l/abc/by/c?unit=minute&from=2012-03-16T16:30:00Z";
    let before = site.get(before).await;
    let problem = before.json();
    assert_eq!(
        (before.status, &problem["field"]),
        (422, &json!("unit")),
        "{problem}"
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("from 2012-03-16T17:00:00Z on"), "{detail}");
    let by_v = "/v1/l/abc/by/v?unit=minute&from=2012-03-16T16:30:00Z";
    assert_eq!(site.get(by_v).await.json()["total"], 3);
}
