//! Retries of a batch that was answered, with its `Idempotency-Key`.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::Schema;

use super::site::{Answer, Site};

const NOW: i64 = 1_331_923_200;

async fn send(site: &Site, key: &str, body: &Value) -> Answer {
    let request = Request::post("/v1/increments")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()))
        .unwrap();
    site.ask(request).await
}

#[tokio::test]
async fn a_batch_that_counted_keeps_its_answer_when_a_namespace_that_it_names_is_taken_out() {
    let mut site = Site::open(Schema::default_clicks(), NOW);
    let body = json!([{"keys": {"l": "a"}}, {"keys": {"u": "a", "l": "b"}, "n": 3}]);
    let first = send(&site, "k", &body).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let mut fewer = Schema::default_clicks();
    fewer.namespaces.retain(|namespace| namespace.name != "u");
    // The answer is in memory, then in the log alone.
    let mut schemas = vec![fewer.clone(), fewer];
    while let Some(schema) = schemas.pop() {
        site.reopen(schema, NOW);
        let again = send(&site, "k", &body).await;
        assert_eq!((again.status, &again.text), (200, &first.text));
        let total = site.get("/v1/l/b/summary?unit=day&units=1").await.json();
        assert_eq!(total["total"], 3);
        let other = json!([{"keys": {"u": "a"}, "n": 2}]);
        for (key, body) in [("k", &other), ("new", &body)] {
            let refused = send(&site, key, body).await;
            assert_eq!(refused.status, 400, "{}", refused.text);
            assert!(
                refused
                    .text
                    .contains("`keys.u` is not a declared namespace"),
                "{}",
                refused.text
            );
        }
    }
}
