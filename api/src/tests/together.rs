//! Several keys side by side.

use serde_json::{Value, json};
use tallyring_records::Schema;

use super::site::Site;

/// 2012-03-16T18:40:30Z.
const NOW: i64 = 1_331_923_230;
const DAY: i64 = 86_400;

async fn site() -> Site {
    let site = Site::open(Schema::default_clicks(), NOW);
    let click =
        |keys: Value, days: i64, n: u32| json!({"at": NOW - days * DAY, "n": n, "keys": keys});
    site.count(json!([
        click(json!({"l": "abc", "u": "ann"}), 2, 4),
        click(json!({"l": "abc"}), 0, 6),
        click(json!({"l": "=a/b", "u": "ann"}), 1, 3),
    ]))
    .await;
    site
}

async fn get(site: &Site, path: &str) -> String {
    let answer = site.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.text
}

#[tokio::test]
async fn keys_are_compared_bucket_by_bucket() {
    let site = site().await;
    let range = "units=3&timezone=America/New_York";
    let asked = "/v1/compare?key=l/abc&key=l/%3Da/b&key=u/ann";
    let answer = site.get(&format!("{asked}&{range}")).await.json();
    assert_eq!(
        answer["keys"],
        json!([
            {"namespace": "l", "key": "abc", "total": 10},
            {"namespace": "l", "key": "=a/b", "total": 3},
            {"namespace": "u", "key": "ann", "total": 7},
        ])
    );
    assert_eq!(
        answer["counts"],
        json!([
            {"start": "2012-03-14T00:00:00-04:00", "counts": [4, 0, 4]},
            {"start": "2012-03-15T00:00:00-04:00", "counts": [0, 3, 3]},
            {"start": "2012-03-16T00:00:00-04:00", "counts": [6, 0, 0]},
        ])
    );
    // Each column is what the key's own read says.
    for (index, key) in ["l/abc", "l/%3Da%2Fb", "u/ann"].into_iter().enumerate() {
        let alone = site.get(&format!("/v1/{key}/counts?{range}")).await.json();
        let counts = alone["counts"].as_array().unwrap().iter();
        let compared = answer["counts"].as_array().unwrap().iter();
        assert!(
            counts
                .map(|of| &of["count"])
                .eq(compared.map(|of| &of["counts"][index])),
            "{key}"
        );
        for field in [
            "unit",
            "timezone",
            "from",
            "to",
            "aligned",
            "settled_until",
            "generation",
        ] {
            assert_eq!(alone[field], answer[field], "{key}: {field}");
        }
    }
}

#[tokio::test]
async fn comparisons_are_tables_and_pictures() {
    let site = site().await;
    let table = get(&site, "/v1/compare.csv?key=l/abc&key=l/%3Da/b&units=2").await;
    let expected =
        "start,l/abc,l/=a/b\n2012-03-15T00:00:00+00:00,0,3\n2012-03-16T00:00:00+00:00,6,0\n";
    assert_eq!(table, expected);
    let picture = get(&site, "/v1/compare.svg?key=l/abc&key=u/ann&units=2").await;
    let read = roxmltree::Document::parse(&picture).unwrap();
    let desc = read
        .descendants()
        .find(|node| node.has_tag_name("desc"))
        .unwrap();
    assert_eq!(
        desc.text().unwrap(),
        "2 keys · 2 days · Mar 15 – Mar 16, 2012 · UTC · l/abc: total 6, peak 6 (Mar 16, 2012) · u/ann: total 3, \
         peak 3 (Mar 15, 2012) · not settled yet: from Mar 16, 2012"
    );
    let lines = read.descendants();
    let lines = lines.filter(|node| matches!(node.attribute("class"), Some("c1" | "c2")));
    assert_eq!(
        lines.filter(|node| node.has_tag_name("polyline")).count(),
        4,
        "and in the legend"
    );
}

#[tokio::test]
async fn a_comparison_says_what_is_wrong_with_it() {
    let site = site().await;
    for (query, status, field, detail) in [
        ("key=l/abc", 400, "key", "must be given 2 to 8 times"),
        ("", 400, "key", "it is given 0 times"),
        (
            &(1..=9)
                .map(|key| format!("key=l/{key}&"))
                .collect::<String>(),
            400,
            "key",
            "it is given 9 times",
        ),
        (
            "key=l/abc&key=u/a&key=l%2Fabc",
            400,
            "key",
            "is given twice",
        ),
        ("key=l/abc&key=abd", 400, "key", "with a slash between"),
        ("key=l/abc&key=l/", 400, "key", "1 to 2048 bytes"),
        (
            "key=l/abc&key=x/abc",
            404,
            "namespace",
            "one of the declared namespaces",
        ),
        (
            "key=l/abc&key=l/abd&units=-1",
            422,
            "units",
            "must have a beginning here",
        ),
        (
            "key=l/abc&key=l/abd&compare=before",
            400,
            "compare",
            "is not a parameter here; use key, unit",
        ),
        (
            "key=l/abc&key=l/abd&unit=hour&units=100000",
            422,
            "units",
            "",
        ),
    ] {
        let answer = site.get(&format!("/v1/compare?{query}")).await;
        let problem = answer.json();
        assert_eq!(
            (answer.status, &problem["field"]),
            (status, &json!(field)),
            "{query}: {problem}"
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(detail),
            "{query}: {problem}"
        );
    }
}

#[tokio::test]
async fn hours_of_the_week_are_sums_of_local_hours() {
    let site = Site::open(Schema::default_clicks(), NOW);
    // 14:40 of a Friday in New York, which an hour later is summer time since Sunday, March 11th.
    let click = |days: i64, n: u32| json!({"at": NOW - days * DAY, "n": n, "keys": {"l": "abc"}});
    site.count(json!([
        click(0, 1),
        click(7, 2),
        click(14, 4),
        click(30, 100)
    ]))
    .await;
    let week = site
        .get("/v1/l/abc/week?timezone=America/New_York")
        .await
        .json();
    assert_eq!((&week["total"], &week["unit"]), (&json!(7), &json!("hour")));
    assert_eq!(week["from"], "2012-02-18T00:00:00-05:00");
    let friday = &week["weekdays"][4];
    assert_eq!(friday["weekday"], "Fri");
    assert_eq!(
        (&friday["hours"][14], &friday["hours"][13]),
        (&json!(1), &json!(6))
    );
    let days = week["weekdays"].as_array().unwrap().iter();
    let all = days.flat_map(|day| day["hours"].as_array().unwrap());
    assert_eq!(all.map(|count| count.as_u64().unwrap()).sum::<u64>(), 7);

    let table = get(
        &site,
        "/v1/l/abc/week.csv?from=2012-03-16&to=2012-03-16&hour_offset=5.5",
    )
    .await;
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!((rows.len(), rows[0]), (1 + 7 * 24, "weekday,hour,count"));
    // The hour from 18:00 in UTC begins at 23:30.
    assert!(
        rows.contains(&"Fri,23,1") || rows.contains(&"Sat,0,1"),
        "{table}"
    );
    let picture = get(&site, "/v1/l/abc/week.svg").await;
    assert!(
        picture.contains("<title>Fri 18:00: 7</title>")
            && picture.contains("busiest Fri 18:00 (7)")
    );

    for (query, status, field) in [
        ("units=-1", 422, "units"),
        ("compare=before", 400, "compare"),
        ("units=500", 422, "units"),
    ] {
        let answer = site.get(&format!("/v1/l/abc/week?{query}")).await;
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (status, &json!(field)),
            "{query}: {}",
            answer.text
        );
    }
}
