//! Verdicts on an id that counts more than once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

use super::actions::{NOW, post, schema, send};
use super::reserve::Hand;
use super::site::Site;
use crate::ActionRules;

const HOUR_MS: i64 = 3_600_000;

fn click(n: u64, insertion: &str) -> Value {
    json!([{"id": "e", "type": "click", "n": n, "user": "ann", "insertion": insertion, "entities": {"ad": "1"}}])
}

/// A site whose id `e` counted thrice, 26 hours apart, and came again after each time.
async fn thrice() -> (Site, Arc<Hand>) {
    let clock = Arc::new(Hand(AtomicI64::new(NOW * 1_000)));
    let site = Site::open_with_clock(schema(), Arc::clone(&clock) as _, ActionRules::default());
    for n in 1..=3 {
        send(&site, click(n, "i")).await;
        send(&site, click(9, "i")).await;
        pass(&site, &clock, 26).await;
    }
    (site, clock)
}

/// Lets time pass, with an event every 13 hours: a clock that jumps by more than a day is doubted. Ids beyond their
/// window then leave memory with a flush.
async fn pass(site: &Site, clock: &Hand, hours: i64) {
    let flush = || site.app().store().ledger().flush().expect("flush");
    flush();
    for _ in 0..hours / 13 {
        clock.0.fetch_add(13 * HOUR_MS, Ordering::SeqCst);
        site.count(json!([{"keys": {"ad_click": "2"}}])).await;
    }
    flush();
}

#[tokio::test]
async fn every_count_of_an_id_is_told_the_newest_as_the_verdict_and_those_before_in_order() {
    let (site, _clock) = thrice().await;
    let told = site.get("/v1/events/e").await.json();
    assert_eq!(told["verdict"], "counted", "{told}");
    assert_eq!(told["counted"]["n"], 3, "{told}");
    assert_eq!(told["duplicate"]["of"], told["counted"]["position"]);
    let earlier = told["earlier"].as_array().expect("earlier counts");
    let counts: Vec<_> = (earlier.iter())
        .map(|one| (&one["verdict"], &one["counted"]["n"]))
        .collect();
    let counted = json!("counted");
    assert_eq!(
        counts,
        [(&counted, &json!(1)), (&counted, &json!(2))],
        "{told}"
    );
    for one in earlier {
        assert_eq!(one["duplicate"]["of"], one["counted"]["position"], "{told}");
    }
    // The log begins with the store.
    assert_eq!(told["log_from"], "2012-03-16T18:40:47Z", "{told}");
    assert_eq!(told.get("earlier_left_out"), None, "{told}");
    let summary = site.get("/v1/ad_click/1/summary").await.json();
    assert_eq!(summary["total"], 6, "{summary}");
}

#[tokio::test]
async fn earlier_counts_of_an_erased_person_do_not_tell_of_the_person() {
    let (site, _clock) = thrice().await;
    let erased = post(&site, "/v1/users/erase", &json!({"user": "ann"})).await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    let told = site.get("/v1/events/e").await.json();
    assert_eq!(told["earlier"].as_array().map(Vec::len), Some(2), "{told}");
    assert!(!told.to_string().contains("insertion"), "{told}");
    send(&site, click(4, "later")).await;
    let told = site.get("/v1/events/e").await.json();
    assert_eq!(told["counted"]["insertion"], "later", "{told}");
    assert!(!told["earlier"].to_string().contains("insertion"), "{told}");
}

#[tokio::test]
async fn counts_are_told_for_as_long_as_the_log_has_them_and_the_answer_says_from_when_it_knows() {
    let (site, clock) = thrice().await;
    pass(&site, &clock, 117).await;
    let told = site.get("/v1/events/e").await.json();
    assert_eq!(told["counted"]["n"], 3, "{told}");
    assert_eq!(told["earlier"].as_array().map(Vec::len), Some(2), "{told}");
    assert_eq!(told["log_from"], "2012-03-16T18:40:47Z", "{told}");
}
