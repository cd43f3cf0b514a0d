//! `GET /v1/closed`.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::Schema;

use super::site::Site;

/// 2012-03-16T18:40:47Z
const NOW: i64 = 1_331_923_247;

async fn site() -> Site {
    let mut schema = Schema::default_clicks();
    schema.namespaces[1].minutes = true;
    let site = Site::open(schema, NOW);
    site.count(json!([
        {"at": "2012-03-16T16:10:00Z", "n": 3, "keys": {"l": "a", "u": "x"}},
        {"at": "2012-03-16T17:20:00Z", "n": 2, "keys": {"l": "b|ü", "u": "x"}},
        {"at": "2012-03-16T17:59:59Z", "keys": {"l": "a", "u": "x"}},
        {"at": "2012-03-16T18:40:00Z", "keys": {"l": "a", "u": "x"}},
    ]))
    .await;
    site
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// Namespace, key, start, unit, count of each line but the last, and the cursor of the last.
fn told(lines: &[Value]) -> (Vec<[String; 4]>, String) {
    let (last, buckets) = lines.split_last().unwrap();
    let text = |line: &Value, name: &str| line[name].to_string().replace('"', "");
    let buckets = buckets.iter().map(|line| {
        assert_eq!(line["state"], "settled");
        assert!(line["version"].as_u64().is_some());
        ["key", "start", "unit", "count"].map(|name| text(line, name))
    });
    (buckets.collect(), text(last, "next"))
}

#[tokio::test]
async fn settled_buckets_are_lines_and_the_last_line_has_the_cursor_of_the_next_page() {
    let site = site().await;
    let from = "/v1/closed?namespace=l&from=2012-03-16T16:00:00Z&limit=1";
    let first = site.get(from).await;
    assert_eq!(
        (first.status, first.content_type.as_str()),
        (200, "application/x-ndjson")
    );
    assert_eq!(first.header("cache-control"), "no-store");
    let mut pages = vec![told(&lines(&first.text))];
    for _ in 0..3 {
        let next = &pages.last().unwrap().1;
        let page = site
            .get(&format!("/v1/closed?namespace=l&after={next}&limit=1"))
            .await;
        pages.push(told(&lines(&page.text)));
    }
    let all: Vec<_> = pages
        .iter()
        .flat_map(|(buckets, _)| buckets.clone())
        .collect();
    let expected = [
        ["a", "2012-03-16T16:00:00Z", "hour", "3"],
        ["a", "2012-03-16T17:00:00Z", "hour", "1"],
        ["b|ü", "2012-03-16T17:00:00Z", "hour", "2"],
    ];
    assert_eq!(all, expected.map(|line| line.map(str::to_owned)));
    let end = site
        .get(&format!("/v1/closed?namespace=l&after={}", pages[3].1))
        .await;
    let end = lines(&end.text);
    assert_eq!(end.len(), 1, "{end:?}");
    assert_eq!(end[0]["more"], json!(false));
    assert_eq!(end[0]["settled_until"], json!("2012-03-16T18:00:00Z"));

    // A late click tells its hour again.
    site.count(json!([{"at": "2012-03-16T16:30:00Z", "keys": {"l": "a"}}]))
        .await;
    let again = site
        .get(&format!("/v1/closed?namespace=l&after={}", pages[3].1))
        .await;
    let again = lines(&again.text);
    assert_eq!(
        (&again[0]["start"], &again[0]["count"]),
        (&json!("2012-03-16T16:00:00Z"), &json!(4))
    );
    let before = lines(&first.text)[0]["version"].as_u64();
    assert!(again[0]["version"].as_u64() > before);
}

#[tokio::test]
async fn a_namespace_with_minutes_is_told_by_the_minute() {
    let site = site().await;
    let page = site.get("/v1/closed?namespace=u&from=1331913600").await;
    let (buckets, _) = told(&lines(&page.text));
    let expected = [
        ["x", "2012-03-16T16:10:00Z", "minute", "3"],
        ["x", "2012-03-16T17:20:00Z", "minute", "2"],
        ["x", "2012-03-16T17:59:00Z", "minute", "1"],
    ];
    assert_eq!(buckets, expected.map(|line| line.map(str::to_owned)));
}

#[tokio::test]
async fn an_hour_whose_minutes_were_told_in_part_is_told_as_a_whole_once_minutes_are_off() {
    let mut site = site().await;
    let more =
        |n: u64, at: &str| json!([{"at": format!("2012-03-16T{at}Z"), "n": n, "keys": {"u": "x"}}]);
    site.count(more(5, "18:10:00")).await;
    let from = "/v1/closed?namespace=u&from=2012-03-16T18:00:00Z";
    for limit in ["", "&limit=1"] {
        let (buckets, _) = told(&lines(&site.get(&format!("{from}{limit}")).await.text));
        let minute = ["x", "2012-03-16T18:10:00Z", "minute", "5"].map(str::to_owned);
        assert_eq!(buckets, [minute]);
    }
    // One key is told, another one is not yet.
    site.count(json!([{"at": "2012-03-16T18:20:00Z", "keys": {"u": "y"}}]))
        .await;
    let mut cursors = Vec::new();
    for limit in [1, 10] {
        let page = site.get(&format!("{from}&limit={limit}")).await;
        cursors.push(told(&lines(&page.text)).1);
    }
    assert_eq!(cursors[0].split('.').count(), 5, "within a window");
    // 2012-03-16T20:05:00Z
    site.reopen(Schema::default_clicks(), 1_331_928_300);
    site.count(more(10, "18:22:00")).await;
    for cursor in cursors {
        let page = site
            .get(&format!("/v1/closed?namespace=u&after={cursor}"))
            .await;
        let expected = [
            ["x", "2012-03-16T18:00:00Z", "hour", "16"],
            ["y", "2012-03-16T18:00:00Z", "hour", "1"],
        ];
        let expected = expected.map(|line| line.map(str::to_owned));
        assert_eq!(told(&lines(&page.text)).0, expected);
    }
}

#[tokio::test]
async fn without_a_cursor_it_begins_with_what_settles_from_now_on() {
    let site = site().await;
    let page = lines(&site.get("/v1/closed?namespace=l").await.text);
    assert_eq!(page.len(), 1);
    assert_eq!(page[0]["settled_until"], json!("2012-03-16T18:00:00Z"));
}

#[tokio::test]
async fn the_same_lines_are_events_for_a_browser_which_goes_on_by_itself() {
    let site = site().await;
    let ask = |id: &str| {
        let request = Request::get("/v1/closed?namespace=l&from=1331913600&limit=2");
        let request = request
            .header("accept", "text/event-stream")
            .header("last-event-id", id);
        request.body(Body::empty()).unwrap()
    };
    let first = site.ask(ask("")).await;
    assert_eq!(first.content_type, "text/event-stream");
    assert_eq!(
        first.text.matches("event: bucket\ndata: {").count(),
        2,
        "{}",
        first.text
    );
    assert!(
        first.text.contains("\n\nretry: 1000\nid: "),
        "{}",
        first.text
    );
    let id = first
        .text
        .split("\nid: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let second = site.ask(ask(id)).await;
    assert_eq!(
        second.text.matches("event: bucket\n").count(),
        1,
        "{}",
        second.text
    );
    assert!(
        second.text.contains("event: next\ndata: {\"next\":\""),
        "{}",
        second.text
    );
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let site = site().await;
    let cursor = told(&lines(&site.get("/v1/closed?namespace=l").await.text)).1;
    for (query, status, field) in [
        ("", 404, "namespace"),
        ("namespace=nothing", 404, "namespace"),
        ("namespace=l&limit=0", 422, "limit"),
        ("namespace=l&limit=10001", 422, "limit"),
        ("namespace=l&limit=x", 400, "limit"),
        ("namespace=l&after=17.0.0123456789abcdef", 400, "after"),
        (&format!("namespace=u&after={cursor}"), 400, "after"),
        (&format!("namespace=l&after={cursor}&from=0"), 400, "from"),
        ("namespace=l&from=yesterday", 400, "from"),
        ("namespace=l&from=2012-03-16T18:40:00Z", 422, "from"),
        ("namespace=l&unit=hour", 400, "unit"),
    ] {
        let answer = site.get(&format!("/v1/closed?{query}")).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
        assert_eq!(answer.json()["field"], field, "{query}: {}", answer.text);
    }
}
