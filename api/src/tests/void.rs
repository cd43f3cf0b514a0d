//! Events that people take out of the counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use super::actions::{NOW, post, schema, send};
use super::reserve::Hand;
use super::site::{Answer, Site};
use crate::ActionRules;

const HOUR_MS: i64 = 3_600_000;

fn click(id: &str) -> Value {
    json!({"id": id, "type": "click", "at": NOW - 60, "entities": {"ad": "1"}})
}

async fn void(site: &Site, path: &str, reason: &str) -> Answer {
    post(site, path, &json!({ "reason": reason })).await
}

async fn total(site: &Site) -> Value {
    site.get("/v1/ad_click/1/summary").await.json()["total"].take()
}

#[tokio::test]
async fn a_void_is_in_the_log_and_told_with_the_id_and_counts_change_with_the_next_reconcile_only()
{
    let mut site = Site::open(schema(), NOW);
    send(&site, json!([click("e1"), click("e2")])).await;
    assert!(site.get("/v1/events/e1").await.json()["voided"].is_null());
    let position = site.app().store().status().durable.to_string();
    let answer = void(&site, "/v1/events/e1/void", "it was a test").await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let said = answer.json();
    let day = json!([{"day": "2012-03-16", "at": "2012-03-16T18:39:47Z", "position": position}]);
    assert_eq!(
        (&said["id"], &said["voided"]),
        (&json!("e1"), &day),
        "{said}"
    );
    assert_eq!(
        (&said["reason"], &said["actor"]),
        (&json!("it was a test"), &json!("installation"))
    );
    assert!(
        said["effect"]
            .as_str()
            .expect("a sentence")
            .contains("next reconcile"),
        "{said}"
    );
    let voided =
        json!({"reason": "it was a test", "actor": "installation", "at": "2012-03-16T18:40:47Z"});
    for opened in 0..2 {
        let told = site.get("/v1/events/e1").await.json();
        assert_eq!(
            (&told["verdict"], &told["voided"]),
            (&json!("counted"), &voided),
            "{told}"
        );
        assert!(site.get("/v1/events/e2").await.json()["voided"].is_null());
        assert_eq!(total(&site).await, 2);
        let again = void(&site, "/v1/events/e1/void", "once more").await;
        assert_eq!(again.status, 409, "{}", again.text);
        let said = again.json();
        assert_eq!(
            (&said["field"], &said["detail"]),
            (
                &json!("id"),
                &json!("`id` was voided by installation at 2012-03-16T18:40:47Z: it was a test.")
            )
        );
        // The log is read again, first from its segments and then behind a flush.
        if opened == 1 {
            site.app().store().ledger().flush().expect("flush");
        }
        site.reopen(schema(), NOW);
    }
    send(&site, json!([click("e1")])).await;
    let told = site.get("/v1/events/e1").await.json();
    assert_eq!(
        (&told["duplicate"]["of"], &told["voided"]),
        (&told["counted"]["position"], &voided)
    );
}

#[tokio::test]
async fn an_id_that_counted_on_several_days_is_voided_on_each_and_later_counts_can_be_voided_too() {
    let clock = Arc::new(Hand(AtomicI64::new(NOW * 1_000)));
    let site = Site::open_with_clock(schema(), Arc::clone(&clock) as _, ActionRules::default());
    let sends = async |n: u64| {
        let now = clock.0.load(Ordering::SeqCst) / 1_000;
        let mut click = click("e");
        (click["at"], click["n"]) = (json!(now), json!(n));
        send(&site, json!([click])).await;
        site.app().store().ledger().flush().expect("flush");
        for _ in 0..2 {
            clock.0.fetch_add(13 * HOUR_MS, Ordering::SeqCst);
            site.count(json!([{"keys": {"ad_click": "2"}}])).await;
        }
        site.app().store().ledger().flush().expect("flush");
    };
    sends(1).await;
    sends(2).await;
    let days = |answer: &Answer| -> Vec<String> {
        let said = answer.json();
        let voided = said["voided"].as_array().expect("days").iter();
        voided
            .map(|day| day["day"].as_str().expect("a day").to_owned())
            .collect()
    };
    let answer = void(&site, "/v1/events/e/void", "twice").await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(days(&answer), ["2012-03-16", "2012-03-17"]);
    let told = site.get("/v1/events/e").await.json();
    assert_eq!(told["voided"]["reason"], "twice", "{told}");
    assert_eq!(told["earlier"][0]["voided"]["reason"], "twice", "{told}");
    assert_eq!(void(&site, "/v1/events/e/void", "again").await.status, 409);
    sends(3).await;
    let told = site.get("/v1/events/e").await.json();
    assert_eq!(
        (&told["counted"]["n"], told.get("voided")),
        (&json!(3), None),
        "{told}"
    );
    let answer = void(&site, "/v1/events/e/void", "thrice").await;
    assert_eq!(
        days(&answer),
        ["2012-03-18"],
        "only what was not voided before"
    );
}

#[tokio::test]
async fn wrong_voids_name_the_field_and_void_nothing() {
    let site = Site::open(schema(), NOW);
    send(&site, json!([click("e1")])).await;
    let before = site.app().store().status().durable.to_string();
    let path = "/v1/events/e1/void";
    for (path, body, status, named) in [
        (path, json!({}), 400, "reason"),
        (path, json!({"reason": null}), 400, "reason"),
        (path, json!({"reason": ""}), 400, "reason"),
        (path, json!({"reason": "  "}), 400, "reason"),
        (path, json!({"reason": 7}), 400, "reason"),
        (path, json!({"reason": "a\u{1b}[31mb"}), 400, "reason"),
        (path, json!({"reason": "two\nlines"}), 400, "reason"),
        (path, json!({"reason": "a".repeat(257)}), 400, "reason"),
        (
            path,
            json!({"reason": "x", "day": "2012-03-16"}),
            400,
            "day",
        ),
        (path, json!("x"), 400, "body"),
        (
            "/v1/events/e1/void?day=1",
            json!({"reason": "x"}),
            400,
            "day",
        ),
        (
            "/v1/events/e1/void?identity=a%20b",
            json!({"reason": "x"}),
            400,
            "identity",
        ),
        (
            "/v1/events/e1/void?source=/shop",
            json!({"reason": "x"}),
            404,
            "id",
        ),
        ("/v1/events/never/void", json!({"reason": "x"}), 404, "id"),
    ] {
        let answer = post(&site, path, &body).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, &said["field"]),
            (status, &json!(named)),
            "{path} {body}: {said}"
        );
    }
    let longest = void(&site, path, &"é".repeat(128)).await;
    assert_eq!(longest.status, 201, "{}", longest.text);
    assert_eq!(
        longest.json()["voided"][0]["position"],
        before,
        "nothing was written before"
    );
    assert_eq!(site.get(path).await.status, 405);
}
