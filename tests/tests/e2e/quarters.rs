//! Quarters of an hour make the days of every zone exact, from the ring through export, archive and merge.

use serde_json::{Value, json};
use tallyring_tests::server::{Server, tallyring_ok};

const CONFIG: &str = "[[namespace]]\nname = \"q\"\ngrain = \"quarter\"\nsubtotals = [\"c\"]\n\
    [[namespace]]\nname = \"h\"\nsubtotals = [\"c\"]\n";

/// Zones off the hour, each with a local midnight of theirs in UTC, and the day that begins then.
const MIDNIGHTS: [(&str, &str, &str); 5] = [
    (
        "Asia/Kolkata",
        "2012-03-15T18:30:00Z",
        "2012-03-16T00:00:00+05:30",
    ),
    (
        "Asia/Kathmandu",
        "2012-03-15T18:15:00Z",
        "2012-03-16T00:00:00+05:45",
    ),
    (
        "Australia/Lord_Howe",
        "2012-03-15T13:00:00Z",
        "2012-03-16T00:00:00+11:00",
    ),
    // Half an hour later than a week before: its clocks go back by half an hour.
    (
        "Australia/Lord_Howe",
        "2012-04-01T13:30:00Z",
        "2012-04-02T00:00:00+10:30",
    ),
    (
        "Pacific/Chatham",
        "2012-03-15T10:15:00Z",
        "2012-03-16T00:00:00+13:45",
    ),
];

fn instant(text: &str) -> jiff::Timestamp {
    text.parse().expect("a time")
}

/// One click a minute before each midnight, two at it.
fn clicks() -> Value {
    let mut items = Vec::new();
    for (zone, midnight, _) in MIDNIGHTS {
        for (seconds, n) in [(-60, 1), (0, 2)] {
            let at = instant(midnight) + jiff::SignedDuration::from_secs(seconds);
            let key = format!("{zone} {midnight}");
            items.push(json!({"at": at.to_string(), "n": n, "keys": {"q": key, "h": key}, "by": {"c": "X"}}));
        }
    }
    Value::Array(items)
}

fn check(server: &Server, clicks: u64) {
    for (zone, midnight, day) in MIDNIGHTS {
        let key = format!("{zone} {midnight}")
            .replace(' ', "%20")
            .replace('/', "%2F");
        let range = format!("unit=day&units=2&to={midnight}&timezone={zone}");
        let answer = server.get_json(&format!("/v1/q/{key}/counts?{range}"));
        assert_eq!(answer["aligned"], true, "{answer:#}");
        let counts = answer["counts"].as_array().expect("days");
        assert_eq!(counts[1]["start"], day, "{answer:#}");
        let each = [&counts[0]["count"], &counts[1]["count"]];
        assert_eq!(each, [clicks, 2 * clicks], "{zone}: {answer:#}");
        let summary = server.get_json(&format!("/v1/q/{key}/summary?{range}"));
        assert_eq!(summary["total"], 3 * clicks, "{summary:#}");
        let by = server.get_json(&format!("/v1/q/{key}/by/c?{range}&rollup=false"));
        let totals = [&by["buckets"][0]["total"], &by["buckets"][1]["total"]];
        assert_eq!(totals, [clicks, 2 * clicks], "{by:#}");
        let hours = server.get_json(&format!("/v1/h/{key}/counts?{range}"));
        let exact = midnight.ends_with(":00:00Z");
        assert_eq!(hours["aligned"], exact, "hours are too coarse: {hours:#}");
    }
}

#[test]
fn days_of_zones_off_the_hour_are_exact_from_the_ring_to_the_archive() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, config) = (
        directory.path().join("data"),
        directory.path().join("c.toml"),
    );
    std::fs::write(&config, CONFIG).expect("written");
    let config = config.to_str().expect("a path of text");
    let start = |clock: &str| Server::start(&data, &["--clock", clock, "--config", config]);
    let post = |server: &Server| {
        let answer = server.post("/v1/increments", clicks().to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let server = start("2012-04-02T12:00:00Z@0");
    post(&server);
    check(&server, 1);
    server.client().rebuild();
    check(&server, 1);
    post(&server);
    check(&server, 2);
    server.terminate();
    let server = start("2012-04-03T12:00:00Z@0");
    server.client().rebuild();
    check(&server, 2);
    server.terminate();
    let data = data.to_str().expect("a path of text");
    assert!(tallyring_ok(&["verify", "--deep", "--data", data]).ends_with("all good\n"));
}

#[test]
fn counts_by_the_hour_are_no_zero_once_quarters_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, config) = (
        directory.path().join("data"),
        directory.path().join("c.toml"),
    );
    let start = |declared: &str| {
        let text =
            format!("[[namespace]]\nname = \"l\"\nsubtotals = [\"c\"]\nuniques = true\n{declared}");
        std::fs::write(&config, text).expect("written");
        let config = config.to_str().expect("a path of text");
        Server::start(
            &data,
            &["--clock", "2012-03-16T20:00:00Z@0", "--config", config],
        )
    };
    let server = start("");
    let click = "/v1/incr?key.l=a&by.c=US&user=x&n=7&at=2012-03-16T18:40:47Z";
    assert_eq!(server.get(click).status, 204);
    server.terminate();
    // The 17th begins in Kolkata at 18:30Z, within the hour that holds it.
    let day = "unit=day&units=1&to=2012-03-16T19:00:00Z&timezone=Asia/Kolkata";
    let check = |server: &Server| {
        for read in ["l/a/counts", "l/a/by/c", "l/a/uniques", "l/counts", "l/top"] {
            let answer = server.get_json(&format!("/v1/{read}?{day}"));
            assert_eq!(answer["aligned"], false, "{read}: {answer:#}");
        }
    };
    let server = start("grain = \"quarter\"\n");
    check(&server);
    server.terminate();
    let server = start("grain = \"quarter\"\nminutes = true\n");
    check(&server);
    let minutes = "unit=minute&from=2012-03-16T18:39:00Z&to=2012-03-16T18:41:00Z";
    for read in ["l/a/counts", "l/counts", "l/top"] {
        let answer = server.get(&format!("/v1/{read}?{minutes}"));
        assert_eq!(answer.status, 422, "{read}: {answer:?}");
    }
    server.terminate();
}

#[test]
fn counts_beside_a_range_of_quarters_are_in_no_sum_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, config) = (
        directory.path().join("data"),
        directory.path().join("c.toml"),
    );
    for minutes in [false, true] {
        let text = format!(
            "[[namespace]]\nname = \"l\"\nsubtotals = [\"c\"]\ngrain = \"quarter\"\nminutes = {minutes}\n"
        );
        std::fs::write(&config, text).expect("written");
        let file = config.to_str().expect("a path of text");
        // Half past one in Kolkata.
        let server = Server::start(
            &data,
            &["--clock", "2012-03-16T20:00:00Z@0", "--config", file],
        );
        let key = format!("k{minutes}");
        for (at, n) in [("18:20", 3), ("18:29", 4), ("18:30", 5), ("19:50", 6)] {
            let click = format!("/v1/incr?key.l={key}&by.c=US&n={n}&at=2012-03-16T{at}:00Z");
            assert_eq!(server.get(&click).status, 204);
        }
        let today = "unit=day&units=1&timezone=Asia/Kolkata";
        for (path, place) in [
            (format!("/v1/l/{key}/counts?{today}"), "/total"),
            (format!("/v1/l/{key}/by/c?{today}"), "/values/0/count"),
            (
                format!("/v3/link/clicks?link=http://a.b/{key}&{today}&rollup=true"),
                "/data/link_clicks",
            ),
            (
                format!("/v3/link/countries?link=http://a.b/{key}&{today}"),
                "/data/countries/0/clicks",
            ),
            (
                format!("/v4/bitlinks/a.b/{key}/clicks/summary?{today}"),
                "/total_clicks",
            ),
        ] {
            let answer = server.get_json(&path);
            assert_eq!(
                answer.pointer(place),
                Some(&json!(11)),
                "{path}: {answer:#}"
            );
        }
        server.terminate();
    }
}

#[test]
fn archived_ranges_may_be_cached_until_a_late_count_changes_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), &["--clock", "2012-03-16T12:00:00Z@0"]);
    let count = |at: &str| assert_eq!(server.get(&format!("/v1/incr?key.l=a&at={at}")).status, 204);
    let read = || {
        let answer =
            server.get("/v1/l/a/counts?unit=day&from=2011-05-01T00:00:00Z&to=2011-05-07T00:00:00Z");
        let header = |name: &str| answer.header(name).expect("a header").to_owned();
        (
            header("cache-control"),
            header("etag"),
            answer.json()["total"].clone(),
        )
    };
    count("2011-05-05T10:00:00Z");
    let (live, first, total) = read();
    assert!(
        !live.contains("max-age=300"),
        "it waits to be merged: {live}"
    );
    assert_eq!(total, 1);
    server.client().rebuild();
    let (archived, same, _) = read();
    assert!(
        archived.contains("max-age=300") && archived.contains("public"),
        "{archived}"
    );
    assert_eq!(same, first, "the counts are the same");
    count("2011-05-05T11:00:00Z");
    let (live, second, total) = read();
    assert!(!live.contains("max-age=300"), "{live}");
    assert_ne!(second, first, "a late count changes the tag");
    assert_eq!(total, 2);
    server.client().rebuild();
    assert_eq!(read(), (archived, second, json!(2)));
}
