//! Final versions tell all that rules filter by class, and keys that had counted twice.

use std::collections::BTreeMap;

use serde_json::json;
use tallyring_archive::{RepeatedKey, RepeatedKeys};
use tallyring_records::Class;

use super::finals::{close_with, site};

const DAY: &str = "2012-03-14";

#[tokio::test]
async fn a_version_tells_what_rules_filter_by_class_and_older_ones_do_not() {
    let site = site().await;
    close_with(&site, (DAY, &[("a", 3, "US", 3)]), |version| {
        let rules = BTreeMap::from([("bots".to_owned(), 4)]);
        let classes = BTreeMap::from([(Class::Sophisticated, rules)]);
        version.filtered = Some(BTreeMap::from([("increment".to_owned(), classes)]));
    });
    let day = site.get(&format!("/v1/finals/{DAY}")).await.json();
    let of = |version: usize| &day["versions"][version]["types"]["increment"];
    assert_eq!(of(0).get("filtered"), None, "nobody noted it");
    let filtered = json!({
        "general": {"n": 0, "rules": {}}, "sophisticated": {"n": 4, "rules": {"bots": 4}},
    });
    assert_eq!(of(1)["filtered"], filtered);
    let csv = site.get(&format!("/v1/finals/{DAY}.csv")).await.text;
    for (row, times) in [
        ("filtered_class:general,0", 1),
        ("filtered_class:sophisticated,4", 1),
        ("filtered:bots,4", 1),
        ("class:unknown,-2", 2),
    ] {
        let row = format!(",increment,{row}\n");
        assert_eq!(csv.matches(&row).count(), times, "{row}: {csv}");
    }
}

#[tokio::test]
async fn a_key_that_had_counted_twice_is_named_and_is_a_fault() {
    let site = site().await;
    let most = RepeatedKey {
        namespace: "l".into(),
        key: "=a,\n".into(),
        n: 4,
        before: 1_000,
    };
    close_with(&site, (DAY, &[("a", 3, "US", 3)]), |version| {
        version.repeated = Some(RepeatedKeys {
            keys: 3,
            most: vec![most],
        });
    });
    let day = site.get(&format!("/v1/finals/{DAY}")).await.json();
    assert_eq!(day["versions"][0].get("repeated"), None, "nobody looked");
    let repeated = json!({
        "keys": 3, "most": [{"namespace": "l", "key": "=a,\n", "n": 4, "before": 1_000}],
    });
    assert_eq!(day["versions"][1]["repeated"], repeated);
    let csv = site.get(&format!("/v1/finals/{DAY}.csv")).await.text;
    let keys = csv.matches(",,repeated_keys,").count();
    assert!(keys == 1 && csv.contains(",,repeated_keys,3\n"), "{csv}");
    assert!(csv.ends_with(",,\"repeated:l|=a,\n\",4\n"), "{csv}");
    let status = site.get("/v1/admin/status").await.json();
    assert_eq!(status["state"], "degraded", "{status}");
    let says = "of 2012-03-14, 4 of 1000 of the key `=a,\\n` of l had counted twice, more than 0.1 % (3 keys in all)";
    let mut reasons = status["reasons"].as_array().into_iter().flatten();
    let is_told = reasons.any(|reason| reason.as_str().is_some_and(|told| told.starts_with(says)));
    assert!(is_told, "{status}");
}
