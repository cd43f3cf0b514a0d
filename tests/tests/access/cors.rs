//! Pages elsewhere: nothing unless their origin is listed, and then reads only.

use serde_json::json;

use super::stand::{Stand, Wanted};

const ORIGIN: &str = "https://stats.example";
const ALLOW: &str = "access-control-allow-origin";

#[test]
fn cors_is_off_by_default() {
    let stand = Stand::start(Wanted::default());
    let ask = |headers: &[(&str, &str)]| {
        let reply = stand.ask("GET /v1/l/a/counts", headers, "");
        (reply.status, reply.header(ALLOW).map(str::to_owned))
    };
    // Without keys a page elsewhere is refused; with one it is answered, and its browser keeps the answer from it.
    assert_eq!(ask(&[("Origin", ORIGIN)]), (403, None));
    let key = stand.key("", json!({"scopes": ["read"]}));
    let bearer = format!("Bearer {key}");
    let with_key = [("Origin", ORIGIN), ("Authorization", bearer.as_str())];
    assert_eq!(ask(&with_key), (200, None));
}

#[test]
fn pages_of_listed_origins_may_read_and_no_more() {
    let stand = Stand::start(Wanted {
        origins: vec![ORIGIN.to_owned()],
        ..Wanted::default()
    });
    let key = stand.key("", json!({"scopes": ["read"]}));
    let bearer = format!("Bearer {key}");
    let asks = [
        ("Origin", ORIGIN),
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "authorization"),
    ];
    let preflight = stand.ask("OPTIONS /v1/l/a/counts", &asks, "");
    assert_eq!(preflight.status, 204, "{preflight:?}");
    assert_eq!(preflight.header(ALLOW), Some(ORIGIN));
    assert_eq!(
        preflight.header("access-control-allow-methods"),
        Some("GET, HEAD")
    );
    let read = stand.ask(
        "GET /v1/l/a/counts",
        &[("Origin", ORIGIN), ("Authorization", &bearer)],
        "",
    );
    assert_eq!((read.status, read.header(ALLOW)), (200, Some(ORIGIN)));
    assert!(
        read.head.to_lowercase().contains("vary: origin"),
        "{read:?}"
    );
    assert_eq!(read.header("access-control-allow-credentials"), None);
    // A page must be able to read that its key is wrong.
    let wrong = stand.ask("GET /v1/l/a/counts", &[("Origin", ORIGIN)], "");
    assert_eq!((wrong.status, wrong.header(ALLOW)), (401, Some(ORIGIN)));

    for origin in [
        "https://other.example",
        "null",
        "https://stats.example.evil",
    ] {
        let reply = stand.ask("GET /v1/l/a/counts", &[("Origin", origin)], "");
        assert_eq!(reply.header(ALLOW), None, "{origin}: {reply:?}");
    }
    for (line, method) in [
        ("OPTIONS /v1/incr", "GET"),
        ("OPTIONS /v1/admin/keys", "POST"),
        ("OPTIONS /v1/query", "POST"),
    ] {
        let asks = [
            ("Origin", ORIGIN),
            ("Access-Control-Request-Method", method),
        ];
        let reply = stand.ask(line, &asks, "");
        assert_ne!(reply.status, 204, "{line}: {reply:?}");
        assert_eq!(
            reply.header("access-control-allow-methods"),
            None,
            "{reply:?}"
        );
    }
}
