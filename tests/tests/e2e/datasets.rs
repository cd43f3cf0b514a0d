//! Bulk datasets: they add to the ring's counts, appear and disappear with a rebuild, and survive what happens.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tallyring_realtime::Lock;
use tallyring_tests::server::{Killed, Server, binary, tallyring, tallyring_ok, wait_until};

use crate::stored::Stored;

const TODAY: &str = "2012-03-16T12:00:00Z@0";
const HEADER: &str = "namespace,key,hour,count\n";

struct Stand {
    stored: Stored,
    input: tempfile::TempDir,
}

impl Stand {
    fn new() -> Self {
        Self {
            stored: Stored::new(),
            input: tempfile::tempdir().expect("a directory"),
        }
    }

    fn file(&self, name: &str, rows: &str) -> String {
        let path = self.input.path().join(name);
        fs::write(&path, format!("{HEADER}{rows}")).expect("written");
        path.display().to_string()
    }

    fn arguments<'a>(&'a self, command: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec![command, "--data", self.stored.argument()];
        arguments.extend(rest);
        arguments
    }

    fn run(&self, command: &str, rest: &[&str]) -> String {
        tallyring_ok(&self.arguments(command, rest))
    }

    fn incoming(&self) -> Vec<PathBuf> {
        let directory = PathBuf::from(self.stored.argument()).join("incoming");
        let Ok(entries) = fs::read_dir(directory) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    }
}

/// All of a key's days in March 2012 and of 2011.
fn total(server: &Server, key: &str) -> u64 {
    let range = "unit=month&from=2011-01-01T00:00:00Z&to=2012-03-31T23:00:00Z";
    let answer = server.get_json(&format!("/v1/l/{key}/counts?{range}"));
    answer["total"].as_u64().expect("a total")
}

#[test]
fn a_dataset_adds_is_replaced_dropped_and_rolled_back_in_one_step_each() {
    let stand = Stand::new();
    let server = stand.stored.serve(TODAY);
    assert_eq!(server.get("/v1/incr?key.l=a&n=5").status, 204);
    let old = stand.file(
        "old.csv",
        "l,a,2011-05-01T10:00:00Z,100\nl,a,2012-03-01T00:00:00Z,10\n",
    );
    stand.run("load", &["history", &old]);
    assert_eq!(total(&server, "a"), 5, "not before the rebuild");
    server.client().rebuild();
    assert_eq!(total(&server, "a"), 115);

    let taken = tallyring(&stand.arguments("load", &["history", &old]));
    assert_eq!(taken.code, 1, "{taken:?}");
    assert!(
        taken.stderr.contains("replace it with --replace"),
        "{taken:?}"
    );
    let new = stand.file("new.csv", "l,a,2011-05-01T10:00:00Z,1000\n");
    stand.run("load", &["history", &new, "--replace"]);
    assert_eq!(total(&server, "a"), 115, "not before the rebuild");
    let replaced = server.client().rebuild();
    assert_eq!(total(&server, "a"), 1005);

    stand.run("drop", &["history"]);
    assert_eq!(total(&server, "a"), 1005, "not before the rebuild");
    let dropped = server.client().rebuild();
    assert!(dropped > replaced);
    assert_eq!(total(&server, "a"), 5);

    let path = format!("/v1/admin/generations/{replaced}/activate");
    assert_eq!(server.client().post(&path, "").status, 200);
    assert_eq!(total(&server, "a"), 1005, "rolled back with its datasets");
    server.client().rebuild();
    assert_eq!(total(&server, "a"), 1005, "and so is the next generation");
    let listed = server.get_json("/v1/admin/datasets");
    let states: Vec<&Value> = listed["datasets"]
        .as_array()
        .expect("datasets")
        .iter()
        .map(|of| &of["state"])
        .collect();
    assert!(states.contains(&&json!("counted")), "{listed}");
    server.terminate();
    stand.run("verify", &["--deep"]);
    assert!(stand.incoming().is_empty(), "{:?}", stand.incoming());
}

#[test]
fn a_dataset_that_waits_for_its_rebuild_survives_a_rollback() {
    let stand = Stand::new();
    let server = stand.stored.serve(TODAY);
    let rows = |n: u64| format!("l,a,2011-05-01T10:00:00Z,{n}\n");
    stand.run("load", &["first", &stand.file("first.csv", &rows(1))]);
    let first = server.client().rebuild();
    stand.run("load", &["second", &stand.file("second.csv", &rows(10))]);
    server.client().rebuild();
    assert_eq!(total(&server, "a"), 11);
    // Neither is in any generation: one is new, one is to replace what both have.
    stand.run("load", &["third", &stand.file("third.csv", &rows(100))]);
    let new = stand.file("new.csv", &rows(1_000));
    stand.run("load", &["first", &new, "--replace"]);
    let path = format!("/v1/admin/generations/{first}/activate");
    assert_eq!(server.client().post(&path, "").status, 200);
    assert_eq!(total(&server, "a"), 1);
    server.client().rebuild();
    assert_eq!(
        total(&server, "a"),
        1_100,
        "what was merged since is forgotten, what waited counts"
    );
    server.terminate();
    stand.run("verify", &["--deep"]);
}

#[test]
fn a_load_without_a_server_counts_the_same() {
    let stand = Stand::new();
    let file = stand.file(
        "rows.csv",
        "l,a,2011-05-01T10:00:00Z,100\nl,b,1304244000,1\n",
    );
    stand.run("load", &["history", &file]);
    assert!(
        stand
            .run("datasets", &[])
            .contains("counts with the next rebuild")
    );
    let listed = stand.run("datasets", &["--output", "json"]);
    stand.run("rebuild", &[]);
    assert!(stand.run("datasets", &[]).contains("counted"));
    let server = stand.stored.serve(TODAY);
    assert_eq!((total(&server, "a"), total(&server, "b")), (100, 1));
    // The command tells what the server tells.
    let mut listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["datasets"][0]["partitions"], json!(["2011"]));
    listed["datasets"][0]["state"] = json!("counted");
    assert_eq!(listed, server.get_json("/v1/admin/datasets"));
}

#[test]
fn rows_are_read_by_what_the_configuration_declares_now() {
    let stand = Stand::new();
    stand.stored.serve(TODAY).terminate();
    let config = stand.input.path().join("more.toml");
    let config = config.to_str().expect("a path of text");
    let declare = |names: &[&str]| {
        let text: String = names
            .iter()
            .map(|name| format!("[[namespace]]\nname = \"{name}\"\n"))
            .collect();
        fs::write(config, text).expect("written");
    };
    let load = |name: &str, more: &[&str]| {
        let file = stand.file("rows.csv", &format!("{name},a,2011-05-01T10:00:00Z,7\n"));
        let arguments = [&[name, file.as_str()][..], more].concat();
        tallyring(&stand.arguments("load", &arguments))
    };
    // Without a server it is declared first, but not by a dry run.
    declare(&["l", "page"]);
    let dry = load("page", &["--config", config, "--dry-run"]);
    assert!(dry.code == 0 && dry.stdout.contains("page"), "{dry:?}");
    let undeclared = load("page", &[]);
    assert!(undeclared.stderr.contains("got `page`"), "{undeclared:?}");
    let loaded = load("page", &["--config", config]);
    assert_eq!(loaded.code, 0, "{loaded:?}");
    // A server has declared when it listens.
    declare(&["l", "page", "site"]);
    let server = Server::start(&stand.stored.data, &["--clock", TODAY, "--config", config]);
    let loaded = load("site", &[]);
    assert_eq!(loaded.code, 0, "{loaded:?}");
    server.client().rebuild();
    let range = "unit=month&from=2011-01-01T00:00:00Z&to=2012-03-31T23:00:00Z";
    let site = server.get_json(&format!("/v1/site/a/counts?{range}"));
    assert_eq!(site["total"], 7, "{site}");
}

#[test]
fn a_dry_run_and_a_bad_row_change_nothing() {
    let stand = Stand::new();
    let good = stand.file("good.csv", "l,a,2011-05-01T10:00:00Z,100\n");
    let none = tallyring(&stand.arguments("load", &["history", &good, "--dry-run"]));
    assert!(none.stderr.contains("is no data directory"), "{none:?}");
    assert!(!stand.stored.data.exists());
    stand.stored.serve(TODAY).terminate();
    let said = stand.run("load", &["history", &good, "--dry-run"]);
    assert!(
        said.contains("2011") && said.contains("100") && said.contains("nothing changed"),
        "{said}"
    );
    // A dry run tells the months that would go where the archive keeps whole years, and counts what waits.
    stand.run("load", &["history", &good]);
    let other = stand.file(
        "other.csv",
        "l,a,2011-05-02T10:00:00Z,7\nl,b,2011-06-01T10:00:00Z,8\n",
    );
    let said = stand.run("load", &["history", &other, "--replace", "--dry-run"]);
    let cells: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        cells[..3],
        [
            vec!["MONTH", "NAMESPACE", "COUNTED", "ADDED", "REMOVED", "AFTER"],
            vec!["2011-05", "l", "100", "7", "100", "7"],
            vec!["2011-06", "l", "0", "8", "0", "8"],
        ],
        "{said}"
    );
    stand.run("drop", &["history"]);
    let bad = stand.file(
        "bad.csv",
        "l,a,2011-05-01T10:00:00Z,100\nl,a,2011-05-01T10:00:00Z,x\n",
    );
    let refused = tallyring(&stand.arguments("load", &["history", &bad]));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("bad.csv line 3: `count` is `x`"),
        "{refused:?}"
    );
    assert!(stand.run("datasets", &[]).contains("no datasets"));
    let rejects = stand.input.path().join("rejects.csv").display().to_string();
    let skip = ["history", &bad, "--on-error", "skip", "--rejects", &rejects];
    assert!(stand.run("load", &skip).contains("1 row was skipped"));
    let listed = fs::read_to_string(&rejects).expect("rejects");
    assert!(listed.contains(",3,"), "{listed}");
    assert!(stand.incoming().is_empty(), "{:?}", stand.incoming());
}

#[test]
fn hours_ahead_of_the_clock_are_bad_rows_as_they_are_bad_increments() {
    let stand = Stand::new();
    let load = |hour: &str| {
        let file = stand.file("ahead.csv", &format!("l,abc,{hour},2\n"));
        let name = format!("h{hour}").replace([':', '-'], "").to_lowercase();
        tallyring(&stand.arguments("load", &[&name, &file]))
    };
    for hour in ["2115-10-08T17:00:00Z", "4600000000", "2931-01-01T05:00:00Z"] {
        let refused = load(hour);
        assert_eq!(refused.code, 1, "{refused:?}");
        let why = format!("ahead.csv line 2: `hour` is `{hour}`, which is 2");
        assert!(refused.stderr.contains(&why), "{refused:?}");
        let why = "more than 24 hours ahead of the clock; correct the hour";
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    let milliseconds = load("946684800000");
    assert!(
        milliseconds.stderr.contains("divide it by 1,000"),
        "{milliseconds:?}"
    );
    let loaded = load("2011-01-01T05:00:00Z");
    assert_eq!(loaded.code, 0, "{loaded:?}");
}

#[test]
fn a_killed_load_leaves_the_store_as_it_was_and_its_files_go() {
    let stand = Stand::new();
    let server = stand.stored.serve(TODAY);
    assert_eq!(server.get("/v1/incr?key.l=a&n=5").status, 204);
    let mut child = Command::new(binary())
        .args(stand.arguments("load", &["history", "-"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    // It waits for its input, which never ends.
    wait_until("the load began", || !stand.incoming().is_empty());
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(!stand.incoming().is_empty());
    let file = stand.file("rows.csv", "l,a,2011-05-01T10:00:00Z,100\n");
    stand.run("load", &["history", &file]);
    assert!(
        stand.incoming().is_empty(),
        "the next one cleans up: {:?}",
        stand.incoming()
    );
    server.client().rebuild();
    assert_eq!(total(&server, "a"), 105);
}

#[test]
fn a_rebuild_removes_what_a_killed_load_left_and_spares_one_that_sorts() {
    let stand = Stand::new();
    let server = stand.stored.serve(TODAY);
    assert_eq!(server.get("/v1/incr?key.l=a&n=5").status, 204);
    let start = |name: &str| {
        Command::new(binary())
            .args(stand.arguments("load", &[name, "-"]))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started")
    };
    let locks = || {
        let names = stand.incoming().into_iter();
        names
            .filter(|name| name.extension().is_some_and(|end| end == "lock"))
            .count()
    };
    let mut killed = start("killed");
    wait_until("the first began", || locks() == 1);
    let mut sorting = start("sorting");
    wait_until("the second began", || locks() == 2);
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    server.client().rebuild();
    assert_eq!(locks(), 1, "{:?}", stand.incoming());
    let mut input = sorting.stdin.take().expect("its input");
    writeln!(input, "{HEADER}l,a,2011-05-01T10:00:00Z,100").expect("written");
    drop(input);
    assert!(sorting.wait().expect("ended").success());
    server.client().rebuild();
    assert_eq!(total(&server, "a"), 105);
}

#[test]
fn a_sorted_load_waits_for_whoever_holds_the_directory_and_answers_nothing() {
    let stand = Stand::new();
    stand.stored.serve(TODAY).terminate();
    let lock = Lock::take(&stand.stored.data).expect("a lock file");
    let lock = lock.expect("nobody holds it");
    let file = stand.file("rows.csv", "l,a,2011-05-01T10:00:00Z,100\n");
    let said = tempfile::NamedTempFile::new().expect("a file");
    let child = Command::new(binary())
        .args(stand.arguments("load", &["history", &file]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said.reopen().expect("open it"))
        .spawn();
    let mut child = Killed(child.expect("started"));
    wait_until("it waits", || {
        let said = fs::read_to_string(said.path()).expect("text");
        said.contains("wait to be adopted")
    });
    drop(lock);
    assert!(child.0.wait().expect("ended").success());
    let listed = stand.run("datasets", &[]);
    assert!(listed.contains("counts with the next rebuild"), "{listed}");
    assert!(stand.incoming().is_empty(), "{:?}", stand.incoming());
}

#[test]
fn loading_one_month_rewrites_one_month() {
    let stand = Stand::new();
    let server = stand.stored.serve(TODAY);
    let rows =
        "l,a,2012-01-05T10:00:00Z,1\nl,a,2012-02-05T10:00:00Z,2\nl,a,2011-02-05T10:00:00Z,3\n";
    let file = stand.file("first.csv", rows);
    stand.run("load", &["first", &file]);
    server.client().rebuild();
    let archive = PathBuf::from(stand.stored.argument()).join("archive");
    let files = || {
        let entries = fs::read_dir(&archive).expect("archive");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    };
    let before = files();
    let file = stand.file("second.csv", "l,a,2012-02-06T10:00:00Z,4\n");
    stand.run("load", &["second", &file]);
    server.client().rebuild();
    let after = files();
    let made: Vec<&String> = after.iter().filter(|name| !before.contains(name)).collect();
    assert!(
        made.iter().all(|name| name.starts_with("2012-02.")),
        "{made:?}"
    );
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(total(&server, "a"), 10);
    let work = || server.status()["last_rebuild"]["files"].clone();
    assert_eq!(work(), json!({"merged": 1, "linked": 0, "shared": 2}));
    // The day's own month is another file; what is older is shared.
    assert_eq!(server.get("/v1/incr?key.l=a").status, 204);
    server.terminate();
    let server = stand.stored.serve("2012-03-17T12:00:00Z@0");
    let status = server.wait_for_status("the 16th is archived", |status| {
        status["generation"] == 3 && status["last_rebuild"]["state"] == "done"
    });
    let work = &status["last_rebuild"]["files"];
    assert_eq!(work, &json!({"merged": 0, "linked": 1, "shared": 3}));
}

#[test]
fn another_number_of_shards_takes_effect_at_the_next_rebuild() {
    let stand = Stand::new();
    let config = stand.input.path().join("shards.toml");
    let config = config.to_str().expect("a path of text");
    let serve = |shards: u32, clock: &str| {
        fs::write(config, format!("shards = {shards}\n")).expect("written");
        Server::start(&stand.stored.data, &["--clock", clock, "--config", config])
    };
    let rows: String = (0..40)
        .map(|key| format!("l,k{key},2012-03-01T00:00:00Z,{key}\n"))
        .collect();
    let history = stand.file("history.csv", &rows);
    let check = |server: &Server, more: u64| {
        for key in 0..40 {
            assert_eq!(total(server, &format!("k{key}")), key + more, "k{key}");
        }
    };
    let count = |server: &Server| {
        for key in 0..40 {
            assert_eq!(server.get(&format!("/v1/incr?key.l=k{key}")).status, 204);
        }
    };
    let shards = || -> Vec<String> {
        let files = stand.stored.files("archive").into_iter();
        let mut shards: Vec<String> = files
            .map(|file| file.split("of").nth(1).expect("a count")[..2].to_owned())
            .collect();
        shards.dedup();
        shards
    };
    let server = serve(2, TODAY);
    count(&server);
    stand.run("load", &["history", &history]);
    server.client().rebuild();
    check(&server, 1);
    server.terminate();
    assert_eq!(shards(), ["02"]);
    for (number, more) in [(5, 2), (1, 3)] {
        let server = serve(number, TODAY);
        check(&server, more - 1);
        count(&server);
        check(&server, more);
        server.terminate();
    }
    let server = serve(3, "2012-03-17T12:00:00Z@0");
    server.wait_for_status("the 16th is archived", |status| status["generation"] == 2);
    check(&server, 3);
    for _ in 0..2 {
        // Files of generations that are no longer kept go.
        count(&server);
        server.client().rebuild();
    }
    server.terminate();
    stand.run("verify", &["--deep"]);
    assert!(shards().contains(&"03".to_owned()), "{:?}", shards());
    let server = serve(3, "2012-03-17T12:00:00Z@0");
    check(&server, 5);
}
