//! Random clicks, zones and ranges: a query is as other reads are.

use proptest::prelude::*;

use super::*;

const ZONES: [&str; 7] = [
    "UTC",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Pacific/Apia",
    "Australia/Lord_Howe",
];

/// Clicks from October 2011 to March 2012, in which clocks of all zones change and Apia leaves out a day.
fn clicks() -> impl Strategy<Value = Vec<(i64, u64, usize, usize)>> {
    let at = (0..170 * 24_i64).prop_map(|hours| TODAY - hours * HOUR);
    prop::collection::vec((at, 1..1_000_u64, 0..3_usize, 0..3_usize), 1..60)
}

const KEYS: [&str; 3] = ["a", "b|c", "a longer key than a stored one"];
const COUNTRIES: [&str; 3] = ["US", "JP", "-"];

async fn check(
    clicks: Vec<(i64, u64, usize, usize)>,
    (first, length): (i64, i64),
    zone: &str,
    key: usize,
) -> Result<(), TestCaseError> {
    let site = Site::open(schema(), NOW);
    let clicks = clicks.iter().map(|(at, n, key, country)| {
        json!({"at": at, "n": n, "keys": {"l": KEYS[*key]}, "by": {"c": COUNTRIES[*country]}})
    });
    site.count(clicks.collect()).await;
    let key_text = serde_json::to_string(KEYS[key]).unwrap();
    let path_key = encoded(KEYS[key]);
    let start = TODAY - first * HOUR;
    let hours = format!(
        "unit=hour&from={start}&to={}&timezone=UTC",
        start + length * HOUR - 1
    );
    let asked = site
        .get(&format!("/v1/l/{path_key}/counts?{hours}"))
        .await
        .json();
    let counts = asked["counts"].as_array().unwrap().iter();
    let expected: Vec<String> = counts.map(|of| of["count"].to_string()).collect();
    let range = (start + HOUR, start + length * HOUR, HOUR);
    let query = format!("increase(tallyring_count{{namespace=\"l\",key={key_text}}}[1h])");
    let found = points(&site, &query, range, "").await;
    let values: Vec<String> = found[0].1.iter().map(|(_, value)| value.clone()).collect();
    prop_assert_eq!(values, expected);
    // By country the parts make the whole, hour by hour.
    let by =
        format!("sum by (c) (increase(tallyring_count{{namespace=\"l\",key={key_text}}}[1h]))");
    let parts = points(&site, &by, range, "").await;
    for (index, (instant, value)) in found[0].1.iter().enumerate() {
        let parts = parts.iter().map(|(_, points)| points[index].clone());
        let parts: Vec<(i64, String)> = parts.collect();
        prop_assert!(parts.iter().all(|(at, _)| at == instant));
        let sum: u64 = parts
            .iter()
            .map(|(_, part)| part.parse::<u64>().unwrap())
            .sum();
        prop_assert_eq!(&sum.to_string(), value);
    }
    check_days(&site, (zone, start), KEYS[key]).await
}

/// Days of the zone, from any instant near their midnight, as a client sends it that takes days of one length.
async fn check_days(
    site: &Site,
    (zone, start): (&str, i64),
    key: &str,
) -> Result<(), TestCaseError> {
    let (key_text, path_key) = (serde_json::to_string(key).unwrap(), encoded(key));
    let days = format!("from={start}&to={}&timezone={zone}", TODAY - 1);
    let asked = site
        .get(&format!("/v1/l/{path_key}/counts?unit=day&{days}"))
        .await
        .json();
    let counts = asked["counts"].as_array().unwrap();
    let instant = |text: &Value| -> i64 {
        text.as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
            .as_second()
    };
    let ends: Vec<i64> = counts
        .iter()
        .skip(1)
        .map(|of| instant(&of["start"]))
        .collect();
    let Some(first_end) = ends.first() else {
        return Ok(());
    };
    let query = format!("increase(tallyring_count{{namespace=\"l\",key={key_text}}}[1d])");
    let last = first_end + (ends.len() as i64 + 1) * DAY;
    let found = points(
        site,
        &query,
        (*first_end, last, DAY),
        &format!("&timezone={zone}"),
    )
    .await;
    let found: Vec<(i64, String)> = found[0].1.iter().take(ends.len()).cloned().collect();
    let expected = ends
        .iter()
        .zip(counts)
        .map(|(end, of)| (*end, of["count"].to_string()));
    prop_assert_eq!(found, Vec::from_iter(expected));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn prop_increases_are_the_counts_of_hours_and_of_days_of_any_zone(
        clicks in clicks(),
        first in 1..170 * 24_i64,
        length in 1..400_i64,
        zone in 0..ZONES.len(),
        key in 0..KEYS.len(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(check(clicks, (first, length.min(first)), ZONES[zone], key))?;
    }
}
