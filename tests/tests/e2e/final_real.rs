//! Final numbers of real events that came three times, shuffled, with kills, and once behind the window of ids.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_tests::server::{Client, wait_until};

use crate::final_numbers::{reconcile, start};
use crate::real_events::{lines, send_through_kills, shuffled};

const DAYS: [&str; 7] = [
    "2019-11-24",
    "2019-11-25",
    "2019-11-26",
    "2019-11-27",
    "2019-11-28",
    "2019-11-29",
    "2019-11-30",
];
const CLICKS: [u64; 7] = [36, 28, 25, 22, 27, 30, 39];
const IMPRESSIONS: [u64; 7] = [6_693, 4_891, 5_193, 6_064, 6_320, 5_471, 5_368];
const WEEK: &str = "unit=day&from=2019-11-24T00:00:00Z&to=2019-11-30T23:59:59Z";
const BATCH_ITEMS: usize = 500;

/// Impressions and clicks as events whose ids are the numbers of their lines; none without the file.
fn impressions_and_clicks() -> Option<Vec<Value>> {
    let lines = lines("obd_impressions_clicks.ndjson.gz")?;
    let numbered = lines.iter().enumerate();
    let events = numbered.map(|(number, line)| {
        json!({"id": number.to_string(), "type": line["action"], "at": line["ts"], "user": line["user"],
            "entities": {"ad": line["key"], "advertiser": "zozo"}})
    });
    Some(events.collect())
}

/// Sends all events twice within the window of ids, and once more 26 hours after.
fn send_three_times(directory: &Path, config: &str, clocks: [&str; 2], events: &[Value]) {
    let mut twice = events.to_vec();
    twice.extend_from_slice(events);
    let first = || start(directory, clocks[0], config);
    let server = send_through_kills(&first, "/v1/events", &shuffled(twice, BATCH_ITEMS));
    server.terminate();
    // Ids of before are forgotten once files hold them.
    let later = start(directory, clocks[1], config);
    later.client().rebuild();
    later.terminate();
    let later = || start(directory, clocks[1], config);
    let batches = shuffled(events.to_vec(), BATCH_ITEMS);
    send_through_kills(&later, "/v1/events", &batches).terminate();
}

fn total(client: &Client, kind: &str, basis: &str) -> Value {
    let path = format!("/v1/advertiser_{kind}/zozo/counts?{WEEK}{basis}");
    client.get_json(&path)["total"].clone()
}

fn by_day(client: &Client, kind: &str) -> Vec<u64> {
    let path = format!("/v1/advertiser_{kind}/zozo/counts?{WEEK}&basis=final");
    let answer = client.get_json(&path);
    assert_eq!(answer["state"], "final", "{answer}");
    let rows = answer["counts"].as_array().expect("days").iter();
    rows.map(|row| row["count"].as_u64().expect("a count"))
        .collect()
}

/// MONEY: 40,207 events, whatever was sent again.
#[test]
fn real_impressions_and_clicks_that_came_three_times_are_final_once() {
    let Some(events) = impressions_and_clicks() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let config = "[memory]\nreplay_records = 20000\n";
    let clocks = ["2019-12-01T12:00:00Z", "2019-12-02T14:00:00Z"];
    send_three_times(directory.path(), config, clocks, &events);
    let server = start(directory.path(), "2019-12-03T12:00:00Z", config);
    let client = server.client();
    client.rebuild();
    assert_eq!(total(client, "impression", ""), 80_000, "counted twice");
    assert_eq!(total(client, "click", ""), 414, "counted twice");
    for (number, day) in DAYS.iter().enumerate() {
        let job = reconcile(client, &json!({ "day": day }));
        for (kind, counts) in [("click", CLICKS), ("impression", IMPRESSIONS)] {
            let n = counts[number];
            let expected = json!({"gross": 2 * n, "undecided": 0, "before": 2 * n, "after": n,
                "causes": {"duplicate_beyond_window": -i64::try_from(n).expect("few")},
                "filtered": {"general": {"n": 0, "rules": {}}, "sophisticated": {"n": 0, "rules": {}}}});
            assert_eq!(job["types"][kind], expected, "{day}");
        }
    }
    assert_eq!(by_day(client, "click"), CLICKS);
    assert_eq!(by_day(client, "impression"), IMPRESSIONS);
    let finals = ["impression", "click"].map(|kind| total(client, kind, "&basis=final"));
    assert_eq!(finals, [40_000, 207], "40,207 events");
    assert_eq!(total(client, "impression", ""), 40_000, "as counted now");
    check_orders_at_once(client);
    server.kill9();
    let server = start(directory.path(), "2019-12-03T13:00:00Z", config);
    assert_eq!(by_day(server.client(), "click"), CLICKS);
}

/// A second order of the same day joins the first, and one of another day has to wait. A reconcile may be over before
/// the second order comes, so this is tried again.
fn check_orders_at_once(client: &Client) {
    const TRIES: usize = 50;
    let order = |day: &str| {
        let headers = [("content-type", "application/json")];
        let body = json!({"day": day, "dry_run": true}).to_string();
        client.post_with("/v1/admin/reconcile", &headers, body.as_bytes())
    };
    let meets = || {
        let [first, second, other] = [DAYS[0], DAYS[0], DAYS[1]].map(order);
        assert_eq!((first.status, second.status), (202, 202), "{second:?}");
        let is_joined = first.json()["job"] == second.json()["job"];
        let says = "the server reconciles 2019-11-24 now; try again once that has ended";
        let is_refused = other.status == 409;
        assert!(!is_refused || other.text.contains(says), "{other:?}");
        wait_until("the reconcile ends", || {
            client.get_json("/v1/admin/reconcile")["state"] != "running"
        });
        is_joined && is_refused
    };
    assert!((0..TRIES).any(|_| meets()), "no order met another one");
}

/// MONEY: of 207 clicks none, two or three repeat one on the same ad by the same user within 2 s, 30 s and an hour.
#[test]
fn double_clicks_in_real_clicks_leave_when_their_days_become_final() {
    let Some(mut events) = impressions_and_clicks() else {
        return;
    };
    events.retain(|event| event["type"] == "click");
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), "2019-12-01T12:00:00Z", "");
    for batch in shuffled(events, BATCH_ITEMS) {
        assert_eq!(server.post("/v1/events", batch).status, 200);
    }
    server.terminate();
    for (within, more, left) in [("2s", 0, 207), ("30s", -2, 205), ("1h", -1, 204)] {
        let rule = format!(
            "[filters.double_click]\nevents = [\"click\"]\nwithin = \"{within}\"\nsame = [\"user\", \"ad\"]\n"
        );
        let server = start(directory.path(), "2019-12-03T12:00:00Z", &rule);
        server.client().rebuild();
        let mut caught = 0;
        for day in DAYS {
            let job = reconcile(server.client(), &json!({ "day": day }));
            let causes = job["types"]["click"]["causes"].as_object();
            for (cause, n) in causes.expect("causes") {
                assert_eq!(cause, "filtered_by:double_click", "{job}");
                caught += n.as_i64().expect("a number");
            }
        }
        assert_eq!(caught, more, "{within}");
        assert_eq!(by_day(server.client(), "click").iter().sum::<u64>(), left);
        assert_eq!(total(server.client(), "click", ""), left, "{within}");
        server.terminate();
    }
}

/// 15,129 real events with ids of their own.
#[test]
fn real_events_that_came_three_times_are_final_once() {
    let Some(lines) = lines("gharchive_2015-01-01.ndjson.gz") else {
        return;
    };
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        let kind = line["action"].as_str().expect("an action");
        *kinds.entry(kind).or_default() += 1;
    }
    let event = |line: &Value| {
        json!({"id": line["id"], "type": "activity", "at": line["t"], "user": line["user"],
            "entities": {"repository": line["key"], "kind": line["action"], "source": "hub"}})
    };
    let events: Vec<Value> = lines.iter().map(event).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let config = "[events.activity]\nentities = [\"repository\", \"kind\", \"source\"]\n[memory]\nreplay_records = 5000\n";
    let clocks = ["2015-01-01T03:00:00Z", "2015-01-02T05:00:00Z"];
    send_three_times(directory.path(), config, clocks, &events);
    let server = start(directory.path(), "2015-01-03T12:00:00Z", config);
    server.client().rebuild();
    let job = reconcile(server.client(), &json!({"day": "2015-01-01"}));
    let sums = &job["types"]["activity"];
    let causes = json!({"duplicate_beyond_window": -15_129});
    assert_eq!(
        (&sums["before"], &sums["causes"], &sums["after"]),
        (&json!(30_258), &causes, &json!(15_129))
    );
    let of = |key: &str| {
        let day = "from=2015-01-01T00:00:00Z&to=2015-01-01T23:59:59Z&basis=final";
        server.get_json(&format!("/v1/{key}/summary?{day}"))["total"].clone()
    };
    assert_eq!(of("source_activity/hub"), 15_129);
    for (kind, count) in kinds {
        assert_eq!(of(&format!("kind_activity/{kind}")), count, "{kind}");
    }
}
