//! Worked examples of final numbers: what went wrong in production, and what the day counts once it is final.

use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, Server};

use crate::final_numbers::{BOTS, reconcile, start};

const DAY: &str = "2026-03-10";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// A click at some hour of the day.
fn click(id: &str, hour: u32, ad: &str, device: &str) -> Value {
    json!({"id": id, "type": "click", "at": format!("{DAY}T{hour:02}:30:00Z"), "entities": {"ad": ad},
        "by": {"device": device}, "user": format!("user of {id}")})
}

/// Sends events; returns the answer.
fn send(client: &Client, events: &[Value]) -> Value {
    let answer = client.post("/v1/events", json!(events).to_string());
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// A server in this hour of the day, so that its rules judge what comes then.
fn start_in(directory: &Path, hour: u32, rules: &str) -> Server {
    start(directory, &format!("{DAY}T{hour:02}:45:00Z"), rules)
}

/// A server after the day was closed.
fn start_after(directory: &Path, rules: &str) -> Server {
    let server = start(directory, "2026-03-13T13:00:01Z", rules);
    server.client().rebuild();
    server
}

/// Counts of an ad in some hours; `basis` is a further parameter.
fn by_hour(client: &Client, ad: &str, hours: Range<u32>, basis: &str) -> Vec<u64> {
    let (from, to) = (hours.start, hours.end - 1);
    let range = format!("from={DAY}T{from:02}:00:00Z&to={DAY}T{to:02}:59:59Z");
    let answer = client.get_json(&format!(
        "/v1/ad_click/{ad}/counts?unit=hour&{range}{basis}"
    ));
    let rows = answer["counts"].as_array().expect("hours").iter();
    rows.map(|row| row["count"].as_u64().expect("a count"))
        .collect()
}

/// The sums of clicks, whose causes add up.
fn clicks_of(job: &Value) -> &Value {
    let click = &job["types"]["click"];
    let causes = click["causes"].as_object().expect("causes").values();
    let causes: i64 = causes.map(|n| n.as_i64().expect("a number")).sum();
    let [before, after] = ["before", "after"].map(|sum| click[sum].as_i64());
    assert_eq!(before.map(|before| before + causes), after, "{job}");
    click
}

/// Ten workers each count a part of an ad that is too hot for one, and send their sums. A retry comes a day later.
#[test]
fn partial_sums_of_ten_workers_that_came_again_a_day_later_are_8412() {
    const PARTS: [u64; 10] = [847, 923, 801, 838, 866, 790, 884, 812, 895, 756];
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let part = |(salt, n): (usize, &u64)| {
        let mut part = click(&format!("ad 42, salt {salt}, 10:00"), 10, "42", "phone");
        part["n"] = json!(n);
        part
    };
    let parts: Vec<Value> = PARTS.iter().enumerate().map(part).collect();
    let server = start_in(directory, 11, "");
    for (accepted, duplicates) in [(10, 0), (0, 10)] {
        let answer = send(&server, &parts);
        let told = (&answer["accepted"], &answer["duplicates"]);
        assert_eq!(told, (&json!(accepted), &json!(duplicates)), "{answer}");
    }
    server.terminate();
    let server = start(directory, "2026-03-11T14:00:01Z", "");
    server.client().rebuild();
    assert_eq!(
        send(&server, &parts)["accepted"],
        10,
        "the ids are forgotten"
    );
    server.terminate();
    let server = start_after(directory, "");
    assert_eq!(by_hour(&server, "42", 10..11, ""), [16_824]);
    let job = reconcile(server.client(), &json!({ "day": DAY }));
    let click = clicks_of(&job);
    assert_eq!(click["causes"], json!({"duplicate_beyond_window": -8_412}));
    for basis in ["", "&basis=final"] {
        assert_eq!(by_hour(&server, "42", 10..11, basis), [8_412], "{basis}");
    }
}

/// From 10 to 13 o'clock the server ran without its rule.
#[test]
fn bots_of_three_hours_without_a_filter_leave_and_no_other_hour_changes() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    for hour in 8..16 {
        let is_judged = !(10..13).contains(&hour);
        let server = start_in(directory, hour, if is_judged { BOTS } else { "" });
        let both = [("human", "phone"), ("robot", "bot")];
        let both = both.map(|(who, device)| click(&format!("{who} {hour}"), hour, "42", device));
        let answer = send(&server, &both);
        assert_eq!(
            answer["accepted"],
            if is_judged { 1 } else { 2 },
            "{answer}"
        );
        server.kill9();
    }
    let server = start_after(directory, BOTS);
    assert_eq!(by_hour(&server, "42", 8..16, ""), [1, 1, 2, 2, 2, 1, 1, 1]);
    let job = reconcile(server.client(), &json!({ "day": DAY }));
    let click = clicks_of(&job);
    assert_eq!(click["causes"], json!({"filtered_by:bots": -3}));
    assert_eq!((&click["gross"], &click["after"]), (&json!(16), &json!(8)));
    for basis in ["", "&basis=final"] {
        assert_eq!(by_hour(&server, "42", 8..16, basis), [1; 8], "{basis}");
    }
}

/// From 10 to 13 o'clock a wrong build sent every click with the wrong ad, and one click of nobody. The day was final
/// by then. A rule catches what names the build, a void takes the rest, and the clicks come again with new ids.
#[test]
fn three_hours_of_a_wrong_build_are_replaced_by_corrected_events_with_new_ids() {
    const BUILD_7: &str =
        "[filters.build_7]\nevents = [\"click\"]\nfield = \"by.device\"\nvalues = [\"build 7\"]\n";
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let server = start_in(directory, 15, "");
    for hour in 8..15 {
        let sent = match (10..13).contains(&hour) {
            true => click(&format!("wrong {hour}"), hour, "41", "build 7"),
            false => click(&format!("right {hour}"), hour, "42", "build 6"),
        };
        assert_eq!(send(&server, &[sent])["accepted"], 1);
    }
    send(&server, &[click("of nobody", 12, "41", "build 6")]);
    server.terminate();
    let server = start_after(directory, "");
    let order = json!({ "day": DAY });
    let job = reconcile(server.client(), &order);
    assert_eq!(
        (&job["version"], &clicks_of(&job)["after"]),
        (&json!(1), &json!(8))
    );
    server.terminate();

    let server = start_after(directory, BUILD_7);
    let client = server.client();
    let reason = json!({"reason": "build 7 made it up"}).to_string();
    let voided = client.post_with("/v1/events/of%20nobody/void", &JSON, reason.as_bytes());
    assert_eq!(voided.status, 201, "{}", voided.text);
    let corrected = (10..13).map(|hour| click(&format!("right {hour}"), hour, "42", "build 6"));
    let answer = send(client, &corrected.collect::<Vec<_>>());
    assert_eq!(answer["accepted"], 3, "{answer}");
    let job = reconcile(client, &order);
    let sums = clicks_of(&job);
    assert_eq!(
        (&sums["before"], &sums["causes"], &sums["after"]),
        (
            &json!(11),
            &json!({"filtered_by:build_7": -3, "voided": -1}),
            &json!(7)
        )
    );
    assert_eq!(job["version"], 2);
    let wrong = [0, 0, 1, 1, 2, 0, 0];
    let right = [1, 1, 0, 0, 0, 1, 1];
    for (basis, of_41, of_42) in [
        ("", [0; 7], [1; 7]),
        ("&basis=final", [0; 7], [1; 7]),
        ("&final=1", wrong, right),
    ] {
        assert_eq!(by_hour(client, "41", 8..15, basis), of_41, "{basis}");
        assert_eq!(by_hour(client, "42", 8..15, basis), of_42, "{basis}");
    }
    // A late retry of the wrong build changes nothing.
    let retry = send(client, &[click("wrong 11", 11, "41", "build 7")]);
    assert_eq!(retry["accepted"], 0, "{retry}");
    assert_eq!(reconcile(client, &order)["types"]["click"]["after"], 7);
}
