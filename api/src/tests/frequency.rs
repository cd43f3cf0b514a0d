//! Reach and frequency against a list of all events.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::actions::{DAY, NOW, post, schema, send};
use super::site::{Answer, Site};
use crate::{ActionRules, CapSection};

const FREQUENCY: &str = "/v1/actions/frequency";

async fn ask(site: &Site, question: &Value) -> Answer {
    post(site, FREQUENCY, question).await
}

/// One of many events: which user sees which ad where, when and how often.
fn event(number: i64) -> Value {
    let user = format!("user {}", number * number % 61);
    let n = if number % 97 == 0 { 7 } else { 1 };
    let kind = if number % 4 == 0 {
        "click"
    } else {
        "impression"
    };
    let mut event = json!({"id": number.to_string(), "type": kind, "at": NOW - number * 7_919 % (9 * DAY),
        "user": user, "n": n, "entities": {"ad": (number % 5).to_string(), "campaign": "a campaign of ads"}});
    if number % 3 > 0 {
        event["view"] = ["home", "the results of a search"][number as usize % 3 - 1].into();
    }
    event
}

/// How often each user did what a question asks for, by the number of times.
fn expected(events: &[Value], from: i64, is_asked: impl Fn(&Value) -> bool) -> BTreeMap<u64, u64> {
    let mut of_users: BTreeMap<&str, u64> = BTreeMap::new();
    for event in events {
        if event["at"].as_i64() > Some(from) && is_asked(event) {
            *of_users
                .entry(event["user"].as_str().expect("a user"))
                .or_default() += event["n"].as_u64().expect("a number");
        }
    }
    let mut by_times = BTreeMap::new();
    for times in of_users.into_values() {
        *by_times.entry(times).or_default() += 1;
    }
    by_times
}

#[tokio::test]
async fn users_are_counted_by_how_often_as_a_list_of_all_events_says() {
    let site = Site::open(schema(), NOW);
    let events: Vec<Value> = (0..4_000).map(event).collect();
    for chunk in events.chunks(500) {
        send(&site, chunk.into()).await;
    }
    for (entity, key, days, views) in [
        ("ad", "1", 7, json!(["home", "the results of a search"])),
        ("ad", "1", 7, json!(["home"])),
        ("ad", "2", 1, json!(null)),
        ("campaign", "a campaign of ads", 9, json!(null)),
        (
            "campaign",
            "a campaign of ads",
            2,
            json!(["the results of a search"]),
        ),
        ("ad", "none", 9, json!(null)),
    ] {
        let question = json!({"entity": {entity: key}, "action": "impression", "range": format!("{days}d"), "view": views});
        let answer = ask(&site, &question).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        let by_times = expected(&events, NOW - days * DAY, |event| {
            let is_of_views = views
                .as_array()
                .is_none_or(|views| views.contains(&event["view"]));
            event["type"] == "impression" && event["entities"][entity] == key && is_of_views
        });
        assert_eq!(
            answer["reach"],
            by_times.values().sum::<u64>(),
            "{question}"
        );
        let actions: u64 = by_times.iter().map(|(times, users)| times * users).sum();
        assert_eq!(answer["actions"], actions, "{question}");
        let rows = answer["frequency"].as_array().expect("a list");
        assert_eq!(rows.len(), 20);
        for (times, row) in (1..).zip(rows) {
            let of = if times == 20 {
                times..=u64::MAX
            } else {
                times..=times
            };
            let users: u64 = by_times.range(of).map(|(_, users)| users).sum();
            let mut whole = json!({"times": times, "users": users});
            if times == 20 {
                whole["or_more"] = true.into();
            }
            assert_eq!(row, &whole, "{question}");
        }
        assert_eq!(answer["approximate"], false);
    }
    // A moment of the past.
    let whole = json!({"entity": {"campaign": "a campaign of ads"}, "action": "click", "range": "1d", "at": NOW - 3 * DAY});
    let answer = ask(&site, &whole).await.json();
    let until =
        |event: &Value| event["type"] == "click" && event["at"].as_i64() <= Some(NOW - 3 * DAY);
    let by_times = expected(&events, NOW - 4 * DAY, until);
    assert_eq!(answer["reach"], by_times.values().sum::<u64>());
}

#[tokio::test]
async fn wrong_questions_for_all_users_name_the_field() {
    let site = Site::open_with_actions(
        schema(),
        NOW,
        ActionRules::new(10, BTreeMap::<String, CapSection>::new(), &schema()).expect("rules"),
    );
    let whole = json!({"entity": {"ad": "1"}, "action": "click", "range": "7d"});
    assert_eq!(ask(&site, &whole).await.status, 200);
    for (field, value, status, named) in [
        ("entity", json!({}), 400, "entity"),
        ("entity", json!({"ad": "1", "campaign": "2"}), 400, "entity"),
        ("entity", json!("ad"), 400, "entity"),
        ("entity", json!({"shop": "1"}), 422, "entity.shop"),
        ("entity", json!({"ad": ["1"]}), 400, "entity.ad"),
        ("entity", json!({"ad": "x".repeat(2_049)}), 400, "entity.ad"),
        ("entity", json!({"ad": ""}), 400, "entity.ad"),
        ("action", json!("sale"), 422, "action"),
        ("action", json!(null), 400, "action"),
        ("range", json!("11d"), 422, "range"),
        ("range", json!("a while"), 400, "range"),
        ("view", json!(["x".repeat(65)]), 400, "view"),
        ("at", json!(NOW + 1), 422, "at"),
        ("users", json!(["u"]), 400, "users"),
    ] {
        let mut question = whole.clone();
        question[field] = value;
        let answer = ask(&site, &question).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, said["field"].as_str()),
            (status, Some(named)),
            "{question}: {said}"
        );
    }
}
