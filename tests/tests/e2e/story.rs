//! A week of real clicks: crashes, midnights, rebuilds, late increments, rollback. Every
//! count stays exactly what was sent.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server};

use crate::check::{check_all, check_part};
use crate::clicks::{CLOCK, send_bitly};
use crate::expected::{Click, Expected};
use crate::stop::StopOnDrop;

/// Ten seconds before a midnight, at a rate that reaches the midnight after next in three seconds.
const OVER_TWO_MIDNIGHTS: &str = "2012-03-16T23:59:50Z@28800";
/// Noon after them.
const AFTER: &str = "2012-03-18T12:00:00Z";

/// 2012-03-16T19:00:00Z, an hour of real clicks.
const REAL_HOUR: i64 = 1_331_924_400;
/// 2012-03-17T06:00:00Z.
const NEXT_DAY: i64 = 1_331_964_000;
/// 2012-03-15T03:00:00Z, a day of no clicks before the first.
const DAY_BEFORE: i64 = 1_331_780_400;

/// Some keys' clicks in one hour: keys that exist and a new one, with and without values.
fn some_clicks(at: i64, expected: &Expected) -> Vec<Click> {
    let keys: Vec<_> = expected.keys().step_by(97).cloned().collect();
    let mut clicks: Vec<Click> = keys
        .into_iter()
        .enumerate()
        .map(|(index, key)| Click {
            at: at + index as i64,
            n: 1 + index as u64,
            keys: vec![key],
            by: match index % 3 {
                0 => vec![("c", "US".into())],
                1 => vec![("r", "http://late.example/a,b|c".into())],
                _ => vec![],
            },
        })
        .collect();
    clicks.push(Click {
        at,
        n: 7,
        keys: vec![("l", format!("new{at}")), ("u", "somebody".into())],
        by: vec![("c", "NZ".into()), ("r", "direct".into())],
    });
    clicks
}

/// Posts clicks as one batch; how many of them came late.
fn post(client: &Client, expected: &mut Expected, clicks: &[Click]) -> u64 {
    let items: Value = clicks.iter().map(Click::item).collect();
    let answer = client.post("/v1/increments", items.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!(answer["accepted"], json!(clicks.len()), "{answer}");
    expected.add(clicks);
    answer["late"].as_u64().expect("a number")
}

#[test]
fn every_count_stays_exact_through_crashes_midnights_rebuilds_and_rollback() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(data.path(), &["--clock", CLOCK]);
    let Some(mut expected) = send_bitly(&server) else {
        return;
    };
    server.kill9();

    let server = Server::start(data.path(), &["--clock", CLOCK]);
    check_part(&server, &expected, 0, 2);
    server.kill9();

    over_two_midnights(data.path(), &mut expected);
    let server = Server::start(data.path(), &["--clock", AFTER]);
    late_clicks_and_rebuilds(&server, &mut expected);
    let server = rolled_back(server, data.path(), &mut expected);
    check_part(&server, &expected, 1, 2);
    server.kill9();

    let server = Server::start(data.path(), &["--clock", AFTER]);
    check_part(&server, &expected, 1, 4);
    killed_while_it_rebuilds(server, data.path(), &mut expected);
}

/// The clock runs over two midnights while clicks are counted; both days are archived.
fn over_two_midnights(data: &Path, expected: &mut Expected) {
    let server = Server::start(data, &["--clock", OVER_TWO_MIDNIGHTS]);
    let clicks = some_clicks(NEXT_DAY, expected);
    // The next day's store takes them, whether its day has begun or not.
    assert_eq!(post(&server, expected, &clicks), 0, "none is late");
    let status = server.wait_for_status("both days are archived", |status| {
        let stores = &status["ring"]["slots"];
        let ids: Vec<&str> = stores
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|store| store["id"].as_str())
            .collect();
        let gone = |day: &str| !ids.contains(&day);
        status["generation"].as_u64() >= Some(2)
            && status["last_rebuild"]["state"] == "done"
            && gone("day-2012-03-16")
            && gone("day-2012-03-17")
    });
    assert!(
        status["ring"]["today"].as_str() >= Some("2012-03-18"),
        "{status:#}"
    );
    check_all(&server, expected);
    server.terminate();
}

/// Clicks for days that are exported count at once, while they are merged, and afterwards.
fn late_clicks_and_rebuilds(server: &Server, expected: &mut Expected) {
    check_part(server, expected, 2, 4);
    // The fast clock of the server before may have run on for a day, and the ring does not turn back by one.
    let next_day_is_yesterday = server.status()["ring"]["today"] == "2012-03-18";
    for (round, at) in [REAL_HOUR, NEXT_DAY, DAY_BEFORE].into_iter().enumerate() {
        // Read before the clicks are sent: where the fast clock ran on for two days, the ring turned back and opened
        // yesterday's store anew, and the schedule rebuilds that at once.
        let before = server.status()["generation"].as_u64();
        let clicks = some_clicks(at, expected);
        let late = post(server, expected, &clicks);
        // Yesterday has a further store once its store is exported; the days before have none.
        let is_taken = at == NEXT_DAY && next_day_is_yesterday;
        let expected_late = if is_taken { 0 } else { clicks.len() };
        assert_eq!(late, expected_late as u64, "clicks of {at}");
        check_part(server, expected, round, 8);
        let generation = rebuild_under_reads(server, expected);
        assert!(
            Some(generation) > before,
            "generation {generation} after {before:?}"
        );
    }
    check_part(server, expected, 0, 2);
}

/// Rebuilds while other threads read; every answer they get is right.
fn rebuild_under_reads(server: &Server, expected: &Expected) -> u64 {
    let (stop, passes) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for reader in 0..2 {
            let (stop, passes) = (&stop, &passes);
            scope.spawn(move || {
                for pass in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    check_part(server, expected, (reader + 2 * pass) % 97, 97);
                    passes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        let generation = server.rebuild();
        // Readers that were slower than the rebuild see what it published.
        let seen = passes.load(Ordering::Relaxed);
        tallyring_tests::server::wait_until("readers saw the new generation", || {
            passes.load(Ordering::Relaxed) >= seen + 4
        });
        generation
    })
}

/// An older generation, and the rebuild after it: no click is lost or doubled.
fn rolled_back(server: Server, data: &Path, expected: &mut Expected) -> Server {
    let kept = server.get_json("/v1/admin/generations");
    let generations = kept["generations"].as_array().expect("a list");
    let number = |index: usize| generations[index]["generation"].as_u64().expect("a number");
    assert!(generations.len() >= 3, "{kept:#}");
    let previous = number(generations.len() - 2);
    let answer = server.post(&format!("/v1/admin/generations/{previous}/activate"), "");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(server.status()["generation"], json!(previous));
    check_all(&server, expected);
    let clicks = some_clicks(REAL_HOUR + 60, expected);
    post(&server, expected, &clicks);
    check_part(&server, expected, 3, 8);
    server.kill9();

    let server = Server::start(data, &["--clock", AFTER]);
    assert_eq!(server.status()["generation"], json!(previous));
    check_part(&server, expected, 0, 4);
    let newest = number(generations.len() - 1);
    let generation = rebuild_under_reads(&server, expected);
    assert!(generation > newest, "{generation} after {newest}");
    server
}

/// A crash in the middle of a rebuild: nothing is published half, and the next rebuild works.
fn killed_while_it_rebuilds(server: Server, data: &Path, expected: &mut Expected) {
    let mut server = server;
    for step in 0..4 {
        let clicks = some_clicks(REAL_HOUR + 120 + step, expected);
        post(&server, expected, &clicks);
        let answer = server.post("/v1/admin/rebuild", "");
        assert_eq!(answer.status, 202, "{answer:?}");
        let manifest = server.status()["manifest"].clone();
        if step % 2 == 1 {
            // One change of the manifest further: stores are closed, or the result is published.
            server.wait_for_status("the rebuild moves on", |status| {
                status["manifest"] != manifest || status["last_rebuild"]["state"] != "running"
            });
        }
        server.kill9();
        server = Server::start(data, &["--clock", AFTER]);
        let state = server.status()["last_rebuild"]["state"].clone();
        assert!(state == "failed" || state == "done", "{state}");
        check_part(&server, expected, step as usize, 8);
    }
    server.rebuild();
    check_all(&server, expected);
}
