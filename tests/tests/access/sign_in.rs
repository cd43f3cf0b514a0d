//! Pages are open and hold no data; signing in puts a key into a cookie that opens reads only.

use serde_json::json;

use super::http::Reply;
use super::stand::{Stand, Wanted};

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// The cookie of an answer, as a browser sends it back.
fn cookie(reply: &Reply) -> String {
    let set = reply.header("set-cookie").expect("a cookie");
    for attribute in [
        "Secure",
        "HttpOnly",
        "SameSite=Strict",
        "Path=/",
        "Max-Age=2592000",
    ] {
        assert!(set.split("; ").any(|found| found == attribute), "{set}");
    }
    set.split(';').next().expect("a value").to_owned()
}

#[test]
fn without_keys_everything_is_open_and_nobody_signs_in() {
    let stand = Stand::start(Wanted::default());
    for line in [
        "GET /",
        "GET /search?q=a",
        "GET /keys/l/a%2Fb",
        "GET /dashboard/app.js",
    ] {
        assert_eq!(stand.ask(line, &[], "").status, 200, "{line}");
    }
    let reply = stand.ask("GET /login?next=/keys/l/a", &[], "");
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some("/keys/l/a"))
    );
    let reply = stand.ask("POST /login", &[FORM], "key=x");
    assert_eq!((reply.status, reply.header("set-cookie")), (303, None));
}

#[test]
fn a_key_signs_in_and_its_cookie_opens_reads_only() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let all = stand.key(&operator, json!({"scopes": ["read", "write", "admin"]}));
    for line in [
        "GET /",
        "GET /search",
        "GET /keys/l/a",
        "GET /login",
        "GET /dashboard/charts.css",
    ] {
        assert_eq!(stand.ask(line, &[], "").status, 200, "{line}");
    }
    let body = format!("key=+{all}%0A&next=%2Fkeys%2Fl%2Fa%3Funit%3Dday");
    let reply = stand.ask(
        "POST /login",
        &[FORM, ("Sec-Fetch-Site", "same-origin")],
        &body,
    );
    assert_eq!(reply.status, 303, "{reply:?}");
    assert_eq!(reply.header("location"), Some("/keys/l/a?unit=day"));
    let cookie = cookie(&reply);
    let own = [
        ("Cookie", cookie.as_str()),
        ("Sec-Fetch-Site", "same-origin"),
    ];
    let query = r#"{"queries":[{"namespace":"l","key":"a"}]}"#;
    for (line, body, status) in [
        ("GET /v1/namespaces", "", 200),
        ("GET /v1/l/a/counts", "", 200),
        ("GET /v1/l/counts.svg?width=320&theme=dark", "", 200),
        ("GET /v1/admin/status", "", 200),
        ("POST /v1/query", query, 200),
        ("GET /v1/incr?key.l=a", "", 401),
        ("POST /v1/increments", r#"{"keys":{"l":"a"}}"#, 401),
        ("POST /v1/events", "{}", 401),
        ("POST /v1/admin/rebuild", "", 401),
        ("DELETE /v1/admin/keys/x", "", 401),
        ("GET /v4/bitlinks/bit.ly/a/clicks", "", 401),
    ] {
        let reply = stand.ask(line, &own, body);
        assert_eq!(reply.status, status, "{line}: {reply:?}");
    }
    let elsewhere = [
        ("Cookie", cookie.as_str()),
        ("Sec-Fetch-Site", "cross-site"),
    ];
    assert_eq!(stand.ask("GET /v1/l/a/counts", &elsewhere, "").status, 401);

    let id = all.split('_').nth(1).unwrap();
    let revoke = format!("DELETE /v1/admin/keys/{id}");
    assert_eq!(stand.ask_as(&operator, &revoke, "").status, 200);
    assert_eq!(stand.ask("GET /v1/l/a/counts", &own, "").status, 401);
}

#[test]
fn a_wrong_key_is_told_on_the_page_and_counted_against_its_address() {
    let mut wanted = Wanted::default();
    wanted.access.wrong_keys_per_second = 3;
    let stand = Stand::start(wanted);
    stand.operator();
    for attempt in 0..5 {
        let reply = stand.ask("POST /login", &[FORM], "key=tr_x_y&next=%2F%22%3E%3Cb%3E");
        let expected = if attempt < 3 { 401 } else { 429 };
        assert_eq!(reply.status, expected, "{reply:?}");
        assert_eq!(reply.header("set-cookie"), None);
        assert!(reply.body.contains("role=\"alert\">"), "{reply:?}");
        assert!(!reply.body.contains("\"><b>"), "{reply:?}");
    }
}

#[test]
fn another_site_cannot_sign_a_browser_in_and_signing_out_takes_the_cookie() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let body = format!("key={operator}");
    let headers = [FORM, ("Sec-Fetch-Site", "cross-site")];
    let reply = stand.ask("POST /login", &headers, &body);
    assert_eq!((reply.status, reply.header("set-cookie")), (403, None));
    let reply = stand.ask("POST /logout", &[], "");
    assert_eq!(
        (reply.status, reply.header("location")),
        (303, Some("/login"))
    );
    let set = reply.header("set-cookie").expect("a cookie");
    assert!(set.starts_with("__Host-tallyring=; Max-Age=0;"), "{set}");
}
