//! Streams of live counts: what they tell, how many there are, and when they end.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tallyring_records::Schema;

use super::http::{connect, connect_from};
use super::stand::{Stand, Wanted};

/// A stream that is read line by line.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(address: SocketAddr, target: &str, key: &str) -> Self {
        Self::over(connect(address), target, key)
    }

    fn over(mut stream: TcpStream, target: &str, key: &str) -> Self {
        // Closed behind the stream, so that its end is seen.
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("send");
        Self(BufReader::new(stream))
    }

    fn status(&mut self) -> u16 {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("read");
        line.split(' ')
            .nth(1)
            .expect("a status")
            .parse()
            .expect("a number")
    }

    /// The next tick; none at the stream's end.
    fn tick(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self
                .0
                .read_line(&mut line)
                .expect("read before time is out")
                == 0
            {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

#[test]
fn a_stream_tells_what_a_key_counted_since() {
    let stand = Stand::start(Wanted::default());
    // A zone of whole hours: in the half hour after midnight of another one, what comes counts as the day before.
    let target = "/v1/live?namespace=l&key=a%2Fb&timezone=Asia/Tokyo";
    let mut stream = Stream::open(stand.address, target, "");
    assert_eq!(stream.status(), 200);
    assert_eq!(stream.tick().expect("a tick")["today"], 0);
    for expected in [2, 5] {
        let line = format!(
            "GET /v1/incr?key.l=a/b&n={}",
            if expected == 2 { 2 } else { 3 }
        );
        assert_eq!(stand.ask(&line, &[], "").status, 204);
        let mut tick = stream.tick().expect("a tick");
        while tick["today"] != expected {
            tick = stream.tick().expect("a tick");
        }
        assert!(tick["applied"].as_u64() > Some(0), "{tick}");
        assert_eq!(tick["seconds"].as_array().map(Vec::len), Some(60));
    }
    // A count is told once its second is over.
    loop {
        let tick = stream.tick().expect("a tick");
        let seconds = tick["seconds"].as_array().expect("seconds").iter();
        if seconds.filter_map(Value::as_u64).sum::<u64>() == 5 {
            break;
        }
    }
}

#[test]
fn a_stream_of_a_namespace_that_is_taken_out_ends_and_says_so() {
    let stand = Stand::start(Wanted::default());
    let mut stream = Stream::open(stand.address, "/v1/live?namespace=l&key=a", "");
    let mut others = Stream::open(stand.address, "/v1/live?namespace=u&key=a", "");
    assert_eq!((stream.status(), others.status()), (200, 200));
    assert_eq!(stream.tick().expect("a tick")["today"], 0);
    let mut schema = Schema::default_clicks();
    schema.namespaces.retain(|of| of.name != "l");
    schema.titles.clear();
    let store = stand.service.store();
    assert!(store.declare(schema).expect("declared"));
    let told = std::iter::from_fn(|| stream.tick());
    let problem = told.last().expect("an end");
    assert_eq!(
        (&problem["status"], &problem["field"]),
        (&json!(404), &json!("namespace")),
        "{problem}"
    );
    assert_eq!(others.tick().expect("a tick")["today"], 0);
}

#[test]
fn one_address_leaves_streams_to_others_where_no_key_is_given() {
    let mut wanted = Wanted::default();
    wanted.access.streams = 4;
    let stand = Stand::start(wanted);
    let mut held = [(); 3].map(|()| Stream::open(stand.address, "/v1/live", ""));
    for stream in &mut held {
        assert_eq!(stream.status(), 200);
    }
    let refused = stand.ask("GET /v1/live", &[], "");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    assert!(refused.body.contains("one address"), "{refused:?}");
    let elsewhere = || connect_from("127.0.0.2", stand.address);
    let mut other = Stream::over(elsewhere(), "/v1/live", "");
    assert_eq!(other.status(), 200);
    // Now there is none for anybody.
    let mut late = Stream::over(elsewhere(), "/v1/live", "");
    assert_eq!(late.status(), 503);
}

#[test]
fn a_stream_that_cannot_be_given_is_refused_by_name() {
    let stand = Stand::start(Wanted::default());
    for (target, status, field) in [
        ("/v1/live?key=a", 400, "key"),
        ("/v1/live?namespace=l", 400, "key"),
        ("/v1/live?namespace=x&key=a", 404, "namespace"),
        ("/v1/live?timezone=Nowhere/Else", 400, "timezone"),
        ("/v1/live?unit=day", 400, "unit"),
    ] {
        let reply = stand.ask(&format!("GET {target}"), &[], "");
        assert_eq!(reply.status, status, "{target}: {reply:?}");
        assert_eq!(reply.json()["field"], field, "{target}: {reply:?}");
    }
}

#[test]
fn streams_are_bounded_and_end_with_the_client_the_key_and_the_server() {
    let mut wanted = Wanted::default();
    wanted.access.streams = 2;
    let mut stand = Stand::start(wanted);
    let operator = stand.operator();
    let [key, twin, third] =
        [(); 3].map(|()| stand.key(&operator, json!({"scopes": ["read"], "namespaces": ["l"]})));
    let mut first = Stream::open(stand.address, "/v1/live?namespace=l&key=a", &key);
    // One key has no more than half of the places.
    assert_eq!(first.status(), 200);
    let own = stand.ask_as(&key, "GET /v1/live", "");
    assert_eq!(own.status, 429, "{own:?}");
    assert!(own.header("retry-after").is_some());
    let mut second = Stream::open(stand.address, "/v1/live", &twin);
    assert_eq!(second.status(), 200);
    let tick = second.tick().expect("a tick");
    assert_eq!(
        tick["seconds"],
        json!(null),
        "a limited key is not told of all"
    );
    let refused = stand.ask_as(&third, "GET /v1/live", "");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    let other = stand.ask_as(&third, "GET /v1/live?namespace=u&key=a", "");
    assert!(matches!(other.status, 403 | 503), "{other:?}");

    // The place of a client that is gone is given to the next one.
    drop(second);
    let mut after = loop {
        let mut stream = Stream::open(stand.address, "/v1/live", &twin);
        if stream.status() == 200 {
            break stream;
        }
    };
    assert!(after.tick().is_some());

    let revoke = format!("DELETE /v1/admin/keys/{}", key.split('_').nth(1).unwrap());
    assert_eq!(stand.ask_as(&operator, &revoke, "").status, 200);
    while first.tick().is_some() {}

    let reader = stand.key(&operator, json!({"scopes": ["read"]}));
    let mut last = loop {
        let mut stream = Stream::open(stand.address, "/v1/live", &reader);
        if stream.status() == 200 {
            break stream;
        }
    };
    assert!(last.tick().is_some());
    stand.stop();
    while last.tick().is_some() {}
}
