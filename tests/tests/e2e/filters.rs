//! Filtered events: not counted, known by their ids, and each with a verdict that names the rule.

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server};

const CLOCK: &str = "2026-03-16T13:00:03Z@0";
const RULES: &str = "[filters.bots]\nevents = [\"click\"]\nfield = \"by.device\"\nvalues = [\"bot\", \"crawler\"]\n\
    [filters.own]\nfield = \"user\"\nvalues = [\"me\"]\n";
/// They count what those filter, and filter what those count.
const OTHER_RULES: &str =
    "[filters.phones]\nevents = [\"click\"]\nfield = \"by.device\"\nvalues = [\"mobile\"]\n";

fn event(id: &str, device: &str, user: &str) -> Value {
    json!({"id": id, "type": "click", "at": "2026-03-16T12:59:58Z", "entities": {"ad": "42"},
        "by": {"device": device}, "user": user})
}

fn verdict(client: &Client, id: &str) -> Value {
    client.get_json(&format!("/v1/events/{id}"))
}

/// Filtered events stand beside the counted ones, by bucket and by rule.
fn check_gross(server: &Server) {
    let gross = server.get_json("/v1/ad_click/42/counts?unit=hour&units=2&filtered=true");
    let filtered = json!({"total": 3, "gross": 5, "counts": [3, 0],
        "rules": [{"rule": "bots", "count": 2}, {"rule": "own", "count": 1}]});
    assert_eq!(
        (&gross["total"], &gross["filtered"]),
        (&json!(2), &filtered)
    );
    let of_all = server.get_json("/v1/ad_click/counts?unit=hour&units=2&filtered=true");
    let filtered = json!({"total": 3, "gross": 5, "counts": [3, 0]});
    assert_eq!(of_all["filtered"], filtered);
    let csv = server.get("/v1/ad_click/42/counts.csv?unit=hour&units=2&filtered=true");
    let rows = "start,count,filtered,gross\r\n2026-03-16T12:00:00+00:00,2,3,5\r\n2026-03-16T13:00:00+00:00,0,0,0\r\n";
    assert_eq!(csv.text.replace("\r\n", "\n"), rows.replace("\r\n", "\n"));
    let by_rule = server.get_json("/v1/ad_click~/42/by/rule");
    assert_eq!(by_rule["values"][0], json!({"value": "bots", "count": 2}));
    assert_eq!(
        server.get_json("/v1/ad_click~/top")["keys"],
        json!([{"key": "42", "count": 3}])
    );
}

#[test]
fn an_event_that_a_rule_catches_is_logged_and_told_of_but_never_counted() {
    let data = tempfile::tempdir().expect("a directory");
    let config = data.path().join("c.toml");
    std::fs::write(&config, RULES).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let directory = data.path().join("data");
    let start = || Server::start(&directory, &["--clock", CLOCK, "--config", config]);
    let server = start();
    let batch = json!([
        event("a", "mobile", "u"),
        event("b", "bot", "u"),
        event("c", "mobile", "me"),
    ]);
    let headers = [("idempotency-key", "k")];
    let counted = json!({"accepted": 1, "duplicates": 0, "late": 0, "filtered": 2});
    for _ in 0..2 {
        let answer = server.post_with("/v1/events", &headers, batch.to_string().as_bytes());
        assert_eq!((answer.status, answer.json()), (200, counted.clone()));
    }
    // The first wins: what was filtered is not counted under a better description.
    let again = server.post("/v1/events", event("b", "mobile", "u").to_string());
    assert_eq!(
        again.json(),
        json!({"accepted": 0, "duplicates": 1, "late": 0})
    );
    let numbered = |sequence: u64, device: &str| {
        let event = json!({"producer": "p", "sequence": sequence, "type": "click", "entities": {"ad": "42"},
            "at": "2026-03-16T12:59:58Z", "by": {"device": device}});
        server.post("/v1/events", event.to_string()).json()
    };
    assert_eq!(numbered(0, "crawler")["filtered"], 1);
    assert_eq!(numbered(0, "crawler")["duplicates"], 1);
    assert_eq!(numbered(1, "mobile")["accepted"], 1);
    let check = |server: &Server| {
        assert_eq!(server.get_json("/v1/ad_click/42/summary")["total"], 2);
        check_gross(server);
        let uniques = server.get_json("/v1/ad_click/42/uniques?unit=hour&units=2");
        assert_eq!(uniques["estimate"], 1, "filtered users are not estimated");
        assert_eq!(verdict(server, "a")["verdict"], "counted");
        for (id, rule) in [("b", "bots"), ("c", "own")] {
            let verdict = verdict(server, id);
            let found = (&verdict["verdict"], &verdict["filtered"]["rule"]);
            assert_eq!(found, (&json!("filtered"), &json!(rule)), "{verdict}");
        }
        let repeated = server.post_with("/v1/events", &headers, batch.to_string().as_bytes());
        assert_eq!(repeated.json(), counted);
    };
    check(&server);
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("tallyring_filtered_total 7"), "{metrics}");
    server.kill9();
    let server = start();
    check(&server);
    server.terminate();
    check(&start());
}

#[test]
fn rules_that_change_over_a_kill_judge_what_comes_and_leave_what_was_counted() {
    let data = tempfile::tempdir().expect("a directory");
    let config = data.path().join("c.toml");
    let directory = data.path().join("data");
    let start = |rules: &str| {
        std::fs::write(&config, rules).expect("write the configuration");
        let config = config.to_str().expect("a path of text");
        Server::start(&directory, &["--clock", CLOCK, "--config", config])
    };
    let send = |server: &Server, id: &str, device: &str| {
        let event = event(id, device, "u").to_string();
        server.post("/v1/events", event).json()
    };
    let check = |server: &Server, total: u64, expected: &[(&str, &str, Value)]| {
        assert_eq!(server.get_json("/v1/ad_click/42/summary")["total"], total);
        for (id, told, rule) in expected {
            let verdict = verdict(server, id);
            let found = (&verdict["verdict"], &verdict["filtered"]["rule"]);
            assert_eq!(found, (&json!(told), rule), "{id}: {verdict}");
        }
    };
    let counted = json!({"accepted": 1, "duplicates": 0, "late": 0});
    let filtered = json!({"accepted": 0, "duplicates": 0, "late": 0, "filtered": 1});
    let duplicate = json!({"accepted": 0, "duplicates": 1, "late": 0});

    let mut server = start(RULES);
    assert_eq!(send(&server, "phone-before", "mobile"), counted);
    assert_eq!(send(&server, "bot-before", "bot"), filtered);
    let mut expected = vec![
        ("phone-before", "counted", Value::Null),
        ("bot-before", "filtered", json!("bots")),
    ];
    check(&server, 1, &expected);
    server.kill9();

    server = start(OTHER_RULES);
    check(&server, 1, &expected);
    assert_eq!(send(&server, "phone-after", "mobile"), filtered);
    assert_eq!(send(&server, "bot-after", "bot"), counted);
    for id in ["phone-before", "bot-before"] {
        // Not what the rule of today would make of it.
        assert_eq!(send(&server, id, "bot"), duplicate, "{id}");
    }
    expected.push(("phone-after", "filtered", json!("phones")));
    expected.push(("bot-after", "counted", Value::Null));
    check(&server, 2, &expected);
    // A replay keeps each verdict, whichever rules are declared by then.
    for rules in [OTHER_RULES, RULES] {
        server.kill9();
        server = start(rules);
        check(&server, 2, &expected);
    }
}
