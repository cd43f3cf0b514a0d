//! Real impressions that servers reserve at once: no cap is exceeded, whoever asks when. Reservations in the log: no
//! crash forgets one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server, tallyring_ok};

use crate::real_events::{lines, server_with_a_cap};

const SERVERS: usize = 16;
const LIMIT: u64 = 3;

/// An ad and a user.
type Pair<'l> = (&'l str, &'l str);

/// 40,000 real impressions, which 16 servers show at once. They release some of what they reserve, of every fourth ad.
#[test]
fn servers_that_reserve_real_impressions_at_once_never_exceed_a_cap() {
    let Some(lines) = lines("obd_impressions_clicks.ndjson.gz") else {
        return;
    };
    let data = tempfile::tempdir().expect("a directory");
    let server = server_with_a_cap(data.path());
    let text = |line: &'_ Value, name: &str| line[name].as_str().expect("a text").to_owned();
    let impressions: Vec<(String, String)> = lines
        .iter()
        .filter(|line| line["action"] == "impression")
        .map(|line| (text(line, "key"), text(line, "user")))
        .collect();
    assert_eq!(impressions.len(), 40_000);
    let mut offered: BTreeMap<Pair<'_>, u64> = BTreeMap::new();
    for (ad, user) in &impressions {
        *offered.entry((ad, user)).or_default() += 1;
    }
    let next = AtomicUsize::new(0);
    let shown: BTreeMap<Pair<'_>, u64> = thread::scope(|scope| {
        let servers: Vec<_> = (0..SERVERS)
            .map(|_| scope.spawn(|| show(server.client().url(), &impressions, &next)))
            .collect();
        let mut all = BTreeMap::new();
        for server in servers {
            for (pair, shown) in server.join().expect("shown") {
                *all.entry(pair).or_default() += shown;
            }
        }
        all
    });
    for (&(ad, user), &offered) in &offered {
        let shown = shown.get(&(ad, user)).copied().unwrap_or_default();
        let most = offered.min(LIMIT);
        match gives_up(ad) {
            true => assert!(shown <= most, "{ad} {user}: {shown} of {offered}"),
            false => assert_eq!(shown, most, "{ad} {user} of {offered}"),
        }
    }
    let total: u64 = shown.values().sum();
    let metrics = server.get("/metrics").text;
    let outcome = |name: &str| {
        let line = format!("tallyring_reservations_total{{outcome=\"{name}\"}} ");
        let value = metrics.lines().find_map(|text| text.strip_prefix(&*line));
        value.expect("a metric").parse::<u64>().expect("a count")
    };
    assert_eq!(outcome("confirmed"), total);
    assert_eq!((outcome("missed"), outcome("expired")), (0, 0));
    assert_eq!(outcome("held"), total + outcome("released"));
    assert!(outcome("released") > 100, "{metrics}");
    assert_eq!(outcome("held") + outcome("blocked"), 40_000);
    assert!(
        metrics.contains("\ntallyring_reservations_held 0\n"),
        "{metrics}"
    );
    // The server counts all that was shown.
    for (&(ad, user), shown) in shown.iter().step_by(50) {
        let question = json!({"users": [user], "ranges": ["24h"], "action": ["impression"], "entity": {"ad": [ad]}});
        let counts = server
            .post("/v1/actions/query", question.to_string())
            .json();
        let count = &counts["users"][user]["24h"]["impression"]["ad"][ad];
        assert_eq!(count, shown, "{ad} {user}");
    }
}

#[test]
fn reservations_in_the_log_outlive_every_end_of_the_server() {
    let data = tempfile::tempdir().expect("a directory");
    let cap = data.path().join("cap.toml");
    let text = "[actions]\nreservations = \"log\"\n\
                [caps.ad]\nentity = \"ad\"\naction = \"impression\"\nlimit = 4\nwithin = \"24h\"\n";
    std::fs::write(&cap, text).expect("write a configuration");
    let cap = cap.to_string_lossy();
    let start = || {
        let arguments = ["--clock", "2019-12-01T00:00:00Z@0", "--config", &cap];
        Server::start(&data.path().join("data"), &arguments)
    };
    let reserve = |server: &Server| {
        let wanted = json!({"user": "u", "candidates": [{"ad": "1"}], "hold": "10m"});
        let answer = server.post("/v1/actions/reserve", wanted.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["reservation"].as_str().map(str::to_owned)
    };
    let release = |server: &Server, reservation: &str| {
        let path = format!("/v1/actions/reservations/{reservation}");
        server.client().delete(&path).status
    };
    let confirm = |server: &Server, reservation: &str| {
        let event = json!({"id": reservation, "type": "impression", "user": "u", "entities": {"ad": "1"},
            "reservation": reservation});
        let answer = server.post("/v1/events", event.to_string()).json();
        answer["reservation"].clone()
    };
    let server = start();
    let mut held: Vec<String> = (0..4).filter_map(|_| reserve(&server)).collect();
    assert_eq!((held.len(), reserve(&server)), (4, None));
    assert_eq!(confirm(&server, &held.remove(0)), "confirmed");
    assert_eq!(release(&server, &held.remove(0)), 204);
    // An event counts now, two reservations are live, and one was released.
    server.kill9();
    let server = start();
    let third = reserve(&server).expect("a place");
    assert_eq!(reserve(&server), None);
    server.terminate();
    let server = start();
    assert_eq!(reserve(&server), None);
    assert_eq!(release(&server, &third), 204);
    assert_eq!(release(&server, &third), 404);
    assert_eq!(confirm(&server, &held[0]), "confirmed");
    // Runs hold the actions now, and the log has the reservations once more.
    server.terminate();
    let server = start();
    server.kill9();
    let server = start();
    assert_eq!(confirm(&server, &held[1]), "confirmed");
    assert!(reserve(&server).is_some());
    assert_eq!(reserve(&server), None);
    let log = tallyring_ok(&[
        "cat",
        "--data",
        &data.path().join("data").to_string_lossy(),
        "oplog",
    ]);
    assert!(log.contains(&format!("hold_ended id={third}")), "{log}");
}

/// Takes impressions by turns, and shows those that may be shown. Returns how many of each it showed.
fn show<'l>(
    url: &str,
    impressions: &'l [(String, String)],
    next: &AtomicUsize,
) -> BTreeMap<Pair<'l>, u64> {
    let client = Client::new(url);
    let mut shown = BTreeMap::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some((ad, user)) = impressions.get(number) else {
            return shown;
        };
        let wanted = json!({"user": user, "candidates": [{"ad": ad}], "hold": "10m"});
        let answer = client.post("/v1/actions/reserve", wanted.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let Some(reservation) = answer["reservation"].as_str() else {
            assert_eq!(answer["candidates"][0]["allowed"], false);
            continue;
        };
        if gives_up(ad) && number.is_multiple_of(7) {
            let path = format!("/v1/actions/reservations/{reservation}");
            assert_eq!(client.delete(&path).status, 204);
            continue;
        }
        let event = json!({"id": number.to_string(), "type": "impression", "user": user,
            "entities": {"ad": ad}, "reservation": reservation});
        let answer = client.post("/v1/events", event.to_string());
        assert_eq!(answer.json()["reservation"], "confirmed", "{answer:?}");
        *shown.entry((ad.as_str(), user.as_str())).or_default() += 1;
    }
}

/// True for the ads whose reservations are released at times.
fn gives_up(ad: &str) -> bool {
    ad.bytes().map(u32::from).sum::<u32>().is_multiple_of(4)
}
