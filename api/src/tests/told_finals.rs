//! Final versions tell all that rules filter by class.

use std::collections::BTreeMap;

use serde_json::json;
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
