//! The actions of one person, page by page.

use serde_json::{Value, json};

use super::actions::{DAY, NOW, post, schema, send};
use super::site::Site;

const LOOKUP: &str = "/v1/users/lookup";

/// All actions of a user, asked for in pages of `limit`.
async fn pages(site: &Site, user: &str, limit: usize) -> Vec<Value> {
    let mut all = Vec::new();
    let mut question = json!({"user": user, "limit": limit});
    loop {
        let answer = post(site, LOOKUP, &question).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("cache-control"), "no-store");
        let mut answer = answer.json();
        let of_page = answer["actions"].take();
        let of_page = of_page.as_array().expect("a list");
        assert!(of_page.len() <= limit);
        all.extend(of_page.iter().cloned());
        assert_eq!(
            (&answer["user"], answer["kept_from"].is_null()),
            (&json!(user), true)
        );
        if answer["next"].is_null() {
            return all;
        }
        assert_eq!(of_page.len(), limit);
        question["before"] = answer["next"].take();
    }
}

#[tokio::test]
async fn a_person_is_told_everything_once_and_newest_first() {
    let mut schema = schema();
    for namespace in &mut schema.namespaces {
        namespace.subtotals.push("view".into());
    }
    let site = Site::open(schema, NOW);
    let (long, view) = ("an ad, whose name is long", "the first page");
    send(
        &site,
        json!([
            {"id": "1", "type": "impression", "at": NOW - 100 * DAY, "user": "ann", "entities": {"ad": "1"}},
            {"id": "2", "type": "impression", "at": NOW - 60, "user": "ann", "view": view, "insertion": "i",
                "entities": {"ad": long, "campaign": "7"}},
            {"id": "3", "type": "click", "at": NOW, "user": "ann", "entities": {"ad": "1"}, "n": 3},
            {"id": "4", "type": "click", "at": NOW, "user": "ann", "entities": {"ad": "1"}},
            {"id": "5", "type": "click", "at": NOW, "user": "ann", "entities": {"ad": "2"}},
            {"id": "6", "type": "click", "at": NOW, "user": "bob", "entities": {"ad": "2"}},
        ]),
    )
    .await;
    let all = pages(&site, "ann", 1_000).await;
    let tag = all[2]["insertion"].clone();
    assert_eq!(tag.as_str().map(str::len), Some(11), "{tag}");
    let expected = json!([
        {"at": "2012-03-16T18:40:47Z", "type": "click", "entities": {"ad": "2"}},
        {"at": "2012-03-16T18:40:47Z", "type": "click", "entities": {"ad": "1"}, "n": 4},
        {"at": "2012-03-16T18:39:47Z", "type": "impression", "view": view,
            "entities": {"ad": long, "campaign": "7"}, "insertion": tag},
        {"at": "2011-12-07T18:40:47Z", "type": "impression", "entities": {"ad": "1"}},
    ]);
    assert_eq!(Value::from(all), expected);
    for limit in 1..=4 {
        assert_eq!(
            Value::from(pages(&site, "ann", limit).await),
            expected,
            "{limit}"
        );
    }
    assert_eq!(pages(&site, "nobody", 1).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_busy_person_is_told_in_pages_that_miss_and_repeat_nothing() {
    let site = Site::open(schema(), NOW);
    // All equal times but for a few, so that pages divide seconds.
    let event = |number: i64| {
        json!({"id": number.to_string(), "type": "impression", "at": NOW - number % 7 * 20_000, "user": "ann",
            "insertion": format!("i{}", number / 2), "entities": {"ad": (number % 5).to_string()}})
    };
    send(&site, (0..700).map(event).collect()).await;
    let all = pages(&site, "ann", 1_000).await;
    let counts = all.iter().map(|deed| deed["n"].as_u64().unwrap_or(1));
    assert_eq!(counts.sum::<u64>(), 700);
    for limit in [1, 33, 699] {
        assert_eq!(pages(&site, "ann", limit).await, all, "{limit}");
    }
}

#[tokio::test]
async fn wrong_lookups_name_the_field() {
    let site = Site::open(schema(), NOW);
    for (body, status, named) in [
        (json!({}), 400, "user"),
        (json!({"user": ""}), 400, "user"),
        (json!({"user": 7}), 400, "user"),
        (json!({"user": "a".repeat(257)}), 400, "user"),
        (json!({"user": "ann", "limit": 0}), 422, "limit"),
        (json!({"user": "ann", "limit": 1_001}), 422, "limit"),
        (json!({"user": "ann", "limit": "x"}), 400, "limit"),
        (json!({"user": "ann", "limit": -1}), 400, "limit"),
        (json!({"user": "ann", "before": "yesterday"}), 400, "before"),
        (json!({"user": "ann", "before": "c41,click"}), 400, "before"),
        (json!({"user": "ann", "users": ["ann"]}), 400, "users"),
        (json!(["ann"]), 400, "body"),
    ] {
        let answer = post(&site, LOOKUP, &body).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, said["field"].as_str()),
            (status, Some(named)),
            "{body}: {said}"
        );
    }
    // A user stands in no address.
    let answer = post(&site, "/v1/users/lookup?user=ann", &json!({"user": "ann"})).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(site.get(LOOKUP).await.status, 405);
}
