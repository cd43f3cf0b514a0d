//! The form in which every command prints, and its end when nobody reads its output.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, pipe};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Deserializer, Value};
use tallyring_tests::server::{
    Client, Server, binary, tallyring, tallyring_bench, tallyring_ok, wait_until,
};

use crate::stored::{Stored, text};

/// The JSON that `--output json` prints, value by value.
fn json_of(arguments: &[&str]) -> Vec<Value> {
    let printed = tallyring_ok(&[arguments, &["--output", "json"]].concat());
    let values = Deserializer::from_str(&printed).into_iter::<Value>();
    let values: Result<Vec<Value>, _> = values.collect();
    let values = values.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {printed}"));
    assert!(!values.is_empty(), "{arguments:?}");
    values
}

/// A command that serves until it is dropped, with pipes for what it prints.
struct Serving(Child);

impl Serving {
    fn start(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Self {
        let mut command = Command::new(binary());
        command.args(arguments).stdin(Stdio::null());
        Self(
            command
                .stdout(stdout)
                .stderr(stderr)
                .spawn()
                .expect("start tallyring"),
        )
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Commands on a data directory that no server holds, in an order in which they work.
fn of_a_directory<'a>(data: &'a str, place: &'a Place) -> Vec<Vec<&'a str>> {
    let on = |arguments: &[&'a str]| [arguments, &["--data", data]].concat();
    vec![
        on(&["query", "l/link1", "--units", "2"]),
        on(&["query", "l/link1", "--by", "c", "--units", "-1"]),
        on(&["query", "l", "--top", "--units", "-1"]),
        on(&["actions", "user", "somebody"]),
        on(&["cat", "oplog"]),
        on(&["cat", "slot"]),
        on(&["cat", "slot", "day-2012-03-18"]),
        on(&["cat", "archive"]),
        on(&["cat", "manifest"]),
        on(&["cat", "file", &place.file]),
        on(&["load", "old", &place.rows, "--dry-run"]),
        on(&["load", "old", &place.rows]),
        on(&["datasets"]),
        on(&["rebuild"]),
        on(&["reconcile", "2012-03-16"]),
        on(&[
            "reconcile",
            "2012-03-16",
            "--rules",
            &place.config,
            "--by",
            "l",
        ]),
        on(&["audit"]),
        on(&["recompress"]),
        on(&["recount"]),
        on(&["drop", "old"]),
        on(&["verify"]),
        on(&["export", &place.export]),
        on(&["backup", &place.backup]),
        vec!["restore", &place.backup, "--data", &place.restored],
        vec!["config", "default"],
        vec!["config", "check", &place.config],
        vec!["lists", "show", "--config", &place.config],
        vec!["completions", "bash"],
        vec!["completions", "zsh"],
        vec!["completions", "fish"],
        vec!["man", &place.man],
        on(&["key", "new", "--scope", "read,write,admin"]),
        on(&["key", "list"]),
    ]
}

/// Files beside the data directory.
struct Place {
    rows: String,
    file: String,
    export: String,
    backup: String,
    restored: String,
    config: String,
    man: String,
}

impl Place {
    fn beside(stored: &Stored) -> Self {
        let root = stored.data.parent().expect("a directory around it");
        let path = |name: &str| text(&root.join(name)).to_owned();
        let rows = path("rows.csv");
        fs::write(&rows, "namespace,key,hour,count\nl,link1,1331900000,5\n")
            .expect("write the rows");
        let config = path("tallyring.toml");
        fs::write(&config, tallyring_ok(&["config", "default"])).expect("write the configuration");
        Self {
            rows,
            file: stored.files("archive").remove(0),
            export: path("export"),
            backup: path("backup"),
            restored: path("restored"),
            config,
            man: path("man"),
        }
    }
}

/// Commands that are asked beside a server with a configuration.
fn asked_of_a_server(data: &Path, url: &str) -> [String; 2] {
    json_of(&["reload", "--data", text(data)]);
    let config = with_receiver(data, url);
    let tried = json_of(&["alerts", "test", "--config", &config]);
    assert_eq!(tried[0]["taken"], true);
    ["reload", "alerts"].map(str::to_owned)
}

/// A configuration with a receiver: the server at `url`, which takes any message as an order to reload.
fn with_receiver(folder: &Path, url: &str) -> String {
    fs::write(
        folder.join("secret"),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    )
    .expect("write the secret");
    let receiver =
        format!("[receivers.ops]\nurl = \"{url}/v1/admin/reload\"\nsecret = \"secret\"\n");
    let config = folder.join("receiver.toml");
    fs::write(&config, receiver).expect("write the configuration");
    text(&config).to_owned()
}

/// Commands as the help lists them.
fn commands() -> BTreeSet<String> {
    let help = tallyring_ok(&["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    listed
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_benchmark_prints_json_when_asked() {
    let arguments = ["memory", "--keys", "100", "--runs", "1", "--output", "json"];
    let finished = tallyring_bench(&arguments);
    assert_eq!(finished.code, 0, "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!(report["bench"], "memory");
    assert_eq!(report["rows"][0]["what"], "300 live counters");
}

#[test]
fn every_command_prints_json_when_asked() {
    let stored = Stored::with_a_file_of_every_kind();
    let place = Place::beside(&stored);
    let points = json_of(&["cat", "slot", "day-2012-03-18", "--data", stored.argument()]);
    let us = points
        .iter()
        .find(|point| point["key"] == "c.u|somebody" && point["value"] == "US");
    assert_eq!(us.unwrap()["count"], 34, "{points:?}");
    let mut asked = BTreeSet::new();
    for arguments in of_a_directory(stored.argument(), &place) {
        json_of(&arguments);
        asked.insert(arguments[0].to_owned());
    }
    let log = json_of(&["cat", "oplog", "--data", stored.argument()]);
    let first = log.iter().find(|record| record["id"] == "a1").unwrap();
    assert_eq!(
        (&first["record"], &first["at"], &first["keys"]["u"]),
        (
            &"increment".into(),
            &"2012-03-16T09:10:00Z".into(),
            &"somebody".into()
        )
    );
    let keys = json_of(&["key", "list", "--data", stored.argument()]);
    let id = keys[0]["keys"][0]["id"].as_str().unwrap().to_owned();
    json_of(&["key", "revoke", &id, "--data", stored.argument()]);

    let fresh = Stored::new();
    fs::create_dir_all(&fresh.data).unwrap();
    let config = fresh.data.join("tallyring.toml");
    fs::write(&config, tallyring_ok(&["config", "default"])).unwrap();
    for command in ["serve", "demo"] {
        let data = fresh.data.join(command);
        let mut arguments = vec![command, "--data", text(&data), "--listen", "127.0.0.1:0"];
        arguments.extend(["--output", "json"]);
        match command {
            "demo" => arguments.extend(["--days", "1", "--rate", "0"]),
            _ => arguments.extend(["--config", text(&config)]),
        }
        let mut serving = Serving::start(&arguments, Stdio::piped(), Stdio::null());
        let lines = BufReader::new(serving.0.stdout.take().unwrap()).lines();
        let mut values =
            lines.map(|line| -> Value { serde_json::from_str(&line.unwrap()).unwrap() });
        let url = values.find_map(|value| Some(value["url"].as_str()?.to_owned()));
        let server = Client::new(&url.expect("the address"));
        assert_eq!(server.get("/readyz").status, 200);
        json_of(&["status", "--data", text(&data)]);
        if command == "serve" {
            asked.extend(asked_of_a_server(&data, server.url()));
        }
        let clicks = fresh.data.join("clicks.jsonl");
        fs::write(&clicks, "{\"t\":1331900000,\"g\":\"a\"}\n").unwrap();
        let map = ["--map", "key.l=g", "--map", "at=t"];
        let send = [&["send", text(&clicks), "--to", server.url()], &map[..]].concat();
        assert_eq!(json_of(&send)[0]["accepted"], 1);
        if command == "serve" {
            for order in ["delete", "undelete"] {
                let days = ["--days", "2012-03-16", "--reason", "a test"];
                let data = ["--data", text(&data)];
                json_of(&[&[order, "l/a"], &days[..], &data].concat());
                asked.insert(order.to_owned());
            }
            json_of(&["share", "new", "l/a", "--data", text(&data)]);
            asked.insert("share".to_owned());
        }
        asked.extend([command, "status", "send"].map(str::to_owned));
    }
    assert_eq!(asked, commands(), "each command is asked");
}

#[test]
fn files_and_pictures_are_forms_of_queries_only() {
    for (form, commands) in [
        ("csv", "`tallyring query` and `tallyring actions`"),
        ("svg", "`tallyring query`"),
    ] {
        for arguments in [
            &["status"][..],
            &["verify"],
            &["config", "default"],
            &["key", "list"],
            &["completions", "bash"],
            &["serve"],
        ] {
            let refused = tallyring(&[arguments, &["--output", form]].concat());
            assert_eq!(refused.code, 2, "{arguments:?}: {refused:?}");
            let named = format!("--output {form} is a form of {commands} only");
            assert!(refused.stderr.contains(&named), "{refused:?}");
            assert_eq!(refused.stdout, "", "{arguments:?}");
        }
    }
}

#[test]
fn a_command_ends_quietly_when_nobody_reads() {
    let stored = Stored::with_a_file_of_every_kind();
    let place = Place::beside(&stored);
    let check = |arguments: &[&str]| {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let mut command = Command::new(binary());
        let output = command.args(arguments).stdin(Stdio::null()).stdout(writer);
        let output = output.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // As the shell says of what SIGPIPE ended.
        assert_eq!(output.status.code(), Some(141), "{arguments:?}: {said}");
        for word in ["error", "panicked", "Broken pipe"] {
            assert!(!said.contains(word), "{arguments:?}: {said}");
        }
    };
    for arguments in of_a_directory(stored.argument(), &place) {
        check(&arguments);
        // A load, a backup and the like run once: the second time is another story.
        if ["query", "cat", "verify", "config"].contains(&arguments[0]) {
            check(&[&arguments[..], &["--output", "json"]].concat());
        }
    }
    let data = stored.data.join("served");
    let server = Server::start(&data, &[]);
    check(&["status", "--data", text(&data)]);
    check(&["status", "--watch", "--data", text(&data)]);
    server.terminate();
}

#[test]
fn a_server_goes_on_when_nobody_reads_its_messages() {
    let stored = Stored::new();
    let data = stored.argument();
    let closed = || {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let arguments = ["serve", "--data", data, "--listen", "127.0.0.1:0"];
    let _serving = Serving::start(&arguments, closed(), closed());
    wait_until("it answers", || {
        tallyring(&["status", "--data", data]).code == 0
    });
    let rebuilt = json_of(&["rebuild", "--data", data]);
    assert_eq!(rebuilt[0]["generation"], 0);
    json_of(&["status", "--data", data]);
}
