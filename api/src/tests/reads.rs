//! Answers to reads, in every form.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::Schema;

use super::site::Site;

/// 2012-03-16T18:40:00Z
const NOW: i64 = 1_331_923_200;

/// A site whose links are also broken down by country and device at once.
fn crossed() -> Site {
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].subtotals.push("c*v".to_owned());
    Site::open(schema, NOW)
}

fn click(key: &str, n: u32, by: Value) -> Value {
    json!({"at": NOW, "n": n, "keys": {"l": key}, "by": by})
}

#[tokio::test]
async fn parts_of_a_crossed_value_are_told_apart_whatever_they_hold() {
    let site = crossed();
    site.count(json!([
        click("abc", 4, json!({"c": "US", "v": "mobile"})),
        click("abc", 3, json!({"c": "a*b", "v": "c"})),
        click("abc", 2, json!({"c": "a", "v": "b*c"})),
        click("abc", 1, json!({})),
    ]))
    .await;
    let path = "/v1/l/abc/by/c*v";
    let values = json!([
        {"value": "US*mobile", "parts": ["US", "mobile"], "count": 4},
        {"value": r"a\*b*c", "parts": ["a*b", "c"], "count": 3},
        {"value": r"a*b\*c", "parts": ["a", "b*c"], "count": 2},
        {"value": "-*-", "parts": ["-", "-"], "count": 1},
    ]);
    assert_eq!(site.get(path).await.json()["values"], values);
    let csv = site.get(&format!("{path}.csv")).await.text;
    let rows = r"a\*b*c,3,value";
    assert!(csv.contains(rows), "{csv}");
    // A plain subtotal stays as it was counted.
    let plain = site.get("/v1/l/abc/by/c").await.json();
    assert_eq!(plain["values"][1], json!({"value": "a*b", "count": 3}));
}

#[tokio::test]
async fn a_range_of_dates_covers_both_of_them_in_the_zone_of_the_request() {
    let site = Site::open(Schema::default_clicks(), NOW);
    let start = NOW - 18 * 3_600 - 2_400;
    // The last second of the 15th in New York, the first of the 16th, and the afternoon of that day.
    site.count(json!([
        {"at": start + 4 * 3_600 - 1, "n": 1, "keys": {"l": "abc"}},
        {"at": start + 4 * 3_600, "n": 2, "keys": {"l": "abc"}},
        {"at": NOW, "n": 4, "keys": {"l": "abc"}},
    ]))
    .await;
    let of = |range: &str| format!("/v1/l/abc/counts?{range}&timezone=America/New_York");
    let days = site.get(&of("from=2012-03-15&to=2012-03-16")).await.json();
    assert_eq!(days["from"], "2012-03-15T00:00:00-04:00");
    assert_eq!(days["to"], "2012-03-17T00:00:00-04:00");
    assert_eq!(days["counts"][0]["count"], 1);
    assert_eq!(days["counts"][1]["count"], 6);
    let hours = site
        .get(&of("from=2012-03-16&to=2012-03-16&unit=hour"))
        .await
        .json();
    assert_eq!(hours["counts"].as_array().unwrap().len(), 24);
    assert_eq!(hours["total"], 6);
    // A date goes with a time, and ends all that is asked for so.
    let mixed = site.get(&of("from=1331870400&to=2012-03-16")).await.json();
    assert_eq!(mixed["total"], 6);
    let week = site
        .get(&of("units=1&unit=week&to=2012-03-16"))
        .await
        .json();
    assert_eq!(week["total"], 7);
}

#[tokio::test]
async fn files_tell_counted_values_from_the_remainder_and_list_every_bucket() {
    let site = crossed();
    let yesterday = NOW - 86_400;
    site.count(json!([
        click("abc", 5, json!({"c": "(other)"})),
        click("abc", 4, json!({"c": "=1+1"})),
        click("abc", 3, json!({"c": "-"})),
        click("abc", 2, json!({"c": ""})),
        click("other", 1, json!({"c": "x"})),
        json!({"at": yesterday, "keys": {"l": "old"}}),
    ]))
    .await;
    for (path, text) in [
        (
            "/v1/l/abc/by/c.csv",
            "value,count,kind\n(other),5,value\n-,5,value\n'=1+1,4,value\n",
        ),
        (
            "/v1/l/abc/by/c.csv?limit=1",
            "value,count,kind\n(other),5,value\n,9,other\n",
        ),
        (
            "/v1/l/abc/by/c.csv?limit=1&rollup=false&units=2",
            "start,value,count,kind\n2012-03-15T00:00:00+00:00,,0,none\n\
             2012-03-16T00:00:00+00:00,(other),5,value\n2012-03-16T00:00:00+00:00,,9,other\n",
        ),
        (
            "/v1/l/top.csv?limit=1",
            "key,count,kind\nabc,14,value\n,2,other\n",
        ),
        (
            "/v1/l/abc/counts.csv?units=1",
            "start,count\n2012-03-16T00:00:00+00:00,14\n",
        ),
        ("/v1/l/abc/summary.csv", "total\n14\n"),
    ] {
        assert_eq!(site.get(path).await.text, text, "{path}");
    }
}

#[tokio::test]
async fn the_file_of_the_top_keys_has_all_of_them() {
    let site = crossed();
    let keys = (0..12).map(|number| click(&format!("k{number}"), 1, json!({})));
    site.count(keys.collect()).await;
    let rows = |text: &str| text.lines().skip(1).count();
    assert_eq!(rows(&site.get("/v1/l/top.csv?units=1").await.text), 12);
    let shown = site.get("/v1/l/top?units=1").await.json();
    assert_eq!(shown["keys"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn counts_that_no_number_holds_together_are_ranked_all_the_same() {
    const MOST: u64 = (1 << 53) - 1;
    let site = crossed();
    let keys = 0..2_049;
    let clicks =
        keys.map(|number| json!({"at": NOW, "n": MOST, "keys": {"l": format!("k{number}")}}));
    site.count(clicks.collect()).await;
    let file = site.get("/v1/l/top.csv?units=1").await;
    assert_eq!(file.status, 200, "{}", file.text);
    assert_eq!(file.text.lines().count(), 2_050, "{}", file.text);
    for path in ["top?units=1&limit=2", "counts?units=1"] {
        let shown = site.get(&format!("/v1/l/{path}")).await.json();
        assert_eq!(
            (&shown["total"], &shown["overflow"]),
            (&json!(MOST), &json!(true))
        );
    }
}

#[tokio::test]
async fn a_total_that_reached_what_is_counted_at_most_says_so() {
    const MOST: u64 = (1 << 53) - 1;
    let site = crossed();
    let hours = [(0, MOST - 1), (1, 1), (2, 1)];
    let click =
        |(hour, n): (i64, u64)| json!({"at": NOW - hour * 3_600, "n": n, "keys": {"l": "a"}});
    site.count(hours.map(click).into_iter().collect()).await;
    let one = site.get("/v1/l/a/summary?unit=hour&units=1").await.json();
    assert_eq!(
        (&one["total"], one.get("overflow")),
        (&json!(MOST - 1), None)
    );
    for path in ["counts", "summary", "by/c"] {
        let all = site.get(&format!("/v1/l/a/{path}?units=1")).await.json();
        assert_eq!(
            (&all["total"], &all["overflow"]),
            (&json!(MOST), &json!(true))
        );
    }
}

#[tokio::test]
async fn files_and_pictures_mark_what_reached_what_is_counted_at_most() {
    const MOST: u64 = (1 << 53) - 1;
    let site = crossed();
    let click = |key: &str, hour: i64, n: u64, by: Value| {
        let at = NOW - hour * 3_600;
        json!({"at": at, "n": n, "keys": {"l": key}, "by": by})
    };
    site.count(json!([
        click("a", 0, MOST, json!({"c": "US"})),
        click("a", 1, MOST, json!({"c": "US"})),
        click("a", 30, 2, json!({"c": "DE"})),
        click("b", 0, 1, json!({})),
    ]))
    .await;
    for (path, text) in [
        (
            "l/a/counts.csv?units=2",
            "start,count,overflow\n2012-03-15T00:00:00+00:00,2,false\n\
             2012-03-16T00:00:00+00:00,9007199254740991,true\n",
        ),
        (
            "l/counts.csv?units=1",
            "start,count,overflow\n2012-03-16T00:00:00+00:00,9007199254740991,true\n",
        ),
        ("l/a/summary.csv", "total,overflow\n9007199254740991,true\n"),
        (
            "l/a/by/c.csv",
            "value,count,kind,overflow\nUS,9007199254740991,value,true\nDE,2,value,false\n",
        ),
        (
            "l/a/by/c.csv?units=3&rollup=false",
            "start,value,count,kind,overflow\n2012-03-14T00:00:00+00:00,,0,none,false\n\
             2012-03-15T00:00:00+00:00,DE,2,value,false\n\
             2012-03-16T00:00:00+00:00,US,9007199254740991,value,true\n",
        ),
        (
            "l/top.csv",
            "key,count,kind,overflow\na,9007199254740991,value,true\nb,1,value,false\n",
        ),
        // Other files are as before.
        ("l/b/summary.csv", "total\n1\n"),
    ] {
        assert_eq!(site.get(&format!("/v1/{path}")).await.text, text, "{path}");
    }
    for (path, shown) in [
        ("l/a/badge", "≥9,007T"),
        ("l/a/counts.svg", "total ≥9,007,199,254,740,993"),
        ("l/a/by/c.svg", "US: ≥9,007,199,254,740,991"),
        ("l/top.svg?limit=1", "total ≥9,007,199,254,740,991"),
    ] {
        let picture = site.get(&format!("/v1/{path}")).await.text;
        assert!(picture.contains(shown), "{path}: {picture}");
    }
}

#[tokio::test]
async fn one_table_of_many_answers_marks_those_that_overflow() {
    const MOST: u64 = (1 << 53) - 1;
    let site = crossed();
    let hours = [0, 1].map(|hour| json!({"at": NOW - hour * 3_600, "n": MOST, "keys": {"l": "a"}}));
    site.count(hours.into_iter().collect()).await;
    let queries = json!({"queries": [
        {"namespace": "l", "key": "a", "summary": true},
        {"namespace": "l", "key": "b", "units": 1},
    ]});
    let request = Request::post("/v1/query.csv").body(Body::from(queries.to_string()));
    assert_eq!(
        site.ask(request.unwrap()).await.text,
        "query,namespace,key,start,value,count,kind,overflow\n\
         0,l,a,,,9007199254740991,total,true\n\
         1,l,b,2012-03-16T00:00:00+00:00,,0,bucket,false\n"
    );
}

#[tokio::test]
async fn top_says_what_every_read_says_and_has_a_validator() {
    let site = crossed();
    site.count(json!([
        click("abc", 3, json!({})),
        click("def", 2, json!({})),
        json!({"at": NOW - 3 * 86_400, "keys": {"l": "old"}, "n": 9}),
    ]))
    .await;
    let today = site.get("/v1/l/top?units=1").await;
    assert_eq!(
        today.json(),
        json!({
            "namespace": "l", "unit": "day", "timezone": "UTC",
            "from": "2012-03-16T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00",
            "aligned": true, "state": "live", "settled_until": "2012-03-16T18:35:00Z", "final_until": null,
            "generation": 0, "approximate": false, "total": 5,
            "keys": [{"key": "abc", "count": 3}, {"key": "def", "count": 2}], "other": 0,
        })
    );
    assert_eq!(today.header("cache-control"), "no-cache");
    assert_eq!(
        today.header("vary"),
        "accept, accept-encoding, authorization, cookie, origin"
    );
    let again = Request::get("/v1/l/top?units=1").header("if-none-match", today.header("etag"));
    let again = site.ask(again.body(Body::empty()).unwrap()).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    site.count(json!([click("def", 1, json!({}))])).await;
    let later = site.get("/v1/l/top?units=1").await;
    assert_ne!(later.header("etag"), today.header("etag"));
    // Kolkata's days do not begin with an hour of UTC.
    let kolkata = site.get("/v1/l/top?units=1&timezone=Asia/Kolkata").await;
    assert_eq!(kolkata.json()["aligned"], false);
}

#[tokio::test]
async fn top_of_all_time_reaches_from_the_first_count_to_now() {
    let site = crossed();
    let nothing = site.get("/v1/l/top?units=-1").await.json();
    assert_eq!(nothing["from"], "2012-03-16T00:00:00+00:00");
    assert_eq!(nothing["keys"], json!([]));
    site.count(json!([
        click("abc", 3, json!({})),
        json!({"at": "2001-02-03T04:05:06Z", "keys": {"l": "old"}, "n": 9}),
    ]))
    .await;
    let all = site.get("/v1/l/top?units=-1&unit=month").await.json();
    assert_eq!(
        (&all["from"], &all["to"], &all["total"]),
        (
            &json!("2001-02-01T00:00:00+00:00"),
            &json!("2012-04-01T00:00:00+00:00"),
            &json!(12)
        )
    );
    let until = "/v1/l/top?units=-1&unit=month&to=2001-02-20T00:00:00Z";
    let until = site.get(until).await.json();
    assert_eq!(until["keys"], json!([{"key": "old", "count": 9}]));
    assert_eq!(until["to"], "2001-03-01T00:00:00+00:00");
}
