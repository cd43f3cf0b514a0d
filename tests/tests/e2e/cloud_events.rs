//! CloudEvents whose data is no event of ours, mapped by rules of the configuration.

use std::fs;

use serde_json::{Value, json};
use tallyring_tests::server::{Server, tallyring, tallyring_ok};
use tempfile::TempDir;

use crate::stored::text;

const STRUCTURED: (&str, &str) = ("content-type", "application/cloudevents+json");
const BATCH: (&str, &str) = ("content-type", "application/cloudevents-batch+json");

const RULES: &str = r#"
[[cloudevents]]
type = "com.example.ad.clicked"
event = "click"
[cloudevents.map]
"entities.ad" = "subject"
"entities.campaign" = "data.campaign.id"
"by.country" = "data.geo.country"
"by.device" = "=mobile"
user = "data.user.id"
view = "data.page"
n = "data.quantity"

[[cloudevents]]
type = "com.example.ad.shown"
event = "impression"
[cloudevents.map]
entities.ad = "adid"
at = "data.when"

[[cloudevents]]
type = "com.example.bare"
event = "click"
map = { entities.ad = "subject" }
"#;

/// A server with these rules, and its directory.
fn server(more: &str) -> (TempDir, Server) {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rules.toml");
    // Settings stand before the first section.
    fs::write(&config, format!("{more}{RULES}")).expect("write the configuration");
    let data = directory.path().join("data");
    let arguments = [
        "--clock",
        "2026-03-16T13:00:00Z@0",
        "--config",
        text(&config),
    ];
    let server = Server::start(&data, &arguments);
    (directory, server)
}

fn clicked(id: &str) -> Value {
    json!({
        "specversion": "1.0", "id": id, "source": "/shop", "type": "com.example.ad.clicked",
        "time": "2026-03-16T12:59:00Z", "subject": "42",
        "data": {
            "campaign": {"id": 7, "name": "spring"}, "geo": {"country": "DE"}, "user": {"id": true}, "page": "home",
            "quantity": "3.0",
        },
    })
}

fn post(server: &Server, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let answer = server.post_with("/v1/events", headers, body.to_string().as_bytes());
    (answer.status, answer.json())
}

#[track_caller]
fn check_accepted(answer: (u16, Value), accepted: u64, duplicates: u64) {
    let (status, told) = answer;
    let found = (status, &told["accepted"], &told["duplicates"]);
    assert_eq!(found, (200, &json!(accepted), &json!(duplicates)), "{told}");
}

fn total(server: &Server, path: &str) -> Value {
    server.get_json(&format!("/v1/{path}?unit=day&units=1"))["total"].clone()
}

#[test]
fn cloud_events_with_other_data_are_mapped_in_every_mode() {
    let (_directory, server) = server("");
    check_accepted(post(&server, &[STRUCTURED], &clicked("s")), 1, 0);
    let both = json!([clicked("b"), clicked("s")]);
    check_accepted(post(&server, &[BATCH], &both), 1, 1);
    let binary = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "bin"),
        ("ce-source", "/shop"),
        ("ce-type", "com.example.ad.clicked"),
        ("ce-time", "2026-03-16T12:58:00Z"),
        ("ce-subject", "4%32"),
    ];
    check_accepted(post(&server, &binary, &clicked("bin")["data"]), 1, 0);
    check_accepted(post(&server, &binary, &clicked("bin")["data"]), 0, 1);
    assert_eq!(total(&server, "ad_click/42/summary"), 9);
    assert_eq!(total(&server, "campaign_click/7/summary"), 9);
    let by = |subtotal: &str| {
        let path = format!("/v1/ad_click/42/by/{subtotal}?unit=day&units=1");
        server.get_json(&path)["values"].clone()
    };
    assert_eq!(by("country"), json!([{"value": "DE", "count": 9}]));
    assert_eq!(by("device"), json!([{"value": "mobile", "count": 9}]));
    let users = server.get_json("/v1/ad_click/42/uniques?unit=day&units=1");
    assert_eq!(users["estimate"], 1);
    let verdict = server.get_json("/v1/events/bin?source=/shop");
    let counted = &verdict["counted"];
    let found = (&counted["type"], &counted["at"], &counted["n"]);
    let at = json!("2026-03-16T12:58:00Z");
    assert_eq!(found, (&json!("click"), &at, &json!(3)), "{verdict}");

    // A mapped time wins over the event's, and a number may be one.
    let shown = json!({
        "specversion": "1.0", "id": "v", "source": "/shop", "type": "com.example.ad.shown", "adid": 42,
        "time": "2026-03-16T01:00:00Z", "data": {"when": 1_773_665_700},
    });
    check_accepted(post(&server, &[STRUCTURED], &shown), 1, 0);
    assert_eq!(total(&server, "ad_impression/42/summary"), 1);

    // A rule that reads no data takes any, also none.
    let mut bare = json!({
        "specversion": "1.0", "id": "d", "source": "/shop", "type": "com.example.bare", "subject": "9",
        "data_base64": "AA==",
    });
    check_accepted(post(&server, &[STRUCTURED], &bare), 1, 0);
    bare["id"] = json!("e");
    bare["data"] = json!("a text");
    check_accepted(post(&server, &[STRUCTURED], &bare), 1, 0);
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "f"),
        ("ce-source", "/shop"),
        ("ce-type", "com.example.bare"),
        ("ce-subject", "9"),
    ];
    for (body, accepted, duplicates) in [(&b""[..], 1, 0), (b"<xml/>", 0, 1)] {
        let answer = server.post_with("/v1/events", &headers, body);
        check_accepted((answer.status, answer.json()), accepted, duplicates);
    }
    assert_eq!(total(&server, "ad_click/9/summary"), 3);
}

#[test]
fn a_type_without_a_rule_is_read_as_before_or_refused_with_the_types_that_have_one() {
    let (_directory, server) = server("");
    let mut plain = json!({
        "specversion": "1.0", "id": "p", "source": "/shop", "type": "org.other.click",
        "data": {"entities": {"ad": "1"}},
    });
    check_accepted(post(&server, &[STRUCTURED], &plain), 1, 0);
    plain["type"] = json!("com.example.ad.opened");
    let (status, problem) = post(&server, &[STRUCTURED], &plain);
    assert_eq!(
        (status, &problem["field"]),
        (400, &json!("type")),
        "{problem}"
    );
    let detail = problem["detail"].as_str().expect("a detail");
    for named in [
        "com.example.ad.opened",
        "com.example.ad.clicked, com.example.ad.shown, com.example.bare",
        "click, impression",
    ] {
        assert!(detail.contains(named), "{detail}");
    }
}

#[test]
fn what_is_missing_or_malformed_is_told_by_its_path() {
    let (_directory, server) = server("");
    let path = "data.campaign.id";
    for (place, value, field, named) in [
        ("/subject", json!(""), "subject", "makes entities.ad of it"),
        ("/subject", json!(null), "subject", "missing or empty"),
        ("/data", json!(null), path, "makes entities.campaign of it"),
        ("/data", json!([1]), path, "missing or empty"),
        ("/data/campaign", json!({}), path, "missing or empty"),
        ("/data/campaign/id", json!({}), path, "a field inside it"),
        (
            "/data/quantity",
            json!(1.5),
            "data.quantity",
            "whole number",
        ),
        ("/data/quantity", json!(null), "data.quantity", "n of it"),
        ("/data/user/id", json!([]), "data.user.id", "a list"),
    ] {
        let mut wrong = clicked("w");
        *wrong.pointer_mut(place).expect(place) = value;
        let (status, problem) = post(&server, &[STRUCTURED], &wrong);
        let found = (status, &problem["field"]);
        assert_eq!(found, (400, &json!(field)), "{problem}");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(named), "{field}: {detail}");
        assert!(detail.contains("com.example.ad.clicked"), "{detail}");
    }
    let mut long = clicked("w");
    long["data"]["page"] = json!("x".repeat(65));
    let mut bytes = clicked("w");
    bytes["data_base64"] = json!("AA==");
    bytes.as_object_mut().expect("an object").remove("data");
    for (wrong, field) in [(long, "view"), (bytes, "data_base64")] {
        let (status, problem) = post(&server, &[STRUCTURED], &wrong);
        let found = (status, &problem["field"]);
        assert_eq!(found, (400, &json!(field)), "{problem}");
    }
    let told = server.get_json("/v1/events/w?source=/shop");
    assert_eq!(told["verdict"], "refused", "{told}");
}

#[test]
fn a_batch_names_its_wrong_item_or_counts_the_others() {
    let (_directory, server) = server("");
    let mut wrong = clicked("x");
    wrong["subject"] = json!("");
    let both = json!([clicked("g"), wrong]);
    let (status, problem) = post(&server, &[BATCH], &both);
    assert_eq!((status, &problem["index"]), (400, &json!(1)), "{problem}");
    let skipped = server.post_with(
        "/v1/events?on_error=skip",
        &[BATCH],
        both.to_string().as_bytes(),
    );
    assert_eq!(skipped.json()["accepted"], 1, "{skipped:?}");
    assert_eq!(
        skipped.json()["rejected"][0]["field"],
        "subject",
        "{skipped:?}"
    );
}

#[test]
fn an_event_without_a_value_counts_and_a_wrong_value_is_set_aside() {
    let (_directory, server) = server("");
    let mut without = clicked("y");
    without["data"]["geo"] = json!({});
    without["data"]["user"] = json!(null);
    without["data"]["page"] = json!("");
    check_accepted(post(&server, &[STRUCTURED], &without), 1, 0);
    without["id"] = json!("z");
    without["data"]["geo"] = json!({"country": ["DE"]});
    let (status, told) = post(&server, &[STRUCTURED], &without);
    assert_eq!((status, &told["set_aside"]), (200, &json!(1)), "{told}");
    let countries = server.get_json("/v1/ad_click/42/by/country?unit=day&units=1");
    let expected = json!([{"value": "-", "count": 6}]);
    assert_eq!(countries["values"], expected);
}

#[test]
fn a_strict_server_refuses_a_wrong_value_and_a_retry_differs_by_what_a_rule_reads() {
    let (_directory, server) = server("strict = true\n");
    let mut wrong = clicked("w");
    wrong["data"]["geo"]["country"] = json!(["DE"]);
    let (status, problem) = post(&server, &[STRUCTURED], &wrong);
    assert_eq!(
        (status, &problem["field"]),
        (400, &json!("by.country")),
        "{problem}"
    );
    let headers = |subject: &'static str, trace: &'static str| {
        [
            ("idempotency-key", "k"),
            ("ce-specversion", "1.0"),
            ("ce-id", "i"),
            ("ce-source", "/shop"),
            ("ce-type", "com.example.ad.clicked"),
            ("ce-subject", subject),
            ("ce-traceparent", trace),
        ]
    };
    let data = clicked("i")["data"].clone();
    check_accepted(post(&server, &headers("1", "a"), &data), 1, 0);
    check_accepted(post(&server, &headers("1", "b"), &data), 1, 0);
    assert_eq!(post(&server, &headers("2", "a"), &data).0, 422);
    assert_eq!(total(&server, "ad_click/1/summary"), 3);
}

#[test]
fn the_check_of_a_configuration_explains_rules_and_names_a_wrong_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("c.toml");
    fs::write(&file, RULES).expect("write it");
    let explained = tallyring_ok(&["config", "check", text(&file)]);
    let line = "counts CloudEvents of type com.example.ad.clicked as click: entities.ad = subject, \
                entities.campaign = data.campaign.id, by.country = data.geo.country, by.device = =mobile";
    assert!(explained.contains(line), "{explained}");
    let json = tallyring_ok(&["config", "check", text(&file), "--output", "json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let bare =
        json!({"type": "com.example.bare", "event": "click", "map": {"entities.ad": "subject"}});
    assert_eq!(json["cloudevents"][2], bare);
    fs::write(&file, RULES.replace("entities.campaign", "entities.pin")).expect("write it");
    let refused = tallyring(&["config", "check", text(&file)]);
    assert_eq!(refused.code, 2, "{refused:?}");
    for named in [
        "cloudevents 1",
        "com.example.ad.clicked",
        "map.entities.pin",
        "ad_group",
        "got `pin`",
    ] {
        assert!(refused.stderr.contains(named), "{named}: {refused:?}");
    }
}
