//! A person who is forgotten.

use serde_json::{Value, json};

use super::actions::{NOW, post, schema, send};
use super::site::Site;

const ERASE: &str = "/v1/users/erase";

/// How often a user saw ad 1 within a day.
async fn seen(site: &Site, user: &str) -> Value {
    let question = json!({"users": [user], "ranges": ["24h"], "action": ["impression"], "entity": {"ad": ["1"]}});
    let answer = post(site, "/v1/actions/query", &question).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["users"][user]["24h"]["impression"]["ad"]["1"].take()
}

fn impression(id: &str, user: &str) -> Value {
    json!({"id": id, "type": "impression", "at": NOW - 60, "user": user, "insertion": "i", "referrer": "http://a.example/",
        "entities": {"ad": "1"}})
}

#[tokio::test]
async fn an_erased_person_is_forgotten_at_once_and_counted_anew_while_counts_stay() {
    let site = Site::open(schema(), NOW);
    send(
        &site,
        json!([impression("1", "ann"), impression("2", "bob")]),
    )
    .await;
    let answer = post(&site, ERASE, &json!({"user": "ann"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let said = answer.json();
    assert_eq!(
        (&said["user"], &said["in_log_until"]),
        (&json!("ann"), &json!("2012-03-18T18:40:47Z"))
    );
    assert_eq!(
        (seen(&site, "ann").await, seen(&site, "bob").await),
        (json!(0), json!(1))
    );
    // The log still has the event, but no answer names the person or what tells of her.
    let verdict = site.get("/v1/events/1").await.json();
    assert_eq!(verdict["verdict"], "counted");
    assert!(
        verdict["counted"]["insertion"].is_null() && verdict["counted"]["referrer"].is_null(),
        "{verdict}"
    );
    assert_eq!(
        site.get("/v1/events/2").await.json()["counted"]["insertion"],
        "i"
    );
    let counts = site.get("/v1/ad_impression/1/summary").await.json();
    assert_eq!(counts["total"], 2, "{counts}");

    send(&site, json!([impression("3", "ann")])).await;
    assert_eq!(
        (seen(&site, "ann").await, seen(&site, "bob").await),
        (json!(1), json!(1))
    );
    // An event that comes again is none.
    send(&site, json!([impression("1", "ann")])).await;
    assert_eq!(seen(&site, "ann").await, json!(1));
}

#[tokio::test]
async fn wrong_erasures_name_the_field_and_erase_nothing() {
    let site = Site::open(schema(), NOW);
    send(&site, json!([impression("1", "ann")])).await;
    for (body, named) in [
        (json!({}), "user"),
        (json!({"user": ""}), "user"),
        (json!({"user": ["ann"]}), "user"),
        (json!({"user": "a".repeat(257)}), "user"),
        (json!({"user": "ann", "now": true}), "now"),
        (json!("ann"), "body"),
    ] {
        let answer = post(&site, ERASE, &body).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, said["field"].as_str()),
            (400, Some(named)),
            "{body}: {said}"
        );
    }
    assert_eq!(site.get(ERASE).await.status, 405);
    assert_eq!(seen(&site, "ann").await, json!(1));
}
