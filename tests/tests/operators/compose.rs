//! The cluster to try, as far as it can be checked without starting it: it is YAML, its nodes are configured as the
//! documentation says, and it runs what there is. A Python with its module `yaml` reads it; without one the tests say
//! `skipped`.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tallyring_tests::needs::skipped;
use tallyring_tests::server::{tallyring_ok, workspace};

use crate::ops;

const READ: &str = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";

/// The file as it is read; none where nothing can read it.
fn compose() -> Option<Value> {
    let file = fs::File::open(ops("cluster/compose.yaml")).expect("a file");
    let module = Command::new("python3").args(["-c", "import yaml"]).output();
    if !module.is_ok_and(|output| output.status.success()) {
        skipped(
            "ops/cluster/compose.yaml",
            "no python3 has the module `yaml`",
        );
        return None;
    }
    let mut python = Command::new("python3");
    let read = python.args(["-c", READ]).stdin(Stdio::from(file)).output();
    let read = read.expect("python3 runs");
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    Some(serde_json::from_slice(&read.stdout).expect("JSON"))
}

/// Services whose name begins so, with their names.
fn services<'c>(compose: &'c Value, prefix: &str) -> Vec<(&'c str, &'c Value)> {
    let services = compose["services"].as_object().expect("services");
    let named = services.iter().filter(|(name, _)| name.starts_with(prefix));
    named
        .map(|(name, service)| (name.as_str(), service))
        .collect()
}

/// Names of the settings in a text of TOML of one section at most.
fn settings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.split_once(" = "));
    lines.map(|(name, _)| name.trim().to_owned()).collect()
}

fn docs() -> String {
    fs::read_to_string(workspace().join("docs/cluster.md")).expect("a page")
}

#[test]
fn brokers_and_buckets_are_as_a_cluster_needs_them() {
    let Some(compose) = compose() else { return };
    let kafka = services(&compose, "kafka-");
    assert_eq!(kafka.len(), 3);
    for (at, (name, broker)) in kafka.iter().enumerate() {
        let version = broker["image"]
            .as_str()
            .unwrap()
            .strip_prefix("apache/kafka:");
        let major: u32 = version.unwrap().split('.').next().unwrap().parse().unwrap();
        assert!(
            major >= 4,
            "docs/cluster.md: Kafka needs to be 4.0 or newer"
        );
        let of = &broker["environment"];
        assert_eq!(of["KAFKA_NODE_ID"], (at + 1).to_string());
        assert_eq!(
            of["KAFKA_ADVERTISED_LISTENERS"],
            format!("PLAINTEXT://{name}:9092")
        );
        let voter = format!("{}@{name}:9093", at + 1);
        assert!(
            of["KAFKA_CONTROLLER_QUORUM_VOTERS"]
                .as_str()
                .unwrap()
                .contains(&voter)
        );
        assert_eq!(of["KAFKA_MIN_INSYNC_REPLICAS"], "2");
        assert_eq!(of["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"], "false");
        assert_eq!(
            broker["volumes"],
            json!([format!("{name}:/var/lib/kafka/data")])
        );
    }
    // The S3 server is that of the tests.
    let engines = fs::read_to_string(workspace().join("tests/cluster/engines.sh")).unwrap();
    let s3 = &compose["services"]["s3"];
    let image = s3["image"].as_str().unwrap();
    let (_, version) = image.split_once(':').unwrap();
    assert!(
        engines.contains(&format!("/versitygw@{version}\n")),
        "{image}"
    );
    assert!(s3["command"].as_array().unwrap().contains(&json!("/s3")));
    assert_eq!(compose["services"]["bucket"]["command"][2], "/s3/metrics");
}

#[test]
fn nodes_are_configured_as_the_documentation_says() {
    let Some(compose) = compose() else { return };
    let docs = docs();
    let (_, rest) = docs.split_once("```toml\n").unwrap();
    let (documented, _) = rest.split_once("```").unwrap();
    let nodes = services(&compose, "node-");
    assert_eq!(nodes.len(), 3);
    for (name, node) in nodes {
        let config = &node["configs"][0];
        assert_eq!(config["source"], name);
        let content = compose["configs"][name]["content"].as_str().unwrap();
        assert_eq!(settings(content), settings(documented), "{name}");
        let brokers = services(&compose, "kafka-").into_iter();
        let brokers = brokers.map(|(broker, _)| format!("\"{broker}:9092\""));
        let of_node = [
            format!("address = \"http://{name}:7117\""),
            format!("node = \"{}\"", name.trim_start_matches("node-")),
            "listen = \"0.0.0.0:7117\"".to_owned(),
            "\"s3://metrics/".to_owned(),
        ];
        for says in of_node.into_iter().chain(brokers) {
            assert!(content.contains(&says), "{name}: {says}");
        }
        let s3 = &compose["services"]["s3"]["environment"];
        let environment = &node["environment"];
        assert_eq!(environment["AWS_ACCESS_KEY_ID"], s3["ROOT_ACCESS_KEY"]);
        assert_eq!(environment["AWS_SECRET_ACCESS_KEY"], s3["ROOT_SECRET_KEY"]);
        for variable in environment.as_object().unwrap().keys() {
            assert!(docs.contains(&format!("`{variable}`")), "{variable}");
        }
    }
}

#[test]
fn nodes_run_what_is_built_on_volumes_of_their_own() {
    let Some(compose) = compose() else { return };
    let help = tallyring_ok(&["serve", "--help"]);
    for (name, node) in services(&compose, "node-") {
        let words = node["command"].as_array().unwrap().iter();
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        assert_eq!(words[0], "serve");
        assert_eq!(words[2], node["configs"][0]["target"]);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{option}");
        }
        assert_eq!(node["volumes"], json!([format!("{name}:/data")]));
        let built = &node["build"];
        let context = ops("cluster").join(built["context"].as_str().unwrap());
        assert!(context.join("Cargo.lock").exists(), "{context:?}");
        let image = fs::read_to_string(context.join(built["dockerfile"].as_str().unwrap()));
        let image = image.unwrap();
        for argument in built["args"].as_object().unwrap().keys() {
            assert!(
                image.contains(&format!("\nARG {argument}=\n")),
                "{argument}"
            );
        }
    }
    let services = compose["services"].to_string();
    for volume in compose["volumes"].as_object().unwrap().keys() {
        assert!(services.contains(&format!("\"{volume}:/")), "{volume}");
    }
}

#[test]
fn the_documented_commands_to_try_a_cluster_name_services_that_there_are() {
    let Some(compose) = compose() else { return };
    let docs = docs();
    let commands = docs.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("docker compose -f ops/cluster/compose.yaml ")
    });
    let mut runs = 0;
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let named = words.iter().filter(|word| {
            word.starts_with("kafka-") || word.starts_with("node-") || **word == "s3"
        });
        for service in named {
            assert!(compose["services"].get(service).is_some(), "{command}");
        }
        if let ["run", "--rm", _, ours @ ..] = &words[..] {
            runs += 1;
            // The program of a single machine does not have it.
            if ours[..3] == ["cluster", "init", "--config"] {
                assert!(docs.contains("`tallyring cluster init --config "));
                continue;
            }
            let help = tallyring_ok(&[ours[0], ours[1], "--help"]);
            for option in ours.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{command}: no {option}");
            }
        }
    }
    assert_eq!(runs, 2, "the store and its first key");
}
