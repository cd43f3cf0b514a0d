//! Alerts over a made-up month, with receivers of this process.

mod mail;
mod mended;
mod reports;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU16};

use serde_json::Value;
use tallyring_realtime::{Batch, Clock, Options, Store};
use tallyring_records::{Increment, Schema};

use super::*;
use crate::config::Config;
use crate::data_directory::world;

const HOUR: i64 = 3_600;
/// 2012-03-16T18:00:00Z
const START: i64 = 1_331_920_800;
const USUAL: u64 = 40;
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// An alert of this kind on `l/abc`.
pub(super) fn alert(kind: &str) -> Alert {
    let text = format!(
        "[receivers.ops]\nurl = \"http://a\"\nsecret = \"s\"\n[alerts.a]\nof = \"l/abc\"\nto = [\"ops\"]\n{kind}"
    );
    let config = Config::parse(&text, "test").unwrap();
    config.alerts.alerts["a"].clone()
}

#[derive(Debug)]
struct TestClock {
    /// Unix seconds of a right clock.
    now: AtomicI64,
    /// Seconds that it is ahead.
    ahead: AtomicI64,
    /// Somebody may have set it wrongly.
    is_real: AtomicBool,
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.elapsed_ms() + self.ahead.load(Ordering::Relaxed) * 1_000
    }

    fn elapsed_ms(&self) -> i64 {
        self.now.load(Ordering::Relaxed) * 1_000
    }

    fn jumps_are_meant(&self) -> bool {
        !self.is_real.load(Ordering::Relaxed)
    }
}

/// A server that takes webhooks, and answers them with a status that can be changed.
struct Taker {
    url: String,
    status: Arc<AtomicU16>,
    /// Requests that it answered with 200: head and body.
    taken: Arc<Mutex<Vec<(String, String)>>>,
}

impl Taker {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taker = Self {
            url: format!("http://{}/hook", listener.local_addr().unwrap()),
            status: Arc::new(AtomicU16::new(200)),
            taken: Arc::default(),
        };
        let (status, taken) = (Arc::clone(&taker.status), Arc::clone(&taker.taken));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let mut reader = BufReader::new(&socket);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
                }
                let length = header(&head, "content-length").parse().unwrap();
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let answer = status.load(Ordering::Relaxed);
                if answer == 200 {
                    taken.lock().push((head, String::from_utf8(body).unwrap()));
                }
                let text = "noted";
                write!(
                    socket,
                    "HTTP/1.1 {answer} told\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
                    text.len()
                )
                .unwrap();
            }
        });
        taker
    }

    fn ids(&self) -> Vec<String> {
        let taken = self.taken.lock();
        taken
            .iter()
            .map(|(head, _)| header(head, "webhook-id").to_owned())
            .collect()
    }
}

fn header<'h>(head: &'h str, name: &str) -> &'h str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("{name} of {head}")).1
}

/// A server without its threads.
struct Site {
    directory: tempfile::TempDir,
    clock: Arc<TestClock>,
    store: Arc<Store>,
    taker: Taker,
    duty: Duty,
}

impl Site {
    /// A store in which `l/abc` counted what is usual in each hour of some weeks, and which has these alerts.
    fn with(alerts: &str, weeks: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock {
            now: AtomicI64::new(START),
            ahead: AtomicI64::new(0),
            is_real: AtomicBool::new(false),
        });
        let store = open(directory.path(), &clock);
        let taker = Taker::start();
        std::fs::write(directory.path().join("secret"), SECRET).unwrap();
        let site = Self {
            duty: duty(&store, config(directory.path(), &taker, alerts)),
            directory,
            clock,
            store,
            taker,
        };
        for hour in 0..weeks * 168 {
            site.count(START - weeks * 168 * HOUR + hour * HOUR, USUAL);
        }
        site
    }

    fn count(&self, at: i64, n: u64) {
        let batch = Batch {
            increments: vec![Increment::new(at, n, [("l", "abc")])],
            ..Batch::default()
        };
        self.store.intake().commit(vec![batch]).remove(0).unwrap();
    }

    /// Lets hours count these numbers one after the other; each is judged once it has settled.
    fn hours(&mut self, counts: &[u64]) {
        for &n in counts {
            let now = self.clock.now.load(Ordering::Relaxed);
            if n > 0 {
                self.count(now, n);
            }
            // Nothing of the hour has settled yet.
            self.round_at(now + HOUR);
            self.round_at(now + HOUR + 400);
            self.clock.now.store(now + HOUR, Ordering::Relaxed);
        }
    }

    fn round_at(&mut self, now: i64) {
        self.clock.now.store(now, Ordering::Relaxed);
        self.duty.round(&|| false);
    }

    /// Puts other alerts in force.
    fn reload(&self, alerts: &str) {
        let newer = config(self.directory.path(), &self.taker, alerts);
        self.duty.alerts.replace(newer);
    }

    fn events(&self) -> Vec<String> {
        let ids = self.taker.ids();
        ids.iter().map(|id| told(id)).collect()
    }
}

/// The id with the number of its hour in place of the hour.
fn told(id: &str) -> String {
    let (rest, what) = id.rsplit_once('-').unwrap();
    let (name, start) = rest.rsplit_once('-').unwrap();
    let hour = (start.parse::<i64>().unwrap() - START) / HOUR;
    format!("{name} {hour} {what}")
}

fn open(directory: &Path, clock: &Arc<TestClock>) -> Arc<Store> {
    let world = world(directory, Arc::clone(clock) as _).unwrap();
    let options = Options::for_memory(1 << 28);
    let (store, _) = Store::open(world, options, Schema::default_clicks()).unwrap();
    Arc::new(store)
}

fn config(directory: &Path, taker: &Taker, alerts: &str) -> AlertConfig {
    let secret = directory.join("secret");
    let text = format!(
        "[receivers.ops]\nurl = \"{}\"\nsecret = \"{}\"\n{alerts}",
        taker.url,
        secret.display()
    );
    Config::parse(&text, "test").unwrap().alerts
}

fn duty(store: &Arc<Store>, config: AlertConfig) -> Duty {
    let stores = Arc::new(Stores::new(vec![Arc::clone(store)]));
    Duty::new(stores, Arc::new(Alerts::new(config)))
}

fn section(name: &str, kind: &str) -> String {
    format!("[alerts.{name}]\nof = \"l/abc\"\nto = [\"ops\"]\n{kind}\n")
}

fn all_kinds() -> String {
    [
        section("spike", "kind = \"spike\"\nfactor = 3.0"),
        section("drop", "kind = \"drop\"\nfactor = 0.5"),
        section("silence", "kind = \"silence\"\nhours = 2"),
        section("many", "kind = \"threshold\"\nabove = 100"),
        section("few", "kind = \"threshold\"\nbelow = 5"),
    ]
    .concat()
}

#[test]
fn each_kind_begins_once_and_ends_once() {
    let mut site = Site::with(&all_kinds(), 4);
    site.hours(&[40, 130, 125, 90, 40, 40]);
    assert_eq!(
        site.events(),
        [
            "many 1 begun",
            "spike 1 begun",
            "many 3 ended",
            "spike 4 ended"
        ]
    );
    site.taker.taken.lock().clear();
    // 25 of 40 is above the bound of a drop, and not yet inside half the way back.
    site.hours(&[10, 12, 25, 19, 40, 40]);
    assert_eq!(site.events(), ["drop 6 begun", "drop 10 ended"]);
    site.taker.taken.lock().clear();
    site.hours(&[0, 0, 0, 20, 40, 40]);
    assert_eq!(
        site.events(),
        [
            "drop 12 begun",
            "few 12 begun",
            "silence 13 begun",
            "few 15 ended",
            "drop 16 ended",
            "silence 16 ended"
        ]
    );
}

#[test]
fn without_history_thresholds_alone_judge() {
    let mut site = Site::with(&all_kinds(), 1);
    site.hours(&[0, 0, 0, 200, 40]);
    let told = site.events();
    assert_eq!(
        told,
        ["few 0 begun", "few 3 ended", "many 3 begun", "many 4 ended"]
    );
    let state = site.duty.alerts.told().unwrap();
    for alert in &state.alerts {
        let says_nothing = alert
            .note
            .as_ref()
            .is_some_and(|note| note.contains("history"));
        assert_eq!(says_nothing, alert.kind != "threshold", "{alert:?}");
        assert_eq!((alert.since, alert.expected), (None, None));
    }
}

#[test]
fn days_and_whole_namespaces_are_judged_by_the_calendar_of_a_zone() {
    let of_all = "[alerts.all]\nof = \"l\"\nkind = \"drop\"\nfactor = 0.5\nunit = \"day\"\n\
         timezone = \"America/New_York\"\nto = [\"ops\"]\n";
    let mut site = Site::with(of_all, 5);
    site.hours(&[USUAL; 10]);
    // The day ends at 04:00 UTC, for clocks went forward meanwhile.
    site.hours(&[0; 24]);
    site.hours(&[USUAL; 24]);
    let bodies: Vec<Value> = {
        let taken = site.taker.taken.lock();
        taken
            .iter()
            .map(|(_, body)| serde_json::from_str(body).unwrap())
            .collect()
    };
    let of = |name: &str| {
        bodies
            .iter()
            .map(|body| body["data"][name].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("from"),
        ["2012-03-17T00:00:00-04:00", "2012-03-18T00:00:00-04:00"]
    );
    assert_eq!(of("expected"), [24 * USUAL, 24 * USUAL]);
    assert_eq!(of("count"), [0, 24 * USUAL]);
    assert_eq!(of("since"), ["2012-03-17T00:00:00-04:00"; 2]);
}

#[test]
fn a_receiver_that_fails_gets_every_id_later_also_over_a_restart() {
    let mut site = Site::with(&all_kinds(), 4);
    site.taker.status.store(503, Ordering::Relaxed);
    site.hours(&[130, 40, 0, 0]);
    assert_eq!(site.events(), [""; 0]);
    let state = site.duty.alerts.told().unwrap();
    let receiver = &state.receivers[0];
    assert!(receiver.waiting > 4 && receiver.is_late, "{receiver:?}");
    assert!(
        receiver.failure.as_ref().unwrap().contains("503"),
        "{receiver:?}"
    );
    site.duty = duty(
        &site.store,
        config(site.directory.path(), &site.taker, &all_kinds()),
    );
    site.taker.status.store(200, Ordering::Relaxed);
    site.hours(&[40, 40, 40]);
    let mut ids = site.taker.ids();
    assert!(ids.contains(&format!("spike-{START}-begun")), "{ids:?}");
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), count), (10, 10), "{ids:?}");
    assert_eq!(site.duty.alerts.told().unwrap().receivers[0].waiting, 0);
}

#[test]
fn a_message_is_given_up_after_a_day_and_is_counted() {
    let mut site = Site::with(&section("many", "kind = \"threshold\"\nabove = 100"), 0);
    site.taker.status.store(500, Ordering::Relaxed);
    site.hours(&[200]);
    site.hours(&[200; 30]);
    let state = site.duty.alerts.told().unwrap();
    assert_eq!((state.receivers[0].waiting, state.given_up), (0, 1));
}

#[test]
fn a_message_is_signed_and_says_all() {
    let mut site = Site::with(&all_kinds(), 4);
    site.hours(&[130]);
    let (head, body) = site.taker.taken.lock()[1].clone();
    let id = format!("spike-{START}-begun");
    assert_eq!(header(&head, "webhook-id"), id);
    let at = header(&head, "webhook-timestamp");
    assert_eq!(at, (START + HOUR + 400).to_string());
    // Not the code that signed it: HMAC as RFC 2104 says, over the digest alone.
    let key = data_encoding::BASE64
        .decode(&SECRET.as_bytes()[6..])
        .unwrap();
    let padded = |with: u8| -> Vec<u8> {
        let key = key.iter().chain(std::iter::repeat(&0)).take(64);
        key.map(|byte| byte ^ with).collect()
    };
    let hash = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
    let signed = format!("{id}.{at}.{body}");
    let inner = hash(&[&padded(0x36), signed.as_bytes()].concat());
    let outer = hash(&[&padded(0x5c), inner.as_ref()].concat());
    let signature = format!("v1,{}", data_encoding::BASE64.encode(outer.as_ref()));
    assert_eq!(header(&head, "webhook-signature"), signature);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["type"], "alert.begun");
    assert_eq!(body["timestamp"], "2012-03-16T19:00:00Z");
    assert_eq!(
        body["text"],
        "spike (spike) has begun: l/abc counted 130 in the hour until 2012-03-16T19:00:00+00:00, expected 40, the bound \
         is above 120."
    );
    assert_eq!(
        body["data"],
        serde_json::json!({
            "id": id, "alert": "spike", "of": "l/abc", "kind": "spike", "unit": "hour",
            "from": "2012-03-16T18:00:00+00:00", "to": "2012-03-16T19:00:00+00:00",
            "since": "2012-03-16T18:00:00+00:00", "count": 130, "expected": 40, "bound": 120.0,
        })
    );
}

#[test]
fn nothing_is_read_or_written_where_no_alert_is_declared() {
    let mut site = Site::with("", 1);
    site.duty.alerts.replace(AlertConfig::default());
    let before = site.store.live().blocks_decoded();
    site.hours(&[200, 20]);
    assert!(site.duty.state.is_none() && site.duty.alerts.told().is_none());
    assert_eq!(site.store.live().blocks_decoded(), before);
    let file = site.directory.path().join(tallyring_archive::names::ALERTS);
    assert!(!file.exists());
    // Alerts of a reload are judged from then on.
    let alerts = section("many", "kind = \"threshold\"\nabove = 100");
    site.reload(&alerts);
    site.hours(&[300, 0]);
    assert_eq!(site.events(), ["many 2 begun", "many 3 ended"]);
    assert!(file.exists());
}
