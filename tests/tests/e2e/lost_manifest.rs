//! The newest manifest is lost: every command refuses and names it, and `verify --repair` is the way out.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tallyring_tests::server::{tallyring, tallyring_ok};

use crate::stored::{Stored, files, text};

const ROWS: &str = "namespace,key,hour,count\nl,loaded,2011-05-01T10:00:00Z,1000\n";

/// A store whose newest manifest adopted a dataset, and a backup from before and after that.
struct Stand {
    stored: Stored,
    backup: PathBuf,
}

impl Stand {
    fn new() -> Self {
        let stored = Stored::with_a_file_of_every_kind();
        let backup = stored.data.with_file_name("backup");
        let rows = stored.data.with_file_name("rows.csv");
        fs::write(&rows, ROWS).expect("written");
        let stand = Self { stored, backup };
        // The wall clock of commands turns the ring first.
        stand.run("rebuild", &[]);
        stand.run("backup", &[text(&stand.backup)]);
        stand.run("load", &["history", text(&rows)]);
        stand.run("backup", &[text(&stand.backup)]);
        stand
    }

    fn run(&self, command: &str, rest: &[&str]) -> String {
        tallyring_ok(&[&[command, "--data", self.stored.argument()], rest].concat())
    }

    /// Every command says which file was lost, and removes none.
    fn refused(&self, lost: &str) {
        let all = || -> Vec<String> {
            let directories = ["archive", "deltas", "ids", "manifests", "runs"];
            let files = directories.iter().map(|one| self.stored.files(one));
            files.flatten().collect()
        };
        let before = all();
        for arguments in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["rebuild"],
            &["query", "l/link1"],
            &["verify"],
        ] {
            let ended = tallyring(&[arguments, &["--data", self.stored.argument()]].concat());
            assert_ne!(ended.code, 0, "{arguments:?}: {ended:?}");
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(said.contains(lost), "{arguments:?}: {said}");
            assert!(said.contains("verify --repair"), "{arguments:?}: {said}");
        }
        assert_eq!(all(), before);
    }
}

/// Removes the newest manifest of a directory; its name.
fn lose_newest_manifest(data: &Path) -> String {
    let name = files(data, "manifests").pop().expect("a manifest");
    fs::remove_file(data.join(&name)).expect("removed");
    name
}

#[test]
fn a_lost_manifest_is_put_back_from_the_backup() {
    let stand = Stand::new();
    let lost = lose_newest_manifest(&stand.stored.data);
    stand.refused(&lost);
    let told = stand.run("verify", &["--repair", "--backup", text(&stand.backup)]);
    assert!(
        told.contains(&format!("HEALED {lost} from the backup")),
        "{told}"
    );
    assert!(told.ends_with("all good\n"), "{told}");
    let datasets = stand.run("datasets", &[]);
    assert!(datasets.contains("history"), "{datasets}");
}

#[test]
fn without_a_backup_repair_goes_on_from_the_manifest_before_and_keeps_the_files() {
    let stand = Stand::new();
    let lost = lose_newest_manifest(&stand.stored.data);
    let told = stand.run("verify", &["--repair"]);
    assert!(
        told.contains("HEALED the store goes on from manifest"),
        "{told}"
    );
    let datasets = stand.run("datasets", &["--output", "json"]);
    assert!(!datasets.contains("history"), "{datasets}");
    let server = stand.stored.serve("2012-03-18T13:00:00Z");
    let aside = stand.stored.files("aside");
    assert_eq!(aside.len(), 1, "{aside:?}");
    let status = server.status();
    let named = status["archive"]["aside_files"][0].as_str();
    assert_eq!(
        named.map(|file| format!("aside/{file}")),
        aside.first().cloned()
    );
    let count = server.get_json("/v1/l/link1/counts?unit=day&units=7");
    assert_ne!(count["total"], json!(0), "what is in the log counts");
    server.terminate();
    // Its number is taken again, by another.
    assert!(stand.stored.files("manifests").contains(&lost));
    let log = stand.run("cat", &["oplog"]);
    assert!(log.contains(" manifest number="), "{log}");
}

#[test]
fn a_backup_whose_log_names_a_later_manifest_is_restored() {
    let stand = Stand::new();
    lose_newest_manifest(&stand.backup);
    let restored = stand.stored.data.with_file_name("restored");
    tallyring_ok(&["restore", text(&stand.backup), "--data", text(&restored)]);
    let told = tallyring_ok(&["verify", "--data", text(&restored)]);
    assert!(told.ends_with("all good\n"), "{told}");
    tallyring_ok(&["rebuild", "--data", text(&restored)]);
}
