//! Comparisons as CSV, and of many queries at once.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::Schema;

use super::site::Site;

/// 2012-03-16T18:40:30Z.
const NOW: i64 = 1_331_923_230;
const DAY: i64 = 86_400;

async fn site() -> Site {
    let site = Site::open(Schema::default_clicks(), NOW);
    let click =
        |key: &str, days: i64, n: u32| json!({"at": NOW - days * DAY, "n": n, "keys": {"l": key}});
    site.count(json!([
        click("old", 9, 1),
        click("old", 2, 4),
        click("old", 1, 6),
        click("young", 2, 3),
        click("young", 0, 5),
    ]))
    .await;
    site
}

#[tokio::test]
async fn a_table_of_counts_has_the_period_before_in_a_column() {
    let site = site().await;
    let rows = async |path: &str| -> Vec<String> {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.text.lines().map(str::to_owned).collect()
    };
    assert_eq!(
        rows("/v1/l/old/counts.csv?units=2&compare=before").await,
        [
            "start,count,before",
            "2012-03-15T00:00:00+00:00,6,0",
            "2012-03-16T00:00:00+00:00,0,4",
        ]
    );
    // Counting only began within the period before.
    let young = "/v1/l/young/counts.csv?units=2&compare=before&filtered=true";
    assert_eq!(
        rows(young).await,
        [
            "start,count,filtered,gross,before",
            "2012-03-15T00:00:00+00:00,0,0,0,",
            "2012-03-16T00:00:00+00:00,5,0,5,",
        ]
    );
    let all = rows("/v1/l/counts.csv?units=1&compare=weekdays").await;
    assert_eq!(all, ["start,count,before", "2012-03-16T00:00:00+00:00,5,"]);
    let refused = site.get("/v1/l/old/summary.csv?compare=before").await;
    assert_eq!(
        (refused.status, &refused.json()["field"]),
        (400, &json!("compare"))
    );
}

#[tokio::test]
async fn each_of_many_queries_is_compared_as_it_asks() {
    let site = site().await;
    let ask = async |path: &str, queries: &Value| {
        let body = json!({ "queries": queries }).to_string();
        site.ask(Request::post(path).body(Body::from(body)).unwrap())
            .await
    };
    let queries = json!([
        {"namespace": "l", "key": "young", "units": 2, "compare": "before"},
        {"namespace": "l", "key": "old", "units": 2},
        {"namespace": "l", "key": "old", "units": 2, "compare": "before"},
    ]);
    let answers = ask("/v1/query", &queries).await.json();
    let before = |index: usize| &answers["answers"][index]["before"];
    let told = |index| (&before(index)["covered"], &before(index)["counts"]);
    assert_eq!(told(0), (&json!(false), &json!([0, 3])));
    assert_eq!(before(1), &Value::Null);
    assert_eq!(told(2), (&json!(true), &json!([0, 4])));
    assert_eq!(before(2)["from"], "2012-03-13T00:00:00+00:00");
    for (path, query, status, field, index) in [
        ("/v1/query", json!({"compare": "x"}), 400, "compare", 1),
        (
            "/v1/query",
            json!({"units": -1, "compare": "before"}),
            422,
            "compare",
            1,
        ),
        (
            "/v1/query",
            json!({"summary": true, "compare": "before"}),
            400,
            "compare",
            1,
        ),
        (
            "/v1/query.csv",
            json!({"compare": "before"}),
            400,
            "compare",
            1,
        ),
    ] {
        let mut second = json!({"namespace": "l", "key": "old"});
        second
            .as_object_mut()
            .unwrap()
            .extend(query.as_object().unwrap().clone());
        let refused = ask(path, &json!([{"namespace": "l", "key": "old"}, second])).await;
        let problem = refused.json();
        let found = (refused.status, &problem["field"], &problem["index"]);
        assert_eq!(found, (status, &json!(field), &json!(index)), "{problem}");
    }
}
