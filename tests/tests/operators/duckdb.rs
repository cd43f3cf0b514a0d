//! DuckDB reads exported files by the recipe of the docs.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tallyring_tests::needs::skipped;
use tallyring_tests::server::{tallyring_ok, workspace};
use tempfile::TempDir;

/// Runs each statement, and prints the rows of its result as JSON. Ends with 3 where DuckDB is not there.
const SCRIPT: &str = "\
import json, sys
try:
    import duckdb
except ImportError as error:
    sys.exit(print(error, file=sys.stderr) or 3)
for statement in filter(str.strip, sys.stdin.read().split(';')):
    print(json.dumps(duckdb.execute(statement).fetchall(), default=str))
";

/// The answers of DuckDB to the recipe, of files in `directory`; none without DuckDB.
fn answers(directory: &Path) -> Option<Vec<Value>> {
    let page = std::fs::read_to_string(workspace().join("docs/export.md")).expect("the docs");
    let (_, recipe) = page.split_once("```sql\n").expect("a recipe");
    let (recipe, _) = recipe.split_once("```").expect("its end");
    let recipe = recipe.replace("/srv/clicks", directory.to_str().expect("a path of text"));
    let input = directory.join("recipe.sql");
    std::fs::write(&input, recipe).expect("written");
    let input = std::fs::File::open(input).expect("opened");
    let mut python = Command::new("python3");
    let output = match python.args(["-c", SCRIPT]).stdin(input).output() {
        Ok(output) => output,
        Err(error) => {
            skipped("the recipe for DuckDB", &error.to_string());
            return None;
        }
    };
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        skipped("the recipe for DuckDB", &error);
        return None;
    }
    assert!(output.status.success(), "{error}");
    let lines = String::from_utf8(output.stdout).expect("text");
    let answers = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    Some(answers.collect())
}

#[test]
fn duckdb_reads_exported_files_by_the_recipe() {
    let directory = TempDir::new().expect("a directory");
    let [data, target, rows] = ["data", "out", "rows.csv"].map(|of| directory.path().join(of));
    let [data, target] = [&data, &target].map(|of| of.to_str().expect("a path of text"));
    let history = "namespace,key,hour,count,subtotal,value,unit\n\
        l,abc,2011-03-02T18:00:00Z,12,,,\nl,abc,2011-03-02T18:00:00Z,9,c,US,\nl,abc,2011-03-02T18:00:00Z,3,c,DE,\n\
        l,\"=\"\"a\"\",\\n\",2011-05-01,7,,,day\nu,x,2011-05-02,1,,,day\n";
    std::fs::write(&rows, history).expect("written");
    tallyring_ok(&["load", "h", rows.to_str().expect("text"), "--data", data]);
    tallyring_ok(&["rebuild", "--data", data]);
    tallyring_ok(&["export", target, "--data", data]);
    let Some(answers) = answers(Path::new(target)) else {
        return;
    };
    let months = json!([
        ["l", "2011-03-01 00:00:00", 12],
        ["l", "2011-05-01 00:00:00", 7],
        ["u", "2011-05-01 00:00:00", 1],
    ]);
    assert_eq!(answers[1..], [months, json!([["US", 9], ["DE", 3]])]);
}
