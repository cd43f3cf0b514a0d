//! Final days: states of answers, reads of the books, and the list of final days.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_archive::merge::total_payloads;
use tallyring_archive::{
    Blobs, FinalEntry, FinalSums, Origin, Partition, RunEntry, RunSpec, RunWriter,
};
use tallyring_realtime::Final;
use tallyring_records::{Day, Grain, Schema, TimeCode, User, Users, line};

use super::actions::post;
use super::site::Site;

/// 2012-03-16T18:40:00Z
pub(super) const NOW: i64 = 1_331_923_200;
const DAYS: i64 = 86_400;
/// The range of the final days.
pub(super) const FROM: &str = "2012-03-13T00:00:00Z";
pub(super) const TO: &str = "2012-03-14T23:00:00Z";

pub(super) fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    schema.namespaces[0].uniques = true;
    schema
}

pub(super) fn day(text: &str) -> Day {
    text.parse().unwrap()
}

/// Writes sorted lines as a run of a load.
fn write(site: &Site, day: Day, lines: &BTreeMap<String, String>) -> Vec<RunEntry> {
    let spec = RunSpec {
        origin: Origin::Sorted("0123456789abcdef".into()),
        partition: Partition::month_of(day.code()),
        shard: 0,
        shards: 1,
        level: 1,
    };
    let mut writer = RunWriter::create(&blobs(site), spec).unwrap();
    for (key, payload) in lines {
        writer.push(key.as_bytes(), payload.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_iter().collect()
}

fn blobs(site: &Site) -> Blobs {
    site.app().store().world().blobs()
}

/// The lines of clicks on links: key, hour of the day, country and count. Each key has one user.
fn lines(day: Day, clicks: &[(&str, i64, &str, u64)]) -> BTreeMap<String, String> {
    let mut totals: BTreeMap<String, Vec<(TimeCode, u64)>> = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for (key, hour, country, count) in clicks {
        let code = TimeCode::containing(day.start() + hour * 3_600, Grain::Hour);
        let total = line::total_key("l", key);
        totals.entry(total).or_default().push((code, *count));
        let values = format!("{}{code}", line::subtotal_prefix("c", "l", key));
        lines.insert(values, format!("{country}:{count}"));
        let mut users = Users::default();
        users.add(User::new("ann"));
        let sketch = format!("{}{code}", line::subtotal_prefix("_u", "l", key));
        lines.insert(sketch, users.to_payload());
    }
    for (key, hours) in totals {
        let payload = total_payloads(&hours).remove(0);
        lines.insert(key, String::from_utf8(payload).unwrap());
    }
    lines
}

/// Makes a day final with these clicks as its books, as older builds did.
pub(super) fn close(site: &Site, of: &str, clicks: &[(&str, i64, &str, u64)]) {
    close_with(site, (of, clicks), |_| {});
}

/// As [`close`], with what `tell` adds to the version.
pub(super) fn close_with(
    site: &Site,
    (of, clicks): (&str, &[(&str, i64, &str, u64)]),
    tell: impl FnOnce(&mut FinalEntry),
) {
    let store = site.app();
    let store = store.store();
    let of = day(of);
    let after = clicks.iter().map(|(.., count)| u128::from(*count)).sum();
    let before = after + 2;
    let manifest = store.manifest();
    let earlier = manifest.archive.finals_of(of).iter();
    let came = earlier
        .map(|version| version.types["increment"].gross)
        .max();
    let sums = FinalSums {
        before,
        causes: [("filtered_by:bots".to_owned(), -2)].into(),
        after,
        gross: before.max(came.unwrap_or(0)),
        undecided: 0,
    };
    let mut entry = FinalEntry {
        day: of,
        version: store.manifest().archive.next_fix(of),
        at_ms: 0,
        upto: store.live().applied().sequence,
        rules: "00ff".into(),
        books: write(site, of, &lines(of, clicks)),
        verdicts: None,
        types: [("increment".to_owned(), sums)].into(),
        filtered: None,
        repeated: None,
        touched: false,
        sums_only: false,
        forced: false,
        actor: None,
        proof: None,
    };
    tell(&mut entry);
    let closed = Final { entry, fix: None };
    store.ledger().publish_final(&closed).unwrap();
}

/// A site with clicks on three days, the first of which are final, with other numbers.
pub(super) async fn site() -> Site {
    let site = Site::open(schema(), NOW);
    let click = |days: i64, key: &str, n: u32| json!({"at": NOW - days * DAYS, "n": n, "keys": {"l": key}, "by": {"c": "US"}, "user": "ann"});
    site.count(json!([
        click(0, "a", 1),
        click(2, "a", 5),
        click(2, "b", 2),
        click(3, "a", 7)
    ]))
    .await;
    close(&site, "2012-03-13", &[("a", 18, "US", 6)]);
    close(
        &site,
        "2012-03-14",
        &[("a", 3, "US", 3), ("a", 18, "JP", 1), ("b", 18, "US", 1)],
    );
    site
}

fn counts(answer: &Value) -> Vec<(&str, u64, &str)> {
    let counts = answer["counts"].as_array().unwrap().iter();
    counts
        .map(|count| {
            let text = |name: &str| count[name].as_str().unwrap_or_default();
            (
                &text("start")[..10],
                count["count"].as_u64().unwrap(),
                text("state"),
            )
        })
        .collect()
}

#[tokio::test]
async fn rows_of_csv_say_how_final_their_buckets_or_the_whole_range_are() {
    let site = site().await;
    for (path, head, states) in [
        ("l/a/summary.csv", "total", &["live"][..]),
        ("l/a/by/c.csv", "value,count,kind", &["live"]),
        ("l/top.csv", "key,count,kind", &["live"]),
        (
            "l/a/uniques.csv",
            "start,estimate",
            &["final", "final", "settled", "live"],
        ),
    ] {
        let csv = site.get(&format!("/v1/{path}?units=4")).await.text;
        let (columns, rows) = csv.split_once('\n').unwrap();
        assert_eq!(columns, format!("{head},state"));
        let told: BTreeSet<&str> = rows
            .lines()
            .filter_map(|row| row.rsplit(',').next())
            .collect();
        assert_eq!(told, states.iter().copied().collect(), "{path}: {csv}");
    }
    let by_day = site.get("/v1/l/a/by/c.csv?units=4&rollup=false").await.text;
    let rows: Vec<&str> = by_day.lines().collect();
    assert_eq!(rows[0], "start,value,count,kind,state");
    assert!(rows[1].ends_with(",value,final"), "{by_day}");
    assert!(
        rows.contains(&"2012-03-15T00:00:00+00:00,,0,none,settled"),
        "{by_day}"
    );
    let queries = json!({"queries": [
        {"namespace": "l", "key": "a", "units": 4},
        {"namespace": "l", "key": "a", "units": 4, "summary": true},
        {"namespace": "l", "key": "a", "units": 4, "by": "c"},
    ]});
    let all = post(&site, "/v1/query.csv", &queries).await.text;
    assert!(
        all.starts_with(
            "query,namespace,key,start,value,count,kind,state\n0,l,a,2012-03-13T00:00:00+00:00,,7,bucket,final\n"
        ),
        "{all}"
    );
}

#[tokio::test]
async fn answers_say_how_final_each_bucket_and_the_whole_range_are() {
    let site = Site::open(schema(), NOW);
    site.count(json!([{"at": NOW, "keys": {"l": "a"}}])).await;
    let before = site.get("/v1/l/a/counts?units=2").await.json();
    assert_eq!(
        (&before["state"], &before["final_until"]),
        (&json!("live"), &Value::Null)
    );
    assert_eq!(before["counts"][0].get("state"), None, "no day is final");
    let hours = "/v1/l/a/counts?unit=hour&from=2012-03-16T00:00:00Z&to=2012-03-16T03:00:00Z";
    assert_eq!(site.get(hours).await.json()["state"], "settled");
    // The day before the last one has no open delta store.
    let old = site
        .get("/v1/l/a/summary?from=2012-03-10T00:00:00Z&to=2012-03-14T00:00:00Z")
        .await;
    assert_eq!(old.json()["state"], "provisional");

    let site = self::site().await;
    let answer = site.get("/v1/l/a/counts?units=4").await.json();
    assert_eq!(
        counts(&answer),
        [
            ("2012-03-13", 7, "final"),
            ("2012-03-14", 5, "final"),
            ("2012-03-15", 0, "settled"),
            ("2012-03-16", 1, "live"),
        ]
    );
    assert_eq!(answer["state"], "live");
    assert_eq!(answer["final_until"], "2012-03-15T00:00:00Z");
    // A day of New York is of two UTC days.
    let local = site
        .get("/v1/l/a/counts?units=4&timezone=America/New_York")
        .await
        .json();
    assert_eq!(local["counts"][0]["state"], "final");
    assert_eq!(local["counts"][1]["state"], "settled");
    let csv = site.get("/v1/l/a/counts.csv?units=4").await.text;
    assert!(
        csv.starts_with("start,count,state\n2012-03-13T00:00:00+00:00,7,final\n"),
        "{csv}"
    );
    for path in ["l/counts", "l/a/uniques", "l/a/by/c"] {
        let answer = site.get(&format!("/v1/{path}?units=4&rollup=false")).await;
        let answer = match answer.status {
            200 => answer.json(),
            _ => site.get(&format!("/v1/{path}?units=4")).await.json(),
        };
        assert_eq!(answer["state"], "live", "{path}");
        let buckets = answer.get("counts").or(answer.get("buckets")).unwrap();
        assert_eq!(buckets[1]["state"], "final", "{path}: {answer}");
    }
    // A later count makes a final day a corrected one.
    site.count(json!([{"at": NOW - 3 * DAYS, "keys": {"l": "z"}}]))
        .await;
    let answer = site.get("/v1/l/a/counts?units=4").await.json();
    assert_eq!(
        counts(&answer)[..2],
        [("2012-03-13", 7, "corrected"), ("2012-03-14", 5, "final")]
    );
    assert_eq!(
        answer["final_until"], "2012-03-15T00:00:00Z",
        "it still has its books"
    );
    close(&site, "2012-03-13", &[("a", 18, "US", 6)]);
    let answer = site.get("/v1/l/a/counts?units=4").await.json();
    assert_eq!(counts(&answer)[0].2, "final");
}

#[tokio::test]
async fn final_numbers_are_read_from_the_books_alone_by_every_read() {
    let site = site().await;
    let range = format!("from={FROM}&to={TO}");
    let answer = site
        .get(&format!("/v1/l/a/counts?{range}&basis=final"))
        .await
        .json();
    assert_eq!(
        counts(&answer),
        [("2012-03-13", 6, "final"), ("2012-03-14", 4, "final")]
    );
    assert_eq!(
        (&answer["state"], &answer["generation"]),
        (&json!("final"), &json!(0))
    );
    let by = site
        .get(&format!("/v1/l/a/by/c?{range}&basis=final"))
        .await
        .json();
    let values = json!([{"value": "US", "count": 9}, {"value": "JP", "count": 1}]);
    assert_eq!(by["values"], values);
    let top = site
        .get(&format!("/v1/l/top?{range}&basis=final"))
        .await
        .json();
    assert_eq!(
        top["keys"],
        json!([{"key": "a", "count": 10}, {"key": "b", "count": 1}])
    );
    let all = site
        .get(&format!("/v1/l/counts?{range}&basis=final"))
        .await
        .json();
    assert_eq!(all["total"], 11);
    let uniques = site
        .get(&format!("/v1/l/a/uniques?{range}&basis=final"))
        .await
        .json();
    assert_eq!(uniques["estimate"], 1);
    let hours = site
        .get("/v1/l/a/counts?unit=hour&from=2012-03-14T02:00:00Z&to=2012-03-14T04:00:00Z&basis=final")
        .await
        .json();
    let hours: Vec<u64> = counts(&hours).iter().map(|(_, count, _)| *count).collect();
    assert_eq!(hours, [0, 3, 0]);
    let queries = json!({"queries": [
        {"namespace": "l", "key": "a", "summary": true, "from": FROM, "to": TO, "basis": "final"},
        {"namespace": "l", "key": "a", "summary": true, "from": FROM, "to": TO},
        {"namespace": "l", "key": "a", "summary": true, "from": FROM, "to": TO, "final": 1},
    ]});
    let request = Request::post("/v1/query").body(Body::from(queries.to_string()));
    let answers = site.ask(request.unwrap()).await.json();
    let totals = [0_usize, 1, 2].map(|index| answers["answers"][index]["total"].clone());
    assert_eq!(totals, [json!(10), json!(12), json!(10)]);
    // A later version leaves the earlier one as it was.
    close(&site, "2012-03-14", &[("a", 3, "US", 2)]);
    for (version, total) in [
        ("basis=final", 2),
        ("final=1", 4),
        ("basis=final&final=2", 2),
    ] {
        let path = format!("/v1/l/a/summary?units=1&to=2012-03-14T00:00:00Z&{version}");
        assert_eq!(site.get(&path).await.json()["total"], total, "{version}");
    }
}

#[tokio::test]
async fn final_numbers_of_what_is_not_wholly_final_are_refused_with_what_to_do() {
    let site = site().await;
    for (query, status, said) in [
        (
            "units=4&basis=final",
            422,
            "basis=final needs UTC days that are all final, and 2012-03-15 is not final; days are final until \
             2012-03-15T00:00:00Z (`final_until`): ask for a range of final days, or leave `basis` out",
        ),
        (
            "units=1&to=2012-03-14T00:00:00Z&final=7",
            422,
            "2012-03-14 is not final in this version; its versions are 1",
        ),
        (
            "units=-1&basis=final",
            422,
            "needs a period with a beginning and an end that are final",
        ),
        (
            "unit=year&units=3&basis=final",
            422,
            "at most 400 final days are read at once",
        ),
        (
            "basis=true",
            400,
            "must be `counted`, or `final` for the books of final days",
        ),
        (
            "final=0",
            400,
            "must be the number of a final version, from 1",
        ),
        (
            "final=x",
            400,
            "must be the number of a final version, from 1",
        ),
        (
            "basis=counted&final=1",
            400,
            "must be left out beside `basis=counted`",
        ),
        (
            "as_of=0&basis=final",
            400,
            "must be left out beside `basis=final` or `final`",
        ),
    ] {
        for path in ["l/a/counts", "l/top", "l/counts", "l/a/uniques", "l/a/by/c"] {
            let answer = site.get(&format!("/v1/{path}?{query}")).await;
            assert_eq!(answer.status, status, "{path}?{query}: {}", answer.text);
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            let said = said.strip_prefix("basis=final ").unwrap_or(said);
            assert!(detail.contains(said), "{path}?{query}: {detail}");
        }
    }
    let empty = Site::open(schema(), NOW);
    let answer = empty.get("/v1/l/a/counts?units=1&basis=final").await.json();
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("no day is final yet"), "{detail}");
}

#[tokio::test]
async fn final_days_are_listed_with_their_versions_and_causes() {
    let site = site().await;
    close(&site, "2012-03-14", &[("a", 3, "US", 3)]);
    let list = site.get("/v1/finals").await.json();
    assert_eq!(list["final_until"], "2012-03-15T00:00:00Z");
    let days: Vec<(&str, u64)> = (list["finals"].as_array().unwrap().iter())
        .map(|day| {
            (
                day["day"].as_str().unwrap(),
                day["version"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(days, [("2012-03-13", 1), ("2012-03-14", 2)]);
    let day = site.get("/v1/finals/2012-03-14").await.json();
    assert_eq!(
        (&day["day"], &day["state"]),
        (&json!("2012-03-14"), &json!("final"))
    );
    assert_eq!(
        day["versions"][1],
        json!({
            "day": "2012-03-14", "version": 2, "state": "final", "at": "2012-03-16T18:40:00Z",
            "upto": day["versions"][1]["upto"], "ids_from": null, "rules": "00ff",
            "types": {"increment": {
                "before": 5, "causes": {"filtered_by:bots": -2}, "classes": {"unknown": -2}, "after": 3, "gross": 7, "undecided": 0,
                "steps": [
                    {"step": "gross", "title": "all that came", "n": 7},
                    {"step": "filtered_by:bots", "title": "rule bots", "n": -4},
                    {"step": "net", "title": "final", "n": 3},
                ],
                "by_rules": {"live": 0, "filtered": -2, "restored": 0},
            }},
        }),
        "a version tells its own difference"
    );
    let of_day = json!({"increment": {"live": 0, "filtered": -4, "restored": 0}});
    assert_eq!(day["by_rules"], of_day, "all versions together");
    let svg = site.get("/v1/finals/2012-03-14.svg").await.text;
    assert!(
        svg.contains("7 came · since version 1: 2 filtered by the reconcile · 3 final"),
        "{svg}"
    );
    let csv = site.get("/v1/finals/2012-03-14.csv").await.text;
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "day,version,state,at,upto,type,what,count");
    assert!(
        rows[2].ends_with(",increment,cause:filtered_by:bots,-2"),
        "{csv}"
    );
    assert_eq!(rows.len(), 13, "{csv}");
    assert!(csv.contains(",increment,class:unknown,-2\n"), "{csv}");
    assert_eq!(site.get("/v1/finals.csv").await.text.lines().count(), 13);
    for (path, status) in [
        ("/v1/finals/2012-03-15", 404),
        ("/v1/finals/yesterday", 400),
        ("/v1/finals?unit=day", 400),
        ("/v1/finals/2012-03-14?type=click", 400),
        ("/v1/finals/2012-03-14.svg?type=click", 404),
        ("/v1/finals/2012-03-14.svg?version=3", 404),
        ("/v1/finals/2012-03-14.svg?version=x", 400),
        ("/v1/finals/2012-03-15.svg", 404),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
    }
}
