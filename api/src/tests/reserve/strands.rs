//! Reservations in a store of several strands.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use axum::body::HttpBody;
use axum::http::Version;
use bytes::Bytes;
use hyper::body::Frame;

use super::*;

/// A site of several strands, and its clock.
fn divided() -> (Site, Arc<Hand>) {
    let clock = Arc::new(Hand(AtomicI64::new(NOW * 1_000)));
    let site = Site::open_divided_with_clock(schema(), Arc::clone(&clock) as _, rules(), 3);
    (site, clock)
}

/// Reserves ad 1 for a user, where the cap leaves one.
async fn reserved_for(site: &Site, user: &str, id: Option<&str>) -> Option<String> {
    let mut body = asked(&["1"]);
    body["user"] = user.into();
    body["id"] = id.into();
    let answer = reserve(site, &body).await;
    answer["reservation"].as_str().map(str::to_owned)
}

/// The number of holds in all strands.
fn live(site: &Site) -> usize {
    let app = site.app();
    let stores = app.stores().all().iter();
    stores.map(|store| store.holds().live()).sum()
}

#[tokio::test]
async fn strands_share_what_a_cap_leaves_whichever_of_them_has_the_events() {
    let (site, clock) = divided();
    for user in (0..9).map(|user| format!("u{user}")) {
        let mut made = Vec::new();
        while let Some(reservation) = reserved_for(&site, &user, None).await {
            made.push(reservation);
        }
        assert_eq!(made.len(), 3, "{user}");
        let other = confirm(&site, &format!("{user}-other"), "nobody", &made[0]).await;
        assert_eq!(other, "missed");
        for (number, reservation) in made.iter().enumerate() {
            let event = format!("{user}-{number}");
            assert_eq!(
                confirm(&site, &event, &user, reservation).await,
                "confirmed"
            );
            let again = format!("{event}-again");
            assert_eq!(confirm(&site, &again, "v", reservation).await, "missed");
            assert_eq!(release(&site, reservation).await.status, 404);
            assert_eq!(reserved_for(&site, &user, None).await, None);
        }
    }
    assert_eq!(live(&site), 0);
    let held = reserved_for(&site, "w", Some("a")).await;
    assert_eq!(reserved_for(&site, "w", Some("a")).await, held);
    let held = held.expect("the cap leaves three");
    assert_eq!(release(&site, &held).await.status, 204);
    assert_eq!(release(&site, &held).await.status, 404);
    let late = reserved_for(&site, "w", None).await.expect("three");
    clock.pass(61);
    assert_eq!(confirm(&site, "late", "w", &late).await, "missed");
    let mut left = 0;
    while reserved_for(&site, "w", None).await.is_some() {
        left += 1;
    }
    assert_eq!(left, 2, "one was seen");
    let wrong = post(&site, "/v1/actions/reserve", &json!({"user": 7})).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
}

#[tokio::test]
async fn a_batch_tells_of_each_reservation_by_the_place_of_its_event() {
    let (site, _) = divided();
    let mut events = Vec::new();
    for number in 0..20 {
        let user = format!("u{number}");
        let reservation = reserved_for(&site, &user, None)
            .await
            .expect("a cap of three");
        let mut event = seen(&format!("e{number}"), NOW, "1");
        event["user"] = user.into();
        event["reservation"] = match number % 4 {
            3 => "r000000000000000000000000".into(),
            _ => reservation.into(),
        };
        events.push(event);
    }
    let answer = post(&site, "/v1/events", &events.clone().into())
        .await
        .json();
    assert_eq!(
        answer["reservations"],
        json!({"confirmed": 15, "missed": 5, "missed_at": [3, 7, 11, 15, 19]}),
        "{answer}"
    );
    assert_eq!(live(&site), 5);
    let answer = post(&site, "/v1/events", &events.into()).await.json();
    assert_eq!(
        (&answer["duplicates"], live(&site)),
        (&json!(20), 5),
        "{answer}"
    );
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_no_reservation() {
    let (site, _) = divided();
    for number in 0..9 {
        let user = format!("u{number}");
        let reservation = reserved_for(&site, &user, None).await;
        let mut event = seen(&format!("e{number}"), NOW, "1");
        event["user"] = user.into();
        event["reservation"] = reservation.into();
        let mut asking = pin!(post(&site, "/v1/events", &event));
        let asked = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
        assert!(asked.is_pending(), "the commit takes a moment");
    }
    while live(&site) > 0 {
        tokio::task::yield_now().await;
    }
}

/// A body that nobody may read.
struct Unread;

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the body of a stranger is read");
    }
}

#[tokio::test]
async fn no_body_of_a_stranger_is_read() {
    let (site, _) = divided();
    for path in ["/v1/actions/reserve", "/v1/users/erase"] {
        let request = Request::post(path)
            .version(Version::HTTP_2)
            .header("host", "elsewhere.example")
            .body(Body::new(Unread));
        let answer = site.ask(request.unwrap()).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text);
    }
}
