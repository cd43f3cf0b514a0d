//! Ids belong to the identity of the key that sends them.

use serde_json::{Value, json};
use tallyring_api::WriteRules;

use super::http::Reply;
use super::stand::{Stand, Wanted};

/// A click with an id; 1 where it counted, 0 where the id was known.
fn click(stand: &Stand, key: &str, namespace: &str, id: &str) -> usize {
    let line = format!("GET /v1/incr?key.{namespace}=a&id={id}");
    let reply = match key {
        "" => stand.ask(&line, &[], ""),
        key => stand.ask_as(key, &line, ""),
    };
    assert_eq!(reply.status, 204, "{reply:?}");
    usize::from(reply.header("tallyring-duplicate").is_none())
}

fn told(stand: &Stand, key: &str, what: &str) -> Reply {
    stand.ask_as(key, &format!("GET /v1/events/{what}"), "")
}

fn total(stand: &Stand, key: &str, namespace: &str) -> Value {
    let line = format!("GET /v1/{namespace}/a/summary?unit=year&units=-1");
    stand.ask_as(key, &line, "").json()["total"].clone()
}

#[test]
fn one_id_of_two_keys_counts_twice_and_of_one_key_once() {
    let stand = Stand::start(Wanted::default());
    let operator = stand.operator();
    let reader = stand.key(&operator, json!({"scopes": ["read"]}));
    let of = |namespace: &str| {
        let key = json!({"scopes": ["write"], "namespaces": [namespace]});
        stand.key(&operator, key)
    };
    let (links, users) = (of("l"), of("u"));
    for (counted, key, namespace) in [
        (1, &links, "l"),
        (1, &users, "u"),
        (0, &links, "l"),
        (0, &users, "u"),
    ] {
        assert_eq!(click(&stand, key, namespace, "one"), counted, "{namespace}");
    }
    let batch = json!([
        {"keys": {"l": "a"}, "id": "one"},
        {"keys": {"l": "a"}, "id": "two"},
    ]);
    let answer = stand.ask_as(&links, "POST /v1/increments", &batch.to_string());
    let answer = answer.json();
    assert_eq!(
        (&answer["accepted"], &answer["duplicates"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(click(&stand, &users, "u", "two"), 1);
    assert_eq!(total(&stand, &reader, "l"), 2);
    assert_eq!(total(&stand, &reader, "u"), 2);
}

#[test]
fn a_rotated_key_takes_over_the_ids_and_those_from_before_the_first_key_are_known_to_all() {
    let stand = Stand::start(Wanted::default());
    assert_eq!(click(&stand, "", "l", "before"), 1);
    let operator = stand.operator();
    let old = stand.key(&operator, json!({"scopes": ["write"]}));
    let id = old.split('_').nth(1).expect("the id of a key").to_owned();
    assert_eq!(click(&stand, &old, "l", "before"), 0);
    assert_eq!(click(&stand, &old, "l", "one"), 1);
    let new = stand.key(&operator, json!({"scopes": ["write"], "identity": &id}));
    let revoked = format!("DELETE /v1/admin/keys/{id}");
    assert_eq!(stand.ask_as(&operator, &revoked, "").status, 200);
    for known in ["one", "before"] {
        assert_eq!(click(&stand, &new, "l", known), 0, "{known}");
    }
    let other = stand.key(&operator, json!({"scopes": ["write"]}));
    assert_eq!(click(&stand, &other, "l", "before"), 0);
    assert_eq!(click(&stand, &other, "l", "one"), 1);
    let listed = stand.ask_as(&operator, "GET /v1/admin/keys", "").json();
    let identities = listed["keys"].as_array().expect("keys").iter();
    let of_id = identities.filter(|key| key["identity"] == *id);
    assert_eq!(of_id.count(), 2, "{listed}");
}

#[test]
fn a_verdict_is_that_of_the_identity_which_asks() {
    let stand = Stand::start(Wanted::default());
    click(&stand, "", "l", "before");
    let operator = stand.key("", json!({"scopes": ["read", "admin"]}));
    let key = |scope: &str, identity: &str| {
        stand.key(&operator, json!({"scopes": [scope], "identity": identity}))
    };
    let [of_a, of_b] = ["a", "b"].map(|identity| key("write", identity));
    let [reads_a, reads_c] = ["a", "c"].map(|identity| key("read", identity));
    for key in [&of_a, &of_b, &of_a] {
        click(&stand, key, "l", "one");
    }
    click(&stand, &of_b, "l", "two");
    click(&stand, &of_b, "l", "before");
    let own = told(&stand, &reads_a, "one").json();
    assert_eq!(
        (&own["identity"], &own["verdict"]),
        (&json!("a"), &json!("counted"))
    );
    assert_eq!(own["duplicate"]["of"], own["counted"]["position"], "{own}");
    assert_eq!(own.get("others"), None, "{own}");
    for (key, what, status) in [
        (&reads_a, "two", 404),
        (&reads_c, "one", 404),
        (&reads_c, "before", 200),
        (&reads_a, "one?identity=a", 200),
        (&reads_a, "one?identity=b", 403),
        (&operator, "one?identity=b", 200),
        (&operator, "one?identity=c", 404),
        (&operator, "one?identity=a%20b", 400),
    ] {
        let reply = told(&stand, key, what);
        assert_eq!(reply.status, status, "{what}: {reply:?}");
    }
    let all = told(&stand, &operator, "one").json();
    assert_eq!(all["identity"], "a", "{all}");
    let others = all["others"].as_array().expect("others");
    assert_eq!(others.len(), 1, "{all}");
    assert_eq!(others[0]["identity"], "b", "{all}");
    assert_ne!(others[0]["counted"]["position"], all["counted"]["position"]);
    let of_b = told(&stand, &operator, "one?identity=b").json();
    assert_eq!(of_b["counted"], others[0]["counted"]);
    let before = told(&stand, &operator, "before").json();
    let of = &before["counted"]["position"];
    assert_eq!(
        (&before["identity"], &before["duplicate"]["of"]),
        (&json!("b"), of)
    );
    assert_eq!(before.get("others"), None, "{before}");
}

/// A void needs the scope admin, names its key, and takes the id of one identity only.
#[test]
fn a_void_is_of_the_identity_that_is_named_where_several_sent_the_id() {
    let stand = Stand::start(Wanted::default());
    click(&stand, "", "l", "before");
    let operator = stand.key("", json!({"scopes": ["read", "admin"]}));
    let key = |scope: &str, identity: &str| {
        stand.key(&operator, json!({"scopes": [scope], "identity": identity}))
    };
    let [of_a, of_b] = ["a", "b"].map(|identity| key("write", identity));
    for key in [&of_a, &of_b] {
        click(&stand, key, "l", "one");
        click(&stand, key, "l", "before");
    }
    let void = |key: &str, what: &str| {
        stand.ask_as(
            key,
            &format!("POST /v1/events/{what}"),
            r#"{"reason":"it was a test"}"#,
        )
    };
    for key in [&of_a, &key("read", "a"), &key("actions", "a")] {
        assert_eq!(void(key, "one/void").status, 403);
    }
    let unclear = void(&operator, "one/void");
    assert_eq!(
        (unclear.status, &unclear.json()["field"]),
        (422, &json!("identity")),
        "{unclear:?}"
    );
    assert!(unclear.body.contains("a, b"), "{unclear:?}");
    assert_eq!(void(&operator, "one/void?identity=c").status, 404);
    let voided = void(&operator, "one/void?identity=b");
    assert_eq!(voided.status, 201, "{voided:?}");
    let actor = operator.split('_').nth(1).expect("the id of a key");
    let said = voided.json();
    assert_eq!(
        (&said["actor"], &said["voided"][0]["identity"]),
        (&json!(actor), &json!("b")),
        "{said}"
    );
    assert_eq!(void(&operator, "one/void?identity=b").status, 409);
    let all = told(&stand, &operator, "one").json();
    assert_eq!(
        (&all["identity"], all.get("voided")),
        (&json!("a"), None),
        "{all}"
    );
    assert_eq!(all["others"][0]["voided"]["actor"], actor, "{all}");
    // Without another identity that has it, the one that counts need not be named.
    assert_eq!(void(&operator, "one/void?identity=a").status, 201);
    let before = void(&operator, "before/void?identity=a");
    assert_eq!(
        (before.status, before.json()["voided"][0].get("identity")),
        (201, None),
        "{before:?}"
    );
    assert_eq!(void(&operator, "before/void?identity=b").status, 409);
}

/// Where four eyes are needed, a key alone voids nothing, however often it orders, and another key confirms.
#[test]
fn a_void_of_four_eyes_waits_for_another_key() {
    let writes = WriteRules {
        four_eyes: true,
        ..WriteRules::default()
    };
    let stand = Stand::start(Wanted {
        writes,
        ..Wanted::default()
    });
    click(&stand, "", "l", "one");
    let void = "POST /v1/events/one/void";
    let body = |reason: &str| json!({ "reason": reason }).to_string();
    let without_keys = stand.ask(void, &[], &body("x"));
    assert_eq!(without_keys.status, 422, "{without_keys:?}");
    assert!(
        without_keys.body.contains("tallyring key new"),
        "{without_keys:?}"
    );
    let first = stand.key("", json!({"scopes": ["read", "admin"]}));
    let second = stand.key(&first, json!({"scopes": ["admin"]}));
    let [of_first, of_second] = [&first, &second].map(|key| key.split('_').nth(1).expect("an id"));
    let voided = || told(&stand, &first, "one").json()["voided"].clone();
    for reason in ["it was a test", "once more"] {
        let asked = stand.ask_as(&first, void, &body(reason));
        let said = asked.json();
        assert_eq!(
            (asked.status, &said["voided"]),
            (202, &json!([])),
            "{asked:?}"
        );
        assert_eq!(
            said["pending"].as_array().map(Vec::len),
            Some(1),
            "{asked:?}"
        );
        let pending = voided();
        assert_eq!(
            (&pending["pending"], &pending["actor"]),
            (&json!(true), &json!(of_first))
        );
        assert_eq!(pending["reason"], "it was a test", "{pending}");
    }
    let confirmed = stand.ask_as(&second, void, &body("I saw it"));
    assert_eq!(confirmed.status, 201, "{confirmed:?}");
    let said = voided();
    assert_eq!(
        (&said["actor"], &said["asked_by"]),
        (&json!(of_second), &json!(of_first)),
        "{said}"
    );
    assert_eq!(
        (&said["reason"], said.get("pending")),
        (&json!("I saw it"), None),
        "{said}"
    );
    assert_eq!(stand.ask_as(&first, void, &body("again")).status, 409);
}
