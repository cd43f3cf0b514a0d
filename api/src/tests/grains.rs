//! Every view in every unit, zone and range against a list of clicks: where minutes are kept totals are exact,
//! elsewhere a base bucket counts where it starts, and nothing is answered by the minute that has none.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use tallyring_records::{EventType, Grain, Namespace, Ratio, Schema};

use super::site::{Answer, Site};

/// 2012-04-03T18:40:30Z, after Lord Howe's clocks went back by half an hour.
const NOW: i64 = 1_333_478_430;
const KEYS: [&str; 3] = ["a", "a-", "a longer key than a stored one"];
const COUNTRIES: [&str; 3] = ["US", "JP", "-"];
const ZONES: [&str; 8] = [
    "UTC",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/New_York",
    "Pacific/Apia",
    "America/St_Johns",
];
const UNITS: [&str; 8] = [
    "minute", "hour", "day", "week", "mweek", "month", "quarter", "year",
];

/// Minutes, hours and quarters, each broken down and with users; and a ratio of what has minutes by what has not.
fn schema() -> Schema {
    let namespace = |name: &str, grain, minutes| Namespace {
        name: name.into(),
        title: String::new(),
        grain,
        subtotals: vec!["c".into()],
        minutes,
        uniques: true,
    };
    let event = |name: &str| EventType {
        name: name.into(),
        entities: vec!["x".into()],
        lateness_seconds: 300,
        actions: false,
    };
    Schema {
        titles: std::collections::BTreeMap::new(),
        settings: std::collections::BTreeMap::new(),
        namespaces: vec![
            namespace("m", Grain::Hour, true),
            namespace("h", Grain::Hour, false),
            namespace("q", Grain::Quarter, false),
            namespace("x_some", Grain::Hour, true),
            namespace("x_all", Grain::Hour, false),
        ],
        events: vec![event("some"), event("all")],
        ratios: vec![Ratio {
            name: "share".into(),
            numerator: "some".into(),
            denominator: "all".into(),
        }],
        filters: Vec::new(),
        lists: Vec::new(),
    }
}

#[derive(Debug, Clone)]
struct Click {
    at: i64,
    n: u64,
    key: usize,
    country: usize,
    user: u32,
}

fn clicks() -> impl Strategy<Value = Vec<Click>> {
    let click = (
        0..9 * 86_400_i64,
        1..9_u64,
        0..KEYS.len(),
        0..3_usize,
        0..12_u32,
    );
    let click = click.prop_map(|(ago, n, key, country, user)| Click {
        at: NOW - ago,
        n,
        key,
        country,
        user,
    });
    proptest::collection::vec(click, 1..60)
}

fn range() -> impl Strategy<Value = String> {
    let ago = 0..9 * 86_400_i64;
    prop_oneof![
        (1..20_u32).prop_map(|units| format!("units={units}")),
        Just("units=-1".to_owned()),
        (1..20_u32, ago.clone()).prop_map(|(units, ago)| format!("units={units}&to={}", NOW - ago)),
        (0..3 * 86_400_i64, ago).prop_map(|(long, ago)| {
            let to = NOW - ago;
            format!("from={}&to={to}", to - long)
        }),
    ]
}

/// How a namespace's counts are stored.
fn width(namespace: &str, by_minute: bool) -> i64 {
    match namespace {
        "m" if by_minute => 60,
        "q" => 900,
        _ => 3_600,
    }
}

fn start(click: &Click, width: i64) -> i64 {
    click.at - click.at.rem_euclid(width)
}

fn instant(label: &Value) -> i64 {
    let label: Timestamp = label.as_str().expect("a time").parse().expect("a time");
    label.as_second()
}

/// First instants of the rows of an answer, and the first one behind them.
fn edges(answer: &Value, rows: &str) -> Vec<i64> {
    let rows = answer[rows].as_array().expect("rows").iter();
    let starts = rows.map(|row| instant(&row["start"]));
    starts.chain([instant(&answer["to"])]).collect()
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

/// Clicks in each bucket.
fn sums<'c>(clicks: impl Iterator<Item = &'c Click>, edges: &[i64], width: i64) -> Vec<u64> {
    let mut sums = vec![0; edges.len() - 1];
    for click in clicks {
        let until = edges.partition_point(|&edge| edge <= start(click, width));
        if let Some(sum) = until.checked_sub(1).and_then(|at| sums.get_mut(at)) {
            *sum += click.n;
        }
    }
    sums
}

/// One question, and the clicks it is about.
struct Case<'c> {
    site: &'c Site,
    clicks: &'c [Click],
    namespace: &'c str,
    range: &'c str,
}

impl Case<'_> {
    async fn ask(&self, path: &str) -> Answer {
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = format!("/v1/{}/{path}{joint}{}", self.namespace, self.range);
        let answer = self.site.get(&path.replace(' ', "%20")).await;
        assert!(
            matches!(answer.status, 200 | 422),
            "{path}: {}",
            answer.text
        );
        answer
    }

    /// The answer, where it is one: else it must be a refusal of minutes that are not there.
    async fn read(&self, path: &str, width: i64) -> Option<Value> {
        let answer = self.ask(path).await;
        let json = answer.json();
        let is_refused =
            json["field"] == "unit" || json["field"] == "units" || json["field"] == "from";
        if answer.status == 422 {
            assert!(is_refused, "{path}: {json}");
            assert!(json["field"] != "unit" || width > 60, "{path}: {json}");
            return None;
        }
        assert!(json["unit"] != "minute" || width == 60, "{path}: {json}");
        let is_exact = |edges: &[i64]| edges.iter().all(|edge| edge.rem_euclid(width) == 0);
        if let Some(rows) = ["counts", "buckets"]
            .iter()
            .find(|rows| json[**rows].is_array())
        {
            assert_eq!(
                json["aligned"],
                is_exact(&edges(&json, rows)),
                "{path}: {json}"
            );
        }
        Some(json)
    }

    async fn check_key(&self, key: usize) {
        let (width, coarse) = (width(self.namespace, true), width(self.namespace, false));
        // Values and users have minutes where minutes are asked for.
        let coarse = match self.range.contains("unit=minute") {
            true => width,
            false => coarse,
        };
        let of_key = || self.clicks.iter().filter(|click| click.key == key);
        let key = KEYS[key];
        if let Some(counts) = self.read(&format!("{key}/counts"), width).await {
            let edges = edges(&counts, "counts");
            let expected = sums(of_key(), &edges, width);
            let rows = counts["counts"].as_array().expect("rows").iter();
            let found: Vec<u64> = rows.map(|row| number(&row["count"])).collect();
            assert_eq!(found, expected, "{counts}");
            assert_eq!(number(&counts["total"]), expected.iter().sum::<u64>());
            if self.range.contains("units=-1") {
                let all: u64 = of_key().map(|click| click.n).sum();
                assert_eq!(number(&counts["total"]), all, "{counts}");
            }
            let summary = self
                .read(&format!("{key}/summary"), width)
                .await
                .expect("a total");
            for field in ["from", "to", "total", "aligned"] {
                assert_eq!(summary[field], counts[field], "{field}: {summary}");
            }
        }
        let by = format!("{key}/by/c?limit=100");
        if let Some(rows) = self.read(&format!("{by}&rollup=false"), coarse).await {
            let edges = edges(&rows, "buckets");
            let mut total = 0;
            let expected = sums(of_key(), &edges, coarse);
            for (row, expected) in rows["buckets"]
                .as_array()
                .expect("rows")
                .iter()
                .zip(expected)
            {
                let values = row["values"].as_array().expect("values").iter();
                let sum: u64 = values.map(|value| number(&value["count"])).sum();
                assert_eq!((sum, number(&row["total"])), (expected, expected), "{row}");
                total += sum;
            }
            let rolled = self.read(&by, coarse).await.expect("a ranking");
            let values = rolled["values"].as_array().expect("values").iter();
            let sum: u64 = values.map(|value| number(&value["count"])).sum();
            assert_eq!((sum, number(&rolled["total"])), (total, total), "{rolled}");
        }
        if let Some(users) = self.read(&format!("{key}/uniques"), coarse).await {
            let (from, to) = (instant(&users["from"]), instant(&users["to"]));
            let within = of_key().filter(|click| (from..to).contains(&start(click, coarse)));
            let users_of: BTreeSet<u32> = within.map(|click| click.user).collect();
            assert_eq!(number(&users["estimate"]), users_of.len() as u64, "{users}");
            let edges = edges(&users, "counts");
            let rows = users["counts"].as_array().expect("rows").iter();
            for (row, edge) in rows.zip(edges.windows(2)) {
                let within =
                    of_key().filter(|click| (edge[0]..edge[1]).contains(&start(click, coarse)));
                let users_of: BTreeSet<u32> = within.map(|click| click.user).collect();
                assert_eq!(number(&row["estimate"]), users_of.len() as u64, "{users}");
            }
        }
    }

    async fn check_all(&self) {
        let width = width(self.namespace, true);
        if let Some(counts) = self.read("counts", width).await {
            let expected = sums(self.clicks.iter(), &edges(&counts, "counts"), width);
            let rows = counts["counts"].as_array().expect("rows").iter();
            let found: Vec<u64> = rows.map(|row| number(&row["count"])).collect();
            assert_eq!(found, expected, "{counts}");
            assert_eq!(number(&counts["total"]), expected.iter().sum::<u64>());
        }
        if let Some(top) = self.read("top", width).await {
            let (from, to) = match self.range.contains("units=-1") {
                true => (i64::MIN, i64::MAX),
                false => (instant(&top["from"]), instant(&top["to"])),
            };
            let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
            for click in self.clicks {
                if (from..to).contains(&start(click, width)) {
                    *expected.entry(KEYS[click.key]).or_insert(0) += click.n;
                }
            }
            let keys = top["keys"].as_array().expect("keys").iter();
            let found: BTreeMap<&str, u64> = keys
                .map(|row| (row["key"].as_str().expect("a key"), number(&row["count"])))
                .collect();
            assert_eq!(found, expected, "{top}");
            assert_eq!(
                number(&top["total"]),
                expected.values().sum::<u64>(),
                "{top}"
            );
        }
    }
}

async fn check(clicks: &[Click], questions: &[(String, &str, &str)]) {
    let site = Site::open(schema(), NOW);
    let items = clicks.iter().map(|click| {
        let key = KEYS[click.key];
        json!({"at": click.at, "n": click.n, "keys": {"m": key, "h": key, "q": key},
            "by": {"c": COUNTRIES[click.country]}, "user": format!("user {}", click.user)})
    });
    site.count(items.collect()).await;
    for (range, unit, zone) in questions {
        let range = format!("{range}&unit={unit}&timezone={zone}");
        for namespace in ["m", "h", "q"] {
            let case = Case {
                site: &site,
                clicks,
                namespace,
                range: &range,
            };
            for key in 0..KEYS.len() {
                case.check_key(key).await;
            }
            case.check_all().await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn prop_buckets_sum_to_the_summary_in_every_unit_zone_and_range(
        clicks in clicks(),
        questions in proptest::collection::vec(
            (range(), proptest::sample::select(&UNITS[..]), proptest::sample::select(&ZONES[..])),
            6,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(&clicks, &questions));
    }
}

#[tokio::test]
async fn a_read_by_the_minute_of_what_has_none_says_what_there_is() {
    let site = Site::open(schema(), NOW);
    site.count(json!([{"at": NOW, "n": 3, "keys": {"m": "a", "h": "a", "q": "a"}, "by": {"c": "US"}, "user": "u"}]))
        .await;
    for (path, words) in [
        (
            "h/a/counts",
            "h is counted by the hour and keeps no minutes",
        ),
        ("h/a/summary", "minutes = true"),
        ("q/a/counts", "by the quarter of an hour"),
        ("h/a/by/c", "h is counted by the hour and keeps no minutes"),
        ("h/a/by/c.csv", "unit=hour"),
        ("h/a/uniques", "keeps no minutes"),
        ("h/counts", "h is counted by the hour"),
        ("h/top", "h is counted by the hour"),
        ("ratios/share/x/a", "x_all is counted by the hour"),
    ] {
        let answer = site.get(&format!("/v1/{path}?unit=minute&units=5")).await;
        let problem = answer.json();
        assert_eq!(answer.status, 422, "{path}: {problem}");
        assert_eq!(
            (&problem["field"], &problem["value"]),
            (&json!("unit"), &json!("minute"))
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(words) && detail.contains("unit=hour"),
            "{path}: {detail}"
        );
    }
    for path in ["m/a/counts", "m/counts", "m/top", "m/a/by/c"] {
        let answer = site.get(&format!("/v1/{path}?unit=minute&units=5")).await;
        assert_eq!(
            (answer.status, &answer.json()["total"]),
            (200, &json!(3)),
            "{path}"
        );
    }
    let query = |by: &str| {
        let body = format!(r#"{{"queries":[{{"namespace":"m","key":"a","unit":"minute"{by}}}]}}"#);
        let request = axum::http::Request::post("/v1/query");
        request.body(axum::body::Body::from(body)).unwrap()
    };
    let series = site.ask(query("")).await;
    assert_eq!(series.json()["answers"][0]["total"], 3);
    let by = site.ask(query(r#","by":"c""#)).await;
    let us = json!([{"value": "US", "count": 3}]);
    assert_eq!(by.json()["answers"][0]["values"], us, "{}", by.text);
    let by = site
        .ask(query(r#","by":"c","from":"2012-04-03T14:59:00Z""#))
        .await;
    assert_eq!((by.status, &by.json()["field"]), (422, &json!("from")));
    assert_eq!(by.json()["index"], 0);
}

#[tokio::test]
async fn what_was_counted_before_minutes_were_kept_is_not_told_by_the_minute() {
    let mut schema = schema();
    schema.namespaces[0].minutes = false;
    let mut site = Site::open(schema.clone(), NOW);
    site.count(json!([{"at": NOW - 7_200, "n": 3, "keys": {"m": "a"}}]))
        .await;
    schema.namespaces[0].minutes = true;
    site.reopen(schema, NOW);
    site.count(json!([{"at": NOW, "n": 2, "keys": {"m": "a"}}]))
        .await;
    // 16:40:30 was counted with its hour.
    for path in ["m/a/counts", "m/counts", "m/top"] {
        let ask = async |range: &str| site.get(&format!("/v1/{path}?unit=minute&{range}")).await;
        let before = ask("from=2012-04-03T16:50:00Z&to=2012-04-03T17:30:00Z").await;
        let problem = before.json();
        assert_eq!(
            (before.status, &problem["field"]),
            (422, &json!("unit")),
            "{path}: {problem}"
        );
        let since = ask("from=2012-04-03T17:00:00Z").await;
        assert_eq!(
            (since.status, &since.json()["total"]),
            (200, &json!(2)),
            "{path}: {}",
            since.text
        );
        assert_eq!(since.json()["aligned"], true);
    }
    let detail = site
        .get("/v1/m/a/counts?unit=minute&units=180")
        .await
        .json();
    let detail = detail["detail"].as_str().unwrap();
    assert!(detail.contains("2012-04-03T17:00:00Z"), "{detail}");
    let kolkata = site
        .get("/v1/m/a/counts?timezone=Asia/Kolkata&units=2")
        .await
        .json();
    assert_eq!(kolkata["aligned"], true, "no day begins within that hour");
    // A day that begins at 16:30 divides it.
    for path in ["m/a/counts", "m/counts", "m/top"] {
        let answer = site
            .get(&format!("/v1/{path}?hour_offset=7.5&units=1"))
            .await
            .json();
        assert_eq!(
            (&answer["aligned"], &answer["total"]),
            (&json!(false), &json!(2)),
            "{answer}"
        );
    }
}
