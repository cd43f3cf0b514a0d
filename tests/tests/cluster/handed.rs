//! Increments and events of any node: the one that was asked reads them, and the one that writes counts each once.

use std::sync::Arc;
use std::thread;

use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::Response;
use serde_json::Value;
use tallyring_realtime::{Batch, Part, SchemaHashes, Terms, decode_outcome};
use tallyring_records::varint::{read_bytes, write_bytes};
use tallyring_records::{Increment, Offset, Schema};
use tallyring_tests::model::schema;
use tallyring_tests::sim_topic::SimTopic;
use tokio::runtime::Runtime;

use super::forward::{Site, position};
use super::stand::{START, Stand};

const BATCHES: &str = "/v1/nodes/batches/0";

/// Three nodes in service, one of which writes and is known to the others.
struct Nodes {
    stand: Stand,
    runtime: Runtime,
    sites: [Site; 3],
}

impl Nodes {
    fn start() -> Self {
        let (stand, nodes) = (Stand::new(), SimTopic::default());
        let runtime = Runtime::new().expect("a runtime");
        let sites = [1, 2, 3].map(|node| Site::start(&stand, node, &nodes, &runtime));
        Self {
            stand,
            runtime,
            sites,
        }
    }

    /// The node that writes, and one that follows, once all know who writes; each with its number.
    fn writer_and_follower(&self) -> [(usize, &Site); 2] {
        let part = |site: &Site| site.service.store().part();
        let numbered = || (1..).zip(&self.sites);
        self.stand.pass_until(|| {
            let unknown = Part::Follows { writer: None };
            let is_known = self.sites.iter().all(|site| part(site) != unknown);
            let writer = numbered().find(|(_, site)| part(site) == Part::Writes)?;
            let follower = numbered().find(|(_, site)| part(site) != Part::Writes)?;
            is_known.then_some([writer, follower])
        })
    }

    fn send(&self, site: &Site, request: Request<Body>) -> (u16, Response, String) {
        let (response, body) = site.send(&self.runtime, request);
        (response.status().as_u16(), response, body)
    }

    fn post(&self, site: &Site, path: &str, head: &[(&str, &str)], body: &str) -> (u16, Value) {
        let mut request = Request::post(format!("http://localhost{path}"));
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(body.to_owned()));
        let (status, _, body) = self.send(site, request.expect("a request"));
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// Counts by the query string: the answer.
    fn incr(&self, site: &Site, query: &str) -> (u16, Response, String) {
        let request = Request::get(format!("http://localhost/v1/incr?{query}"));
        self.send(site, request.body(Body::empty()).expect("a request"))
    }

    /// How often the node has an id counted.
    fn counts(&self, site: &Site, id: &str) -> usize {
        let history = site.service.store().intake().id_history(None, id);
        history.expect("a history").counts.len()
    }

    fn total(&self, site: &Site, key: &str) -> u64 {
        let path = format!("http://localhost/v1/l/{key}/summary?unit=year&units=-1");
        let request = Request::get(path).body(Body::empty());
        let (status, _, body) = self.send(site, request.expect("a request"));
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        body["total"].as_u64().expect("a total")
    }

    /// Hands bytes over to a node, with this seal.
    fn hand(&self, site: &Site, body: Vec<u8>, seal: Option<&str>) -> (u16, Vec<u8>) {
        let mut request = Request::post(format!("http://localhost{BATCHES}"));
        let length = body.len().to_string();
        let store = site.service.store();
        let head = store.seal(&[BATCHES.as_bytes(), length.as_bytes()]);
        request = request
            .header("content-length", length)
            .header("tallyring-head-seal", head.to_hex().as_str());
        if let Some(seal) = seal {
            request = request.header("tallyring-seal", seal);
        }
        let request = request.body(Body::from(body)).expect("a request");
        let (status, body) = self
            .runtime
            .block_on(tallyring_api::ask(&site.app, request))
            .expect("an answer");
        (status, body.to_vec())
    }
}

fn seal(site: &Site, body: &[u8]) -> String {
    let seal = site.service.store().seal(&[BATCHES.as_bytes(), body]);
    seal.to_hex().to_string()
}

#[test]
fn a_node_that_follows_reads_increments_and_events_and_tells_what_became_of_them() {
    let nodes = Nodes::start();
    let [(_, writer), (_, follower)] = nodes.writer_and_follower();
    // Nothing of a text keeps the others from being counted.
    for (query, status) in [
        (format!("key.l=a%09b%0A&at={START}&id=e%091%0A"), 204),
        (format!("key.l=a&at={START}&id=%00"), 204),
        (format!("key.l=a&at={START}&id={}", "x".repeat(300)), 400),
        (format!("key.nothing=a&at={START}&id=e2"), 400),
        (format!("key.l=a&at={}&id=e3", START * 2), 422),
        (format!("key.l=a&at={START}"), 204),
    ] {
        let (found, _, body) = nodes.incr(follower, &query);
        assert_eq!(found, status, "{query}: {body}");
    }
    let (status, response, _) = nodes.incr(follower, &format!("key.l=a&at={START}&id=e%091%0A"));
    assert_eq!(status, 204);
    assert_eq!(response.headers()["tallyring-duplicate"], "1");
    assert_eq!(
        nodes.total(follower, "a"),
        2,
        "a client reads what it wrote"
    );
    // A refused item has its verdict on the node that was asked, too.
    let history = follower.service.store().intake().id_history(None, "e2");
    assert!(history.expect("a history").refused.is_some());

    let events = format!(
        r#"[{{"type": "e", "entities": {{"l": "a"}}, "user": "u1", "at": {START}, "id": "v1"}},
            {{"type": "e", "entities": {{"l": "a"}}, "user": "user 0", "at": {START}, "id": "v2"}},
            {{"type": "e", "entities": {{"l": "a"}}, "user": "u1", "at": {START}, "id": "v1"}},
            {{"type": "x", "entities": {{"l": "a"}}, "user": "u1", "at": {START}, "id": "v3"}}]"#
    );
    let key = [("idempotency-key", "k1")];
    let (status, first) = nodes.post(follower, "/v1/events?on_error=skip", &key, &events);
    assert_eq!(status, 200, "{first}");
    assert_eq!(
        (&first["accepted"], &first["duplicates"], &first["filtered"]),
        (&1.into(), &1.into(), &1.into()),
        "{first}"
    );
    assert_eq!(first["rejected"][0]["index"], 3, "{first}");
    // A retry gets the same answer, from whichever node; another body is refused.
    for site in [follower, writer] {
        let again = nodes.post(site, "/v1/events?on_error=skip", &key, &events);
        assert_eq!(again, (200, first.clone()));
        let (status, body) = nodes.post(site, "/v1/events?on_error=skip", &key, "[]");
        assert_eq!(
            (status, &body["field"]),
            (422, &"idempotency-key".into()),
            "{body}"
        );
    }
    let numbered = |sequence: u64| {
        format!(
            r#"{{"keys": {{"l": "p"}}, "at": {START}, "producer": "p", "epoch": 0, "sequence": {sequence}}}"#
        )
    };
    for (sequence, status) in [(0, 200), (1, 200), (1, 200), (7, 409)] {
        let (found, body) = nodes.post(follower, "/v1/increments", &[], &numbered(sequence));
        assert_eq!(found, status, "{body}");
        if status == 409 {
            assert_eq!(body["field"], "sequence", "{body}");
        }
    }
    assert_eq!(nodes.total(follower, "p"), 2);
    assert_eq!(nodes.total(writer, "p"), 2);
}

#[test]
fn many_clients_of_all_nodes_at_once_are_each_told_of_their_own() {
    let nodes = Nodes::start();
    nodes.writer_and_follower();
    thread::scope(|scope| {
        for client in 0..12 {
            let (nodes, site) = (&nodes, &nodes.sites[client % 3]);
            scope.spawn(move || {
                for number in 0..20 {
                    let id = format!("c{client}-{}", number / 2);
                    let key = format!("k{client}");
                    let (status, response, body) =
                        nodes.incr(site, &format!("key.l={key}&at={START}&id={id}"));
                    assert_eq!(status, 204, "{body}");
                    let is_known = response.headers().contains_key("tallyring-duplicate");
                    assert_eq!(is_known, number % 2 == 1, "{id}");
                    let wrong = format!("key.l={key}&at={START}&n=0&id={id}-wrong");
                    assert_eq!(nodes.incr(site, &wrong).0, 400);
                    assert_eq!(nodes.total(site, &key), number / 2 + 1);
                }
            });
        }
    });
}

#[test]
fn increments_count_once_while_nodes_take_the_log_over_from_each_other() {
    let nodes = Nodes::start();
    nodes.writer_and_follower();
    const IDS: usize = 60;
    thread::scope(|scope| {
        for client in 0..6 {
            let (nodes, site) = (&nodes, &nodes.sites[client % 3]);
            scope.spawn(move || {
                for number in (client..IDS).step_by(6) {
                    let query = format!("key.l=a&at={START}&id=i{number}");
                    nodes.stand.pass_until(|| {
                        let (status, _, body) = nodes.incr(site, &query);
                        assert!([204, 503].contains(&status), "{status} {body}");
                        (status == 204).then_some(())
                    });
                    assert_eq!(nodes.counts(site, &format!("i{number}")), 1);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..4 {
                let [(_, writer), _] = nodes.writer_and_follower();
                writer.service.step_down();
            }
        });
    });
    for site in &nodes.sites {
        nodes
            .stand
            .pass_until(|| (nodes.total(site, "a") == IDS as u64).then_some(()));
    }
}

#[test]
fn only_nodes_of_the_store_hand_batches_over_and_one_that_cannot_be_read_is_refused_alone() {
    let nodes = Nodes::start();
    let [(_, writer), (_, follower)] = nodes.writer_and_follower();
    let good = Batch {
        increments: vec![Increment::new(START, 1, [("l", "a")])],
        declared: Some(writer.service.store().schema()),
        ..Batch::default()
    };
    let good = good.encode(&SchemaHashes::default());
    let body = |batches: &[&[u8]]| {
        let mut body = vec![1];
        batches
            .iter()
            .for_each(|batch| write_bytes(&mut body, batch));
        body
    };
    let one = body(&[&good]);
    let mut forged = seal(writer, &one);
    forged.replace_range(..1, if forged.starts_with('0') { "1" } else { "0" });
    for seal in [
        None,
        Some(""),
        Some("x"),
        Some(&*forged),
        Some(&*seal(writer, b"")),
    ] {
        assert_eq!(nodes.hand(writer, one.clone(), seal).0, 404, "{seal:?}");
    }
    let elsewhere = nodes.hand(follower, one.clone(), Some(&seal(follower, &one)));
    assert_eq!(elsewhere.0, 421);
    for wrong in [&[][..], &[2], &[1, 200], &[1, 5, 0]] {
        assert_eq!(
            nodes
                .hand(writer, wrong.to_vec(), Some(&seal(writer, wrong)))
                .0,
            400
        );
    }
    assert_eq!(nodes.total(writer, "a"), 0);
    let mixed = body(&[&good, &good[1..], &[], &good]);
    let (status, outcomes) = nodes.hand(writer, mixed.clone(), Some(&seal(writer, &mixed)));
    assert_eq!((status, outcomes[0]), (200, 1));
    let mut rest = &outcomes[1..];
    let mut counted = Vec::new();
    while !rest.is_empty() {
        let outcome = read_bytes(&mut rest).and_then(decode_outcome);
        counted.push(outcome.expect("an outcome").is_ok());
    }
    assert_eq!(counted, [true, false, false, true]);
    assert_eq!(nodes.total(writer, "a"), 2);
    // Nothing of a body is read whose length is not sealed.
    let unsealed = Request::post(format!("http://localhost{BATCHES}"))
        .header("content-length", one.len())
        .header("tallyring-seal", seal(writer, &one))
        .body(Body::from(one))
        .expect("a request");
    assert_eq!(nodes.send(writer, unsealed).0, 404);
    // Clients find no such route.
    for method in [Method::GET, Method::PUT] {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://localhost{BATCHES}"));
        let request = request.body(Body::empty()).expect("a request");
        let (status, ..) = nodes.send(writer, request);
        assert!([404, 405].contains(&status), "{status}");
    }
}

#[test]
fn an_event_of_any_node_confirms_a_hold_of_the_one_that_writes() {
    let nodes = Nodes::start();
    let [(_, writer), (_, follower)] = nodes.writer_and_follower();
    let store = writer.service.store();
    let kind = store.schema().event_type("e").cloned().expect("declared");
    let what = store.what(&kind, &Increment::new(START, 1, [("l_e", "a")]));
    let hold = || {
        let view = store.view();
        let held = store.reserve(&view, "u1", 60_000, Terms::default(), |_| {
            Some(Arc::clone(&what))
        });
        match held.expect("room") {
            tallyring_realtime::Made::New(id) => id,
            other => panic!("{other:?}"),
        }
    };
    let event = |id: &str, reservation: &str| {
        format!(
            r#"{{"type": "e", "entities": {{"l": "a"}}, "user": "u1", "at": {START}, "id": "{id}",
                "reservation": "{reservation}"}}"#
        )
    };
    let reservation = hold().to_string();
    let (status, body) = nodes.post(follower, "/v1/events", &[], &event("r1", &reservation));
    assert_eq!(
        (status, &body["reservation"]),
        (200, &"confirmed".into()),
        "{body}"
    );
    assert_eq!(store.holds().live(), 0);
    let (status, body) = nodes.post(follower, "/v1/events", &[], &event("r2", &reservation));
    assert_eq!(
        (status, &body["reservation"]),
        (200, &"missed".into()),
        "{body}"
    );
    let both = [hold(), hold()].map(|id| id.to_string());
    let events = [
        ("r3", &both[1]),
        ("r4", &reservation),
        ("r5", &both[0]),
        ("r6", &both[0]),
    ];
    let events = events
        .map(|(id, reservation)| event(id, reservation))
        .join(",");
    let (status, body) = nodes.post(follower, "/v1/events", &[], &format!("[{events}]"));
    assert_eq!(status, 200, "{body}");
    let reservations = &body["reservations"];
    assert_eq!(reservations["confirmed"], 2, "{body}");
    assert_eq!(
        reservations["missed_at"],
        serde_json::json!([1, 3]),
        "{body}"
    );
    assert_eq!(store.holds().live(), 0);
}

/// The first schema with one more namespace.
fn newer(name: &str) -> Schema {
    let mut newer = schema(0).clone();
    let mut namespace = newer.namespaces[0].clone();
    namespace.name = name.into();
    newer.namespaces.push(namespace);
    newer
}

#[test]
fn a_batch_that_was_counted_is_known_to_all_nodes_once_nothing_declares_what_it_names() {
    let nodes = Nodes::start();
    let [(_, writer), (_, follower)] = nodes.writer_and_follower();
    let store = writer.service.store();
    store.declare(newer("fresh")).expect("declared");
    let item = format!(r#"[{{"keys": {{"fresh": "a"}}, "at": {START}, "id": "k1"}}]"#);
    let send = |key: &str| {
        let key = [("idempotency-key", key)];
        nodes.stand.pass_until(|| {
            let answered = nodes.post(follower, "/v1/increments", &key, &item);
            (answered.0 != 503).then_some(answered)
        })
    };
    let first = send("k1");
    assert_eq!(
        (first.0, &first.1["accepted"]),
        (200, &1.into()),
        "{first:?}"
    );
    store.declare(newer("other")).expect("declared");
    assert_eq!(send("k1"), first);
    assert_eq!(send("k2").0, 400);
}

#[test]
fn a_node_that_is_behind_refuses_nothing_for_good_and_tells_the_position_of_what_it_acknowledges() {
    let nodes = Nodes::start();
    let [(_, writer), (number, follower)] = nodes.writer_and_follower();
    nodes.stand.topic.node(number).cut_off(true);
    writer
        .service
        .store()
        .declare(newer("fresh"))
        .expect("declared");
    let wrong = format!("key.fresh=a&at={START}&id=f1");
    let (status, response, body) = nodes.incr(follower, &wrong);
    assert_eq!(status, 503, "{body}");
    assert!(response.headers().contains_key("retry-after"));
    let item = format!(r#"[{{"keys": {{"fresh": "a"}}, "at": {START}, "id": "f1"}}]"#);
    for path in ["/v1/increments", "/v1/increments?on_error=skip"] {
        let (status, body) = nodes.post(follower, path, &[], &item);
        assert_eq!(status, 503, "{body}");
    }
    // All else counts, and the position says where.
    let (status, response, body) = nodes.incr(follower, &format!("key.l=a&at={START}&id=f2"));
    assert_eq!(status, 204, "{body}");
    let after = position(&response);
    assert!(
        after
            .parse()
            .is_ok_and(|after: Offset| { after > follower.service.store().live().applied() })
    );
    let (response, body) = writer.total_after(&nodes.runtime, &after);
    assert_eq!(response.status(), 200, "{body}");
    // A namespace that is declared no longer is refused.
    let store = writer.service.store();
    store.declare(newer("other")).expect("declared");
    nodes.stand.topic.node(number).cut_off(false);
    let (status, _, body) = nodes.incr(writer, &wrong);
    assert_eq!(status, 400, "{body}");
    nodes.stand.pass_until(|| {
        let (status, _, body) = nodes.incr(follower, &wrong);
        assert!([400, 503].contains(&status), "{status} {body}");
        (status == 400).then_some(())
    });
    assert_eq!(nodes.counts(writer, "f1"), 0);
    let (status, _, body) = nodes.incr(follower, &format!("key.other=a&at={START}"));
    assert_eq!(status, 204, "{body}");
}
