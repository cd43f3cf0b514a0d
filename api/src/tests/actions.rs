//! Questions about actions, and caps, through the API.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::{EventType, Grain, Namespace, Schema};

use super::site::{Answer, Site};
use crate::{ActionRules, CapSection};

/// 2012-03-16T18:40:47Z.
pub(super) const NOW: i64 = 1_331_923_247;
pub(super) const DAY: i64 = 86_400;
const ENTITIES: [&str; 4] = ["ad", "ad_group", "campaign", "advertiser"];

pub(super) fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    for name in ["click", "impression"] {
        let event = EventType {
            name: name.to_owned(),
            entities: ENTITIES.map(str::to_owned).to_vec(),
            lateness_seconds: 300,
            actions: true,
        };
        for entity in &event.entities {
            schema.namespaces.push(Namespace {
                name: event.namespace_of(entity),
                title: String::new(),
                grain: Grain::Hour,
                subtotals: Vec::new(),
                minutes: true,
                uniques: true,
            });
        }
        schema.events.push(event);
    }
    schema
}

pub(super) fn caps(sections: Value) -> ActionRules {
    let sections: BTreeMap<String, CapSection> = serde_json::from_value(sections).expect("caps");
    ActionRules::new(32, sections, &schema()).expect("caps")
}

pub(super) async fn post(site: &Site, path: &str, body: &Value) -> Answer {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()));
    site.ask(request.expect("a request")).await
}

pub(super) async fn send(site: &Site, events: Value) {
    let answer = post(site, "/v1/events", &events).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// The counts of the user `u`.
pub(super) async fn counts(site: &Site, question: Value) -> Value {
    let answer = post(site, "/v1/actions/query", &question).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["users"]["u"].clone()
}

pub(super) fn seen(id: &str, at: i64, ad: &str) -> Value {
    json!({"id": id, "type": "impression", "at": at, "user": "u", "entities": {"ad": ad}})
}

fn inserted(id: &str, at: i64, ad: &str, insertion: &str) -> Value {
    let mut event = seen(id, at, ad);
    event["insertion"] = insertion.into();
    event
}

#[tokio::test]
async fn a_small_question_and_a_large_one_which_the_router_takes_have_one_answer() {
    let site = Site::open(schema(), NOW);
    send(&site, json!([seen("1", NOW, "7"), seen("2", NOW, "7")])).await;
    let question = |ad: &str| {
        json!({"users": ["u", "w"], "ranges": ["1h", "7d"], "action": ["impression", "click"],
               "entity": {"ad": [ad, "long ad \" name"], "campaign": ["7"]}})
    };
    let ask = async |path: &str, body: String| {
        let request = Request::post(path).header("accept-encoding", "identity");
        site.ask(request.body(Body::from(body)).expect("a request"))
            .await
    };
    for (path, ad, status) in [
        ("/v1/actions/query", "7", 200),
        ("/v1/actions/query?at=1", "7", 400),
        ("/v1/actions/query", &"7".repeat(2_100), 400),
    ] {
        let body = question(ad).to_string();
        let (small, large) = (body.clone(), body + &" ".repeat(20_000));
        let (small, large) = (ask(path, small).await, ask(path, large).await);
        assert_eq!((small.status, large.status), (status, status), "{path}");
        assert_eq!(small.text, large.text);
        let told = |answer: &Answer| {
            let headers = &answer.headers;
            ["content-type", "cache-control"].map(|name| headers.get(name).cloned())
        };
        assert_eq!(told(&small), told(&large));
        assert!(small.headers.contains_key("x-request-id"));
    }
}

#[tokio::test]
async fn an_insertion_counts_once_a_day_and_an_event_once_however_often_it_comes() {
    let site = Site::open(schema(), NOW);
    let midnight = NOW - NOW % DAY;
    // Seen again on the same day over the end of an hour, and on the next day; another insertion.
    let events = json!([
        inserted("a", midnight - 3_700, "1", "i1"),
        inserted("b", midnight - 3_500, "1", "i1"),
        inserted("c", midnight + 60, "1", "i1"),
        inserted("d", midnight + 120, "1", "i2"),
        inserted("e", midnight + 180, "3", "i3"),
    ]);
    for _ in 0..3 {
        send(&site, events.clone()).await;
    }
    let mut question = json!({"users": ["u"], "ranges": ["7d"], "action": ["impression"],
        "entity": {"ad": ["1", "2", "3"]}, "distinct": "insertion", "per": "day"});
    let by_day = counts(&site, question.clone()).await;
    assert_eq!(
        by_day["7d"]["impression"]["ad"],
        json!({"1": 3, "2": 0, "3": 1})
    );
    question["per"] = "range".into();
    let by_range = counts(&site, question.clone()).await;
    assert_eq!(
        by_range["7d"]["impression"]["ad"],
        json!({"1": 2, "2": 0, "3": 1})
    );
    let fields = question.as_object_mut().expect("an object");
    fields.retain(|name, _| name != "per" && name != "distinct");
    let all = counts(&site, question.clone()).await;
    assert_eq!(
        all["7d"]["impression"]["ad"],
        json!({"1": 4, "2": 0, "3": 1})
    );
    // In Kiritimati, fourteen hours ahead, all is of one day.
    question["ranges"] = json!(["calendar:week@Pacific/Kiritimati"]);
    question["distinct"] = "insertion".into();
    let there = counts(&site, question.clone()).await;
    let there = &there["calendar:week@Pacific/Kiritimati"]["impression"]["ad"];
    assert_eq!(there, &json!({"1": 2, "2": 0, "3": 1}));
    send(&site, json!([seen("f", NOW, "1")])).await;
    let refused = post(&site, "/v1/actions/query", &question).await;
    assert_eq!(
        (refused.status, refused.json()["field"].as_str()),
        (422, Some("distinct"))
    );
    assert!(
        refused.text.contains("1 of the 6 actions"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn one_request_counts_levels_views_ranges_and_users_as_many_requests_do() {
    let site = Site::open(schema(), NOW);
    let event = |id: &str, kind: &str, ago: i64, view: &str, ad: &str| {
        json!({"id": id, "type": kind, "at": NOW - ago, "user": "u", "view": view,
            "entities": {"ad": ad, "ad_group": "a long group's name", "campaign": "7", "advertiser": "x"}})
    };
    send(
        &site,
        json!([
            event("1", "impression", 60, "home", "1"),
            event("2", "impression", 7_200, "home", "2"),
            event("3", "click", 7_100, "search results", "2"),
            event("4", "impression", 3 * DAY, "search results", "1"),
            {"id": "5", "type": "click", "at": NOW, "user": "v", "entities": {"ad": "1"}, "n": 3},
        ]),
    )
    .await;
    let entities = json!({"ad": ["1", "2", "9"], "ad_group": ["a long group's name"], "campaign": ["7"], "advertiser": ["x", "y"]});
    let question = json!({"users": ["u", "v", "nobody", "u"], "ranges": ["1h", "1d", "7d"],
        "action": ["impression", "click"], "entity": entities});
    let all = post(&site, "/v1/actions/query", &question).await.json();
    let of = |ad: [u64; 3], all: u64| {
        json!({"ad": {"1": ad[0], "2": ad[1], "9": ad[2]}, "ad_group": {"a long group's name": all},
            "campaign": {"7": all}, "advertiser": {"x": all, "y": 0}})
    };
    assert_eq!(
        all["users"]["u"],
        json!({
            "1h": {"impression": of([1, 0, 0], 1), "click": of([0, 0, 0], 0)},
            "1d": {"impression": of([1, 1, 0], 2), "click": of([0, 1, 0], 1)},
            "7d": {"impression": of([2, 1, 0], 3), "click": of([0, 1, 0], 1)},
        })
    );
    assert_eq!(all["users"]["v"]["1h"]["click"]["ad"]["1"], 3);
    assert_eq!(all["users"]["nobody"]["7d"]["click"], of([0, 0, 0], 0));
    assert_eq!(all["users"].as_object().map(|users| users.len()), Some(3));
    for user in ["u", "v"] {
        for range in ["1h", "1d", "7d"] {
            for action in ["impression", "click"] {
                let one = json!({"users": [user], "ranges": [range], "action": [action], "entity": entities});
                let one = post(&site, "/v1/actions/query", &one).await.json();
                assert_eq!(
                    one["users"][user][range][action],
                    all["users"][user][range][action]
                );
            }
        }
    }
    let mut views = json!({"users": ["u"], "ranges": ["7d"], "action": ["impression"], "entity": {"campaign": ["7"]},
        "view": ["home", "search results", "nowhere"]});
    assert_eq!(
        counts(&site, views.clone()).await["7d"]["impression"]["campaign"]["7"],
        3
    );
    views["by_view"] = true.into();
    assert_eq!(
        counts(&site, views.clone()).await["7d"]["impression"],
        json!({"home": {"campaign": {"7": 2}}, "search results": {"campaign": {"7": 1}}, "nowhere": {"campaign": {"7": 0}}})
    );
    views["view"] = json!(["home"]);
    views["by_view"] = false.into();
    assert_eq!(
        counts(&site, views).await["7d"]["impression"]["campaign"]["7"],
        2
    );
}

#[tokio::test]
async fn a_range_ends_to_the_second_at_any_moment_of_the_past() {
    let site = Site::open(schema(), NOW);
    let times: Vec<i64> = (0..200).map(|number| NOW - number * 4_177).collect();
    let events: Vec<Value> = times
        .iter()
        .enumerate()
        .map(|(id, &at)| seen(&id.to_string(), at, "1"))
        .collect();
    send(&site, events.into()).await;
    // 12:34 some days ago, the instant of an action, and the second before it leaves the range.
    let noon = NOW - NOW % DAY - 2 * DAY + 12 * 3_600 + 34 * 60;
    for at in [noon, times[3], times[3] + 7 * DAY - 1 - 14 * DAY, NOW] {
        for (range, seconds) in [("7d", 7 * DAY), ("24h", DAY), ("1m", 60), ("90m", 5_400)] {
            let expected = times
                .iter()
                .filter(|&&then| then <= at && then > at - seconds)
                .count();
            let question = json!({"users": ["u"], "ranges": [range], "action": ["impression"],
                "entity": {"ad": ["1"]}, "at": at});
            let answer = counts(&site, question).await;
            assert_eq!(
                answer[range]["impression"]["ad"]["1"], expected,
                "{range} at {at}"
            );
        }
    }
}

#[tokio::test]
async fn the_cap_that_blocks_for_the_longest_time_is_named_with_its_end() {
    let rules = caps(json!({
        "ad_day": {"entity": "ad", "action": "impression", "limit": 3, "within": "24h"},
        "cool_off": {"entity": "ad", "action": "impression", "limit": 1, "within": "30m"},
        "campaign_day": {"entity": "campaign", "action": "impression", "limit": 5, "within": "calendar:day@America/New_York", "view": ["home"]},
        "never": {"entity": "ad", "action": "click", "limit": 0, "within": "1h"},
        "often_enough": {"entity": "campaign", "action": "impression", "floor": 3, "within": "7d"},
    }));
    let site = Site::open_with_actions(schema(), NOW, rules);
    let event = |id: &str, ago: i64, n: u64| {
        json!({"id": id, "type": "impression", "at": NOW - ago, "user": "u", "view": "home", "n": n,
            "entities": {"ad": "1", "campaign": "7"}})
    };
    send(
        &site,
        json!([
            event("a", DAY - 1, 1),
            event("b", 7_200, 1),
            event("c", 600, 2)
        ]),
    )
    .await;
    let check = async |caps: Value, ad: &str| {
        let body = json!({"user": "u", "candidates": [{"ad": ad, "campaign": "7"}], "caps": caps});
        let answer = post(&site, "/v1/actions/check", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["candidates"][0].clone()
    };
    // Four in 24 hours: the oldest two must leave.
    assert_eq!(
        check(json!(["ad_day", "cool_off"]), "1").await,
        json!({"allowed": false, "by": {"cap": "ad_day", "count": 4, "limit": 3, "again_at": "2012-03-17T16:40:47Z"}})
    );
    assert_eq!(
        check(json!(["cool_off"]), "1").await,
        json!({"allowed": false, "by": {"cap": "cool_off", "count": 2, "limit": 1, "again_at": "2012-03-16T19:00:47Z"}})
    );
    assert_eq!(
        check(json!(["ad_day", "cool_off"]), "2").await,
        json!({"allowed": true})
    );
    assert_eq!(
        check(json!(["campaign_day"]), "2").await,
        json!({"allowed": true})
    );
    assert_eq!(
        check(json!(["often_enough"]), "2").await,
        json!({"allowed": true})
    );
    assert_eq!(
        check(json!(["cool_off", "never", "ad_day"]), "1").await,
        json!({"allowed": false, "by": {"cap": "never", "count": 0, "limit": 0, "again_at": null}})
    );
    send(&site, json!([event("d", 0, 2)])).await;
    assert_eq!(
        check(json!(["campaign_day"]), "9").await,
        json!({"allowed": false, "by": {"cap": "campaign_day", "count": 5, "limit": 5, "again_at": "2012-03-17T04:00:00Z"}})
    );
    let body = json!({"user": "stranger", "candidates": [{"ad": "1", "campaign": "7"}], "caps": ["often_enough", "ad_day"]});
    let answer = post(&site, "/v1/actions/check", &body).await;
    assert_eq!(
        answer.json()["candidates"][0],
        json!({"allowed": true, "below_floor": true})
    );
    // All caps apply where none are named, also at a moment of the past.
    let body = json!({"user": "u", "candidates": [{"ad": "1", "campaign": "7"}, {"ad": "2", "campaign": "7"}], "at": NOW - 10_000});
    let answer = post(&site, "/v1/actions/check", &body).await.json();
    assert_eq!(answer["candidates"][0]["by"]["cap"], "never");
}

fn many(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// A field of a question, its wrong value, and the status and field of the answer.
fn wrong_fields() -> Vec<(&'static str, Value, u16, &'static str)> {
    vec![
        ("users", json!(null), 400, "users"),
        ("users", json!([]), 400, "users"),
        ("users", json!([""]), 400, "users"),
        ("users", json!(["x".repeat(257)]), 400, "users"),
        ("users", json!(many(1_001)), 422, "users"),
        ("users", json!([1]), 400, "users[0]"),
        ("ranges", json!(["0d"]), 400, "ranges"),
        ("ranges", json!(["-1d"]), 400, "ranges"),
        ("ranges", json!(["1w"]), 400, "ranges"),
        ("ranges", json!(["33d"]), 422, "ranges"),
        ("ranges", json!(["calendar:day@Atlantis"]), 400, "ranges"),
        (
            "ranges",
            json!(["1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m"]),
            422,
            "ranges",
        ),
        ("action", json!(["purchase"]), 422, "action"),
        ("entity", json!({}), 400, "entity"),
        ("entity", json!({"store": ["1"]}), 422, "entity.store"),
        ("entity", json!({"ad": []}), 400, "entity.ad"),
        ("entity", json!({"ad": ["1", ""]}), 400, "entity.ad"),
        ("entity", json!({"ad": many(1_001)}), 422, "entity"),
        ("by_view", json!(true), 400, "by_view"),
        ("distinct", json!("user"), 400, "distinct"),
        ("per", json!("day"), 400, "per"),
        ("at", json!(NOW + 1), 422, "at"),
        ("at", json!("yesterday"), 400, "at"),
        ("at", json!(i64::MIN), 422, "at"),
        ("at", json!(-1_000_000_000_000_i64), 422, "at"),
        ("view", json!(["x".repeat(65)]), 400, "view"),
        ("view", json!([""]), 400, "view"),
        (
            "entity",
            json!({"ad": ["x".repeat(2_049)]}),
            400,
            "entity.ad",
        ),
        ("user", json!("u"), 400, "user"),
    ]
}

#[tokio::test]
async fn wrong_questions_name_the_field_and_what_is_known() {
    let rules = caps(
        json!({"ad_day": {"entity": "ad", "action": "impression", "limit": 3, "within": "24h"}}),
    );
    let site = Site::open_with_actions(schema(), NOW, rules);
    let whole =
        json!({"users": ["u"], "ranges": ["1d"], "action": ["click"], "entity": {"ad": ["1"]}});
    for (field, value, status, named) in wrong_fields() {
        let mut question = whole.clone();
        question[field] = value.clone();
        let answer = post(&site, "/v1/actions/query", &question).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, said["field"].as_str()),
            (status, Some(named)),
            "{field}: {value}: {said}"
        );
    }
    let mut cells = whole.clone();
    cells["users"] = json!(many(1_000));
    cells["entity"] = json!({"ad": many(201)});
    let answer = post(&site, "/v1/actions/query", &cells).await;
    assert!(
        answer.status == 422 && answer.text.contains("201000"),
        "{}",
        answer.text
    );
    for (body, named) in [
        (json!({"candidates": [{"ad": "1"}]}), "user"),
        (json!({"user": "u"}), "candidates"),
        (
            json!({"user": "u", "candidates": [{"campaign": "1"}]}),
            "candidates[0].ad",
        ),
        (
            json!({"user": "u", "candidates": [{"ad": "1"}], "caps": ["ad_week"]}),
            "caps",
        ),
        (
            json!({"user": "u", "candidates": [{"ad": "1"}], "cap": ["ad_day"]}),
            "cap",
        ),
        (
            json!({"user": "u", "candidates": [{"ad": "1"}, {"ad": ""}]}),
            "candidates[1].ad",
        ),
        (
            json!({"user": "u", "candidates": [{"ad": "1"}, {"ad": "1", "adgroup": "2"}]}),
            "candidates[1].adgroup",
        ),
    ] {
        let answer = post(&site, "/v1/actions/check", &body).await;
        assert_eq!(
            answer.json()["field"].as_str(),
            Some(named),
            "{}",
            answer.text
        );
        assert!((400..=422).contains(&answer.status));
    }
    let bare = Site::open(schema(), NOW);
    let body = json!({"user": "u", "candidates": [{"ad": "1"}]});
    let answer = post(&bare, "/v1/actions/check", &body).await;
    assert!(
        answer.status == 422 && answer.text.contains("no cap is declared"),
        "{}",
        answer.text
    );
}

#[test]
fn wrong_caps_are_named_with_what_is_declared() {
    for (section, named) in [
        (
            json!({"entity": "shop", "action": "click", "limit": 1, "within": "1d"}),
            "caps.x.entity",
        ),
        (
            json!({"entity": "ad", "action": "sale", "limit": 1, "within": "1d"}),
            "caps.x.action",
        ),
        (
            json!({"entity": "ad", "action": "click", "limit": 1, "within": "40d"}),
            "caps.x.within",
        ),
        (
            json!({"entity": "ad", "action": "click", "within": "1d"}),
            "caps.x.limit",
        ),
        (
            json!({"entity": "ad", "action": "click", "limit": 1, "floor": 1, "within": "1d"}),
            "caps.x.limit",
        ),
        (
            json!({"entity": "ad", "action": "click", "limit": 1, "within": "1d", "view": ["home", "x".repeat(65)]}),
            "caps.x.view",
        ),
        (
            json!({"entity": "ad", "action": "click", "limit": 1, "within": "1d", "view": [""]}),
            "caps.x.view",
        ),
    ] {
        let section: CapSection = serde_json::from_value(section).expect("a section");
        let error = ActionRules::new(32, BTreeMap::from([("x".to_owned(), section)]), &schema());
        let error = error.expect_err("a wrong cap");
        assert!(error.starts_with(named), "{error}");
    }
}
