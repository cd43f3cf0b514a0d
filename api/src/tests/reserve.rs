//! Reservations through the API: what holds, what confirms, and what is refused.

mod strands;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tallyring_realtime::Clock;

use super::actions::{NOW, caps, counts, post, schema, seen, send};
use super::site::{Answer, Site};
use crate::actions::ActionRules;

/// A clock that the test moves.
#[derive(Debug)]
pub(super) struct Hand(pub(super) AtomicI64);

impl Hand {
    fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn elapsed_ms(&self) -> i64 {
        self.now_ms() - NOW * 1_000
    }

    fn jumps_are_meant(&self) -> bool {
        true
    }
}

/// A site whose users see an ad thrice a day, and its clock.
fn site() -> (Site, Arc<Hand>) {
    let clock = Arc::new(Hand(AtomicI64::new(NOW * 1_000)));
    let site = Site::open_with_clock(schema(), Arc::clone(&clock) as _, rules());
    (site, clock)
}

fn rules() -> ActionRules {
    caps(json!({
        "ad_day": {"entity": "ad", "action": "impression", "limit": 3, "within": "24h"},
        "home_hour": {"entity": "campaign", "action": "impression", "limit": 1, "within": "1h", "view": ["home"]},
        "often": {"entity": "ad", "action": "impression", "floor": 1, "within": "1h"},
        "clicks": {"entity": "ad", "action": "click", "limit": 5, "within": "1h"},
    }))
}

fn asked(ads: &[&str]) -> Value {
    let candidates: Vec<Value> = ads.iter().map(|ad| json!({"ad": ad})).collect();
    json!({"user": "u", "candidates": candidates, "caps": ["ad_day"]})
}

async fn reserve(site: &Site, body: &Value) -> Value {
    let answer = post(site, "/v1/actions/reserve", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("cache-control"), "no-store");
    answer.json()
}

/// Reserves ad 1 for the user `u`, and returns the reservation.
async fn reserved(site: &Site) -> String {
    let answer = reserve(site, &asked(&["1"])).await;
    let reservation = answer["reservation"].as_str();
    reservation.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The number of actions and holds of ad 1 that a check counts, once they are three.
async fn checked(site: &Site) -> u64 {
    let answer = post(site, "/v1/actions/check", &asked(&["1"])).await;
    assert_eq!(answer.header("cache-control"), "no-store");
    let verdict = answer.json()["candidates"][0].clone();
    verdict["by"]["count"].as_u64().unwrap_or(0)
}

/// The number of actions of ad 1 that a query counts.
async fn queried(site: &Site) -> u64 {
    let question = json!({"users": ["u"], "ranges": ["24h"], "action": ["impression"], "entity": {"ad": ["1"]}});
    let counts = counts(site, question).await;
    counts["24h"]["impression"]["ad"]["1"]
        .as_u64()
        .expect("a count")
}

async fn release(site: &Site, reservation: &str) -> Answer {
    let path = format!("/v1/actions/reservations/{reservation}");
    let request = Request::delete(path).body(Body::empty());
    site.ask(request.expect("a request")).await
}

/// Sends an impression of ad 1 that names a reservation, and returns what became of the reservation.
async fn confirm(site: &Site, id: &str, user: &str, reservation: &str) -> Value {
    let mut event = seen(id, NOW, "1");
    event["user"] = user.into();
    event["reservation"] = reservation.into();
    let answer = post(site, "/v1/events", &event).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["reservation"].clone()
}

#[tokio::test]
async fn holds_count_in_checks_and_for_other_reservations_and_not_in_queries() {
    let (site, clock) = site();
    send(&site, json!([seen("a", NOW - 60, "1")])).await;
    for _ in 0..2 {
        assert_eq!(checked(&site).await, 0, "the cap leaves one");
        reserved(&site).await;
        clock.pass(1);
    }
    assert_eq!((checked(&site).await, queried(&site).await), (3, 1));
    // The first of the holds expires before the action leaves.
    let answer = reserve(&site, &asked(&["1"])).await;
    assert_eq!(
        answer,
        json!({"user": "u", "candidates": [{"allowed": false,
            "by": {"cap": "ad_day", "count": 3, "limit": 3, "again_at": "2012-03-16T18:41:48Z"}}],
            "position": answer["position"]})
    );
    let answer = reserve(&site, &asked(&["1", "2", "3"])).await;
    assert_eq!(answer["candidates"][1], json!({"allowed": true}));
    assert_eq!(answer["candidates"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&answer["reserved"], &answer["expires"]),
        (&json!(1), &json!("2012-03-16T18:41:49Z"))
    );
    // Another user is not concerned.
    let mut other = asked(&["1"]);
    other["user"] = "v".into();
    assert_eq!(reserve(&site, &other).await["reserved"], 0);
    // A question of the past knows no holds.
    let mut past = asked(&["1"]);
    past["at"] = NOW.into();
    let past = post(&site, "/v1/actions/check", &past).await.json();
    assert_eq!(past["candidates"][0]["allowed"], true);
}

#[tokio::test]
async fn an_event_confirms_once_in_time_and_of_the_same_user_and_always_counts() {
    let (site, clock) = site();
    let first = reserved(&site).await;
    let (second, third) = (reserved(&site).await, reserved(&site).await);
    assert_eq!(checked(&site).await, 3);
    assert_eq!(confirm(&site, "other", "v", &first).await, "missed");
    assert_eq!((checked(&site).await, queried(&site).await), (3, 0));
    assert_eq!(confirm(&site, "a", "u", &first).await, "confirmed");
    assert_eq!((checked(&site).await, queried(&site).await), (3, 1));
    // An event that is sent again counts no more; another one counts.
    assert_eq!(confirm(&site, "a", "u", &first).await, "missed");
    assert_eq!((checked(&site).await, queried(&site).await), (3, 1));
    assert_eq!(confirm(&site, "b", "u", &first).await, "missed");
    assert_eq!((checked(&site).await, queried(&site).await), (4, 2));
    // An event that counted before is not what was held.
    assert_eq!(confirm(&site, "b", "u", &second).await, "missed");
    assert_eq!((checked(&site).await, queried(&site).await), (4, 2));
    assert_eq!(confirm(&site, "c", "u", &second).await, "confirmed");
    assert_eq!((checked(&site).await, queried(&site).await), (4, 3));
    // Too late.
    clock.pass(60);
    assert_eq!(checked(&site).await, 3);
    assert_eq!(confirm(&site, "d", "u", &third).await, "missed");
    assert_eq!(queried(&site).await, 4);
    assert_eq!(confirm(&site, "e", "u", "nothing of ours").await, "missed");
    assert_eq!(queried(&site).await, 5);
}

#[tokio::test]
async fn an_event_of_something_else_confirms_no_reservation() {
    let (site, _) = site();
    let reservation = reserved(&site).await;
    let mut event = seen("a", NOW, "1");
    event["reservation"] = reservation.clone().into();
    for (id, field, value) in [
        ("ad", "entities", json!({"ad": "2"})),
        ("view", "view", "elsewhere".into()),
        ("n", "n", 2.into()),
    ] {
        let mut other = event.clone();
        other["id"] = id.into();
        other[field] = value;
        let answer = post(&site, "/v1/events", &other).await.json();
        assert_eq!(answer["reservation"], "missed", "{field}");
    }
    // An event may name further entities.
    event["entities"] = json!({"ad": "1", "campaign": "7"});
    let answer = post(&site, "/v1/events", &event).await.json();
    assert_eq!(answer["reservation"], "confirmed");
}

#[tokio::test]
async fn batches_and_cloud_events_confirm_and_a_refused_batch_does_not() {
    let (site, _) = site();
    let reservations = [
        reserved(&site).await,
        reserved(&site).await,
        reserved(&site).await,
    ];
    let event = |id: &str, reservation: &str| {
        let mut event = seen(id, NOW, "1");
        event["reservation"] = reservation.into();
        event
    };
    let good = event("a", &reservations[0]);
    let mut wrong = event("b", &reservations[1]);
    wrong["type"] = "nothing".into();
    let both = json!([good, wrong]);
    assert_eq!(post(&site, "/v1/events", &both).await.status, 400);
    assert_eq!((checked(&site).await, queried(&site).await), (3, 0));
    let answer = post(&site, "/v1/events?on_error=skip", &both).await.json();
    assert_eq!(
        (&answer["accepted"], &answer["reservation"]),
        (&json!(1), &Value::Null)
    );
    let confirmed = json!({"confirmed": 1, "missed": 0, "missed_at": []});
    assert_eq!(answer["reservations"], confirmed);
    assert_eq!((checked(&site).await, queried(&site).await), (3, 1));
    // Only the first was counted, so only the first confirms.
    assert_eq!(release(&site, &reservations[0]).await.status, 404);
    assert_eq!(release(&site, &reservations[1]).await.status, 204);
    let wrapped = json!({"specversion": "1.0", "id": "c", "source": "/shop", "type": "com.example.impression",
        "data": {"entities": {"ad": "1"}, "user": "u", "reservation": reservations[2]}});
    let request = Request::post("/v1/events")
        .header("content-type", "application/cloudevents+json")
        .body(Body::from(wrapped.to_string()));
    let answer = site.ask(request.expect("a request")).await.json();
    assert_eq!(answer["reservation"], "confirmed");
    assert_eq!(queried(&site).await, 2);
    assert_eq!(release(&site, &reservations[2]).await.status, 404);
    // A reservation is no part of what the log keeps of an event.
    let logged = site.get("/v1/events/a").await.json();
    assert!(!logged.to_string().contains(&reservations[0]), "{logged}");
}

#[tokio::test]
async fn a_batch_says_which_of_its_reservations_were_missed() {
    let (site, _) = site();
    let held = reserved(&site).await;
    let unknown = "r000000000000000000000000";
    let named = [
        ("a", Some(unknown)),
        ("b", None),
        ("c", Some(&*held)),
        ("d", Some("x")),
    ];
    let events = named.map(|(id, reservation)| {
        let mut event = seen(id, NOW, "1");
        event["reservation"] = reservation.into();
        event
    });
    let answer = post(&site, "/v1/events", &json!(events)).await.json();
    assert_eq!(
        (&answer["accepted"], &answer["reservations"]),
        (
            &json!(4),
            &json!({"confirmed": 1, "missed": 2, "missed_at": [0, 3]})
        )
    );
    let plain = json!([seen("e", NOW, "1"), seen("f", NOW, "1")]);
    let answer = post(&site, "/v1/events", &plain).await.json();
    assert_eq!(answer["reservations"], Value::Null);
}

#[tokio::test]
async fn a_retry_with_an_id_gets_the_reservation_that_it_has() {
    let (site, clock) = site();
    let ask = |ads: &[&str], user: &str, id: &str| {
        let mut body = asked(ads);
        (body["user"], body["id"]) = (user.into(), id.into());
        body
    };
    let first = reserve(&site, &ask(&["1", "2"], "u", "page 1")).await;
    clock.pass(10);
    // The position may be a later one.
    let mut again = reserve(&site, &ask(&["1", "2"], "u", "page 1")).await;
    again["position"] = first["position"].clone();
    assert_eq!(again, first);
    // Two holds would leave one of the cap's three.
    for id in ["page 2", "page 3"] {
        let other = reserve(&site, &ask(&["1"], "u", id)).await;
        assert_eq!(other["reserved"], 0, "{id}");
        assert_ne!(other["reservation"], first["reservation"]);
    }
    assert_eq!(checked(&site).await, 3);
    // Where caps block all else, the retry still gets what is held for it.
    let again = reserve(&site, &ask(&["1"], "u", "page 1")).await;
    assert_eq!(
        (&again["reserved"], &again["candidates"]),
        (&json!(0), &json!([{"allowed": true}]))
    );
    let other = reserve(&site, &ask(&["1"], "v", "page 1")).await;
    assert_ne!(
        other["reservation"], first["reservation"],
        "it is of another user"
    );
    let answer = post(&site, "/v1/actions/reserve", &ask(&["2"], "u", "page 1")).await;
    assert_eq!(
        (answer.status, &answer.json()["field"]),
        (422, &json!("id"))
    );
    // Once an event has confirmed it, a late retry holds nothing more.
    let mut event = seen("late", NOW + 10, "1");
    event["reservation"] = first["reservation"].clone();
    let confirmed = post(&site, "/v1/events", &event).await.json();
    assert_eq!(confirmed["reservation"], "confirmed");
    let late = ask(&["1", "2"], "u", "page 1");
    let answer = post(&site, "/v1/actions/reserve", &late).await;
    assert_eq!(
        (answer.status, &answer.json()["field"]),
        (422, &json!("id"))
    );
    // Once it would have expired, the id is as good as new.
    clock.pass(60);
    let later = reserve(&site, &ask(&["2"], "u", "page 1")).await;
    assert_eq!(later["reserved"], 0);
    assert_eq!(later["expires"], "2012-03-16T18:42:57Z");
}

#[tokio::test]
async fn a_released_reservation_is_free_at_once_and_cannot_be_confirmed() {
    let (mut site, _) = site();
    let reservation = reserved(&site).await;
    let held = [reserved(&site).await, reserved(&site).await];
    let answer = release(&site, &reservation).await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    let again = release(&site, &reservation).await;
    assert_eq!(
        (again.status, again.json()["field"].as_str()),
        (404, Some("reservation"))
    );
    assert_eq!(checked(&site).await, 0);
    assert_eq!(confirm(&site, "a", "u", &reservation).await, "missed");
    assert_eq!((checked(&site).await, queried(&site).await), (3, 1));
    for unknown in ["r", "1", "r000000000000000000000000", &reservation[1..]] {
        assert_eq!(release(&site, unknown).await.status, 404, "{unknown}");
    }
    // A restart forgets what was held, and nothing else.
    site.reopen(schema(), NOW);
    assert_eq!((checked(&site).await, queried(&site).await), (0, 1));
    assert_eq!(release(&site, &held[0]).await.status, 404);
}

#[tokio::test]
async fn a_hold_is_of_the_named_action_view_and_entities() {
    let (site, _) = site();
    let body = |view: Value, campaign: &str| {
        json!({"user": "u", "candidates": [{"ad": "1", "campaign": campaign}], "caps": ["home_hour", "often"],
            "view": view})
    };
    // The cap counts what is held on its view alone.
    for (view, campaign, allowed) in [
        (json!("search"), "a long campaign's name", true),
        (json!(null), "a long campaign's name", true),
        (json!("home"), "a long campaign's name", true),
        (json!("home"), "a long campaign's name", false),
        (json!("home"), "8", true),
    ] {
        let verdict = reserve(&site, &body(view.clone(), campaign)).await["candidates"][0].clone();
        assert_eq!(verdict["allowed"], allowed, "{view} {campaign}");
        // A hold was not shown yet.
        assert_eq!(verdict["below_floor"], true);
    }
    let clicks = json!({"user": "u", "candidates": [{"ad": "5"}], "caps": ["ad_day", "clicks"], "action": "click"});
    let click = reserve(&site, &clicks).await;
    // A click is no impression, which the hold is not of.
    let reservation = click["reservation"].as_str().expect("a reservation");
    assert_eq!(confirm(&site, "a", "u", reservation).await, "missed");
    assert_eq!(release(&site, reservation).await.status, 204);
}

#[tokio::test]
async fn a_sender_whose_clock_is_ahead_does_not_open_a_cap() {
    let (site, _) = site();
    let ahead: Vec<Value> = ["a", "b", "c"].map(|id| seen(id, NOW + 3_600, "1")).into();
    send(&site, ahead.into()).await;
    assert_eq!(checked(&site).await, 3);
    assert_eq!(
        reserve(&site, &asked(&["1"])).await["reserved"],
        Value::Null
    );
}

#[tokio::test]
async fn wrong_requests_for_a_reservation_hold_nothing_and_name_the_field() {
    let (site, _) = site();
    for (field, value, status, named) in [
        ("user", json!(null), 400, "user"),
        ("user", json!("x".repeat(257)), 400, "user"),
        ("candidates", json!([]), 400, "candidates"),
        (
            "candidates",
            json!([{"campaign": "1"}]),
            422,
            "candidates[0].ad",
        ),
        (
            "candidates",
            json!([{"ad": "1", "shop": "1"}]),
            400,
            "candidates[0].shop",
        ),
        (
            "candidates",
            json!([{"ad": "x".repeat(2_049)}]),
            400,
            "candidates[0].ad",
        ),
        ("candidates", json!([{"ad": ""}]), 400, "candidates[0].ad"),
        ("caps", json!(["ad_week"]), 422, "caps"),
        ("action", json!("purchase"), 422, "action"),
        ("action", json!("click"), 422, "action"),
        ("view", json!(""), 400, "view"),
        ("view", json!("x".repeat(65)), 400, "view"),
        ("hold", json!("60"), 400, "hold"),
        ("hold", json!(60), 400, "hold"),
        ("hold", json!("s"), 400, "hold"),
        ("hold", json!("-1s"), 400, "hold"),
        ("hold", json!("1h"), 400, "hold"),
        ("hold", json!("٣s"), 400, "hold"),
        ("hold", json!("0s"), 422, "hold"),
        ("hold", json!("601s"), 422, "hold"),
        ("hold", json!("11m"), 422, "hold"),
        ("hold", json!("99999999999999999999s"), 422, "hold"),
        ("hold", json!("999999999999999999m"), 422, "hold"),
        ("at", json!(NOW), 400, "at"),
        ("id", json!(""), 400, "id"),
        ("id", json!("x".repeat(257)), 400, "id"),
        ("id", json!(1), 400, "id"),
        ("users", json!(["u"]), 400, "users"),
    ] {
        let mut body = asked(&["1"]);
        body[field] = value.clone();
        let answer = post(&site, "/v1/actions/reserve", &body).await;
        let said = answer.json();
        assert_eq!(
            (answer.status, said["field"].as_str()),
            (status, Some(named)),
            "{field}: {value}: {said}"
        );
    }
    for hold in ["1s", "600s", "10m"] {
        let mut body = asked(&["1"]);
        body["hold"] = hold.into();
        assert_eq!(reserve(&site, &body).await["reserved"], 0, "{hold}");
    }
    assert_eq!(checked(&site).await, 3);
}

#[tokio::test]
async fn a_user_who_is_counted_by_the_hour_makes_a_check_approximate() {
    let (site, _) = site();
    let answer = post(&site, "/v1/actions/check", &asked(&["1"])).await;
    assert_eq!(answer.json().get("approximate"), None);
    // The last batch folds the layers of those before into one list.
    for batch in 0..8 {
        let events = (0..9_500).map(|number| seen(&format!("{batch}-{number}"), NOW, "1"));
        send(&site, events.collect()).await;
    }
    for path in ["/v1/actions/check", "/v1/actions/reserve"] {
        let answer = post(&site, path, &asked(&["1"])).await.json();
        assert_eq!(answer["approximate"], true);
        let by = &answer["candidates"][0]["by"];
        assert_eq!(by["count"], 76_000);
        // The hour began at 18:00, and all of it has left after a day.
        assert_eq!(by["again_at"], "2012-03-17T18:59:59Z");
        let other = post(&site, path, &asked(&["2"])).await.json();
        assert_eq!(other.get("approximate"), None);
    }
}
