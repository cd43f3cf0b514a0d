//! Final datasets that have lost files, or that the log alone knows.

use std::fs;
use std::path::Path;

use serde_json::json;
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok, wait_until};

use crate::final_datasets::{
    CLOSED, final_number, final_numbers, load_final, reasons, restore, with_clicks,
};
use crate::final_numbers::{reconcile, start};
use crate::stored::{files, text};
use crate::voids::audit;

/// Removes the files of `data` that only the dataset has, and what a generation made of them.
fn lose_files(data: &Path) {
    for (directory, of) in [("runs", "bulk-"), ("archive", "2026-02")] {
        let all = files(data, directory).into_iter();
        let lost: Vec<String> = all.filter(|name| name.contains(of)).collect();
        assert!(!lost.is_empty(), "{directory}");
        for file in lost {
            fs::remove_file(data.join(file)).expect("removed");
        }
    }
}

/// The manifest knows the dataset, and so does the log; the files alone are gone.
#[test]
fn a_final_dataset_whose_files_are_lost_is_healed_by_exactly_its_load() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let data = directory.join("data");
    let (server, section) = with_clicks(directory);
    load_final(directory, "h", 100).expect("loaded");
    server.client().rebuild();
    let closed = reconcile(server.client(), &json!({"day": "2026-03-10"}));
    assert_eq!(closed["version"], 1);
    let refused = load_final(directory, "h", 100).expect_err("it is whole");
    assert!(refused.contains("are part of final numbers"), "{refused}");
    server.terminate();

    lose_files(&data);
    let server = start(directory, CLOSED, &section);
    let range = "from=2026-02-01T00:00:00Z&to=2026-02-01T23:59:59Z";
    let path = format!("/v1/ad_click/42/counts?{range}&basis=final");
    assert_eq!(server.get(&path).status, 503, "no zero that is not true");
    let refused = load_final(directory, "h", 101).expect_err("other counts");
    assert!(
        refused.contains("files of the dataset `h` are gone or damaged")
            && refused.contains("load exactly its counts, which these are not"),
        "{refused}"
    );
    load_final(directory, "h", 100).expect("it is that dataset");
    server.client().rebuild();
    assert_eq!(final_numbers(server.client()), [Ok(55), Ok(100)]);
    // The files have the bytes of before, so those of the kept generation are healed by them.
    wait_until("all is healed", || reasons(server.client()) == "[]");
    server.kill9();
    let server = start(directory, CLOSED, &section);
    assert_eq!(final_numbers(server.client()), [Ok(55), Ok(100)]);
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", text(&data)]);
}

/// Gives the dataset `h` up, and expects that to be refused with these words, if any.
fn give_up(directory: &Path, reason: &str, refused: Option<&str>) {
    let (data, config) = (directory.join("data"), directory.join("c.toml"));
    let on = ["--data", text(&data), "--config", text(&config)];
    let told = tallyring(&[&["drop", "h", "--gone", reason][..], &on].concat());
    match refused {
        None => assert_eq!(told.code, 0, "{told:?}"),
        Some(words) => assert!(
            told.code != 0 && told.stderr.contains(words),
            "{words}: {told:?}"
        ),
    }
}

/// Nothing is missed, and the final numbers are those of the log.
fn is_gone(client: &Client) {
    wait_until("nothing is missed", || reasons(client) == "[]");
    let [of_log, of_load] = final_numbers(client);
    assert_eq!(of_log, Ok(5));
    let why = of_load.expect_err("nothing of it is known");
    assert!(why.contains("2026-02-01 is not final"), "{why}");
}

/// A server with a final day of which a dataset `h` has counts, a backup from before the load, and the configuration.
fn with_final_dataset(directory: &Path) -> (Server, String) {
    let [data, backup] = ["data", "backup"].map(|name| directory.join(name));
    let (server, section) = with_clicks(directory);
    tallyring_ok(&["backup", text(&backup), "--data", text(&data)]);
    load_final(directory, "h", 100).expect("loaded");
    server.client().rebuild();
    let closed = reconcile(server.client(), &json!({"day": "2026-03-10"}));
    assert_eq!(closed["version"], 1);
    assert_eq!(final_numbers(server.client()), [Ok(55), Ok(100)]);
    (server, section)
}

#[test]
fn a_final_dataset_that_has_lost_files_can_be_given_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let data = directory.join("data");
    let (server, section) = with_final_dataset(directory);
    give_up(directory, "no need", Some("its files are whole"));
    give_up(directory, " ", Some("--gone must be the reason"));
    server.terminate();

    lose_files(&data);
    let server = start(directory, CLOSED, &section);
    wait_until("the files are missed", || reasons(server.client()) != "[]");
    give_up(directory, "the disk burnt", None);
    give_up(directory, "again", Some("no dataset has that name"));
    final_number(server.client(), "2026-03-10").expect_err("a generation counts it");
    server.client().rebuild();
    is_gone(server.client());
    let trail = audit(directory, &["--day", "2026-02-20"]);
    assert!(
        trail.contains("  gone      2026-02-01..2026-03-10 h: 2 rows of ad_click; content ")
            && trail.contains(" by installation: \"the disk burnt\""),
        "{trail}"
    );
    server.kill9();
    let server = start(directory, CLOSED, &section);
    is_gone(server.client());
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", text(&data)]);

    // The log alone knows of both records now.
    restore(directory);
    let server = start(directory, CLOSED, &section);
    is_gone(server.client());
    server.terminate();
    fs::remove_dir_all(data.join("manifests")).expect("removed");
    let config = directory.join("c.toml");
    tallyring_ok(&["recount", "--data", text(&data), "--config", text(&config)]);
    let server = start(directory, CLOSED, &section);
    is_gone(server.client());
    server.terminate();
}

#[test]
fn a_final_dataset_that_the_log_alone_knows_can_be_given_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let (server, section) = with_final_dataset(directory);
    server.kill9();
    restore(directory);
    // Without a server, and then read again from the log.
    give_up(directory, "nobody has the files", None);
    let server = start(directory, CLOSED, &section);
    is_gone(server.client());
    server.kill9();
    let server = start(directory, CLOSED, &section);
    is_gone(server.client());
    load_final(directory, "h", 100).expect_err("10 March is final without it");
    server.terminate();
}

/// Loads 7 counts of February into a namespace that counts by the hour or by the quarter of an hour.
fn load_l(directory: &Path) -> Result<(), String> {
    let [file, data, config] = ["l.csv", "data", "c.toml"].map(|name| directory.join(name));
    let rows = "namespace,key,hour,count\nl,a,2026-02-01T10:00:00Z,3\nl,a,2026-02-01T11:20:00Z,4\n";
    fs::write(&file, rows).expect("written");
    let on = ["--data", text(&data), "--config", text(&config)];
    let loaded = tallyring(&[&["load", "g", text(&file), "--final"][..], &on].concat());
    match loaded.code {
        0 => Ok(()),
        _ => Err(loaded.stderr),
    }
}

#[test]
fn a_refused_load_names_the_declaration_that_gives_its_counts_another_form() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let [data, backup] = ["data", "backup"].map(|name| directory.join(name));
    let (server, section) = with_clicks(directory);
    server.terminate();
    // A file that declares something has all declarations.
    let without =
        format!("{section}[events.click]\nentities = [\"ad\"]\nsubtotals = [\"device\"]\n");
    let with = |grain: &str| format!("{without}[[namespace]]\nname = \"l\"\ngrain = \"{grain}\"\n");
    let server = start(directory, CLOSED, &with("hour"));
    tallyring_ok(&["backup", text(&backup), "--data", text(&data)]);
    load_l(directory).expect("loaded");
    server.client().rebuild();
    server.kill9();

    restore(directory);
    let server = start(directory, CLOSED, &with("quarter"));
    let says = "the namespace `l` has `grain = \"quarter\"`, and had `grain = \"hour\"`: declare that for the load";
    let refused = load_l(directory).expect_err("other buckets");
    assert!(refused.contains(says), "{refused}");
    let why = reasons(server.client());
    assert!(why.contains("tallyring load g FILE… --final"), "{why}");
    assert!(why.contains("`l` has `grain"), "{why}");
    let listed = server.get_json("/v1/admin/datasets");
    assert_eq!(listed["datasets"], json!([]), "{listed}");
    assert_eq!(listed["lost"][0]["name"], "g", "{listed}");
    let told = tallyring_ok(&["datasets", "--data", text(&data)]);
    assert!(told.contains("lost, final"), "{told}");
    assert!(told.contains("tallyring load g FILE… --final"), "{told}");
    server.terminate();

    let server = start(directory, CLOSED, &without);
    let why = reasons(server.client());
    assert!(
        why.contains("the namespace `l` is not declared any more"),
        "{why}"
    );
    server.terminate();

    let server = start(directory, CLOSED, &with("hour"));
    load_l(directory).expect("it is that dataset");
    server.client().rebuild();
    assert_eq!(reasons(server.client()), "[]");
    assert!(
        final_number(server.client(), "2026-03-10").is_err(),
        "nobody made it final"
    );
    server.terminate();
}
