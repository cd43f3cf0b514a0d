//! A server reads its configuration file again: what changes is in force from then on, in the log, and after a crash; a
//! file that cannot be used changes nothing.

use std::fs;
use std::path::PathBuf;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring, tallyring_ok, wait_until, workspace};
use tempfile::TempDir;

use crate::final_numbers::reconcile;
use crate::stored::text;

const CLOCK: &str = "2026-03-16T13:00:03Z@0";
const EVENTS: &str = "[events.click]\nentities = [\"ad\"]\nsubtotals = [\"device\"]\n";
const BOTS: &str = "[filters.bots]\nfield = \"by.device\"\nvalues = [\"bot\"]\n";

struct Place {
    directory: TempDir,
}

impl Place {
    fn new(config: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Self { directory };
        place.put(config);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts a file in the place of the one before, in one step.
    fn put(&self, config: &str) {
        let new = self.path("new");
        fs::write(&new, config).expect("write the file");
        fs::rename(&new, self.path("c.toml")).expect("rename the file");
    }

    fn serve_at(&self, clock: &str) -> Server {
        let config = self.path("c.toml");
        let arguments = ["--clock", clock, "--config", text(&config)];
        Server::start(&self.path("data"), &arguments)
    }
}

fn click(id: &str, device: &str) -> Value {
    json!({"id": id, "type": "click", "at": "2026-03-16T12:59:58Z", "entities": {"ad": "42"},
        "by": {"device": device}})
}

fn send(client: &Client, event: &Value) -> Value {
    let answer = client.post("/v1/events", event.to_string());
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn reload(client: &Client) -> Value {
    let answer = client.post("/v1/admin/reload", "");
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn config(client: &Client) -> Value {
    client.get_json("/v1/admin/status")["config"].clone()
}

fn total(client: &Client, key: &str) -> Value {
    client.get_json(&format!("/v1/{key}/summary"))["total"].clone()
}

#[test]
fn a_rule_that_changes_while_events_come_counts_before_and_filters_after() {
    let place = Place::new(EVENTS);
    let server = place.serve_at(CLOCK);
    // Events come all the while, and each of them has an answer that tells which rules judged it.
    let url = server.client().url().to_owned();
    let sending = thread::spawn(move || {
        let client = Client::new(&url);
        let answers = (0..400).map(|number| {
            let answer = send(&client, &click(&format!("e{number}"), "bot"));
            answer["filtered"] == 1
        });
        answers.collect::<Vec<bool>>()
    });
    wait_until("some were counted", || total(&server, "ad_click/42") != 0);
    place.put(&format!("{EVENTS}{BOTS}"));
    let told = reload(&server);
    assert_eq!(
        told,
        json!({"changed": ["filters.bots"], "needs_restart": []})
    );
    assert_eq!(send(&server, &click("after", "bot"))["filtered"], 1);
    let filtered = sending.join().expect("all were sent");
    let counted = filtered.iter().filter(|filtered| !**filtered).count();
    assert!(counted > 0);
    // No event came between two: the rule holds from one place in the log on.
    assert!(filtered[..counted].iter().all(|filtered| !filtered));
    let check = |server: &Server| {
        assert_eq!(total(server, "ad_click/42"), counted);
        for (number, is_filtered) in filtered.iter().enumerate() {
            let verdict = &server.get_json(&format!("/v1/events/e{number}"))["verdict"];
            let expected = ["counted", "filtered"][usize::from(*is_filtered)];
            assert_eq!(verdict, expected, "e{number}");
        }
    };
    check(&server);
    server.kill9();
    let server = place.serve_at(CLOCK);
    check(&server);
    let log = tallyring_ok(&["audit", "--data", text(&place.path("data"))]);
    assert!(log.contains("bots"), "{log}");
    server.terminate();
    // The rule holds for the whole day once the day is counted again.
    let server = place.serve_at("2026-03-19T13:00:00Z@0");
    server.client().rebuild();
    let job = reconcile(server.client(), &json!({"day": "2026-03-16"}));
    let click = &job["types"]["click"];
    assert_eq!(
        (&click["before"], &click["after"]),
        (&json!(counted), &json!(0))
    );
    let cause = json!({"filtered_by:bots": -i64::try_from(counted).expect("few")});
    assert_eq!(click["causes"], cause);
}

#[test]
fn namespaces_and_subtotals_are_added_to_a_running_server() {
    let place = Place::new(EVENTS);
    let server = place.serve_at(CLOCK);
    send(&server, &click("before", "phone"));
    let with = |client: &Client, id: &str| {
        let mut event = click(id, "phone");
        event["entities"]["campaign"] = "c1".into();
        event["by"]["country"] = "NL".into();
        client.post("/v1/events", event.to_string())
    };
    let refused = with(&server, "early");
    assert_eq!(refused.status, 400, "{}", refused.text);
    let more = "[events.click]\nentities = [\"ad\", \"campaign\"]\nsubtotals = [\"device\", \"country\"]\n\
        [titles]\ncountry = \"Land\"\n[[namespace]]\nname = \"page\"\n";
    place.put(more);
    // The server looks at the file by itself.
    wait_until("the namespace is declared", || {
        server.get("/v1/page/x/summary").status == 200
    });
    let answer = with(&server, "early");
    assert_eq!(answer.status, 200, "{}", answer.text);
    let page = server.post("/v1/incr?key.page=x", "");
    assert_eq!(page.status, 204, "{}", page.text);
    let check = |server: &Server| {
        assert_eq!(total(server, "ad_click/42"), 2);
        assert_eq!(total(server, "campaign_click/c1"), 1);
        assert_eq!(total(server, "page/x"), 1);
        let by = server.get_json(
            "/v1/ad_click/42/by/country?unit=day&from=2026-03-16T00:00:00Z&to=2026-03-17T00:00:00Z",
        );
        let text = by.to_string();
        assert!(text.contains("\"NL\"") && text.contains("Land"), "{text}");
        let namespaces = server.get_json("/v1/namespaces").to_string();
        assert!(namespaces.contains("campaign_click"), "{namespaces}");
        let buckets = &server.get_json("/v1/events/before")["counted"]["buckets"];
        assert_eq!(buckets.as_array().map(Vec::len), Some(1), "{buckets}");
    };
    check(&server);
    // An increment of a namespace that is gone is refused, and the counts stay.
    place.put(EVENTS);
    let told = reload(&server);
    let changed = json!(["events.click", "namespace.page", "titles.country"]);
    assert_eq!(told["changed"], changed, "{told}");
    assert_eq!(server.post("/v1/incr?key.page=x", "").status, 400);
    place.put(more);
    reload(&server);
    check(&server);
    server.kill9();
    let server = place.serve_at(CLOCK);
    check(&server);
    server.terminate();
    assert_eq!(
        tallyring(&["verify", "--data", text(&place.path("data"))]).code,
        0
    );
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing_and_is_told() {
    let place = Place::new(&format!("{EVENTS}{BOTS}"));
    let server = place.serve_at(CLOCK);
    let namespaces = server.get("/v1/namespaces").text;
    let file = place.path("c.toml");
    for (wrong, says) in [
        ("[events.click\n".to_owned(), "TOML parse error"),
        (format!("colour = 1\n{EVENTS}"), "unknown field `colour`"),
        (
            format!("{EVENTS}[[namespace]]\nname = \"x\"\ngrain = \"day\"\n"),
            "namespace `x`: grain must be \"hour\" or \"quarter\"",
        ),
        (
            format!("{EVENTS}[[namespace]]\nname = \"query\"\n"),
            "got `query`: choose another name",
        ),
        (
            format!(
                "{EVENTS}[lists.l]\nfile = \"none.txt\"\nmatch = \"ip\"\n[filters.f]\nlist = \"l\"\n"
            ),
            "none.txt\": it cannot be read",
        ),
    ] {
        place.put(&wrong);
        let answer = server.post("/v1/admin/reload", "");
        assert_eq!(answer.status, 409, "{}", answer.text);
        assert!(answer.text.contains("Not accepted"), "{}", answer.text);
        let failure = config(&server)["failure"].clone();
        let refused = failure.as_str().unwrap_or_default();
        assert!(refused.contains(says), "{refused}");
        // A start refuses it with the same words.
        let other = place.path("other");
        let start = ["serve", "--data", text(&other), "--config", text(&file)];
        let start = tallyring(&start);
        assert_eq!(start.code, 2, "{start:?}");
        assert!(start.stderr.contains(refused), "{start:?} {refused}");
        let command = tallyring(&["reload", "--data", text(&place.path("data"))]);
        assert!(
            command.code != 0 && command.stderr.contains(says),
            "{command:?}"
        );
        let status = server.get_json("/v1/admin/status");
        assert_eq!(status["state"], "degraded");
        let reasons = status["reasons"].to_string();
        assert!(
            reasons.contains("the configuration cannot be used"),
            "{reasons}"
        );
        assert_eq!(status["config"]["failure"], failure);
        let metrics = server.get("/metrics").text;
        assert!(metrics.contains("tallyring_config_failed 1"), "{metrics}");
        assert_eq!(server.get("/v1/namespaces").text, namespaces);
    }
    fs::remove_file(&file).expect("remove the file");
    let gone = server.post("/v1/admin/reload", "");
    assert!(gone.text.contains("No such file"), "{}", gone.text);
    assert_eq!(send(&server, &click("b", "bot"))["filtered"], 1);
    place.put(&format!("{EVENTS}{BOTS}"));
    wait_until("the file is right", || {
        config(&server)["failure"] == Value::Null
    });
    assert_eq!(server.get_json("/v1/admin/status")["state"], "ok");
    assert_eq!(server.get("/v1/namespaces").text, namespaces);
}

#[test]
fn a_file_without_text_or_without_end_changes_nothing() {
    let place = Place::new(&format!("{EVENTS}{BOTS}"));
    let server = place.serve_at(CLOCK);
    let refused = |says: &str| {
        assert_eq!(server.post("/v1/admin/reload", "").status, 409);
        let failure = config(&server)["failure"].to_string();
        assert!(failure.contains(says), "{failure}");
        assert!(failure.len() < 20_000, "{} bytes", failure.len());
    };
    for (text, says) in [
        ("", "it says nothing"),
        ("# comments alone\n", "it says nothing"),
        (&"\0".repeat(5 << 20), "TOML parse error"),
        (&"\0".repeat((16 << 20) + 1), "it has more than 16 MiB"),
    ] {
        place.put(text);
        refused(says);
        let id = format!("{} bytes", text.len());
        assert_eq!(send(&server, &click(&id, "bot"))["filtered"], 1);
    }
    // A pipe whose other end never comes.
    let file = place.path("c.toml");
    fs::remove_file(&file).expect("remove the file");
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("run mkfifo").success());
    refused("it is no regular file");
    server.terminate();
}

#[test]
fn a_signal_reloads_and_settings_that_need_a_restart_are_named() {
    let place = Place::new(EVENTS);
    let server = place.serve_at(CLOCK);
    let log = place.path("data");
    let with_bots = format!("listen = \"127.0.0.1:9\"\n{EVENTS}{BOTS}[memory]\ncache_mib = 9\n");
    place.put(&with_bots);
    server.signal(Signal::HUP);
    let needs_restart = json!(["listen", "memory.cache_mib"]);
    wait_until("the signal is followed", || {
        config(&server)["needs_restart"] == needs_restart
    });
    assert_eq!(send(&server, &click("b", "bot"))["filtered"], 1);
    assert_eq!(config(&server)["failure"], Value::Null);
    let told = tallyring_ok(&["reload", "--data", text(&log)]);
    assert!(
        told.contains("in force after a restart: listen, memory.cache_mib"),
        "{told}"
    );
    let told = tallyring_ok(&["status", "--data", text(&log)]);
    assert!(
        told.contains("listen, memory.cache_mib need a restart"),
        "{told}"
    );
    place.put(EVENTS);
    assert_eq!(
        reload(&server),
        json!({"changed": ["filters.bots"], "needs_restart": []})
    );
    server.terminate();
    let none = tallyring(&["reload", "--data", text(&log)]);
    assert!(none.stderr.contains("no server holds"), "{none:?}");
}

#[test]
fn a_server_without_a_file_has_nothing_to_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), &["--clock", CLOCK]);
    let answer = server.post("/v1/admin/reload", "");
    assert_eq!(answer.status, 409, "{}", answer.text);
    assert!(answer.text.contains("without a configuration file"));
    assert_eq!(config(&server), Value::Null);
}

#[test]
fn lists_and_what_is_filled_change_with_the_file() {
    let place = Place::new(EVENTS);
    let server = place.serve_at(CLOCK);
    let event = |id: &str| {
        let mut event = click(id, "");
        event["by"] = json!({});
        event["evidence"] = json!({"ip": "203.0.113.9", "ua": "GoogleBot/2.1"});
        event
    };
    assert_eq!(send(&server, &event("before"))["accepted"], 1);
    fs::write(place.path("nets.txt"), "203.0.113.0/24\n").expect("write the list");
    let listed = format!(
        "{EVENTS}[enrich.fill]\ndevice = \"device\"\n[lists.nets]\nfile = \"nets.txt\"\nmatch = \"ip\"\n\
         [filters.nets]\nlist = \"nets\"\n"
    );
    place.put(&listed);
    let changed = json!(["enrich.fill", "filters.nets", "lists.nets"]);
    assert_eq!(reload(&server)["changed"], changed);
    assert_eq!(send(&server, &event("after"))["filtered"], 1);
    // The file of a list that came with a reload is looked at, too.
    fs::write(place.path("nets.txt"), "198.51.100.0/24\n").expect("write the list");
    let mut number = 0;
    wait_until("the list is in force", || {
        number += 1;
        send(&server, &event(&format!("again {number}")))["filtered"] == Value::Null
    });
    let by = "/v1/ad_click/42/by/device?unit=day&from=2026-03-16T00:00:00Z&to=2026-03-17T00:00:00Z";
    let by = server.get_json(by).to_string();
    assert!(by.contains("\"bot\""), "{by}");
    let cap = "[caps.daily]\naction = \"click\"\nentity = \"ad\"\nwithin = \"24h\"\nlimit = 1\n";
    place.put(&format!("{listed}{cap}"));
    assert_eq!(reload(&server)["changed"], json!(["caps.daily"]));
    let namespaces = server.get_json("/v1/namespaces").to_string();
    assert!(namespaces.contains("daily"), "{namespaces}");
}

#[test]
fn countries_and_rules_for_cloud_events_change_with_the_file() {
    let events = "[events.click]\nentities = [\"ad\"]\nsubtotals = [\"country\"]\n";
    let place = Place::new(events);
    let server = place.serve_at(CLOCK);
    let seen = |id: &str| {
        let event = json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "com.example.seen",
            "subject": "42", "time": "2026-03-16T12:59:58Z", "data": {}});
        let headers = [("content-type", "application/cloudevents+json")];
        server.post_with("/v1/events", &headers, event.to_string().as_bytes())
    };
    let refused = seen("a");
    assert_eq!(refused.status, 400, "{}", refused.text);
    let small = workspace().join("api/src/enrich/tests/small.mmdb");
    fs::copy(small, place.path("countries.mmdb")).expect("copy the file of countries");
    let rule = "[[cloudevents]]\ntype = \"com.example.seen\"\nevent = \"click\"\n[cloudevents.map]\n\
        \"entities.ad\" = \"subject\"\n";
    place.put(&format!(
        "{events}{rule}[enrich]\ngeo = \"countries.mmdb\"\n[enrich.fill]\ncountry = \"country\"\n"
    ));
    let changed = json!(["cloudevents.com.example.seen", "enrich.fill", "enrich.geo"]);
    assert_eq!(reload(&server)["changed"], changed);
    let counted = seen("a");
    assert_eq!(counted.status, 200, "{}", counted.text);
    let event = json!({"id": "b", "type": "click", "at": "2026-03-16T12:59:58Z", "entities": {"ad": "42"},
        "evidence": {"ip": "203.0.113.9"}});
    send(&server, &event);
    let by =
        "/v1/ad_click/42/by/country?unit=day&from=2026-03-16T00:00:00Z&to=2026-03-17T00:00:00Z";
    let by = server.get_json(by).to_string();
    assert!(by.contains("\"US\""), "{by}");
    let geo = server.get_json("/v1/admin/status")["enrich"]["geo"]["path"].to_string();
    assert!(geo.contains("countries.mmdb"), "{geo}");
    place.put(events);
    reload(&server);
    assert_eq!(
        server.get_json("/v1/admin/status")["enrich"]["geo"],
        Value::Null
    );
}

#[test]
fn caps_and_enrichment_that_change_are_in_the_trail() {
    let place = Place::new(EVENTS);
    let server = place.serve_at(CLOCK);
    let enrich = "[enrich]\nfrom_request = true\n";
    place.put(&format!("strict = true\n{EVENTS}{enrich}"));
    reload(server.client());
    place.put(&format!("{EVENTS}{enrich}"));
    reload(server.client());
    let data = place.path("data");
    let trail = tallyring_ok(&["audit", "--data", text(&data)]);
    let told: Vec<&str> = trail
        .lines()
        .filter_map(|line| line.split("  schema    ").nth(1))
        .collect();
    assert_eq!(
        told,
        ["settings +enrich.from_request +strict", "settings -strict"],
        "{trail}"
    );
    server.terminate();
}

/// A server without a file keeps the declarations, and runs without the settings beside them.
#[test]
fn a_start_without_a_file_tells_which_settings_do_not_hold() {
    let place = Place::new(&format!("strict = true\n{EVENTS}"));
    place.serve_at(CLOCK).terminate();
    let data = place.path("data");
    Server::start(&data, &["--clock", CLOCK]).terminate();
    let server = Server::start(&data, &["--clock", CLOCK]);
    send(server.client(), &click("e1", "phone"));
    server.terminate();
    let trail = tallyring_ok(&["audit", "--data", text(&data)]);
    assert_eq!(trail.matches("settings -strict").count(), 1, "{trail}");
    place.serve_at(CLOCK).terminate();
    let trail = tallyring_ok(&["audit", "--data", text(&data)]);
    assert_eq!(trail.matches("settings +strict").count(), 1, "{trail}");
}

#[test]
fn a_recount_without_manifests_knows_what_the_store_began_with() {
    let place = Place::new(EVENTS);
    let server = place.serve_at(CLOCK);
    send(server.client(), &click("e1", "phone"));
    let views = EVENTS.replace("click", "view");
    place.put(&views);
    reload(server.client());
    let view =
        json!({"id": "v1", "type": "view", "at": "2026-03-16T12:59:58Z", "entities": {"ad": "42"}});
    send(server.client(), &view);
    server.kill9();
    let (data, config) = (place.path("data"), place.path("c.toml"));
    for lost in ["manifests", "deltas", "ids", "runs", "archive"] {
        fs::remove_dir_all(data.join(lost)).expect("removed");
    }
    // The file says nothing of clicks any more.
    tallyring_ok(&["recount", "--data", text(&data), "--config", text(&config)]);
    place.put(&format!("{EVENTS}{views}"));
    let server = place.serve_at(CLOCK);
    for key in ["ad_click/42", "ad_view/42"] {
        assert_eq!(total(server.client(), key), 1, "{key}");
    }
    server.terminate();
}

#[test]
fn a_recount_that_would_lose_a_namespace_is_refused() {
    // The embedded configuration, which a recount without a file takes, has no visits.
    let place = Place::new(&EVENTS.replace("click", "visit"));
    let server = place.serve_at(CLOCK);
    let mut visit = click("e1", "phone");
    visit["type"] = "visit".into();
    send(server.client(), &visit);
    server.kill9();
    let (data, config) = (place.path("data"), place.path("c.toml"));
    fs::remove_dir_all(data.join("manifests")).expect("removed");
    let refused = tallyring(&["recount", "--data", text(&data)]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let told = "which the configuration does not declare";
    assert!(refused.stderr.contains(told), "{refused:?}");
    tallyring_ok(&["recount", "--data", text(&data), "--config", text(&config)]);
    let server = place.serve_at(CLOCK);
    assert_eq!(total(server.client(), "ad_visit/42"), 1);
    server.terminate();
}
