//! The operators' files speak of things that exist: metrics in rules and panels, options in units.
//!
//! `promtool` checks the rules and the names of the metrics where it is installed; without it the test says `skipped`.

mod compose;
mod duckdb;
mod image;
mod nginx;

use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tallyring_tests::needs::skipped;
use tallyring_tests::server::{Server, workspace};
use tempfile::TempDir;

fn ops(path: &str) -> PathBuf {
    workspace().join("ops").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(ops(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names of our metrics in a text, without what a histogram adds to its own.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let ours = words.filter(|word| word.starts_with("tallyring_"));
    ours.map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// Runs promtool in `ops/prometheus`, which must find nothing wrong. Without promtool the check is skipped by name.
fn promtool(arguments: &[&str], input: Stdio) {
    let mut promtool = Command::new("promtool");
    promtool.args(arguments).current_dir(ops("prometheus"));
    match promtool.stdin(input).output() {
        Ok(output) => {
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            assert!(
                output.status.success(),
                "promtool {arguments:?}: {out}{err}"
            );
        }
        Err(error) => skipped(&format!("promtool {arguments:?}"), &error.to_string()),
    }
}

#[test]
fn rules_and_panels_name_metrics_that_are_there_with_their_help() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.get("/v1/incr?key.l=a").status, 204);
    // A request is measured once it was answered: the second look sees the first.
    let first = server.get("/metrics");
    assert_eq!(
        first.header("content-type"),
        Some("text/plain; version=0.0.4")
    );
    let text = server.get("/metrics").text;
    let mut page = tempfile::tempfile().unwrap();
    page.write_all(text.as_bytes()).unwrap();
    page.rewind().unwrap();
    promtool(&["check", "metrics"], page.into());
    let helped: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
        .map(str::to_owned)
        .collect();
    let typed = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in typed {
        assert!(
            helped.contains(name),
            "{name} has no help: describe it in api/src/describe.rs or gauges.rs"
        );
    }
    for file in [
        "prometheus/alerts.yml",
        "prometheus/alerts_test.yml",
        "grafana/tallyring.json",
    ] {
        let named = metrics_in(&read(file));
        assert!(named.len() >= 4, "{file}: {named:?}");
        for name in named {
            assert!(
                helped.contains(&name),
                "{file}: there is no {name} with help at the start: api/src/describe.rs, gauges.rs"
            );
        }
    }
}

/// The panels of a board.
fn panels(board: &str) -> Vec<Value> {
    let board: Value = serde_json::from_str(&read(board)).expect("a board is JSON");
    board["panels"].as_array().expect("panels").clone()
}

/// The expressions of panels.
fn expressions(panels: &[Value]) -> Vec<String> {
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expression = |target: &Value| target["expr"].as_str().expect("an expression").to_owned();
    targets.flatten().map(expression).collect()
}

#[test]
fn the_panels_are_dashboards() {
    for (board, least) in [("grafana/tallyring.json", 16), ("grafana/counts.json", 11)] {
        let panels = panels(board);
        let mut ids = BTreeSet::new();
        for panel in &panels {
            assert!(ids.insert(panel["id"].as_u64()), "{panel}");
            let title = panel["title"].as_str().unwrap_or_default();
            assert!(!title.is_empty(), "{panel}");
            let expressions = expressions(std::slice::from_ref(panel));
            assert_eq!(expressions.is_empty(), panel["type"] == "row", "{panel}");
            let is_ours = |expression: &String| expression.contains("tallyring_");
            assert!(expressions.iter().all(is_ours), "{panel}");
        }
        assert!(panels.len() >= least, "{board}");
    }
}

#[test]
fn the_board_of_counts_asks_in_promql_and_the_server_answers() {
    let data = TempDir::new().unwrap();
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.get("/v1/incr?key.l=a&by.c=US").status, 204);
    let filled = |expression: String| {
        expression
            .replace("$namespace", "l")
            .replace("$key", "(a|b\\\\.c)")
            .replace("$zone", "Europe/Berlin")
            .replace("$__range", "604800s")
    };
    let expressions: Vec<String> = expressions(&panels("grafana/counts.json"))
        .into_iter()
        .map(filled)
        .collect();
    let mut rules = String::from("groups: [{name: board, rules: [");
    for (number, expression) in expressions.iter().enumerate() {
        // A point stands where its bucket begins: that of the present one lies within what is counted so far.
        let now = expression
            .replace(" offset -1h", "")
            .replace(" offset -1d", "");
        let query = now.bytes().map(|byte| format!("%{byte:02x}"));
        let query: String = query.collect();
        let answer = server.get(&format!("/api/v1/query?query={query}"));
        assert_eq!(answer.status, 200, "{expression}: {}", answer.text);
        assert!(
            answer.text.contains(r#""value":["#),
            "{expression}: {}",
            answer.text
        );
        let rule = json!({"record": format!("panel_{number}"), "expr": expression});
        rules.push_str(&format!("{rule},"));
    }
    rules.push_str("]}]");
    let file = data.path().join("board.yml");
    std::fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()], Stdio::null());
}

#[test]
fn the_rules_are_rules_and_speak_when_they_should() {
    promtool(&["check", "rules", "alerts.yml"], Stdio::null());
    promtool(&["test", "rules", "alerts_test.yml"], Stdio::null());
}

#[test]
fn every_rule_is_seen_to_speak_and_to_be_silent() {
    let (rules, tests) = (
        read("prometheus/alerts.yml"),
        read("prometheus/alerts_test.yml"),
    );
    let named = |line: &str| Some(line.split_once("alert: ")?.1.trim().to_owned());
    let rules: BTreeSet<String> = rules.lines().filter_map(named).collect();
    let (mut speak, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for case in tests.split("eval_time: ").skip(1) {
        let (_, rest) = case.split_once("alertname: ").unwrap();
        let name = rest.split([',', '\n']).next().unwrap().to_owned();
        let (_, expected) = case.split_once("exp_alerts:").unwrap();
        let of = if expected.trim_start().starts_with("[]") {
            &mut silent
        } else {
            &mut speak
        };
        of.insert(name);
    }
    assert_eq!(rules.len(), 27);
    assert_eq!(speak, rules, "each is seen to speak");
    assert_eq!(silent, rules, "each is seen to be silent");
}

#[test]
fn the_unit_runs_the_server_with_options_that_it_has() {
    let unit = read("systemd/tallyring.service");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    let mut words = start.split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/tallyring"));
    let help = tallyring_tests::server::tallyring_ok(&["serve", "--help"]);
    for option in words.filter(|word| word.starts_with("--")) {
        assert!(help.contains(option), "{option}");
    }
    for hardening in [
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "DynamicUser=yes",
        "CapabilityBoundingSet=\n",
    ] {
        assert!(unit.contains(hardening), "{hardening}");
    }
}
