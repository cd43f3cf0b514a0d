//! Shares: what each route answers to the bearer of a link, and what its page shows.

use serde_json::json;
use tallyring_realtime::catalog::KeyEntry;
use tallyring_records::Shared;

use super::http::Reply;
use super::routes::ROUTES;
use super::stand::{Stand, Wanted};

/// Reads of the key `a` of `l`.
const OF_KEY: [&str; 12] = [
    "GET /v1/l/a/counts",
    "HEAD /v1/l/a/counts",
    "GET /v1/l/a/counts?unit=hour&units=3",
    "GET /v1/l/a/counts.csv",
    "GET /v1/%6C/a/counts.svg?theme=dark",
    "GET /v1/l/a/summary",
    "GET /v1/l/a/by/c",
    "GET /v1/l/a/by/c.svg",
    "GET /v1/l/a/week",
    "GET /v1/l/a/week.svg",
    "GET /v1/namespaces/l/a/counts",
    "GET /v1/namespaces/l/a/by/c.csv",
];
/// Reads of `l`, and of another key of it.
const OF_NAMESPACE: [&str; 7] = [
    "GET /v1/l/counts",
    "GET /v1/l/by?subtotal=c",
    "GET /v1/l/top",
    "GET /v1/namespaces/l/top.svg",
    "GET /v1/l/b/counts",
    "GET /v1/l/b/by/c",
    "GET /v1/l/b/week.svg",
];
/// Requests that no share opens, beside the routes that have a row in [`ROUTES`].
const CLOSED: [&str; 11] = [
    "GET /v1/u/a/counts",
    "GET /v1/u/top",
    "GET /v1/u/a/week",
    "GET /v1/compare.svg?key=l/a&key=l/b",
    "GET /v1/l~/a/counts",
    "POST /v1/l/a/counts",
    "GET /v1/l/a/nothing",
    "GET /v1/live?namespace=l",
    "GET /v1/admin/shares",
    "GET /v1/finals",
    "GET /nothing",
];

fn stand() -> Stand {
    let stand = Stand::start(Wanted::default());
    let clicks = r#"[{"keys":{"l":"a","u":"a"},"by":{"c":"US"}},{"keys":{"l":"b"}}]"#;
    let headers = [("Content-Type", "application/json")];
    let counted = stand.ask("POST /v1/increments", &headers, clicks);
    assert_eq!(counted.status, 200, "{counted:?}");
    stand
}

/// Makes a share, and returns its text and its id.
fn share(stand: &Stand, operator: &str, of: serde_json::Value) -> (String, String) {
    let reply = stand.ask_as(operator, "POST /v1/admin/shares", &of.to_string());
    assert_eq!(reply.status, 201, "{reply:?}");
    let made = reply.json();
    let text = |name: &str| made[name].as_str().expect(name).to_owned();
    assert_eq!(text("path"), format!("/shared?share={}", text("share")));
    (text("share"), text("id"))
}

/// Asks as the bearer of a share.
fn ask(stand: &Stand, line: &str, body: &str, share: &str) -> Reply {
    let joined = if line.contains('?') { '&' } else { '?' };
    let headers = [("Content-Type", "application/json")];
    let reply = stand.ask(&format!("{line}{joined}share={share}"), &headers, body);
    assert!(!reply.body.contains(share), "{reply:?}");
    reply
}

/// The one text of a refusal.
fn check_refused(reply: &Reply, line: &str) {
    assert_eq!(reply.status, 403, "{line}: {reply:?}");
    assert!(
        reply.body.contains("This share does not open that"),
        "{line}: {reply:?}"
    );
}

#[test]
fn a_share_opens_the_reads_of_what_it_is_of_and_no_other_route() {
    let stand = stand();
    let operator = stand.operator();
    let (of_key, _) = share(&stand, &operator, json!({"namespace": "l", "key": "a"}));
    let (of_namespace, _) = share(&stand, &operator, json!({"namespace": "l"}));
    for line in OF_KEY {
        for text in [&of_key, &of_namespace] {
            let reply = ask(&stand, line, "", text);
            assert_eq!(reply.status, 200, "{line}: {reply:?}");
            let kept = reply.header("cache-control").unwrap_or_default();
            assert!(kept.starts_with("private"), "{line}: {kept}");
        }
    }
    for line in OF_NAMESPACE {
        check_refused(&ask(&stand, line, "", &of_key), line);
        let reply = ask(&stand, line, "", &of_namespace);
        assert_eq!(reply.status, 200, "{line}: {reply:?}");
    }
    let listed = [&OF_KEY[..], &OF_NAMESPACE].concat();
    let others = ROUTES.iter().map(|(line, _, body)| (*line, *body));
    for (line, body) in others.chain(CLOSED.map(|line| (line, ""))) {
        if listed.contains(&line) {
            continue;
        }
        for text in [&of_key, &of_namespace] {
            check_refused(&ask(&stand, line, body, text), line);
        }
    }
    // No share is a key, and no key beside it opens more.
    let bearer = stand.ask_as(&of_namespace, "GET /v1/l/a/counts", "");
    assert_eq!(bearer.status, 401, "{bearer:?}");
    let beside = format!("GET /v1/u/a/counts?share={of_namespace}");
    check_refused(&stand.ask_as(&operator, &beside, ""), &beside);
    let cookie = format!("__Host-tallyring={operator}");
    check_refused(&stand.ask(&beside, &[("Cookie", &cookie)], ""), &beside);
    let two = format!("GET /v1/l/a/counts?share={of_key}&share={of_namespace}");
    check_refused(&stand.ask(&two, &[], ""), &two);
}

#[test]
fn no_share_opens_what_rules_filtered() {
    let stand = stand();
    let operator = stand.operator();
    let (text, _) = share(&stand, &operator, json!({"namespace": "l"}));
    for line in [
        "GET /v1/l/a/counts?filtered=true",
        "GET /v1/l/a/counts.csv?%66iltered=%74rue",
        "GET /v1/l/a/summary?unit=day&filtered=false",
        "GET /v1/namespaces/l/counts.svg?filtered=&filtered=true",
    ] {
        let reply = ask(&stand, line, "", &text);
        assert_eq!(reply.status, 403, "{line}: {reply:?}");
        assert!(reply.body.contains("leave `filtered` out"), "{reply:?}");
    }
    let left_out = ask(&stand, "GET /v1/l/a/counts?filtered=", "", &text);
    assert_eq!(left_out.status, 200, "{left_out:?}");
    let unreadable = ask(&stand, "GET /v1/l/a/counts?filtered=%", "", &text);
    assert_eq!(unreadable.status, 400, "{unreadable:?}");
}

#[test]
fn shares_outlive_a_restart_with_their_revocations_and_no_catalog_has_them() {
    let stand = stand();
    let share = |body: serde_json::Value| {
        let headers = [("Content-Type", "application/json")];
        let made = stand.ask("POST /v1/admin/shares", &headers, &body.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json();
        ["share", "id"].map(|name| made[name].as_str().expect(name).to_owned())
    };
    let [kept, _] = share(json!({"namespace": "l", "key": "a"}));
    let [revoked, id] = share(json!({"namespace": "l"}));
    let revoking = format!("DELETE /v1/admin/shares/{id}");
    assert_eq!(stand.ask(&revoking, &[], "").status, 200);
    let line = "GET /v1/l/a/counts";
    let check = |stand: &Stand| {
        assert_eq!(ask(stand, line, "", &kept).status, 200);
        check_refused(&ask(stand, line, "", &revoked), line);
        // An older build takes what a catalog has for keys, and closes the store.
        assert_eq!(stand.catalog.keys().expect("read"), []);
        assert!(!stand.catalog.had_keys().expect("read"));
        assert_eq!(stand.ask("GET /v1/u/a/counts", &[], "").status, 200);
    };
    check(&stand);
    // From the log, and then from a manifest.
    let stand = stand.restarted();
    check(&stand);
    stand.service.store().ledger().flush().expect("flushed");
    check(&stand.restarted());
}

#[test]
fn a_share_that_is_not_in_force_opens_nothing() {
    let stand = stand();
    let operator = stand.operator();
    let (revoked, id) = share(
        &stand,
        &operator,
        json!({"namespace": "l", "note": "to a friend"}),
    );
    let elsewhere = Stand::start(Wanted::default());
    let (foreign, _) = share(&elsewhere, &elsewhere.operator(), json!({"namespace": "l"}));
    let forged = format!("{}a", &revoked[..revoked.len() - 1]);
    let forged = if forged == revoked {
        revoked.replace("ts_", "ts_a")
    } else {
        forged
    };
    // A share that was made a month ago.
    let intake = stand.service.store().intake();
    let entry = intake.keys().into_iter().find(|entry| entry.id == id);
    let entry = entry.expect("the share");
    let expired = KeyEntry {
        id: "aaaaaaaa".into(),
        shared: Some(Shared {
            key: None,
            expires_ms: entry.created_ms,
        }),
        ..entry
    };
    intake.put_key(expired).expect("logged");
    let expired = revoked.replace(&id, "aaaaaaaa");
    let line = "GET /v1/l/a/counts";
    assert_eq!(ask(&stand, line, "", &revoked).status, 200);
    let revoking = format!("DELETE /v1/admin/shares/{id}");
    assert_eq!(stand.ask_as(&operator, &revoking, "").status, 200);
    for text in [&*revoked, &foreign, &forged, &expired, "ts_x_y"] {
        check_refused(&ask(&stand, line, "", text), line);
        let page = stand.ask(&format!("GET /shared?share={text}"), &[], "");
        assert_eq!(page.status, 403, "{page:?}");
    }
    let listed = stand.ask_as(&operator, "GET /v1/admin/shares", "").json();
    let shares = listed["shares"].as_array().expect("shares");
    let first = shares.iter().find(|share| share["id"] == json!(id));
    let first = first.expect("the revoked one");
    assert_eq!(
        (&first["note"], &first["key"]),
        (&json!("to a friend"), &json!(null))
    );
    assert!(
        first["revoked_at"].is_string() && shares.len() == 1,
        "the expired one has left: {listed}"
    );
    // Shares and keys are listed and revoked apart.
    let keys = stand.ask_as(&operator, "GET /v1/admin/keys", "").json();
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1), "{keys}");
    let (_, other) = share(&stand, &operator, json!({"namespace": "l"}));
    let as_key = format!("DELETE /v1/admin/keys/{other}");
    assert_eq!(stand.ask_as(&operator, &as_key, "").status, 404);
}

#[test]
fn a_store_without_keys_stays_open_beside_shares() {
    let stand = stand();
    let headers = [("Content-Type", "application/json")];
    let body = r#"{"namespace":"l","key":"a"}"#;
    let made = stand.ask("POST /v1/admin/shares", &headers, body);
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let text = made["share"].as_str().expect("a share");
    for line in [
        "GET /v1/u/a/counts",
        "GET /v1/admin/status",
        "GET /v1/incr?key.l=a",
    ] {
        let open = stand.ask(line, &[], "");
        assert!(open.status < 300, "{line}: {open:?}");
        check_refused(&ask(&stand, line, "", text), line);
    }
    assert_eq!(ask(&stand, "GET /v1/l/a/counts", "", text).status, 200);
}

#[test]
fn wrong_shares_are_refused_by_their_field() {
    let stand = stand();
    let headers = [("Content-Type", "application/json")];
    let long = "x".repeat(201);
    for (body, field) in [
        (json!({"namespace": "x"}), "namespace"),
        (json!({"namespace": "l", "key": ""}), "key"),
        (json!({"namespace": "l", "days": 0}), "days"),
        (json!({"namespace": "l", "days": 3_661}), "days"),
        (json!({"namespace": "l", "note": long}), "note"),
    ] {
        let reply = stand.ask("POST /v1/admin/shares", &headers, &body.to_string());
        assert_eq!(
            (reply.status, &reply.json()["field"]),
            (400, &json!(field)),
            "{body}"
        );
    }
    let shares = stand.ask("GET /v1/admin/shares", &[], "").json();
    assert_eq!(shares, json!({"shares": []}));
}

#[test]
fn the_page_of_a_share_may_be_embedded_and_its_charts_are_open_to_it() {
    let stand = stand();
    let operator = stand.operator();
    let key = "\"><b>&{{body}}\u{202e}\n";
    let (of_key, _) = share(&stand, &operator, json!({"namespace": "l", "key": key}));
    let (of_namespace, _) = share(&stand, &operator, json!({"namespace": "l"}));
    let dark = format!("GET /shared?share={of_key}&theme=dark");
    let dark = stand.ask(&dark, &[], "");
    assert!(
        dark.body.contains("theme=dark&amp;units=30&amp;"),
        "{dark:?}"
    );
    for (text, charts) in [(&of_key, 4), (&of_namespace, 5)] {
        let page = stand.ask(
            &format!("GET /shared?share={text}&unit=hour&units=24"),
            &[],
            "",
        );
        assert_eq!(page.status, 200, "{page:?}");
        let policy = page.header("content-security-policy").unwrap_or_default();
        assert!(
            policy.contains("frame-ancestors *") && !policy.contains("script"),
            "{policy}"
        );
        assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert!(
            !["<b>", "<a ", "\u{202e}", "\n</title>"]
                .iter()
                .any(|part| page.body.contains(part)),
            "{}",
            page.body
        );
        let sources: Vec<&str> = page.body.split("<img src=\"").skip(1).collect();
        assert_eq!(sources.len(), charts, "{}", page.body);
        for source in sources {
            let source = source.split('"').next().expect("an address");
            let source = source.replace("&amp;", "&");
            assert!(source.contains("unit=hour&units=24&"), "{source}");
            let chart = stand.ask(&format!("GET {source}"), &[], "");
            assert_eq!(chart.status, 200, "{source}: {chart:?}");
            assert!(chart.body.contains("<svg"), "{source}");
        }
    }
    let other = stand.ask("GET /", &[], "");
    let policy = other.header("content-security-policy").unwrap_or_default();
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(stand.ask("GET /shared", &[], "").status, 403);
    let style = stand.ask("GET /dashboard/shared.css", &[], "");
    assert_eq!(style.status, 200, "{style:?}");
}
