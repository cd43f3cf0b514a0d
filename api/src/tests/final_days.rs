//! Final days in pictures, and how final every day of a range is.

use serde_json::{Value, json};

use super::finals::{FROM, NOW, TO, close, day, schema, site};
use super::site::Site;
use crate::Admin;
use crate::state::Overdue;

#[tokio::test]
async fn a_final_day_is_drawn_from_all_that_came_to_all_that_counts() {
    let site = site().await;
    close(&site, "2012-03-14", &[("a", 3, "US", 3)]);
    let newest = site.get("/v1/finals/2012-03-14.svg").await;
    assert_eq!(newest.content_type, "image/svg+xml", "{}", newest.text);
    for said in [
        "<title>2012-03-14: increment, version 2</title>",
        "7 came · since version 1: 2 filtered by the reconcile · 3 final · all that came: 7; rule bots: −4; final: 3</desc>",
    ] {
        assert!(newest.text.contains(said), "{said}: {}", newest.text);
    }
    let asked = "/v1/finals/2012-03-14.svg?type=increment&version=1&width=280&theme=dark";
    let first = site.get(asked).await;
    let told = "7 came · 2 filtered by the reconcile · 5 final · all that came: 7; rule bots: −2; final: 5</desc>";
    assert!(first.text.contains(told), "{}", first.text);
    assert!(first.text.contains("viewBox=\"0 0 280 "), "{}", first.text);
    assert!(!first.text.contains("@media"));
    assert_ne!(newest.header("etag"), first.header("etag"));
}

/// Days become final after a day; two did not.
fn jobs() -> Admin {
    Admin {
        overdue: Box::new(|| {
            vec![Overdue {
                day: day("2012-03-12"),
                reason: None,
            }]
        }),
        failures: Box::new(|| [(day("2012-03-14"), "a file is wrong".to_owned())].into()),
        final_after_hours: Some(24),
        ..Admin::without_jobs()
    }
}

#[tokio::test]
async fn every_day_of_a_range_says_how_final_it_is_and_why_it_is_not() {
    let mut site = site().await;
    close(&site, "2012-03-14", &[("a", 3, "US", 3)]);
    let range = "/v1/finals/days?from=2012-03-11&to=2012-03-17";
    let by_hand = site.get(range).await.json();
    assert_eq!(by_hand["after_hours"], Value::Null);
    assert_eq!(by_hand["days"][1]["final_at"], Value::Null);
    assert_eq!(by_hand["days"][1]["reason"], Value::Null);
    site.reopen_with_jobs(schema(), NOW, jobs());
    let answer = site.get(range).await.json();
    let late = "it should be final since 2012-03-14T00:00:00Z: `tallyring reconcile 2012-03-12` says why it is not, for as \
        long as the log has it";
    let at = "2012-03-16T18:40:00Z";
    let told = |day: &str, state: &str, versions: &[u32], at: Option<&str>| json!({"day": day, "state": state, "versions": versions, "at": at, "final_at": null, "reason": null});
    let mut days = [
        told("2012-03-11", "before", &[], None),
        told("2012-03-12", "before", &[], None),
        told("2012-03-13", "final", &[1], Some(at)),
        told("2012-03-14", "final", &[1, 2], Some(at)),
        told("2012-03-15", "settled", &[], None),
        told("2012-03-16", "live", &[], None),
        told("2012-03-17", "live", &[], None),
    ];
    days[1]["final_at"] = "2012-03-14T00:00:00Z".into();
    days[1]["reason"] = late.into();
    days[3]["reason"] = "a file is wrong".into();
    for (index, at) in [(4, "17"), (5, "18"), (6, "19")] {
        days[index]["final_at"] = format!("2012-03-{at}T00:00:00Z").into();
    }
    let expected = json!({
        "today": "2012-03-16", "final_until": "2012-03-15T00:00:00Z", "after_hours": 24, "days": days,
    });
    assert_eq!(answer, expected);
    let csv = site
        .get("/v1/finals/days.csv?from=2012-03-14&to=2012-03-15")
        .await;
    assert_eq!(
        csv.text,
        format!(
            "day,state,versions,at,final_at,reason\n2012-03-14,final,1 2,{at},,a file is wrong\n\
             2012-03-15,settled,,,2012-03-17T00:00:00Z,\n"
        )
    );
    let usual = site.get("/v1/finals/days").await.json();
    let usual = usual["days"].as_array().unwrap();
    assert_eq!((usual.len(), &usual[0]["day"]), (62, &json!("2012-01-15")));
    for (query, status, field) in [
        ("from=2012-03-17&to=2012-03-16", 422, "from"),
        ("from=2011-01-01", 422, "from"),
        ("from=yesterday", 400, "from"),
        ("to=1999-12-31", 400, "to"),
        ("unit=day", 400, "unit"),
    ] {
        let answer = site.get(&format!("/v1/finals/days?{query}")).await;
        let told = (answer.status, answer.json()["field"].clone());
        assert_eq!(told, (status, json!(field)), "{query}: {}", answer.text);
    }
}

#[tokio::test]
async fn pictures_hatch_what_is_not_final_where_days_become_final() {
    const HATCHED: &str = "url(#tallyring-hatch-auto)";
    let site = site().await;
    for path in ["l/a/counts", "l/counts", "l/a/uniques"] {
        let svg = site.get(&format!("/v1/{path}.svg?units=4")).await.text;
        let hatched = svg.matches(HATCHED).count();
        assert_eq!(hatched, 2, "{path}: a legend and the bar of today");
        assert!(svg.contains("not final yet: from Mar 15, 2012"), "{path}");
        let books = format!("/v1/{path}.svg?from={FROM}&to={TO}&basis=final");
        assert!(!site.get(&books).await.text.contains("hatch"), "{path}");
    }
    let mut site = Site::open(schema(), NOW);
    site.count(json!([{"at": NOW, "keys": {"l": "a"}}])).await;
    let path = "/v1/l/a/counts.svg?units=2";
    assert!(!site.get(path).await.text.contains("hatch"), "no day is");
    assert_eq!(site.get("/v1/namespaces").await.json()["finals"], false);
    site.reopen_with_jobs(schema(), NOW, jobs());
    assert!(site.get(path).await.text.contains(HATCHED), "days will be");
    let declared = site.get("/v1/namespaces").await.json();
    assert_eq!(
        (&declared["finals"], &declared["days"]),
        (&json!(true), &json!(true))
    );
}
