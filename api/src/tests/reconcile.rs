//! Orders to reconcile: which are taken, which are refused, and how a job of several days is told.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tallyring_archive::{FilteredSums, FinalSums};
use tallyring_realtime::Reconciled;
use tallyring_records::{Class, Day, Schema};

use super::actions::post;
use super::site::Site;
use crate::{Days, ReconcileJob, ReconcileOrder};

const PATH: &str = "/v1/admin/reconcile";

#[tokio::test]
async fn an_order_names_a_day_or_both_ends_of_a_range() {
    let site = Site::open(Schema::default_clicks(), 1_331_923_247);
    let rules =
        json!({"filters": [{"name": "own", "field": "user", "values": ["me"]}], "lists": []});
    for order in [
        json!({"day": "2012-03-10"}),
        json!({"day": "2012-03-10", "dry_run": true, "by": "u", "rules": rules}),
        json!({"from": "2012-03-10", "to": "2012-03-10", "force": true}),
        json!({"from": "2011-02-06", "to": "2012-03-11"}),
    ] {
        let answer = post(&site, PATH, &order).await;
        assert_eq!(answer.status, 202, "{order}: {}", answer.text);
    }
    for (order, status, field, said) in [
        (json!({}), 422, "day", "`from` and `to`"),
        (json!({"from": "2012-03-10"}), 422, "from", "both included"),
        (json!({"to": "2012-03-10"}), 422, "to", "both included"),
        (
            json!({"day": "2012-03-10", "to": "2012-03-10"}),
            422,
            "day",
            "excludes",
        ),
        (
            json!({"from": "2012-03-10", "to": "2012-03-09"}),
            422,
            "to",
            "2012-03-10 or later",
        ),
        (
            json!({"from": "2011-02-05", "to": "2012-03-11"}),
            422,
            "to",
            "at most 400",
        ),
        (
            json!({"day": "2012-03-10", "rules": rules}),
            422,
            "dry_run",
            "into the configuration",
        ),
        (json!({"day": "10 March"}), 400, "body", "2012-03-16"),
        (
            json!({"day": "2012-03-10", "rules": {"filter": []}}),
            400,
            "body",
            "filters",
        ),
        (
            json!({"day": "2012-03-10", "rules": {"filters": [{"name": "a", "field": "user"}]}}),
            400,
            "body",
            "values",
        ),
    ] {
        let answer = post(&site, PATH, &order).await;
        assert_eq!(answer.status, status, "{order}: {}", answer.text);
        let problem = answer.json();
        assert_eq!(problem["field"], field, "{order}: {problem}");
        assert!(
            problem["detail"].to_string().contains(said),
            "{order}: {problem}"
        );
    }
}

fn filtered_by_bots(n: u128) -> FilteredSums {
    let rules = BTreeMap::from([("bots".to_owned(), n)]);
    let classes = BTreeMap::from([(Class::General, rules)]);
    FilteredSums::from([("click".to_owned(), classes)])
}

/// The result of a day with so many clicks, of which a rule takes some.
fn judged(day: Day, before: u128, filtered: u128) -> Reconciled {
    let causes = [("filtered_by:bots".to_owned(), -(filtered as i128))];
    let sums = FinalSums {
        before,
        causes: causes.into(),
        after: before - filtered,
        gross: before,
        undecided: 0,
    };
    Reconciled {
        day,
        version: 1,
        upto: 7,
        rules: String::new(),
        types: [("click".to_owned(), sums)].into(),
        filtered: filtered_by_bots(filtered),
        repeated: Default::default(),
        by: None,
        is_what_if: false,
        books: Vec::new(),
        verdicts: None,
        plus: Vec::new(),
        minus: Vec::new(),
        corrects: None,
        proof: None,
        is_new: true,
        unexplained: Default::default(),
    }
}

#[test]
fn a_job_of_several_days_tells_each_and_the_sums_of_all() {
    let days: Days = "2012-03-10..2012-03-12".parse().unwrap();
    let order = ReconcileOrder {
        days,
        ..ReconcileOrder::of(days.first())
    };
    let mut job = ReconcileJob::begin(order, None, 1_331_923_247_000);
    let [first, second, third] = [0, 1, 2].map(|n| days.iter().nth(n).unwrap());
    job.note(first, Some(judged(first, 10, 1)), Ok(true));
    job.note(second, None, Err("it is not closed".into()));
    let told = job.described();
    assert_eq!(
        [&told["state"], &told["days_done"], &told["days_total"]],
        [&json!("running"), &json!(2), &json!(3)]
    );
    job.note(
        third,
        Some(judged(third, 2_000, 500)),
        Err("nothing was published".into()),
    );
    job.end(1_331_923_248_000);
    let told = job.described();
    assert_eq!(told["state"], "failed");
    let error = "2 of 3 days failed; the first is 2012-03-11: it is not closed";
    assert_eq!(told["error"], error);
    let click = &told["sums"]["types"]["click"];
    assert_eq!(
        [&click["before"], &click["after"], &click["causes"]],
        [&json!(10), &json!(9), &json!({"filtered_by:bots": -1})]
    );
    let filtered = |general: u64| {
        json!({
            "general": {"n": general, "rules": {"bots": general}}, "sophisticated": {"n": 0, "rules": {}},
        })
    };
    assert_eq!(click["filtered"], filtered(1));
    let day = |n: usize| &told["days"][n];
    assert_eq!(
        (&day(0)["published"], &day(0)["guard"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(
        day(1),
        &json!({"day": "2012-03-11", "error": "it is not closed"})
    );
    assert_eq!(day(2)["types"]["click"]["filtered"], filtered(500));
    let guard = day(2)["guard"].to_string();
    assert!(guard.contains("500 of 2,000 `click`, 25.0 %"), "{guard}");
}

#[test]
fn a_dry_run_ends_no_failure_and_the_next_order_does() {
    let day: Day = "2012-03-10".parse().unwrap();
    let mut failed = ReconcileJob::begin(ReconcileOrder::of(day), None, 0);
    failed.note(day, None, Err("a file is wrong".into()));
    failed.end(1);
    let dry = ReconcileOrder {
        dry_run: true,
        ..ReconcileOrder::of(day)
    };
    let mut told = ReconcileJob::begin(dry, Some(&failed), 2);
    told.note(day, Some(judged(day, 10, 1)), Ok(false));
    told.end(3);
    assert_eq!((told.job, told.error()), (2, None));
    let fault = "2012-03-10 did not become final: a file is wrong";
    assert_eq!(told.fault().as_deref(), Some(fault));
    let next = ReconcileJob::begin(ReconcileOrder::of(day), Some(&told), 4);
    assert_eq!(next.fault(), None);
}
