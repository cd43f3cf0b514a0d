//! Servers in control groups of little memory take clicks that all have new keys and ids, and are killed without
//! warning between them. Each time the server becomes ready again and has lost nothing. These tests need the right to
//! make a control group, and say `skipped` without it.
//!
//! `TALLYRING_SMALL_MEMORY=2000000 cargo test --release -p tallyring-tests --test e2e small_memory` sends so many
//! clicks to servers of 128, 256 and 512 MiB.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;
use tallyring_tests::needs::skipped;
use tallyring_tests::server::{Client, Server, wait_until};

use crate::chance::Chance;

const SEED: u64 = 20_120_316;
/// Clicks of an ordinary run, to a server of this many MiB, of which a debug build takes more from the beginning. Their
/// counters take more than that.
const CLICKS: u64 = 250_000;
const MEMORY_MIB: u64 = 256;
/// Memory of the servers of a long run.
const MEMORIES_MIB: [u64; 3] = [128, 256, 512];
const KILLS: u64 = 6;
const BATCH_CLICKS: u64 = 1_000;
const CLIENTS: usize = 4;
/// Within one day, which a kill does not end.
const CLOCK: &str = "2012-03-16T12:00:00Z";

/// A control group with a limit of memory; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// None where no control group can be made, which the output says.
    fn make(mib: u64) -> Option<Self> {
        let made = Self::own().and_then(|own| {
            let path = own.join(format!("tallyring-{}-{mib}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            let limit = (mib << 20).to_string();
            let files = ["memory.max", "memory.limit_in_bytes"];
            let limited = files.iter().any(|file| group.set(file, &limit));
            // Swapped memory would hide that a server takes too much.
            let _ = group.set("memory.swap.max", "0")
                || group.set("memory.memsw.limit_in_bytes", &limit);
            limited.then_some(group)
        });
        if made.is_none() {
            skipped(
                "a test of little memory",
                "no control group of memory can be made here, which needs the right to",
            );
        }
        made
    }

    /// The control group of this process, of version 1 or 2.
    fn own() -> Option<PathBuf> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |controller: &str, mount: &str| {
            groups.lines().find_map(|line| {
                let (name, group) = line.split_once(':')?.1.split_once(':')?;
                (name == controller).then(|| Path::new(mount).join(group.trim_start_matches('/')))
            })
        };
        of("memory", "/sys/fs/cgroup/memory").or_else(|| of("", "/sys/fs/cgroup"))
    }

    fn set(&self, file: &str, value: &str) -> bool {
        let path = self.0.join(file);
        path.exists() && fs::write(path, value).is_ok()
    }

    /// Processes that were killed for want of memory.
    fn killed(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let texts = files
            .iter()
            .filter_map(|file| fs::read_to_string(self.0.join(file)).ok());
        let counts = texts.filter_map(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill "))?;
            line.trim().parse::<u64>().ok()
        });
        counts.sum()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Clicks that are sent, a batch at a time.
struct Load {
    batches: u64,
    next: AtomicU64,
    acknowledged: AtomicU64,
}

impl Load {
    /// Sends batches until the last one, or until the server is gone. A batch that finds no place is sent again at
    /// once, a batch without an answer the next time.
    fn send(&self, client: &Client, pending: &mut Option<u64>) {
        loop {
            let number = *pending.get_or_insert_with(|| self.next.fetch_add(1, Ordering::Relaxed));
            if number >= self.batches {
                return;
            }
            match client.try_post(
                "/v1/increments",
                &[("content-type", "application/x-ndjson")],
                &batch(number),
            ) {
                Ok(answer) if answer.status == 503 => {}
                Ok(answer) => {
                    assert_eq!(answer.status, 200, "{answer:?}");
                    *pending = None;
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => return,
            }
        }
    }

    /// Sends from several clients until so many batches are acknowledged and the server is killed; what was on its way
    /// is in `pending`.
    fn run_until_killed(
        &self,
        server: Server,
        group: &Group,
        pending: &mut [Option<u64>],
        enough: u64,
    ) {
        thread::scope(|scope| {
            for pending in pending {
                let client = server.client().clone();
                scope.spawn(move || self.send(&client, pending));
            }
            wait_until("enough is acknowledged", || {
                assert_eq!(group.killed(), 0, "the server took too much memory");
                self.acknowledged.load(Ordering::Relaxed) >= enough
            });
            server.kill9();
        });
    }
}

/// Clicks of which no two have a key, a referrer or an id in common.
fn batch(number: u64) -> Vec<u8> {
    let mut body = String::new();
    for click in number * BATCH_CLICKS..(number + 1) * BATCH_CLICKS {
        let item = json!({
            "keys": {"l": format!("link-{click}"), "u": format!("user-{click}"), "d": format!("domain-{click}.example")},
            "by": {"c": "US", "r": format!("https://referrer-{click}.example/"), "v": "mobile"},
            "id": format!("00000000-0000-4000-8000-{click:012}"),
        });
        body.push_str(&format!("{item}\n"));
    }
    body.into_bytes()
}

fn check(clicks: u64, mib: u64) {
    let Some(group) = Group::make(mib) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let load = Load {
        batches: clicks / BATCH_CLICKS,
        next: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
    };
    let (mut chance, mut pending) = (Chance::new(SEED), [None; CLIENTS]);
    let start = || {
        let server = Server::start_in_group(&group.0, &data, &["--clock", CLOCK]);
        wait_until("it is ready", || server.get("/readyz").status == 200);
        server
    };
    for kill in 1..=KILLS {
        let share = load.batches / KILLS;
        let enough = share * (kill - 1) + chance.below(share);
        load.run_until_killed(start(), &group, &mut pending, enough);
    }
    load.run_until_killed(start(), &group, &mut pending, load.batches);
    let server = start();
    let counted = |server: &Server| {
        let names = ["l", "u", "d"];
        names.map(|name| {
            server.get_json(&format!("/v1/{name}/counts?unit=year&units=-1"))["total"].clone()
        })
    };
    assert_eq!(
        counted(&server),
        [json!(clicks), json!(clicks), json!(clicks)]
    );
    for _ in 0..5 {
        let body = batch(chance.below(load.batches));
        let answer = server.post_with(
            "/v1/increments",
            &[("content-type", "application/x-ndjson")],
            &body,
        );
        assert_eq!(answer.json()["duplicates"], BATCH_CLICKS, "{answer:?}");
    }
    assert_eq!(server.status()["memory"]["memory_bytes"], mib << 20);
    server.kill9();
    let server = start();
    assert_eq!(
        counted(&server),
        [json!(clicks), json!(clicks), json!(clicks)]
    );
    server.terminate();
    assert_eq!(group.killed(), 0, "nothing took too much memory");
}

#[test]
fn a_server_of_little_memory_starts_again_after_any_kill_and_loses_nothing() {
    match std::env::var("TALLYRING_SMALL_MEMORY") {
        Ok(clicks) => {
            let clicks = clicks.parse().expect("a number");
            MEMORIES_MIB.iter().for_each(|&mib| check(clicks, mib));
        }
        Err(_) => check(CLICKS, MEMORY_MIB),
    }
}
