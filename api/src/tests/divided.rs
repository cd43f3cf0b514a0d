//! A store of several strands answers as one.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_realtime::Part;

use super::actions::{NOW, post, schema};
use super::site::{Answer, Site};

const STRANDS: usize = 3;
const EVENTS: usize = 60;

fn site() -> Site {
    Site::open_divided(schema(), NOW, STRANDS)
}

async fn send(site: &Site, events: &Value) -> Answer {
    post(site, "/v1/events", events).await
}

async fn send_with_key(site: &Site, increments: &Value) -> Answer {
    let request = Request::post("/v1/increments")
        .header("content-type", "application/json")
        .header("idempotency-key", "k")
        .body(Body::from(increments.to_string()));
    site.ask(request.unwrap()).await
}

/// Events of ad 1, whose users are in turn.
fn events() -> Value {
    let events = (0..EVENTS).map(|number| {
        json!({
            "id": format!("e{number}"), "type": "impression", "at": NOW - 60, "user": format!("u{}", number % 6),
            "entities": {"ad": "1"},
        })
    });
    events.collect()
}

/// Increments of ad 1. Every third has no id.
fn increments(count: usize) -> Value {
    let increments = (0..count).map(|number| {
        let mut increment = json!({"keys": {"ad_impression": "1"}, "at": NOW - 60});
        if number % 3 != 0 {
            increment["id"] = format!("i{number}").into();
        }
        increment
    });
    increments.collect()
}

async fn total(site: &Site, more: &str) -> Value {
    let path = format!("/v1/ad_impression/1/summary?unit=day{more}");
    let answer = site.get(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["total"].take()
}

/// The number of records in each strand.
fn records(site: &Site) -> Vec<u64> {
    let app = site.app();
    let stores = app.stores().all().iter();
    stores
        .map(|store| store.live().applied().sequence)
        .collect()
}

#[tokio::test]
async fn a_batch_is_divided_by_ids_and_a_retry_counts_nothing_twice() {
    let site = site();
    let before = records(&site);
    let answer = send(&site, &events()).await.json();
    assert_eq!(
        (&answer["accepted"], &answer["duplicates"]),
        (&json!(60), &json!(0))
    );
    let more = records(&site).into_iter().zip(before);
    assert!(
        more.into_iter().all(|(after, before)| after > before + 5),
        "each strand has some"
    );
    let answer = send(&site, &events()).await.json();
    assert_eq!(
        (&answer["accepted"], &answer["duplicates"]),
        (&json!(0), &json!(60))
    );
    assert_eq!(total(&site, "").await, 60);
    let users = site
        .get("/v1/ad_impression/1/uniques?unit=day")
        .await
        .json();
    assert_eq!(users["estimate"], 6, "{users}");
    for number in 0..EVENTS {
        let verdict = site.get(&format!("/v1/events/e{number}")).await.json();
        assert_eq!(verdict["verdict"], "counted", "{verdict}");
    }
}

#[tokio::test]
async fn a_batch_with_a_key_keeps_its_answer_also_what_has_no_id() {
    let site = site();
    let first = send_with_key(&site, &increments(60)).await;
    assert_eq!((first.status, &first.json()["accepted"]), (200, &json!(60)));
    let again = send_with_key(&site, &increments(60)).await;
    assert_eq!((again.status, again.json()), (200, first.json()));
    assert_eq!(total(&site, "").await, 60);
    let other = send_with_key(&site, &increments(59)).await;
    assert_eq!(other.status, 422, "{}", other.text);
    assert_eq!(total(&site, "").await, 60);
}

#[tokio::test]
async fn a_position_has_an_offset_for_each_strand_and_a_read_waits_for_all() {
    let site = site();
    let answer = send(&site, &events()).await;
    let position = answer.header("tallyring-position").to_owned();
    assert_eq!(position.split(',').count(), STRANDS, "{position}");
    assert_eq!(total(&site, &format!("&after={position}")).await, 60);
    let question = json!({"users": ["u1"], "ranges": ["24h"], "action": ["impression"], "entity": {"ad": ["1"]}});
    let answer = post(&site, "/v1/actions/query", &question).await.json();
    assert_eq!(answer["position"], position);
    assert_eq!(
        answer["users"]["u1"]["24h"]["impression"]["ad"]["1"], 10,
        "{answer}"
    );
    let one = position.split(',').next().unwrap();
    let refused = site
        .get(&format!("/v1/ad_impression/1/summary?after={one}"))
        .await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.text.contains("which has 3; this one has 1"),
        "{}",
        refused.text
    );
    let ahead = position.replacen(':', ":9", STRANDS);
    let refused = site
        .get(&format!("/v1/ad_impression/1/summary?after={ahead}"))
        .await;
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[tokio::test]
async fn a_kept_generation_of_several_strands_is_refused() {
    let site = site();
    send(&site, &events()).await;
    let path = "/v1/ad_impression/1/summary?unit=day&as_of=1";
    let refused = site.get(path).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert_eq!(refused.json()["field"], "as_of", "{}", refused.text);
}

#[tokio::test]
async fn orders_reach_the_strands_that_they_concern() {
    let site = site();
    send(&site, &events()).await;
    let void = post(&site, "/v1/events/e7/void", &json!({"reason": "a test"})).await;
    assert_eq!(void.status, 201, "{}", void.text);
    let verdict = site.get("/v1/events/e7").await.json();
    assert_eq!(verdict["voided"]["reason"], "a test", "{verdict}");

    let erased = post(&site, "/v1/users/erase", &json!({"user": "u1"})).await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    let position = erased.json()["position"].as_str().unwrap().to_owned();
    assert_eq!(position.split(',').count(), STRANDS);
    let question = json!({"users": ["u1", "u2"], "ranges": ["24h"], "action": ["impression"], "entity": {"ad": ["1"]}});
    let answer = post(
        &site,
        &format!("/v1/actions/query?after={position}"),
        &question,
    )
    .await;
    let seen = |user: &str| answer.json()["users"][user]["24h"]["impression"]["ad"]["1"].clone();
    assert_eq!((seen("u1"), seen("u2")), (json!(0), json!(10)));

    let path = "/v1/admin/generations/1/activate";
    let activated = post(&site, path, &json!({})).await;
    assert_eq!(activated.status, 501, "{}", activated.text);
    let activated = post(&site, &format!("{path}?strand=2"), &json!({})).await;
    assert_eq!(activated.status, 404, "{}", activated.text);
    let none = post(&site, &format!("{path}?strand=3"), &json!({})).await;
    assert_eq!(none.status, 400, "{}", none.text);
}

#[tokio::test]
async fn a_job_begins_in_every_strand_and_each_is_told() {
    let site = site();
    for path in ["/v1/admin/rebuild", "/v1/admin/reconcile"] {
        let begun = post(&site, path, &json!({"day": "2012-03-16"})).await;
        assert_eq!(begun.status, 202, "{}", begun.text);
        assert_eq!(begun.json()["jobs"], json!([0, 0, 0]), "{}", begun.text);
        let all = site.get(path).await.json();
        assert_eq!(all, json!({"job": null, "jobs": [null, null, null]}));
        let one = site.get(&format!("{path}?strand=2")).await.json();
        assert_eq!(one, json!({"job": null}));
        let none = site.get(&format!("{path}?strand=3")).await;
        assert_eq!(none.status, 400, "{}", none.text);
    }
}

#[tokio::test]
async fn the_status_and_the_metrics_tell_of_every_strand() {
    let site = site();
    send(&site, &events()).await;
    assert!(
        site.app()
            .stores()
            .all()
            .iter()
            .all(|store| store.part() == Part::Writes)
    );
    let status = site.get("/v1/admin/status").await.json();
    assert_eq!(status["state"], "ok");
    let strands = status["strands"].as_array().unwrap();
    let positions = strands
        .iter()
        .map(|strand| strand["oplog"]["position"].as_str().unwrap());
    let positions: Vec<&str> = positions.collect();
    let told = site.get("/v1/ad_impression/1/summary").await;
    assert_eq!(positions.join(","), told.header("tallyring-position"));
    assert_eq!(site.get("/readyz").await.status, 200);
}
