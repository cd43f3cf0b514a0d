//! Counts of some values of subtotals alone, against a model that knows every click.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::{Grain, Namespace, Schema};

use super::site::Site;

/// 2012-03-16T18:40:30Z.
const NOW: i64 = 1_331_923_230;
const LONG: &str = "http://example.com/a*b?c=d e";

fn schema(subtotals: &[&str]) -> Schema {
    let mut schema = Schema::default_clicks();
    schema.titles = [("c".into(), "country".into())].into();
    schema.namespaces = vec![Namespace {
        name: "l".into(),
        title: String::new(),
        grain: Grain::Hour,
        subtotals: subtotals.iter().map(|&name| name.into()).collect(),
        minutes: true,
        uniques: true,
    }];
    schema
}

/// A click: hours before now, country, referrer, device; empty for none.
type Click = (i64, &'static str, &'static str, &'static str);

const CLICKS: [Click; 7] = [
    (0, "DE", "t.co", "phone"),
    (0, "DE", LONG, "phone"),
    (1, "DE", LONG, ""),
    (1, "US", "t.co", "desktop"),
    (30, "DE", "t.co", "phone"),
    (30, "", LONG, "desktop"),
    (30, "US", "", ""),
];

async fn site(subtotals: &[&str]) -> Site {
    let site = Site::open(schema(subtotals), NOW);
    let clicks = CLICKS.iter().zip(1..).map(|((hours, c, r, v), n)| {
        let named = [("c", c), ("r", r), ("v", v)];
        let by = named.into_iter().filter(|(_, value)| !value.is_empty());
        let by: BTreeMap<&str, &&str> = by.collect();
        json!({"at": NOW - hours * 3_600, "n": n, "keys": {"l": "abc"}, "by": by})
    });
    site.count(Value::Array(clicks.collect())).await;
    site
}

/// The clicks with these values, each with its `n`.
fn model(wanted: &[(&str, &str)]) -> Vec<(Click, u64)> {
    let with = CLICKS.iter().copied().zip(1..);
    let is_wanted = |(click, _): &(Click, u64)| {
        wanted
            .iter()
            .all(|(of, value)| value_of(click, of) == *value)
    };
    with.filter(is_wanted).collect()
}

fn value_of(click: &Click, dimension: &str) -> &'static str {
    let value = match dimension {
        "c" => click.1,
        "r" => click.2,
        _ => click.3,
    };
    if value.is_empty() { "-" } else { value }
}

fn query(wanted: &[(&str, &str)]) -> String {
    let encode = |value: &str| -> String {
        let encoded = value.bytes().map(|byte| format!("%{byte:02X}"));
        encoded.collect()
    };
    let values = wanted.iter();
    values
        .map(|(of, value)| format!("&where.{of}={}", encode(value)))
        .collect()
}

/// Values that are asked, and the clicks that have them.
struct Asked {
    wanted: &'static [(&'static str, &'static str)],
    query: String,
    clicks: Vec<(Click, u64)>,
}

impl Asked {
    fn new(wanted: &'static [(&'static str, &'static str)]) -> Self {
        let (query, clicks) = (query(wanted), model(wanted));
        Self {
            wanted,
            query,
            clicks,
        }
    }

    fn total(&self) -> u64 {
        self.clicks.iter().map(|(_, n)| n).sum()
    }

    /// The sums of the last three days.
    fn days(&self) -> [u64; 3] {
        let mut days = [0; 3];
        for ((hours, ..), n) in &self.clicks {
            days[if *hours > 18 { 1 } else { 2 }] += n;
        }
        days
    }

    /// The sum of each value of a subtotal.
    fn by(&self, subtotal: &str) -> BTreeMap<String, u64> {
        let mut values = BTreeMap::new();
        for (click, n) in &self.clicks {
            let parts = subtotal.split('*').map(|of| value_of(click, of).to_owned());
            let value = match subtotal.contains('*') {
                true => Vec::from_iter(parts.map(|part| part.replace('*', r"\*"))).join("*"),
                false => parts.collect(),
            };
            *values.entry(value).or_default() += n;
        }
        values
    }

    async fn ask(&self, site: &Site, read: &str) -> Value {
        let answer = site.get(&format!("/v1/l/abc/{read}{}", self.query)).await;
        assert_eq!(
            answer.status, 200,
            "{read} {:?}: {}",
            self.wanted, answer.text
        );
        answer.json()
    }

    async fn check_breakdown(&self, site: &Site, by: &str) {
        let answer = self.ask(site, &format!("by/{by}?units=3")).await;
        assert_eq!(values(&answer), self.by(by), "{answer}");
        let sums = (&answer["total"], &answer["other"]);
        assert_eq!(sums, (&json!(self.total()), &json!(0)), "{answer}");
        let one = self.ask(site, &format!("by/{by}?units=3&limit=1")).await;
        let listed: u64 = values(&one).values().sum();
        assert_eq!(one["other"], self.total() - listed, "{one}");
        let days = self
            .ask(site, &format!("by/{by}?units=3&rollup=false"))
            .await;
        let buckets = days["buckets"].as_array().unwrap().iter();
        let totals = buckets.map(|of| of["total"].as_u64().unwrap());
        assert_eq!(Vec::from_iter(totals), self.days(), "{days}");
    }
}

fn values(answer: &Value) -> BTreeMap<String, u64> {
    let values = answer["values"].as_array().unwrap().iter();
    let pair = |of: &Value| {
        (
            of["value"].as_str().unwrap().to_owned(),
            of["count"].as_u64().unwrap(),
        )
    };
    values.map(pair).collect()
}

#[tokio::test]
async fn counts_summaries_and_breakdowns_have_the_wanted_values_alone() {
    let site = site(&["c", "r", "v", "c*r", "v*c"]).await;
    let all: [&[(&str, &str)]; 8] = [
        &[("c", "DE")],
        &[("c", "-")],
        &[("c", "XX")],
        &[("r", LONG)],
        &[("c", "DE"), ("r", LONG)],
        &[("r", "t.co"), ("c", "US")],
        &[("c", "DE"), ("v", "-")],
        &[("v", "phone")],
    ];
    for wanted in all {
        let asked = Asked::new(wanted);
        let counts = asked.ask(&site, "counts?unit=day&units=3").await;
        let found = counts["counts"].as_array().unwrap().iter();
        let found = found.map(|of| of["count"].as_u64().unwrap());
        assert_eq!(Vec::from_iter(found), asked.days(), "{counts}");
        assert_eq!(counts["total"], asked.total(), "{counts}");
        let told: BTreeMap<&str, &str> = wanted.iter().copied().collect();
        assert_eq!(counts["where"], json!(told));
        for units in ["units=3", "unit=hour&units=60", "unit=month&units=-1"] {
            let summary = asked.ask(&site, &format!("summary?{units}")).await;
            assert_eq!(summary["total"], asked.total(), "{summary}");
        }
        for by in ["c", "r", "v", "c*r"] {
            let needed: BTreeSet<&str> = wanted
                .iter()
                .map(|(of, _)| *of)
                .chain(by.split('*'))
                .collect();
            if needed.len() > 2 || needed == BTreeSet::from(["r", "v"]) {
                let path = format!("/v1/l/abc/by/{by}?units=3{}", asked.query);
                assert_eq!(site.get(&path).await.status, 422, "{path}");
            } else {
                asked.check_breakdown(&site, by).await;
            }
        }
    }
}

#[tokio::test]
async fn every_form_and_many_queries_have_the_wanted_values_alone() {
    let site = site(&["c", "v", "c*v"]).await;
    let table = site
        .get("/v1/l/abc/counts.csv?units=2&where.c=US&compare=before")
        .await;
    let rows: Vec<&str> = table.text.lines().collect();
    assert_eq!(rows[0], "start,count,before");
    assert_eq!(
        &rows[1..],
        [
            "2012-03-15T00:00:00+00:00,7,",
            "2012-03-16T00:00:00+00:00,4,"
        ]
    );
    let picture = site
        .get("/v1/l/abc/counts.svg?units=2&where.c=DE")
        .await
        .text;
    assert!(picture.contains("l/abc, country DE"), "{picture}");
    let badge = site
        .get("/v1/l/abc/badge?units=2&where.c=DE&where.v=phone")
        .await
        .text;
    assert!(badge.contains(">8<"), "{badge}");
    let minutes = site
        .get("/v1/l/abc/counts?unit=minute&units=90&where.v=phone")
        .await
        .json();
    assert_eq!(minutes["total"], 3, "{minutes}");
    let queries = json!({"queries": [
        {"namespace": "l", "key": "abc", "units": 2, "where.c": "DE"},
        {"namespace": "l", "key": "abc", "units": 2},
        {"namespace": "l", "key": "abc", "units": 2, "by": "v", "where.c": "US"},
        {"namespace": "l", "key": "abc", "units": 2, "by": "v"},
        {"namespace": "l", "key": "abc", "units": 1, "where.c": "DE", "compare": "before"},
        {"namespace": "l", "key": "abc", "units": 1, "compare": "before"},
    ]});
    let asked = |path: &str, body: &Value| {
        Request::post(path)
            .body(Body::from(body.to_string()))
            .unwrap()
    };
    let answers = site.ask(asked("/v1/query", &queries)).await.json();
    let answer = |index: usize| &answers["answers"][index];
    let totals: Vec<&Value> = (0..6).map(|index| &answer(index)["total"]).collect();
    assert_eq!(
        totals,
        [11, 28, 11, 28, 6, 10]
            .map(|n| json!(n))
            .iter()
            .collect::<Vec<_>>(),
        "{answers}"
    );
    assert_eq!(
        answer(2)["values"],
        json!([{"value": "-", "count": 7}, {"value": "desktop", "count": 4}])
    );
    assert_eq!(answer(4)["before"]["counts"], json!([5]));
    assert_eq!(answer(5)["before"]["counts"], json!([18]));
    assert!(answer(1).get("before").is_none() && answer(1).get("where").is_none());
    let refused = site.ask(asked("/v1/query.csv", &queries)).await;
    assert_eq!(
        (refused.status, &refused.json()["field"]),
        (400, &json!("compare")),
        "{}",
        refused.text
    );
}

/// Reads of a key that are refused: status, field, and a part of the detail.
const REFUSED: &str = r#"
counts?where.c=DE&where.r=t.co | 422 | where.c | subtotals = ["c", "r", "v", "c*v", "c*r"]
by/r?where.c=DE | 422 | where.c | No subtotal of l keeps c and r together
by/r?where.c=DE&where.v=phone | 422 | where.c | this read needs c and v and r
summary?where.x=DE | 404 | where.x | must be a dimension of l: one of c, r, v
summary?where.c*v=DE | 404 | where.c*v | must be a dimension of l
summary?where.=DE | 404 | where. | must be a dimension of l
counts?where.c= | 400 | where.c | must be a value; `-` stands
counts?where.c=DE&where.c=US | 400 | where.c | is given twice
counts?where.c=DE&unit=second | 400 | where.c | is not a parameter
counts?where.c=DE&filtered=true | 422 | filtered | beside `where`
counts?where.c=DE&unit=minute&units=3000 | 422 | from | kept
uniques?where.c=DE | 400 | where.c | is not a parameter
"#;

#[tokio::test]
async fn what_is_not_kept_together_is_refused_with_what_to_declare() {
    let site = site(&["c", "r", "v", "c*v"]).await;
    for line in REFUSED.lines().filter(|line| !line.is_empty()) {
        let [path, status, field, says] = Vec::from_iter(line.split(" | "))[..] else {
            panic!("{line}");
        };
        let refused = site.get(&format!("/v1/l/abc/{path}")).await;
        assert_eq!(
            refused.status.to_string(),
            status,
            "{path}: {}",
            refused.text
        );
        let problem = refused.json();
        assert_eq!(problem["field"], field, "{path}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{path}: {detail}");
    }
    for path in [
        "counts?where.c=DE",
        "by?subtotal=c&where.c=DE",
        "top?where.c=DE",
        "keys?where.c=DE",
    ] {
        let refused = site.get(&format!("/v1/l/{path}")).await;
        let problem = refused.json();
        let found = (refused.status, &problem["field"]);
        assert_eq!(found, (400, &json!("where.c")), "{path}");
    }
}
