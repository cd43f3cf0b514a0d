//! A small file system fills up under a server: acknowledged clicks count, refused ones do not, and the server goes on
//! once there is space again. These tests need the right to mount a file system, and say `skipped` without it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tallyring_tests::needs::skipped;
use tallyring_tests::server::{Answer, Client, Server, tallyring, tallyring_ok};
use tempfile::TempDir;

use crate::chance::Chance;
use crate::stored::files;
use crate::{final_faults, final_numbers};

const DISK: &str = "size=40m";
/// Space that each cycle gives back.
const SHARE_BYTES: u64 = 4 << 20;
/// Space that the rebuild at the end has: it cannot count on old segments to be packed by then.
const REBUILD_BYTES: u64 = 8 << 20;
const CYCLES: u64 = 4;
const CONFIG: &str = "[memory]\nreplay_records = 20000\n[oplog]\nsegment_mib = 1\n";
/// Memory is not flushed, so that it is the log that finds no space.
const CONFIG_OF_THE_LOG: &str = "[oplog]\nsegment_mib = 1\n";
const CLOCK: &str = "2012-03-16T12:00:00Z";
/// It stands, so that nothing is written for idleness between two calls.
const STANDING_CLOCK: &str = "2012-03-16T12:00:00Z@0";
const ITEMS: u64 = 200;
/// Rows whose runs are larger than what a full disk has left.
const HISTORY_ROWS: u64 = 50_000;
const FREE_BYTES: u64 = 128 << 10;
/// A few segments of the log.
const LOG_BYTES: u64 = 8 << 20;
/// More than any cycle can write.
const BATCHES_MAX: u64 = 5_000;

/// A file system in memory, gone when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// None where no file system can be mounted, which the output says.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]);
        let mounted = mount.arg(directory.path()).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            skipped(
                "a test of a full disk",
                "no file system can be mounted here, which needs the right to",
            );
        }
        is_mounted.then_some(Self(directory))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Two hundred clicks on keys of their own, once however often it is sent.
fn send(client: &Client, number: u64) -> Result<Answer, String> {
    let padding = "x".repeat(150);
    let item = |item| {
        let key = format!("{number}-{item}-{padding}");
        json!({"keys": {"l": key, "u": "all"}, "by": {"c": "XX"}})
    };
    let items: Vec<_> = (0..ITEMS).map(item).collect();
    let key = format!("batch {number}");
    let body = json!(items).to_string();
    client.try_post(
        "/v1/increments",
        &[("idempotency-key", &key)],
        body.as_bytes(),
    )
}

/// Two hundred clicks that their producer numbers from `first` on.
fn send_numbered(client: &Client, first: u64) -> Answer {
    let padding = "x".repeat(150);
    let item = |sequence: u64| {
        let key = format!("{sequence}-{padding}");
        json!({"keys": {"l": key, "u": "all"}, "producer": "edge", "epoch": 1, "sequence": sequence})
    };
    let items: Vec<_> = (first..first + ITEMS).map(item).collect();
    client.post("/v1/increments", json!(items).to_string())
}

/// Sends numbered clicks from `first` on until there is no space; the first number that was refused.
fn send_numbered_until_refused(client: &Client, first: u64) -> u64 {
    for batch in 0..BATCHES_MAX {
        let number = first + batch * ITEMS;
        let answer = send_numbered(client, number);
        if answer.status == 507 {
            return number;
        }
        assert_eq!(answer.json()["accepted"], ITEMS, "{answer:?}");
    }
    panic!("the disk does not fill up");
}

/// A refused batch counts now, under its own numbers, and is known by them from now on.
fn check_numbered_again(client: &Client, first: u64) {
    for (accepted, duplicates) in [(ITEMS, 0), (0, ITEMS)] {
        let answer = send_numbered(client, first);
        let expected = json!({"accepted": accepted, "duplicates": duplicates, "late": 0});
        assert_eq!(
            (answer.status, answer.json()),
            (200, expected),
            "{answer:?}"
        );
    }
}

fn start(data: &Path, config: &Path) -> Server {
    start_at(CLOCK, data, config)
}

fn start_at(clock: &str, data: &Path, config: &Path) -> Server {
    let config = config.to_str().expect("a path of text");
    Server::start(data, &["--clock", clock, "--config", config])
}

fn counted(client: &Client) -> u64 {
    let answer = client.get_json("/v1/u/all/summary?unit=year&units=-1");
    answer["total"].as_u64().expect("a total")
}

#[test]
fn a_disk_that_fills_up_refuses_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let filler = File::create(disk.path("filler")).expect("a filler");
    fill(&filler, CYCLES * SHARE_BYTES + REBUILD_BYTES);
    let (data, config) = (disk.path("data"), disk.path("c.toml"));
    fs::write(&config, CONFIG).expect("write the configuration");
    let (mut next, mut acknowledged) = (0, 0);
    let mut refused: Vec<u64> = Vec::new();
    for cycle in 1..=CYCLES {
        let server = start(&data, &config);
        assert_eq!(counted(&server), acknowledged * ITEMS, "cycle {cycle}");
        for number in std::mem::take(&mut refused) {
            let answer = send(&server, number).expect("an answer");
            assert_eq!(answer.status, 200, "there is space again: {answer:?}");
            acknowledged += 1;
        }
        while refused.len() < 3 {
            let answer = send(&server, next).expect("an answer");
            match answer.status {
                200 => acknowledged += 1,
                507 => {
                    assert!(answer.text.contains("disk is full"), "{answer:?}");
                    refused.push(next);
                }
                _ => panic!("{answer:?}"),
            }
            next += 1;
            assert!(next < BATCHES_MAX, "the disk does not fill up");
        }
        assert_eq!(counted(&server), acknowledged * ITEMS, "reads go on");
        server.kill9();
        let left = SHARE_BYTES * (CYCLES - cycle) + REBUILD_BYTES;
        filler.set_len(left).expect("give space back");
    }
    filler.set_len(0).expect("give space back");
    let server = start(&data, &config);
    server.rebuild();
    assert_eq!(counted(&server), acknowledged * ITEMS);
}

#[test]
fn a_load_and_a_rebuild_on_a_full_disk_change_nothing_and_can_be_run_again() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let (data, config) = (disk.path("data"), disk.path("c.toml"));
    fs::write(&config, CONFIG).expect("write the configuration");
    let server = start(&data, &config);
    assert_eq!(send(&server, 1).expect("an answer").status, 200);
    server.terminate();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let history = elsewhere.path().join("history.csv");
    let row = |row: u64| {
        format!(
            "u,key {},2011-05-01T10:00:00Z,1\n",
            row.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        )
    };
    let rows: String = (0..HISTORY_ROWS).map(row).collect();
    fs::write(
        &history,
        format!("namespace,key,hour,count\n{rows}u,all,2011-05-01T10:00:00Z,7\n"),
    )
    .expect("write the history");
    let [data_text, history] = [&data, &history].map(|path| path.to_str().expect("a path of text"));
    let load = ["load", "history", history, "--data", data_text];
    let rebuild = ["rebuild", "--data", data_text];

    let filler = File::create(disk.path("filler")).expect("a filler");
    fill_but(&filler, &data, FREE_BYTES);
    let refused = tallyring(&load);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("space"), "{refused:?}");
    let incoming = files(&data, "incoming");
    assert!(incoming.is_empty(), "{incoming:?}");
    filler.set_len(0).expect("give space back");

    let server = start(&data, &config);
    assert_eq!(counted(&server), ITEMS);
    server.terminate();
    tallyring_ok(&load);
    fill_but(&filler, &data, 0);
    let refused = tallyring(&rebuild);
    assert_eq!(refused.code, 1, "{refused:?}");
    filler.set_len(0).expect("give space back");
    tallyring_ok(&rebuild);
    let server = start(&data, &config);
    assert_eq!(counted(&server), ITEMS + 7);
}

#[test]
fn a_reconcile_on_a_full_disk_leaves_the_day_as_it_was_and_can_be_run_again() {
    const CLICKS: u64 = 6_000;
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let directory = disk.0.path();
    let server = final_numbers::start(directory, "2026-03-10T12:00:01Z", CONFIG_OF_THE_LOG);
    let mut chance = Chance::new(1);
    let mut click = |number: u64| {
        // Keys that do not compress, so that the books are larger than what is left.
        let key: String = (0..4).map(|_| chance.below(u64::MAX).to_string()).collect();
        json!({"id": format!("e{number}"), "type": "click", "at": "2026-03-10T11:00:00Z", "entities": {"ad": key}})
    };
    for batch in 0..CLICKS / 1_000 {
        let clicks: Vec<_> = (0..1_000)
            .map(|number| click(1_000 * batch + number))
            .collect();
        assert_eq!(
            server.post("/v1/events", json!(clicks).to_string()).status,
            200
        );
    }
    server.terminate();
    let server = final_numbers::start(directory, "2026-03-13T13:00:01Z", CONFIG_OF_THE_LOG);
    server.rebuild();
    let filler = File::create(disk.path("filler")).expect("a filler");
    fill_but(&filler, directory, FREE_BYTES);
    let why = final_faults::fail(&server);
    assert!(why.contains("space"), "{why}");
    final_faults::check_nothing_is_final(&server);
    let incoming = files(&disk.path("data"), "incoming");
    assert!(incoming.is_empty(), "{incoming:?}");
    filler.set_len(0).expect("give space back");
    let job = final_numbers::reconcile(&server, &json!({"day": "2026-03-10"}));
    assert_eq!(
        (&job["version"], &job["types"]["click"]["after"]),
        (&json!(1), &json!(CLICKS))
    );
}

#[test]
fn numbers_that_a_full_disk_refused_count_once_when_they_come_again_also_after_a_kill() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let (data, config) = (disk.path("data"), disk.path("c.toml"));
    fs::write(&config, CONFIG_OF_THE_LOG).expect("write the configuration");
    let filler = File::create(disk.path("filler")).expect("a filler");
    let server = start_at(STANDING_CLOCK, &data, &config);
    fill_but(&filler, &data, LOG_BYTES);
    let refused = send_numbered_until_refused(&server, 0);
    assert!(refused > 0, "some fitted in");
    // Its numbers were taken back: it is neither a duplicate nor what follows a gap.
    let again = send_numbered(&server, refused);
    assert_eq!(again.status, 507, "{again:?}");
    let beyond = send_numbered(&server, refused + ITEMS);
    assert_eq!(beyond.status, 409, "{beyond:?}");
    filler.set_len(0).expect("give space back");
    check_numbered_again(&server, refused);
    assert_eq!(counted(&server), refused + ITEMS);

    fill_but(&filler, &data, LOG_BYTES);
    let refused = send_numbered_until_refused(&server, refused + ITEMS);
    server.kill9();
    filler.set_len(0).expect("give space back");
    let server = start_at(STANDING_CLOCK, &data, &config);
    assert_eq!(counted(&server), refused, "what was acknowledged");
    check_numbered_again(&server, refused);
    assert_eq!(counted(&server), refused + ITEMS);
}

#[test]
fn a_server_that_finds_no_space_is_not_ready_until_a_write_went_through() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let (data, config) = (disk.path("data"), disk.path("c.toml"));
    fs::write(&config, CONFIG_OF_THE_LOG).expect("write the configuration");
    let filler = File::create(disk.path("filler")).expect("a filler");
    let server = start_at(STANDING_CLOCK, &data, &config);
    let ready = || server.get("/readyz").status;
    assert_eq!(ready(), 200, "nothing was written yet");
    check_health(&server, &data, "ok", "[]");
    fill_but(&filler, &data, 0);
    check_health(&server, &data, "degraded", "bytes free");
    filler.set_len(0).expect("give space back");
    fill_but(&filler, &data, LOG_BYTES);
    let refused = send_numbered_until_refused(&server, 0);
    for _ in 0..2 {
        assert_eq!(ready(), 507, "the last write found no space");
        check_health(&server, &data, "refusing", "the disk is full");
        assert_eq!(send_numbered(&server, refused).status, 507);
    }
    assert_eq!(
        server.get("/healthz").status,
        200,
        "a restart frees nothing"
    );
    filler.set_len(0).expect("give space back");
    check_numbered_again(&server, refused);
    assert_eq!(ready(), 200, "a write went through");
    check_health(&server, &data, "ok", "[]");
}

/// The status with its reasons, the command, its code and the metric all say the same.
fn check_health(server: &Server, data: &Path, state: &str, reason: &str) {
    let status = server.client().status();
    assert_eq!(status["state"], state, "{status}");
    assert!(status["reasons"].to_string().contains(reason), "{status}");
    let command = tallyring(&["status", "--data", data.to_str().expect("a path of text")]);
    let first = format!("state     {state}, ");
    assert!(command.stdout.starts_with(&first), "{command:?}");
    let (code, number) = match state {
        "ok" => (0, 0),
        "degraded" => (0, 1),
        _ => (1, 2),
    };
    assert_eq!(command.code, code, "{command:?}");
    let metrics = server.get("/metrics").text;
    let metric = format!("\ntallyring_health {number}\n");
    assert!(metrics.contains(&metric), "{metrics}");
}

/// Fills what the file system of `data` has left but so many bytes.
fn fill_but(file: &File, data: &Path, bytes: u64) {
    let free = rustix::fs::statvfs(data).expect("its space");
    fill(file, free.f_bavail * free.f_frsize - bytes);
}

fn fill(file: &File, bytes: u64) {
    let space = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    space.expect("fill the disk");
}
