//! Questions of what people did, on a terminal: from a server, from its archive, and from the files alone.

use std::fs;

use serde_json::{Value, json};
use tallyring_tests::server::{Server, not_on_a_node, tallyring, tallyring_ok};
use tempfile::TempDir;

const CLOCK: &str = "2026-03-16T12:00:00Z@0";
const CAPS: &str = "\
[caps.ad_day]
entity = \"ad\"
action = \"impression\"
limit = 2
within = \"24h\"
";

/// One impression.
fn seen(number: u32, user: &str, at: &str, ad: &str) -> Value {
    json!({"id": format!("e{number}"), "type": "impression", "user": user, "at": at, "view": "home",
        "entities": {"ad": ad, "campaign": "spring, in all parks"}})
}

/// Ann sees an ad three times, of which one is weeks ago; two others see it once.
fn events() -> Value {
    json!([
        seen(1, "ann", "2026-02-20T08:00:00Z", "42"),
        seen(2, "ann", "2026-03-15T13:00:00Z", "42"),
        seen(3, "ann", "2026-03-16T11:59:00Z", "42"),
        seen(4, "bob", "2026-03-16T11:30:00Z", "42"),
        seen(5, "eve", "2026-03-10T11:00:00Z", "42"),
        seen(6, "eve", "2026-03-16T11:00:00Z", "=43"),
    ])
}

/// Asks with the command, below the data directory and the configuration.
fn ask(data: &str, config: &str, arguments: &[&str]) -> String {
    let place = ["--data", data, "--config", config];
    tallyring_ok(&[&["actions"], arguments, &place[..]].concat())
}

/// Checks the answer to every question; `note` ends what is told of a person.
fn check_answers(data: &str, config: &str, note: &str) {
    let counts = ask(
        data,
        config,
        &[
            "count",
            "ann",
            "bob",
            "--entity",
            "ad=42",
            "--range",
            "1h,24h,30d",
        ],
    );
    let expected = "\
user  action      of     1h  24h  30d
ann   impression  ad 42   1    2    3
bob   impression  ad 42   1    1    1
";
    assert_eq!(counts, expected);
    let verdicts = ask(
        data,
        config,
        &[
            "check",
            "ann",
            "--candidate",
            "ad=42,campaign=7",
            "--candidate",
            "ad=43",
        ],
    );
    let expected = "\
ad=42,campaign=7  no   ad_day: 2 of 2, again at 2026-03-16T13:00:00Z
ad=43             yes
";
    assert_eq!(verdicts, expected);
    let frequency = ask(
        data,
        config,
        &["frequency", "--entity", "ad=42", "--range", "30d"],
    );
    let expected = "\
impression of ad 42, 30d
reach               3
actions             5
average          1.67
times         users   share
    1             2   66.7%  ██████████████████████████████
    2             0    0.0%
    3             1   33.3%  ███████████████
";
    assert_eq!(frequency, expected);
    let person = ask(data, config, &["user", "eve"]);
    let expected = "\
time                  action      view  of                                    insertion  n
2026-03-16T11:00:00Z  impression  home  ad==43 campaign=spring, in all parks             1
2026-03-10T11:00:00Z  impression  home  ad=42 campaign=spring, in all parks              1
";
    assert_eq!(person, [expected, note].concat());
}

#[test]
fn a_server_its_archive_and_the_files_alone_tell_the_same_of_people() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let config = directory.path().join("tallyring.toml");
    fs::write(&config, CAPS).unwrap();
    let (data, config) = (data.to_str().unwrap(), config.to_str().unwrap());
    let server = Server::start(data.as_ref(), &["--clock", CLOCK, "--config", config]);
    let sent = server.post("/v1/events", events().to_string());
    assert_eq!(sent.status, 200, "{sent:?}");
    check_answers(data, config, "");
    server.rebuild();
    let note = "note: actions before 2026-02-01T00:00:00Z may be gone\n";
    check_answers(data, config, note);
    check_what_is_kept(&server);
    let to = server.url();
    let newest = tallyring_ok(&["actions", "user", "ann", "--limit", "1", "--to", to]);
    assert!(
        newest.ends_with("older ones; --limit gives more\n"),
        "{newest}"
    );
    let all = tallyring_ok(&["actions", "user", "ann", "--to", to, "--output", "json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all["actions"].as_array().map(Vec::len), Some(3), "{all}");
    let rows = tallyring_ok(&["actions", "user", "eve", "--to", to, "--output", "csv"]);
    let expected = "\
at,by_hour,type,view,entities,insertion,n
2026-03-16T11:00:00Z,,impression,home,\"ad==43,campaign=spring, in all parks\",,1
2026-03-10T11:00:00Z,,impression,home,\"ad=42,campaign=spring, in all parks\",,1
";
    assert_eq!(rows, expected);
    let rows = [
        "actions",
        "count",
        "eve",
        "--entity",
        "ad==43",
        "--view",
        "home,x",
        "--by-view",
        "--to",
        to,
        "--output",
        "csv",
    ];
    let expected = "\
user,range,action,view,entity,key,count
eve,7d,impression,home,ad,'=43,1
eve,7d,impression,x,ad,'=43,0
";
    assert_eq!(tallyring_ok(&rows), expected);
    if not_on_a_node("a store of several nodes is not told of without a server") {
        return;
    }
    // The files alone are read at the present time, at which these actions are old.
    server.terminate();
    let person = ask(data, config, &["user", "bob"]);
    assert!(
        person.contains("2026-03-16T11:30:00Z  impression"),
        "{person}"
    );
    let nobody = ask(data, config, &["user", "nobody"]);
    assert_eq!(nobody, "nothing is kept of nobody\n");
}

/// A rebuild left out what happened before February. A question that reaches back to it is refused, whose answer would
/// say less than there was.
fn check_what_is_kept(server: &Server) {
    let kept = "2026-02-01T00:00:00Z";
    let query = json!({"users": ["ann"], "ranges": ["1h", "7d"], "action": ["impression"], "entity": {"ad": ["42"]}});
    let check = json!({"user": "ann", "candidates": [{"ad": "42"}]});
    let frequency = json!({"entity": {"ad": "42"}, "action": "impression", "range": "24h"});
    for (path, question, field, days) in [
        ("/v1/actions/query", query, "ranges", 7),
        ("/v1/actions/check", check, "at", 1),
        ("/v1/actions/frequency", frequency, "range", 1),
    ] {
        let first = format!("2026-02-{:02}T00:00:00Z", 1 + days);
        let before = format!("2026-02-{days:02}T23:59:58Z");
        for (at, status) in [(first, 200), (before, 422)] {
            let mut question = question.clone();
            question["at"] = at.as_str().into();
            let answer = server.post(path, question.to_string());
            assert_eq!(answer.status, status, "{path} at {at}: {answer:?}");
            if status == 422 {
                assert_eq!(answer.json()["field"], field, "{answer:?}");
                assert!(answer.text.contains(kept), "{answer:?}");
            }
        }
    }
}

#[test]
fn wrong_questions_of_people_name_the_option() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().to_str().unwrap();
    let _server = Server::start(directory.path(), &[]);
    for (arguments, option) in [
        (
            &["count", "ann", "--entity", "shop=1"][..],
            "`--entity.shop` ",
        ),
        (
            &["count", "ann", "--entity", "ad=1", "--range", "1y"],
            "`--range` ",
        ),
        (
            &["count", "ann", "--entity", "ad=1", "--action", "sale"],
            "`--action` ",
        ),
        (
            &["frequency", "--entity", "ad=1", "--range", "90d"],
            "`--range` ",
        ),
        (
            &["frequency", "--entity", "ad=1", "--at", "soon"],
            "`--at` ",
        ),
        (&["check", "ann", "--candidate", "ad=1"], "`--cap` "),
        (&["user", "ann", "--limit", "0"], "`--limit` "),
        (&["user", ""], "`USER` "),
    ] {
        let refused = tallyring(&[&["actions"], arguments, &["--data", data]].concat());
        assert_eq!(refused.code, 2, "{arguments:?}: {refused:?}");
        let said = format!("error: {option}");
        assert!(
            refused.stderr.starts_with(&said),
            "{arguments:?}: {refused:?}"
        );
    }
    let picture = tallyring(&["actions", "user", "ann", "--data", data, "--output", "svg"]);
    assert_eq!(picture.code, 2, "{picture:?}");
}
