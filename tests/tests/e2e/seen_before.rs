//! The worked examples of counts of what a person already saw, each asked of the real binary.

use serde_json::{Value, json};
use tallyring_tests::server::Server;
use tempfile::TempDir;

use crate::chance::Chance;

/// The present of every server here: 2026-03-16T12:34:00Z.
const NOW: i64 = 1_773_664_440;
const CLOCK: &str = "2026-03-16T12:34:00Z@0";
const MINUTE: i64 = 60;
const DAY: i64 = 86_400;
const MIDNIGHT: i64 = NOW - NOW % DAY;

/// A server that has counted nothing yet.
struct Stand {
    server: Server,
    data: TempDir,
}

impl Stand {
    fn open() -> Self {
        let data = TempDir::new().expect("a directory");
        Self {
            server: start(&data),
            data,
        }
    }

    /// Kills the server and starts it again.
    fn restart(self) -> Self {
        self.server.kill9();
        Self {
            server: start(&self.data),
            data: self.data,
        }
    }

    /// Sends events; returns how many of them counted.
    fn send(&self, events: &[Value]) -> u64 {
        let answer = self.server.post("/v1/events", json!(events).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["accepted"].as_u64().expect("a number")
    }

    /// The counts of impressions of `ann`, by range.
    fn counts(&self, question: &Value) -> Value {
        let mut whole = json!({"users": ["ann"], "action": ["impression"]});
        let fields = question.as_object().expect("an object").clone();
        whole.as_object_mut().expect("an object").extend(fields);
        let answer = self.server.post("/v1/actions/query", whole.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        let ranges = answer.json()["users"]["ann"].clone();
        let of_range = |(range, of): (&String, &Value)| (range.clone(), of["impression"].clone());
        let ranges = ranges.as_object().expect("ranges").iter();
        Value::Object(ranges.map(of_range).collect())
    }
}

fn start(data: &TempDir) -> Server {
    Server::start(data.path(), &["--clock", CLOCK])
}

/// An impression of an ad by `ann`.
fn seen(id: &str, at: i64, ad: &str) -> Value {
    json!({"id": id, "type": "impression", "user": "ann", "at": at, "entities": {"ad": ad}})
}

fn with(mut event: Value, field: &str, value: &str) -> Value {
    event[field] = value.into();
    event
}

#[test]
fn an_insertion_seen_again_on_the_same_day_counts_once_and_on_the_next_day_again() {
    let stand = Stand::open();
    let shown = |id, at, ad, insertion| with(seen(id, at, ad), "insertion", insertion);
    stand.send(&[
        shown("1", MIDNIGHT - 3 * 3_600, "1", "i1"),
        shown("2", MIDNIGHT - 3_600, "1", "i1"),
        shown("3", MIDNIGHT + 3_600, "1", "i1"),
        shown("4", MIDNIGHT + 3_700, "1", "i2"),
        shown("5", MIDNIGHT + 3_800, "3", "i3"),
    ]);
    let question = json!({"ranges": ["7d"], "entity": {"ad": ["1", "2", "3"]}, "distinct": "insertion", "per": "day"});
    let expected = json!({"1": 3, "2": 0, "3": 1});
    assert_eq!(stand.counts(&question)["7d"]["ad"], expected);
}

#[test]
fn an_event_that_is_delivered_three_times_counts_once() {
    let mut stand = Stand::open();
    let event = seen("the same", NOW - MINUTE, "1");
    assert_eq!(stand.send(&[event.clone(), event.clone()]), 1);
    stand = stand.restart();
    assert_eq!(stand.send(std::slice::from_ref(&event)), 0);
    let question = json!({"ranges": ["1h"], "entity": {"ad": ["1"]}});
    assert_eq!(stand.counts(&question)["1h"]["ad"], json!({"1": 1}));
}

#[test]
fn an_insertion_that_is_seen_on_both_sides_of_an_hour_counts_once() {
    let stand = Stand::open();
    let hour = MIDNIGHT + 11 * 3_600;
    let shown = |id, at| with(seen(id, at, "1"), "insertion", "i1");
    stand.send(&[shown("1", hour - 1), shown("2", hour)]);
    let mut question =
        json!({"ranges": ["1d", "calendar:day"], "entity": {"ad": ["1"]}, "distinct": "insertion"});
    let once = json!({"ad": {"1": 1}});
    assert_eq!(
        stand.counts(&question),
        json!({"1d": once, "calendar:day": once})
    );
    let fields = question.as_object_mut().expect("an object");
    fields.remove("distinct");
    let twice = json!({"ad": {"1": 2}});
    assert_eq!(
        stand.counts(&question),
        json!({"1d": twice, "calendar:day": twice})
    );
}

#[test]
fn an_action_counts_on_all_four_levels_that_it_names() {
    let stand = Stand::open();
    let of = |id: &str, [ad, ad_group, campaign, advertiser]: [&str; 4]| {
        let mut event = seen(id, NOW - MINUTE, ad);
        event["entities"] =
            json!({"ad": ad, "ad_group": ad_group, "campaign": campaign, "advertiser": advertiser});
        event
    };
    stand.send(&[
        of("1", ["1", "g1", "c1", "a"]),
        of("2", ["2", "g1", "c1", "a"]),
        of("3", ["3", "g2", "c1", "a"]),
        of("4", ["4", "g3", "c2", "a"]),
        of("5", ["1", "g1", "c1", "a"]),
        seen("6", NOW - MINUTE, "1"),
    ]);
    let question = json!({"ranges": ["1h"], "entity": {
        "ad": ["1", "2", "9"], "ad_group": ["g1", "g2"], "campaign": ["c1", "c2"], "advertiser": ["a", "b"]}});
    let expected = json!({
        "ad": {"1": 3, "2": 1, "9": 0},
        "ad_group": {"g1": 3, "g2": 1},
        "campaign": {"c1": 4, "c2": 1},
        "advertiser": {"a": 5, "b": 0},
    });
    assert_eq!(stand.counts(&question)["1h"], expected);
}

#[test]
fn views_count_apart_and_together() {
    let stand = Stand::open();
    let on = |id, view| with(seen(id, NOW - MINUTE, "1"), "view", view);
    stand.send(&[
        on("1", "home"),
        on("2", "home"),
        on("3", "search"),
        on("4", "related"),
        seen("5", NOW - MINUTE, "1"),
    ]);
    let mut question = json!({"ranges": ["1h"], "entity": {"ad": ["1"]}});
    let counts = |question: &Value| stand.counts(question)["1h"].clone();
    assert_eq!(counts(&question), json!({"ad": {"1": 5}}));
    question["view"] = json!(["home", "search", "never"]);
    assert_eq!(counts(&question), json!({"ad": {"1": 3}}));
    question["by_view"] = true.into();
    let of = |count: u64| json!({"ad": {"1": count}});
    let apart = json!({"home": of(2), "search": of(1), "never": of(0)});
    assert_eq!(counts(&question), apart);
}

/// At 12:34 a range of 7 days begins at 12:34 of the day a week ago, not at midnight or at the hour.
#[test]
fn seven_days_at_12_34_are_counted_to_the_minute() {
    let stand = Stand::open();
    let seed = 7;
    let mut chance = Chance::new(seed);
    let minutes = 9 * DAY / MINUTE;
    let mut events: Vec<(i64, String)> = (0..2_000)
        .map(|_| {
            let ago = MINUTE * chance.below(minutes as u64) as i64;
            (NOW - ago, chance.below(4).to_string())
        })
        .collect();
    // The minutes around the beginning, each of which changes the count.
    let week_ago = NOW - 7 * DAY;
    events.extend((-3..4).map(|minute| (week_ago + minute * MINUTE, "0".to_owned())));
    let sent = events
        .iter()
        .enumerate()
        .map(|(number, (at, ad))| seen(&number.to_string(), *at, ad));
    let sent: Vec<Value> = sent.collect();
    assert_eq!(stand.send(&sent), events.len() as u64);
    let naive = |ad: &str, at: i64| {
        let is_in = |(then, of): &&(i64, String)| of == ad && at - 7 * DAY < *then && *then <= at;
        events.iter().filter(is_in).count()
    };
    let ads = ["0", "1", "2", "3"];
    // The counts of the present, and of moments of the past.
    for at in (0..8)
        .map(|minute| NOW - minute * MINUTE)
        .chain([NOW - DAY, NOW - 25 * 3_600 - 1])
    {
        let question = json!({"ranges": ["7d"], "entity": {"ad": ads}, "at": at});
        let counts = stand.counts(&question);
        for ad in ads {
            assert_eq!(
                counts["7d"]["ad"][ad],
                naive(ad, at),
                "ad {ad} at {at}, seed {seed}"
            );
        }
    }
}

#[test]
fn three_ranges_in_one_request_are_three_requests() {
    let stand = Stand::open();
    let seed = 3;
    let mut chance = Chance::new(seed);
    let events: Vec<Value> = (0..1_000)
        .map(|number: u64| {
            let at = NOW - chance.below(31 * DAY as u64) as i64;
            let event = seen(&number.to_string(), at, &chance.below(5).to_string());
            with(event, "insertion", &chance.below(300).to_string())
        })
        .collect();
    stand.send(&events);
    let ranges = ["36h", "30d", "calendar:week@America/New_York"];
    for distinct in [None, Some("day"), Some("range")] {
        let mut question =
            json!({"ranges": ranges, "entity": {"ad": ["0", "1", "2", "3", "4", "5"]}});
        if let Some(per) = distinct {
            question["distinct"] = "insertion".into();
            question["per"] = per.into();
        }
        let together = stand.counts(&question);
        assert_eq!(together.as_object().map(|ranges| ranges.len()), Some(3));
        for range in ranges {
            question["ranges"] = json!([range]);
            let alone = stand.counts(&question);
            assert_eq!(
                alone[range], together[range],
                "{range}, {distinct:?}, seed {seed}"
            );
        }
    }
}
