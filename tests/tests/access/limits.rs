//! Rates, places and times.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tallyring_api::AccessLimits;

use super::http::{Reply, connect};
use super::stand::{Stand, Wanted};

fn with(access: AccessLimits) -> Stand {
    Stand::start(Wanted {
        access,
        ..Wanted::default()
    })
}

fn seconds(reply: &Reply) -> u64 {
    let value = reply.header("retry-after");
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no Retry-After: {reply:?}"))
}

/// A request whose body never comes: it holds its place.
fn hanging(stand: &Stand, line: &str) -> TcpStream {
    let mut stream = connect(stand.address);
    let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{");
    stream.write_all(head.as_bytes()).expect("send a head");
    stream
}

/// Asks until the answer has this status.
fn until(stand: &Stand, status: u16, line: &str) -> Reply {
    let began = Instant::now();
    loop {
        let reply = stand.ask(line, &[], "");
        if reply.status == status {
            return reply;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{reply:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Takes the only place of a class, and returns the answer to the next request for it. A probe may have had the place
/// when the first holder asked, so holders ask until one has it.
fn shed_behind(stand: &Stand, held: &str, asked: &str) -> (Vec<TcpStream>, Reply) {
    let began = Instant::now();
    let mut holders = Vec::new();
    loop {
        holders.push(hanging(stand, held));
        let reply = stand.ask(asked, &[], "");
        if reply.status == 503 {
            return (holders, reply);
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{reply:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_key_has_its_rate_by_items() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let slow = stand.key(&operator, json!({"scopes": ["write"], "limit": 10}));
    let free = stand.key(&operator, json!({"scopes": ["write"]}));
    let one = "GET /v1/incr?key.l=a";
    for _ in 0..10 {
        assert_eq!(stand.ask_as(&slow, one, "").status, 204);
    }
    let refused = stand.ask_as(&slow, one, "");
    assert_eq!((refused.status, seconds(&refused)), (429, 1), "{refused:?}");
    assert_eq!(stand.ask_as(&free, one, "").status, 204);

    stand.advance(1_000);
    let items = vec![json!({"at": 1331923247, "keys": {"l": "a"}}); 40];
    let batch = serde_json::to_string(&items).unwrap();
    let taken = stand.ask_as(&slow, "POST /v1/increments", &batch);
    assert_eq!(taken.status, 200, "{taken:?}");
    let refused = stand.ask_as(&slow, "POST /v1/increments", &batch);
    assert_eq!((refused.status, seconds(&refused)), (429, 4), "{refused:?}");
    // Another key does not fill the bucket.
    stand.key(&operator, json!({"scopes": ["read"]}));
    stand.advance(3_000);
    assert_eq!(stand.ask_as(&slow, one, "").status, 429);
    stand.advance(1_000);
    assert_eq!(stand.ask_as(&slow, one, "").status, 204);
}

#[test]
fn wrong_keys_are_limited_and_right_ones_pass_all_the_same() {
    let stand = with(AccessLimits {
        wrong_keys_per_second: 3,
        ..AccessLimits::default()
    });
    let operator = stand.operator();
    let line = "GET /v1/admin/status";
    let statuses = [(); 5].map(|()| stand.ask_as("wrong", line, "").status);
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    assert_eq!(stand.ask_as(&operator, line, "").status, 200);
    assert_eq!(stand.ask(line, &[], "").status, 401);
    stand.advance(1_000);
    assert_eq!(stand.ask_as("wrong", line, "").status, 401);
}

#[test]
fn each_class_is_shed_alone() {
    let stand = with(AccessLimits {
        batches: 1,
        queries: 1,
        admin: 1,
        query_wait: Duration::from_millis(20),
        ..AccessLimits::default()
    });
    let queries = "GET /v1/l/a/by/c";
    let (read, shed) = shed_behind(&stand, "POST /v1/query", queries);
    assert!((1..=3).contains(&seconds(&shed)), "{shed:?}");
    assert_eq!(shed.json()["status"], 503);
    assert_eq!(stand.ask("GET /v1/incr?key.l=a", &[], "").status, 204);
    assert_eq!(stand.ask("GET /v1/admin/status", &[], "").status, 200);
    assert_eq!(stand.ask("GET /healthz", &[], "").status, 200);
    // A read that is answered at once needs no place.
    assert_eq!(stand.ask("GET /v1/l/a/counts", &[], "").status, 200);
    drop(read);
    until(&stand, 200, queries);
}

#[test]
fn batches_whose_bodies_do_not_come_take_no_place_of_others() {
    let stand = with(AccessLimits {
        batches: 1,
        ..AccessLimits::default()
    });
    let _slow = ["POST /v1/increments", "POST /v1/events"].map(|line| hanging(&stand, line));
    for _ in 0..32 {
        let batch = r#"{"keys":{"l":"a"}}"#;
        let answer = stand.ask("POST /v1/increments", &[], batch);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[test]
fn a_read_waits_for_its_turn() {
    let stand = with(AccessLimits {
        queries: 1,
        query_wait: Duration::from_secs(20),
        ..AccessLimits::default()
    });
    let held = hanging(&stand, "POST /v1/query");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| stand.ask("GET /v1/l/a/by/c", &[], ""));
        thread::sleep(Duration::from_millis(50));
        drop(held);
        assert_eq!(waiting.join().expect("an answer").status, 200);
    });
}

#[test]
fn questions_that_strangers_may_ask_take_no_place_of_reads() {
    let stand = with(AccessLimits {
        queries: 1,
        query_wait: Duration::from_millis(1),
        ..AccessLimits::default()
    });
    let (_held, page) = shed_behind(&stand, "POST /login", "GET /");
    assert_eq!(page.status, 503);
    assert_eq!(stand.ask("GET /v1/l/a/counts", &[], "").status, 200);
}

#[test]
fn a_request_that_takes_too_long_is_408_and_says_what_became_of_it() {
    let stand = with(AccessLimits {
        request_timeout: Duration::from_millis(100),
        ..AccessLimits::default()
    });
    for (line, says) in [
        ("POST /v1/increments", "same id"),
        ("POST /v1/query", "less"),
    ] {
        let mut stream = hanging(&stand, line);
        let mut text = [0; 4_096];
        let length = std::io::Read::read(&mut stream, &mut text).expect("an answer");
        let reply = Reply::parse(&String::from_utf8_lossy(&text[..length]));
        assert_eq!(reply.status, 408, "{reply:?}");
        let problem = reply.json();
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(says), "{problem}");
    }
}

#[test]
fn every_answer_has_a_request_id() {
    let stand = Stand::start(Wanted::default());
    let id = |headers: &[(&str, &str)], line: &str| {
        let reply = stand.ask(line, headers, "");
        reply
            .header("x-request-id")
            .unwrap_or_else(|| panic!("{reply:?}"))
            .to_owned()
    };
    let lines = ["GET /healthz", "GET /v1/incr?key.l=a", "GET /none/such"];
    let made = lines.map(|line| id(&[], line));
    assert!(made[0] != made[1] && made[1] != made[2], "{made:?}");
    assert_eq!(
        id(&[("X-Request-Id", "mine_1-Z")], "GET /healthz"),
        "mine_1-Z"
    );
    let long = "x".repeat(65);
    for bad in ["a b", "a;b", "{}", "é", &long] {
        let given = id(&[("X-Request-Id", bad)], "GET /healthz");
        assert_eq!(given.len(), 16, "{bad} became {given}");
    }
}

#[test]
fn one_key_takes_no_more_than_half_of_the_places_for_reads() {
    let stand = with(AccessLimits {
        queries: 4,
        ..AccessLimits::default()
    });
    let operator = stand.operator();
    let [greedy, other] = [(); 2].map(|()| stand.key(&operator, json!({"scopes": ["read"]})));
    let mut held = Vec::new();
    let began = Instant::now();
    let line = "GET /v1/l/a/by/c";
    // Each holds a place for as long as its body does not come.
    let refused = loop {
        let head = format!("POST /v1/query HTTP/1.1\r\nAuthorization: Bearer {greedy}");
        let mut stream = connect(stand.address);
        let rest = "\r\nHost: test\r\nContent-Length: 100\r\n\r\n{";
        stream
            .write_all((head + rest).as_bytes())
            .expect("send a head");
        held.push(stream);
        let reply = stand.ask_as(&greedy, line, "");
        if reply.status == 429 {
            break reply;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{reply:?}");
    };
    assert!(seconds(&refused) >= 1);
    assert_eq!(stand.ask_as(&other, line, "").status, 200);
}
