//! A wrong breakdown value does not cost the click: the total counts, and the record says what was set aside.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::{EventType, Schema};

use super::site::Site;
use crate::WriteRules;

const NOW: i64 = 1_331_923_200;

async fn send(site: &Site, path: &str, key: &str, body: &Value) -> Value {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()))
        .unwrap();
    let answer = site.ask(request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

async fn values(site: &Site, path: &str) -> Value {
    let path = format!("/v1/{path}?unit=day&units=1");
    site.get(&path).await.json()["values"].clone()
}

#[tokio::test]
async fn a_wrong_value_counts_under_a_dash_and_the_verdict_tells_it() {
    let mut site = Site::open(Schema::default_clicks(), NOW);
    let long = "x".repeat(3_000);
    let bad = json!([
        {"keys": {"l": "a"}, "by": {"c": "US", "x": "1"}, "id": "undeclared"},
        {"keys": {"l": "a"}, "by": {"c": 7, "r": long}, "id": "wrong"},
        {"keys": {"l": "a"}, "by": {"c": "US"}, "id": "good"},
    ]);
    let answer = send(&site, "/v1/increments", "k", &bad).await;
    let wanted = json!({"accepted": 3, "duplicates": 0, "late": 0, "set_aside": 3});
    assert_eq!(answer, wanted);
    for (query, status) in [
        ("by.v=1&by.v=2&id=twice", 204),
        ("by.x=1", 204),
        ("key.x=a", 400),
    ] {
        let answer = site.get(&format!("/v1/incr?key.l=a&{query}")).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
    }
    let by_country = json!([{"value": "-", "count": 3}, {"value": "US", "count": 2}]);
    // The store counts by the declaration that was in force when the record was written.
    let mut declaring = Schema::default_clicks();
    declaring.namespaces[0].subtotals.push("x".into());
    for schema in [Schema::default_clicks(), declaring] {
        site.reopen(schema, NOW);
        assert_eq!(values(&site, "l/a/by/c").await, by_country);
        let again = send(&site, "/v1/increments", "k", &bad).await;
        assert_eq!(again, wanted, "a retry gets its first answer");
    }
    let verdict = |id: &'static str| {
        let path = format!("/v1/events/{id}");
        let site = &site;
        async move { site.get(&path).await.json()["counted"]["set_aside"].clone() }
    };
    let noted = json!([{"field": "by.x", "value": "1"}]);
    assert_eq!(verdict("undeclared").await, noted);
    let short = format!("{}…", "x".repeat(64));
    let noted = json!([{"field": "by.c", "value": "7"}, {"field": "by.r", "value": short}]);
    assert_eq!(verdict("wrong").await, noted);
    let noted = json!([{"field": "by.v", "value": "1"}, {"field": "by.v", "value": "2"}]);
    assert_eq!(verdict("twice").await, noted);
    assert_eq!(verdict("good").await, Value::Null);
}

/// Clicks of ads, broken down by view and referrer.
fn clicks() -> Schema {
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].name = "ad_click".into();
    schema.namespaces[0].subtotals = vec!["view".into(), "referrer".into()];
    schema.titles.clear();
    schema.events.push(EventType {
        name: "click".into(),
        entities: vec!["ad".into()],
        lateness_seconds: 300,
        actions: false,
    });
    schema
}

#[tokio::test]
async fn an_event_keeps_what_it_says_and_counts_its_view_and_referrer() {
    let rules = WriteRules {
        evidence: true,
        ..WriteRules::default()
    };
    let site = Site::open_with(clicks(), NOW, rules);
    let full = json!({
        "id": "full", "type": "click", "entities": {"ad": "a"}, "n": 3, "view": "home", "by": {"view": "home"},
        "insertion": "i", "referrer": "http://a/", "evidence": {"ip": "192.0.2.1", "ua": "curl"},
        "meta": {"a": [1]}, "unknown": 7,
    });
    let long = json!({
        "id": "long", "type": "click", "entities": {"ad": "a"}, "insertion": "i".repeat(257),
        "referrer": "r".repeat(2_049), "evidence": 7, "meta": {"a": "m".repeat(4_096)},
    });
    let answer = send(&site, "/v1/events", "k", &json!([full, long])).await;
    let wanted = json!({"accepted": 2, "duplicates": 0, "late": 0, "set_aside": 4});
    assert_eq!(answer, wanted);
    let by = |value: &str| json!([{"value": value, "count": 3}, {"value": "-", "count": 1}]);
    assert_eq!(values(&site, "ad_click/a/by/view").await, by("home"));
    assert_eq!(
        values(&site, "ad_click/a/by/referrer").await,
        by("http://a/")
    );
    let counted = site.get("/v1/events/full").await.json()["counted"].clone();
    for (field, value) in [
        ("insertion", json!("i")),
        ("referrer", json!("http://a/")),
        ("evidence", json!({"ip": "192.0.2.1", "ua": "curl"})),
        ("meta", json!({"a": [1], "unknown": 7})),
    ] {
        assert_eq!(counted[field], value, "{field}");
    }
    let differing = json!({"id": "x", "type": "click", "entities": {"ad": "a"}, "view": "home", "by": {"view": "cart"}});
    let request = Request::post("/v1/events").body(Body::from(differing.to_string()));
    let answer = site.ask(request.unwrap()).await;
    assert_eq!(
        (answer.status, answer.json()["field"].clone()),
        (400, json!("by.view"))
    );
}

#[tokio::test]
async fn evidence_is_kept_only_where_it_is_asked_for() {
    let site = Site::open(clicks(), NOW);
    let event = json!({"id": "e", "type": "click", "entities": {"ad": "a"}, "evidence": {"ip": "192.0.2.1"}});
    send(&site, "/v1/events", "k", &event).await;
    let counted = site.get("/v1/events/e").await.json()["counted"].clone();
    assert_eq!(counted["evidence"], Value::Null);
}
