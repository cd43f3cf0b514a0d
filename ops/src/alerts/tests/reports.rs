//! Reports over a made-up month.

use super::*;

fn reports() -> String {
    let report = |name: &str, every: &str| {
        format!("[reports.{name}]\nof = \"l/abc\"\nevery = \"{every}\"\nto = [\"ops\"]\n")
    };
    [report("weekly", "week"), report("monthly", "month")].concat()
}

#[test]
fn each_period_is_told_once_when_it_is_over() {
    // It is a Friday, and 2012-03-19 a Monday.
    let mut site = Site::with(&reports(), 5);
    site.hours(&[USUAL; 6 + 2 * 24 - 1]);
    assert_eq!(site.taker.ids(), [""; 0]);
    site.hours(&[USUAL]);
    let ids = site.taker.ids();
    assert_eq!(ids, ["weekly-1331510400-report"]);
    let (_, body) = site.taker.taken.lock()[0].clone();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["type"], "report.week");
    let data = &body["data"];
    assert_eq!(data["from"], "2012-03-12T00:00:00+00:00");
    assert_eq!(data["to"], "2012-03-19T00:00:00+00:00");
    assert_eq!(
        (&data["total"], &data["before"]),
        (&(168 * USUAL).into(), &(168 * USUAL).into())
    );
    assert_eq!(data["counts"].as_array().unwrap().len(), 7);
    let text = body["text"].as_str().unwrap();
    assert!(
        text.starts_with(
            "l/abc: 6,720 in the week from 2012-03-12 (+0.0 %)\nthe week before: 6,720\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(&format!("\n2012-03-12 Mon {:>20}\n", "960")),
        "{text}"
    );
    // A restart tells nothing twice, and the month is over after 12 more days, with another week.
    site.duty = duty(
        &site.store,
        config(site.directory.path(), &site.taker, &reports()),
    );
    site.hours(&[USUAL; 13 * 24]);
    let mut ids = site.taker.ids();
    ids.sort();
    assert_eq!(
        ids,
        [
            "monthly-1330560000-report",
            "weekly-1331510400-report",
            "weekly-1332115200-report"
        ]
    );
}

#[test]
fn a_change_is_told_only_where_the_period_before_is_covered() {
    let mut site = Site::with(&reports(), 1);
    site.hours(&[USUAL; 6 + 2 * 24]);
    let (_, body) = site.taker.taken.lock()[0].clone();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["data"]["before"], Value::Null);
    let text = body["text"].as_str().unwrap();
    assert!(!text.contains('%') && !text.contains("before"), "{text}");
}
