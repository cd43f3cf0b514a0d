//! Orders about the counts of keys: what is told before, what is refused, and what is in the log.

use serde_json::{Value, json};
use tallyring_records::Schema;

use super::actions::post;
use super::site::Site;

/// 2012-03-16T18:40:00Z
const NOW: i64 = 1_331_923_200;
const PATH: &str = "/v1/admin/deletes";

/// Counts of a link on two days that are over, and on the present one.
async fn counted(site: &Site) {
    let click = |at: &str, n: u64| json!({"at": at, "n": n, "keys": {"l": "a/b c", "u": "ann"}});
    let increments = json!([
        click("2012-03-10T12:00:00Z", 4),
        click("2012-03-10T13:00:00Z", 1),
        click("2012-03-12T23:00:00Z", 2),
        click("2012-03-16T12:00:00Z", 1),
    ]);
    site.count(increments).await;
}

fn order(from: &str, to: &str) -> Value {
    json!({"namespace": "l", "key": "a/b c", "from": from, "to": to, "reason": "a crawler"})
}

#[tokio::test]
async fn a_preview_tells_each_day_and_why_one_stays() {
    let site = Site::open(Schema::default_clicks(), NOW);
    counted(&site).await;
    let path = format!("{PATH}/preview?namespace=l&key=a%2Fb%20c");
    let told = site
        .get(&format!("{path}&from=2012-03-10&to=2012-03-16"))
        .await;
    let mut told = told.json();
    let why = told["days"][2]["refused"].take();
    assert!(why.to_string().contains("is not closed"), "{why}");
    let day = |day: &str, n: u64| json!({"day": day, "n": n, "refused": null});
    let days = json!([
        day("2012-03-10", 5),
        day("2012-03-12", 2),
        day("2012-03-16", 1)
    ]);
    let expected = json!({"namespace": "l", "key": "a/b c", "days": days, "loaded": []});
    assert_eq!(told, expected);
    for (query, status, field) in [
        ("from=2012-03-10", 400, "to"),
        ("to=2012-03-10", 400, "from"),
        ("from=x&to=2012-03-10", 400, "from"),
        ("from=2012-03-10&to=2012-03-09", 422, "to"),
        ("from=2011-02-05&to=2012-03-11", 422, "to"),
        ("from=2012-03-10&to=2012-03-10&day=1", 400, "day"),
        ("from=2012-03-10&to=2012-03-10&key=b", 400, "key"),
    ] {
        let answer = site.get(&format!("{path}&{query}")).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
        assert_eq!(answer.json()["field"], field, "{query}: {}", answer.text);
    }
    assert_eq!(site.get(PATH).await.json(), json!({"deletes": []}));
}

#[tokio::test]
async fn an_order_is_in_the_log_and_listed_and_changes_no_count_by_itself() {
    let mut site = Site::open(Schema::default_clicks(), NOW);
    counted(&site).await;
    let mut undo = order("2012-03-12", "2012-03-12");
    undo["undo"] = true.into();
    let mut ordered = Vec::new();
    for order in [&order("2012-03-10", "2012-03-13"), &undo] {
        let position = site.app().store().status().durable.to_string();
        let answer = post(&site, PATH, order).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let mut told = answer.json();
        assert_eq!(told["position"], position, "{told}");
        let effect = told["effect"].take().to_string();
        assert!(effect.contains("next reconcile"), "{effect}");
        assert_eq!(told["actor"], "installation", "{told}");
        let object = told.as_object_mut().unwrap();
        object.remove("effect");
        object.insert("at".into(), "2012-03-16T18:40:00Z".into());
        // Nothing was deleted yet that the second one could give back.
        object.insert("waiting".into(), ordered.is_empty().into());
        ordered.push(told);
    }
    for _ in 0..2 {
        let listed = site.get(PATH).await.json();
        assert_eq!(listed, json!({ "deletes": ordered }));
        let total = site.get("/v1/l/a%2Fb%20c/summary").await.json();
        assert_eq!(total["total"], 8, "{total}");
        site.app().store().ledger().flush().unwrap();
        site.reopen(Schema::default_clicks(), NOW);
    }
}

#[tokio::test]
async fn an_order_that_cannot_be_obeyed_is_refused_in_words() {
    let site = Site::open(Schema::default_clicks(), NOW);
    counted(&site).await;
    let with = |name: &str, value: Value| {
        let mut order = order("2012-03-10", "2012-03-10");
        order[name] = value;
        order
    };
    for (order, status, field, said) in [
        (with("namespace", json!("x")), 404, "namespace", "declared"),
        (with("key", json!("")), 400, "key", "1 to 2048 bytes"),
        (with("reason", json!(" ")), 400, "reason", "1 to 256 bytes"),
        (with("reason", json!("a\nb")), 400, "reason", "control"),
        (with("days", json!(1)), 400, "body", "unknown field"),
        (with("to", json!("2012-03-09")), 422, "to", "or later"),
        (with("to", json!("2013-12-01")), 422, "to", "at most 400"),
        (with("to", json!("2012-03-15")), 422, "to", "is not closed"),
        (
            order("2012-03-16", "2012-03-17"),
            422,
            "from",
            "is not closed",
        ),
    ] {
        let answer = post(&site, PATH, &order).await;
        assert_eq!(answer.status, status, "{order}: {}", answer.text);
        let problem = answer.json();
        assert_eq!(problem["field"], field, "{order}: {problem}");
        let detail = problem["detail"].to_string();
        assert!(detail.contains(said), "{order}: {problem}");
    }
    assert_eq!(site.get(PATH).await.json(), json!({"deletes": []}));
}

#[tokio::test]
async fn an_order_reaches_every_strand() {
    let site = Site::open_divided(Schema::default_clicks(), NOW, 3);
    counted(&site).await;
    let answer = post(&site, PATH, &order("2012-03-10", "2012-03-12")).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let told = answer.json();
    let position = told["position"].as_str().unwrap();
    assert_eq!(position.split(',').count(), 3, "{told}");
    let listed = site.get(PATH).await.json();
    assert_eq!(listed["deletes"].as_array().unwrap().len(), 3, "{listed}");
    let preview = format!("{PATH}/preview?namespace=u&key=ann&from=2012-03-10&to=2012-03-12");
    let told = site.get(&preview).await.json();
    assert_eq!(told["days"][0]["n"], 5, "{told}");
}
