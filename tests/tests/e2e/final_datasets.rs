//! History that is loaded as final, by the real program.

use std::fs;

use serde_json::json;
use tallyring_tests::server::{tallyring, tallyring_ok};

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
