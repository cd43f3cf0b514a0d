//! Encodings, caches and pages: what goes for answers of many routes.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tallyring_records::{EventType, Ratio, Schema};

use super::site::{Answer, Site};

const NOW: i64 = 1_331_923_200;

fn site() -> Site {
    Site::open(Schema::default_clicks(), NOW)
}

/// A site with users and a ratio of links.
fn with_a_ratio() -> Site {
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].uniques = true;
    schema.namespaces[1].name = "l_click".into();
    schema.namespaces[2].name = "l_view".into();
    let event = |name: &str| EventType {
        name: name.into(),
        entities: vec!["l".into()],
        lateness_seconds: 300,
        actions: false,
    };
    schema.events = vec![event("click"), event("view")];
    schema.ratios = vec![Ratio {
        name: "ctr".into(),
        numerator: "click".into(),
        denominator: "view".into(),
    }];
    Site::open(schema, NOW)
}

async fn get_with(site: &Site, path: impl AsRef<str>, header: (&str, &str)) -> Answer {
    let request = Request::get(path.as_ref()).header(header.0, header.1);
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

/// An escaped letter sends a read through the router that is else answered without it.
#[tokio::test]
async fn a_read_is_the_same_with_the_router_and_without() {
    let site = site();
    site.count(json!({"keys": {"l": "abc"}, "n": 3})).await;
    for rest in [
        "counts?units=100",
        "counts",
        "counts?unit=hour&timezone=Asia/Kolkata",
        "counts?unit=minute",
        "counts?unit=century",
        "counts?units=3&colour=red",
        "counts?as_of=77",
        "counts?from=2012-03-01T00:00:00Z&units=x%00",
        "summary?units=-1",
        "summary?unit=year&unit=day",
        "counts/",
        "counts.csv",
        "badge",
        "nothing",
    ] {
        for header in [
            ("accept-encoding", "gzip"),
            ("accept-encoding", "identity;q=0"),
            ("accept", "text/csv"),
            ("accept", "image/svg+xml"),
            ("if-none-match", "*"),
            ("origin", "http://example.org"),
        ] {
            for namespace in ["l", "x", "admin", "events"] {
                let [direct, routed] = ["abc", "%61bc"]
                    .map(|key| get_with(&site, format!("/v1/{namespace}/{key}/{rest}"), header));
                let (direct, routed) = (direct.await, routed.await);
                let what = format!("{namespace} {rest} {header:?}");
                assert_eq!(direct.status, routed.status, "{what}");
                assert_eq!(told(&direct), told(&routed), "{what}");
                let text = routed.text.replace("%61bc", "abc");
                assert_eq!(direct.text, text, "{what}");
            }
        }
    }
}

/// The headers of an answer, but for the request's id, and for the length, which the server sets where the router does
/// not.
fn told(answer: &Answer) -> BTreeMap<String, String> {
    let headers = answer.headers.keys().map(|name| name.as_str());
    headers
        .filter(|name| !["x-request-id", "content-length"].contains(name))
        .map(|name| (name.to_owned(), answer.header(name).to_owned()))
        .collect()
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
async fn a_browser_asks_again_for_the_page_of_the_api_and_its_description() {
    let site = site();
    for path in ["/docs", "/docs/", "/docs/style.css", "/openapi.json"] {
        let first = site.get(path).await;
        let found = (first.status, first.header("cache-control"));
        assert_eq!(found, (200, "no-cache"), "{path}");
        let policy = first.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        let tag = first.header("etag");
        let again = get_with(&site, path, ("if-none-match", tag)).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path}");
    }
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
            badge
                .text
                .contains("<title>l/a.csv: 1.2k, Mar 16, 2012, UTC</title>"),
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

#[tokio::test]
async fn a_thousand_totals_and_rankings_of_a_year_are_one_answer() {
    let site = site();
    let total = json!({"namespace": "l", "key": "a", "summary": true, "units": 365});
    let ranking = json!({"namespace": "l", "key": "a", "by": "c", "units": 365});
    let series = json!({"namespace": "l", "key": "a", "units": 365});
    for (query_of_a_year, status) in [(total, 200), (ranking, 200), (series, 422)] {
        let queries = json!({"queries": vec![query_of_a_year; 1_000]});
        let answer = query(&site, "/v1/query", "*/*", &queries).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
}

#[tokio::test]
async fn a_thousand_queries_may_have_the_longest_keys() {
    let site = site();
    let longest = json!({"namespace": "l", "key": "k".repeat(2_048), "summary": true, "units": 1});
    let queries = json!({"queries": vec![longest; 1_000]});
    let answer = query(&site, "/v1/query", "*/*", &queries).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// The answer to a query of `body` at `path`, with this `Accept`.
async fn query(site: &Site, path: &str, accept: &str, body: &serde_json::Value) -> Answer {
    let request = Request::post(path).header("accept", accept);
    site.ask(request.body(Body::from(body.to_string())).unwrap())
        .await
}

#[tokio::test]
async fn many_queries_make_one_table_whose_rows_say_whose_they_are() {
    let site = site();
    let values: Vec<_> = (0..12)
        .map(|number| json!({"at": NOW, "keys": {"l": "a"}, "by": {"c": format!("C{number:02}")}}))
        .collect();
    site.count(json!(values)).await;
    site.count(json!([{"at": NOW - 3_600, "n": 3, "keys": {"u": "x, y"}}]))
        .await;
    let queries = json!({"queries": [
        {"namespace": "u", "key": "x, y", "unit": "hour", "units": 2},
        {"namespace": "l", "key": "a", "summary": true, "units": 1},
        {"namespace": "l", "key": "a", "by": "c", "units": 1, "limit": 1},
        {"namespace": "l", "key": "a", "by": "c", "unit": "hour", "units": 2, "limit": 1, "rollup": false},
        {"namespace": "l", "key": "a", "by": "c", "units": 1},
    ]});
    let listed = "query,namespace,key,start,value,count,kind\n\
        0,u,\"x, y\",2012-03-16T17:00:00+00:00,,3,bucket\n\
        0,u,\"x, y\",2012-03-16T18:00:00+00:00,,0,bucket\n\
        1,l,a,,,12,total\n\
        2,l,a,,C00,1,value\n\
        2,l,a,,,11,other\n\
        3,l,a,2012-03-16T17:00:00+00:00,,0,none\n\
        3,l,a,2012-03-16T18:00:00+00:00,C00,1,value\n\
        3,l,a,2012-03-16T18:00:00+00:00,,11,other\n";
    let file = query(&site, "/v1/query.csv", "*/*", &queries).await;
    assert_eq!(file.status, 200, "{}", file.text);
    let rest = file
        .text
        .strip_prefix(listed)
        .unwrap_or_else(|| panic!("{}", file.text));
    // A file is taken whole.
    assert_eq!(rest.lines().count(), 12, "{rest}");
    assert!(rest.ends_with("\n4,l,a,,C11,1,value\n"), "{rest}");
    assert!(file.content_type.starts_with("text/csv"));
    let name = file.header("content-disposition");
    assert_eq!(name, "attachment; filename=\"query.csv\"");
    let accepted = query(&site, "/v1/query", "text/csv", &queries).await;
    assert_eq!(accepted.text, file.text);
    assert_eq!(accepted.header("etag"), file.header("etag"));
    let json = query(&site, "/v1/query", "*/*", &queries).await;
    assert_ne!(json.header("etag"), file.header("etag"));
    assert_eq!(
        json.json()["answers"][4]["values"].as_array().map(Vec::len),
        Some(10)
    );
    // Nothing is drawn of many answers.
    let drawn = query(&site, "/v1/query", "image/svg+xml", &queries).await;
    assert_eq!(drawn.text, json.text);
    let wrong =
        json!({"queries": [{"namespace": "l", "key": "a"}, {"namespace": "x", "key": "a"}]});
    let refused = query(&site, "/v1/query.csv", "text/csv", &wrong).await;
    assert_eq!((refused.status, &refused.json()["index"]), (404, &json!(1)));
}

#[tokio::test]
async fn every_read_has_a_validator_that_changes_with_its_counts_alone() {
    let site = with_a_ratio();
    let increment = json!([{"keys": {"l": "abc", "l_click": "abc", "l_view": "abc"}, "user": "u"}]);
    site.count(increment).await;
    let paths = [
        "/v1/l/abc/counts",
        "/v1/l/abc/summary",
        "/v1/l/abc/by/c",
        "/v1/l/abc/uniques",
        "/v1/l/abc/uniques.csv",
        "/v1/l/counts",
        "/v1/l/top",
        "/v1/l/keys",
        "/v1/l/keys?sort=count",
        "/v1/l/keys.csv?prefix=abc",
        "/v1/ratios/ctr/l/abc",
        "/v1/ratios/ctr/l/abc.svg",
    ];
    let mut tags = BTreeSet::new();
    for path in paths {
        let first = site.get(path).await;
        let tag = first.header("etag").to_owned();
        assert_eq!(first.status, 200, "{path}: {}", first.text);
        assert_eq!(first.header("cache-control"), "no-cache", "{path}");
        assert!(first.header("vary").contains("accept"), "{path}");
        let again = get_with(&site, path, ("if-none-match", &tag)).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path}");
        assert!(tags.insert(tag), "{path} has the tag of another");
    }
    let query = async || {
        let body = r#"{"queries":[{"namespace":"l","key":"abc"}]}"#;
        site.ask(Request::post("/v1/query").body(Body::from(body)).unwrap())
            .await
    };
    let (first, same) = (query().await, query().await);
    assert_eq!(first.header("etag"), same.header("etag"));
    assert_eq!(first.header("cache-control"), "no-cache");
    let more = json!([{"keys": {"l": "abc", "l_click": "abc"}, "user": "v"}]);
    site.count(more).await;
    for path in paths {
        let tag = site.get(path).await.header("etag").to_owned();
        assert!(tags.insert(tag), "{path} has the tag it had");
    }
    assert_ne!(query().await.header("etag"), first.header("etag"));
}

#[tokio::test]
async fn a_ratio_comes_in_every_form_and_a_key_that_ends_so_is_encoded() {
    let site = with_a_ratio();
    site.count(json!([
        {"keys": {"l_click": "1"}},
        {"keys": {"l_view": "1"}, "n": 8},
        {"keys": {"l_view": "1.svg"}, "n": 5},
    ]))
    .await;
    let csv = site.get("/v1/ratios/ctr/l/1.csv?units=1").await;
    assert!(
        csv.text.ends_with("T00:00:00+00:00,1,8,0.125\n"),
        "{}",
        csv.text
    );
    assert!(csv.content_type.starts_with("text/csv"));
    let svg = site.get("/v1/ratios/ctr/l/1.svg?units=1").await;
    assert_eq!(svg.content_type, "image/svg+xml");
    for part in [
        "aria-label=\"ctr of l/1: click / view\"",
        "<desc>12.5% in all: 1 of 8 · peak 12.5% (",
        ">15%</text>",
        ">0%</text>",
    ] {
        assert!(svg.text.contains(part), "{part}: {}", svg.text);
    }
    let encoded = site.get("/v1/ratios/ctr/l/1%2Esvg?units=1").await.json();
    assert_eq!(
        (&encoded["key"], &encoded["denominator"]),
        (&json!("1.svg"), &json!(5))
    );
    let none = site.get("/v1/ratios/ctr/l/.svg").await;
    assert_eq!((none.status, &none.json()["field"]), (400, &json!("key")));
}

#[tokio::test]
async fn a_picture_says_where_there_is_no_ratio() {
    let site = with_a_ratio();
    let path = "/v1/ratios/ctr/l/a.svg?units=3";
    let nothing = site.get(path).await.text;
    assert!(nothing.contains("no ratio in all: 0 of 0"), "{nothing}");
    assert!(nothing.contains("No ratio in this range"), "{nothing}");
    let view = json!({"keys": {"l_view": "a"}, "at": NOW - 86_400, "n": 4});
    site.count(json!([view, {"keys": {"l_click": "a"}, "at": NOW - 86_400}]))
        .await;
    let some = site.get(path).await.text;
    assert!(some.contains("25% in all: 1 of 4"), "{some}");
    assert!(some.contains("no ratio"), "two days have none: {some}");
    assert!(!some.contains("No ratio in this range"), "{some}");
}

#[tokio::test]
async fn an_answer_lists_so_many_values_and_no_more() {
    let site = site();
    let values: Vec<_> = (0..1_000)
        .map(|value| json!({"keys": {"l": "a"}, "by": {"r": format!("r{value}")}}))
        .collect();
    site.count(json!(values)).await;
    let ask = async |path: &str, queries: usize| {
        let query = json!({"namespace": "l", "key": "a", "by": "r", "limit": 1_000});
        let body = json!({"queries": vec![query; queries]});
        let request = Request::post(path).body(Body::from(body.to_string()));
        site.ask(request.unwrap()).await
    };
    for path in ["/v1/query", "/v1/query.csv"] {
        assert_eq!(ask(path, 100).await.status, 200, "{path}");
        let refused = ask(path, 101).await;
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["field"], &problem["index"]),
            (422, &json!("limit"), &json!(100)),
            "{problem}"
        );
    }
}
