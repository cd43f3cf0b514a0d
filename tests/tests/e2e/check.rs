//! The one check: every answer equals a direct count of the clicks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use jiff::civil::{Date, date};
use serde_json::{Value, json};
use tallyring_tests::server::Client;

use crate::calendar::Buckets;
use crate::expected::Expected;

/// Zones whose days begin at a full hour of UTC, at half past, and on the other side of the date
/// line.
const ZONES: [&str; 3] = ["America/New_York", "Asia/Kolkata", "Pacific/Auckland"];

/// In UTC only days on which clicks are counted.
const FIRST_DAY_UTC: Date = date(2012, 3, 15);
/// In the zones from before New York's clocks changed, on the 11th.
const FIRST_DAY: Date = date(2012, 3, 10);
const LAST_DAY: Date = date(2012, 3, 19);

/// One key of so many is asked for in each zone.
const ZONE_KEYS: usize = 120;
const THREADS: usize = 2;

/// Everything that is asked of a key.
struct Plan {
    /// UTC, by the hour.
    utc: Buckets,
    zones: Vec<Buckets>,
}

impl Plan {
    fn new() -> Self {
        let zones = ZONES.iter().flat_map(|zone| {
            [
                Buckets::hours(zone, FIRST_DAY, LAST_DAY),
                Buckets::days(zone, FIRST_DAY, LAST_DAY),
            ]
        });
        Self {
            utc: Buckets::hours("UTC", FIRST_DAY_UTC, LAST_DAY),
            zones: zones.collect(),
        }
    }
}

/// Compares all keys by the hour in UTC, with every breakdown, and a part of them by hour and by
/// day in other zones.
///
/// # Panics
/// At the first difference.
pub(crate) fn check_all(client: &Client, expected: &Expected) {
    check_part(client, expected, 0, 1);
}

/// As [`check_all`], for every `step`-th key, beginning with the `first`.
///
/// # Panics
/// At the first difference.
pub(crate) fn check_part(client: &Client, expected: &Expected, first: usize, step: usize) {
    let plan = Plan::new();
    let keys: Vec<_> = expected.keys().skip(first).step_by(step).collect();
    let in_zones = keys.len().div_ceil(ZONE_KEYS / step.min(ZONE_KEYS));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(key) = keys.get(index) else { return };
                    check_key(client, expected, key, &plan.utc);
                    if index.is_multiple_of(in_zones) {
                        for buckets in &plan.zones {
                            check_counts(client, expected, key, buckets);
                            check_buckets(client, expected, key, "c", buckets);
                        }
                    }
                }
            });
        }
    });
}

/// One key by the hour: total, and every subtotal by bucket and over all.
fn check_key(
    client: &Client,
    expected: &Expected,
    key: &(&'static str, String),
    buckets: &Buckets,
) {
    check_counts(client, expected, key, buckets);
    let subtotals: &[&str] = if key.0 == "l" {
        &["c", "r", "v"]
    } else {
        &["c", "r"]
    };
    for subtotal in subtotals {
        check_buckets(client, expected, key, subtotal, buckets);
    }
    check_ranking(client, expected, key, "c", buckets, 10_000);
    check_ranking(client, expected, key, "r", buckets, 3);
}

/// `…/counts`: every bucket.
pub(crate) fn check_counts(
    client: &Client,
    expected: &Expected,
    key: &(&'static str, String),
    buckets: &Buckets,
) {
    let path = format!("/v1/{}/{}/counts?{}", key.0, key.1, buckets.query());
    let answer = client.get_json(&path);
    let totals = expected.totals(key, buckets);
    check_head(&path, &answer, key, buckets, totals.iter().sum());
    let counts = totals.iter().enumerate();
    let counts: Value = counts
        .map(|(index, count)| json!({"start": buckets.label(index), "count": count}))
        .collect();
    assert_eq!(answer["counts"], counts, "{path}");
}

/// `…/by/…` with `rollup=false`: total and values of every bucket.
fn check_buckets(
    client: &Client,
    expected: &Expected,
    key: &(&'static str, String),
    subtotal: &str,
    buckets: &Buckets,
) {
    let query = buckets.query();
    let path = format!(
        "/v1/{}/{}/by/{subtotal}?{query}&rollup=false&limit=10000",
        key.0, key.1
    );
    let answer = client.get_json(&path);
    let totals = expected.totals(key, buckets);
    check_head(&path, &answer, key, buckets, totals.iter().sum());
    let rankings = expected.rankings(key, subtotal, buckets);
    let rows: Value = (0..buckets.count())
        .map(|index| {
            json!({
                "start": buckets.label(index),
                "total": totals[index],
                "values": listed(&rankings[index]),
                "other": 0,
            })
        })
        .collect();
    assert_eq!(answer["buckets"], rows, "{path}");
}

/// `…/by/…`: the largest values of the whole range, and the others' sum.
fn check_ranking(
    client: &Client,
    expected: &Expected,
    key: &(&'static str, String),
    subtotal: &str,
    buckets: &Buckets,
    limit: usize,
) {
    let query = buckets.query();
    let path = format!(
        "/v1/{}/{}/by/{subtotal}?{query}&limit={limit}",
        key.0, key.1
    );
    let answer = client.get_json(&path);
    let ranking = expected.ranking(key, subtotal);
    let total = ranking.iter().map(|(_, count)| count).sum();
    check_head(&path, &answer, key, buckets, total);
    let (first, others) = ranking.split_at(limit.min(ranking.len()));
    let other: u64 = others.iter().map(|(_, count)| count).sum();
    assert_eq!(answer["values"], listed(first), "{path}");
    assert_eq!(answer["other"], json!(other), "{path}");
}

fn listed(ranking: &[(String, u64)]) -> Value {
    let rows = ranking.iter();
    rows.map(|(value, count)| json!({"value": value, "count": count}))
        .collect()
}

fn check_head(
    path: &str,
    answer: &Value,
    key: &(&'static str, String),
    buckets: &Buckets,
    total: u64,
) {
    let fields = [
        ("namespace", json!(key.0)),
        ("key", json!(key.1)),
        ("unit", json!(buckets.unit)),
        ("timezone", json!(buckets.zone)),
        ("from", json!(buckets.label(0))),
        ("to", json!(buckets.label(buckets.count()))),
        ("aligned", json!(buckets.aligned())),
        ("total", json!(total)),
    ];
    for (name, value) in fields {
        assert_eq!(answer[name], value, "{name} in {path}");
    }
}
