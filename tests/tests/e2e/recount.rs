//! Derived files can be made again: from the log, byte for byte, and a lost file costs only its own counts.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tallyring_archive::Blobs;
use tallyring_realtime::Recount;
use tallyring_records::Schema;
use tallyring_tests::server::{Server, tallyring, tallyring_ok};

use crate::stored::{Stored, copy, files, text};

const TODAY: &str = "2012-03-18T13:00:00Z@0";

/// Counts of all links, breakdowns of a long key, and rankings.
fn reads() -> Vec<String> {
    let links = (1..20).map(|link| format!("/v1/l/link{link}/counts?unit=hour&units=72"));
    let others = [
        "/v1/l/a%20link%20with%20blanks%2C%20commas%20and%20more/by/r?unit=day&units=7",
        "/v1/u/somebody/by/c?unit=day&units=7&rollup=false",
        "/v1/l/top?unit=week&units=1",
    ];
    links.chain(others.map(str::to_owned)).collect()
}

/// The answers, whatever the generation's number.
fn counts(mut answer: Value) -> Value {
    let fields = answer.as_object_mut().expect("an object");
    fields.remove("generation").expect("a generation");
    answer
}

fn answers(server: &Server) -> Vec<Value> {
    let reads = reads().into_iter();
    reads.map(|read| counts(server.get_json(&read))).collect()
}

fn verified(data: &Path) {
    let told = tallyring_ok(&["verify", "--deep", "--data", text(data)]);
    assert!(told.ends_with("all good\n"), "{told}");
}

fn answers_of(data: &Path) -> Vec<Value> {
    let server = Server::start(data, &["--clock", TODAY]);
    let answers = answers(&server);
    server.terminate();
    answers
}

/// Every derived file with its content.
fn derived(data: &Path) -> Vec<(String, Vec<u8>)> {
    let directories = ["manifests", "deltas", "ids", "runs", "archive"];
    let names = directories.iter().flat_map(|name| files(data, name));
    let read = |name: String| {
        let content = fs::read(data.join(&name)).expect("read");
        (name, content)
    };
    names.map(read).collect()
}

fn lose(data: &Path, directories: &[&str]) {
    for directory in directories {
        fs::remove_dir_all(data.join(directory)).expect("removed");
    }
}

/// Removes the files of one shard in these directories; their names.
fn lose_shard(data: &Path, directories: &[&str], shard: &str) -> Vec<String> {
    let names: Vec<String> = (directories.iter().flat_map(|name| files(data, name))).collect();
    let of_shard = names.iter().filter(|name| name.contains(shard));
    let lost: Vec<String> = of_shard.cloned().collect();
    assert!(!lost.is_empty(), "no file of {shard} is among {names:?}");
    for name in &lost {
        fs::remove_file(data.join(name)).expect("removed");
    }
    lost
}

#[test]
fn all_that_is_derived_is_made_again_from_the_log_and_equal_logs_give_equal_bytes() {
    let stored = Stored::with_a_file_of_every_kind();
    let expected = answers_of(&stored.data);
    let kinds: [&[&str]; 3] = [
        &["runs", "archive", "manifests", "deltas", "ids"],
        &["manifests"],
        &["runs", "archive"],
    ];
    for (number, lost) in kinds.into_iter().enumerate() {
        let one = stored.data.with_file_name(format!("one{number}"));
        let other = stored.data.with_file_name(format!("other{number}"));
        copy(&stored.data, &one);
        lose(&one, lost);
        copy(&one, &other);
        for data in [&one, &other] {
            let told = tallyring_ok(&["recount", "--data", text(data)]);
            assert!(told.contains("counted again from "), "{told}");
        }
        assert_eq!(derived(&one), derived(&other), "without {lost:?}");
        verified(&one);
        assert_eq!(answers_of(&one), expected, "without {lost:?}");
        verified(&one);
    }
}

#[test]
fn a_retry_is_a_duplicate_after_a_recount() {
    let stored = Stored::with_a_file_of_every_kind();
    lose(&stored.data, &["ids", "manifests"]);
    tallyring_ok(&["recount", "--data", stored.argument()]);
    let server = stored.serve(TODAY);
    let again = server.post(
        "/v1/increments",
        r#"[{"at": "2012-03-18T10:00:00Z", "keys": {"l": "link1"}, "id": "d1"}]"#,
    );
    assert_eq!(again.json()["duplicates"], 1, "{again:?}");
    server.terminate();
}

#[test]
fn repair_counts_again_what_nothing_else_has() {
    let stored = Stored::with_a_file_of_every_kind();
    let expected = answers_of(&stored.data);
    lose(&stored.data, &["runs", "archive"]);
    let found = tallyring(&["verify", "--data", stored.argument()]);
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.stderr.contains("--repair"), "{found:?}");
    let told = tallyring_ok(&["verify", "--repair", "--deep", "--data", stored.argument()]);
    assert!(told.contains("HEALED what is derived: "), "{told}");
    assert!(told.ends_with("all good\n"), "{told}");
    assert_eq!(answers_of(&stored.data), expected);
}

#[test]
fn a_repair_that_cannot_count_again_fails_says_why_and_changes_no_answer() {
    let stored = Stored::with_a_file_of_every_kind();
    load_two(&stored);
    let expected = answered_as_it_is(&stored.data);
    lose_shard(&stored.data, &["runs"], "ring-late");
    lose(&stored.data, &["archive"]);
    // The log, of which all would be counted again, is damaged, too.
    let segment = stored.files("oplog").into_iter().next();
    let segment = stored.data.join(segment.expect("a segment"));
    let whole = fs::read(&segment).expect("read");
    let mut damaged = whole.clone();
    damaged[200] ^= 1;
    fs::write(&segment, damaged).expect("written");
    for _ in 0..2 {
        let told = tallyring(&["verify", "--repair", "--data", stored.argument()]);
        assert_eq!(told.code, 1, "{told:?}");
        assert!(!told.stdout.contains("all good"), "{told:?}");
    }
    fs::write(&segment, whole).expect("written");
    let told = tallyring_ok(&["verify", "--repair", "--deep", "--data", stored.argument()]);
    assert!(told.ends_with("all good\n"), "{told}");
    assert_eq!(answered_as_it_is(&stored.data), expected);
}

#[test]
fn a_recount_puts_aside_a_directory_in_the_place_of_a_run_and_is_refused_by_a_link_to_nothing() {
    let stored = Stored::with_a_file_of_every_kind();
    load_two(&stored);
    let expected = answered_as_it_is(&stored.data);
    let mut runs = stored.files("runs").into_iter();
    let run = runs.find(|name| name.contains("ring-")).expect("a run");
    let in_the_way = stored.data.join(run);
    fs::remove_file(&in_the_way).expect("removed");
    fs::create_dir(&in_the_way).expect("made");
    tallyring_ok(&["recount", "--data", stored.argument()]);
    assert_eq!(answered_as_it_is(&stored.data), expected);
    verified(&stored.data);
    let mut aside = stored.files("aside").into_iter();
    assert!(aside.any(|name| stored.data.join(name).is_dir()));

    let link = stored.files("archive").remove(0);
    let link = stored.data.join(link);
    fs::remove_file(&link).expect("removed");
    std::os::unix::fs::symlink("nothing", &link).expect("made");
    let manifests = stored.files("manifests");
    let told = tallyring(&["recount", "--data", stored.argument()]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("move it away"), "{told:?}");
    assert_eq!(stored.files("manifests"), manifests);
}

#[test]
fn a_recount_from_a_day_on_keeps_what_is_older_and_changes_nothing_when_that_is_lost() {
    let stored = Stored::with_a_file_of_every_kind();
    let expected = answers_of(&stored.data);
    let recount = [
        "recount",
        "--from",
        "2012-03-17",
        "--data",
        stored.argument(),
    ];
    lose(&stored.data, &["deltas", "archive"]);
    let told = tallyring_ok(&recount);
    assert!(told.contains("source runs have what is older"), "{told}");
    verified(&stored.data);
    assert_eq!(answers_of(&stored.data), expected);

    lose_shard(&stored.data, &["runs"], "day-2012-03-16");
    let before = derived(&stored.data);
    let told = tallyring(&recount);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("nothing was changed"), "{told:?}");
    assert_eq!(derived(&stored.data), before);
    tallyring_ok(&["recount", "--data", stored.argument()]);
    assert_eq!(answers_of(&stored.data), expected);
}

#[test]
fn without_a_manifest_no_dataset_is_forgotten_in_silence() {
    let stored = Stored::with_a_file_of_every_kind();
    let rows = stored.data.with_file_name("rows.csv");
    fs::write(
        &rows,
        "namespace,key,hour,count\nl,old,2011-03-01T00:00:00Z,7\n",
    )
    .expect("written");
    tallyring_ok(&["load", "history", "--data", stored.argument(), text(&rows)]);
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
    let expected = answers_of(&stored.data);
    lose(&stored.data, &["archive"]);
    tallyring_ok(&["recount", "--data", stored.argument()]);
    assert_eq!(answers_of(&stored.data), expected);
    verified(&stored.data);
    let listed = tallyring_ok(&["datasets", "--data", stored.argument()]);
    assert!(
        listed.contains("history") && listed.contains("counted"),
        "{listed}"
    );
    lose(&stored.data, &["manifests"]);
    let refused = tallyring(&["recount", "--data", stored.argument()]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("runs/bulk-"), "{refused:?}");
    assert!(!stored.data.join("manifests").exists() || files(&stored.data, "manifests").is_empty());
}

#[test]
fn a_manifest_of_a_newer_build_is_not_passed_over() {
    let stored = Stored::with_a_file_of_every_kind();
    let newest = stored.files("manifests").pop();
    let newest = stored.data.join(newest.expect("a manifest"));
    let content = fs::read_to_string(&newest).expect("read");
    let format = content.split(' ').nth(2).expect("a format");
    let newer = content.replacen(format, "99", 1);
    fs::write(&newest, &newer).expect("written");
    for command in [&["recount"][..], &["verify", "--repair"]] {
        let refused = tallyring(&[command, &["--data", stored.argument()]].concat());
        assert_eq!(refused.code, 1, "{refused:?}");
        let output = refused.stderr.clone() + &refused.stdout;
        assert!(output.contains("format 99, this build reads"), "{output}");
        assert_eq!(fs::read_to_string(&newest).expect("kept"), newer);
    }
    fs::write(&newest, &content).expect("written back");
    verified(&stored.data);
}

/// Loads two datasets that share a month, and counts them.
fn load_two(stored: &Stored) {
    for (name, key, count) in [("history", "old", 7), ("more", "link1", 9)] {
        let rows = stored.data.with_file_name("rows.csv");
        let text_of = format!("namespace,key,hour,count\nl,{key},2012-03-01T00:00:00Z,{count}\n");
        fs::write(&rows, text_of).expect("written");
        tallyring_ok(&["load", name, "--data", stored.argument(), text(&rows)]);
    }
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
}

/// The answers of the directory before any server has rebuilt anything.
fn answered_as_it_is(data: &Path) -> Vec<String> {
    let keys = ["l/old", "l/link1", "l/link2", "u/somebody"];
    let query = |key| {
        let month = [
            "--unit",
            "month",
            "--units",
            "2",
            "--until",
            "2012-03-18T00:00:00Z",
        ];
        let arguments = [&["query", key, "--data", text(data)], &month[..]].concat();
        tallyring_ok(&arguments)
    };
    keys.map(query).to_vec()
}

#[test]
fn a_recount_that_ended_after_its_first_step_has_every_count_and_a_rebuild_ends_it() {
    let stored = Stored::with_a_file_of_every_kind();
    load_two(&stored);
    let (expected, answered) = (answered_as_it_is(&stored.data), answers_of(&stored.data));
    assert!(expected[0].contains('7'), "{expected:?}");
    let blobs = Blobs::local(&stored.data).expect("a directory");
    let plan = Recount::plan(&blobs, None, &Schema::default_clicks(), 4).expect("a plan");
    plan.manifest.commit(&blobs).expect("committed");
    let listed = tallyring_ok(&["datasets", "--data", stored.argument()]);
    assert!(!listed.contains("counts with"), "{listed}");
    assert_eq!(answered_as_it_is(&stored.data), expected);
    verified(&stored.data);
    assert_eq!(answers_of(&stored.data), answered);
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
    assert_eq!(answered_as_it_is(&stored.data), expected);
    verified(&stored.data);
}

#[test]
fn no_rollback_leads_to_the_generation_that_a_recount_began_with() {
    let stored = Stored::with_a_file_of_every_kind();
    load_two(&stored);
    tallyring_ok(&["recount", "--data", stored.argument()]);
    let expected = answers_of(&stored.data);
    let server = stored.serve(TODAY);
    let listed = server.get_json("/v1/admin/generations");
    let kept = listed["generations"].as_array().expect("a list");
    assert_eq!(kept.len(), 1, "{listed}");
    assert_eq!(kept[0]["generation"], listed["active"], "{listed}");
    let before = listed["active"].as_u64().expect("a number") - 1;
    let back = server.post(&format!("/v1/admin/generations/{before}/activate"), "{}");
    assert_eq!(back.status, 404, "{back:?}");
    let old = server.get(&format!(
        "/v1/l/old/counts?unit=month&units=1&as_of={before}"
    ));
    assert_eq!(old.status, 404, "{old:?}");
    assert_eq!(answers(&server), expected);
    server.terminate();
}

#[test]
fn the_generation_that_a_recount_began_with_can_be_asked_for_while_it_counts() {
    let stored = Stored::with_a_file_of_every_kind();
    load_two(&stored);
    let blobs = Blobs::local(&stored.data).expect("a directory");
    let plan = Recount::plan(&blobs, None, &Schema::default_clicks(), 4).expect("a plan");
    plan.manifest.commit(&blobs).expect("committed");
    // So soon after midnight no rebuild begins.
    let server = stored.serve("2012-03-19T00:00:30Z@0");
    let active = server.get_json("/v1/admin/generations")["active"].clone();
    let read = "/v1/l/old/counts?unit=month&units=1";
    let told = server.get_json(read);
    assert_eq!(told["generation"], active);
    assert_eq!(server.get_json(&format!("{read}&as_of={active}")), told);
    server.terminate();
}

#[test]
fn a_lost_file_costs_only_what_is_in_it_and_no_read_of_it_is_a_zero() {
    let stored = Stored::with_a_file_of_every_kind();
    let expected = answers_of(&stored.data);
    // Nobody has another copy.
    let lost = lose_shard(&stored.data, &["runs", "archive"], ".s01of04.");
    let server = stored.serve(TODAY);
    let status = server.status();
    assert_eq!(status["state"], "degraded", "{status}");
    let damaged = status["archive"]["damaged_files"].to_string();
    let named: Vec<&String> = lost.iter().filter(|name| damaged.contains(*name)).collect();
    assert!(!named.is_empty(), "{damaged}");
    assert!(named.iter().all(|name| server.messages().contains(*name)));
    let metrics = server.get("/metrics").text;
    assert!(!metrics.contains("tallyring_damaged_files 0"), "{metrics}");
    let (mut answered, mut refused) = (0, 0);
    for (read, expected) in reads().iter().zip(&expected) {
        let answer = server.get(read);
        match answer.status {
            200 => {
                assert_eq!(counts(answer.json()), *expected, "{read}");
                answered += 1;
            }
            status => {
                assert_eq!(status, 503, "{read}: {answer:?}");
                refused += 1;
            }
        }
    }
    assert!(answered > 5 && refused > 1, "{answered}, {refused}");
    // Times outside the file are answered for every key.
    for link in 1..20 {
        let read = format!("/v1/l/link{link}/counts?unit=hour&units=2");
        let later = server.get_json(&read);
        assert_eq!(later["total"], 0, "{later}");
    }
    let click = server.get("/v1/incr?key.l=link1&key.u=x");
    assert_eq!(click.status, 204, "it goes on counting: {click:?}");
    server.terminate();
    let told = tallyring_ok(&["verify", "--repair", "--deep", "--data", stored.argument()]);
    assert!(told.ends_with("all good\n"), "{told}");
}

#[test]
fn a_file_that_is_made_shorter_under_a_server_costs_only_its_reads() {
    let stored = Stored::with_a_file_of_every_kind();
    let server = stored.serve(TODAY);
    // No other file has their content.
    let mut cut = [files(&stored.data, "archive"), files(&stored.data, "runs")].concat();
    cut.retain(|name| name.contains(".s01of04."));
    for name in &cut {
        let path = stored.data.join(name);
        let file = fs::File::options().write(true).open(path);
        file.and_then(|file| file.set_len(8)).expect("shorter");
    }
    let (mut answered, mut refused) = (0, 0);
    for read in reads() {
        let answer = server.get(&read);
        match answer.status {
            200 => answered += 1,
            status => {
                assert_eq!(status, 503, "{read}: {answer:?}");
                let is_named = cut.iter().any(|name| answer.text.contains(name));
                assert!(is_named, "{answer:?}");
                refused += 1;
            }
        }
    }
    assert!(answered > 5 && refused > 1, "{answered}, {refused}");
    let status = server.status();
    let damaged = status["archive"]["damaged_files"].as_array();
    let damaged = damaged.expect("a list");
    assert!(
        status["state"] == "degraded" && !damaged.is_empty(),
        "{status:#}"
    );
    let click = server.get("/v1/incr?key.l=link1&key.u=x");
    assert_eq!(click.status, 204, "it goes on counting: {click:?}");
    server.terminate();
}

#[test]
fn what_is_no_file_in_the_place_of_a_sorted_file_costs_only_its_reads_and_is_put_aside() {
    let stored = Stored::with_a_file_of_every_kind();
    let expected = answers_of(&stored.data);
    for directory in ["archive", "deltas", "ids"] {
        let name = files(&stored.data, directory).remove(0);
        let path = stored.data.join(name);
        fs::remove_file(&path).expect("it goes");
        fs::create_dir(&path).expect("a directory in its place");
    }
    let server = stored.serve(TODAY);
    server.terminate();
    let told = tallyring_ok(&["verify", "--repair", "--deep", "--data", stored.argument()]);
    assert!(told.ends_with("all good\n"), "{told}");
    assert_eq!(answers_of(&stored.data), expected);
    assert!(!files(&stored.data, "aside").is_empty());
}

#[test]
fn a_server_heals_from_the_log_what_it_finds_lost() {
    let stored = Stored::with_a_file_of_every_kind();
    let expected = answers_of(&stored.data);
    lose(&stored.data, &["deltas"]);
    let server = stored.serve(TODAY);
    server.wait_for_status("it is healed", |status| status["state"] == "ok");
    assert_eq!(answers(&server), expected);
    assert!(
        server.messages().contains("from=\"the log\""),
        "{}",
        server.messages()
    );
    server.terminate();
    verified(&stored.data);
}

#[test]
fn a_server_heals_from_its_backup_what_it_finds_lost_and_without_one_says_that_there_is_one_copy() {
    let stored = Stored::with_one_day();
    let server = stored.serve("2012-03-17T12:00:00Z@0");
    server.wait_for_status("the 16th is archived", |status| status["generation"] == 1);
    let single = server.status()["archive"]["single_copy_bytes"].clone();
    assert!(single.as_u64() > Some(0), "{single}");
    let shown = tallyring_ok(&["status", "--data", stored.argument()]);
    assert!(shown.contains("have one copy: this one"), "{shown}");
    server.terminate();
    let server = stored.serve(TODAY);
    // A rebuild that the end of the server cuts short would leave the next one degraded for a minute.
    server.rebuild();
    let expected = answers(&server);
    server.terminate();
    let backup = stored.data.with_file_name("copy");
    tallyring_ok(&["backup", text(&backup), "--data", stored.argument()]);
    lose_shard(&stored.data, &["runs", "archive"], ".s01of04.");
    let config = stored.data.with_file_name("backup.toml");
    let path = text(&backup);
    fs::write(&config, format!("[backup]\npath = {path:?}\n")).expect("write it");
    let server = Server::start(&stored.data, &["--clock", TODAY, "--config", text(&config)]);
    server.wait_for_status("it is healed", |status| status["state"] == "ok");
    assert_eq!(server.status()["archive"]["single_copy_bytes"], 0);
    assert_eq!(answers(&server), expected);
    server.terminate();
    verified(&stored.data);
}
