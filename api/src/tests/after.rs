//! Questions that come after a position.

use std::sync::mpsc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_records::Offset;

use super::actions::{DAY, NOW, caps, post, schema, seen, send};
use super::site::{Answer, Site};

/// A question of each route, of the user `u`.
fn questions() -> [(&'static str, Value); 5] {
    let query = json!({"users": ["u"], "ranges": ["1h"], "action": ["impression"], "entity": {"ad": ["7"]}});
    let candidates = json!({"user": "u", "candidates": [{"ad": "7"}]});
    let frequency = json!({"entity": {"ad": "7"}, "action": "impression", "range": "1h"});
    [
        ("/v1/actions/query", query),
        ("/v1/actions/check", candidates.clone()),
        ("/v1/actions/reserve", candidates),
        ("/v1/actions/frequency", frequency),
        ("/v1/users/lookup", json!({"user": "u"})),
    ]
}

fn site() -> Site {
    let cap = json!({"entity": "ad", "action": "impression", "limit": 9, "within": "24h"});
    Site::open_with_actions(schema(), NOW, caps(json!({"ad_day": cap})))
}

async fn ask_after(site: &Site, (path, question): &(&str, Value), after: &str) -> Answer {
    post(site, &format!("{path}?after={after}"), question).await
}

async fn position(site: &Site) -> Offset {
    let (path, question) = &questions()[0];
    let answer = post(site, path, question).await;
    let answer = answer.json();
    let position = answer["position"].as_str().expect("a position");
    position.parse().expect("an offset")
}

/// Reads that wait for a position, of every kind.
const READS: [&str; 10] = [
    "/v1/l/7/counts?unit=day",
    "/v1/l/7/summary?units=1",
    "/v1/l/7/counts.csv?",
    "/v1/l/7/badge?",
    "/v1/l/counts?",
    "/v1/l/top?limit=3",
    "/v1/l/keys?prefix=7",
    "/v1/namespaces/l/7/counts?",
    "/v1/events/1?",
    "/v1/finals?",
];

/// Lets time stand still: paused time goes on where nothing but threads of the store works, unless a blocking task
/// runs.
async fn in_no_time(doing: impl Future<Output = ()>) {
    let (done, works) = mpsc::channel::<()>();
    let working = tokio::task::spawn_blocking(move || works.recv());
    doing.await;
    drop(done);
    assert!(working.await.is_ok());
}

fn next_epoch(from: Offset) -> Offset {
    Offset {
        epoch: from.epoch + 1,
        sequence: 0,
    }
}

fn later(from: Offset) -> Offset {
    Offset {
        sequence: from.sequence + 1,
        ..from
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_counted_already_is_not_waited_for() {
    let site = site();
    in_no_time(send(&site, json!([seen("1", NOW, "7")]))).await;
    let now = position(&site).await;
    let earlier = Offset {
        epoch: now.epoch - 1,
        ..now
    };
    let began = tokio::time::Instant::now();
    for question in &questions() {
        for after in [now.to_string(), earlier.to_string(), String::new()] {
            let answer = ask_after(&site, question, &after).await;
            assert_eq!(answer.status, 200, "{question:?}: {}", answer.text);
        }
    }
    assert_eq!(began.elapsed().as_millis(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_does_not_come_is_refused_and_says_how_far_the_log_is() {
    let site = site();
    in_no_time(send(&site, json!([seen("1", NOW, "7")]))).await;
    let now = position(&site).await;
    let another_epoch = next_epoch(now);
    for question in &questions() {
        let began = tokio::time::Instant::now();
        let ahead = ask_after(&site, question, &later(now).to_string()).await;
        // Nobody else writes the log: this server has counted all that it acknowledged.
        let field = ahead.json()["field"].as_str().map(str::to_owned);
        assert_eq!((ahead.status, field.as_deref()), (400, Some("after")));
        assert!(ahead.text.contains(&now.to_string()), "{}", ahead.text);
        assert_eq!(began.elapsed().as_millis(), 100);
        // The server comes to another epoch at a start only.
        let never = ask_after(&site, question, &another_epoch.to_string()).await;
        assert_eq!(never.status, 400, "{}", never.text);
        // A restore of a backup begins an epoch with fewer records.
        let replaced = Offset {
            epoch: now.epoch - 1,
            ..later(now)
        };
        let replaced = ask_after(&site, question, &replaced.to_string()).await;
        assert_eq!(replaced.status, 400, "{}", replaced.text);
        assert_eq!(began.elapsed().as_millis(), 100);
        for wrong in ["7", "1:", "1:-1", "1:2:3", "99999999999:1", "1%3A%C2%B2"] {
            let wrong = ask_after(&site, question, wrong).await;
            let field = wrong.json()["field"].as_str().map(str::to_owned);
            assert_eq!((wrong.status, field.as_deref()), (400, Some("after")));
        }
        let (path, body) = question;
        for query in ["after=1:1&after=1:1", "at=1", "after=1:1&before=2"] {
            let wrong = post(&site, &format!("{path}?{query}"), body).await;
            assert_eq!(wrong.status, 400, "{query}: {}", wrong.text);
        }
    }
    let erase = post(&site, "/v1/users/erase?after=1:1", &json!({"user": "u"})).await;
    assert_eq!(erase.status, 400, "{}", erase.text);
}

#[tokio::test(start_paused = true)]
async fn a_question_waits_for_what_is_counted_meanwhile() {
    let site = site();
    in_no_time(wait_for_all(&site)).await;
}

async fn wait_for_all(site: &Site) {
    send(site, json!([seen("1", NOW - DAY, "7")])).await;
    let mut seen_so_far = 0;
    for (number, question) in (2..).zip(&questions()) {
        let after = later(position(site).await).to_string();
        let asking = ask_after(site, question, &after);
        let event = json!([seen(&number.to_string(), NOW, "7")]);
        // The question is asked first, and waits.
        let (answer, ()) = tokio::join!(biased; asking, send(site, event));
        assert_eq!(answer.status, 200, "{question:?}: {}", answer.text);
        assert_eq!(answer.json()["position"], after);
        seen_so_far += 1;
        let (path, query) = &questions()[0];
        let counts = post(site, path, query).await.json();
        let counts = &counts["users"]["u"]["1h"]["impression"]["ad"]["7"];
        assert_eq!(counts, seen_so_far);
    }
    // An erasure is a position, too.
    let after = later(position(site).await).to_string();
    let question = &questions()[4];
    let erased = Request::post("/v1/users/erase").body(Body::from(r#"{"user":"u"}"#));
    let erasing = site.ask(erased.expect("a request"));
    let (found, erased) = tokio::join!(biased; ask_after(site, question, &after), erasing);
    assert_eq!(erased.json()["position"], after);
    assert_eq!(found.json()["actions"], json!([]), "{}", found.text);
}

/// The position that an answer tells in its header.
fn told(answer: &Answer) -> Offset {
    let position = answer.header("tallyring-position");
    position.parse().unwrap_or_else(|_| panic!("`{position}`"))
}

#[tokio::test]
async fn every_answer_tells_its_position_and_a_read_counts_all_before_it() {
    let site = site();
    send(&site, json!([seen("1", NOW, "7")])).await;
    let mut last = Offset::default();
    for number in 2..20_u64 {
        let (path, body) = match number % 3 {
            0 => ("/v1/incr?key.l=7", String::new()),
            1 => ("/v1/increments", json!([{"keys": {"l": "7"}}]).to_string()),
            _ => (
                "/v1/events",
                json!([seen(&number.to_string(), NOW, "7")]).to_string(),
            ),
        };
        let sent = Request::post(path).header("content-type", "application/json");
        let sent = site.ask(sent.body(Body::from(body)).unwrap()).await;
        assert!([200, 204].contains(&sent.status), "{path}: {}", sent.text);
        let acknowledged = told(&sent);
        assert!(acknowledged > last, "{acknowledged} behind {last}");
        for read in READS {
            let answer = site.get(&format!("{read}&after={acknowledged}")).await;
            assert_eq!(answer.status, 200, "{read}: {}", answer.text);
            assert!(told(&answer) >= acknowledged, "{read}");
        }
        last = acknowledged;
    }
    let query = json!({"queries": [{"namespace": "l", "key": "7"}]});
    let answer = post(&site, &format!("/v1/query?after={last}"), &query).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for path in [
        "/v1/l/7/counts?unit=x",
        "/v1/nothing",
        "/healthz",
        "/openapi.json",
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.header("tallyring-position"), "", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_refuses_what_is_no_position_of_this_server() {
    let site = site();
    in_no_time(send(&site, json!([seen("1", NOW, "7")]))).await;
    let now = position(&site).await;
    let another_epoch = next_epoch(now);
    for read in READS {
        let ahead = later(now).to_string();
        let never = another_epoch.to_string();
        for wrong in [&*ahead, &never, "7", "1:", "1:2,1:3", "1:1&after=1:1"] {
            let answer = site.get(&format!("{read}&after={wrong}")).await;
            let problem = answer.json();
            assert_eq!(
                (answer.status, problem["field"].as_str()),
                (400, Some("after")),
                "{read} {wrong}"
            );
            assert_eq!(answer.header("tallyring-position"), "");
        }
    }
    // The cursor of settled counts is no position.
    let answer = site
        .get(&format!("/v1/closed?namespace=l&after={now}"))
        .await;
    assert_eq!(answer.status, 400, "{}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_what_is_counted_meanwhile() {
    let site = site();
    in_no_time(async {
        for number in 1..5 {
            let after = later(position(&site).await).to_string();
            let path = format!("/v1/l/7/summary?units=1&after={after}");
            let event = json!([seen(&format!("w{number}"), NOW, "7")]);
            let (answer, ()) = tokio::join!(biased; site.get(&path), send(&site, event));
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert!(told(&answer).to_string() >= after);
        }
    })
    .await;
}
