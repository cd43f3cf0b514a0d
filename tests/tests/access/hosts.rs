//! The `Host` and `Origin` that a request may have.

use std::io::{Read, Write};

use super::http::{Reply, connect};
use super::stand::{Stand, Wanted};

/// The answer to these bytes, after which the connection ends.
fn told(stand: &Stand, text: &str) -> Reply {
    let mut stream = connect(stand.address);
    stream.write_all(text.as_bytes()).expect("send");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read the answer");
    Reply::parse(&String::from_utf8_lossy(&answer))
}

#[test]
fn a_request_names_its_host_once() {
    let stand = Stand::start(Wanted::default());
    let close = "Connection: close\r\n";
    for (version, hosts, status) in [
        ("1.1", "Host: localhost\r\n", 200),
        ("1.1", "Host: [::1]:7117\r\n", 200),
        ("1.0", "", 200),
        ("1.1", "", 400),
        ("1.1", "Host: localhost\r\nHost: localhost\r\n", 400),
        ("1.0", "Host: localhost\r\nHost: evil.example\r\n", 400),
        ("1.1", "Host: a b\r\n", 400),
        ("1.1", "Host: user@localhost\r\n", 400),
        ("1.1", "Host: localhost/x\r\n", 400),
    ] {
        let reply = told(
            &stand,
            &format!("GET /v1/l/a/counts HTTP/{version}\r\n{hosts}{close}\r\n"),
        );
        assert_eq!(reply.status, status, "{hosts:?}: {reply:?}");
        if status == 400 {
            assert_eq!(reply.json()["field"], "host", "{reply:?}");
        }
    }
    // Nothing behind such a head is taken for another request.
    let next = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let reply = told(&stand, &format!("GET /healthz HTTP/1.1\r\n\r\n{next}"));
    assert_eq!(reply.status, 400);
    assert_eq!(
        reply.body.matches("HTTP/1.1").count(),
        1,
        "of the detail: {reply:?}"
    );
}

#[test]
fn without_keys_it_is_asked_by_its_own_name_and_with_them_by_any() {
    let stand = Stand::start(Wanted::default());
    let ask = |host: &str, more: &str| {
        let head = format!(
            "GET /v1/l/a/counts HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"
        );
        told(&stand, &head)
    };
    assert_eq!(ask("localhost:7117", "").status, 200);
    for (host, more) in [
        ("evil.example:7117", ""),
        ("127.0.0.1", "Origin: https://evil.example\r\n"),
        ("127.0.0.1", "Origin: http://203.0.113.5\r\n"),
    ] {
        let refused = ask(host, more);
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.body.contains("[http] hosts"), "{refused:?}");
    }
    let key = stand.operator();
    let reader = stand.key(&key, serde_json::json!({"scopes": ["read"]}));
    let bearer = format!("Authorization: Bearer {reader}\r\n");
    assert_eq!(ask("stats.example", &bearer).status, 200);
}
