//! Keys, scopes and namespaces, route by route.

use serde_json::json;

use super::stand::{Stand, Wanted};

const WRITE: &str = "write";
const READ: &str = "read";
const ADMIN: &str = "admin";

/// Every route, the scope it needs, and a body it can be asked with.
pub(crate) const ROUTES: [(&str, &str, &str); 33] = [
    ("GET /v1/incr?key.l=a", WRITE, ""),
    ("POST /v1/incr?key.l=a", WRITE, ""),
    (
        "POST /v1/increments",
        WRITE,
        r#"{"at":1331923247,"keys":{"l":"a"}}"#,
    ),
    ("GET /v1/l/a/counts", READ, ""),
    ("GET /v1/l/a/counts.csv", READ, ""),
    ("GET /v1/l/a/summary", READ, ""),
    ("GET /v1/l/a/by/c", READ, ""),
    ("GET /v1/l/top", READ, ""),
    ("GET /v1/l/keys?prefix=a", READ, ""),
    ("GET /v1/namespaces/l/keys.csv", READ, ""),
    ("GET /v1/l/counts", READ, ""),
    ("GET /v1/l/by?subtotal=c", READ, ""),
    ("GET /v1/l/a/week.svg", READ, ""),
    ("GET /v1/compare?key=l/a&key=u/a", READ, ""),
    ("GET /v1/closed?namespace=l", READ, ""),
    ("GET /v1/namespaces", READ, ""),
    ("GET /v1/namespaces/l/a/counts", READ, ""),
    ("GET /v1/namespaces/l/a/by/c.csv", READ, ""),
    ("GET /v1/namespaces/l/top.svg", READ, ""),
    (
        "POST /v1/query",
        READ,
        r#"{"queries":[{"namespace":"l","key":"a"}]}"#,
    ),
    ("GET /metrics", READ, ""),
    ("GET /api/v1/query?query=tallyring_count", READ, ""),
    ("POST /api/v1/labels", READ, "match[]=tallyring_count"),
    ("GET /v4/bitlinks/bit.ly/a/clicks", READ, ""),
    ("GET /v1/admin/status", ADMIN, ""),
    ("GET /v1/admin/generations", ADMIN, ""),
    ("POST /v1/admin/rebuild", ADMIN, ""),
    ("GET /v1/admin/rebuild", ADMIN, ""),
    ("POST /v1/admin/reload", ADMIN, ""),
    ("GET /v1/admin/keys", ADMIN, ""),
    ("GET /v1/admin/deletes", ADMIN, ""),
    ("POST /v1/users/lookup", ADMIN, r#"{"user":"ann"}"#),
    ("POST /v1/users/erase", ADMIN, r#"{"user":"ann"}"#),
];

#[test]
fn each_route_needs_its_scope_or_that_of_an_operator_and_no_other() {
    let stand = Stand::start(Wanted::default());
    for (line, _, body) in ROUTES {
        let status = stand.ask(line, &[], body).status;
        assert!(status < 300, "{line} without any key configured: {status}");
    }
    let operator = stand.operator();
    let of = |scope: &str| stand.key(&operator, json!({ "scopes": [scope] }));
    let keys = [WRITE, READ, ADMIN].map(|scope| (scope, of(scope)));
    for (line, needed, body) in ROUTES {
        let without = stand.ask(line, &[], body);
        assert_eq!(without.status, 401, "{line}: {without:?}");
        assert_eq!(without.header("www-authenticate"), Some("Bearer"));
        for (scope, key) in &keys {
            let reply = stand.ask_as(key, line, body);
            if [needed, ADMIN].contains(scope) {
                assert!(reply.status < 300, "{line} as {scope}: {reply:?}");
            } else {
                assert_eq!(reply.status, 403, "{line} as {scope}: {reply:?}");
                assert!(reply.body.contains(needed), "{reply:?}");
            }
        }
    }
    for line in [
        "GET /healthz",
        "GET /readyz",
        "GET /openapi.json",
        "GET /docs/",
    ] {
        assert_eq!(stand.ask(line, &[], "").status, 200, "{line}");
    }
    assert_eq!(stand.ask("GET /nothing", &[], "").status, 401);
    assert_eq!(stand.ask_as(&keys[1].1, "GET /nothing", "").status, 404);
    // A browser's wrong address gets a page, which holds no data; an address that is right needs its key.
    let browser = [("Accept", "text/html,*/*;q=0.8")];
    for (line, status) in [
        ("GET /nothing", 404),
        ("GET /v1/l/a/counts", 401),
        ("GET /v4/nothing", 401),
    ] {
        assert_eq!(stand.ask(line, &browser, "").status, status, "{line}");
    }
}

#[test]
fn a_key_that_is_none_of_ours_is_401() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let (id, secret) = operator[3..].split_once('_').unwrap();
    let other = "a".repeat(secret.len());
    for value in [
        "Bearer".to_owned(),
        "Bearer x".to_owned(),
        format!("Bearer tr_{id}_{other}"),
        format!("Bearer tr_aaaaaaaa_{secret}"),
        format!("Bearer tr_{id}_"),
        format!("Basic {operator}"),
        operator.clone(),
    ] {
        let headers = [("Authorization", value.as_str())];
        let reply = stand.ask("GET /v1/admin/status", &headers, "");
        assert_eq!(reply.status, 401, "{value}: {reply:?}");
        assert!(!reply.body.contains(secret), "{reply:?}");
    }
    let with_parameter = format!("GET /v1/admin/status?access_token={operator}");
    assert_eq!(stand.ask(&with_parameter, &[], "").status, 401);
    let headers = [("Authorization", format!("bearer  {operator}"))];
    let headers = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    assert_eq!(stand.ask("GET /v1/admin/status", &headers, "").status, 200);
}

/// Prometheus' API lists and counts what a key is for, here `l`, and nothing else is there for it.
fn check_prometheus(stand: &Stand, key: &str) {
    let namespaces = stand
        .ask_as(key, "GET /api/v1/label/namespace/values", "")
        .json();
    assert_eq!(namespaces["data"], json!(["l"]));
    let sum = "GET /api/v1/query?query=sum+by(namespace)(tallyring_count)";
    let counted = stand.ask_as(key, sum, "").json();
    let result = counted["data"]["result"].as_array().expect("series");
    assert_eq!(result.len(), 1, "{counted}");
    assert_eq!(result[0]["metric"], json!({"namespace": "l"}));
    let of_users = "GET /api/v1/query?query=tallyring_count{namespace=%22u%22,key=%22b%22}";
    let none = stand.ask_as(key, of_users, "").json();
    assert_eq!(none["data"]["result"], json!([]));
    let warning = none["warnings"][0].as_str().expect("a warning");
    assert!(warning.ends_with("namespaces are l"), "{warning}");
}

#[test]
fn a_key_is_held_to_its_namespaces() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let scopes = json!(["write", "read"]);
    let key = stand.key(&operator, json!({"scopes": scopes, "namespaces": ["l"]}));
    let both = r#"[{"at":1331923247,"keys":{"l":"a"}},{"at":1331923247,"keys":{"l":"b","u":"b"}}]"#;
    for (line, body, status) in [
        ("GET /v1/incr?key.l=a", "", 204),
        ("GET /v1/incr?key.l=a&key.u=b", "", 403),
        ("GET /v1/incr?key.%75=b", "", 403),
        ("POST /v1/increments", both, 403),
        (
            "POST /v1/increments",
            r#"{"at":1331923247,"keys":{"l":"a"}}"#,
            200,
        ),
        ("POST /v1/increments?on_error=skip", both, 200),
        ("GET /v1/l/a/counts", "", 200),
        ("GET /v1/u/a/counts", "", 403),
        ("GET /v1/%75/a/summary.csv", "", 403),
        ("GET /v1/u/a/by/c", "", 403),
        ("GET /v1/u/top", "", 403),
        ("GET /v1/u/a/week", "", 403),
        ("GET /v1/compare?key=l/a&key=u/a", "", 403),
        ("GET /v1/u/keys", "", 403),
        ("GET /v1/l/keys", "", 200),
        ("GET /v1/namespaces/u/keys?contains=a", "", 403),
        ("GET /v1/l/top", "", 200),
        ("GET /v1/u/by?subtotal=c", "", 403),
        ("GET /v1/l/by?subtotal=c", "", 200),
        ("GET /v1/u/counts", "", 403),
        ("GET /v1/namespaces/l/a/counts", "", 200),
        ("GET /v1/namespaces/u/a/counts", "", 403),
        ("GET /v1/namespaces/%75/a/summary.csv", "", 403),
        ("GET /v1/namespaces/u/a/by/c", "", 403),
        ("GET /v1/namespaces/u/top", "", 403),
        ("GET /v1/namespaces/u/counts.svg", "", 403),
        ("GET /v1/namespaces/l/top", "", 200),
        ("GET /v1/namespaces", "", 200),
        (
            "POST /v1/query",
            r#"{"queries":[{"namespace":"l","key":"a"}]}"#,
            200,
        ),
        (
            "POST /v1/query",
            r#"{"queries":[{"namespace":"l","key":"a"},{"namespace":"u","key":"a"}]}"#,
            403,
        ),
        ("GET /v4/bitlinks/bit.ly/a/clicks", "", 200),
        ("GET /v3/link/clicks?link=bit.ly/a", "", 200),
        ("GET /v4/groups/g/clicks", "", 403),
        ("GET /metrics", "", 403),
    ] {
        let reply = stand.ask_as(&key, line, body);
        assert_eq!(reply.status, status, "{line} {body}: {reply:?}");
        if status == 403 && line.contains("/v1/") {
            assert_eq!(reply.json()["value"], "u", "{line}: {reply:?}");
        }
    }
    check_prometheus(&stand, &key);
    let enveloped = stand.ask_as(&key, "GET /v3/user/clicks", "").json();
    assert_eq!(enveloped["status_code"], 403, "{enveloped}");
    let refused = stand.ask_as(&key, "POST /v1/increments", both).json();
    assert_eq!(refused["index"], 1, "{refused}");
    let skipped = stand.ask_as(&key, "POST /v1/increments?on_error=skip", both);
    assert_eq!(skipped.json()["rejected"][0]["index"], 1, "{skipped:?}");
}

#[test]
fn a_key_for_users_reads_groups_but_not_which_links_they_have() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let key = stand.key(&operator, json!({"scopes": ["read"], "namespaces": ["u"]}));
    for (path, is_refused) in [
        ("/v4/groups/g/clicks", false),
        ("/v4/groups/g/shorten_counts", false),
        ("/v4/organizations/o/shorten_counts", false),
        ("/v4/groups/g/bitlinks/clicks", true),
        ("/v4/groups/g/links/clicks/top", true),
        ("/v4/bitlinks/bit.ly/a/clicks", true),
    ] {
        let answer = stand.ask_as(&key, &format!("GET {path}"), "");
        assert_eq!(
            answer.status == 403,
            is_refused,
            "{path}: {}",
            answer.status
        );
    }
}

#[test]
fn a_limited_key_is_told_what_became_of_its_own_events_and_nothing_of_others() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let key = |namespaces: &[&str]| {
        let key = json!({"scopes": ["read"], "namespaces": namespaces, "identity": "writer"});
        stand.key(&operator, key)
    };
    let writer = json!({"scopes": ["write"], "identity": "writer"});
    let writer = stand.key(&operator, writer);
    for (line, status) in [
        ("GET /v1/incr?key.l=a&id=id-own", 204),
        ("GET /v1/incr?key.l=a&id=id-own", 204),
        ("GET /v1/incr?key.l=a&key.u=b&id=id-both", 204),
        ("GET /v1/incr?key.u=b&id=id-foreign", 204),
        ("GET /v1/incr?key.l=a&n=0&id=id-refused", 400),
        ("GET /v1/incr?key.l=a&key.u=b&n=0&id=id-refused-both", 400),
        ("GET /v1/incr?id=id-nothing", 400),
        ("GET /v1/incr?key.l=a&key.nope=b&id=id-unknown", 400),
    ] {
        assert_eq!(stand.ask_as(&writer, line, "").status, status, "{line}");
    }
    let items = json!([
        {"keys": {"l": "a"}, "n": 0, "id": "id-item"},
        {"keys": {"l": "a", "u": "b"}, "n": 0, "id": "id-item-both"},
        {"keys": {"l": "a", "nope": "b"}, "id": "id-item-unknown"},
        {"keys": {"u": "b"}, "data": {"keys": {"l": "a"}}, "id": "id-data"},
    ]);
    let batch = "POST /v1/increments?on_error=skip";
    assert_eq!(stand.ask_as(&writer, batch, &items.to_string()).status, 200);
    let open = json!({"scopes": ["read"], "identity": "writer"});
    let open = stand.key(&operator, open);
    let (of_links, of_both, of_domains) = (key(&["l"]), key(&["l", "u"]), key(&["d"]));
    for (id, readers) in [
        ("id-own", vec![&open, &of_links, &of_both]),
        ("id-both", vec![&open, &of_both]),
        ("id-foreign", vec![&open, &of_both]),
        ("id-refused", vec![&open, &of_links, &of_both]),
        ("id-refused-both", vec![&open, &of_both]),
        ("id-item", vec![&open, &of_links, &of_both]),
        ("id-item-both", vec![&open, &of_both]),
        ("id-nothing", vec![&open]),
        ("id-unknown", vec![&open]),
        ("id-item-unknown", vec![&open]),
        ("id-data", vec![&open, &of_both]),
        ("id-never", vec![]),
    ] {
        let line = format!("GET /v1/events/{id}");
        for reader in [&open, &of_links, &of_both, &of_domains] {
            let reply = stand.ask_as(reader, &line, "");
            if readers.contains(&reader) {
                assert_eq!(reply.status, 200, "{id}: {reply:?}");
                continue;
            }
            // As if it had never been seen.
            let never = stand.ask_as(reader, "GET /v1/events/id-never", "");
            assert_eq!(reply.status, 404, "{id}: {reply:?}");
            assert_eq!(reply.body.replace(id, "id-never"), never.body);
        }
    }
    let own = stand.ask_as(&of_links, "GET /v1/events/id-own", "").json();
    assert_eq!(own["counted"]["buckets"][0]["namespace"], "l", "{own}");
    assert_eq!(own["duplicate"]["of"], own["counted"]["position"], "{own}");
}

#[test]
fn an_idempotency_key_is_the_api_keys_own() {
    let stand = Stand::start(Wanted::default());
    let ask = |headers: &[(&str, &str)], body: &str| {
        let reply = stand.ask("POST /v1/increments", headers, body);
        (reply.status, reply.json()["accepted"].as_u64())
    };
    let item = |key: &str| json!({"at": 1_331_923_247, "keys": {"l": key}}).to_string();
    let number = ("Idempotency-Key", "1");
    assert_eq!(ask(&[number], &item("a")), (200, Some(1)));
    assert_eq!(ask(&[number], &item("b")), (422, None));
    let operator = stand.operator();
    for namespaces in [json!(["l"]), json!(["l", "u"])] {
        let key = json!({"scopes": ["write"], "namespaces": namespaces});
        let bearer = format!("Bearer {}", stand.key(&operator, key));
        let headers = [("Authorization", bearer.as_str()), number];
        let own = item(&bearer);
        assert_eq!(ask(&headers, &own), (200, Some(1)));
        assert_eq!(ask(&headers, &own), (200, Some(1)), "a retry");
        assert_eq!(ask(&headers, &item("c")), (422, None));
    }
}

#[test]
fn revoking_takes_effect_at_once_and_never_opens_the_server_again() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let key = stand.key(&operator, json!({"scopes": ["write"]}));
    let id = key.split('_').nth(1).unwrap();
    let line = "GET /v1/incr?key.l=a";
    assert_eq!(stand.ask_as(&key, line, "").status, 204);
    let revoke = format!("DELETE /v1/admin/keys/{id}");
    assert_eq!(stand.ask_as(&key, &revoke, "").status, 403);
    for _ in 0..2 {
        let reply = stand.ask_as(&operator, &revoke, "");
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.json()["revoked_at"].is_string());
    }
    assert_eq!(stand.ask_as(&key, line, "").status, 401);
    let unknown = stand.ask_as(&operator, "DELETE /v1/admin/keys/none", "");
    assert_eq!(unknown.status, 404, "{unknown:?}");
    let listed = stand.ask_as(&operator, "GET /v1/admin/keys", "").json();
    assert_eq!(listed["keys"].as_array().map(Vec::len), Some(2), "{listed}");
    assert!(!listed.to_string().contains("hash"), "{listed}");

    let own = format!(
        "DELETE /v1/admin/keys/{}",
        operator.split('_').nth(1).unwrap()
    );
    assert_eq!(stand.ask_as(&operator, &own, "").status, 200);
    for key in ["", &operator, &key] {
        assert_eq!(stand.ask_as(key, line, "").status, 401, "{key}");
    }
}

#[test]
fn a_key_bounds_what_one_increment_counts() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let most = 9_007_199_254_740_991_u64;
    for (request, max) in [
        (json!({"scopes": ["write"], "max_n": 5}), 5),
        (json!({"scopes": ["write"], "namespaces": ["l"]}), 1_000_000),
        (
            json!({"scopes": ["write"], "namespaces": ["l"], "max_n": 7}),
            7,
        ),
        (json!({"scopes": ["write"]}), most),
    ] {
        let key = stand.key(&operator, request);
        // Each of another counter: none is to overflow.
        let one =
            |n: u64| stand.ask_as(&key, &format!("GET /v1/incr?key.l=one{max}-{n}&n={n}"), "");
        let many = |n: u64| {
            let items =
                json!([{"keys": {"l": "a"}}, {"keys": {"l": format!("many{max}-{n}")}, "n": n}]);
            stand.ask_as(&key, "POST /v1/increments", &items.to_string())
        };
        assert_eq!((one(max).status, many(max).status), (204, 200), "{max}");
        if max == most {
            continue;
        }
        for refused in [one(max + 1), many(max + 1)] {
            assert_eq!(refused.status, 422, "{refused:?}");
            let problem = refused.json();
            assert_eq!(problem["field"], "n", "{problem}");
            assert_eq!(problem["value"], (max + 1).to_string(), "{problem}");
            let detail = problem["detail"].as_str().expect("a detail");
            assert!(detail.contains(&max.to_string()), "{problem}");
        }
    }
}

#[test]
fn a_key_that_cannot_be_made_is_refused_by_name() {
    let stand = Stand::start(Wanted::default());
    let headers = [("Content-Type", "application/json")];
    for (body, named) in [
        ("", "body"),
        ("{}", "body"),
        (r#"{"scopes":[]}"#, "scopes"),
        (r#"{"scopes":["all"]}"#, "body"),
        (r#"{"scopes":["read"],"namespaces":["x"]}"#, "namespaces"),
        (r#"{"scopes":["read"],"limit":0}"#, "limit"),
        (r#"{"scopes":["write"],"max_n":0}"#, "max_n"),
        (r#"{"scopes":["write"],"identity":"a b"}"#, "identity"),
        (r#"{"scopes":["write"],"identity":""}"#, "identity"),
        (r#"{"scopes":["read"],"secret":"mine"}"#, "body"),
    ] {
        let reply = stand.ask("POST /v1/admin/keys", &headers, body);
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        assert_eq!(reply.json()["field"], named, "{body}: {reply:?}");
    }
    // Requests that a page elsewhere can send without asking.
    let reply = stand.ask("POST /v1/admin/keys", &[], r#"{"scopes":["admin"]}"#);
    assert_eq!(reply.status, 415, "{reply:?}");
    assert_eq!(stand.ask("GET /v1/l/a/counts", &[], "").status, 200);
}

#[test]
fn bitly_clients_send_their_key_in_three_ways_and_read_the_counts_of_its_login() {
    let stand = Stand::start(Wanted::default());
    for _ in 0..3 {
        stand.ask("GET /v1/incr?key.l=abc&key.u=jehiah", &[], "");
    }
    let operator = stand.operator();
    let key = stand.key(&operator, json!({"scopes": ["read"], "login": "jehiah"}));
    let v4 = "GET /v4/bitlinks/bit.ly/abc/clicks";
    for value in [format!("Bearer {key}"), key.clone()] {
        let headers = [("Authorization", value.as_str())];
        assert_eq!(stand.ask(v4, &headers, "").status, 200, "{value}");
    }
    let refused = stand.ask(v4, &[], "");
    assert_eq!(refused.status, 401);
    assert_eq!(refused.json()["resource"], "bitlinks", "{refused:?}");
    let clicks = |token: &str| {
        let line = format!("GET /v3/user/clicks?unit=day&login=other&access_token={token}");
        stand.ask(&line, &[], "")
    };
    assert_eq!(clicks(&key).json()["data"]["user_clicks"], 3);
    for (token, status) in [
        ("", "MISSING_ARG_ACCESS_TOKEN"),
        ("x", "INVALID_ARG_ACCESS_TOKEN"),
    ] {
        let reply = clicks(token);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["status_txt"], status, "{reply:?}");
        assert_eq!(reply.json()["data"], json!(null), "{reply:?}");
    }
    // Either may be of what stands between a client and the server.
    let bearer = format!("Bearer {key}");
    for (token, header) in [(key.as_str(), "Bearer other"), ("other", bearer.as_str())] {
        let line = format!("GET /v3/link/clicks?link=bit.ly/abc&access_token={token}");
        let beside = stand.ask(&line, &[("Authorization", header)], "");
        assert_eq!(beside.json()["status_txt"], "OK", "{beside:?}");
    }
    // Where both ways are known, this version's own way counts: a key of `u` alone may not read links.
    let other = stand.key(&operator, json!({"scopes": ["read"], "namespaces": ["u"]}));
    let line = format!("GET /v3/link/clicks?link=bit.ly/abc&access_token={key}");
    let beside = stand.ask(&line, &[("Authorization", &other)], "");
    assert_eq!(beside.json()["status_txt"], "OK", "{beside:?}");
    let xml = stand.ask("GET /v3/link/clicks?link=bit.ly/abc&format=x%6Dl", &[], "");
    assert!(
        xml.body
            .contains("<status_txt>MISSING_ARG_ACCESS_TOKEN</status_txt>"),
        "{xml:?}"
    );
    let limited = stand.key(&operator, json!({"scopes": ["read"], "namespaces": ["u"]}));
    let unserved = stand.ask(&format!("GET /v3/nope?access_token={limited}"), &[], "");
    assert_eq!(unserved.json()["status_txt"], "UNKNOWN", "{unserved:?}");
    let bearer = [("Authorization", limited.as_str())];
    assert_eq!(stand.ask("GET /v4/nope", &bearer, "").status, 404);
    assert_eq!(stand.ask(v4, &bearer, "").status, 403);
    let none = stand.ask("GET /v3/link/clicks?link=bit.ly/abc", &[], "");
    assert_eq!(
        none.json()["status_txt"],
        "MISSING_ARG_ACCESS_TOKEN",
        "{none:?}"
    );
    let unnamed = stand.key(&operator, json!({"scopes": ["read"]}));
    let line = format!("GET /v3/user/clicks?unit=day&access_token={unnamed}");
    let unnamed = stand.ask(&line, &[], "").json();
    assert_eq!(unnamed["data"], json!(null));
    assert_eq!(
        unnamed["status_txt"], "MISSING_ARG_LOGIN",
        "the token was there"
    );
}
