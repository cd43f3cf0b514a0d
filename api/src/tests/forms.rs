//! Encodings, caches and pages: what goes for answers of many routes.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tallyring_records::Schema;

use super::site::{Answer, Site};

const NOW: i64 = 1_331_923_200;

fn site() -> Site {
    Site::open(Schema::default_clicks(), NOW)
}

async fn get_with(site: &Site, path: &str, header: (&str, &str)) -> Answer {
    let request = Request::get(path).header(header.0, header.1);
    site.ask(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn large_answers_are_compressed_whoever_asks() {
    let site = site();
    for path in [
        "/v1/l/a/counts?units=100",
        "/v3/link/clicks?link=a&units=100",
        "/v4/bitlinks/bit.ly/a/clicks?units=100",
        "/openapi.json",
    ] {
        for encoding in ["gzip", "zstd"] {
            let answer = get_with(&site, path, ("accept-encoding", encoding)).await;
            assert_eq!(answer.status, 200, "{path}");
            assert_eq!(answer.header("content-encoding"), encoding, "{path}");
            assert!(answer.header("vary").contains("accept-encoding"), "{path}");
        }
        let plain = site.get(path).await;
        assert_eq!(plain.header("content-encoding"), "", "{path}");
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_told_without_the_answer() {
    let site = site();
    let answer = get_with(&site, "/v1/l/a/counts", ("accept-encoding", "identity;q=0")).await;
    assert_eq!(answer.status, 406);
    assert_eq!(answer.json()["field"], "accept-encoding");
    for name in ["etag", "cache-control"] {
        assert_eq!(answer.header(name), "", "{name}");
    }
    let forms = "identity;q=0, gzip";
    let answer = get_with(
        &site,
        "/v1/l/a/counts?units=100",
        ("accept-encoding", forms),
    )
    .await;
    assert_eq!(
        (answer.status, answer.header("content-encoding")),
        (200, "gzip")
    );
}

#[tokio::test]
async fn the_page_may_be_kept_and_its_description_is_asked_for_again() {
    let site = site();
    for (path, cache) in [
        ("/docs/swagger-ui.css", "public, max-age=86400"),
        ("/docs/swagger-ui-bundle.js", "public, max-age=86400"),
        ("/docs/swagger-initializer.js", "no-cache"),
        ("/docs/", "no-cache"),
    ] {
        let answer = site.get(path).await;
        assert_eq!(
            (answer.status, answer.header("cache-control")),
            (200, cache),
            "{path}"
        );
    }
    let script = site.get("/docs/swagger-initializer.js").await.text;
    assert!(script.contains("/openapi.json"), "{script}");
    let document = site.get("/openapi.json").await;
    let tag = document.header("etag");
    let again = get_with(&site, "/openapi.json", ("if-none-match", tag)).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
}

#[tokio::test]
async fn a_badge_is_the_picture_of_a_total_whatever_is_accepted() {
    let site = site();
    site.count(json!([{"at": NOW, "n": 1_234, "keys": {"l": "a.csv"}}]))
        .await;
    let range = "units=1&theme=dark";
    let summary = site
        .get(&format!("/v1/l/a.csv/summary.svg?{range}"))
        .await
        .text;
    for accept in ["*/*", "text/csv", "application/json", "text/html"] {
        let path = format!("/v1/l/a.csv/badge?{range}");
        let badge = get_with(&site, &path, ("accept", accept)).await;
        assert_eq!(
            (badge.status, badge.content_type.as_str()),
            (200, "image/svg+xml")
        );
        assert_eq!(badge.text, summary);
        assert!(
            badge.text.contains("<title>l/a.csv: 1.2k</title>"),
            "{}",
            badge.text
        );
        let tag = badge.header("etag").to_owned();
        let again = get_with(&site, &path, ("if-none-match", &tag)).await;
        assert_eq!(again.status, 304);
    }
    let refused = site.get("/v1/l/a/badge?width=1").await;
    assert_eq!(
        (refused.status, refused.content_type.as_str()),
        (422, "application/problem+json")
    );
}

#[tokio::test]
async fn a_405_names_the_methods_that_are_taken() {
    let site = site();
    for method in [Method::HEAD, Method::DELETE] {
        let request = Request::builder().method(method).uri("/v1/incr?key.l=a");
        let answer = site.ask(request.body(Body::empty()).unwrap()).await;
        assert_eq!((answer.status, answer.header("allow")), (405, "GET,POST"));
    }
    let counts = site.get("/v1/l/a/summary").await.json();
    assert_eq!(counts["total"], 0);
}

#[tokio::test]
async fn many_queries_may_each_ask_for_a_total_or_a_breakdown() {
    let site = site();
    site.count(json!([{"at": NOW, "n": 3, "keys": {"l": "a"}, "by": {"c": "US"}}]))
        .await;
    let queries = json!({"queries": [
        {"namespace": "l", "key": "a", "summary": true, "units": 1},
        {"namespace": "l", "key": "a", "summary": false, "units": 1},
        {"namespace": "l", "key": "a", "by": "c", "units": 1},
    ]});
    let request = Request::post("/v1/query").body(Body::from(queries.to_string()));
    let answers = site.ask(request.unwrap()).await.json();
    let start = "2012-03-16T00:00:00+00:00";
    assert_eq!(answers["answers"][0]["total"], 3);
    assert_eq!(answers["answers"][0].get("counts"), None);
    assert_eq!(
        answers["answers"][1]["counts"],
        json!([{"start": start, "count": 3}])
    );
    assert_eq!(
        answers["answers"][2]["values"],
        json!([{"value": "US", "count": 3}])
    );
}
