//! Rules that are tried on closed days, applied to them and taken back, by the real program.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Finished, Server, tallyring, tallyring_ok, wait_until};

use crate::final_numbers::{BOTS, reconcile, start, total};
use crate::stored::text;

const DAY: &str = "2026-03-10";

fn click(id: &str, at: &str, device: &str) -> Value {
    json!({"id": id, "type": "click", "at": at, "entities": {"ad": "42"}, "by": {"device": device},
        "evidence": {"ua": format!("{device}/1.0")}})
}

fn send(server: &Server, clicks: &[Value]) {
    let answer = server.post("/v1/events", json!(clicks).to_string());
    assert_eq!(answer.json()["accepted"], clicks.len(), "{}", answer.text);
}

/// Three hours of clicks of bots, before anybody thought of a rule for them, and one of a phone in each.
fn three_hours(directory: &Path, rules: &str) {
    let server = start(directory, "2026-03-10T15:00:01Z", rules);
    for hour in 12..15 {
        let at = format!("2026-03-10T{hour}:30:00Z");
        let devices = ["bot", "phone", "bot"].iter().enumerate();
        let clicks = devices.map(|(n, device)| click(&format!("e{hour}{n}"), &at, device));
        send(&server, &clicks.collect::<Vec<_>>());
    }
    server.terminate();
}

fn command(directory: &Path, arguments: &[&str]) -> Vec<String> {
    let data = directory.join("data");
    let arguments = [arguments, &["--data", text(&data)]].concat();
    arguments
        .iter()
        .map(|&argument| argument.to_owned())
        .collect()
}

fn run_ok(directory: &Path, arguments: &[&str]) -> String {
    let command = command(directory, arguments);
    tallyring_ok(&command.iter().map(String::as_str).collect::<Vec<_>>())
}

fn run(directory: &Path, arguments: &[&str]) -> Finished {
    let command = command(directory, arguments);
    tallyring(&command.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The counts by hour of a version of the final books.
fn final_counts(client: &Client, version: u32) -> Value {
    let range = "from=2026-03-10T12:00:00Z&to=2026-03-10T14:59:59Z&unit=hour";
    let path = format!("/v1/ad_click/42/counts?{range}&final={version}");
    client.get_json(&path)["counts"].clone()
}

#[test]
fn three_hours_without_a_rule_are_tried_cleaned_up_and_restored() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    three_hours(directory, "");
    let server = start(directory, "2026-03-13T13:00:01Z", "");
    server.client().rebuild();
    let first = reconcile(server.client(), &json!({ "day": DAY }));
    assert_eq!(first["types"]["click"]["after"], 9);

    let rules = directory.join("rules.toml");
    fs::write(&rules, BOTS).expect("write the rules");
    let what_if = ["reconcile", DAY, "--rules", text(&rules), "--by", "ad"];
    let through = run_ok(directory, &what_if);
    for part in [
        "click                           9\n  filtered_by:bots                             -6\n",
        "    42 ",
        "  filtered, general             6\n    bots                        6\n",
        "nothing was published: this would be version 2 of 2026-03-10",
        "put them into the configuration, run `tallyring reload`, and then `tallyring reconcile 2026-03-10`",
        "\nthese rules differ from those in force: rules +bots\n",
    ] {
        assert!(through.contains(part), "{part}: {through}");
    }
    assert_eq!(total(server.client()), 9, "it only tells");
    let told = server.client().get_json("/v1/admin/reconcile");
    assert_eq!(
        (&told["what_if"], &told["published"]),
        (&json!(true), &json!(false))
    );
    let sums = &told["by"]["types"]["click"]["filtered_by:bots"];
    assert_eq!(sums["keys"], json!([{"key": "42", "n": -6}]), "{told}");
    server.terminate();
    assert_eq!(
        run_ok(directory, &what_if),
        through,
        "the same without a server"
    );

    let server = start(directory, "2026-03-13T14:00:01Z", BOTS);
    assert_eq!(total(server.client()), 9, "the rule is for new clicks");
    let second = reconcile(server.client(), &json!({ "day": DAY }));
    assert_eq!(
        second["types"]["click"]["causes"],
        json!({"filtered_by:bots": -6})
    );
    assert_eq!(total(server.client()), 3);
    server.terminate();
    let server = start(directory, "2026-03-13T15:00:01Z", "");
    let third = reconcile(server.client(), &json!({"from": DAY, "to": DAY}));
    assert_eq!(
        third["types"]["click"]["causes"],
        json!({"restored:bots": 6})
    );
    assert_eq!(
        (total(server.client()), &third["version"]),
        (json!(9), &json!(3))
    );
    let [v1, v2, v3] = [1, 2, 3].map(|version| final_counts(server.client(), version));
    assert_eq!(v1, v3, "the books of before");
    assert_ne!(v1, v2);
    server.terminate();
    run_ok(directory, &["verify", "--deep"]);
}

/// A preview by a file with another rule names it, too, and says that it needs a reload.
fn names_other_rules(directory: &Path, config: &str, new: &Path) {
    let other = directory.join("other.toml");
    fs::write(&other, format!("{config}{BOTS}")).expect("write the rules");
    let with_others = [
        "lists",
        "put",
        "crawlers",
        text(new),
        "--config",
        text(&other),
    ];
    let with_others = [&with_others[..], &["--preview", DAY, "--output", "json"]].concat();
    let told: Value = serde_json::from_str(&run_ok(directory, &with_others)).expect("JSON");
    assert_eq!(told["differs"]["rules"]["added"], json!(["bots"]), "{told}");
    assert_eq!(
        told["differs"]["lists"]["changed"],
        json!(["crawlers"]),
        "{told}"
    );
    let apply = told["apply"].as_str().expect("a way");
    assert!(apply.contains("`tallyring reload` first"), "{apply}");
}

#[test]
fn a_list_is_tried_on_a_closed_day_before_it_is_put_in_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let config = "evidence = true\n[lists.crawlers]\nfile = \"crawlers.txt\"\nmatch = \"user_agent\"\n\
        [filters.crawlers]\nlist = \"crawlers\"\n";
    let (old, new) = (directory.join("crawlers.txt"), directory.join("new.txt"));
    fs::write(&old, "slurp\n").expect("write the list");
    fs::write(&new, "slurp\n^bot\n").expect("write the list");
    three_hours(directory, config);
    let server = start(directory, "2026-03-13T13:00:01Z", config);
    server.client().rebuild();
    let file = directory.join("c.toml");
    let put = [
        "lists",
        "put",
        "crawlers",
        text(&new),
        "--config",
        text(&file),
    ];
    let preview = [&put[..], &["--preview", DAY, "--by", "ad"]].concat();
    let through = run_ok(directory, &preview);
    for part in [
        "filtered_by:crawlers",
        "    42 ",
        "-6",
        "to apply these rules, run `tallyring lists put crawlers",
        "\nthese rules differ from those in force: lists ~crawlers\n",
    ] {
        assert!(through.contains(part), "{part}: {through}");
    }
    names_other_rules(directory, config, &new);
    assert_eq!(fs::read_to_string(&old).expect("the list"), "slurp\n");
    assert_eq!(total(server.client()), 9);
    tallyring_ok(&put);
    let lists = || server.client().status()["rules"]["lists"][0]["entries"].clone();
    wait_until("the list is in force", || lists() == 2);
    let trail = run_ok(directory, &["audit"]);
    assert!(trail.contains("  schema    lists ~crawlers\n"), "{trail}");
    let job = reconcile(server.client(), &json!({ "day": DAY }));
    assert_eq!(
        job["types"]["click"]["causes"],
        json!({"filtered_by:crawlers": -6})
    );
    server.terminate();
    let nothing = run_ok(directory, &preview);
    assert!(
        nothing.contains("version 1 of 2026-03-10 stands")
            && nothing.ends_with("these rules are in force\n"),
        "{nothing}"
    );
    fs::write(&new, "(\n").expect("write the list");
    let refused = run(directory, &preview);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("line 1"), "{refused:?}");
}

#[test]
fn a_range_is_reconciled_day_by_day_and_a_day_that_fails_stops_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    three_hours(directory, "");
    let server = start(directory, "2026-03-11T13:00:01Z", "");
    send(&server, &[click("f1", "2026-03-11T12:00:00Z", "phone")]);
    server.terminate();
    let server = start(directory, "2026-03-14T13:00:01Z", BOTS);
    server.client().rebuild();
    let range = ["reconcile", "2026-03-09..2026-03-11"];
    let dry = [&range[..], &["--dry-run", "--by", "ad_click"]].concat();
    let told = run(directory, &dry);
    assert_eq!(told.code, 1, "{told:?}");
    for part in [
        "2026-03-09 failed: ",
        "2026-03-10:\nclick ",
        "all days that did not fail:\n",
        "nothing was published: 2 of 3 days would have a new version, and 1 failed",
    ] {
        assert!(told.stdout.contains(part), "{part}: {}", told.stdout);
    }
    assert!(
        told.stderr
            .contains("1 of 3 days failed; the first is 2026-03-09"),
        "{told:?}"
    );
    let job = server.client().get_json("/v1/admin/reconcile");
    let (sums, click) = (&job["sums"], &job["sums"]["types"]["click"]);
    assert_eq!(
        (&click["before"], &click["after"]),
        (&json!(10), &json!(4)),
        "{job}"
    );
    let keys = &sums["by"]["types"]["click"]["filtered_by:bots"]["keys"];
    assert_eq!(keys, &json!([{"key": "42", "n": -6}]), "{job}");
    assert_eq!(
        [&job["days_done"], &job["days_total"], &job["state"]],
        [&json!(3), &json!(3), &json!("failed")]
    );
    assert_eq!(run(directory, &range).code, 1);
    let finals = server.client().get_json("/v1/finals");
    assert_eq!(
        finals["finals"].as_array().map(Vec::len),
        Some(2),
        "{finals}"
    );
    server.terminate();
    let again = run_ok(directory, &["reconcile", "2026-03-10..2026-03-11"]);
    assert!(again.contains("0 of 2 days have a new version"), "{again}");
}

/// 1,000 clicks, of which 300 are of bots.
fn thousand(directory: &Path) {
    let server = start(directory, "2026-03-10T15:00:01Z", "");
    let device = |n: u32| if n % 10 < 3 { "bot" } else { "phone" };
    let clicks = (0..1_000).map(|n| click(&format!("e{n}"), "2026-03-10T12:00:00Z", device(n)));
    send(&server, &clicks.collect::<Vec<_>>());
    server.terminate();
}

/// The lines of the audit trail about final versions of the day.
fn finals_in_trail(directory: &Path) -> String {
    let trail = run_ok(directory, &["audit", "--day", DAY]);
    let finals = trail.lines().filter(|line| line.contains("  final "));
    finals.map(str::to_owned).collect()
}

#[test]
fn a_rule_that_takes_much_of_a_day_needs_somebody_who_insists() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    thousand(directory);
    let server = start(
        directory,
        "2026-03-15T01:00:01Z",
        &format!("{BOTS}[final]\n"),
    );
    server.client().rebuild();
    let why = "rules would newly filter 300 of 1,000 `click`, 30.0 % (300 of them by `bots`)";
    let state = |name: &str| server.client().status()[name].to_string();
    // The days after it, which are empty, become final meanwhile.
    wait_until("the day was tried", || state("reasons").contains(why));
    assert_eq!(state("state"), "\"degraded\"");
    assert_eq!(total(server.client()), 1_000);
    server.terminate();
    // Nothing becomes final by itself beside what follows.
    let server = start(directory, "2026-03-15T02:00:01Z", BOTS);
    let dry = run_ok(directory, &["reconcile", DAY, "--dry-run"]);
    assert!(
        dry.contains("refused at first") && dry.contains(why),
        "{dry}"
    );
    let refused = run(directory, &["reconcile", DAY]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains(why) && refused.stderr.contains("--force"),
        "{refused:?}"
    );
    assert_eq!(total(server.client()), 1_000, "nothing was published");
    let forced = run_ok(directory, &["reconcile", DAY, "--force"]);
    assert!(
        forced.contains("version 1 of 2026-03-10 is published"),
        "{forced}"
    );
    assert_eq!(total(server.client()), 700);
    for path in ["/v1/admin/reconciles/2026-03-10", "/v1/finals/2026-03-10"] {
        let told = server.client().get_json(path);
        assert_eq!(told["versions"][0]["forced"], true, "{told}");
    }
    let before = finals_in_trail(directory);
    assert!(
        before.contains(" 2026-03-10 version 1, forced by installation: click 1000 "),
        "{before}"
    );
    server.kill9();
    let data = directory.join("data");
    for lost in ["runs", "archive", "finals", "manifests", "deltas", "ids"] {
        fs::remove_dir_all(data.join(lost)).expect("removed");
    }
    let config = directory.join("c.toml");
    let told = run(directory, &["recount", "--config", text(&config)]);
    assert_eq!(told.code, 0, "{told:?}");
    // It is made again from the log.
    assert_eq!(finals_in_trail(directory), before);
    let server = start(directory, "2026-03-15T03:00:01Z", BOTS);
    let told = server.client().get_json("/v1/finals/2026-03-10");
    assert_eq!(told["versions"][0]["forced"], true, "{told}");
    // The rules are taken back: what comes again needs nobody who insists.
    server.terminate();
    let server = start(directory, "2026-03-15T04:00:01Z", "");
    run_ok(directory, &["reconcile", DAY, "--force"]);
    let told = server.client().get_json("/v1/finals/2026-03-10");
    assert_eq!(told["versions"][0]["forced"], true, "{told}");
    assert_eq!(told["versions"][1].get("forced"), None, "{told}");
    server.terminate();
}

#[test]
fn rules_that_cannot_be_tried_are_refused_with_their_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    three_hours(directory, "");
    let server = start(directory, "2026-03-13T13:00:01Z", "");
    server.client().rebuild();
    let rules = directory.join("rules.toml");
    let wrong = "[filters.odd]\nfield = \"by.colour\"\nvalues = [\"red\"]\n";
    fs::write(&rules, wrong).expect("write the rules");
    let what_if = ["reconcile", DAY, "--rules", text(&rules)];
    let by = ["reconcile", DAY, "--dry-run", "--by", "campaigns"];
    let missing = json!({"day": DAY, "dry_run": true, "rules": {"lists": [
        {"name": "nets", "match": "ip", "sha256": "ab".repeat(32)}]}});
    let headers = [("content-type", "application/json")];
    let body = missing.to_string();
    let answer = server
        .client()
        .post_with("/v1/admin/reconcile", &headers, body.as_bytes());
    assert_eq!(
        (answer.status, &answer.json()["field"]),
        (422, &json!("rules.lists.nets"))
    );
    assert!(answer.text.contains(&"ab".repeat(32)), "{}", answer.text);
    let check = || {
        for (arguments, said) in [
            (&what_if[..], "filter `odd`: field = `by.colour`"),
            (&by[..], "campaigns"),
        ] {
            let refused = run(directory, arguments);
            assert_eq!(refused.code, 2, "{refused:?}");
            assert!(refused.stderr.contains(said), "{refused:?}");
        }
    };
    check();
    assert_eq!(
        server.client().get_json("/v1/admin/reconcile")["job"],
        Value::Null
    );
    server.terminate();
    check();
}
