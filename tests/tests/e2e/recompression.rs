//! Recompression: the archive of closed years becomes smaller, and nothing else changes.

use std::fmt::Write;
use std::fs;

use serde_json::Value;
use tallyring_tests::server::{Finished, tallyring, tallyring_ok, wait_until};

use crate::stored::Stored;

const TODAY: &str = "2012-03-16T12:00:00Z@0";
const NIGHT: &str = "2012-03-17T00:06:00Z@0";

/// Clicks of 2011, a closed year, in two countries, and one of an open one.
fn load(stored: &Stored, name: &str) {
    let mut rows = String::from("namespace,key,hour,count,subtotal,value\n");
    for hour in 0..1_500_u32 {
        let at = 1_293_840_000 + i64::from(hour) * 3_600;
        let (some, more) = (hour * 7_919 % 23, hour * 104_729 % 11);
        let key = hour * 31 % 17;
        writeln!(rows, "l,k{key},{at},{},,", some + more + 2).expect("a text");
        writeln!(rows, "l,k{key},{at},{},c,US", some + 1).expect("a text");
        writeln!(rows, "l,k{key},{at},{},c,JP", more + 1).expect("a text");
    }
    rows.push_str("l,k1,2012-02-01T00:00:00Z,5,,\n");
    let file = stored.data.with_extension("csv");
    fs::write(&file, rows).expect("written");
    let file = file.to_str().expect("a name");
    tallyring_ok(&["load", name, "--data", stored.argument(), file]);
}

/// The answers that clients read.
fn answers(stored: &Stored) -> Vec<Value> {
    let server = stored.serve(TODAY);
    let range = "unit=day&from=2011-01-01T00:00:00Z&to=2012-03-01T00:00:00Z&timezone=Asia/Kolkata";
    let answers = (0..17).flat_map(|key| {
        [
            server.get_json(&format!("/v1/l/k{key}/counts?{range}")),
            server.get_json(&format!("/v1/l/k{key}/by/c?{range}")),
        ]
    });
    let answers = answers.collect();
    server.terminate();
    answers
}

fn bytes(stored: &Stored) -> u64 {
    let files = stored.files("archive").into_iter();
    let sizes = files.map(|file| fs::metadata(stored.data.join(file)));
    sizes.map(|file| file.expect("a file").len()).sum()
}

/// `recompress` on it.
fn again(stored: &Stored) -> Finished {
    tallyring(&["recompress", "--data", stored.argument()])
}

fn verified(stored: &Stored) {
    let verified = tallyring_ok(&["verify", "--deep", "--data", stored.argument()]);
    assert!(verified.contains("all good"), "{verified}");
}

#[test]
fn closed_years_become_smaller_and_read_the_same() {
    let stored = Stored::new();
    load(&stored, "history");
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
    let (before, read) = (bytes(&stored), answers(&stored));
    let said = again(&stored).stdout;
    assert!(said.contains("of closed years: "), "{said}");
    assert!(bytes(&stored) < before, "{} of {before}", bytes(&stored));
    assert_eq!(answers(&stored), read);
    verified(&stored);
    // Runs and the archive are one content with two names, as before.
    let hashes = |directory: &str| -> Vec<String> {
        let files = stored.files(directory).into_iter();
        let hash = |file: String| file.rsplit('.').nth(2).expect("a hash").to_owned();
        files.map(hash).collect()
    };
    assert_eq!(hashes("runs"), hashes("archive"));
    let said = again(&stored).stdout;
    assert!(
        said.starts_with("no file of a closed year was written at less"),
        "{said}"
    );
    // It is no rebuild, and leaves nothing to one.
    let rebuilt = tallyring_ok(&["rebuild", "--data", stored.argument()]);
    assert!(rebuilt.contains("generation 1 stands: nothing is new"));
}

#[test]
fn clicks_after_a_recompression_go_on_from_it() {
    let stored = Stored::new();
    for name in ["one", "two"] {
        load(&stored, name);
    }
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
    let read = answers(&stored);
    assert_eq!(again(&stored).code, 0);
    verified(&stored);
    // A backup has what there is now, and heals it.
    let copy = stored.data.with_extension("copy");
    let copy = copy.to_str().expect("a name");
    tallyring_ok(&["backup", copy, "--data", stored.argument()]);
    let harmed = stored.data.join(&stored.files("archive")[0]);
    let mut content = fs::read(&harmed).expect("a file");
    content[100] ^= 1;
    fs::write(&harmed, content).expect("harmed");
    tallyring_ok(&[
        "verify",
        "--repair",
        "--backup",
        copy,
        "--data",
        stored.argument(),
    ]);
    // A dataset goes, and is back when the generation before it is read again.
    tallyring_ok(&["drop", "two", "--data", stored.argument()]);
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
    verified(&stored);
    assert_ne!(answers(&stored), read);
    assert_eq!(again(&stored).code, 0);
    verified(&stored);
    let server = stored.serve(TODAY);
    assert_eq!(
        server.post("/v1/admin/generations/1/activate", "").status,
        200
    );
    server.terminate();
    let numbered = |answers: Vec<Value>| -> Vec<Value> {
        let totals = answers.into_iter().map(|answer| answer["total"].clone());
        totals.collect()
    };
    assert_eq!(numbered(answers(&stored)), numbered(read));
    verified(&stored);
}

#[test]
fn a_damaged_file_stays_as_it_is_and_holds_nothing_up() {
    let stored = Stored::new();
    load(&stored, "history");
    tallyring_ok(&["rebuild", "--data", stored.argument()]);
    let before = stored.files("archive");
    let harmed = before
        .iter()
        .find(|file| file.starts_with("archive/2011."))
        .expect("a file");
    let mut content = fs::read(stored.data.join(harmed)).expect("a file");
    content[100] ^= 1;
    fs::write(stored.data.join(harmed), content).expect("harmed");
    for _ in 0..2 {
        let ended = again(&stored);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(
            ended.stderr.contains("1 file stayed as before: "),
            "{ended:?}"
        );
    }
    let after = stored.files("archive");
    let is_old = |file: &&String| before.contains(file) && file.starts_with("archive/2011.");
    let kept: Vec<&String> = after.iter().filter(is_old).collect();
    assert_eq!(kept, [harmed]);
}

#[test]
fn a_server_recompresses_after_its_nightly_rebuild_and_at_no_other_time() {
    let stored = Stored::new();
    let server = stored.serve(TODAY);
    assert_eq!(server.get("/v1/incr?key.l=k1").status, 204);
    load(&stored, "history");
    assert_eq!(server.rebuild(), 1);
    let refused = tallyring(&["recompress", "--data", stored.argument()]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("after its nightly rebuild"),
        "{}",
        refused.stderr
    );
    server.terminate();
    let before = bytes(&stored);
    let server = stored.serve(NIGHT);
    let closed = |messages: &str| messages.matches(": recompressed ").count();
    let files = stored
        .files("archive")
        .iter()
        .filter(|file| file.starts_with("archive/2011."))
        .count();
    wait_until("all files of the closed year are written again", || {
        closed(&server.messages()) == files
    });
    assert_eq!(
        server.get_json("/v1/l/k1/counts?unit=day&units=90")["total"],
        6
    );
    server.terminate();
    assert!(bytes(&stored) < before);
    verified(&stored);
}

#[test]
fn a_failed_recompression_removes_nothing_that_others_write() {
    let stored = Stored::new();
    let server = stored.serve(TODAY);
    assert_eq!(server.get("/v1/incr?key.l=k1").status, 204);
    load(&stored, "history");
    assert_eq!(server.rebuild(), 1);
    server.terminate();
    let archive = stored.files("archive");
    let of_2011 = archive
        .iter()
        .find(|file| file.starts_with("archive/2011."));
    let harmed = stored.data.join(of_2011.expect("a file"));
    let mut content = fs::read(&harmed).expect("a file");
    content[100] ^= 1;
    fs::write(&harmed, content).expect("harmed");
    let server = stored.serve(NIGHT);
    // Neither was made by this server.
    let others = ["archive/2011.tmp", "archive/2011.csv.zst"].map(|name| stored.data.join(name));
    for other in &others {
        fs::write(other, "half").expect("written");
    }
    wait_until("a file cannot be recompressed", || {
        server.messages().contains("recompression failed")
    });
    assert!(harmed.exists());
    // Files are read in the same night.
    let named = Value::from(of_2011.expect("a file").as_str());
    wait_until("the damaged file is told of", || {
        let status = server.get_json("/v1/admin/status");
        let damaged = status["archive"]["damaged_files"].as_array();
        let is_told = damaged.expect("a list").contains(&named);
        assert!(!is_told || status["state"] == "degraded", "{status}");
        is_told
    });
    let metrics = server.get("/metrics").text;
    assert!(!metrics.contains("tallyring_damaged_files 0"), "{metrics}");
    server.terminate();
    assert!(others.iter().all(|other| other.exists()), "both are kept");
}
