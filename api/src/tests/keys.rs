//! Keys by their text: pages, rankings, forms, and what they say of themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tallyring_records::Schema;

use super::site::Site;

/// 2012-03-16T18:40:00Z
const NOW: i64 = 1_331_923_200;
const DAY: i64 = 86_400;

fn click(at: i64, key: &str, n: u32) -> Value {
    json!({"at": at, "n": n, "keys": {"l": key}, "by": {"r": "https://news.example/"}})
}

async fn counted() -> Site {
    let site = Site::open(Schema::default_clicks(), NOW);
    site.count(json!([
        click(NOW - 40 * DAY, "old", 9),
        click(NOW - 2 * DAY, "abc", 2),
        click(NOW, "abc", 1),
        click(NOW, "abd", 5),
        click(NOW - 2 * DAY, "abe", 7),
        click(NOW, "abe", 1),
        click(NOW, "xyz", 4),
        click(NOW, "https://News.example/a", 3),
        click(NOW, "https://news.example/b?c,d", 1),
        click(NOW, "ab and more than a short key", 2),
    ]))
    .await;
    site
}

/// Keys and counts of an answer.
fn listed(answer: &Value) -> Vec<(&str, u64)> {
    let keys = answer["keys"].as_array().unwrap().iter();
    keys.map(|key| (key["key"].as_str().unwrap(), key["count"].as_u64().unwrap()))
        .collect()
}

async fn ask(site: &Site, query: &str) -> Value {
    let answer = site.get(&format!("/v1/l/keys?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    answer.json()
}

#[tokio::test]
async fn keys_are_found_by_their_beginning_and_by_a_part() {
    let site = counted().await;
    let begins = ask(&site, "prefix=ab").await;
    let expected = [
        ("abc", 3),
        ("abd", 5),
        ("abe", 8),
        ("ab and more than a short key", 2),
    ];
    assert_eq!(listed(&begins), expected, "of all time, short keys first");
    assert_eq!(
        (&begins["complete"], &begins["sort"]),
        (&json!(true), &json!("key"))
    );
    assert!(begins.get("next").is_none() && begins.get("compared").is_none());
    assert_eq!(
        (&begins["unit"], &begins["aligned"]),
        (&json!("month"), &json!(true))
    );
    let today = ask(&site, "prefix=ab&units=1").await;
    assert_eq!(listed(&today)[0], ("abc", 1));
    assert_eq!(today["from"], "2012-03-16T00:00:00+00:00");
    // A referrer has the text, too, and is no key.
    let part = ask(&site, "contains=NEWS.example").await;
    let mut found = listed(&part);
    found.sort_unstable();
    let expected = [
        ("https://News.example/a", 3),
        ("https://news.example/b?c,d", 1),
    ];
    assert_eq!(found, expected);
    assert_eq!(listed(&ask(&site, "prefix=https://n").await), [expected[1]]);
    assert_eq!(listed(&ask(&site, "contains=B").await).len(), 5);
    assert!(listed(&ask(&site, "prefix=B").await).is_empty());
    assert_eq!(
        listed(&ask(&site, "prefix=old&contains=").await),
        [("old", 9)]
    );
    assert!(listed(&ask(&site, "prefix=old&units=7").await).is_empty());
}

#[tokio::test]
async fn pages_go_on_behind_the_last_key() {
    let site = counted().await;
    for (query, all) in [("", 8), ("prefix=ab&", 4), ("contains=e&", 4)] {
        let whole = ask(&site, &format!("{query}limit=100")).await;
        let whole: BTreeMap<&str, u64> = listed(&whole).into_iter().collect();
        assert_eq!(whole.len(), all, "{query}");
        let (mut found, mut page, mut pages) = (BTreeMap::new(), String::new(), 0);
        loop {
            let answer = ask(&site, &format!("{query}limit=2&page={page}")).await;
            for (key, count) in listed(&answer) {
                assert_eq!(found.insert(key.to_owned(), count), None, "{query}");
            }
            assert_eq!(answer["complete"], true, "{query}");
            pages += 1;
            assert!(pages <= all, "{query}");
            match answer["next"].as_str() {
                Some(next) => page = next.to_owned(),
                None => break,
            }
        }
        assert!(
            found
                .iter()
                .map(|(key, count)| (key.as_str(), *count))
                .eq(whole),
            "{query}"
        );
    }
}

#[tokio::test]
async fn keys_are_ranked_by_their_counts_and_by_what_they_gained() {
    let site = counted().await;
    for query in [
        "sort=count&units=1&limit=2",
        "sort=count&units=1&limit=2&contains=b",
    ] {
        let ranked = ask(&site, query).await;
        let expected = match query.contains("contains") {
            true => [("abd", 5), ("ab and more than a short key", 2)],
            false => [("abd", 5), ("xyz", 4)],
        };
        assert_eq!(listed(&ranked), expected, "{query}");
        assert_eq!(ranked["complete"], true);
    }
    for query in ["sort=rising&units=2", "sort=rising&units=2&prefix=ab"] {
        let rising = ask(&site, query).await;
        let gained: Vec<_> = rising["keys"].as_array().unwrap().iter().collect();
        assert_eq!(gained[0], &json!({"key": "abd", "count": 5, "before": 0}));
        assert!(
            gained.iter().all(|key| key["key"] != "abe"),
            "it lost: {rising}"
        );
        assert!(
            gained.iter().all(|key| key["key"] != "abc"),
            "it lost: {rising}"
        );
        assert_eq!(rising["complete"], true);
        let compared = json!({
            "kind": "before", "from": "2012-03-13T00:00:00+00:00", "to": "2012-03-15T00:00:00+00:00",
        });
        assert_eq!(rising["compared"], compared);
    }
    let year = ask(&site, "sort=rising&units=1&compare=year").await;
    assert_eq!(year["compared"]["from"], "2011-03-16T00:00:00+00:00");
}

#[tokio::test]
async fn keys_are_there_as_a_table_that_says_where_it_ends() {
    let site = counted().await;
    let table = site.get("/v1/l/keys.csv?prefix=ab").await;
    let rows = "key,count,kind\nabc,3,value\nabd,5,value\nabe,8,value\nab and more than a short key,2,value\n";
    assert_eq!((table.status, table.text.as_str()), (200, rows));
    let first = site
        .get("/v1/namespaces/l/keys.csv?prefix=ab&limit=1")
        .await;
    assert_eq!(first.text, "key,count,kind\nabc,3,value\n,,more\n");
    let rising = site
        .get("/v1/l/keys.csv?prefix=abd&sort=rising&units=2")
        .await;
    assert_eq!(rising.text, "key,count,before,kind\nabd,5,0,value\n");
}

#[tokio::test]
async fn a_search_that_ends_early_says_so_and_goes_on() {
    let site = Site::open(Schema::default_clicks(), NOW);
    // More texts than the first answer to a prefix looks at.
    for part in 0..3 {
        let clicks = (0..2_000).map(|number| {
            let referrer = format!(
                "https://news.example/{}/{part}/{number}",
                "long".repeat(450)
            );
            json!({"at": NOW, "n": 1, "keys": {"l": "abc"}, "by": {"r": referrer}})
        });
        site.count(clicks.collect()).await;
    }
    site.count(json!([click(NOW, "https://news.example/a", 3)]))
        .await;
    site.app().stores().first().ledger().flush().unwrap();
    let (mut found, mut page) = (Vec::new(), Some(String::new()));
    let mut complete = Vec::new();
    while let Some(next) = page {
        let answer = ask(&site, &format!("prefix=https://news.example/a&page={next}")).await;
        found.extend(
            listed(&answer)
                .iter()
                .map(|(key, count)| (key.to_string(), *count)),
        );
        complete.push(answer["complete"] == true);
        page = answer["next"].as_str().map(str::to_owned);
    }
    assert_eq!(found, [("https://news.example/a".to_owned(), 3)]);
    assert_eq!(complete, [false, true]);
}
