//! The Dockerfile, as far as it can be checked without building it: what it copies is there, and what it runs is
//! what the binary and README say.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tallyring_tests::server::{tallyring_ok, workspace};
use tempfile::TempDir;

use crate::read;

/// An instruction and what it says, line ends joined.
struct Instruction {
    name: String,
    says: String,
}

fn instructions(text: &str) -> Vec<Instruction> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let parse = |line: &str| {
        let (name, says) = line.split_once(' ')?;
        Some(Instruction {
            name: name.to_owned(),
            says: says.trim().to_owned(),
        })
    };
    joined.lines().filter_map(parse).collect()
}

/// The only instruction of this name.
fn only<'i>(instructions: &'i [Instruction], name: &str) -> &'i str {
    let mut found = instructions.iter().filter(|one| one.name == name);
    let (first, second) = (found.next(), found.next());
    assert!(second.is_none(), "{name} stands twice");
    &first.unwrap_or_else(|| panic!("there is no {name}")).says
}

/// `["a", "b"]` as words.
fn words(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Certificates of the authorities that the system of a stage believes.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[test]
fn stages_copy_what_is_there() {
    let text = read("docker/Dockerfile");
    let mut stages: BTreeMap<String, String> = BTreeMap::new();
    let mut stage = String::new();
    let mut copied = 0;
    for Instruction { name, says } in instructions(&text) {
        match name.as_str() {
            "FROM" => {
                let words: Vec<&str> = says.split_whitespace().collect();
                assert!(words[0].contains(':'), "{says}: name a version");
                stage = match words[..] {
                    [_, "AS", name] => name.to_owned(),
                    [_] => "last".to_owned(),
                    _ => panic!("{says}"),
                };
                assert!(
                    !stages.contains_key(&stage),
                    "two stages are called {stage}"
                );
                stages.insert(stage.clone(), String::new());
            }
            "COPY" => {
                copied += 1;
                let mut words: Vec<&str> = says.split_whitespace().collect();
                let from = words[0].strip_prefix("--from=").map(str::to_owned);
                if let Some(from) = from {
                    words.remove(0);
                    let commands = &stages[&from];
                    assert_ne!(from, stage);
                    if words[0] == AUTHORITIES {
                        continue;
                    }
                    // Beside these, a stage gives another one only the program that it builds.
                    assert!(commands.contains("WORKDIR /src\n"), "{commands}");
                    assert_eq!(words[0], "/src/target/release/tallyring");
                    assert!(
                        commands.contains("cargo build --release --locked --bin tallyring"),
                        "{commands}"
                    );
                } else {
                    for source in &words[..words.len() - 1] {
                        assert!(workspace().join(source).exists(), "{source} is not there");
                    }
                }
            }
            _ => {}
        }
        if let Some(commands) = stages.get_mut(&stage) {
            commands.push_str(&format!("{name} {says}\n"));
        }
    }
    assert!(copied >= 2, "{copied} are copied");
    // Everything is copied into the first stage: not what was built here, nor the history.
    let ignored = fs::read_to_string(workspace().join(".dockerignore")).unwrap();
    for name in ["target", ".git"] {
        let is_ignored = ignored
            .lines()
            .any(|line| line.trim_start_matches("**/") == name);
        assert!(is_ignored, "{name} is not in .dockerignore");
    }
    let toolchain = fs::read_to_string(workspace().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.split('"').nth(1).unwrap();
    let (minor, _) = channel.rsplit_once('.').unwrap();
    assert!(
        text.contains(&format!("FROM rust:{minor}-")),
        "the image builds with Rust {minor}"
    );
}

#[test]
fn the_image_runs_commands_that_there_are() {
    let text = read("docker/Dockerfile");
    let instructions = instructions(&text);
    assert_eq!(words(only(&instructions, "ENTRYPOINT")), ["tallyring"]);
    let volume = only(&instructions, "VOLUME");
    let commands = [
        only(&instructions, "CMD"),
        only(&instructions, "HEALTHCHECK"),
    ];
    for command in commands {
        let json = &command[command.find('[').unwrap()..];
        let mut words = words(json);
        words.retain(|word| word != "tallyring");
        let help = tallyring_ok(&[&words[0], "--help"]);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option.as_str()), "{command}: no {option}");
        }
        let data = words.iter().position(|word| word == "--data").unwrap();
        assert_eq!(words[data + 1], volume, "{command}");
    }
    let port = only(&instructions, "EXPOSE");
    assert!(commands[0].contains(&format!("\"0.0.0.0:{port}\"")));
    let user = only(&instructions, "USER");
    let runs = instructions.iter().filter(|one| one.name == "RUN");
    let makes_user = |run: &Instruction| {
        run.says.contains("useradd") && run.says.contains(&format!("-o {user} -m 700 {volume}"))
    };
    assert!(
        runs.into_iter().any(makes_user),
        "nobody makes {user} and {volume}"
    );
    // Its head says how to begin: that very key lets the server listen beyond loopback.
    let key = text
        .lines()
        .find_map(|line| line.split_once(" tallyring key new "))
        .unwrap();
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let arguments = key.1.replace(volume, data.to_str().unwrap());
    let mut arguments: Vec<&str> = arguments.split(' ').collect();
    arguments.splice(..0, ["key", "new"]);
    arguments.extend(["--output", "json"]);
    let made: Value = serde_json::from_str(&tallyring_ok(&arguments)).unwrap();
    assert!(made["key"].as_str().unwrap().starts_with("tr_"), "{made}");
    let readme = fs::read_to_string(workspace().join("README.md")).unwrap();
    assert!(readme.contains("`ops/docker/Dockerfile`"));
    assert!(readme.contains("tallyring key new --scope"));
}
