//! Real events and clicks, each counted once however often it is sent, and whatever is killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};
use tallyring_tests::needs::data_file;
use tallyring_tests::server::{Client, Server, wait_until};

use crate::chance::Chance;
use crate::check::check_all;
use crate::clicks::CLOCK;
use crate::expected::{Expected, bitly_clicks, bitly_file};

const SEED: u64 = 20_150_101;
const COPIES: usize = 3;
const KILLS: usize = 8;
const BATCH_ITEMS: usize = 40;

/// Lines of a compressed file of JSON; none when it is not there.
pub(crate) fn lines(name: &str) -> Option<Vec<Value>> {
    let path: PathBuf = data_file(name)?;
    let file = BufReader::new(MultiGzDecoder::new(
        File::open(path).expect("open the data"),
    ));
    let parse = |line: std::io::Result<String>| {
        serde_json::from_str(&line.expect("a line of text")).expect("a line of JSON")
    };
    Some(file.lines().map(parse).collect())
}

/// A server below `data` with a cap of three impressions of an ad in 24 hours.
pub(crate) fn server_with_a_cap(data: &Path) -> Server {
    let config = data.join("caps.toml");
    let cap =
        "[caps.ad_day]\nentity = \"ad\"\naction = \"impression\"\nlimit = 3\nwithin = \"24h\"\n";
    std::fs::write(&config, cap).expect("write a configuration");
    let config = config.to_string_lossy();
    let arguments = ["--clock", "2019-12-01T00:00:00Z@0", "--config", &config];
    Server::start(&data.join("data"), &arguments)
}

fn post(client: &Client, events: &[Value]) -> u64 {
    let answer = client.post("/v1/events", json!(events).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let count = |name: &str| answer[name].as_u64().expect("a count");
    assert_eq!(count("accepted") + count("duplicates"), events.len() as u64);
    count("accepted")
}

fn total(client: &Client, key: &str) -> u64 {
    let path = format!("/v1/{key}/summary?unit=year&units=-1");
    client.get_json(&path)["total"].as_u64().expect("a total")
}

fn assert_near(found: &Value, expected: usize) {
    let error = found.as_f64().expect("an estimate") / expected as f64 - 1.0;
    assert!(error.abs() < 0.05, "{found}, expected about {expected}");
}

/// 40,000 real impressions and 207 clicks: the ratio of every ad, and of all, is that of the file.
#[test]
fn the_ratio_of_real_clicks_to_impressions_is_that_of_the_file() {
    let Some(lines) = lines("obd_impressions_clicks.ndjson.gz") else {
        return;
    };
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &["--clock", "2019-12-01T00:00:00Z@0"]);
    let mut expected: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    let mut users: BTreeSet<&str> = BTreeSet::new();
    let mut events = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let (ad, kind) = (line["key"].as_str().expect("a key"), &line["action"]);
        expected.entry(ad).or_default()[usize::from(kind == "impression")] += 1;
        if kind == "impression" {
            users.insert(line["user"].as_str().expect("a user"));
        }
        events.push(
            json!({"id": format!("obd-{number}"), "type": kind, "at": line["ts"],
            "entities": {"ad": ad, "advertiser": "zozo"}, "user": line["user"]}),
        );
    }
    let accepted: u64 = events.chunks(5_000).map(|chunk| post(&server, chunk)).sum();
    assert_eq!(accepted, 40_207);
    let week = "unit=day&from=2019-11-24T00:00:00Z&to=2019-11-30T23:59:59Z";
    let all = server.get_json(&format!("/v1/ratios/ctr/advertiser/zozo?{week}"));
    assert_eq!(
        (&all["numerator"], &all["denominator"]),
        (&json!(207), &json!(40_000))
    );
    assert_eq!(all["ratio"], json!(0.005_175));
    for (ad, [clicks, impressions]) in &expected {
        let key = ad.replace('/', "%2F");
        let ratio = server.get_json(&format!("/v1/ratios/ctr/ad/{key}?{week}"));
        let found = (&ratio["numerator"], &ratio["denominator"]);
        assert_eq!(found, (&json!(clicks), &json!(impressions)), "{ad}");
    }
    let uniques = server.get_json(&format!("/v1/advertiser_impression/zozo/uniques?{week}"));
    assert_near(&uniques["estimate"], users.len());
    let minutes = "/v1/advertiser_impression/zozo/counts?unit=minute&from=2019-11-24T00:00:00Z&to=2019-11-30T22:00:00Z";
    let minutes = server.get_json(minutes);
    assert_eq!(minutes["aligned"], true);
}

/// 15,129 real events with their own ids, every one sent twice.
#[test]
fn real_events_that_are_delivered_twice_count_once() {
    let Some(lines) = lines("gharchive_2015-01-01.ndjson.gz") else {
        return;
    };
    let data = tempfile::tempdir().expect("a directory");
    let config = data.path().join("c.toml");
    let text = "[events.activity]\nentities = [\"repository\", \"kind\", \"source\"]\n";
    std::fs::write(&config, text).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let directory = data.path().join("data");
    let arguments = ["--clock", "2015-01-01T02:00:00Z@0", "--config", config];
    let server = Server::start(&directory, &arguments);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let mut users: BTreeSet<&str> = BTreeSet::new();
    let mut events = Vec::new();
    for line in &lines {
        let kind = line["action"].as_str().expect("an action");
        *kinds.entry(kind).or_default() += 1;
        users.insert(line["user"].as_str().expect("a user"));
        events.push(
            json!({"id": line["id"], "type": "activity", "at": line["t"], "user": line["user"],
            "entities": {"repository": line["key"], "kind": kind, "source": "hub"}}),
        );
    }
    let both = || events.chunks(3_000).map(|chunk| post(&server, chunk));
    let accepted: [u64; 2] = [both().sum(), both().sum()];
    assert_eq!((accepted, kinds.len()), ([15_129, 0], 14));
    assert_eq!(total(&server, "source_activity/hub"), 15_129);
    for (kind, count) in kinds {
        assert_eq!(
            total(&server, &format!("kind_activity/{kind}")),
            count,
            "{kind}"
        );
    }
    let uniques = server.get_json("/v1/source_activity/hub/uniques?unit=hour&units=3");
    assert_near(&uniques["estimate"], users.len());
    assert_eq!(users.len(), 6_208);
}

/// Every line three times, shuffled, while the server is killed again and again.
#[test]
fn real_clicks_sent_three_times_count_once_though_the_server_is_killed() {
    let Some(file) = bitly_file() else { return };
    let clicks = bitly_clicks(&file);
    let mut expected = Expected::default();
    expected.add(&clicks);
    let items = clicks.iter().enumerate().map(|(number, click)| {
        let mut item = click.item();
        item["id"] = json!(format!("click-{number}"));
        item
    });
    let (_data, server) = replay("/v1/increments", items, "");
    check_all(&server, &expected);
}

/// The clicks as events, by key and by minute.
#[test]
fn real_events_sent_three_times_count_once_though_the_server_is_killed() {
    let Some(file) = bitly_file() else { return };
    let clicks = bitly_clicks(&file);
    let mut keys: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    let mut minutes: BTreeMap<i64, u64> = BTreeMap::new();
    for click in &clicks {
        for (name, key) in &click.keys {
            let counts = keys.entry(name).or_default();
            *counts.entry(key.clone()).or_insert(0) += 1;
        }
        let is_link = |(name, _): &(&str, String)| *name == "l";
        if click.keys.iter().any(is_link) {
            *minutes
                .entry(click.at - click.at.rem_euclid(60))
                .or_insert(0) += 1;
        }
    }
    let items = clicks.iter().enumerate().map(|(number, click)| {
        let item = click.item();
        json!({"id": format!("click-{number}"), "type": "click", "at": item["at"], "entities": item["keys"],
            "by": {"c": item["by"]["c"]}, "user": format!("user {}", number % 100)})
    });
    let config = "[events.click]\nentities = [\"l\", \"u\", \"d\"]\nsubtotals = [\"c\"]\n";
    let (_data, server) = replay("/v1/events", items, config);
    let (first, last) = (minutes.first_key_value(), minutes.last_key_value());
    let (Some((first, _)), Some((last, _))) = (first, last) else {
        panic!("there are clicks of links");
    };
    let range = format!("from={first}&to={last}");
    for (name, counts) in keys {
        let top = server.get_json(&format!(
            "/v1/{name}_click/top?unit=year&units=-1&limit=10000"
        ));
        let listed = top["keys"].as_array().expect("keys").iter();
        let text = |key: &Value| key.as_str().expect("a key").to_owned();
        let listed = listed.map(|row| (text(&row["key"]), row["count"].as_u64().expect("a count")));
        assert_eq!(listed.collect::<BTreeMap<String, u64>>(), counts, "{name}");
    }
    let by_minute = server.get_json(&format!("/v1/l_click/counts?unit=minute&{range}"));
    let rows = by_minute["counts"].as_array().expect("minutes");
    for (row, minute) in rows.iter().zip((*first..).step_by(60)) {
        let count = minutes.get(&minute).copied().unwrap_or(0);
        assert_eq!(row["count"], count, "{row}");
    }
    assert_eq!(by_minute["total"], minutes.values().sum::<u64>());
}

/// Sends every item three times, shuffled, while the server is killed again and again; the server that is left.
fn replay(
    path: &str,
    items: impl Iterator<Item = Value>,
    declared: &str,
) -> (tempfile::TempDir, Server) {
    let items = items.flat_map(|item| std::iter::repeat_n(item, COPIES));
    let batches = shuffled(items.collect(), BATCH_ITEMS);
    let data = tempfile::tempdir().expect("a directory");
    let (directory, config) = (data.path().join("data"), data.path().join("c.toml"));
    let text = format!("[memory]\nreplay_records = 1000\n{declared}");
    std::fs::write(&config, text).expect("write the configuration");
    let config = config.to_str().expect("a path of text");
    let start = || Server::start(&directory, &["--clock", CLOCK, "--config", config]);
    let server = send_through_kills(&start, path, &batches);
    (data, server)
}

/// Batches of some items each, in an order drawn by chance.
pub(crate) fn shuffled(mut items: Vec<Value>, of_batch: usize) -> Vec<String> {
    let mut chance = Chance::new(SEED);
    for last in (1..items.len()).rev() {
        let other = chance.below(last as u64 + 1);
        items.swap(last, usize::try_from(other).expect("a place"));
    }
    let batches = items.chunks(of_batch);
    batches.map(|batch| json!(batch).to_string()).collect()
}

/// Sends batches while the server is killed again and again; the server that is left.
pub(crate) fn send_through_kills(
    start: &dyn Fn() -> Server,
    path: &str,
    batches: &[String],
) -> Server {
    let sent = AtomicUsize::new(0);
    for kill in 1..=KILLS {
        let server = start();
        let enough = batches.len() * kill / (KILLS + 1);
        thread::scope(|scope| {
            let client = server.client().clone();
            scope.spawn(|| send_until_killed(client, path, batches, &sent));
            wait_until("some batches are sent", || {
                sent.load(Ordering::SeqCst) >= enough
            });
            server.kill9();
        });
    }
    let server = start();
    send_until_killed(server.client().clone(), path, batches, &sent);
    assert_eq!(sent.load(Ordering::SeqCst), batches.len());
    server
}

/// A batch that got no answer is sent again after the next start.
fn send_until_killed(client: Client, path: &str, batches: &[String], sent: &AtomicUsize) {
    while let Some(batch) = batches.get(sent.load(Ordering::SeqCst)) {
        match client.try_post(path, &[], batch.as_bytes()) {
            Ok(answer) => assert_eq!(answer.status, 200, "{answer:?}"),
            Err(_) => return,
        }
        sent.fetch_add(1, Ordering::SeqCst);
    }
}

/// 40,000 real impressions in the order of time, each shown only if the cap of three in 24 hours allows it.
#[test]
fn a_cap_allows_of_real_impressions_what_a_count_by_hand_allows() {
    const THREADS: usize = 8;
    let Some(lines) = lines("obd_impressions_clicks.ndjson.gz") else {
        return;
    };
    let data = tempfile::tempdir().expect("a directory");
    let server = server_with_a_cap(data.path());
    let mut impressions: Vec<(i64, &str, &str)> = lines
        .iter()
        .filter(|line| line["action"] == "impression")
        .map(|line| {
            let text = |name: &str| line[name].as_str().expect("a text");
            (
                line["ts"].as_i64().expect("a time"),
                text("user"),
                text("key"),
            )
        })
        .collect();
    impressions.sort_by_key(|impression| impression.0);
    let mut of_users: Vec<Vec<(i64, &str, &str)>> = vec![Vec::new(); THREADS];
    for impression in impressions {
        let user: usize = impression.1.bytes().map(usize::from).sum();
        of_users[user % THREADS].push(impression);
    }
    let show = |impressions: &[(i64, &str, &str)], thread: usize| {
        // A client keeps few connections, so each thread has one of its own.
        let client = &Client::new(server.client().url());
        let mut allowed = 0;
        for (number, &(at, user, ad)) in impressions.iter().enumerate() {
            let check = json!({"user": user, "at": at, "candidates": [{"ad": ad}]});
            let verdict = client.post("/v1/actions/check", check.to_string()).json();
            if verdict["candidates"][0]["allowed"] == true {
                let event = json!({"id": format!("{thread}-{number}"), "type": "impression", "at": at,
                    "user": user, "entities": {"ad": ad}});
                assert_eq!(post(client, &[event]), 1);
                allowed += 1;
            }
        }
        allowed
    };
    let allowed: Vec<usize> = thread::scope(|scope| {
        let threads = of_users.iter().enumerate();
        let threads: Vec<_> = threads
            .map(|(thread, of)| scope.spawn(move || show(of, thread)))
            .collect();
        threads
            .into_iter()
            .map(|shown| shown.join().expect("shown"))
            .collect()
    });
    assert_eq!(allowed.into_iter().sum::<usize>(), 32_242);
}
