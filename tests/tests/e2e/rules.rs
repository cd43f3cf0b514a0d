//! Rules by lists: crawlers and networks are found by evidence, lists are replaced without a restart, and a wrong one
//! changes nothing.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tallyring_records::content_hash;
use tallyring_tests::needs::data_file;
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok, wait_until};
use tempfile::TempDir;

use crate::final_numbers::reconcile;
use crate::stored::text;

const CLOCK: &str = "2026-03-16T13:00:03Z@0";
const CONFIG: &str = "[lists.crawlers]\nfile = \"crawlers.txt\"\nmatch = \"user_agent\"\n\
    [lists.networks]\nfile = \"networks.txt\"\nmatch = \"ip\"\n\
    [filters.crawlers]\nlist = \"crawlers\"\n[filters.networks]\nclass = \"sophisticated\"\nlist = \"networks\"\n";
const BOTS: &str = "# bots\n(?i)bot\n\n(?i)crawl\n(?i)spider\n(?i)slurp\n";

/// A configuration beside its lists.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new(config: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Self { directory };
        fs::write(place.path("c.toml"), config).expect("write the configuration");
        place.put("crawlers.txt", BOTS);
        place.put("networks.txt", "203.0.113.0/24\n2001:db8::/32\n");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts a file in the place of the one before, in one step.
    fn put(&self, name: &str, content: &str) {
        let new = self.path("new");
        fs::write(&new, content).expect("write the file");
        fs::rename(&new, self.path(name)).expect("rename the file");
    }

    fn serve(&self, data: &Path) -> Server {
        self.serve_at(CLOCK, data)
    }

    fn serve_at(&self, clock: &str, data: &Path) -> Server {
        let config = self.path("c.toml");
        Server::start(data, &["--clock", clock, "--config", text(&config)])
    }
}

fn click(id: &str, ip: &str, ua: &str) -> Value {
    json!({"id": id, "type": "click", "at": "2026-03-16T12:59:58Z", "entities": {"ad": "42"},
        "evidence": {"ip": ip, "ua": ua}})
}

fn rule_of(client: &Client, id: &str) -> Value {
    client.get_json(&format!("/v1/events/{id}"))["filtered"]["rule"].clone()
}

fn rules(client: &Client) -> Value {
    client.get_json("/v1/admin/status")["rules"].clone()
}

/// The hash of a list in force.
fn hash(client: &Client, list: usize) -> String {
    let hash = &rules(client)["lists"][list]["sha256"];
    hash.as_str().unwrap_or_default().to_owned()
}

#[test]
fn lists_judge_by_evidence_that_the_log_does_not_keep() {
    let place = Place::new(CONFIG);
    let data = place.path("data");
    let server = place.serve(&data);
    let batch = json!([
        click("a", "198.51.100.1", "Mozilla/5.0"),
        click("b", "198.51.100.1", "GoogleBot/2.1"),
        click("c", "203.0.113.9", "Mozilla/5.0"),
        click("d", "", ""),
    ]);
    let answer = server.post("/v1/events", batch.to_string()).json();
    assert_eq!(
        (&answer["accepted"], &answer["filtered"]),
        (&json!(2), &json!(2)),
        "{answer}"
    );
    let check = |server: &Server| {
        assert_eq!(server.get_json("/v1/ad_click/42/summary")["total"], 2);
        assert_eq!(rule_of(server, "b"), "crawlers");
        assert_eq!(rule_of(server, "c"), "networks");
    };
    check(&server);
    let told = rules(&server);
    let expected = json!([
        {"rule": "crawlers", "class": "general", "filtered": 1},
        {"rule": "networks", "class": "sophisticated", "filtered": 1},
    ]);
    assert_eq!(told["filters"], expected);
    assert_eq!(
        (&told["events"], &told["undecided"]),
        (&json!(4), &json!(1))
    );
    assert_eq!(told["lists"][0]["entries"], 4);
    let metrics = server.get("/metrics").text;
    for line in [
        "tallyring_filtered_by_rule_total{rule=\"crawlers\"} 1",
        "tallyring_judged_total 4",
        "tallyring_undecided_total 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    server.kill9();
    // A replay needs no list: the log says what was filtered.
    let log = tallyring_ok(&["cat", "oplog", "--data", text(&data)]);
    assert!(log.contains("filtered rule=crawlers"), "{log}");
    assert!(
        !log.contains("203.0.113.9") && !log.contains("Mozilla"),
        "{log}"
    );
    check(&place.serve(&data));
}

#[test]
fn a_list_is_replaced_without_a_restart_and_a_wrong_one_changes_nothing() {
    let place = Place::new(CONFIG);
    let data = place.path("data");
    let server = place.serve(&data);
    let send = |server: &Server, id: &str| {
        let event = click(id, "198.51.100.1", "curl/8.5").to_string();
        server.post("/v1/events", event).json()["filtered"].clone()
    };
    assert_eq!(send(&server, "before"), Value::Null);
    let before = hash(&server, 0);
    place.put("crawlers.txt", &format!("{BOTS}^curl/\n"));
    let changed = |list: usize| rules(&server)["lists"][list]["changed_at"].clone();
    assert_eq!(changed(0), Value::Null);
    wait_until("the list is in force", || hash(&server, 0) != before);
    assert!(changed(0).is_string() && changed(1).is_null());
    let trail = || tallyring_ok(&["audit", "--data", text(&data)]);
    let told = trail();
    assert!(told.ends_with("  schema    lists ~crawlers\n"), "{told}");
    let before_networks = hash(&server, 1);
    place.put("networks.txt", "203.0.113.0/24\n2001:db8:1::/48\n");
    wait_until("the list is in force", || {
        hash(&server, 1) != before_networks
    });
    let told = trail();
    assert!(told.ends_with("  schema    lists ~networks\n"), "{told}");
    assert_eq!(send(&server, "after"), 1);
    assert_eq!(rule_of(&server, "after"), "crawlers");
    assert_eq!(rule_of(&server, "before"), Value::Null);

    let in_force = hash(&server, 0);
    let failure = |server: &Server| rules(server)["lists"][0]["failure"].clone();
    for (content, says) in [
        ("", "the list is empty"),
        ("good\nbad(\n", "line 2: the regular expression"),
        ("curl\n", "it shrank from 5 lines to 1"),
    ] {
        place.put("crawlers.txt", content);
        wait_until(says, || {
            failure(&server)
                .as_str()
                .is_some_and(|why| why.contains(says))
        });
        let status = server.get_json("/v1/admin/status");
        assert_eq!(status["state"], "degraded");
        let reasons = status["reasons"].to_string();
        assert!(
            reasons.contains("the list crawlers cannot be used"),
            "{reasons}"
        );
        assert_eq!(hash(&server, 0), in_force);
    }
    fs::remove_file(place.path("crawlers.txt")).expect("remove the list");
    let gone = "it cannot be read";
    wait_until(gone, || {
        failure(&server)
            .as_str()
            .is_some_and(|why| why.contains(gone))
    });
    assert_eq!(send(&server, "still"), 1);
    let total = &server.get_json("/v1/ad_click/42/summary")["total"];
    assert_eq!(total, 1, "the one before");
}

#[test]
fn a_restart_takes_a_list_that_shrank_and_refuses_a_wrong_one() {
    let place = Place::new(CONFIG);
    let data = place.path("data");
    let send = |server: &Server, id: &str| {
        let event = click(id, "198.51.100.1", "a bot").to_string();
        server.post("/v1/events", event).json()["filtered"].clone()
    };
    let server = place.serve(&data);
    assert_eq!(send(&server, "first"), 1);
    place.put("crawlers.txt", "(");
    server.terminate();
    let config = place.path("c.toml");
    let config = text(&config);
    let refused = tallyring(&["serve", "--data", text(&data), "--config", config]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let says = "crawlers.txt\": line 1: the regular expression";
    assert!(refused.stderr.contains(says), "{refused:?}");
    let new = place.path("short.txt");
    fs::write(&new, "nothing-like-it\n").expect("write a list");
    place.put("crawlers.txt", BOTS);
    let put = |more: &[&str]| {
        let put = ["lists", "put", "crawlers", text(&new), "--config", config];
        tallyring(&[&put[..], more].concat())
    };
    let refused = put(&[]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("has 1 lines in the place of 4"),
        "{refused:?}"
    );
    let forced = put(&["--force", "--output", "json"]);
    let told: Value = serde_json::from_str(&forced.stdout).expect("JSON");
    let told = (&told["name"], &told["entries"], &told["needs_restart"]);
    assert_eq!(told, (&json!("crawlers"), &json!(1), &json!(true)));
    let server = place.serve(&data);
    assert_eq!(send(&server, "second"), Value::Null);
    assert_eq!(rules(&server)["lists"][0]["failure"], Value::Null);
    let shown = tallyring_ok(&["lists", "show", "--config", config]);
    assert!(shown.contains("crawlers: 1 of user_agent, "), "{shown}");
    assert!(shown.contains("networks: 2 of ip, "), "{shown}");
    server.terminate();
    let show = ["lists", "show", "--config", config, "--data", text(&data)];
    let shown = tallyring_ok(&show);
    let in_force: Vec<bool> = shown
        .lines()
        .map(|line| line.ends_with(", in force"))
        .collect();
    assert_eq!(in_force, [true, true], "{shown}");
    place.put("crawlers.txt", "another bot\n");
    let shown = tallyring_ok(&[&show[..], &["--output", "json"]].concat());
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let in_force = [0, 1].map(|at| &shown[at]["in_force"]);
    let crawlers = usize::from(shown[0]["name"] != "crawlers");
    assert_eq!(
        (in_force[crawlers], in_force[1 - crawlers]),
        (&json!(false), &json!(true))
    );
}

/// A build before took such a list, and days were judged by it.
#[test]
fn a_list_of_all_networks_that_is_in_force_is_read_and_a_new_one_is_refused() {
    let place = Place::new(CONFIG);
    let data = place.path("data");
    place.serve(&data).terminate();
    let all = "0.0.0.0/0\n";
    let store_it = |content: &str| {
        let sha256 = content_hash(content.as_bytes());
        fs::write(data.join("rules").join(sha256), content).expect("write the content");
    };
    place.put("networks.txt", all);
    let config = place.path("c.toml");
    let serve = ["serve", "--data", text(&data), "--config", text(&config)];
    let refused = tallyring(&serve);
    let says = "the networks together hold every address of IPv4";
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains(says), "{refused:?}");
    store_it(all);
    let server = place.serve(&data);
    let event = click("e1", "198.51.100.1", "curl/8.5").to_string();
    assert_eq!(server.post("/v1/events", event).json()["filtered"], 1);
    assert_eq!(rule_of(&server, "e1"), "networks");
    let lists = rules(&server)["lists"].clone();
    assert!(
        lists[0]["failure"].is_null() && lists[1]["failure"].is_null(),
        "{lists}"
    );
    place.put("networks.txt", "0.0.0.0/1\n128.0.0.0/1\n");
    wait_until(says, || rules(&server)["lists"].to_string().contains(says));
    assert_eq!(rules(&server)["lists"][1]["sha256"], lists[1]["sha256"]);
    server.terminate();
    place.put("networks.txt", all);
    let server = place.serve_at("2026-03-19T13:00:01Z@0", &data);
    server.client().rebuild();
    let order = json!({"day": "2026-03-16", "force": true});
    let job = reconcile(server.client(), &order);
    assert_eq!(job["types"]["click"]["gross"], 1, "{job}");
}

#[test]
fn a_backup_has_the_lists_and_a_restored_store_judges_by_them() {
    let place = Place::new(CONFIG);
    let data = place.path("data");
    let server = place.serve(&data);
    let (backup, restored) = (place.path("backup"), place.path("restored"));
    tallyring_ok(&["backup", "--data", text(&data), text(&backup)]);
    drop(server);
    tallyring_ok(&["restore", text(&backup), "--data", text(&restored)]);
    let lists = |directory: &Path| {
        let files = fs::read_dir(directory.join("rules")).expect("rules/");
        let mut files: Vec<_> = files
            .map(|file| file.expect("a file").file_name())
            .collect();
        files.sort();
        files
    };
    assert_eq!(lists(&data).len(), 2);
    assert_eq!(lists(&restored), lists(&data));
    // Without a configuration the lists are those of the store.
    let server = Server::start(&restored, &["--clock", CLOCK]);
    let event = click("b", "198.51.100.1", "a bot").to_string();
    assert_eq!(server.post("/v1/events", event).json()["filtered"], 1);
    drop(server);
    assert_eq!(tallyring(&["verify", "--data", text(&restored)]).code, 0);
    // One that is lost is told, and what it would judge is undecided.
    for file in lists(&restored) {
        fs::remove_file(restored.join("rules").join(file)).expect("remove a list");
    }
    let verified = tallyring(&["verify", "--data", text(&restored)]);
    assert_eq!(verified.code, 1, "{verified:?}");
    let says = "the content of the list `crawlers` is missing or damaged, so no day can be judged by it: restore";
    assert!(verified.stdout.contains(says), "{verified:?}");
    let server = Server::start(&restored, &["--clock", CLOCK]);
    let event = click("c", "198.51.100.1", "a bot").to_string();
    assert_eq!(server.post("/v1/events", event).json()["accepted"], 1);
    let told = rules(&server);
    assert_eq!(
        (&told["undecided"], &told["lists"][0]["entries"]),
        (&json!(1), &Value::Null)
    );
    let failure = told["lists"][0]["failure"].to_string();
    assert!(
        failure.contains("is missing or damaged: restore it"),
        "{failure}"
    );
}

/// Batches of the requests of an access log as clicks with their evidence; none without the file.
fn requests() -> Option<Vec<String>> {
    let log = data_file("apache_access.log.gz")?;
    let mut lines = String::new();
    let log = fs::File::open(log).expect("the log");
    GzDecoder::new(log)
        .read_to_string(&mut lines)
        .expect("text");
    let events: Vec<Value> = lines
        .lines()
        .enumerate()
        .map(|(number, line)| {
            let agent = line.rsplit('"').nth(1).filter(|agent| *agent != "-");
            let ip = line.split(' ').next();
            json!({"id": number.to_string(), "type": "click", "at": "2026-03-16T12:59:58Z",
                "entities": {"ad": "42"}, "evidence": {"ip": ip, "ua": agent}})
        })
        .collect();
    assert_eq!(events.len(), 10_000);
    let batches = events.chunks(1_000);
    Some(batches.map(|batch| json!(batch).to_string()).collect())
}

/// MONEY: the list came after the clicks. Gross 10,000, net 8,603, decision rate 98.1 %.
#[test]
fn the_crawlers_of_an_access_log_leave_when_the_day_becomes_final() {
    let Some(batches) = requests() else {
        return;
    };
    let place = Place::new("evidence = true\n");
    let data = place.path("data");
    let server = place.serve(&data);
    for batch in batches {
        let answer = server.post("/v1/events", batch);
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    server.terminate();
    place.put("c.toml", &format!("evidence = true\n{CONFIG}"));
    let server = place.serve_at("2026-03-19T13:00:00Z@0", &data);
    server.client().rebuild();
    let job = reconcile(server.client(), &json!({"day": "2026-03-16"}));
    let expected = json!({"gross": 10_000, "undecided": 190, "before": 10_000, "after": 8_603,
        "causes": {"filtered_by:crawlers": -1_397}, "filtered": crawlers()});
    assert_eq!(job["types"]["click"], expected);
    let day = "from=2026-03-16T00:00:00Z&to=2026-03-16T23:59:59Z&basis=final";
    let net = &server.get_json(&format!("/v1/ad_click/42/summary?{day}"))["total"];
    assert_eq!(net, 8_603);
}

/// MONEY: gross 10,000, of them 1,397 crawlers and 190 without an agent.
#[test]
fn the_crawlers_of_an_access_log_are_filtered() {
    let Some(batches) = requests() else {
        return;
    };
    let place = Place::new(CONFIG);
    let server = place.serve(&place.path("data"));
    for batch in batches {
        let answer = server.post("/v1/events", batch);
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let told = rules(&server);
    let numbers = (
        &told["events"],
        &told["undecided"],
        &told["filters"][0]["filtered"],
    );
    assert_eq!(
        numbers,
        (&json!(10_000), &json!(190), &json!(1_397)),
        "{told}"
    );
    assert_eq!(told["decision_rate"], 0.981);
    assert_eq!(server.get_json("/v1/ad_click/42/summary")["total"], 8_603);
    server.terminate();
    // A report by class has what was filtered as it came, too.
    let server = place.serve_at("2026-03-19T13:00:00Z@0", &place.path("data"));
    server.client().rebuild();
    let job = reconcile(server.client(), &json!({"day": "2026-03-16"}));
    let click = &job["types"]["click"];
    assert_eq!(
        (&click["causes"], &click["after"], &click["filtered"]),
        (&json!({}), &json!(8_603), &crawlers()),
        "{job}"
    );
    let version = &server.get_json("/v1/finals/2026-03-16")["versions"][0];
    assert_eq!(version["types"]["click"]["filtered"], crawlers());
}

/// All that the rules filter of the access log, by class.
fn crawlers() -> Value {
    json!({
        "general": {"n": 1_397, "rules": {"crawlers": 1_397}}, "sophisticated": {"n": 0, "rules": {}},
    })
}
