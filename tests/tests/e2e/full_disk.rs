//! A small file system that fills up under a server: what was acknowledged counts, what was refused does not, and
//! with space again everything goes on. It needs the right to mount one, and says so when it has not.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tallyring_tests::server::{Answer, Client, Server};
use tempfile::TempDir;

const DISK: &str = "size=40m";
const FILLER_BYTES: u64 = 16 << 20;
const CYCLES: u64 = 4;
const CONFIG: &str = "[memory]\nreplay_records = 20000\n[oplog]\nsegment_mib = 1\n";
const CLOCK: &str = "2012-03-16T12:00:00Z";
const ITEMS: u64 = 200;
/// More than any cycle can write.
const BATCHES_MAX: u64 = 5_000;

/// A file system in memory, gone when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]);
        let mounted = mount.arg(directory.path()).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
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

fn start(data: &Path, config: &Path) -> Server {
    let config = config.to_str().expect("a path of text");
    Server::start(data, &["--clock", CLOCK, "--config", config])
}

fn counted(client: &Client) -> u64 {
    let answer = client.get_json("/v1/u/all/summary?unit=year&units=-1");
    answer["total"].as_u64().expect("a total")
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that did nothing must say so")]
fn a_disk_that_fills_up_refuses_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: no file system can be mounted here, which needs the right to");
        return;
    };
    let filler = File::create(disk.path("filler")).expect("a filler");
    fill(&filler, FILLER_BYTES);
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
        let left = FILLER_BYTES / CYCLES * (CYCLES - cycle);
        filler.set_len(left).expect("give space back");
    }
    let server = start(&data, &config);
    server.rebuild();
    assert_eq!(counted(&server), acknowledged * ITEMS);
}

fn fill(file: &File, bytes: u64) {
    let space = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    space.expect("fill the disk");
}
