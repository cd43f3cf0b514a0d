//! The second copy of the log: the first directory is pulled away under load, and a backup and the copy bring back
//! every acknowledged click.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::Value;
use tallyring_tests::server::{Answer, Client, Server, tallyring, tallyring_ok, wait_until};
use tempfile::TempDir;

use crate::stored::{files, text};

/// No midnight, so that every record is a click.
const CLOCK: &str = "2012-03-16T12:00:00Z";
const SENDERS: usize = 4;
/// Clicks of each before the backup, and before the directory is pulled away.
const CLICKS: u64 = 50;

struct Stand {
    directory: TempDir,
    config: PathBuf,
}

impl Stand {
    fn new(ack: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("c.toml");
        let copy = directory.path().join("copy");
        let section = format!("[log_copy]\npath = \"{}\"\nack = \"{ack}\"\n", text(&copy));
        fs::write(&config, section).expect("write the configuration");
        Self { directory, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn serve(&self, data: &Path) -> Server {
        Server::start(data, &["--clock", CLOCK, "--config", text(&self.config)])
    }

    /// A server with some clicks that are backed up.
    fn backed_up(&self, sent: &Sent) -> Server {
        let server = self.serve(&self.path("data"));
        for sender in 0..SENDERS {
            for _ in 0..CLICKS {
                assert_eq!(sent.click(&server, sender).status, 204);
            }
        }
        let (backup, data) = (self.path("backup"), self.path("data"));
        tallyring_ok(&["backup", text(&backup), "--data", text(&data)]);
        server
    }

    /// The disk of the data is gone: nothing finds its files any more.
    fn pull_away(&self) {
        fs::rename(self.path("data"), self.path("gone")).expect("pull it away");
    }

    fn restore(&self) -> Value {
        let (backup, copy, again) = (self.path("backup"), self.path("copy"), self.path("again"));
        let [backup, copy, again] = [&backup, &copy, &again].map(|path| text(path));
        let restore = ["restore", backup, "--log", copy, "--data", again];
        let told = tallyring_ok(&[&["--output", "json"][..], &restore].concat());
        serde_json::from_str(&told).expect("JSON")
    }
}

/// The clicks that were acknowledged to each sender.
#[derive(Default)]
struct Sent {
    acknowledged: [AtomicU64; SENDERS],
}

impl Sent {
    fn try_click(&self, client: &Client, sender: usize) -> Result<Answer, String> {
        let answer = client.try_get(&format!("/v1/incr?key.l=s{sender}&by.c=US"));
        if answer.as_ref().is_ok_and(|answer| answer.status == 204) {
            self.acknowledged[sender].fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn click(&self, client: &Client, sender: usize) -> Answer {
        self.try_click(client, sender).expect("an answer")
    }

    fn of(&self, sender: usize) -> u64 {
        self.acknowledged[sender].load(Ordering::Relaxed)
    }

    fn all(&self) -> u64 {
        (0..SENDERS).map(|sender| self.of(sender)).sum()
    }

    fn is_under_load(&self) -> bool {
        (0..SENDERS).all(|sender| self.of(sender) >= 2 * CLICKS)
    }
}

fn counted(server: &Server, sender: usize) -> u64 {
    let read = format!("/v1/l/s{sender}/counts?unit=year&units=-1");
    server.get_json(&read)["total"].as_u64().expect("a count")
}

#[test]
fn with_both_everything_acknowledged_is_restored() {
    let (stand, sent) = (Stand::new("both"), Sent::default());
    let server = stand.backed_up(&sent);
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (client, sent) = (server.client().clone(), &sent);
            scope.spawn(move || {
                loop {
                    let answer = sent.click(&client, sender);
                    if answer.status == 204 {
                        continue;
                    }
                    assert_eq!(answer.status, 503, "{answer:?}");
                    assert!(answer.text.contains("second copy of the log"), "{answer:?}");
                    break;
                }
            });
        }
        wait_until("all send", || sent.is_under_load());
        stand.pull_away();
    });
    let again = sent.click(&server, 0);
    assert!(again.text.contains("Nothing was counted"), "{again:?}");
    assert_eq!(server.get("/readyz").status, 503);
    let status = server.status();
    assert_eq!(status["state"], "refusing", "{status}");
    server.kill9();

    // Restored without the copied log it would go another way than the copy: it does not start.
    let (backup, alone) = (stand.path("backup"), stand.path("alone"));
    tallyring_ok(&["restore", text(&backup), "--data", text(&alone)]);
    let serve = [
        "serve",
        "--data",
        text(&alone),
        "--config",
        text(&stand.config),
    ];
    let refused = tallyring(&[&serve[..], &["--listen", "127.0.0.1:0"]].concat());
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("tallyring restore BACKUP --log"),
        "{refused:?}"
    );

    let restored = stand.restore();
    assert!(
        restored["log"]["records"].as_u64() >= Some(CLICKS),
        "{restored}"
    );
    let server = stand.serve(&stand.path("again"));
    for sender in 0..SENDERS {
        let (acknowledged, counted) = (sent.of(sender), counted(&server, sender));
        // One was in flight.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&counted),
            "sender {sender}: {counted} of {acknowledged}"
        );
    }
    // The copy goes on with what was restored.
    assert_eq!(sent.click(&server, 0).status, 204);
    assert_eq!(server.status()["log_copy"]["behind_records"], 0);
    server.terminate();
    let told = tallyring_ok(&["verify", "--data", text(&stand.path("again"))]);
    assert!(told.ends_with("all good\n"), "{told}");
}

#[test]
fn with_local_everything_acknowledged_is_restored_but_the_lag_that_was_shown() {
    let (stand, sent) = (Stand::new("local"), Sent::default());
    let server = stand.backed_up(&sent);
    let is_enough = AtomicBool::new(false);
    let lag = |status: &Value| {
        status["log_copy"]["behind_records"]
            .as_u64()
            .expect("a lag")
    };
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (client, sent, is_enough) = (server.client().clone(), &sent, &is_enough);
            scope.spawn(move || {
                while !is_enough.load(Ordering::Relaxed) {
                    assert_eq!(sent.click(&client, sender).status, 204);
                }
            });
        }
        wait_until("all send", || sent.is_under_load());
        stand.pull_away();
        server.wait_for_status("the copy is behind", |status| {
            status["state"] == "degraded" && lag(status) >= CLICKS
        });
        is_enough.store(true, Ordering::Relaxed);
    });
    let status = server.status();
    let copy = &status["log_copy"];
    assert!(copy["failure"].is_string(), "{status}");
    assert!(copy["behind_bytes"].as_u64() > Some(0), "{status}");
    let metrics = server.get("/metrics").text;
    let shown = format!("tallyring_log_copy_behind_records {}\n", lag(&status));
    assert!(metrics.contains(&shown), "{metrics}");
    assert!(
        metrics.contains("tallyring_log_copy_failed 1\n"),
        "{metrics}"
    );
    assert_eq!(server.get("/readyz").status, 200, "writes are taken");
    server.kill9();
    stand.restore();
    let server = stand.serve(&stand.path("again"));
    let restored: u64 = (0..SENDERS).map(|sender| counted(&server, sender)).sum();
    assert_eq!(restored, sent.all() - lag(&status));
}

#[test]
fn a_log_is_restored_onto_a_backup_only() {
    let (stand, sent) = (Stand::new("local"), Sent::default());
    let server = stand.backed_up(&sent);
    server.terminate();
    let [backup, copy, again] = ["backup", "copy", "again"].map(|name| stand.path(name));
    let [backup, copy, again] = [&backup, &copy, &again].map(|path| text(path));
    for (from, log, told) in [
        (copy, copy, "a copied log goes on from a backup"),
        (backup, text(&stand.config), "holds no log"),
    ] {
        let refused = tallyring(&["restore", from, "--log", log, "--data", again]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(told), "{refused:?}");
    }
    // The copy of a log that was stopped in time is whole.
    assert_eq!(stand.restore()["log"]["left"], Value::Null);
    let inside = format!(
        "[log_copy]\npath = \"{}\"\n",
        text(&stand.path("data/copy"))
    );
    fs::write(&stand.config, inside).expect("write the configuration");
    let data = stand.path("data");
    let serve = [
        "serve",
        "--data",
        text(&data),
        "--config",
        text(&stand.config),
    ];
    let refused = tallyring(&serve);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("is in the data directory"),
        "{refused:?}"
    );
}

/// A stand with a backup and with a list that changed after it, both of whose contents are beside the copy of the log.
fn with_newer_list() -> Stand {
    let stand = Stand::new("local");
    let (data, list) = (stand.path("data"), stand.path("dc.txt"));
    fs::write(&list, "192.0.2.0/24\n").expect("written");
    let copied = fs::read_to_string(&stand.config).expect("a configuration");
    let lists = format!(
        "{copied}[lists.dc]\nfile = \"{}\"\nmatch = \"ip\"\n[filters.dc]\nlist = \"dc\"\n",
        text(&list)
    );
    fs::write(&stand.config, lists).expect("written");
    let server = stand.serve(&data);
    let backup = stand.path("backup");
    tallyring_ok(&["backup", text(&backup), "--data", text(&data)]);
    fs::write(&list, "198.51.100.0/24\n").expect("written");
    tallyring_ok(&["reload", "--data", text(&data)]);
    wait_until("both contents are copied", || {
        let copied = files(&stand.path("copy"), "rules");
        let named = copied.iter().filter(|file| !file.ends_with(".tmp"));
        named.count() == 2
    });
    server.kill9();
    stand.pull_away();
    assert_eq!(files(&backup, "rules").len(), 1);
    stand
}

#[test]
fn a_damaged_list_beside_the_copy_is_named_by_the_restore() {
    let stand = with_newer_list();
    let [backup, copy, again] = ["backup", "copy", "again"].map(|name| stand.path(name));
    let old = files(&backup, "rules");
    let newer = files(&copy, "rules").into_iter();
    let newer: Vec<String> = newer.filter(|file| !old.contains(file)).collect();
    let [newer] = &newer[..] else {
        panic!("one list came after the backup: {newer:?}");
    };
    fs::write(copy.join(newer), "198.51.100.0/2\n").expect("damaged");
    let from = ["restore", text(&backup), "--log", text(&copy)];
    let told = tallyring(&[&from[..], &["--data", text(&again)]].concat());
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stdout.contains("is restored"), "{told:?}");
    let says = format!("{newer}: the content of the list `dc` is missing or damaged");
    assert!(told.stderr.contains(&says), "{told:?}");
    assert!(
        told.stderr.contains("restore the file from a backup"),
        "{told:?}"
    );
    let verified = tallyring(&["verify", "--data", text(&again)]);
    assert!(
        verified.code == 1 && verified.stdout.contains(&says),
        "{verified:?}"
    );
    // The configuration has the content, so the server writes it again.
    stand.serve(&again).terminate();
    tallyring_ok(&["verify", "--data", text(&again)]);
}

#[test]
fn a_list_that_changed_after_the_backup_comes_with_the_copy() {
    let stand = with_newer_list();
    stand.restore();
    let contents = |directory: &str| -> Vec<String> {
        let directory = stand.path(directory);
        let all = files(&directory, "rules").into_iter();
        all.map(|file| fs::read_to_string(directory.join(file)).expect("a list"))
            .collect()
    };
    assert_eq!(contents("again"), contents("gone"));
    assert_eq!(contents("again").len(), 2);
}
