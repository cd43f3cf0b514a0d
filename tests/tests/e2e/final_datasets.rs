//! History that is loaded as final, by the real program.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tallyring_tests::server::{Server, tallyring, tallyring_ok};

use crate::stored::Stored;

const NOW: &str = "2012-03-16T12:00:00Z@0";
const DAY: &str = "/v1/l/a/counts?unit=day&from=2011-05-01T00:00:00Z&to=2011-05-01T23:00:00Z";

#[test]
fn loaded_history_is_final_where_it_was_loaded_as_final() {
    let stored = Stored::new();
    let server = stored.serve(NOW);
    assert_eq!(server.get("/v1/incr?key.l=a&n=5").status, 204);
    let input = tempfile::tempdir().expect("a directory");
    let file = input.path().join("history.csv");
    let rows = "namespace,key,hour,count\nl,a,2011-05-01T10:00:00Z,100\n";
    fs::write(&file, rows).expect("written");
    let file = file.to_str().expect("a path of text");
    let run = |command: &str, rest: &[&str]| {
        let all = [&[command, "--data", stored.argument()], rest].concat();
        tallyring(&all)
    };
    let is_final = format!("{DAY}&basis=final");
    assert_eq!(run("load", &["history", file]).code, 0);
    server.client().rebuild();
    assert_eq!(server.get_json(DAY)["state"], "provisional");
    let refused = server.get(&is_final);
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(
        refused
            .text
            .contains("`history`, which was not loaded with --final: drop it"),
        "{}",
        refused.text
    );

    let replaced = run("load", &["history", file, "--replace", "--final"]);
    assert_eq!(replaced.code, 0, "{replaced:?}");
    server.client().rebuild();
    for path in [DAY, &is_final] {
        let answer = server.get_json(path);
        assert_eq!(
            (&answer["state"], &answer["total"]),
            (&json!("final"), &json!(100)),
            "{answer}"
        );
    }
    for (command, rest) in [
        ("drop", &["history"][..]),
        ("load", &["history", file, "--replace"]),
    ] {
        let refused = run(command, rest);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(
            refused.stderr.contains("are part of final numbers"),
            "{refused:?}"
        );
    }
    let listed = server.get_json("/v1/admin/datasets");
    assert_eq!(listed["datasets"][1]["final"], true, "{listed}");
    let told = run("datasets", &[]);
    assert!(told.stdout.contains("counted, final"), "{told:?}");
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", stored.argument()]);
}

const EVENTS: &str = "[events.imp]\nentities = [\"ad\"]\n[events.click]\nentities = [\"ad\"]\n\
    [ratios.ctr]\nnumerator = \"click\"\ndenominator = \"imp\"\n";

#[test]
fn a_ratio_of_final_numbers_needs_both_counts_to_be_final() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        let path = directory.path().join(name);
        path.to_str().expect("a path of text").to_owned()
    };
    let (data, config, file) = (path("data"), path("c.toml"), path("x.csv"));
    fs::write(&config, EVENTS).expect("written");
    let server = Server::start(
        &PathBuf::from(&data),
        &["--clock", NOW, "--config", &config],
    );
    let load = |name: &str, rows: &[(&str, u32, u64)], last: &[&str]| {
        let rows = rows.iter();
        let rows = rows.map(|(of, day, n)| format!("ad_{of},42,2011-05-{day:02}T10:00:00Z,{n}\n"));
        let text = format!("namespace,key,hour,count\n{}", rows.collect::<String>());
        fs::write(&file, text).expect("written");
        tallyring(&[&["load", "--data", &data, name, &file], last].concat())
    };
    for (name, rows, last) in [
        ("imp", &[("imp", 1, 1_000)][..], &["--final"][..]),
        ("click", &[("click", 1, 10), ("click", 3, 10)], &["--final"]),
        ("beside", &[("imp", 2, 1_000)], &[]),
    ] {
        let loaded = load(name, rows, last);
        assert_eq!(loaded.code, 0, "{loaded:?}");
    }
    server.client().rebuild();
    let ratio = |day: u32, basis: &str| {
        let day = format!("2011-05-{day:02}T");
        let range = format!("from={day}00:00:00Z&to={day}23:00:00Z");
        server.get(&format!("/v1/ratios/ctr/ad/42?unit=day&{range}{basis}"))
    };
    for basis in ["", "&basis=final"] {
        let answer = ratio(1, basis).json();
        let found = ["numerator", "denominator", "state"].map(|name| answer[name].clone());
        assert_eq!(found, [json!(10), json!(1_000), json!("final")], "{answer}");
    }
    for (day, why) in [
        (2, "2011-05-02 may have counts of the dataset `beside`"),
        (3, "2011-05-03 is not final"),
    ] {
        assert_eq!(ratio(day, "").json()["state"], "provisional", "{day}");
        let refused = ratio(day, "&basis=final");
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains(why), "{}", refused.text);
    }
    let refused = load("again", &[("click", 2, 1)], &["--final"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("2011-05-02 is final by the dataset `click`"),
        "{refused:?}"
    );
    server.terminate();
}
